#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{ModelFailure, Outcome};
use crate::turn::Turn;
use agentfleet_schema::config::{Snapshot, ToolArgument};
use std::sync::Arc;

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.tools.insert(
        "search".into(),
        ToolItem {
            name: "search".into(),
            kind: "document-search".into(),
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            state: Some("searched".into()),
            arguments: vec![ToolArgument {
                name: "query".into(),
                kind: "string".into(),
                description: String::new(),
                required: true,
            }],
            ..ToolItem::default()
        },
    );
    snapshot
}

fn turn_with(request: AgentRequest, native: bool) -> Turn {
    let situation = Situation {
        now: 0,
        snapshot: Arc::new(snapshot()),
        fleet: Arc::new(FleetLimits {
            max_observation_bytes: 400,
            ..FleetLimits::default()
        }),
        native_tools: native,
        nonce: "nonce".into(),
        fan_in: None,
    };
    Turn::parse(request, situation).unwrap()
}

fn request() -> AgentRequest {
    AgentRequest {
        question: "q".into(),
        session_id: "s".into(),
        pattern: "react".into(),
        ..AgentRequest::default()
    }
}

fn reply(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ms: 5,
        ..Reply::default()
    })
}

fn finished(step: Order) -> Finish {
    let Order::Finish(finish) = step else {
        panic!("not finished: {step:?}")
    };
    *finish
}

/// A model that reads it as its own words says it again.
#[test]
fn who_was_to_work_is_not_shown_as_something_said() {
    let step = |kind: StepKind, action: &str| AgentStep {
        thought: action.into(),
        action: action.into(),
        observation: "o".into(),
        step_type: kind.into(),
        ..AgentStep::default()
    };
    let request = AgentRequest {
        history: vec![
            step(StepKind::Supervise, "decompose"),
            step(StepKind::Synthesise, "aggregate"),
            step(StepKind::Route, "dispatch"),
            step(StepKind::React, "search"),
            step(StepKind::Reflect, "critique"),
        ],
        ..request()
    };
    for native in [true, false] {
        let Order::AskModel(ask) = turn_with(request.clone(), native).resume(Input::Begin) else {
            panic!()
        };
        let history = ask.variables["history"].as_array().unwrap();
        let shown = history.iter().map(|step| step["action"].clone());
        assert_eq!(shown.collect::<Vec<_>>(), ["search"]);
        let said: Vec<&str> = ask.transcript.iter().map(|step| &*step.action).collect();
        assert_eq!(said, if native { &["search"][..] } else { &[] });
    }
}

#[test]
fn a_cycle_adds_one_step_to_the_history() {
    let mut turn = turn_with(request(), false);
    let Order::AskModel(ask) = turn.resume(Input::Begin) else {
        panic!()
    };
    assert_eq!(ask.stream, StreamAs::React);
    let Order::CallTool(call) = turn.resume(reply(
        "Thought: t\nAction: Search\nArgs: {\"query\": \"x\"}",
    )) else {
        panic!()
    };
    assert_eq!(call.tool.name, "search");
    let finish = finished(turn.resume(Input::ToolReturned(ToolOutcome {
        content: "found".into(),
        ..ToolOutcome::default()
    })));
    let Outcome::Continue(next) = finish.outcome else {
        panic!()
    };
    assert_eq!(next.history.len(), 1);
    assert_eq!(next.history[0].observation, "found");
    assert_eq!(next.state, "searched");
    let Activity::Iterated(iterated) = finish.activity else {
        panic!()
    };
    assert_eq!(iterated.candidates, ["search"]);
    let said: Vec<_> = finish
        .said
        .iter()
        .map(|said| (said.message_type, said.text.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            (MessageType::Thought, "t"),
            (MessageType::Action, "search(query: \"x\")"),
            (MessageType::Observation, "found"),
        ]
    );
}

#[test]
fn a_call_that_failed_leaves_the_state_as_it_was() {
    let mut turn = turn_with(request(), false);
    turn.resume(Input::Begin);
    turn.resume(reply(
        "Thought: t\nAction: search\nArgs: {\"query\": \"x\"}",
    ));
    let finish = finished(turn.resume(Input::ToolReturned(ToolOutcome {
        content: "Connection refused".into(),
        is_error: true,
        ..ToolOutcome::default()
    })));
    let Outcome::Continue(next) = finish.outcome else {
        panic!()
    };
    assert_eq!(next.state, "");
}

#[test]
fn mistakes_become_observations_and_end_after_a_bounded_number() {
    for (text, expected) in [
        (
            "no format at all but no text either\nAction:",
            "could not be read",
        ),
        (
            "Thought: t\nAction: serch\nArgs: {}",
            "unknown tool `serch`: did you mean `search`? (available: `search`)",
        ),
        (
            "Thought: t\nAction: search\nArgs: {\"qery\": \"x\"}",
            "unknown argument `qery`",
        ),
        (
            "Thought: t\nAction: search\nArgs: {}",
            "missing argument `query`",
        ),
        (
            "Thought: t\nAction: search\nArgs: nope",
            "could not be read",
        ),
    ] {
        let mut turn = turn_with(request(), false);
        turn.resume(Input::Begin);
        let finish = finished(turn.resume(reply(text)));
        let Outcome::Continue(next) = finish.outcome else {
            panic!("{text}")
        };
        assert!(
            next.history[0].observation.contains(expected),
            "{:?}",
            next.history[0]
        );
        assert_eq!(next.control.state.react().retries, 1);
        // What could not be read was no action.
        let actions = finish
            .said
            .iter()
            .filter(|said| said.message_type == MessageType::Action);
        assert_eq!(
            actions.count(),
            usize::from(next.history[0].action != PARSE_ERROR)
        );
        let mut tired = *next;
        (tired.control.state).set_react(|state| state.retries = 2);
        let mut turn = turn_with(tired, false);
        turn.resume(Input::Begin);
        let finish = finished(turn.resume(reply(text)));
        let Outcome::Answer(answer) = finish.outcome else {
            panic!("{text}")
        };
        assert!(answer.partial);
    }
}

