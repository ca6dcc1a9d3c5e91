//! Working runs again: replay, fork, retry, and comparing what came of it.

use crate::place::Place;
use serde_json::Value;

const EXAMPLE: &str = "dossier";

fn demo(place: &Place) -> String {
    place.run(&["demo"]).well();
    place.sessions(&["--collection", EXAMPLE])[0].clone()
}

fn shown(place: &Place, session: &str) -> Value {
    place
        .run(&["sessions", "show", session, "--json"])
        .well()
        .json()
}

/// A first try that the model fails, and a second one that goes well.
const FAILS: &str = r#"{"rules": [
    {"operation": "agent-react", "steps": 0,
     "text": "Thought: look\nAction: document-search\nArgs: {\"query\": \"x\"}"},
    {"operation": "agent-react", "fail": "no such model"},
    {"text": "Thought: enough.\nFinal Answer: 42"}
]}"#;
const GOES_WELL: &str = r#"{"rules": [{"text": "Thought: enough.\nFinal Answer: 43"}]}"#;

#[test]
fn the_worked_example_comes_out_of_its_records_again() {
    let place = Place::new();
    let session = demo(&place);
    let ran = place.run(&["replay", &session]).well();
    assert!(ran.out.contains("5 sessions: no divergence"), "{}", ran.out);
    assert!(!ran.out.contains("not checked"), "{}", ran.out);
    let whole = place.run(&["replay", &session, "--json"]).well().json();
    let steps = whole["steps"].as_array().unwrap();
    assert_eq!(whole["summary"]["diverging"], 0);
    assert_eq!(whole["summary"]["steps"], steps.len());
    assert!(steps.iter().all(|step| step["result"] == "same"), "{whole}");
    let only = place
        .run(&["replay", &session, "--only", "--json"])
        .well()
        .json();
    assert_eq!(only["summary"]["sessions"], 1);
    let one = place.run(&["replay", &session, "--step", "1"]).well();
    assert!(one.out.contains("1 step of 1 session"), "{}", one.out);
    for (args, says) in [
        (&["replay", &session, "--step", "99"][..], "no step 99"),
        (&["replay", "nobody-knows-it"], "there is no session"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
}

#[test]
fn a_record_that_was_changed_is_named_by_replay() {
    let place = Place::new();
    let session = demo(&place);
    place.alter(&session, 0, |record| {
        let routed = record.routed.as_mut().unwrap();
        "react".clone_into(&mut routed.pattern);
    });
    let ran = place.run(&["replay", &session]);
    assert_eq!(ran.code, 7, "{ran:?}");
    for part in ["step 0  continue  DIVERGES", "routed.pattern", "\"react\""] {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    let told = place.run(&["replay", &session, "--json"]);
    assert_eq!(told.code, 7);
    assert_eq!(told.json()["steps"][0]["result"], "diverges");
    place.spoil(&session, 0);
    let ran = place.run(&["replay", &session]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("cannot be read"), "{ran:?}");
    place.run(&["ask", "What is X?"]).well();
    let other = place.sessions(&["--collection", "default"])[0].clone();
    place.run(&["purge", "--session", &other, "--yes"]).well();
    let ran = place.run(&["replay", &other]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("was erased"), "{ran:?}");
}

#[test]
fn a_fork_at_a_synthesis_reads_the_verdict_and_starts_no_subagent() {
    let place = Place::new();
    let session = demo(&place);
    let last = shown(&place, &session)["steps"].as_array().unwrap().len() - 1;
    let at = last.to_string();
    let refused = place.run(&["fork", &session, "--at", &at, "--pattern", "react"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("reads the verdict"), "{refused:?}");
    let answer = place.run(&["fork", &session, "--at", &at]).well().out;
    assert!(answer.contains("Operational"), "{answer}");
    let fork = place.sessions(&[])[0].clone();
    assert_ne!(fork, session);
    let told = shown(&place, &fork);
    assert_eq!(told["subagents"].as_array().unwrap().len(), 0, "{told}");
    assert_eq!(told["steps"].as_array().unwrap().len(), 1, "{told}");
    let whole = shown(&place, &session)["tokens"].as_u64().unwrap();
    assert!(told["tokens"].as_u64().unwrap() <= whole, "{told}");
    // Where it comes from is in its trace, and the other's trace is what it was.
    let tree = place.run(&["trace", &fork]).well().out;
    assert!(
        tree.contains(&format!("Forked from run {session}")),
        "{tree}"
    );
    assert!(
        place
            .run(&["trace", &session])
            .well()
            .out
            .contains("5 sessions")
    );
    place.run(&["replay", &fork]).well();
    let diff = place.run(&["diff", &session, &fork]).well().out;
    assert!(diff.contains("before the fork"), "{diff}");
    assert!(diff.contains("equal"), "{diff}");
    // A fork of the fork reads the same verdict.
    place.run(&["fork", &fork, "--at", "0"]).well();
    let again = place.sessions(&[])[0].clone();
    assert_eq!(
        shown(&place, &again)["subagents"].as_array().unwrap().len(),
        0
    );
    place.run(&["replay", &again]).well();
}

#[test]
fn a_fork_goes_on_another_way() {
    let place = Place::new();
    let session = demo(&place);
    let detached = place
        .run(&[
            "fork",
            &session,
            "--at",
            "0",
            "--pattern",
            "react",
            "--detach",
            "--json",
        ])
        .well()
        .json();
    let fork = detached["session_id"].as_str().unwrap().to_owned();
    place.run(&["attach", &fork]).well();
    let listed = place
        .run(&["sessions", "list", "--pattern", "react", "--json"])
        .well()
        .json();
    assert_eq!(listed[0]["session"], fork.as_str(), "{listed}");
    let told = place
        .run(&["diff", &session, &fork, "--json"])
        .well()
        .json();
    assert_eq!(told["equal"], false);
    assert_eq!(told["sessions"][0]["b"]["session"], fork.as_str());
    // A subagent's session becomes a run of its own, with another question.
    let subagent = shown(&place, &session)["subagents"][0]["session"]
        .as_str()
        .unwrap()
        .to_owned();
    place
        .run(&["fork", &subagent, "--at", "0", "--question", "What is X?"])
        .well();
    // The graph, which the list is from, may be a moment behind.
    let newest = || {
        let root = place.sessions(&[])[0].clone();
        let shown = shown(&place, &root);
        (shown["question"] == "What is X?").then_some((root, shown))
    };
    let found = (0..30).find_map(|_| newest());
    let (root, of_its_own) = found.unwrap_or_else(|| {
        let listed = place.run(&["sessions", "list", "--json"]).out;
        panic!("the run is not the newest of {listed}");
    });
    assert_eq!(of_its_own["root"], root.as_str());
    place.run(&["replay", &root]).well();
    for (args, says) in [
        (&["--at", "0", "--pattern", "nobody"][..], "nobody"),
        (&["--at", "0", "--task-type", "nobody"], "unknown task type"),
        (&["--at", "0", "--config-version", "4711"], "4711"),
        (&["--at", "99"], "no step 99"),
    ] {
        let ran = place.run(&[&["fork", &session], args].concat());
        assert!([2, 3].contains(&ran.code), "{ran:?}");
        assert!(ran.err.contains(says), "{says}: {ran:?}");
        assert!(!ran.err.contains("Forked from"), "{ran:?}");
    }
}

#[test]
fn a_retry_goes_on_from_the_last_good_step() {
    let place = Place::new();
    let fails = place.write("fails.json", FAILS);
    let well = place.write("well.json", GOES_WELL);
    let with = |script: &str, args: &[&str]| {
        let model = format!("scripted:{script}");
        place.run(&[args, &["--model", &model]].concat())
    };
    let failed = with(&fails, &["ask", "What is X?", "--pattern", "react"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let session = place.sessions(&["--state", "failed"])[0].clone();
    let retried = with(&well, &["retry", &session]).well();
    assert!(retried.out.contains("43"), "{retried:?}");
    let retry = place.sessions(&["--state", "answered"])[0].clone();
    let steps = shown(&place, &retry)["steps"].as_array().unwrap().len();
    assert_eq!(steps, 1, "the call of before stands in its history");
    for one in [&session, &retry] {
        place.run(&["replay", one]).well();
    }
    let refused = place.run(&["retry", &retry]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("is answered"), "{refused:?}");
    let queued = place
        .run(&["ask", "What is Y?", "--detach"])
        .well()
        .out
        .trim()
        .to_owned();
    let refused = place.run(&["retry", &queued]);
    assert!(refused.err.contains("has not begun"), "{refused:?}");
}

#[test]
fn many_failed_runs_are_begun_again_once_each() {
    let place = Place::new();
    let fails = place.write("fails.json", r#"{"rules": [{"fail": "no such model"}]}"#);
    let model = format!("scripted:{fails}");
    for question in ["What is X?", "What is Y?"] {
        let asked = ["ask", question, "--pattern", "react", "--model", &model];
        assert_eq!(place.run(&asked).code, 1);
    }
    let failed = place.sessions(&["--state", "failed"]);
    let retry = |more: &[&str]| {
        let many = ["retry", "--state", "failed", "--newer-than", "1h"];
        place.run(&[&many, more].concat())
    };
    let shown = retry(&["--dry-run"]).well();
    assert!(
        failed.iter().all(|one| shown.err.contains(one)),
        "{shown:?}"
    );
    assert_eq!(shown.out, "2 runs would be begun again.\n");
    let unsaid = retry(&[]);
    assert_eq!(unsaid.code, 2, "{unsaid:?}");
    assert!(unsaid.err.contains("nobody said `yes`"), "{unsaid:?}");

    let begun = retry(&["--yes", "--json"]).well().json();
    assert_eq!(begun.as_array().unwrap().len(), 2, "{begun}");
    // Nobody works them yet: said again, it begins no others.
    let again = retry(&["--yes", "--json"]).well().json();
    assert_eq!(again, begun);
    let _up = place.up(&[]);
    for one in begun.as_array().unwrap() {
        let session = one["begun_as"].as_str().unwrap();
        place.run(&["attach", session]).well();
    }
    assert_eq!(retry(&["--yes"]).well().out, "No such run.\n");
    for (args, says) in [
        (&["retry"][..], "--state"),
        (&["retry", "--state", "answered"], "`failed`, `timeout`"),
        (&["retry", &failed[0], "--yes"], "a SESSION is one run"),
    ] {
        let wrong = place.run(args);
        assert!(wrong.code == 2 && wrong.err.contains(says), "{wrong:?}");
    }
}

#[test]
fn what_was_refused_before_it_began_is_left_out_of_many() {
    let place = Place::new();
    let fails = place.write("fails.json", r#"{"rules": [{"fail": "no such model"}]}"#);
    let model = format!("scripted:{fails}");
    let asked = ["ask", "What is X?", "--pattern", "react", "--model", &model];
    assert_eq!(place.run(&asked).code, 1);
    let failed = place.sessions(&["--state", "failed"])[0].clone();
    // As of a message that asks nothing.
    place.alter(&failed, 0, |record| {
        record.worked.request = Some("{}".to_owned());
    });
    let many = ["retry", "--state", "failed", "--dry-run"];
    let shown = place.run(&many).well();
    assert_eq!(shown.out, "No such run.\n");
    let says = "Left out, as no retry can help: 1 run (";
    assert!(shown.err.contains(says), "{shown:?}");
}

#[test]
fn sessions_are_listed_by_what_they_are() {
    let place = Place::new();
    let fails = place.write("fails.json", r#"{"rules": [{"fail": "no such model"}]}"#);
    let ask = |question: &str, more: &[&str]| {
        let asked = [&["ask", question, "--pattern", "react"], more].concat();
        place.run(&asked);
        place.sessions(&[])[0].clone()
    };
    let answered = ask("What is X?", &["--conversation", "talk"]);
    let failed = ask("What is Y?", &["--model", &format!("scripted:{fails}")]);
    let queued = place.run(&["ask", "What is Z?", "--detach"]).well().out;
    let queued = queued.trim();
    let table: [(&[&str], &[&str]); 12] = [
        (&["--state", "answered"], &[&answered]),
        (&["--state", "failed"], &[&failed]),
        (&["--state", "queued"], &[queued]),
        (&["--state", "running"], &[]),
        (&["--state", "cancelled"], &[]),
        (&["--state", "timeout"], &[]),
        (&["--pattern", "react"], &[&failed, &answered]),
        (&["--pattern", "supervisor"], &[]),
        (
            &["--conversation", "talk", "--pattern", "react"],
            &[&answered],
        ),
        (&["--conversation", "talk", "--state", "failed"], &[]),
        (&["--newer-than", "1h"], &[queued, &failed, &answered]),
        (&["--older-than", "1h"], &[]),
    ];
    for (args, expected) in table {
        assert_eq!(place.sessions(args), expected, "{args:?}");
    }
    let bounded = place.run(&["sessions", "list", "--limit", "1"]).well();
    assert!(bounded.err.contains("there are more"), "{bounded:?}");
    for (args, says) in [
        (&["--state", "odd"][..], "possible values"),
        (&["--pattern", "odd"], "unknown pattern `odd`"),
        (&["--task-type", "odd"], "unknown task type `odd`"),
        (&["--older-than", "soon"], "expected a time such as"),
        (&["--limit", "0"], "1..=10000"),
    ] {
        let ran = place.run(&[&["sessions", "list"], args].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.err.contains(says), "{says}: {ran:?}");
    }
}
