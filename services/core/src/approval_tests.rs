#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{Input, Reply};
use crate::turn::{Situation, Turn};
use agentfleet_schema::config::{Snapshot, ToolArgument};
use agentfleet_schema::records::ApprovalAnswer::{Approve, Deny, Edit};
use std::sync::Arc;

fn tool(approval: Option<Approval>) -> ToolItem {
    ToolItem {
        name: "pay".into(),
        kind: "http".into(),
        group: vec!["default".into()],
        applicable_states: vec!["*".into()],
        arguments: vec![ToolArgument {
            name: "amount".into(),
            kind: "string".into(),
            description: String::new(),
            required: true,
        }],
        approval,
        ..ToolItem::default()
    }
}

fn amount(text: &str) -> BTreeMap<String, String> {
    [("amount".to_owned(), text.to_owned())].into()
}

fn turn(request: AgentRequest, approval: Option<Approval>) -> Turn {
    let mut snapshot = Snapshot::default();
    snapshot.tools.insert("pay".into(), tool(approval));
    let situation = Situation {
        now: 1_000,
        snapshot: Arc::new(snapshot),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
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

/// What becomes of a request whose model wants to pay.
fn ordered(request: AgentRequest, approval: Option<Approval>) -> Order {
    let mut turn = turn(request, approval);
    match turn.resume(Input::Begin) {
        Order::AskModel(_) => turn.resume(Input::ModelReplied(Reply {
            text: "Thought: due\nAction: pay\nArgs: {\"amount\": \"5\"}".into(),
            ..Reply::default()
        })),
        step => step,
    }
}

fn paused(step: Order) -> (Asked, AgentRequest) {
    let Order::Finish(finish) = step else {
        panic!("not over: {step:?}")
    };
    match (finish.activity, finish.outcome) {
        (Activity::Asked(asked), Outcome::Pause(resume)) => (asked, *resume),
        other => panic!("no wait: {other:?}"),
    }
}

#[test]
fn only_the_approved_call_passes_the_gate() {
    let held = |approved, tool: &str, text: &str| {
        let mut request = request();
        request.control.held = Some(HeldCall {
            tool: tool.into(),
            arguments: amount(text),
            approved,
            ..HeldCall::default()
        });
        request
    };
    let needs = || Some(Approval::default());
    for (request, approval, passes) in [
        (request(), None, true),
        (request(), needs(), false),
        (held(true, "pay", "5"), needs(), true),
        (held(false, "pay", "5"), needs(), false),
    ] {
        let step = ordered(request, approval);
        assert_eq!(matches!(step, Order::CallTool(_)), passes, "{step:?}");
    }
    for (held, tool, text, expected) in [
        (held(true, "pay", "5"), "pay", "5", true),
        (held(true, "pay", "5"), "pay", "6", false),
        (held(true, "pay", "5"), "buy", "5", false),
        (held(false, "pay", "5"), "pay", "5", false),
    ] {
        let held = held.control.held.unwrap();
        assert_eq!(allows(&held, tool, &amount(text)), expected);
    }
}

#[test]
fn a_wait_says_what_is_asked_and_how_to_answer() {
    let approval = Approval {
        reason: "it costs".into(),
        ..Approval::default()
    };
    let Order::Finish(finish) = ordered(request(), Some(approval)) else {
        panic!("not over")
    };
    let told = &finish.said.last().unwrap().text;
    let id = ApprovalId::of_call(&"s".into(), 0, 0);
    assert_eq!(waits_for(told), Some(id.as_str()));
    assert!(
        told.ends_with("for pay(amount: \"5\") (it costs)"),
        "{told}"
    );
    let (asked, resume) = paused(Order::Finish(finish));
    assert_eq!((asked.id, asked.n, asked.thought.as_str()), (id, 1, "due"));
    assert!(!resume.control.held.unwrap().approved);
}

#[test]
fn a_wait_ends_a_reserve_before_the_run() {
    for (timeout, hard, expected) in [
        (500, 0, 1_500),
        (500, 1_000_000, 1_500),
        (10_000_000, 1_000_000, 970_000),
        (10_000_000, 11_000, 9_000),
        (500, 900, 1_000),
        (u64::MAX, 0, agentfleet_schema::FAR),
    ] {
        assert_eq!(
            expires_at(1_000, timeout, hard),
            expected,
            "{timeout} {hard}"
        );
    }
}

#[test]
fn an_answer_is_checked_against_the_call() {
    let (asked, _) = paused(ordered(request(), Some(Approval::default())));
    let tool = tool(None);
    let say = |answer, by: &str, reason: &str, arguments| Verdict {
        answer,
        by: by.into(),
        reason: reason.into(),
        arguments,
    };
    let long = "x".repeat(MAX_REASON + 1);
    let wrong = Some(BTreeMap::from([("sum".to_owned(), "4".to_owned())]));
    for (verdict, expected) in [
        (say(Approve, "ada", "", None), Ok("5")),
        (say(Deny, " ada ", "no", None), Ok("5")),
        (say(Edit, "ada", "", Some(amount("4"))), Ok("4")),
        (say(Approve, "  ", "", None), Err("who decides is not said")),
        (say(Approve, "ada", &long, None), Err("the reason has")),
        (
            say(Edit, "ada", "", None),
            Err("`edit` needs the arguments"),
        ),
        (say(Deny, "ada", "", Some(amount("4"))), Err("only `edit`")),
        (say(Edit, "ada", "", wrong), Err("unknown argument `sum`")),
    ] {
        let decided = decide(&asked, verdict, Some(&tool), 5);
        match (decided, expected) {
            (Ok(decided), Ok(text)) => {
                assert_eq!(
                    (decided.arguments, decided.by.as_str()),
                    (amount(text), "ada")
                );
                assert_eq!(decided.at, asked.asked_at, "never before it was asked");
            }
            (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
            (decided, expected) => panic!("{decided:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn an_answer_releases_the_call_or_an_observation() {
    let (asked, resume) = paused(ordered(request(), Some(Approval::default())));
    let by_ada = |answer| Decided {
        by: "ada".into(),
        answer,
        ..expired(&asked, 2_000)
    };
    for (decided, by, approved) in [
        (by_ada(Approve), DecidedBy::Person, true),
        (by_ada(Edit), DecidedBy::Person, true),
        (by_ada(Deny), DecidedBy::Person, false),
        (expired(&asked, 2_000), DecidedBy::Fallback, false),
    ] {
        let finish = answered(&resume, &decided);
        assert_eq!(finish.decisions[0].decided_by, by);
        let Outcome::Continue(next) = finish.outcome else {
            panic!("{decided:?}")
        };
        assert_eq!(
            next.control.held.is_some_and(|held| held.approved),
            approved
        );
        assert_eq!(next.history.len(), usize::from(!approved));
        if let Some(step) = next.history.first() {
            assert!(
                step.observation.starts_with(NOT_MADE),
                "{}",
                step.observation
            );
            assert_eq!(step.thought, "due");
        }
    }
}
