#![allow(clippy::unwrap_used)]
use super::*;

fn run(n: usize, question: &str, task_type: &str, ended: &str) -> Run {
    Run {
        session: format!("s-{n}"),
        question: question.into(),
        task_type: task_type.into(),
        by_caller: false,
        ended: ended.into(),
    }
}

fn set() -> Snapshot {
    let mut set = Snapshot::default();
    for (name, framing, valid) in [
        ("general", "", vec!["react".to_owned()]),
        ("research", "Find out.", vec![]),
    ] {
        let item = AgentTaskType {
            name: name.into(),
            framing_prompt: framing.into(),
            valid_patterns: valid,
            ..AgentTaskType::default()
        };
        set.task_types.insert(name.into(), item);
    }
    set
}

fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for (question, task_type, ended) in [
        ("Replace the seal of pump A", "general", "final-answer"),
        ("The seal of a pump leaks", "general", "max-iterations"),
        ("Which seal fits pump B?", "general", "final-answer"),
        ("What is the weather?", "general", "final-answer"),
        ("Sources on the archive of the mill", "research", "timeout"),
        ("The archive and the mill", "research", "timeout"),
        (
            "What does the mill archive hold?",
            "research",
            "final-answer",
        ),
    ] {
        runs.push(run(runs.len(), question, task_type, ended));
    }
    runs
}

fn found(runs: &[Run], set: &Snapshot, min_runs: usize) -> Found {
    propose(runs, set, min_runs, &mut |_, _| {})
}

#[test]
fn what_fell_back_becomes_a_task_type_and_what_went_badly_a_framing() {
    let found = found(&runs(), &set(), 2);
    let keys: Vec<_> = found
        .proposals
        .iter()
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(keys, ["pump-seal", "research-archive-mill"]);
    let (_, new) = &found.proposals[0];
    assert_eq!((new.status, new.improves.as_str()), (Status::Proposed, ""));
    assert_eq!(new.valid_patterns, ["react"], "as `general` has them");
    assert!(new.when_to_use.contains("pump and seal"), "{new:?}");
    assert!(
        new.framing_prompt.contains("Settle first which few facts"),
        "{new:?}"
    );
    let evidence = new.evidence.as_ref().unwrap();
    assert_eq!(evidence.runs, 3);
    assert_eq!(evidence.ended["final-answer"], 2);
    assert_eq!(evidence.sessions[1].session.as_str(), "s-1");
    assert_eq!(evidence.sessions[1].question, "The seal of a pump leaks");
    let (_, better) = &found.proposals[1];
    assert_eq!(better.improves, "research");
    assert!(
        better
            .framing_prompt
            .starts_with("Find out.\n\nWhere the task is about")
    );
    assert!(better.framing_prompt.contains("One look-up for each part"));
    assert_eq!(better.evidence.as_ref().unwrap().runs, 2, "one went well");
    assert_eq!(
        (found.fell_back, found.went_badly, found.largest_left),
        (4, 2, 1)
    );
}

#[test]
fn too_few_runs_and_types_that_a_caller_named_call_for_nothing() {
    assert_eq!(found(&runs(), &set(), 4).proposals, []);
    assert_eq!(found(&runs(), &set(), 4).largest_left, 3);
    let mut named = runs();
    for run in &mut named {
        run.by_caller = true;
    }
    let left = found(&named, &set(), 2);
    assert_eq!((left.proposals.len(), left.fell_back), (1, 0), "{left:?}");
    let unrouted: Vec<Run> = runs()
        .into_iter()
        .map(|run| Run {
            task_type: String::new(),
            ..run
        })
        .collect();
    assert_eq!(found(&unrouted, &set(), 1), Found::default());
}

#[test]
fn what_was_decided_is_not_proposed_again() {
    let mut set = set();
    let first = found(&runs(), &set, 2).proposals;
    set.proposals.extend(first);
    let by = "Ada";
    for (key, item) in rejected("pump-seal", &set, by).unwrap() {
        assert_eq!(
            (item.status, item.decided_by.as_str()),
            (Status::Rejected, by)
        );
        set.proposals.insert(key, item);
    }
    let mut more = runs();
    more.push(run(
        9,
        "Pump seals again: which one?",
        "general",
        "final-answer",
    ));
    let again = found(&more, &set, 2);
    assert_eq!(again.proposals, []);
    let known: Vec<_> = again
        .known
        .iter()
        .map(|(key, status)| (key.as_str(), *status))
        .collect();
    assert_eq!(
        known,
        [
            ("pump-seal", Status::Rejected),
            ("research-archive-mill", Status::Proposed)
        ]
    );
}

#[test]
fn only_a_person_brings_a_proposal_into_force() {
    let mut set = set();
    set.proposals.extend(found(&runs(), &set, 2).proposals);
    let new = approved("pump-seal", &set, "Ada").unwrap();
    assert_eq!(new.len(), 1);
    assert_eq!(
        (new[0].1.status, new[0].1.decided_by.as_str()),
        (Status::Approved, "Ada")
    );
    let better = approved("research-archive-mill", &set, "Ada").unwrap();
    let (key, research) = &better[0];
    assert_eq!(
        (key.as_str(), research.status),
        ("research", Status::Approved)
    );
    assert!(research.framing_prompt.contains("Where the task is about"));
    assert_eq!(research.evidence, None);
    assert_eq!(better[1].1.status, Status::Applied);
    for (key, expected) in [
        (
            "pump-seals",
            "there is no proposal `pump-seals` (there are `pump-seal`, ",
        ),
        ("general", "`general` is a task type that is in force"),
    ] {
        let wrong = approved(key, &set, "Ada").unwrap_err();
        assert!(wrong.starts_with(expected), "{wrong}");
    }
    for (key, item) in better {
        set.proposals.insert(key, item);
    }
    let wrong = rejected("research-archive-mill", &set, "Ada").unwrap_err();
    assert_eq!(wrong, "`research-archive-mill` is applied already");
    set.task_types.remove("research");
    set.proposals.insert(
        "other".into(),
        AgentTaskType {
            improves: "research".into(),
            status: Status::Proposed,
            ..AgentTaskType::default()
        },
    );
    let wrong = approved("other", &set, "Ada").unwrap_err();
    assert!(wrong.contains("which is not there any more"), "{wrong}");
}

#[test]
fn keys_that_are_taken_get_another_term_or_a_number() {
    let terms = ["pump", "seal", "leak"].map(str::to_owned);
    for (taken, expected) in [
        (&[][..], "pump-seal"),
        (&["pump-seal"], "pump-seal-leak"),
        (&["pump-seal", "pump-seal-leak"], "pump-seal-leak-2"),
    ] {
        assert_eq!(key("", &terms, |key| taken.contains(&key)), expected);
    }
}
