#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]
use super::*;
use crate::limits::FleetLimits;
use crate::turn::Turn;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::config::{AgentPattern, AgentTaskType, Specialist, ToolItem};
use std::sync::Arc;

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot {
        version: 3,
        ..Snapshot::default()
    };
    for name in ["react", "plan-then-execute-never", "supervisor"] {
        let pattern = AgentPattern {
            name: name.into(),
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    for (name, valid, framing) in [
        ("general", vec![], ""),
        (
            "risk",
            vec!["supervisor", "plan-then-execute-never", "react", "ghost"],
            "by dimension",
        ),
        ("short", vec!["react"], ""),
    ] {
        snapshot.task_types.insert(
            name.into(),
            AgentTaskType {
                name: name.into(),
                framing_prompt: framing.into(),
                valid_patterns: valid.into_iter().map(String::from).collect(),
                ..AgentTaskType::default()
            },
        );
    }
    snapshot
}

fn route(snapshot: Snapshot, request: AgentRequest) -> Turn {
    let situation = Situation {
        now: 0,
        snapshot: Arc::new(snapshot),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in: None,
    };
    Turn::parse(request, situation).unwrap()
}

fn ask() -> AgentRequest {
    AgentRequest {
        question: "assess X".into(),
        ..AgentRequest::default()
    }
}

fn reply(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ..Reply::default()
    })
}

fn finish(step: Order) -> (AgentRequest, Routed) {
    let Order::Finish(finish) = step else {
        panic!("not finished: {step:?}")
    };
    let Outcome::Continue(next) = finish.outcome else {
        panic!("not continued")
    };
    (*next, finish.routed.unwrap())
}

#[test]
fn routes_in_two_recorded_decisions() {
    let mut turn = route(snapshot(), ask());
    let Order::AskModel(first) = turn.resume(Input::Begin) else {
        panic!()
    };
    assert_eq!(first.operation, Operation::ClassifyTaskType);
    let Order::AskModel(second) = turn.resume(reply(
        r#"{"choice":"risk","signal":"assess","rationale":"r"}"#,
    )) else {
        panic!()
    };
    assert_eq!(second.operation, Operation::SelectPattern);
    let offered = second.schema.unwrap()["properties"]["choice"]["enum"].clone();
    assert_eq!(
        offered,
        json!(["supervisor", "react"]),
        "only implemented ones are offered"
    );
    let (next, routed) = finish(turn.resume(reply("`supervisor`")));
    assert_eq!(next.pattern, "supervisor");
    assert_eq!(next.framing, "by dimension");
    assert_eq!(routed.decisions[0].signal, "assess");
    assert!(routed.decisions[1].narrowed_by.contains("not implemented"));
    assert!(
        routed.decisions[1]
            .narrowed_by
            .contains("`ghost`: not configured")
    );
}

