#![allow(clippy::unwrap_used, clippy::panic)]
use super::fitting::size;
use super::text::{shorter, whole};
use super::*;
use crate::order::{Input, Order};
use crate::order::{Outcome, Reply, ToolOutcome};
use crate::turn::Situation;
use crate::turn::Turn;
use agentfleet_schema::PlanStep;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::DecidedBy;
use std::collections::BTreeMap;
use std::sync::Arc;

const WINDOW: u32 = 4_000;

fn fleet() -> FleetLimits {
    FleetLimits {
        context_window: WINDOW,
        max_iterations: 1_000,
        ..FleetLimits::default()
    }
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, kind) in [("search", "document-search"), ("again", "read-back")] {
        let tool = ToolItem {
            name: name.into(),
            kind: kind.into(),
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            ..ToolItem::default()
        };
        snapshot.tools.insert(name.into(), tool);
    }
    snapshot
}

fn step(bytes: usize) -> AgentStep {
    AgentStep {
        thought: "why this one".into(),
        action: "search".into(),
        arguments: BTreeMap::from([("query".to_owned(), "words".to_owned())]),
        observation: "x".repeat(bytes),
        step_type: "react".into(),
        ..AgentStep::default()
    }
}

fn request(steps: Vec<AgentStep>) -> AgentRequest {
    AgentRequest {
        question: "q".into(),
        session_id: "s".into(),
        pattern: "react".into(),
        step: 7,
        history: steps,
        ..AgentRequest::default()
    }
}

fn room() -> Room {
    Room::of(&request(Vec::new()), &Snapshot::default(), &fleet()).unwrap()
}

fn fit(request: &AgentRequest) -> Option<(AgentRequest, Decision)> {
    fitted(request, &snapshot(), &fleet())
}

#[test]
fn a_room_follows_the_window_and_what_else_the_prompt_holds() {
    let window = |window: Option<u32>| ModelProfile {
        context_window: window,
        model: "m".into(),
        ..ModelProfile::default()
    };
    let of = |question: usize, profile: Option<u32>, model: &str, fleet_has: u32| {
        let mut snapshot = Snapshot::default();
        snapshot.profiles.insert("default".into(), window(profile));
        snapshot
            .profiles
            .insert("agent-react".into(), window(profile.map(|w| w * 2)));
        snapshot.profiles.insert(
            "other".into(),
            ModelProfile {
                model: "named".into(),
                ..window(Some(700))
            },
        );
        let request = AgentRequest {
            question: "q".repeat(question),
            model: model.into(),
            ..AgentRequest::default()
        };
        let fleet = FleetLimits {
            context_window: fleet_has,
            ..FleetLimits::default()
        };
        Room::of(&request, &snapshot, &fleet).map(|room| (room.window, room.bytes))
    };
    for (question, profile, model, fleet, expected) in [
        (1, None, "", 1_000, Some((1_000, 1_750))),
        (1, None, "", 0, None),
        // The operation's own profile comes first, and a model that is asked for by name before it.
        (1, Some(2_000), "", 1_000, Some((4_000, 7_000))),
        (1, Some(2_000), "named", 1_000, Some((700, 1_225))),
        // 1,400 bytes are 400 tokens: 350 of 1,000 are left. However long it is, an eighth is.
        (1_400, None, "", 1_000, Some((1_000, 1_225))),
        (100_000, None, "", 1_000, Some((1_000, 437))),
    ] {
        assert_eq!(
            of(question, profile, model, fleet),
            expected,
            "{question} {profile:?}"
        );
    }
}

#[test]
fn a_history_that_has_room_stays_as_it_is() {
    assert_eq!(fit(&request(vec![step(500); 4])), None);
    let unbounded = FleetLimits {
        context_window: 0,
        ..fleet()
    };
    let long = request(vec![step(5_000); 40]);
    assert_eq!(fitted(&long, &Snapshot::default(), &unbounded), None);
}

