#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{FanOut, Finish, Outcome, StreamAs};
use crate::turn::Turn;
use agentfleet_schema::config::{AgentPattern, Snapshot, ToolItem};
use agentfleet_schema::records::{
    Activity, Child, CompletionStatus, FanInRecord, JoinCause, Member, Source,
};
use agentfleet_schema::{CorrelationId, SessionId, Spent};
use std::sync::Arc;

fn situation(fan_in: Option<FanInRecord>) -> Situation {
    let mut snapshot = Snapshot::default();
    for group in ["default", "finance", "secret"] {
        let tool = ToolItem {
            name: format!("{group}-search"),
            group: vec![group.into()],
            applicable_states: vec!["*".into()],
            ..ToolItem::default()
        };
        snapshot.tools.insert(group.into(), tool);
    }
    for name in ["react", "supervisor"] {
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
        question: "assess X".into(),
        session_id: "parent".into(),
        pattern: "supervisor".into(),
        group: Some(vec!["default".into(), "finance".into()]),
        collection: "c".into(),
        conversation_id: "talk".into(),
        framing: "by dimension".into(),
        streaming: true,
        step: 1,
        ..AgentRequest::default()
    }
}

fn reply(text: &str) -> Input {
    Input::ModelReplied(Reply {
        text: text.into(),
        ..Reply::default()
    })
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

fn decompose(request: AgentRequest, text: &str) -> Order {
    let mut turn = Turn::parse(request, situation(None)).unwrap();
    assert!(matches!(turn.resume(Input::Begin), Order::AskModel(_)));
    turn.resume(reply(text))
}

#[test]
fn a_reply_without_goals_is_asked_for_again_with_what_is_wrong() {
    for (cut, says) in [(false, "it has no list of goals"), (true, CUT)] {
        let mut turn = Turn::parse(request(), situation(None)).unwrap();
        turn.resume(Input::Begin);
        let Input::ModelReplied(reply) = reply("I cannot.") else {
            panic!()
        };
        let reply = || {
            Input::ModelReplied(Reply {
                cut,
                ..reply.clone()
            })
        };
        let mut again = turn.resume(reply());
        if cut {
            // The first one is for the same reply, and shorter.
            again = turn.resume(reply());
        }
        let Order::AskModel(ask) = again else {
            panic!("{again:?}")
        };
        assert_eq!(ask.variables["fault"], says);
    }
}

const TWO: &str = r#"{"thought":"two sides","goals":[
    {"goal":"Look at money.","pattern":"react","group":["finance"],"context":"fiscal 2025","rationale":"figures"},
    {"goal":"look at MONEY","pattern":"react","context":""},
    {"goal":"Look at law","pattern":"astrology","context":""}]}"#;

#[test]
fn the_call_that_made_the_goals_is_not_given_to_subagents() {
    let with = |calls| AgentRequest {
        limits: agentfleet_schema::RunLimits {
            max_model_calls: Some(calls),
            ..Default::default()
        },
        ..request()
    };
    // One made the goals, one is for the synthesis, one for each of two subagents.
    let fan_out = fanned_out(decompose(with(4), TWO));
    for (_, child) in &fan_out.children {
        assert_eq!(child.limits.max_model_calls, Some(1));
    }
    let Outcome::Continue(alone) = finished(decompose(with(3), TWO)).outcome else {
        panic!("no subagent could have done without the call of the synthesis")
    };
    assert_eq!(alone.pattern, "react");
}

