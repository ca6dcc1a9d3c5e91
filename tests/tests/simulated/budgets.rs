//! Budgets, joins and cancellation of trees, each as one forced schedule.

use agentfleet_schema::Spent;
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::{
    Activity, Call, CompletionStatus, JoinCause, OutcomeKind, StepRecord, Termination,
};
use agentfleet_tests::directed::Stage;
use agentfleet_tests::effect::Verb::{Chat, Create};
use agentfleet_tests::effect::When::{After, Before};
use agentfleet_tests::queues::Role::{FanIn, Orchestrator};
use agentfleet_tests::scenario::{Kind, Scenario, Trouble, Use};
use agentfleet_tests::sim::{Engine, Stepped};
use std::sync::Arc;
use std::time::Duration;

const ENGINES: [Engine; 3] = [Engine::DISTRIBUTED, Engine::MIXED, Engine::EMBEDDED];
/// Longer than a message is held without a sign of life.
const LEASE: Duration = Duration::from_secs(40);

fn ended(record: &StepRecord) -> Termination {
    let Activity::Concluded(end) = &record.activity else {
        panic!("it goes on: {:?}", record.activity)
    };
    end.termination
}

fn records(stage: &Stage) -> Vec<Arc<StepRecord>> {
    stage
        .sim
        .with(|world| world.facts.records.values().cloned().collect())
}

/// What all committed steps spent, with what attempts wasted.
fn spent(stage: &Stage) -> Spent {
    let of = |record: &Arc<StepRecord>| {
        record.calls.iter().map(Call::spent).sum::<Spent>() + record.wasted
    };
    records(stage).iter().map(of).sum()
}

#[test]
fn fifty_siblings_do_not_overspend_one_small_account() {
    const SIBLINGS: u64 = 50;
    /// Tokens of one call of the simulated model.
    const CALL: u64 = 12;
    /// Those with which a sibling comes to its end: it keeps what two calls with its history as the prompt
    /// would come to, by their bytes.
    const ENOUGH: u64 = 900;
    for (engine, most) in ENGINES.into_iter().zip([6_000, 7_000, 60_000]) {
        let mut scenario = Scenario::new().supervisor("r0", SIBLINGS as usize);
        for work in scenario.works.values_mut() {
            if let Kind::React(uses) = &mut work.kind {
                *uses = vec![Use::Read; 6];
            }
        }
        scenario.max_iterations = 8;
        let limits = &mut scenario.roots[0].limits;
        limits.max_subagents = Some(SIBLINGS as u32);
        limits.max_sessions = Some(SIBLINGS as u32);
        limits.max_tokens = Some(most);
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        // All at the same time, each a little further at every turn.
        loop {
            let mut tasks = Vec::new();
            for n in 0..SIBLINGS {
                for step in 0..8 {
                    let about = format!("r0.{n} {step}");
                    if stage.has(Orchestrator, &about) {
                        tasks.push(stage.give(Orchestrator, (n % 2) as usize, &about));
                    }
                }
            }
            if tasks.is_empty() {
                break;
            }
            while !tasks.is_empty() {
                tasks.retain(|task| stage.sim.step(*task) == Stepped::Going);
            }
        }
        stage.end();
        let spent = spent(&stage);
        assert!(
            spent.tokens <= most,
            "{} of {most} tokens spent",
            spent.tokens
        );
        // The share of each is used, and the reserve is there for the synthesis.
        let children = records(&stage);
        let stopped = children
            .iter()
            .filter(|record| record.parent.is_some() && record.outcome.is_terminal())
            .filter(|record| ended(record) == Termination::BudgetExhausted)
            .count() as u64;
        let each = (most - CALL) * 4 / 5 / SIBLINGS;
        assert_eq!(
            stopped == SIBLINGS,
            each < ENOUGH,
            "{stopped} with {each} each"
        );
        let last = stage.record("r0", 1).unwrap();
        assert_eq!(last.outcome, OutcomeKind::Answer);
        assert_eq!(last.total, spent, "the root accounts for all of its tree");
    }
}

/// One root that makes two calls of a tool, under a bound on its model calls.
fn bounded(most: u64, engine: Engine) -> Stage {
    let mut scenario = Scenario::new().react("r0", &[Use::Read, Use::Read]);
    scenario.roots[0].limits.max_model_calls = Some(most);
    Stage::asked(scenario, engine)
}

#[test]
fn what_a_crashed_attempt_spent_counts_against_the_budget() {
    for engine in ENGINES {
        let mut stage = bounded(2, engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, After, Chat, "react");
        stage.crash(first);
        stage.pass(LEASE);
        stage.work(Orchestrator, "r0 0");
        let record = stage.record("r0", 0).unwrap();
        assert_eq!(record.wasted.model_calls, 1, "{engine:?}");
        assert!(
            record.wasted.tokens > 0,
            "what was reserved for the call counts"
        );
        assert_eq!(record.total.model_calls, 2);
        // The second call was the last: no tool is called any more, and nothing asked.
        assert_eq!(ended(&record), Termination::BudgetExhausted);
        assert_eq!(stage.count("model calls"), 2);
        stage.end();
        let answer = stage.answer("r0").unwrap();
        assert!(
            answer.contains("brought no answer (the budget of 2 model calls has one left)"),
            "{answer}"
        );
    }
}