#[test]
fn the_oldest_steps_become_lines_and_say_where_the_whole_is() {
    let mut steps = vec![step(1_500); 5];
    steps[1].observation = preview(&"y".repeat(9_000), 1_000, "urn:elsewhere/document");
    steps[2].observation = format!("Error: no such thing{}", " at all".repeat(200));
    let (fitted, decision) = fit(&request(steps.clone())).unwrap();
    let told: Vec<&str> = fitted
        .history
        .iter()
        .map(|step| step.observation.as_str())
        .collect();
    assert_eq!(
        told[0],
        "[left out: 1500 bytes, step 1, urn:trustgraph:agent:s/i1/observation/document]"
    );
    assert_eq!(
        told[1],
        "[left out: 9000 bytes, step 2, urn:elsewhere/document]"
    );
    assert_eq!(fitted.history[3..], steps[3..], "the newest stay whole");
    let failed = &fitted.history[2].observation;
    assert!(
        failed.starts_with("Error: no such") && failed.len() < 200,
        "{failed}"
    );
    assert_eq!(fitted.history[0].arguments, steps[0].arguments);
    assert!(size(&fitted.history) <= room().bytes / 2 + 1_700);
    assert_eq!(decision.chosen, "lines");
    assert!(decision.options.contains(&decision.chosen));
    assert!(
        decision
            .narrowed_by
            .contains("a window of 4000 leaves 2000"),
        "{decision:?}"
    );
    assert!(
        decision
            .rationale
            .contains("step 2 (search) to one line [left out: 9000")
    );
    assert_eq!(decision.decided_by, DecidedBy::OnlyOption);
}

#[test]
fn lines_become_one_summary_that_still_counts() {
    let mut history: Vec<AgentStep> = Vec::new();
    let (mut done, mut decisions, mut summaries) = (0, 0, 0);
    for n in 1..=200 {
        history.push(step(900));
        done += 1;
        let asked = request(history.clone());
        if let Some((fitted, decision)) = fit(&asked) {
            decisions += 1;
            summaries += u32::from(decision.chosen == SUMMARY);
            assert!(size(&fitted.history) <= room().bytes, "step {n}");
            // Once is enough.
            assert_eq!(fit(&fitted), None);
            history = fitted.history;
        }
        assert_eq!(patterns::iterations(&request(history.clone())), done);
        assert_eq!(history.last().unwrap().observation.len(), 900);
    }
    assert!(summaries > 5, "{summaries}");
    assert!(decisions < 100, "not every step does it again: {decisions}");
    let summary = &history[0];
    assert_eq!(summary.step_type, SUMMARY);
    let text = &summary.observation;
    assert!(text.contains("Steps by kind: search 1"), "{text}");
    assert!(text.contains("are not listed.\n- "), "{text}");
    assert!(text.len() < room().bytes / 4, "{}", text.len());
    let n: u32 = summary.arguments["iterations"].parse().unwrap();
    assert!(
        text.contains(&format!("- {n}. search: words why this one")),
        "{text}"
    );
}

#[test]
fn what_patterns_go_by_survives() {
    let plan = vec![
        PlanStep {
            goal: "done".into(),
            status: "complete".into(),
            result: "r".repeat(6_000),
            ..PlanStep::default()
        },
        PlanStep {
            goal: "needed".into(),
            status: "complete".into(),
            result: "n".repeat(2_000),
            ..PlanStep::default()
        },
        PlanStep {
            goal: "open".into(),
            depends_on: vec![1],
            ..PlanStep::default()
        },
    ];
    let mut steps = Vec::new();
    for _ in 0..30 {
        steps.push(AgentStep {
            action: "plan".into(),
            step_type: "plan".into(),
            observation: "p".repeat(300),
            ..AgentStep::default()
        });
        steps.push(AgentStep {
            step_type: "execute".into(),
            ..step(300)
        });
    }
    steps.push(AgentStep {
        action: "fan-out".into(),
        arguments: BTreeMap::from([("steps".to_owned(), "2".to_owned())]),
        step_type: "plan".into(),
        plan: Some(plan.clone()),
        ..AgentStep::default()
    });
    let (fitted, _) = fit(&request(steps)).unwrap();
    assert_eq!(patterns::iterations(&fitted), 30);
    assert_eq!(fitted.history.iter().map(plans).sum::<u32>(), 30);
    let last = fitted.history.last().unwrap();
    assert_eq!(last.arguments["steps"], "2");
    let kept = last.plan.as_ref().unwrap();
    let (bytes, uri) = whole(&kept[0].result).unwrap();
    assert_eq!(
        (bytes, uri),
        (6_000, "urn:trustgraph:agent:s/step/0/document")
    );
    assert_eq!(
        kept[1..],
        plan[1..],
        "what an open step builds on is cut last"
    );
    assert!(has_more(&fitted));
}

