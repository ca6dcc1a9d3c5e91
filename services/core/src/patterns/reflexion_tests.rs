#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{Finish, Input, Outcome, Reply, StreamAs, ToolOutcome};
use crate::turn::{Situation, Turn};
use agentfleet_schema::config::{AgentPattern, Snapshot, ToolItem};
use agentfleet_schema::records::{Activity, Termination};
use std::sync::Arc;

fn situation() -> Situation {
    let mut snapshot = Snapshot::default();
    let pattern = AgentPattern {
        name: "reflexion".into(),
        ..AgentPattern::default()
    };
    snapshot.patterns.insert("reflexion".into(), pattern);
    let tool = ToolItem {
        repeatable: true,
        name: "search".into(),
        kind: "http".into(),
        group: vec!["default".into()],
        applicable_states: vec!["*".into()],
        ..ToolItem::default()
    };
    snapshot.tools.insert("search".into(), tool);
    Situation {
        now: 0,
        snapshot: Arc::new(snapshot),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in: None,
    }
}

fn request() -> AgentRequest {
    AgentRequest {
        question: "who owns the mill?".into(),
        session_id: "s".into(),
        pattern: "reflexion".into(),
        ..AgentRequest::default()
    }
}

fn said(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ..Reply::default()
    })
}

fn asked(step: Order) -> ModelAsk {
    let Order::AskModel(ask) = step else {
        panic!("the model was not asked: {step:?}")
    };
    *ask
}

fn finished(step: Order) -> Finish {
    let Order::Finish(finish) = step else {
        panic!("not finished: {step:?}")
    };
    *finish
}

fn next(finish: &Finish) -> AgentRequest {
    let Outcome::Continue(next) = &finish.outcome else {
        panic!("it ended: {:?}", finish.outcome)
    };
    (**next).clone()
}

const ANSWERS: &str = "Thought: enough\nFinal Answer: Ada.";
const ACTS: &str = "Thought: look\nAction: search\nArgs: {}";
const BACK: &str = r#"{"decision": "go-back", "wrong": "no source", "next": "name it"}"#;
const ON: &str = r#"{"decision": "go-on", "wrong": "", "next": "answer"}"#;

#[test]
fn the_last_call_of_a_budget_is_no_critique() {
    let with = |calls| {
        let mut request = request();
        request.limits.max_model_calls = Some(calls);
        let mut turn = Turn::parse(request, situation()).unwrap();
        turn.resume(Input::Begin);
        turn.resume(said(ACTS));
        turn.resume(Input::ToolReturned(ToolOutcome::default()))
    };
    assert_eq!(asked(with(3)).operation, Operation::Critique);
    let finish = finished(with(2));
    let Activity::Iterated(it) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert_eq!((it.action.as_str(), &it.critique), ("search", &None));
    // The one that is left is the answer's.
    let mut next = next(&finish);
    next.control.spent.model_calls = 1;
    let mut turn = Turn::parse(next, situation()).unwrap();
    let ask = asked(turn.resume(Input::Begin));
    assert_eq!(ask.variables["last"], true);
    let finish = finished(turn.resume(said(ANSWERS)));
    let Outcome::Answer(answer) = &finish.outcome else {
        panic!("{:?}", finish.outcome)
    };
    assert_eq!(
        (answer.termination, answer.partial),
        (Termination::FinalAnswer, false)
    );
    assert_eq!(finish.decisions[0].subject, "answer-now");
}

fn acted(request: AgentRequest, critique: &str) -> Finish {
    let mut turn = Turn::parse(request, situation()).unwrap();
    turn.resume(Input::Begin);
    turn.resume(said(ACTS));
    let ask = asked(turn.resume(Input::ToolReturned(ToolOutcome {
        content: "The mill is Ada's.".into(),
        ..ToolOutcome::default()
    })));
    assert_eq!(ask.operation, Operation::Critique);
    assert_eq!(ask.variables["action"], "search");
    finished(turn.resume(said(critique)))
}

#[test]
fn every_action_is_criticised_and_the_critique_carried_forward() {
    for (critique, chosen, sent_back) in [
        (ON, "go-on", false),
        (BACK, "go-back", true),
        ("hm", "go-on", false),
    ] {
        let finish = acted(request(), critique);
        let Activity::Iterated(it) = &finish.activity else {
            panic!("{:?}", finish.activity)
        };
        let told = it.critique.as_ref().unwrap();
        assert_eq!(told.sent_back, sent_back, "{critique}");
        assert_eq!(finish.decisions[0].chosen, chosen, "{critique}");
        let next = next(&finish);
        assert_eq!(next.control.state.react().reflections, u32::from(sent_back));
        let mut turn = Turn::parse(next, situation()).unwrap();
        let ask = asked(turn.resume(Input::Begin));
        assert_eq!(ask.variables["critiques"].as_array().unwrap().len(), 1);
        assert_eq!(ask.variables["history"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn an_answer_is_sent_back_as_often_as_the_limit_allows_and_then_given() {
    let mut request = request();
    request.limits.max_reflections = Some(2);
    for sent in 0..2 {
        let mut turn = Turn::parse(request, situation()).unwrap();
        let ask = asked(turn.resume(Input::Begin));
        assert_eq!(ask.stream, StreamAs::Thought, "it may be no answer yet");
        let ask = asked(turn.resume(said(ANSWERS)));
        assert_eq!(ask.variables["answer"], "Ada.");
        let finish = finished(turn.resume(said(BACK)));
        let Activity::Iterated(it) = &finish.activity else {
            panic!("{:?}", finish.activity)
        };
        assert_eq!((it.n, it.action.as_str()), (sent + 1, ANSWER));
        assert!(it.candidates.contains(&it.action), "PV-2");
        request = next(&finish);
    }
    let mut turn = Turn::parse(request, situation()).unwrap();
    let ask = asked(turn.resume(Input::Begin));
    assert_eq!(ask.stream, StreamAs::React);
    let finish = finished(turn.resume(said(ANSWERS)));
    let Outcome::Answer(answer) = finish.outcome else {
        panic!("no answer")
    };
    assert_eq!(
        (answer.text.as_str(), answer.termination),
        ("Ada.", Termination::FinalAnswer)
    );
}

#[test]
fn an_answer_that_holds_is_given_after_its_critique() {
    let mut turn = Turn::parse(request(), situation()).unwrap();
    turn.resume(Input::Begin);
    turn.resume(said(ANSWERS));
    let finish = finished(turn.resume(said(ON)));
    let Activity::Concluded(end) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert!(!end.critique.as_ref().unwrap().sent_back);
    let last = finish.said.last().unwrap();
    assert_eq!(last.text, "Ada.", "the answer is the last that is said");
}

#[test]
fn the_last_iteration_answers_without_being_sent_back() {
    let mut request = request();
    request.limits.max_iterations = Some(1);
    let mut turn = Turn::parse(request, situation()).unwrap();
    turn.resume(Input::Begin);
    assert!(matches!(
        finished(turn.resume(said(ANSWERS))).outcome,
        Outcome::Answer(_)
    ));
}

#[test]
fn no_way_back_is_offered_when_the_limit_is_reached_and_old_critiques_are_dropped() {
    let mut request = request();
    request.limits.max_reflections = Some(0);
    request.limits.max_iterations = Some(20);
    for done in 1..=8_usize {
        let finish = acted(request, BACK);
        assert_eq!(finish.decisions[0].options, [GO_ON]);
        request = next(&finish);
        assert_eq!(carried(&request).len(), done.min(CARRIED));
        assert_eq!(crate::patterns::iterations(&request), done as u32);
    }
}