#[test]
fn the_last_iteration_answers_or_gives_what_it_has() {
    let mut last = request();
    last.limits.max_iterations = Some(2);
    last.history.push(AgentStep {
        action: "search".into(),
        observation: "the fact".into(),
        ..AgentStep::default()
    });
    let mut turn = turn_with(last, false);
    let Order::AskModel(ask) = turn.resume(Input::Begin) else {
        panic!()
    };
    assert_eq!(ask.variables["last"], true);
    let finish = finished(turn.resume(reply(
        "Thought: more\nAction: search\nArgs: {\"query\":\"y\"}",
    )));
    let Outcome::Answer(answer) = finish.outcome else {
        panic!()
    };
    assert!(
        answer.partial && answer.text.contains("the fact"),
        "{}",
        answer.text
    );
    assert_eq!(answer.termination, Termination::MaxIterations);
}

#[test]
fn whoever_acts_with_the_last_call_of_a_budget_ends_with_what_was_found() {
    let mut poor = request();
    poor.limits.max_tokens = Some(1_000);
    poor.control.spent.tokens = 800;
    poor.control.spent.model_calls = 4;
    let mut turn = turn_with(poor, false);
    let Order::AskModel(ask) = turn.resume(Input::Begin) else {
        panic!()
    };
    assert_eq!(ask.variables["last"], true);
    let step = turn.resume(reply(
        "Thought: t\nAction: search\nArgs: {\"query\": \"x\"}",
    ));
    let Outcome::Answer(answer) = finished(step).outcome else {
        panic!()
    };
    assert_eq!(answer.termination, Termination::BudgetExhausted);
    let mut hasty = request();
    hasty.limits.max_model_calls = Some(1);
    let mut unread = turn_with(hasty, false);
    unread.resume(Input::Begin);
    let Outcome::Answer(told) = finished(unread.resume(reply("Final Answer: 4"))).outcome else {
        panic!()
    };
    let cause = "**Incomplete:** the budget of 1 model calls has one left, so no tool";
    assert!(told.partial && told.text.contains(cause), "{}", told.text);
    let why = "what is left of the budget of 1000 tokens (200) pays for one more model call";
    assert!(
        answer.partial && answer.text.contains(why),
        "{}",
        answer.text
    );
}

#[test]
fn a_spent_budget_ends_without_asking() {
    let mut poor = request();
    poor.limits.max_tokens = Some(10);
    poor.control.spent.tokens = 10;
    let mut turn = turn_with(poor, false);
    let Outcome::Answer(answer) = finished(turn.resume(Input::Begin)).outcome else {
        panic!()
    };
    assert_eq!(answer.termination, Termination::BudgetExhausted);
}

#[test]
fn native_calls_run_one_and_return_the_rest_as_not_run() {
    let mut turn = turn_with(request(), true);
    let Order::AskModel(ask) = turn.resume(Input::Begin) else {
        panic!()
    };
    assert_eq!(ask.tools.len(), 1);
    let args: BTreeMap<_, _> = [("query".to_owned(), "x".to_owned())].into();
    let step = turn.resume(Input::ModelReplied(Reply {
        text: "let me see".into(),
        tool_calls: vec![("search".into(), args.clone()), ("fetch".into(), args)],
        ..Reply::default()
    }));
    assert!(matches!(step, Order::CallTool(_)));
    let finish = finished(turn.resume(Input::ToolReturned(ToolOutcome {
        content: "r".repeat(900),
        ..ToolOutcome::default()
    })));
    let Activity::Iterated(iterated) = finish.activity else {
        panic!()
    };
    assert_eq!(iterated.thought, "let me see");
    let Outcome::Continue(next) = finish.outcome else {
        panic!()
    };
    // The preview is cut at the bound; the document has the whole.
    assert!(next.history[0].observation.contains("[cut: the whole has"));
    let whole = finish
        .said
        .iter()
        .find(|s| s.message_type == MessageType::Observation);
    assert!(
        whole
            .unwrap()
            .text
            .contains("Not run, because one call is made a turn: fetch")
    );
}

#[test]
fn a_native_model_that_calls_nothing_has_answered() {
    let mut turn = turn_with(request(), true);
    turn.resume(Input::Begin);
    let finish = finished(turn.resume(reply("It is 4.\n\nBecause 2 + 2.")));
    let Outcome::Answer(answer) = finish.outcome else {
        panic!()
    };
    assert_eq!(answer.text, "It is 4.\n\nBecause 2 + 2.");
    assert!(!answer.partial);
}

#[test]
fn a_model_that_is_gone_for_good_ends_the_session() {
    let mut turn = turn_with(request(), false);
    turn.resume(Input::Begin);
    let finish = finished(turn.resume(Input::ModelFailed(ModelFailure {
        message: "the key was refused".into(),
        hint: "set it".into(),
        ..ModelFailure::default()
    })));
    assert!(matches!(finish.outcome, Outcome::Fail { .. }));
}
