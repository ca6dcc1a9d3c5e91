#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{FanOut, Finish, Outcome};
use crate::turn::Turn;
use agentfleet_schema::config::{AgentPattern, Snapshot};
use agentfleet_schema::records::{Activity, CompletionStatus, JoinCause, Member};
use std::sync::Arc;

fn situation(reasoners: &[&str], rounds: u32, fan_in: Option<FanInRecord>) -> Situation {
    let mut snapshot = Snapshot::default();
    for name in ["react", "debate"] {
        let reasoners = reasoners.iter().map(|name| Reasoner {
            name: (*name).into(),
            stance: format!("stance of {name}"),
            profile: format!("{name}-model"),
            ..Reasoner::default()
        });
        let mut pattern = AgentPattern {
            name: name.into(),
            reasoners: reasoners.collect(),
            ..AgentPattern::default()
        };
        pattern.limits.max_iterations = Some(rounds);
        snapshot.patterns.insert(name.into(), pattern);
    }
    Situation {
        now: 0,
        snapshot: Arc::new(snapshot),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in,
    }
}

fn request() -> AgentRequest {
    AgentRequest {
        question: "partner with X?".into(),
        session_id: "s".into(),
        pattern: "debate".into(),
        ..AgentRequest::default()
    }
}

fn finished(step: Order) -> Finish {
    let Order::Finish(finish) = step else {
        panic!("not finished: {step:?}")
    };
    *finish
}

fn fanned_out(step: Order) -> FanOut {
    let Outcome::FanOut(fan_out) = finished(step).outcome else {
        panic!("no fan-out")
    };
    *fan_out
}

fn said(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ..Reply::default()
    })
}

const NAMES: &[&str] = &["ada", "ben"];

fn opened() -> FanOut {
    let mut turn = Turn::parse(request(), situation(NAMES, 2, None)).unwrap();
    fanned_out(turn.resume(Input::Begin))
}

#[test]
fn reasoners_answer_on_their_own_each_in_its_way() {
    let fan_out = opened();
    for ((child, request), name) in fan_out.children.iter().zip(NAMES) {
        assert_eq!(child.goal, format!("Answer as {name}"));
        assert_eq!(request.question, "partner with X?");
        assert_eq!(request.control.profile, format!("{name}-model"));
        assert_eq!(request.control.reasoner, *name);
        assert!(
            request
                .control
                .context
                .contains(&format!("stance of {name}"))
        );
    }
}

#[test]
fn fewer_than_two_reasoners_are_no_debate() {
    let with = |change: &dyn Fn(&mut AgentRequest), names: &[&str]| {
        let mut request = request();
        change(&mut request);
        let mut turn = Turn::parse(request, situation(names, 2, None)).unwrap();
        let finish = finished(turn.resume(Input::Begin));
        let Outcome::Continue(next) = finish.outcome else {
            panic!("no way on")
        };
        assert_eq!((next.pattern.as_str(), next.step), ("react", 0));
        assert_eq!(finish.decisions[0].options, ["alone"]);
        finish.decisions[0].signal.clone()
    };
    assert!(with(&|_| {}, &["ada"]).contains("two reasoners"));
    assert!(with(&|r| r.limits.max_subagents = Some(1), NAMES).contains("no room for two"));
    assert_eq!(
        with(&|r| r.limits.max_depth = Some(0), NAMES),
        "no depth is left for subagents"
    );
    let broke = |r: &mut AgentRequest| {
        r.limits.max_tokens = Some(5);
        r.control.spent.tokens = 5;
    };
    assert_eq!(
        with(&broke, NAMES),
        "what is left of a budget of 5 tokens (0 tokens) is too little for 2 subagents and a synthesis"
    );
}