#[test]
fn two_attempts_never_both_take_the_last_call() {
    for engine in ENGINES {
        let mut stage = bounded(1, engine);
        let slow = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(slow, Before, Chat, "react");
        stage.pass(LEASE);
        let other = stage.give_again(Orchestrator, 1, "r0 0");
        stage.finish(other);
        let record = stage.record("r0", 0).unwrap();
        assert_eq!(ended(&record), Termination::BudgetExhausted, "{engine:?}");
        stage.finish(slow);
        assert_eq!(stage.count("model calls"), 1, "the slow one's");
        stage.end();
    }
}

#[test]
fn an_attempt_that_meets_anothers_debit_leaves_the_step_to_it() {
    for engine in ENGINES {
        let scenario = Scenario::new().of("r0", Kind::Reflexion(vec![Use::Read]));
        let mut stage = Stage::asked(scenario, engine);
        let slow = stage.give(Orchestrator, 0, "r0 0");
        // Its action is debited and made, its critique is not.
        stage.run_to(slow, Before, Create, "debits/2");
        stage.pass(LEASE);
        let other = stage.give_again(Orchestrator, 1, "r0 0");
        stage.run_to(other, After, Chat, "react");
        let asked = stage.count("model calls");
        stage.finish(slow);
        assert_eq!(
            stage.count("model calls"),
            asked,
            "{engine:?}: it asks nothing more"
        );
        stage.finish(other);
        let record = stage.record("r0", 0).unwrap();
        assert_eq!(record.wasted.model_calls, 1, "what the slow one asked");
        stage.end();
    }
}

#[test]
fn an_attempt_that_gives_up_says_what_it_spent() {
    for engine in ENGINES {
        let scenario = Scenario::new().of("r0", Kind::Reflexion(vec![Use::Read]));
        let mut stage = Stage::asked(scenario, engine);
        stage.fail_next(Chat, "critique", agentfleet_tests::effect::Fault::Refused);
        stage.work(Orchestrator, "r0 0");
        assert!(stage.record("r0", 0).is_none());
        stage.end();
        let record = stage.record("r0", 0).unwrap();
        let exactly = Spent {
            tokens: 12,
            model_calls: 1,
            unpriced_calls: 1,
            ..Spent::default()
        };
        assert_eq!(
            record.wasted,
            Spent {
                tool_calls: record.wasted.tool_calls,
                ..exactly
            }
        );
    }
}

#[test]
fn a_quorum_is_more_than_half_and_ends_the_others_at_once() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 3)
            .trouble("r0.2", Trouble::Stuck)
            .with(|scenario| scenario.policy = JoinPolicy::Quorum);
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        let stuck = stage.give(Orchestrator, 1, "r0.2 0");
        for _ in 0..100 {
            stage.sim.step(stuck);
        }
        stage.run_to_answer("r0", 0);
        assert!(
            stage.verdict("r0", 0).is_none(),
            "one of three is no quorum"
        );
        stage.run_to_answer("r0", 1);
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(
            (verdict.cause, verdict.missing.len()),
            (JoinCause::Enough, 1)
        );
        let ended = stage.record("r0.2", 0).expect("its last record");
        assert_eq!(ended.outcome, OutcomeKind::Cancelled);
        // The one at work learns of it when its lease is kept.
        stage.keep_lease(stuck);
        let done = (0..1_000).any(|_| stage.sim.step(stuck) == Stepped::Done);
        assert!(done, "{engine:?}: the call is dropped");
        stage.end();
    }
}

#[test]
fn a_join_by_deadline_misses_nobody() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 2)
            .trouble("r0.1", Trouble::Stuck)
            .with(|scenario| scenario.policy = JoinPolicy::Deadline);
        let mut stage = Stage::asked(scenario, engine);
        stage.end();
        let last = stage.record("r0", 1).unwrap();
        let Activity::Concluded(end) = &last.activity else {
            panic!("{:?}", last.activity)
        };
        assert!(!end.partial, "who is late is not missed");
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(
            (verdict.cause, verdict.missing.len()),
            (JoinCause::Deadline, 1)
        );
    }
}

