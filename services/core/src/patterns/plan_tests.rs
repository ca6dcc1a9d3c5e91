#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::limits::FleetLimits;
use crate::order::{ModelAsk, ModelFailure, Outcome, Reply, StreamAs, ToolOutcome};
use crate::turn::Turn;
use agentfleet_schema::Spent;
use agentfleet_schema::config::{AgentPattern, Snapshot, ToolItem};
use agentfleet_schema::records::{Child, CompletionStatus, ForkedFrom, JoinCause, Member};
use serde_json::json;
use std::sync::Arc;

fn snapshot(parallel: bool) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for name in ["react", "plan-then-execute"] {
        let pattern = AgentPattern {
            name: name.into(),
            parallel,
            ..AgentPattern::default()
        };
        snapshot.patterns.insert(name.into(), pattern);
    }
    snapshot.tools.insert(
        "search".into(),
        ToolItem {
            name: "search".into(),
            kind: "document-search".into(),
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            state: Some("searched".into()),
            ..ToolItem::default()
        },
    );
    snapshot
}

fn situation(parallel: bool, fan_in: Option<FanInRecord>) -> Situation {
    Situation {
        now: 0,
        snapshot: Arc::new(snapshot(parallel)),
        fleet: Arc::new(FleetLimits::default()),
        native_tools: false,
        nonce: "nonce".into(),
        fan_in,
    }
}

fn request() -> AgentRequest {
    AgentRequest {
        question: "who owns the mill?".into(),
        session_id: "s".into(),
        pattern: "plan-then-execute".into(),
        framing: "by the register".into(),
        ..AgentRequest::default()
    }
}

/// A session whose plan has these steps: status and what each needs.
fn with_plan(steps: &[(&str, &[u32])]) -> AgentRequest {
    let plan = steps
        .iter()
        .enumerate()
        .map(|(at, (status, after))| PlanStep {
            goal: format!("goal {at}"),
            status: (*status).into(),
            depends_on: after.to_vec(),
            result: format!("result {at}"),
            ..PlanStep::default()
        });
    let mut request = request();
    remember(
        &mut request,
        plan.collect(),
        AgentStep {
            action: "plan".into(),
            step_type: "plan".into(),
            ..AgentStep::default()
        },
    );
    request
}