/// What follows a first round in which both answered, or only some.
fn closed(statuses: &[CompletionStatus], rounds: u32) -> Turn {
    let fan_out = opened();
    let children = fan_out.children.iter().zip(statuses);
    let verdict = FanInRecord {
        policy: agentfleet_schema::config::JoinPolicy::All,
        members: children
            .map(|((child, _), status)| Member {
                index: child.index,
                session: child.session.clone(),
                goal: child.goal.clone(),
                status: *status,
                document: format!("urn:d{}", child.index),
                spent: Spent {
                    tokens: 10,
                    ..Spent::default()
                },
                ..Member::default()
            })
            .collect(),
        cause: JoinCause::Complete,
        ..FanInRecord::default()
    };
    let mut request = fan_out.synthesis;
    request.step = 1;
    let mut turn = Turn::parse(request, situation(NAMES, rounds, Some(verdict))).unwrap();
    assert!(matches!(turn.resume(Input::Begin), Order::ReadDocuments(_)));
    turn
}

fn texts(count: usize) -> Input {
    Input::DocumentsRead((0..count).map(|n| Some(format!("answer {n}"))).collect())
}

use CompletionStatus::{Answered, Error};

#[test]
fn agreement_or_the_last_round_leads_to_the_judge_and_else_to_another_round() {
    let agree = r#"{"agreement":"agree","reason":"r","positions":[{"reasoner":"Ada","position":"yes"}],"disagreements":[]}"#;
    let disagree =
        r#"{"agreement":"disagree","reason":"r","positions":[],"disagreements":["the lease"]}"#;
    for (reply, rounds, judged, decisions) in [
        (agree, 2, true, vec![("agreement", "agree")]),
        (disagree, 2, false, vec![("agreement", "disagree")]),
        (
            disagree,
            1,
            true,
            vec![("agreement", "disagree"), ("next-round", "judge")],
        ),
        ("hm", 2, false, vec![("agreement", "disagree")]),
    ] {
        let mut turn = closed(&[Answered, Answered], rounds);
        let Order::AskModel(ask) = turn.resume(texts(2)) else {
            panic!("nothing is compared")
        };
        assert_eq!(ask.operation, Operation::Compare);
        let finish = match turn.resume(said(reply)) {
            Order::AskModel(ask) => {
                assert_eq!(ask.operation, Operation::Judge, "{reply}");
                finished(turn.resume(said("Yes. Confidence: 0.6")))
            }
            step => finished(step),
        };
        let made: Vec<_> = finish
            .decisions
            .iter()
            .map(|d| (d.subject.as_str(), d.chosen.as_str()))
            .collect();
        assert_eq!(made, decisions, "{reply} {rounds}");
        let compared = match (&finish.activity, judged) {
            (Activity::Concluded(end), true) => end.compared.clone(),
            (Activity::FannedOut(fan_out), false) => fan_out.compared.clone(),
            (activity, _) => panic!("{reply}: {activity:?}"),
        };
        let compared = compared.unwrap();
        assert_eq!(compared.positions.len(), 2);
        assert_eq!(compared.positions[0].position == "yes", reply == agree);
    }
}

#[test]
fn in_a_later_round_each_sees_all_answers_and_knows_its_own() {
    let mut turn = closed(&[Answered, Answered], 2);
    turn.resume(texts(2));
    let fan_out = fanned_out(turn.resume(said(r#"{"agreement": "disagree"}"#)));
    let context = &fan_out.children[1].1.control.context;
    assert!(
        context.contains("## The answer of ada\n\nanswer 0"),
        "{context}"
    );
    assert!(
        context.contains("## Your answer so far\n\nanswer 1"),
        "{context}"
    );
    assert_eq!(fan_out.children[1].0.goal, "Answer as ben, round 2");
    assert_eq!(fan_out.synthesis.control.rounds, 2);
}

#[test]
fn who_does_not_answer_is_named_and_one_answer_needs_no_comparison() {
    for (statuses, is_asked, begins) in [
        (&[Answered, Error][..], true, "Yes."),
        (&[Error, Error][..], false, "No reasoner came back"),
    ] {
        let mut turn = closed(statuses, 2);
        let mut step = turn.resume(texts(2));
        if let Order::AskModel(ask) = &step {
            assert_eq!(ask.operation, Operation::Judge);
            assert!(is_asked);
            step = turn.resume(said("Yes."));
        }
        let Outcome::Answer(answer) = finished(step).outcome else {
            panic!("no answer")
        };
        assert!(answer.text.starts_with(begins), "{}", answer.text);
        assert!(
            answer.partial && answer.text.contains("- ben (error"),
            "{}",
            answer.text
        );
    }
}