#[test]
fn cancelling_a_root_leaves_a_last_record_at_every_node_of_its_tree() {
    for engine in ENGINES {
        let children = |name: &str| (0..2).map(|n| format!("{name}.{n}")).collect::<Vec<_>>();
        let scenario = Scenario::new()
            .supervisor("r0", 2)
            .work("r0.0", Kind::Supervisor(vec![children("r0.0")]))
            .work("r0.0.0", Kind::default())
            .work("r0.0.1", Kind::default());
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        stage.work(Orchestrator, "r0.0 0");
        // A subagent at work, its call made.
        let at_work = stage.give(Orchestrator, 0, "r0.1 0");
        stage.run_to(at_work, After, Chat, "react");
        let root = stage.session("r0");
        let cancel = stage.cancel(&root);
        stage.finish(cancel);
        for (name, step) in [
            ("r0", 1),
            ("r0.0", 1),
            ("r0.0.0", 0),
            ("r0.0.1", 0),
            ("r0.1", 0),
        ] {
            let record = stage.record(name, step).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(record.outcome, OutcomeKind::Cancelled, "{name}");
        }
        let asked = stage.count("model calls");
        stage.end();
        assert_eq!(stage.count("model calls"), asked, "nothing begins any more");
    }
}

#[test]
fn cancelling_one_subagent_ends_it_and_all_below_and_its_parent_goes_on() {
    for engine in ENGINES {
        let children = |name: &str| (0..2).map(|n| format!("{name}.{n}")).collect::<Vec<_>>();
        let scenario = Scenario::new()
            .supervisor("r0", 2)
            .work("r0.0", Kind::Supervisor(vec![children("r0.0")]))
            .work("r0.0.0", Kind::default())
            .work("r0.0.1", Kind::default());
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        stage.work(Orchestrator, "r0.0 0");
        let node = stage.session("r0.0");
        let cancel = stage.cancel(&node);
        stage.finish(cancel);
        for name in ["r0.0.0", "r0.0.1"] {
            let record = stage.record(name, 0).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(record.outcome, OutcomeKind::Cancelled, "{name}");
        }
        stage.end();
        let verdict = stage.verdict("r0", 0).unwrap();
        let statuses: Vec<_> = verdict.members.iter().map(|member| member.status).collect();
        let expected = [CompletionStatus::Cancelled, CompletionStatus::Answered];
        assert_eq!(statuses, expected, "{engine:?}");
        let last = stage.record("r0", 1).unwrap();
        assert_eq!(last.outcome, OutcomeKind::Answer);
    }
}

#[test]
fn cancelling_a_subagent_in_its_first_step_ends_it_and_its_parent_goes_on() {
    for engine in ENGINES {
        for at_work in [false, true] {
            let mut stage = Stage::asked(Scenario::new().supervisor("r0", 2), engine);
            stage.work(Orchestrator, "r0 0");
            let slow = at_work.then(|| {
                let slow = stage.give(Orchestrator, 0, "r0.0 0");
                stage.run_to(slow, After, Chat, "react");
                slow
            });
            let cancel = stage.cancel_child("r0", 0, 0);
            stage.finish(cancel);
            if let Some(slow) = slow {
                // It finds that it was ended over its head.
                stage.finish(slow);
            }
            let record = stage.record("r0.0", 0).expect("its last record");
            assert_eq!(record.outcome, OutcomeKind::Cancelled, "{engine:?}");
            let parent = record.parent.as_ref().expect("whose subagent it was");
            assert_eq!((parent.step, parent.index), (0, 0));
            stage.end();
            let verdict = stage.verdict("r0", 0).unwrap();
            let statuses: Vec<_> = verdict.members.iter().map(|member| member.status).collect();
            let expected = [CompletionStatus::Cancelled, CompletionStatus::Answered];
            assert_eq!(statuses, expected, "{engine:?}");
            let last = stage.record("r0", 1).unwrap();
            assert_eq!(last.outcome, OutcomeKind::Answer);
        }
    }
}

#[test]
fn a_subagent_that_nobody_started_is_not_ended() {
    let mut stage = Stage::asked(Scenario::new().supervisor("r0", 2), Engine::EMBEDDED);
    stage.work(Orchestrator, "r0 0");
    let cancel = stage.cancel_child("r0", 0, 7);
    stage.finish(cancel);
    stage.end();
    let last = stage.record("r0", 1).unwrap();
    assert_eq!(last.outcome, OutcomeKind::Answer);
}

#[test]
fn a_cancel_and_the_last_completion_both_come_and_one_of_them_ends_the_run() {
    for engine in ENGINES {
        let mut stage = Stage::asked(Scenario::new().supervisor("r0", 2), engine);
        stage.work(Orchestrator, "r0 0");
        stage.run_to_answer("r0", 0);
        stage.work(Orchestrator, "r0.1 0");
        let root = stage.session("r0");
        let cancel = stage.cancel(&root);
        // Half way: the tree is closed, the last record is not there.
        stage.run_to(cancel, After, Create, "closed");
        let last = stage.give(FanIn, 0, "r0.1 0 completion");
        stage.finish(last);
        stage.work(Orchestrator, "r0 1");
        stage.finish(cancel);
        let record = stage.record("r0", 1).unwrap();
        assert_eq!(record.outcome, OutcomeKind::Cancelled, "{engine:?}");
        stage.end();
    }
}