#[test]
fn a_choice_outside_the_set_is_asked_once_more_then_falls_back() {
    let mut turn = route(snapshot(), ask());
    turn.resume(Input::Begin);
    let Order::AskModel(again) = turn.resume(reply("astrology")) else {
        panic!()
    };
    assert_eq!(again.operation, Operation::ClassifyTaskType);
    assert_eq!(again.variables["fault"], "it names none of the options");
    let Order::AskModel(pattern) = turn.resume(reply(r#"{"choice":"astrology"}"#)) else {
        panic!()
    };
    assert_eq!(pattern.operation, Operation::SelectPattern);
    assert_eq!(pattern.variables["fault"], "", "it is another question");
    turn.resume(reply("nonsense"));
    let (next, routed) = finish(turn.resume(reply("more nonsense")));
    assert_eq!(
        (next.task_type.as_str(), next.pattern.as_str()),
        ("general", "react")
    );
    for decision in &routed.decisions {
        assert_eq!(decision.decided_by, DecidedBy::Fallback);
        assert!(decision.options.contains(&decision.chosen), "PV-2");
    }
}

#[test]
fn what_happens_to_come_first_is_no_fallback() {
    let mut snapshot = snapshot();
    snapshot.task_types.remove("general");
    snapshot
        .patterns
        .insert("debate".into(), AgentPattern::default());
    let mut turn = route(snapshot, ask());
    turn.resume(Input::Begin);
    turn.resume(reply("neither"));
    // No item lists its patterns, so all are open to it, `debate` first of them.
    turn.resume(reply("nor"));
    turn.resume(reply("this"));
    let (next, routed) = finish(turn.resume(reply("nor that")));
    assert_eq!(
        (next.task_type.as_str(), next.pattern.as_str()),
        ("general", "react")
    );
    let [task_type, pattern] = routed.decisions.as_slice() else {
        panic!("{routed:?}")
    };
    assert_eq!(task_type.options, ["risk", "short", "general"]);
    assert!(task_type.narrowed_by.ends_with("which needs no item"));
    assert_eq!(pattern.options[0], "debate");
}

#[test]
fn an_unknown_task_type_is_told_and_not_taken() {
    let asked = |pattern: &str| AgentRequest {
        task_type: "astrology".into(),
        pattern: pattern.into(),
        ..ask()
    };
    let mut turn = route(snapshot(), asked(""));
    turn.resume(Input::Begin);
    let Order::Finish(routed) = turn.resume(reply("short")) else {
        panic!("the router did not choose")
    };
    let mut turn = route(snapshot(), asked("router"));
    let Order::Finish(given) = turn.resume(Input::Begin) else {
        panic!("there is nobody to choose among")
    };
    for (finish, chosen) in [(routed, "router"), (given, "none")] {
        let decision = &finish.decisions[0];
        assert_eq!(
            (decision.subject.as_str(), decision.chosen.as_str()),
            ("override-task-type", chosen)
        );
        let why = "the request names task type `astrology`, which is not configured";
        assert_eq!(decision.signal, why);
        let Outcome::Continue(next) = finish.outcome else {
            panic!("it ended")
        };
        assert_ne!(next.task_type, "astrology");
    }
    assert_eq!(arrived(&asked("react"), &snapshot()).task_type, "");
}

#[test]
fn a_router_is_offered_where_a_specialist_has_a_tool() {
    let mut snapshot = snapshot();
    snapshot
        .patterns
        .insert("router".into(), AgentPattern::default());
    let specialist = Specialist {
        tools: vec!["blog_*".into()],
        ..Specialist::default()
    };
    snapshot.specialists.insert("blog".into(), specialist);
    let (options, why) = pattern_options(&ask(), &snapshot, "general", 0);
    assert_eq!(options, ["react"]);
    assert!(
        why.contains("`router`: no specialist has a tool here"),
        "{why}"
    );
    let tool = ToolItem {
        name: "blog_list".into(),
        group: vec!["default".into()],
        applicable_states: vec!["*".into()],
        ..ToolItem::default()
    };
    snapshot.tools.insert("blog_list".into(), tool);
    let (options, _) = pattern_options(&ask(), &snapshot, "general", 0);
    assert_eq!(options, ["react", "router"]);
}

#[test]
fn the_last_call_of_a_budget_is_not_spent_on_routing() {
    for (calls, by) in [(1, DecidedBy::Fallback), (2, DecidedBy::Model)] {
        let mut request = ask();
        request.limits.max_model_calls = Some(calls);
        let mut turn = route(snapshot(), request);
        let mut step = turn.resume(Input::Begin);
        if by == DecidedBy::Model {
            assert!(matches!(step, Order::AskModel(_)));
            step = turn.resume(reply("risk"));
        }
        let (next, routed) = finish(step);
        assert_eq!(next.pattern, "react", "{calls}");
        let by_whom: Vec<_> = routed.decisions.iter().map(|d| d.decided_by).collect();
        assert_eq!(by_whom, [by, DecidedBy::Fallback], "{calls}");
        let why = &routed.decisions[1].signal;
        assert_eq!(
            why,
            &format!("the budget of {calls} model calls has one left")
        );
    }
}

#[test]
fn a_subagent_is_routed_among_the_patterns_that_are_open_to_it() {
    let mut request = ask();
    request.pattern = "react".into();
    request.task_type = "risk".into();
    request.parent_session_id = "p".into();
    request.parent_session_id = "p".into();
    assert!(request.is_subagent());
    let of = |snapshot: &Snapshot| arrived(&request, snapshot).decisions.remove(0);
    let told = of(&snapshot());
    assert!(told.narrowed_by.starts_with(VALID), "{told:?}");
    assert_eq!(told.decided_by, DecidedBy::Caller);
    // Who fanned out chose it, and nobody who called.
    for (by, options, signal) in [
        (DecidedBy::Model, 2, "decision `subagent-pattern-3`"),
        (DecidedBy::Fallback, 2, "decision `subagent-pattern-3`"),
        (DecidedBy::OnlyOption, 1, "there is no other"),
    ] {
        request.control.pattern_by = Some(by);
        request.control.index = 2;
        request.limits.max_depth = Some(1);
        let told = arrived(&request, &snapshot()).decisions.remove(0);
        assert_eq!((told.decided_by, told.options.len()), (by, options));
        assert!(told.signal.starts_with(signal), "{}", told.signal);
    }
    request.control.pattern_by = None;
    request.limits.max_depth = None;
    let of = |snapshot: &Snapshot| arrived(&request, snapshot).decisions.remove(0);
    // Whoever ends it from outside knows no config, and claims nothing about it.
    let told = of(&Snapshot::default());
    assert_eq!(told.narrowed_by, "the patterns this worker implements");
    assert_eq!(told.options, ["react"]);
}

#[test]
fn one_option_costs_no_call() {
    let mut turn = route(snapshot(), ask());
    turn.resume(Input::Begin);
    let (next, routed) = finish(turn.resume(reply("short")));
    assert_eq!(next.pattern, "react");
    assert_eq!(routed.decisions[1].decided_by, DecidedBy::OnlyOption);
}

#[test]
fn an_empty_config_degrades_to_general_and_react() {
    let mut turn = route(Snapshot::default(), ask());
    let (next, routed) = finish(turn.resume(Input::Begin));
    assert_eq!(
        (next.task_type.as_str(), next.pattern.as_str()),
        ("general", "react")
    );
    assert!(
        routed
            .decisions
            .iter()
            .all(|d| d.decided_by == DecidedBy::Fallback)
    );
}

#[test]
fn without_depth_no_pattern_that_fans_out_is_offered() {
    let (options, why) = pattern_options(&ask(), &snapshot(), "risk", 0);
    assert_eq!(options, ["react"]);
    assert!(why.contains("`supervisor`: no depth left"), "{why}");
}

#[test]
fn the_status_says_who_chose() {
    let told = |request: AgentRequest, replies: &[&str]| {
        let mut turn = route(snapshot(), request);
        let mut step = turn.resume(Input::Begin);
        for text in replies {
            step = turn.resume(reply(text));
        }
        let Order::Finish(finish) = step else {
            panic!("not finished: {step:?}")
        };
        finish.said[0].text.clone()
    };
    let (named, framed) = (
        AgentRequest {
            task_type: "short".into(),
            ..ask()
        },
        AgentRequest {
            framing: "as a lawyer".into(),
            ..ask()
        },
    );
    for (request, replies, expected) in [
        (
            ask(),
            vec!["risk", "react"],
            "task type `risk` of 3, pattern `react` of 2",
        ),
        (
            named,
            vec![],
            "task type `short`, given by the caller, pattern `react`, the only one",
        ),
        (
            framed,
            vec!["risk", "no", "no"],
            "task type `risk` of 3, pattern `react` (the model twice named none of the options), \
             framing given by the caller",
        ),
    ] {
        assert_eq!(told(request, &replies), format!("Routed: {expected}"));
    }
}

#[test]
fn a_named_task_type_is_kept() {
    let request = AgentRequest {
        task_type: "short".into(),
        ..ask()
    };
    let mut turn = route(snapshot(), request);
    let (next, routed) = finish(turn.resume(Input::Begin));
    assert_eq!(next.task_type, "short");
    assert_eq!(routed.decisions[0].decided_by, DecidedBy::Caller);
}