fn turn(request: AgentRequest, parallel: bool) -> Turn {
    Turn::parse(request, situation(parallel, None)).unwrap()
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

fn continued(step: Order) -> AgentRequest {
    let Outcome::Continue(next) = finished(step).outcome else {
        panic!("it ended")
    };
    *next
}

fn statuses(request: &AgentRequest) -> Vec<String> {
    let plan = dag::current(request).unwrap();
    plan.iter().map(|step| step.status.clone()).collect()
}

/// A plan that was revised as often, and is to be revised for this reason.
fn revising(replans: u32, reason: &str) -> PatternState {
    PatternState::Plan(PlanState {
        replans,
        replan: reason.to_owned(),
    })
}

#[test]
fn the_last_call_of_a_budget_writes_the_answer() {
    let with = |steps: &[(&str, &[u32])], calls| {
        let mut request = with_plan(steps);
        request.limits.max_model_calls = Some(calls);
        request.control.spent.model_calls = 2;
        turn(request, false)
    };
    // With nothing to answer from, it is answered without the plan; and none is made to no use.
    let mut none = with(&[("pending", &[]), ("pending", &[])], 3);
    let finish = finished(none.resume(Input::Begin));
    assert_eq!(finish.decisions[0].subject, "plan");
    let Outcome::Continue(next) = finish.outcome else {
        panic!("it ended")
    };
    assert_eq!(next.pattern, "react");
    let mut first = request();
    first.limits.max_model_calls = Some(1);
    let next = continued(turn(first, false).resume(Input::Begin));
    assert_eq!(next.pattern, "react");

    let one: &[(&str, &[u32])] = &[("complete", &[]), ("pending", &[])];
    let mut last = with(one, 3);
    let ask = asked(last.resume(Input::Begin));
    assert_eq!(ask.operation, Operation::PlanSynthesise);
    let missing = &ask.variables["missing"][0];
    assert_eq!(missing["reason"], "not begun: the budget was used up");
    let Outcome::Answer(answer) = finished(last.resume(said("Ada."))).outcome else {
        panic!("no answer")
    };
    assert_eq!(answer.termination, Termination::BudgetExhausted);
    assert!(
        answer.partial && answer.text.starts_with("Ada."),
        "{}",
        answer.text
    );

    // What a call came to is told without the model then.
    let mut two = with(one, 4);
    assert_eq!(
        asked(two.resume(Input::Begin)).operation,
        Operation::PlanStep
    );
    let step = two.resume(said("Thought: t\nAction: search\nArgs: {}"));
    assert!(matches!(step, Order::CallTool(_)), "{step:?}");
    let found = ToolOutcome {
        content: "a deed".into(),
        ..ToolOutcome::default()
    };
    let finish = finished(two.resume(Input::ToolReturned(found)));
    let decided = &finish.decisions[0];
    assert_eq!(decided.signal, "the budget of 4 model calls has one left");
    let Outcome::Continue(next) = finish.outcome else {
        panic!("it ended")
    };
    assert_eq!(statuses(&next), ["complete", "complete"]);
}

#[test]
fn an_answer_from_a_partial_result_is_partial() {
    let mut request = with_plan(&[("complete", &[]), ("complete", &[])]);
    let plan = request.history[0].plan.as_mut().unwrap();
    plan[1].partial = true;
    let mut turn = turn(request, false);
    turn.resume(Input::Begin);
    let Outcome::Answer(answer) = finished(turn.resume(said("Ada."))).outcome else {
        panic!("no answer")
    };
    assert_eq!(answer.termination, Termination::PlanComplete);
    let named = "Only a partial result for:\n\n- goal 1 (";
    assert!(
        answer.partial && answer.text.contains(named),
        "{}",
        answer.text
    );
}

#[test]
fn without_tools_a_plan_that_has_no_result_is_answered_without_it() {
    let with = |steps: &[(&str, &[u32])]| {
        let mut request = with_plan(steps);
        request.limits.max_tool_calls = Some(0);
        turn(request, false).resume(Input::Begin)
    };
    let next = continued(with(&[("pending", &[]), ("pending", &[])]));
    assert_eq!(next.pattern, "react");
    let ask = asked(with(&[("complete", &[]), ("pending", &[])]));
    assert_eq!(ask.operation, Operation::PlanSynthesise);
}

#[test]
fn a_fork_takes_the_plan_over_before_it_goes_on() {
    let mut request = with_plan(&[("complete", &[]), ("failed", &[]), ("pending", &[])]);
    request.control.forked_from = Some(ForkedFrom::default());
    let finish = finished(turn(request, false).resume(Input::Begin));
    let Activity::Planned(planned) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert_eq!(
        (planned.revision, planned.first, planned.steps.len()),
        (0, 0, 3)
    );
    let text = &finish.said[0].text;
    assert!(text.contains("1 of 3 steps are complete"), "{text}");
    assert!(
        text.contains("0. goal 0: complete\n1. goal 1: failed\n2. goal 2"),
        "{text}"
    );
    let Outcome::Continue(mut next) = finish.outcome else {
        panic!("it ended")
    };
    next.step = 1;
    next.control.forked_from = None;
    let ask = asked(turn(*next, false).resume(Input::Begin));
    assert_eq!(
        (ask.operation, &ask.variables["index"]),
        (Operation::PlanStep, &json!(2))
    );
}

const TWO: &str = r#"{"thought": "t", "steps": [{"goal": "a"}, {"goal": "b", "depends_on": [0]}]}"#;
const CYCLE: &str = r#"[{"goal": "a", "depends_on": [1]}, {"goal": "b", "depends_on": [0]}]"#;

#[test]
fn a_plan_is_made_and_travels_in_the_history() {
    let mut turn = turn(request(), false);
    let ask = asked(turn.resume(Input::Begin));
    assert_eq!(ask.operation, Operation::PlanCreate);
    assert_eq!(ask.variables["framing"], "by the register");
    assert_eq!(ask.variables["tools"][0]["name"], "search");
    let next = continued(turn.resume(said(TWO)));
    assert_eq!(statuses(&next), ["pending", "pending"]);
    assert_eq!(iterations(&next), 0, "making a plan is no iteration");
}

#[test]
fn a_plan_that_is_no_dag_is_asked_for_once_more_and_then_refused() {
    for (first, second, expected) in [
        (CYCLE, TWO, None),
        ("no json", TWO, None),
        ("[]", TWO, None),
        (
            CYCLE,
            CYCLE,
            Some("step 0 depends on step 1: step 1 comes after it"),
        ),
        (TWO, TWO, None),
        ("[]", r#"{"steps": []}"#, Some("the plan has no steps")),
    ] {
        let mut turn = turn(request(), false);
        turn.resume(Input::Begin);
        let mut step = turn.resume(said(first));
        if let Order::AskModel(again) = &step {
            assert_ne!(again.variables["fault"], "", "{first}");
            step = turn.resume(said(second));
        }
        match (finished(step).outcome, expected) {
            (Outcome::Continue(_), None) => {}
            (Outcome::Fail { error, .. }, Some(why)) => {
                assert_eq!(error.code, "invalid-plan");
                assert!(error.message.contains(why), "{}", error.message);
            }
            (outcome, _) => panic!("{first} {second}: {outcome:?}"),
        }
    }
}

#[test]
fn a_ready_step_is_executed_with_what_it_builds_on() {
    let request = with_plan(&[("complete", &[]), ("pending", &[]), ("pending", &[0, 1])]);
    let mut turn = turn(request, false);
    let ask = asked(turn.resume(Input::Begin));
    assert_eq!(ask.operation, Operation::PlanStep);
    assert_eq!(
        (&ask.variables["index"], &ask.variables["goal"]),
        (&json!(1), &json!("goal 1"))
    );
    assert_eq!(ask.variables["previous_results"], json!([]));
    let step = turn.resume(said(
        "Thought: look\nAction: search\nArgs: {\"query\": \"mill\"}",
    ));
    assert!(matches!(step, Order::CallTool(_)));
    let ask = asked(turn.resume(Input::ToolReturned(ToolOutcome {
        content: "Ada owns it.".into(),
        ..ToolOutcome::default()
    })));
    assert_eq!(ask.operation, Operation::PlanAssess);
    assert_eq!(ask.variables["open_steps"], json!(["goal 2"]));
    let reply = r#"{"status": "complete", "reason": "named", "result": "Ada [1]"}"#;
    let finish = finished(turn.resume(said(reply)));
    let Activity::Executed(executed) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert_eq!(executed.call.as_ref().unwrap().action, "search");
    assert_eq!(finish.decisions[0].chosen, "complete");
    let Outcome::Continue(next) = finish.outcome else {
        panic!("it ended")
    };
    assert_eq!(statuses(&next), ["complete", "complete", "pending"]);
    assert_eq!(dag::current(&next).unwrap()[1].result, "Ada [1]");
    assert_eq!((next.state.as_str(), iterations(&next)), ("searched", 1));
    // The next step sees both.
    let mut turn = Turn::parse(*next, situation(false, None)).unwrap();
    let ask = asked(turn.resume(Input::Begin));
    let results = &ask.variables["previous_results"];
    assert_eq!(results[1]["result"], "Ada [1]");
}

#[test]
fn what_a_step_comes_to_decides_about_the_rest_of_the_plan() {
    let act = "Action: search\nArgs: {}";
    for (reply, is_error, replans, status, replan, decisions) in [
        (
            r#"{"status":"complete","reason":"r","result":"x"}"#,
            false,
            0,
            "complete",
            false,
            vec!["complete"],
        ),
        (
            r#"{"status":"failed","reason":"r","result":""}"#,
            true,
            0,
            "failed",
            true,
            vec!["failed", "revise"],
        ),
        (
            r#"{"status":"surprising","reason":"r","result":"x"}"#,
            false,
            1,
            "complete",
            true,
            vec!["surprising", "revise"],
        ),
        (
            r#"{"status":"surprising","reason":"r","result":"x"}"#,
            false,
            2,
            "complete",
            true,
            vec!["surprising", "end"],
        ),
        ("what?", false, 0, "complete", false, vec!["complete"]),
        ("what?", true, 0, "failed", true, vec!["failed", "revise"]),
        (
            r#"{"status":"splendid"}"#,
            false,
            0,
            "complete",
            false,
            vec!["complete"],
        ),
    ] {
        let mut request = with_plan(&[("pending", &[]), ("pending", &[])]);
        request.control.state = revising(replans, "");
        let mut turn = turn(request, false);
        turn.resume(Input::Begin);
        turn.resume(said(act));
        turn.resume(Input::ToolReturned(ToolOutcome {
            content: "seen".into(),
            is_error,
            ..ToolOutcome::default()
        }));
        let finish = finished(turn.resume(said(reply)));
        let chosen: Vec<_> = finish.decisions.iter().map(|d| d.chosen.as_str()).collect();
        assert_eq!(chosen, decisions, "{reply} {is_error} {replans}");
        for decision in &finish.decisions {
            assert!(decision.options.contains(&decision.chosen), "PV-2");
        }
        let Outcome::Continue(next) = finish.outcome else {
            panic!("it ended")
        };
        assert_eq!(statuses(&next)[0], status, "{reply}");
        assert_eq!(
            !next.control.state.plan().replan.is_empty(),
            replan,
            "{reply} {replans}"
        );
        let ends = decisions.last() == Some(&"end");
        let same = Turn::parse(*next, situation(false, None)).unwrap();
        let Order::AskModel(ask) = { same }.resume(Input::Begin) else {
            panic!("no plan")
        };
        let makes = ask.operation == Operation::PlanRevise;
        assert_eq!(makes, replan && !ends, "{reply} {replans}");
        let answers = ask.operation == Operation::PlanSynthesise;
        assert_eq!(answers, ends, "{reply} {replans}");
    }
}

#[test]
fn a_plan_that_was_revised_as_often_as_it_may_be_ends_and_says_so() {
    let mut request = with_plan(&[("complete", &[]), ("failed", &[]), ("pending", &[])]);
    for (replans, expected) in [(2, Operation::PlanRevise), (3, Operation::PlanSynthesise)] {
        request.control.state = revising(replans, "step 1 failed: the register is closed");
        let ask = asked(turn(request.clone(), false).resume(Input::Begin));
        assert_eq!(ask.operation, expected, "{replans}");
    }
    let mut last = turn(request, false);
    last.resume(Input::Begin);
    let finish = finished(last.resume(said("Ada owns it.")));
    let Activity::Concluded(end) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert_eq!(
        (end.termination, end.partial),
        (Termination::MaxReplans, true)
    );
    let text = &finish.said[0].text;
    assert!(
        text.contains("the plan was revised as often as it may be"),
        "{text}"
    );
}

#[test]
fn what_the_model_gets_wrong_about_a_step_is_told_it_and_ends_in_a_failed_step() {
    let mut turn = turn(with_plan(&[("pending", &[]), ("pending", &[])]), false);
    turn.resume(Input::Begin);
    for told in [1, 2] {
        let ask = asked(turn.resume(said("Action: serch-all\nArgs: {}")));
        assert_eq!(ask.variables["faults"].as_array().unwrap().len(), told);
    }
    let next = continued(turn.resume(said("Action: serch-all\nArgs: {}")));
    assert_eq!(statuses(&next), ["failed", "pending"]);
    assert!(
        next.control
            .state
            .plan()
            .replan
            .contains("unknown tool `serch-all`")
    );
}

#[test]
fn a_call_of_an_earlier_step_is_told_of_once_and_not_made_a_third_time() {
    let calls = "Thought: t\nAction: search\nArgs: {\"query\": \"mill\"}";
    let made = |times: usize| {
        let mut request = with_plan(&[("complete", &[]), ("pending", &[]), ("pending", &[])]);
        for n in 0..times {
            request.history.push(AgentStep {
                action: "search".into(),
                arguments: BTreeMap::from([("query".to_owned(), "mill".to_owned())]),
                observation: format!("found {n}"),
                step_type: "execute".into(),
                ..AgentStep::default()
            });
        }
        let mut turn = turn(request, false);
        turn.resume(Input::Begin);
        turn
    };
    assert!(matches!(made(0).resume(said(calls)), Order::CallTool(_)));

    let mut once = made(1);
    let told = asked(once.resume(said(calls)));
    let fault = told.variables["faults"][0].as_str().unwrap();
    assert!(fault.contains("its result was: found 0"), "{fault}");
    // It insists: a step of another goal may look for something else in it.
    assert!(matches!(once.resume(said(calls)), Order::CallTool(_)));

    let next = continued(made(2).resume(said(calls)));
    assert_eq!(statuses(&next), ["complete", "failed", "pending"]);
    let why = "step 1 goes in circles: its call of `search` was made 2 times before";
    assert!(
        next.control.state.plan().replan.starts_with(why),
        "{}",
        next.control.state.plan().replan
    );
}

#[test]
fn a_revision_replaces_what_is_pending_and_builds_on_what_is_complete() {
    let revised = |text: &str| {
        let mut request = with_plan(&[("complete", &[]), ("failed", &[0]), ("pending", &[1])]);
        request.control.state = revising(1, "step 1 failed");
        let mut turn = turn(request, false);
        let ask = asked(turn.resume(Input::Begin));
        assert_eq!(ask.operation, Operation::PlanRevise);
        assert_eq!(ask.variables["next_index"], 3);
        assert_eq!(ask.variables["reason"], "step 1 failed");
        let mut step = turn.resume(said(text));
        if matches!(step, Order::AskModel(_)) {
            step = turn.resume(said(text));
        }
        let next = continued(step);
        assert!(next.control.state.plan().replan.is_empty());
        statuses(&next)
    };
    let new = ["complete", "failed", "revised", "pending"];
    assert_eq!(
        revised(r#"[{"goal": "other way", "depends_on": [0]}]"#),
        new
    );
    let kept = ["complete", "failed", "pending"];
    for nothing in [
        r#"{"steps": []}"#,
        // Twice on a step without a result, then on one that it replaces itself.
        r#"[{"goal": "other way", "depends_on": [1]}]"#,
        r#"[{"goal": "other way", "depends_on": [2]}]"#,
    ] {
        assert_eq!(revised(nothing), kept, "{nothing}");
    }
}

#[test]
fn a_revision_that_was_dropped_leaves_no_gap_in_their_numbers() {
    let mut request = with_plan(&[("complete", &[]), ("failed", &[]), ("pending", &[1])]);
    request.control.state = revising(1, "step 1 failed");
    let mut dropped = turn(request, false);
    dropped.resume(Input::Begin);
    let mut request = continued(dropped.resume(said(r#"{"steps": []}"#)));
    request.control.state = revising(2, "step 2 failed");
    let mut made = turn(request, false);
    made.resume(Input::Begin);
    let finish = finished(made.resume(said(r#"["another way"]"#)));
    let Activity::Planned(plan) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert_eq!(plan.revision, 1, "it revises the first plan");
}

#[test]
fn the_answer_is_written_when_nothing_is_ready_and_says_what_is_missing() {
    for (steps, spent, expected) in [
        (
            vec![("complete", &[][..])],
            0,
            Some((Termination::PlanComplete, false)),
        ),
        (
            vec![
                ("complete", &[][..]),
                ("failed", &[][..]),
                ("pending", &[1][..]),
            ],
            0,
            Some((Termination::PlanComplete, true)),
        ),
        (
            vec![
                ("complete", &[][..]),
                ("failed", &[][..]),
                ("revised", &[][..]),
            ],
            0,
            Some((Termination::PlanComplete, false)),
        ),
        (
            vec![("failed", &[][..])],
            0,
            Some((Termination::PlanComplete, true)),
        ),
        (
            vec![("complete", &[][..]), ("pending", &[][..])],
            10_000,
            Some((Termination::BudgetExhausted, true)),
        ),
        // What is left is for the answer.
        (
            vec![("complete", &[][..]), ("pending", &[][..])],
            9_990,
            Some((Termination::BudgetExhausted, true)),
        ),
        (vec![("complete", &[][..]), ("pending", &[][..])], 100, None),
    ] {
        let mut request = with_plan(&steps);
        request.limits.max_tokens = Some(10_000);
        request.control.spent.tokens = spent;
        let mut turn = turn(request, false);
        let mut step = turn.resume(Input::Begin);
        if let Order::AskModel(ask) = &step
            && ask.operation == Operation::PlanSynthesise
        {
            assert_eq!(ask.stream, StreamAs::Answer);
            step = turn.resume(said("## Owner\nConfidence: 0.7\n\nAda."));
        }
        let Some((termination, partial)) = expected else {
            assert!(matches!(step, Order::AskModel(_)), "{steps:?}");
            continue;
        };
        let Outcome::Answer(answer) = finished(step).outcome else {
            panic!("no answer: {steps:?}")
        };
        assert_eq!(
            (answer.termination, answer.partial),
            (termination, partial),
            "{steps:?}"
        );
    }
}

#[test]
fn the_iteration_limit_ends_a_plan_with_what_there_is() {
    let mut request = with_plan(&[("complete", &[]), ("pending", &[])]);
    request.limits.max_iterations = Some(1);
    let plan = dag::current(&request).unwrap().clone();
    let executed = AgentStep {
        step_type: "execute".into(),
        ..AgentStep::default()
    };
    remember(&mut request, plan, executed);
    let mut turn = turn(request, false);
    let ask = asked(turn.resume(Input::Begin));
    assert_eq!(ask.operation, Operation::PlanSynthesise);
    assert_eq!(
        ask.variables["missing"][0]["reason"],
        "not begun: the iteration limit was reached"
    );
}

fn fanned_out(request: AgentRequest, parallel: bool) -> Option<crate::order::FanOut> {
    match turn(request, parallel).resume(Input::Begin) {
        Order::Finish(finish) => match finish.outcome {
            Outcome::FanOut(fan_out) => Some(*fan_out),
            other => panic!("{other:?}"),
        },
        _ => None,
    }
}

#[test]
fn independent_steps_go_to_subagents_only_where_the_pattern_allows_it_and_there_is_room() {
    let two: &[(&str, &[u32])] = &[("complete", &[]), ("pending", &[]), ("pending", &[0])];
    let one: &[(&str, &[u32])] = &[("pending", &[]), ("pending", &[0])];
    for (steps, parallel, depth, expected) in [
        (two, true, None, Some(2)),
        (two, false, None, None),
        (one, true, None, None),
        (two, true, Some(0), None),
    ] {
        let mut request = with_plan(steps);
        request.limits.max_depth = depth;
        let fan_out = fanned_out(request, parallel);
        let count = fan_out.as_ref().map(|f| f.children.len());
        assert_eq!(count, expected, "{steps:?} {parallel} {depth:?}");
    }
    let fan_out = fanned_out(with_plan(two), true).unwrap();
    let (_, second) = &fan_out.children[1];
    assert!(
        second.control.context.contains("result 0"),
        "{}",
        second.control.context
    );
    assert_eq!(fan_out.synthesis.pattern, "plan-then-execute");
}

#[test]
fn what_subagents_bring_becomes_the_results_of_their_steps() {
    let steps: &[(&str, &[u32])] = &[
        ("pending", &[]),
        ("pending", &[]),
        ("pending", &[]),
        ("pending", &[0]),
    ];
    let fan_out = fanned_out(with_plan(steps), true).unwrap();
    let member = |index: u32, status| Member {
        index,
        session: fan_out.children[index as usize].0.session.clone(),
        partial: index == 0,
        status,
        document: format!("urn:d{index}"),
        spent: Spent {
            tokens: 10,
            ..Spent::default()
        },
        ..Member::default()
    };
    let verdict = FanInRecord {
        policy: agentfleet_schema::config::JoinPolicy::All,
        members: vec![
            // In another order than they were given away.
            member(1, CompletionStatus::Error),
            member(0, CompletionStatus::Answered),
        ],
        missing: vec![Child {
            index: 2,
            ..Child::default()
        }],
        cause: JoinCause::Deadline,
        ..FanInRecord::default()
    };
    let request = fan_out.synthesis;
    let mut turn = Turn::parse(request, situation(true, Some(verdict))).unwrap();
    let Order::ReadDocuments(uris) = turn.resume(Input::Begin) else {
        panic!("nothing is read")
    };
    assert_eq!(uris, ["urn:d1", "urn:d0"]);
    let texts = vec![Some("the tool failed".into()), Some("Ada.".into())];
    let finish = finished(turn.resume(Input::DocumentsRead(texts)));
    let Activity::Executed(executed) = &finish.activity else {
        panic!("{:?}", finish.activity)
    };
    assert_eq!(executed.after.as_ref().unwrap().spent.tokens, 20);
    let Outcome::Continue(next) = finish.outcome else {
        panic!("it ended")
    };
    assert_eq!(statuses(&next), ["complete", "failed", "failed", "pending"]);
    let plan = dag::current(&next).unwrap();
    assert_eq!((plan[0].result.as_str(), plan[0].partial), ("Ada.", true));
    assert!(plan[1..].iter().all(|step| !step.partial));
    assert_eq!((next.control.fan_in_step, iterations(&next)), (None, 3));
    assert!(
        next.control
            .state
            .plan()
            .replan
            .contains("step 2 failed: not finished"),
        "{}",
        next.control.state.plan().replan
    );
}

#[test]
fn a_model_that_fails_ends_the_session_and_says_so() {
    for request in [
        request(),
        with_plan(&[("pending", &[])]),
        with_plan(&[("complete", &[])]),
    ] {
        let mut turn = turn(request, false);
        turn.resume(Input::Begin);
        let failure = ModelFailure {
            message: "no key".into(),
            ..ModelFailure::default()
        };
        let Outcome::Fail { error, .. } =
            finished(turn.resume(Input::ModelFailed(failure))).outcome
        else {
            panic!("it went on")
        };
        assert_eq!(error.code, "model-failed");
    }
}