#[test]
fn goals_without_room_and_patterns_that_are_not_open_are_told() {
    let mut narrow = request();
    narrow.limits.max_subagents = Some(2);
    let three =
        r#"{"thought":"t","goals":["one",{"goal":"two","pattern":"debate"},"three\nlines"]}"#;
    let finish = finished(decompose(narrow, three));
    let subjects: Vec<&str> = finish.decisions.iter().map(|d| &*d.subject).collect();
    let expected = [
        "fan-out",
        "subagents",
        "subagent-pattern-1",
        "subagent-group-1",
        "subagent-pattern-2",
        "subagent-group-2",
    ];
    assert_eq!(subjects, expected);
    assert_eq!(
        finish.decisions[1].signal,
        "left out for want of room: three lines"
    );
    let closed = &finish.decisions[4];
    assert_eq!(
        closed.signal,
        "goal 2 names `debate`, which is not open here"
    );
    assert!(closed.options.contains(&closed.chosen), "{closed:?}");
    let Outcome::FanOut(fan_out) = finish.outcome else {
        panic!("no fan-out")
    };
    // The synthesis names what was not begun, whatever the model writes.
    let members = vec![
        member(0, CompletionStatus::Answered),
        Member {
            goal: "two".into(),
            ..member(1, CompletionStatus::Answered)
        },
    ];
    let verdict = verdict(JoinCause::Complete, members, vec![]);
    let mut turn = Turn::parse(fan_out.synthesis, situation(Some(verdict))).unwrap();
    turn.resume(Input::Begin);
    turn.resume(Input::DocumentsRead(vec![
        Some("a".into()),
        Some("b".into()),
    ]));
    let Order::AskModel(ask) = turn.resume(reply(r#"{"decision":"answer"}"#)) else {
        panic!("no synthesis")
    };
    // It knows that one worked otherwise than was meant.
    assert_eq!(ask.variables["results"][0]["status"], "answered");
    let status = ask.variables["results"][1]["status"].as_str();
    let told = "answered, as `react`: `debate` was not open to it: the valid patterns of task type";
    assert!(status.unwrap_or_default().starts_with(told), "{status:?}");
    let finish = finished(turn.resume(reply("All is well.")));
    let Outcome::Answer(answer) = &finish.outcome else {
        panic!("no answer")
    };
    assert!(answer.partial);
    let named = "- three lines (not begun: the limits left no room for it)";
    assert!(answer.text.contains(named), "{}", answer.text);
}

#[test]
fn the_last_call_of_a_budget_is_the_synthesis() {
    for (calls, expected) in [(3, Operation::Synthesise), (4, Operation::Review)] {
        let mut request = synthesis_request();
        request.limits.max_model_calls = Some(calls);
        request.control.spent.model_calls = 2;
        let members = vec![member(0, CompletionStatus::Answered)];
        let verdict = verdict(JoinCause::Complete, members, vec![]);
        let mut turn = Turn::parse(request, situation(Some(verdict))).unwrap();
        turn.resume(Input::Begin);
        let Order::AskModel(ask) = turn.resume(Input::DocumentsRead(vec![Some("a".into())])) else {
            panic!("{calls}: the model was not asked")
        };
        assert_eq!(ask.operation, expected, "{calls}");
        if expected == Operation::Synthesise {
            let Order::Finish(finish) = turn.resume(reply("the answer")) else {
                panic!("it goes on")
            };
            let decided = &finish.decisions[0];
            assert_eq!(decided.signal, "the budget of 3 model calls has one left");
            assert_eq!(decided.options, ["answer"]);
        }
    }
}

#[test]
fn an_answer_from_partial_answers_is_partial() {
    let members = vec![
        member(0, CompletionStatus::Answered),
        Member {
            partial: true,
            ..member(1, CompletionStatus::Answered)
        },
    ];
    let verdict = verdict(JoinCause::Complete, members, vec![]);
    let (mut turn, step) = synthesise(verdict, vec![Some("a".into()), Some("b".into())]);
    let Order::AskModel(ask) = step else {
        panic!("{step:?}")
    };
    assert_eq!(ask.variables["results"][0]["status"], "answered");
    assert_eq!(ask.variables["results"][1]["status"], "answered in part");
    turn.resume(reply(
        r#"{"decision": "answer", "signal": "s", "rationale": "r"}"#,
    ));
    let Order::Finish(finish) = turn.resume(reply("the answer")) else {
        panic!("it goes on")
    };
    let Outcome::Answer(answer) = &finish.outcome else {
        panic!("{:?}", finish.outcome)
    };
    assert!(answer.partial);
    let named = "Only a partial result for:\n\n- goal 1 (it ended before it was done";
    assert!(answer.text.contains(named), "{}", answer.text);
}

#[test]
fn nobody_can_name_the_subagents_of_an_attempt_beforehand() {
    let sessions = |nonce: &str| {
        let situation = Situation {
            nonce: nonce.into(),
            ..situation(None)
        };
        let mut turn = Turn::parse(request(), situation).unwrap();
        turn.resume(Input::Begin);
        let fan_out = fanned_out(turn.resume(reply(TWO)));
        let children = fan_out.children.into_iter();
        children.map(|(child, _)| child.session).collect::<Vec<_>>()
    };
    assert_eq!(sessions("a"), sessions("a"), "a replay names the same");
    assert!(
        sessions("a")
            .iter()
            .all(|child| !sessions("b").contains(child))
    );
}

#[test]
fn goals_are_merged_and_each_child_inherits_what_is_not_narrowed() {
    let fan_out = fanned_out(decompose(request(), TWO));
    assert_eq!(fan_out.children.len(), 2, "the duplicate goal is merged");
    let (_, money) = &fan_out.children[0];
    assert_eq!(money.question, "Look at money.");
    assert_eq!(money.subagent_goal, money.question);
    assert_eq!(money.group, Some(vec!["finance".to_owned()]));
    assert_eq!(money.control.context, "fiscal 2025");
    let (_, law) = &fan_out.children[1];
    assert_eq!(law.pattern, "react", "an unknown pattern becomes react");
    assert_eq!(law.group, request().group);
    for (index, (child, request)) in fan_out.children.iter().enumerate() {
        assert_eq!(child.index as usize, index);
        assert_eq!(
            request.session_id,
            SessionId::child(&"parent".into(), 1, child.index, "nonce")
        );
        assert_eq!(request.expected_siblings, 2);
        assert_eq!(request.correlation_id, fan_out.correlation);
        assert_eq!(request.collection.as_str(), "c");
        assert_eq!(request.conversation_id.as_str(), "talk");
        assert_eq!(request.framing, "by dimension");
        assert!(request.streaming && request.history.is_empty());
        assert_eq!(request.control.root.as_str(), "parent");
        assert_eq!(request.control.ancestors.len(), 1);
        assert_eq!(request.limits.max_depth, Some(1));
        assert_eq!(request.control.hard_deadline, fan_out.join_deadline);
    }
    assert_eq!(fan_out.synthesis.control.fan_in_step, Some(1));
    assert_eq!(
        fan_out.synthesis.history.last().unwrap().step_type,
        "synthesise"
    );
}

/// Every decision about a goal: subject, chosen, how.
fn about_goals(decisions: &[Decision]) -> Vec<(&str, &str, DecidedBy)> {
    let of_goal = decisions
        .iter()
        .filter(|d| d.subject.starts_with("subagent-"));
    of_goal
        .map(|d| {
            assert!(d.options.contains(&d.chosen), "PV-2: {d:?}");
            (d.subject.as_str(), d.chosen.as_str(), d.decided_by)
        })
        .collect()
}

#[test]
fn what_the_model_chose_for_a_subagent_is_its_decision_with_options_and_reasons() {
    let finish = finished(decompose(request(), TWO));
    let first = &finish.decisions[0];
    assert_eq!(
        (first.subject.as_str(), first.chosen.as_str()),
        ("fan-out", "fan-out")
    );
    assert_eq!(first.options, ["fan-out", "alone"]);
    assert_eq!(
        (first.decided_by, first.rationale.as_str()),
        (DecidedBy::Model, "two sides")
    );
    assert_eq!(
        about_goals(&finish.decisions),
        [
            ("subagent-pattern-1", "react", DecidedBy::Model),
            ("subagent-group-1", "finance", DecidedBy::Model),
            ("subagent-pattern-2", "react", DecidedBy::Fallback),
            ("subagent-group-2", "all of its parent's", DecidedBy::Model),
        ]
    );
    let group = &finish.decisions[2];
    assert_eq!(group.options, ["default", "finance", "all of its parent's"]);
    assert_eq!(group.rationale, "figures");
    let fan_out = fanned_out(decompose(request(), TWO));
    let by: Vec<_> = fan_out
        .children
        .iter()
        .map(|(_, c)| c.control.pattern_by)
        .collect();
    assert_eq!(by, [Some(DecidedBy::Model), Some(DecidedBy::Fallback)]);
}

#[test]
fn a_group_that_the_parent_does_not_have_gives_nothing() {
    let with = |group: &str| {
        format!(
            r#"{{"thought":"t","goals":[{{"goal":"one","pattern":"react","group":{group}}},"two"]}}"#
        )
    };
    let (asked, all) = (request(), Some(vec!["*".to_owned()]));
    for (parent, group, expected) in [
        (asked.group.clone(), r#"["finance"]"#, Some("finance")),
        (
            asked.group.clone(),
            r#"["Finance", "finance"]"#,
            Some("finance"),
        ),
        (asked.group.clone(), r#""finance""#, Some("finance")),
        (
            asked.group.clone(),
            r#"["default", "finance"]"#,
            Some("default finance"),
        ),
        (asked.group.clone(), "[]", Some("default finance")),
        (asked.group.clone(), r#"["*"]"#, Some("default finance")),
        // Beyond what the parent has, known or not: asked for once more, and then not given.
        (asked.group.clone(), r#"["secret"]"#, Some("")),
        (
            asked.group.clone(),
            r#"["made-up", "finance"]"#,
            Some("finance"),
        ),
        (all.clone(), r#"["made-up"]"#, Some("")),
        (all.clone(), r#"["secret"]"#, Some("secret")),
        (None, r#"["finance"]"#, Some("")),
        (None, "[]", None),
    ] {
        let parent = AgentRequest {
            group: parent,
            ..request()
        };
        let case = format!("{:?} {group}", parent.group);
        let mut turn = Turn::parse(parent.clone(), situation(None)).unwrap();
        turn.resume(Input::Begin);
        let mut step = turn.resume(reply(&with(group)));
        let mut asked_again = false;
        if let Order::AskModel(ask) = &step {
            asked_again = true;
            let fault = ask.variables["fault"].as_str().unwrap();
            assert!(fault.contains("goal 1 names the tool group `"), "{fault}");
            step = turn.resume(reply(&with(group)));
        }
        let finish = finished(step);
        let about = about_goals(&finish.decisions);
        let decided = about.iter().find(|d| d.0 == "subagent-group-1");
        let fell_back = decided.is_some_and(|d| d.2 == DecidedBy::Fallback);
        assert_eq!(asked_again, fell_back, "{case}");
        let Outcome::FanOut(fan_out) = finish.outcome else {
            panic!("{case}: no fan-out")
        };
        let (_, child) = &fan_out.children[0];
        let got = child.group.as_ref().map(|groups| groups.join(" "));
        assert_eq!(got.as_deref(), expected, "{case}");
        // Whatever it says, a child sees no tool that its parent does not.
        let seen = |of: &AgentRequest| {
            let snapshot = situation(None).snapshot;
            let visible = crate::tools::visible(of, &snapshot);
            visible.iter().map(|t| t.name.clone()).collect::<Vec<_>>()
        };
        let of_parent = seen(&parent);
        assert!(
            seen(child).iter().all(|tool| of_parent.contains(tool)),
            "{case}"
        );
    }
}

#[test]
fn every_round_offers_what_is_open_and_takes_it() {
    let first = verdict(
        JoinCause::Complete,
        vec![member(0, CompletionStatus::Answered)],
        vec![],
    );
    let (mut turn, step) = synthesise(first, vec![Some("a".into())]);
    let Order::AskModel(ask) = step else {
        panic!("{step:?}")
    };
    let goal = &ask.schema.as_ref().unwrap()["properties"]["goals"]["items"];
    assert_eq!(
        goal["properties"]["pattern"]["enum"],
        json!(["react", "supervisor"])
    );
    assert_eq!(
        goal["properties"]["group"]["items"]["enum"],
        json!(["default", "finance"])
    );
    assert_eq!(ask.variables["groups"], json!(["default", "finance"]));
    assert_eq!(ask.variables["patterns"][1]["name"], "supervisor");
    assert_eq!(ask.variables["tools"][0]["name"], "default-search");
    let finish = finished(turn.resume(reply(
        r#"{"decision":"investigate","signal":"gap","rationale":"r","goals":[
            {"goal":"dig","pattern":"supervisor","group":["finance"],"rationale":"it divides"}]}"#,
    )));
    assert_eq!(
        about_goals(&finish.decisions),
        [
            ("subagent-pattern-1", "supervisor", DecidedBy::Model),
            ("subagent-group-1", "finance", DecidedBy::Model),
        ]
    );
    let Outcome::FanOut(fan_out) = finish.outcome else {
        panic!("no fan-out")
    };
    let (_, child) = &fan_out.children[0];
    assert_eq!(child.pattern, "supervisor");
    assert_eq!(child.group, Some(vec!["finance".to_owned()]));
}

#[test]
fn the_same_request_fans_out_to_the_same_ids() {
    let (a, b) = (
        fanned_out(decompose(request(), TWO)),
        fanned_out(decompose(request(), TWO)),
    );
    assert_eq!(a, b);
}

#[test]
fn one_goal_no_goals_no_depth_or_no_list_needs_no_fan_out() {
    let mut shallow = request();
    shallow.limits.max_depth = Some(0);
    let turn = Turn::parse(shallow, situation(None))
        .unwrap()
        .resume(Input::Begin);
    let mut narrow = request();
    narrow.limits.max_subagents = Some(1);
    let narrow = Turn::parse(narrow, situation(None))
        .unwrap()
        .resume(Input::Begin);
    let mut late = request();
    late.control.hard_deadline = situation(None).now;
    let mut again = Turn::parse(request(), situation(None)).unwrap();
    again.resume(Input::Begin);
    again.resume(reply("no list"));
    let (both, one) = (&["fan-out", "alone"][..], &["alone"][..]);
    for (step, options, decided_by) in [
        (
            decompose(request(), r#"{"thought":"","goals":["only one"]}"#),
            both,
            DecidedBy::Model,
        ),
        (
            decompose(request(), r#"{"thought":"","goals":[]}"#),
            both,
            DecidedBy::Model,
        ),
        (again.resume(reply("still none")), both, DecidedBy::Fallback),
        (turn, one, DecidedBy::OnlyOption),
        (narrow, one, DecidedBy::OnlyOption),
        (decompose(late, TWO), one, DecidedBy::OnlyOption),
    ] {
        let finish = finished(step);
        let Outcome::Continue(next) = &finish.outcome else {
            panic!("fanned out")
        };
        assert_eq!(next.pattern, "react");
        let [decision] = finish.decisions.as_slice() else {
            panic!("one decision, not {:?}", finish.decisions)
        };
        assert_eq!(decision.chosen, "alone");
        assert_eq!(
            (&decision.options[..], decision.decided_by),
            (
                &options.iter().map(ToString::to_string).collect::<Vec<_>>()[..],
                decided_by
            )
        );
    }
}

#[test]
fn width_is_bounded() {
    let goals: Vec<String> = (0..50).map(|n| format!("goal number {n}")).collect();
    let text = serde_json::to_string(&goals).unwrap();
    assert_eq!(fanned_out(decompose(request(), &text)).children.len(), 8);
    let mut small = request();
    small.limits.max_sessions = Some(3);
    let fan_out = fanned_out(decompose(small, &text));
    assert_eq!(fan_out.children.len(), 3);
    assert_eq!(fan_out.children[0].1.limits.max_sessions, Some(0));
    assert_eq!(fan_out.synthesis.limits.max_sessions, Some(0));
}

fn verdict(cause: JoinCause, members: Vec<Member>, missing: Vec<Child>) -> FanInRecord {
    FanInRecord {
        policy: agentfleet_schema::config::JoinPolicy::All,
        correlation: "corr".into(),
        members,
        missing,
        cause,
        missing_spent: Spent::default(),
        nonce: String::new(),
    }
}

fn member(index: u32, status: CompletionStatus) -> Member {
    Member {
        index,
        session: SessionId::new(format!("child{index}")),
        goal: format!("goal {index}"),
        status,
        document: format!("urn:doc:{index}"),
        sources: vec![Source {
            uri: "urn:src".into(),
            title: "Src".into(),
        }],
        spent: Spent {
            tokens: 10,
            ..Spent::default()
        },
        ..Member::default()
    }
}

fn synthesis_request() -> AgentRequest {
    let mut request = request();
    request.step = 2;
    request.control.fan_in_step = Some(1);
    request.control.rounds = 1;
    request.history.push(AgentStep {
        step_type: "synthesise".into(),
        ..AgentStep::default()
    });
    request
}

/// Runs a synthesis up to its first question to the model, or its end.
fn synthesise(verdict: FanInRecord, texts: Vec<Option<String>>) -> (Turn, Order) {
    let mut turn = Turn::parse(synthesis_request(), situation(Some(verdict))).unwrap();
    let Order::ReadDocuments(uris) = turn.resume(Input::Begin) else {
        panic!()
    };
    assert_eq!(uris.len(), texts.len());
    let step = turn.resume(Input::DocumentsRead(texts));
    (turn, step)
}

#[test]
fn a_synthesis_reads_the_verdict_decides_and_answers() {
    let verdict = verdict(
        JoinCause::Complete,
        vec![
            member(0, CompletionStatus::Answered),
            member(1, CompletionStatus::Answered),
        ],
        vec![],
    );
    let (mut turn, step) = synthesise(verdict, vec![Some("a".into()), Some("b".into())]);
    let Order::AskModel(review) = step else {
        panic!()
    };
    assert_eq!(review.operation, Operation::Review);
    let Order::AskModel(ask) = turn.resume(reply(
        r#"{"decision":"answer","signal":"complete","rationale":"r"}"#,
    )) else {
        panic!()
    };
    assert_eq!(ask.operation, Operation::Synthesise);
    assert_eq!(ask.stream, StreamAs::Answer);
    assert_eq!(ask.variables["results"][0]["sources"][0]["uri"], "urn:src");
    let finish = finished(turn.resume(reply("## Part\nConfidence: 0.8\ntext")));
    assert_eq!(finish.decisions[0].chosen, "answer");
    let Activity::Concluded(concluded) = finish.activity else {
        panic!()
    };
    assert!(!concluded.partial);
    assert_eq!(concluded.confidence[0].part, "Part");
}

#[test]
fn what_is_missing_is_named_whatever_the_model_writes() {
    let missing = Child {
        index: 2,
        goal: "goal 2".into(),
        ..Child::default()
    };
    let verdict = verdict(
        JoinCause::Deadline,
        vec![
            member(0, CompletionStatus::Answered),
            member(1, CompletionStatus::Error),
        ],
        vec![missing],
    );
    let (mut turn, _) = synthesise(
        verdict,
        vec![Some("a".into()), Some("the key was refused".into())],
    );
    turn.resume(reply(r#"{"decision":"answer"}"#));
    let finish = finished(turn.resume(reply("All is well.")));
    let Outcome::Answer(answer) = finish.outcome else {
        panic!()
    };
    assert!(answer.partial);
    for expected in [
        "goal 1 (error: the key was refused)",
        "goal 2 (not finished",
    ] {
        assert!(answer.text.contains(expected), "{}", answer.text);
    }
}

#[test]
fn with_no_result_at_all_no_model_is_asked() {
    let verdict = verdict(
        JoinCause::Complete,
        vec![member(0, CompletionStatus::Error)],
        vec![],
    );
    let (_, step) = synthesise(verdict, vec![None]);
    let Outcome::Answer(answer) = finished(step).outcome else {
        panic!()
    };
    assert!(
        answer.partial && answer.text.contains("goal 0"),
        "{}",
        answer.text
    );
}

#[test]
fn it_may_investigate_further_under_a_new_correlation_and_remembers_what_it_has() {
    let first = verdict(
        JoinCause::Complete,
        vec![member(0, CompletionStatus::Answered)],
        vec![],
    );
    let (mut turn, _) = synthesise(first, vec![Some("a".into())]);
    let finish = finished(turn.resume(reply(
        r#"{"decision":"investigate","signal":"gap","rationale":"need more",
            "goals":[{"goal":"dig","pattern":"react","context":""}]}"#,
    )));
    let Outcome::FanOut(fan_out) = finish.outcome else {
        panic!()
    };
    assert_eq!(
        fan_out.correlation,
        CorrelationId::of_fan_out(&"parent".into(), 2)
    );
    assert_eq!(fan_out.synthesis.control.rounds, 2);
    let remembered = fan_out
        .synthesis
        .history
        .iter()
        .find_map(|s| s.subagent_results.as_ref())
        .unwrap();
    assert_eq!(remembered["goal 0"]["document"], "urn:doc:0");
    assert_eq!(finish.decisions[0].chosen, "investigate");
}

#[test]
fn the_last_round_answers_without_asking_whether_to_go_on() {
    let verdict = verdict(
        JoinCause::Complete,
        vec![member(0, CompletionStatus::Answered)],
        vec![],
    );
    let mut request = synthesis_request();
    request.control.rounds = 3;
    let mut turn = Turn::parse(request, situation(Some(verdict))).unwrap();
    turn.resume(Input::Begin);
    let Order::AskModel(ask) = turn.resume(Input::DocumentsRead(vec![Some("a".into())])) else {
        panic!()
    };
    assert_eq!(ask.operation, Operation::Synthesise);
}