#[test]
fn critiques_that_are_carried_are_neither_cut_nor_summarised() {
    let critique = |text: &str, action: &str| AgentStep {
        observation: text.into(),
        action: action.into(),
        thought: "d".repeat(900),
        step_type: "reflect".into(),
        ..AgentStep::default()
    };
    let told = "w".repeat(300);
    let mut steps = vec![step(900); 20];
    steps.push(critique(&told, "answer"));
    steps.extend(vec![step(900); 4]);
    let (fitted, decision) = fit(&request(steps)).unwrap();
    assert_eq!(decision.chosen, SUMMARY);
    assert_eq!(patterns::iterations(&fitted), 25);
    assert!(fitted.history.iter().any(|step| step.observation == told));
}

#[test]
fn what_a_caller_brought_along_goes_into_the_rationale() {
    let mut asked = request(vec![step(3_000); 4]);
    asked.step = 0;
    settle(&mut asked);
    let (fitted, decision) = fit(&asked).unwrap();
    assert_eq!(
        fitted.history[0].observation,
        "[left out: 3000 bytes, step 1, urn:trustgraph:agent:s/decision/0/context/document]"
    );
    assert!(decision.rationale.contains(&"x".repeat(3_000)));
    // Iterations that come later are the session's own.
    let mut later = fitted;
    later.step = 1;
    later.history.extend(vec![step(1_000); 4]);
    settle(&mut later);
    let (fitted, decision) = fit(&later).unwrap();
    let of_own = "urn:trustgraph:agent:s/i5/observation/document";
    assert!(
        fitted
            .history
            .iter()
            .any(|step| step.observation.contains(of_own))
    );
    assert!(!decision.rationale.contains("## Step 5"));
}

#[test]
fn previews_are_cut_at_a_character_and_cut_again_without_losing_the_whole() {
    let text = "é".repeat(600);
    let short = preview(&text, 101, "urn:d");
    assert!(
        short.starts_with(&"é".repeat(50))
            && short.ends_with("[cut: the whole has 1200 bytes, urn:d]")
    );
    let shorter = shorter(&short, 11, "urn:other");
    assert_eq!(shorter, "ééééé\n[cut: the whole has 1200 bytes, urn:d]");
    assert_eq!(whole("nothing was cut]"), None);
}

fn finished(request: AgentRequest, inputs: Vec<Input>) -> crate::Finish {
    let situation = Situation {
        now: 0,
        snapshot: Arc::new(snapshot()),
        fleet: Arc::new(fleet()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in: None,
    };
    let mut turn = Turn::parse(request, situation).unwrap();
    let mut step = turn.resume(Input::Begin);
    for input in inputs {
        step = turn.resume(input);
    }
    let Order::Finish(finish) = step else {
        panic!("not finished: {step:?}")
    };
    *finish
}

#[test]
fn a_turn_tells_that_its_history_was_shortened_and_offers_to_read_back() {
    let call = |text: &str| {
        let reply = Reply {
            text: text.into(),
            ..Reply::default()
        };
        Input::ModelReplied(reply)
    };
    let returned = || Input::ToolReturned(ToolOutcome::default());
    let act = "Thought: t\nAction: search\nArgs: {}";
    for (steps, expected) in [(vec![step(100); 3], false), (vec![step(1_500); 6], true)] {
        let mut asked = request(steps);
        // Whatever groups it has.
        asked.group = Some(vec!["none".into()]);
        let back = "Thought: t\nAction: again\nArgs: {}";
        let inputs = if expected {
            vec![call(back), returned()]
        } else {
            vec![call(back)]
        };
        let finish = finished(asked.clone(), inputs);
        let crate::order::Finish { activity, .. } = &finish;
        let agentfleet_schema::records::Activity::Iterated(it) = activity else {
            panic!()
        };
        let offered: &[&str] = if expected { &["again"] } else { &[] };
        assert_eq!(it.candidates, offered);
        assert_eq!(finish.decisions.len(), usize::from(expected));
        asked.group = None;
        let finish = finished(asked, vec![call(act), returned()]);
        let Outcome::Continue(next) = finish.outcome else {
            panic!()
        };
        assert_eq!(patterns::iterations(&next), if expected { 7 } else { 4 });
        assert_eq!(has_more(&next), expected);
    }
}
