#![allow(clippy::unwrap_used, clippy::panic)]
use crate::limits::FleetLimits;
use crate::order::{Finish, Input, Order, Outcome, Reply};
use crate::turn::{Situation, Turn};
use agentfleet_schema::config::{
    AgentPattern, Approval, Snapshot, Specialist, ToolItem, tool_kind,
};
use agentfleet_schema::records::{
    Activity, Child, CompletionStatus, DecidedBy, FanInRecord, JoinCause, Member, Source,
};
use agentfleet_schema::{AgentRequest, MessageType};
use std::sync::Arc;

const CALLS: &str = "Thought: ask\nAction: clerk\nArgs: {\"question\": \"What does rye cost?\", \"context\": \"in spring\"}";

fn situation(approval: Option<Approval>, fan_in: Option<FanInRecord>) -> Situation {
    let mut snapshot = Snapshot::default();
    let clerk = ToolItem {
        name: "clerk".into(),
        kind: tool_kind::AGENT.into(),
        specialist: Some("clerk".into()),
        group: vec!["default".into()],
        applicable_states: vec!["*".into()],
        timeout_ms: Some(7_000),
        approval,
        ..ToolItem::default()
    };
    let other = ToolItem {
        name: "other".into(),
        ..clerk.clone()
    };
    let search = ToolItem {
        name: "search".into(),
        kind: tool_kind::DOCUMENT_SEARCH.into(),
        ..clerk.clone()
    };
    for tool in [clerk, other, search] {
        snapshot.tools.insert(tool.name.clone(), tool);
    }
    let specialist = Specialist {
        name: "clerk".into(),
        ..Specialist::default()
    };
    snapshot.specialists.insert("clerk".into(), specialist);
    for name in ["react", "reflexion"] {
        let pattern = AgentPattern {
            name: name.into(),
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    Situation {
        now: 1_000,
        snapshot: Arc::new(snapshot),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in,
    }
}

fn request() -> AgentRequest {
    AgentRequest {
        question: "q".into(),
        session_id: "s".into(),
        pattern: "react".into(),
        ..AgentRequest::default()
    }
}

fn finished(order: Order) -> Finish {
    let Order::Finish(finish) = order else {
        panic!("not finished: {order:?}")
    };
    *finish
}

/// The end of a step that calls the agent.
fn calls(request: AgentRequest, approval: Option<Approval>) -> Finish {
    let mut turn = Turn::parse(request, situation(approval, None)).unwrap();
    turn.resume(Input::Begin);
    finished(turn.resume(Input::ModelReplied(Reply {
        text: CALLS.into(),
        ms: 5,
        ..Reply::default()
    })))
}

/// The request that waits for the agent.
fn waiting(request: AgentRequest) -> AgentRequest {
    let Outcome::FanOut(fan_out) = calls(request, None).outcome else {
        panic!("no fan-out")
    };
    fan_out.synthesis
}

fn verdict(status: CompletionStatus) -> FanInRecord {
    FanInRecord {
        cause: JoinCause::Complete,
        members: vec![Member {
            status,
            document: "doc".into(),
            sources: vec![Source {
                uri: "urn:prices".into(),
                title: "Prices".into(),
            }],
            ..Member::default()
        }],
        ..FanInRecord::default()
    }
}

/// The step that reads the verdict.
fn reads(request: AgentRequest, verdict: FanInRecord, text: Option<&str>) -> Finish {
    let mut turn = Turn::parse(request, situation(None, Some(verdict))).unwrap();
    let Order::ReadDocuments(documents) = turn.resume(Input::Begin) else {
        panic!("nothing is read")
    };
    assert_eq!(documents, ["doc"]);
    let texts = vec![text.map(str::to_owned)];
    finished(turn.resume(Input::DocumentsRead(texts)))
}

#[test]
fn the_call_is_told_when_the_agent_starts_and_not_again_behind_its_answer() {
    let kinds = |finish: &Finish| -> Vec<MessageType> {
        let said = finish.said.iter();
        said.map(|said| said.message_type).collect()
    };
    let begins = calls(request(), None);
    let (thought, status) = (MessageType::Thought, MessageType::Status);
    assert_eq!(kinds(&begins), [thought, MessageType::Action, status]);
    assert!(begins.said[1].text.starts_with("clerk("), "{begins:?}");
    let answered = verdict(CompletionStatus::Answered);
    let goes_on = reads(waiting(request()), answered, Some("2 marks"));
    assert_eq!(kinds(&goes_on), [MessageType::Observation]);
}

#[test]
fn a_call_of_an_agent_is_a_run_of_its_own() {
    let finish = calls(request(), None);
    let chosen = &finish.decisions[0];
    assert_eq!(chosen.subject, "agent");
    assert_eq!(chosen.options, ["clerk", "other"]);
    assert_eq!(
        (chosen.chosen.as_str(), chosen.decided_by),
        ("clerk", DecidedBy::Model)
    );
    let Outcome::FanOut(fan_out) = finish.outcome else {
        panic!("no fan-out")
    };
    let (child, asked) = &fan_out.children[0];
    assert_eq!(fan_out.children.len(), 1);
    assert_eq!(child.goal, "What does rye cost?");
    assert_eq!(asked.question, "What does rye cost?");
    assert_eq!(asked.control.context, "in spring");
    assert_eq!(asked.control.specialist, "clerk");
    // The step itself took 5 ms, and the item allows 7 s.
    assert_eq!(fan_out.join_deadline, 1_000 + 5 + 7_000);
}

#[test]
fn what_an_agent_brings_is_the_result_of_the_call() {
    let answered = verdict(CompletionStatus::Answered);
    let finish = reads(waiting(request()), answered.clone(), Some("Rye costs 7."));
    let Activity::Iterated(it) = &finish.activity else {
        panic!("no iteration: {:?}", finish.activity)
    };
    assert_eq!((it.n, it.action.as_str()), (1, "clerk"));
    assert_eq!(it.observation, "Rye costs 7.");
    assert_eq!(it.sources, answered.members[0].sources);
    assert_eq!(it.after.as_ref().unwrap().members, answered.members);
    let Outcome::Continue(next) = finish.outcome else {
        panic!("it does not go on")
    };
    assert_eq!(next.control.fan_in_step, None);
    assert_eq!(next.control.held, None);
    assert_eq!(next.history[0].thought, "ask");
    assert_eq!(next.history[0].observation, "Rye costs 7.");
}

#[test]
fn an_agent_without_an_answer_is_a_call_that_failed() {
    let late = FanInRecord {
        members: Vec::new(),
        missing: vec![Child::default()],
        cause: JoinCause::Deadline,
        ..verdict(CompletionStatus::Answered)
    };
    let mut turn = Turn::parse(waiting(request()), situation(None, Some(late))).unwrap();
    turn.resume(Input::Begin);
    let none = finished(turn.resume(Input::DocumentsRead(Vec::new())));
    let failed = reads(waiting(request()), verdict(CompletionStatus::Error), None);
    for (finish, expected) in [(none, "not finished"), (failed, "gave no answer: error")] {
        let Activity::Iterated(it) = finish.activity else {
            panic!("no iteration")
        };
        assert!(it.is_error);
        assert!(it.observation.contains(expected), "{}", it.observation);
    }
    let partial = FanInRecord {
        members: vec![Member {
            partial: true,
            ..verdict(CompletionStatus::Answered).members[0].clone()
        }],
        ..verdict(CompletionStatus::Answered)
    };
    let finish = reads(waiting(request()), partial, Some("Half."));
    let Activity::Iterated(it) = finish.activity else {
        panic!("no iteration")
    };
    assert!(it.observation.starts_with("Half.\n\n(Incomplete: "));
}

#[test]
fn limits_that_forbid_an_agent_are_told_to_the_caller() {
    let mut request = request();
    request.limits.max_depth = Some(0);
    let finish = calls(request, None);
    let Activity::Iterated(it) = finish.activity else {
        panic!("no iteration")
    };
    let why = "Error: `clerk` cannot be asked: no depth is left for subagents";
    assert_eq!((it.is_error, it.observation.as_str()), (true, why));
}

#[test]
fn a_person_is_asked_before_the_agent() {
    let finish = calls(request(), Some(Approval::default()));
    let Outcome::Pause(mut resume) = finish.outcome else {
        panic!("no wait: {:?}", finish.outcome)
    };
    resume.step += 1;
    resume.control.held.as_mut().unwrap().approved = true;
    let approval = Some(Approval::default());
    let mut turn = Turn::parse(*resume, situation(approval, None)).unwrap();
    let finish = finished(turn.resume(Input::Begin));
    let Outcome::FanOut(fan_out) = finish.outcome else {
        panic!("no fan-out: {:?}", finish.outcome)
    };
    let held = fan_out.synthesis.control.held.unwrap();
    assert_eq!(held.tool, "clerk");
    // What was approved is this call, and no later one.
    assert!(!held.approved);
}

#[test]
fn a_reflexion_criticises_what_an_agent_brought() {
    let mut request = request();
    request.pattern = "reflexion".into();
    let answered = verdict(CompletionStatus::Answered);
    let mut turn = Turn::parse(waiting(request), situation(None, Some(answered))).unwrap();
    turn.resume(Input::Begin);
    let texts = vec![Some("Rye costs 7.".to_owned())];
    let Order::AskModel(ask) = turn.resume(Input::DocumentsRead(texts)) else {
        panic!("no critique")
    };
    assert_eq!(ask.variables["observation"], "Rye costs 7.");
    let finish = finished(turn.resume(Input::ModelReplied(Reply {
        text: r#"{"decision": "go-on", "wrong": "", "next": ""}"#.into(),
        ..Reply::default()
    })));
    let Activity::Iterated(it) = finish.activity else {
        panic!("no iteration")
    };
    assert!(it.after.is_some() && it.critique.is_some());
}

#[test]
fn a_wait_without_a_verdict_is_refused() {
    let error = Turn::parse(waiting(request()), situation(None, None)).unwrap_err();
    assert!(error.to_string().contains("verdict"), "{error}");
}
