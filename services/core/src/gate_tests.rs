#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::order::Outcome;
use agentfleet_schema::config::{AgentTaskType, Constraint};

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for name in ["mail.send", "mail.draft", "contact.find"] {
        let tool = tools::open_to_all(name);
        snapshot.tools.insert(name.into(), tool);
    }
    let item = AgentTaskType {
        gate: Some(Gate {
            exchanges: None,
            constraints: vec![Constraint {
                phrases: vec!["iba draft".into(), "draft only".into()],
                without: vec!["mail.s*".into()],
            }],
        }),
        ..AgentTaskType::default()
    };
    snapshot.task_types.insert("crm".into(), item);
    snapshot
}

fn at(question: &str) -> AtGate {
    let snapshot = snapshot();
    let request = AgentRequest {
        question: question.into(),
        task_type: "crm".into(),
        ..AgentRequest::default()
    };
    let gate = of(&request, &snapshot).unwrap();
    AtGate::new(request, &snapshot, gate)
}

/// Where the message goes on, and what was decided.
fn passed(order: Order) -> (AgentRequest, Vec<Decision>) {
    let Order::Finish(finish) = order else {
        panic!("{order:?}");
    };
    let Outcome::Continue(next) = finish.outcome else {
        panic!("{:?}", finish.outcome);
    };
    (*next, finish.decisions)
}

fn replies(gate: &mut AtGate, text: &str) -> Order {
    gate.resume(Input::ModelReplied(Reply {
        text: text.into(),
        ..Reply::default()
    }))
}

fn reply(intent: &str, confidence: f64) -> String {
    json!({"intent": intent, "confidence": confidence, "reason": "it says send", "goal": "Draft a mail to Ana",
        "entities": {"contacts": ["Ana"], "emails": [], "made_up": ["x"]},
        "constraints": [{"text": "without calls", "without": ["CONTACT_find"]}],
        "ambiguities": ["which Ana"]})
    .to_string()
}

#[test]
fn a_task_goes_on_as_its_brief_and_demands_close_tools() {
    let (mut gate, snapshot) = (at("a pošli Ane mail, ale IBA DRAFT"), snapshot());
    let Order::AskModel(ask) = gate.resume(Input::Begin) else {
        panic!("it asks");
    };
    assert_eq!(ask.operation, Operation::Gate);
    let (next, decisions) = passed(replies(&mut gate, &reply("TASK", 0.9)));
    assert_eq!(next.question, "Draft a mail to Ana");
    let context = "contacts: Ana\nDemanded: without calls\nNot clear: which Ana";
    assert_eq!(next.control.context, context);
    assert_eq!(next.control.without, ["mail.s*", "contact.find"]);
    let left = tools::visible(&next, &snapshot);
    let left: Vec<&str> = left.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(left, ["mail.draft"]);
    let brief = next.control.brief.clone().unwrap();
    assert_eq!(brief.raw_message, "a pošli Ane mail, ale IBA DRAFT");
    assert_eq!(brief.entities.len(), 1);
    let told: Vec<String> = decisions
        .iter()
        .map(|it| format!("{}: {} ({})", it.subject, it.chosen, it.signal))
        .collect();
    assert_eq!(
        told,
        [
            "intent-gate: TASK (it says send)",
            "constraint: mail.s* (the message says `iba draft`)",
            "constraint: contact.find (without calls)",
        ]
    );
    // Behind the gate there is none.
    assert!(of(&next, &snapshot).is_none());
}

#[test]
fn demands_close_tools_however_they_are_spelt() {
    for message in [
        "Draft-only: mail Ada",
        "DRAFT\u{a0} only",
        "iba\n draft prosím",
    ] {
        let mut gate = at(message);
        replies(&mut gate, "no JSON");
        let (next, _) = passed(replies(&mut gate, "no JSON"));
        assert_eq!(next.control.without, ["mail.s*"], "{message}");
    }
    let reply = |without: Value| {
        json!({"intent": "TASK", "confidence": 1, "goal": "g",
            "constraints": [{"text": "no mails", "without": without}]})
        .to_string()
    };
    for (without, closed) in [
        (json!("mail_send"), "mail.send"),
        (json!(["mail.*"]), "mail.draft mail.send"),
    ] {
        let (next, _) = passed(replies(&mut at("x"), &reply(without)));
        assert_eq!(next.control.without.join(" "), closed);
    }
    // What is no tool is asked for once more.
    let mut gate = at("x");
    let again = replies(&mut gate, &reply(json!(["mial.send"])));
    assert!(matches!(again, Order::AskModel(_)), "{again:?}");
}

#[test]
fn only_what_is_surely_talk_has_no_tools() {
    for (confidence, intent, by) in [
        (0.9, CONVERSATION, DecidedBy::Model),
        (0.59, TASK, DecidedBy::Fallback),
    ] {
        let mut gate = at("Hello there");
        let (next, decisions) = passed(replies(&mut gate, &reply(CONVERSATION, confidence)));
        assert_eq!(next.control.brief.unwrap().intent, intent);
        assert_eq!(
            (&*decisions[0].chosen, decisions[0].decided_by),
            (intent, by)
        );
        assert_eq!(next.group.is_some(), intent == CONVERSATION);
    }
}

#[test]
fn what_cannot_be_read_twice_is_a_task_as_it_stands() {
    let mut gate = at("do it, draft only");
    let Order::AskModel(ask) = replies(&mut gate, "maybe") else {
        panic!("it asks again");
    };
    assert!(!ask.variables["fault"].as_str().unwrap().is_empty());
    let (next, decisions) = passed(replies(&mut gate, r#"{"intent": "CHAT"}"#));
    assert_eq!(next.question, "do it, draft only");
    assert_eq!(
        next.control.without,
        ["mail.s*"],
        "phrases count without a model"
    );
    assert_eq!(decisions[0].decided_by, DecidedBy::Fallback);
}

#[test]
fn the_gate_is_before_the_first_step_of_a_root_only() {
    let snapshot = snapshot();
    let request = AgentRequest {
        task_type: "crm".into(),
        ..AgentRequest::default()
    };
    assert!(of(&request, &snapshot).is_some());
    let mut brought = request.clone();
    brought
        .history
        .push(agentfleet_schema::AgentStep::default());
    assert!(
        of(&brought, &snapshot).is_some(),
        "a caller's history opens no way round it"
    );
    let changes: [fn(&mut AgentRequest); 3] = [
        |it| it.parent_session_id = "p".into(),
        |it| it.control.fan_in_step = Some(1),
        |it| it.task_type = "other".into(),
    ];
    for change in changes {
        let mut other = request.clone();
        change(&mut other);
        assert!(of(&other, &snapshot).is_none(), "{other:?}");
    }
}
