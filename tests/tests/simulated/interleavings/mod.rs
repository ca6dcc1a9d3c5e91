//! The interleavings that break naive versions of the protocol, each as one forced schedule.
//!
//! The numbers are those of `docs/interleavings.md`, which also says where those are tested of which nothing
//! is in the code that is driven here.

mod apart;
mod archived;
mod fences;
mod listed;

use agentfleet_aggregator::PATIENCE;
use agentfleet_core::deadline::HOP;
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::{
    Activity, Call as Told, CompletionStatus, JoinCause, OutcomeKind, Termination,
};
use agentfleet_schema::vocabulary::{prov, tg};
use agentfleet_schema::{keys, uris};
use agentfleet_tests::directed::Stage;
use agentfleet_tests::effect::Verb::{Call, Chat, Commit, Create, Insert, Publish, Query};
use agentfleet_tests::effect::When::{After, Before, During};
use agentfleet_tests::effect::{Fault, Verb, When};
use agentfleet_tests::queues::Role::{Deadlines, FanIn, Orchestrator, Undertaker, Writer};
use agentfleet_tests::queues::TaskId;
use agentfleet_tests::scenario::{Identity, Kind, Scenario, Trouble, Use};
use agentfleet_tests::sim::Engine;
use std::time::Duration;

const ENGINES: [Engine; 3] = [Engine::DISTRIBUTED, Engine::MIXED, Engine::EMBEDDED];
/// Those whose commit is a sequence that can be cut.
const SEQUENTIAL: [Engine; 2] = [Engine::DISTRIBUTED, Engine::MIXED];

const JOIN: Duration = Duration::from_secs(60);

/// A supervisor that has fanned out to this many subagents.
fn fanned_out(children: usize, engine: Engine) -> Stage {
    let mut stage = Stage::asked(Scenario::new().supervisor("r0", children), engine);
    stage.work(Orchestrator, "r0 0");
    stage
}

// 1
#[test]
fn expected_count_not_yet_in_the_graph_still_fires() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        // The graph-writer has no turn until the run is over.
        stage.run(&[Orchestrator, FanIn]);
        let fan_out = stage.verdict("r0", 0).expect("a verdict").correlation;
        let node = uris::fan_out(&stage.session("r0"), &fan_out);
        assert!(stage.objects(&node, tg::EXPECTED_SIBLINGS).is_empty());
        assert_eq!(stage.record("r0", 1).unwrap().outcome, OutcomeKind::Answer);
        stage.end();
        assert_eq!(stage.objects(&node, tg::EXPECTED_SIBLINGS), ["2"]);
    }
}

// 2
#[test]
fn a_completion_that_was_written_by_a_dead_aggregator_still_fires() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Orchestrator]);
        stage.work(FanIn, "r0.0 0 completion");
        let last = stage.give(FanIn, 0, "r0.1 0 completion");
        stage.run_to(last, After, Insert, "");
        stage.crash(last);
        assert!(stage.verdict("r0", 0).is_none());
        stage.work(FanIn, "r0.1 0 completion");
        assert_eq!(
            stage.verdict("r0", 0).expect("a verdict").cause,
            JoinCause::Complete
        );
        stage.end();
    }
}

// 3
#[test]
fn last_sibling_triggers_exactly_one_synthesis() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Orchestrator]);
        let first = stage.give(FanIn, 0, "r0.0 0 completion");
        stage.run_to(first, After, Insert, "");
        let second = stage.give(FanIn, 1, "r0.1 0 completion");
        stage.run_to(second, After, Query, "");
        stage.run_to(first, After, Query, "");
        // Both have seen both. The first synthesis is over before the second aggregator goes on.
        stage.finish(first);
        stage.run(&[Orchestrator]);
        assert_eq!(stage.record("r0", 1).unwrap().outcome, OutcomeKind::Answer);
        stage.finish(second);
        stage.end();
        assert_eq!(stage.count("syntheses"), 1);
        assert!(stage.record("r0", 2).is_none());
    }
}

// 3
#[test]
fn eight_aggregations_at_once_make_one_verdict() {
    for engine in ENGINES {
        let mut stage = fanned_out(8, engine);
        stage.run(&[Orchestrator]);
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let task = stage.give(FanIn, n % 2, &format!("r0.{n} 0 completion"));
                stage.run_to(task, After, Insert, "");
                task
            })
            .collect();
        for task in &tasks {
            stage.run_to(*task, After, Query, "");
        }
        for task in tasks {
            stage.finish(task);
        }
        stage.end();
        assert_eq!(stage.count("verdicts: complete"), 1);
        assert_eq!(stage.count("syntheses"), 1);
    }
}

// 3
#[test]
fn whoever_loses_the_verdict_publishes_it_if_the_winner_dies() {
    for engine in SEQUENTIAL {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Orchestrator]);
        stage.work(FanIn, "r0.0 0 completion");
        // The same message in two hands, as after a lost lease.
        let winner = stage.give(FanIn, 0, "r0.1 0 completion");
        stage.run_to(winner, After, Query, "");
        let loser = stage.give_again(FanIn, 1, "r0.1 0 completion");
        stage.run_to(loser, After, Query, "");
        stage.run_to(winner, After, Create, "fanin");
        stage.finish(loser);
        stage.crash(winner);
        stage.run_all();
        assert!(
            stage.record("r0", 1).is_some(),
            "the synthesis waits for a deadline\n{}",
            stage.story()
        );
        stage.end();
    }
}

/// Lets a deadline count the completions and look for ends in the records of siblings, up to where it
/// asks for their sources: what ends now, it does not see.
fn past_the_records(stage: &mut Stage, deadline: u64) {
    stage.run_to(deadline, After, Query, "");
    stage.run_to(deadline, Before, Query, "");
}

/// A fan-out to two, of which the deadline has seen one answer and an aggregator both.
fn deadline_beside_the_last(engine: Engine) -> (Stage, u64, u64) {
    let mut stage = fanned_out(2, engine);
    stage.work(Orchestrator, "r0.0 0");
    stage.work(FanIn, "r0.0 0 completion");
    let child = stage.give(Orchestrator, 0, "r0.1 0");
    stage.run_to(child, Before, Chat, "");
    stage.pass(JOIN);
    let deadline = stage.give(Deadlines, 0, "r0 0 join");
    past_the_records(&mut stage, deadline);
    stage.finish(child);
    let last = stage.give(FanIn, 0, "r0.1 0 completion");
    stage.run_to(last, After, Query, "");
    (stage, deadline, last)
}

// 4
#[test]
fn a_deadline_beside_the_last_completion_makes_one_verdict() {
    for engine in ENGINES {
        for deadline_first in [true, false] {
            let (mut stage, deadline, last) = deadline_beside_the_last(engine);
            let order = if deadline_first {
                [deadline, last]
            } else {
                [last, deadline]
            };
            for task in order {
                stage.finish(task);
            }
            let verdict = stage.verdict("r0", 0).expect("a verdict");
            let members = if deadline_first { 1 } else { 2 };
            assert_eq!(verdict.members.len(), members);
            stage.end();
            // The synthesis reads the verdict, whatever the graph says by then.
            let text = stage.answer("r0").unwrap();
            assert!(text.contains(&format!("from {members} results")), "{text}");
            assert_eq!(stage.count("syntheses"), 1);
        }
    }
}

// 5, 20
#[test]
fn a_result_that_slips_in_beside_the_verdict_is_marked_late() {
    for engine in ENGINES {
        let mut stage = fanned_out(3, engine);
        stage.work(Orchestrator, "r0.0 0");
        stage.work(FanIn, "r0.0 0 completion");
        let child = stage.give(Orchestrator, 0, "r0.1 0");
        stage.run_to(child, Before, Chat, "");
        stage.pass(JOIN);
        let deadline = stage.give(Deadlines, 0, "r0 0 join");
        past_the_records(&mut stage, deadline);
        stage.finish(child);
        // An aggregator whose clock is behind finds neither a verdict nor a reason for one.
        let behind = stage.worker(FanIn, 1);
        stage.sim.with(|world| world.skews.insert(behind, -2_000));
        let slips_in = stage.give(FanIn, 1, "r0.1 0 completion");
        stage.finish(slips_in);
        assert!(stage.verdict("r0", 0).is_none());
        stage.finish(deadline);
        let verdict = stage.verdict("r0", 0).expect("a verdict");
        assert_eq!(verdict.missing.len(), 2);
        let completion = uris::completion(&stage.session("r0.1"));
        assert_eq!(stage.objects(&completion, tg::LATE), ["true"]);
        stage.end();
        let completion = uris::completion(&stage.session("r0.2"));
        assert_eq!(stage.objects(&completion, tg::LATE), ["true"]);
    }
}

// 7
#[test]
fn a_dead_letter_is_an_outcome() {
    for engine in [Engine::MIXED, Engine::EMBEDDED] {
        let scenario = Scenario::new()
            .supervisor("r0", 2)
            .trouble("r0.1", Trouble::Deadly);
        let mut stage = Stage::asked(scenario, engine);
        stage.run_all();
        let verdict = stage.verdict("r0", 0).expect("a verdict");
        assert_eq!(verdict.members[1].status, CompletionStatus::DeadLettered);
        assert_eq!(stage.count("parked"), 1);
        stage.end();
        assert!(stage.answer("r0").unwrap().contains("dead-lettered"));
    }
}

// 7
#[test]
fn a_dead_letter_that_nobody_can_read_is_an_outcome() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.damage(Orchestrator, "r0.1 0");
        stage.run_all();
        let verdict = stage.verdict("r0", 0).expect("a verdict");
        assert_eq!(verdict.members[1].status, CompletionStatus::DeadLettered);
        stage.end();
    }
}

// 7
#[test]
fn a_root_that_is_a_dead_letter_ends_its_dialog() {
    for identity in [Identity::Session, Identity::Id] {
        let scenario = Scenario::new()
            .react("r0", &[])
            .trouble("r0", Trouble::Deadly)
            .with(|scenario| scenario.roots[0].identity = identity);
        let mut stage = Stage::asked(scenario, Engine::MIXED);
        stage.run_all();
        assert_eq!(stage.record("r0", 0).unwrap().outcome, OutcomeKind::Fail);
        stage.end();
    }
}

// 7, 21
#[test]
fn a_dead_letter_of_a_root_that_names_nobody_ends_its_dialog() {
    let scenario = Scenario::new()
        .react("r0", &[])
        .trouble("r0", Trouble::Deadly)
        .with(|scenario| scenario.roots[0].identity = Identity::Nothing);
    let mut stage = Stage::asked(scenario, Engine::MIXED);
    stage.run_all();
    stage.end();
}

/// A run whose first message lies among the dead letters, since nothing shows who sent it, and that message.
fn refused(engine: Engine) -> Stage {
    let scenario = Scenario::new().react("r0", &[Use::Read]);
    let mut stage = Stage::asked(scenario, engine);
    stage.keep(Orchestrator, "r0 0");
    stage.refuse("r0 0");
    stage.run_all();
    assert_eq!(stage.count("parked"), 1);
    assert!(stage.record("r0", 0).is_none(), "it may be sent again");
    stage
}

// 7
#[test]
fn a_run_whose_first_message_was_refused_ends_with_its_cancel_and_stays_ended() {
    for engine in ENGINES {
        let mut stage = refused(engine);
        let root = stage.session("r0");
        let cancel = stage.cancel(&root);
        stage.finish(cancel);
        let record = stage.record("r0", 0).expect("an end");
        assert_eq!(record.outcome, OutcomeKind::Cancelled);
        stage.bring_back();
        stage.end();
        assert_eq!(stage.count("model calls"), 0);
        assert_eq!(stage.record("r0", 0), Some(record));
        assert!(stage.record("r0", 1).is_none());
    }
}

// 7
#[test]
fn a_run_whose_first_message_was_refused_ends_at_its_deadline() {
    for engine in ENGINES {
        let mut stage = refused(engine);
        let began = stage.sim.with(|world| world.now);
        let most = stage.sim.options().limits.run_timeout_ms as i64;
        stage.end();
        let record = stage.record("r0", 0).expect("an end");
        let end = record.concluded().expect("an end");
        assert_eq!(end.termination, Termination::Timeout);
        let took = record.committed_at - began;
        assert!((most..most + 60_000).contains(&took), "{took}");
    }
}

// 7
#[test]
fn a_run_that_begins_after_all_has_a_deadline_of_its_own() {
    for engine in ENGINES {
        let mut stage = refused(engine);
        let half = Duration::from_millis(stage.sim.options().limits.run_timeout_ms / 2);
        stage.pass(half);
        stage.bring_back();
        stage.work(Orchestrator, "r0 0");
        // The hops of the deadline that its refusal set.
        let hop = Duration::from_millis(HOP.unsigned_abs());
        while stage.has(Deadlines, "r0 0 unbegun") {
            stage.pass(hop);
            stage.run(&[Deadlines]);
        }
        assert!(stage.record("r0", 1).is_none(), "it goes on");
        stage.end();
    }
}

// 7
#[test]
fn the_undertaker_and_a_worker_end_a_step_once() {
    for undertaker_first in [true, false] {
        let mut stage = fanned_out(2, Engine::MIXED);
        // From there on it is decided how the step ends.
        let worker = stage.give(Orchestrator, 0, "r0.1 0");
        stage.run_to(worker, Before, Create, "intent");
        // The broker gives up on it while it is being worked.
        stage.bury(Orchestrator, "r0.1 0");
        let undertaker = stage.give(Undertaker, 0, "r0.1 0");
        stage.run_to(undertaker, Before, Create, "intent");
        let order = if undertaker_first {
            [undertaker, worker]
        } else {
            [worker, undertaker]
        };
        for task in order {
            stage.finish(task);
        }
        stage.end();
        let expected = if undertaker_first {
            CompletionStatus::DeadLettered
        } else {
            CompletionStatus::Answered
        };
        assert_eq!(stage.verdict("r0", 0).unwrap().members[1].status, expected);
    }
}

// 8
#[test]
fn a_step_that_kills_its_process_every_time_ends_as_failed() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 2)
            .trouble("r0.1", Trouble::Poison)
            .with(|scenario| scenario.subagent_timeout_ms = 300_000);
        let mut stage = Stage::asked(scenario, engine);
        stage.end();
        let verdict = stage.verdict("r0", 0).expect("a verdict");
        assert_eq!(verdict.cause, JoinCause::Complete, "it needs no deadline");
        assert_eq!(verdict.members[1].status, CompletionStatus::Error);
        assert_eq!(
            stage.record("r0.1", 0).unwrap().attempt,
            4,
            "one more than may try"
        );
    }
}

// 9
#[test]
fn after_the_commit_a_delivery_is_only_ever_retried() {
    for engine in SEQUENTIAL {
        let mut stage = Stage::asked(Scenario::new().react("r0", &[]), engine);
        for _ in 0..30 {
            stage.fail_next(Publish, "agent-response", Fault::Refused);
        }
        stage.end();
        assert_eq!(stage.record("r0", 0).unwrap().outcome, OutcomeKind::Answer);
    }
}

// 9
#[test]
fn a_step_too_large_to_publish_fails_before_its_commit() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 2)
            .with(|s| s.padding = 5 << 20);
        let mut stage = Stage::asked(scenario, engine);
        stage.end();
        let record = stage.record("r0", 0).unwrap();
        assert_eq!(record.outcome, OutcomeKind::Fail);
        assert!(
            stage.answer("r0").unwrap().contains("the limit is"),
            "{:?}",
            stage.answer("r0")
        );
    }
}

/// A supervisor of two rounds.
fn two_rounds() -> Scenario {
    let names = |round: usize| (0..2).map(|n| format!("r0.{}", round * 10 + n)).collect();
    Scenario::new()
        .supervisor("r0", 2)
        .work("r0", Kind::Supervisor(vec![names(0), names(1)]))
        .work("r0.10", Kind::React(vec![Use::Read]))
        .work("r0.11", Kind::React(vec![]))
}

// 10
#[test]
fn duplicates_do_not_multiply() {
    for engine in SEQUENTIAL {
        let published = |doubled: bool| {
            let mut stage = Stage::new(two_rounds(), engine);
            if doubled {
                for _ in 0..500 {
                    stage.fail_next(Publish, "", Fault::Doubled);
                }
            }
            stage.ask(0);
            stage.end();
            assert_eq!(stage.count("syntheses"), 2);
            stage.count("publish calls")
        };
        assert_eq!(
            published(true),
            published(false),
            "a duplicate publishes nothing"
        );
    }
}

/// A worker that died after a call of its first step had its result; whoever comes next wants another one.
fn crashed_after_its_call(engine: Engine) -> Stage {
    let scenario = Scenario::new()
        .react("r0", &[Use::Write])
        .with(|s| s.fickle = true);
    let mut stage = Stage::asked(scenario, engine);
    let first = stage.give(Orchestrator, 0, "r0 0");
    stage.run_to(first, After, Create, "result");
    stage.crash(first);
    stage
}

// 11
#[test]
fn a_call_that_was_made_is_adopted_with_its_result() {
    for engine in ENGINES {
        let mut stage = crashed_after_its_call(engine);
        stage.end();
        // The second attempt would have written something else.
        let record = stage.record("r0", 0).unwrap();
        assert_eq!(stage.starts(), 1);
        let told = serde_json::to_string(&record.activity).unwrap();
        assert!(
            told.contains("\"item\":\"r0-0\"") && told.contains("write result 1"),
            "{told}"
        );
    }
}

// 11
#[test]
fn a_call_whose_worker_died_is_unknown_and_an_equal_one_needs_a_person() {
    for engine in ENGINES {
        let scenario = Scenario::new().react("r0", &[Use::Write, Use::Write]);
        let mut stage = Stage::asked(scenario, engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, During, Call, "write");
        stage.crash(first);
        stage.end();
        assert_eq!(stage.starts(), 1, "{}", stage.story());
        assert_eq!(stage.count("unknown calls"), 1);
        // It waited for a person, and nobody came.
        assert_eq!(stage.record("r0", 1).unwrap().outcome, OutcomeKind::Pause);
        assert_eq!(stage.count("expired approvals"), 1);
        assert_eq!(stage.record("r0", 3).unwrap().outcome, OutcomeKind::Answer);
    }
}

// 11
#[test]
fn what_is_unknown_is_the_call_that_was_made_and_not_the_one_that_was_dropped() {
    for engine in ENGINES {
        // The second attempt wants another call; the step after it wants the first one again.
        let scenario = Scenario::new()
            .react("r0", &[Use::Write, Use::Write])
            .with(|scenario| scenario.fickle = true);
        let mut stage = Stage::asked(scenario, engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, During, Call, "write");
        stage.crash(first);
        stage.end();
        assert_eq!(stage.starts(), 1, "{}", stage.story());
    }
}

// 11
#[test]
fn a_call_is_adopted_under_the_config_that_it_was_chosen_under() {
    for engine in ENGINES {
        let mut stage = crashed_after_its_call(engine);
        // Nothing of the run is recorded, so nothing else pins it.
        stage.change_config();
        stage.end();
        let record = stage.record("r0", 0).unwrap();
        assert_eq!((stage.starts(), record.config_version), (1, 1));
    }
}

// 11
#[test]
fn a_second_worker_waits_while_the_first_still_calls() {
    let scenario = Scenario::new()
        .react("r0", &[Use::Write])
        .with(|s| s.fickle = true);
    let mut stage = Stage::asked(scenario, Engine::MIXED);
    let first = stage.give(Orchestrator, 0, "r0 0");
    stage.run_to(first, During, Call, "write");
    let second = stage.give_again(Orchestrator, 1, "r0 0");
    stage.finish(second);
    assert!(
        stage.record("r0", 0).is_none(),
        "it neither calls nor concludes"
    );
    stage.finish(first);
    stage.end();
    assert_eq!(stage.starts(), 1);
    assert_eq!(stage.count("unknown calls"), 0);
}

// 11
#[test]
fn a_worker_that_was_given_up_learns_it_when_its_call_returns() {
    let scenario = Scenario::new().react("r0", &[Use::Write]);
    let mut stage = Stage::asked(scenario, Engine::MIXED);
    let first = stage.give(Orchestrator, 0, "r0 0");
    stage.run_to(first, During, Call, "write");
    stage.pass(Duration::from_secs(23));
    let second = stage.give_again(Orchestrator, 1, "r0 0");
    stage.finish(second);
    let committed = stage.record("r0", 0).expect("the second commits");
    stage.finish(first);
    stage.end();
    assert_eq!(stage.record("r0", 0).unwrap(), committed);
    assert_eq!(stage.starts(), 1);
    assert_eq!(stage.count("unknown calls"), 1);
}

// 11
#[test]
fn a_call_that_the_next_attempt_does_not_want_is_told_all_the_same() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .react("r0", &[Use::Write])
            .with(|s| s.fickle = true);
        let mut stage = Stage::asked(scenario, engine);
        // The third attempt of a fickle model answers at once.
        stage
            .sim
            .with(|world| world.asked.insert("r0 agent-react 0 0".into(), 0));
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, After, Create, "result");
        stage.crash(first);
        stage
            .sim
            .with(|world| world.asked.insert("r0 agent-react 0 0".into(), 2));
        stage.end();
        let record = stage.record("r0", 0).unwrap();
        let told = serde_json::to_string(&record.calls).unwrap();
        assert!(
            told.contains("write result 1"),
            "a call was made and no record tells it: {told}"
        );
    }
}

// 11
#[test]
fn a_fence_of_a_step_that_was_committed_is_not_that_of_a_dead_attempt() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .react("r0", &[Use::Write])
            .with(|s| s.fickle = true);
        let mut stage = Stage::asked(scenario, engine);
        let slow = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(slow, Before, Chat, "");
        stage.pass(Duration::from_secs(60));
        // It answers at once, and nothing is to be called beside that.
        next_try(&mut stage, "r0 agent-react 0 0", 2);
        let second = stage.give_again(Orchestrator, 1, "r0 0");
        stage.finish(second);
        assert_eq!(
            stage.record("r0", 0).unwrap().outcome,
            OutcomeKind::Answer,
            "{}",
            stage.story()
        );
        // The slow one wants to call something, long after.
        stage.pass(Duration::from_secs(60));
        next_try(&mut stage, "r0 agent-react 0 0", 0);
        stage.finish(slow);
        stage.end();
        assert_eq!(stage.starts(), 0, "{}", stage.story());
    }
}

/// The model is asked the same for the nth time from now on: a fickle one answers otherwise.
fn next_try(stage: &mut Stage, asked: &str, n: u32) {
    let asked = asked.to_owned();
    stage.sim.with(|world| world.asked.insert(asked, n));
}

/// A fickle step with a call on offer: an attempt that answers at once dies before its record is in its
/// place, and before the one after it asks its model, which wants to call. `before` comes before all of
/// the step.
fn ended_behind(engine: Engine, before: impl FnOnce(&mut Stage)) -> (Stage, TaskId) {
    let scenario = Scenario::new()
        .react("r0", &[Use::Read, Use::Write])
        .with(|s| s.fickle = true);
    let mut stage = Stage::asked(scenario, engine);
    stage.work(Orchestrator, "r0 0");
    before(&mut stage);
    let other = stage.give(Orchestrator, 0, "r0 1");
    stage.run_to(other, Before, Create, "intent");
    // Past its lease.
    stage.pass(Duration::from_secs(60));
    next_try(&mut stage, "r0 agent-react 1 0", 2);
    let ends = stage.give_again(Orchestrator, 1, "r0 1");
    stage.run_to(ends, Before, Create, "outcome");
    stage.crash(ends);
    assert!(stage.record("r0", 1).is_none(), "{}", stage.story());
    (stage, other)
}

fn ended_behind_a_fence(engine: Engine) -> (Stage, TaskId) {
    ended_behind(engine, |_| ())
}

// 11
#[test]
fn who_comes_after_a_fence_puts_its_record_in_place_and_waits_for_nobody() {
    for engine in SEQUENTIAL {
        let (mut stage, other) = ended_behind_a_fence(engine);
        stage.crash(other);
        stage.run(&[Orchestrator]);
        let record = stage.record("r0", 1).expect("nobody is waited for");
        assert_eq!(record.outcome, OutcomeKind::Answer, "{}", stage.story());
        stage.end();
        assert_eq!(stage.starts(), 0, "{}", stage.story());
    }
}

// 11
#[test]
fn who_meets_a_fence_before_its_call_puts_its_record_in_place() {
    for engine in SEQUENTIAL {
        let (mut stage, other) = ended_behind_a_fence(engine);
        stage.finish(other);
        let record = stage.record("r0", 1).expect("nobody is waited for");
        assert_eq!(record.outcome, OutcomeKind::Answer, "{}", stage.story());
        stage.end();
        assert_eq!(stage.starts(), 0, "{}", stage.story());
    }
}

// 14
#[test]
fn a_cancel_puts_the_record_of_a_fence_in_place() {
    for engine in SEQUENTIAL {
        let (mut stage, other) = ended_behind_a_fence(engine);
        let cancel = stage.cancel(&stage.session("r0"));
        stage.finish(cancel);
        let record = stage.record("r0", 1).expect("nobody is waited for");
        assert_eq!(record.outcome, OutcomeKind::Answer, "{}", stage.story());
        stage.finish(other);
        stage.end();
        assert_eq!(stage.starts(), 0, "{}", stage.story());
    }
}

// 11
#[test]
fn a_call_whose_process_is_gone_is_settled_at_once_on_one_machine() {
    let scenario = Scenario::new().react("r0", &[Use::Write]);
    let mut stage = Stage::asked(scenario, Engine::EMBEDDED);
    let first = stage.give(Orchestrator, 0, "r0 0");
    stage.run_to(first, During, Call, "write");
    stage.crash(first);
    stage.run(&[Orchestrator]);
    assert!(stage.record("r0", 0).is_some(), "{}", stage.story());
    stage.end();
    assert_eq!(stage.starts(), 1);
    assert_eq!(stage.count("unknown calls"), 1);
}

// 12
#[test]
fn an_ambiguous_create_is_settled_by_reading() {
    let scenario = || {
        Scenario::new()
            .supervisor("r0", 2)
            .work("r0.1", Kind::React(vec![Use::Write]))
    };
    let keys = [
        "attempts/1",
        "fanout",
        "outcome",
        "published",
        "fanin",
        "intent",
        "result",
    ];
    for engine in SEQUENTIAL {
        for fault in [Fault::ReplyLost, Fault::FalseExists, Fault::OwnExists] {
            for key in keys {
                let mut stage = Stage::new(scenario(), engine);
                stage.fail_next(Create, key, fault);
                stage.ask(0);
                stage.end();
                let verdict = stage.verdict("r0", 0).expect("a verdict");
                let how = format!("{fault:?} of `{key}`\n{}", stage.story());
                assert_eq!(verdict.cause, JoinCause::Complete, "{how}");
                assert!(stage.starts() <= 1, "{how}");
                // A reply that says `exists` is settled on the spot: nothing becomes unknown by it.
                if fault != Fault::ReplyLost {
                    assert_eq!(stage.count("unknown calls"), 0, "{how}");
                }
            }
        }
    }
}

// 12
#[test]
fn a_commit_that_was_stored_and_not_answered_is_published_by_who_comes_next() {
    for engine in ENGINES {
        let asked = |is_lost: bool| {
            let mut stage = Stage::asked(Scenario::new().react("r0", &[Use::Read]), engine);
            if is_lost {
                let verb = if engine.atomic { Commit } else { Create };
                stage.fail_next(verb, "outcome", Fault::ReplyLost);
            }
            stage.work(Orchestrator, "r0 0");
            let nonce = stage.record("r0", 0).expect("it is stored").nonce.clone();
            stage.end();
            assert_eq!(stage.record("r0", 0).unwrap().nonce, nonce);
            assert_eq!(stage.ends("r0"), 1);
            stage.count("model calls")
        };
        assert_eq!(asked(true), asked(false), "{engine:?}");
    }
}

// 34
#[test]
fn another_attempts_fan_out_is_not_taken_for_the_committed_one() {
    for engine in SEQUENTIAL {
        let scenario = Scenario::new()
            .supervisor("r0", 3)
            .with(|s| s.fickle = true);
        let mut stage = Stage::asked(scenario, engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        // Its documents and its fan-out are there, its record is not.
        stage.run_to(first, Before, Create, "outcome");
        stage.crash(first);
        // The second attempt finds other goals, and one less.
        stage.end();
        assert_eq!(stage.verdict("r0", 0).unwrap().cause, JoinCause::Complete);
    }
}

// 13
#[test]
fn chunks_of_a_dead_attempt_are_dropped() {
    for engine in ENGINES {
        let scenario = Scenario::new().react("r0", &[]).with(|scenario| {
            scenario.fickle = true;
            scenario.roots[0].streaming = true;
        });
        let mut stage = Stage::asked(scenario, engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, After, Publish, "agent-response");
        stage.crash(first);
        stage.end();
        assert!(stage.answer("r0").unwrap().ends_with("wording 1"));
    }
}

// 13
#[test]
fn chunks_of_a_loser_do_not_reach_the_answer() {
    for engine in ENGINES {
        let scenario = Scenario::new().react("r0", &[]).with(|scenario| {
            scenario.fickle = true;
            scenario.roots[0].streaming = true;
        });
        let mut stage = Stage::asked(scenario, engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, After, Publish, "agent-response");
        // Past the lease of the first attempt.
        stage.pass(Duration::from_secs(31));
        let second = stage.give_again(Orchestrator, 1, "r0 0");
        stage.run_to(second, After, Publish, "agent-response");
        stage.finish(second);
        stage.finish(first);
        stage.end();
        assert!(stage.answer("r0").unwrap().ends_with("wording 1"));
    }
}

// 14
#[test]
fn a_cancelled_run_is_not_answered() {
    for engine in ENGINES {
        let mut stage = Stage::asked(Scenario::new().react("r0", &[Use::Read]), engine);
        stage.work(Orchestrator, "r0 0");
        let worker = stage.give(Orchestrator, 0, "r0 1");
        stage.run_to(worker, After, Chat, "");
        let cancel = stage.cancel(&stage.session("r0"));
        stage.finish(cancel);
        assert_eq!(
            stage.record("r0", 1).unwrap().outcome,
            OutcomeKind::Cancelled
        );
        stage.finish(worker);
        stage.end();
        assert_eq!(stage.count("answers"), 0);
    }
}

/// A run whose second step is worked, up to some point of its side-effecting call; with its worker, and
/// with somebody who cancels it and has not begun.
fn beside_a_cancel(engine: Engine, when: When, verb: Verb, what: &str) -> (Stage, TaskId, TaskId) {
    let scenario = Scenario::new().react("r0", &[Use::Read, Use::Write]);
    let mut stage = Stage::asked(scenario, engine);
    stage.work(Orchestrator, "r0 0");
    let worker = stage.give(Orchestrator, 0, "r0 1");
    stage.run_to(worker, when, verb, what);
    let cancel = stage.cancel(&stage.session("r0"));
    (stage, worker, cancel)
}

// 14
#[test]
fn a_call_that_was_made_before_a_cancel_is_told_in_the_graph() {
    for engine in ENGINES {
        let (mut stage, worker, cancel) = beside_a_cancel(engine, After, Create, "result");
        stage.finish(cancel);
        stage.crash(worker);
        stage.end();
        let record = stage.record("r0", 1).unwrap();
        assert_eq!(record.outcome, OutcomeKind::Cancelled);
        let (iteration, observation) = (
            uris::iteration(&record.session, 2),
            uris::observation(&record.session, 2),
        );
        assert_eq!(stage.objects(&iteration, tg::ACTION), ["write"]);
        assert_eq!(
            stage.objects(&observation, prov::WAS_DERIVED_FROM),
            [iteration]
        );
        assert_eq!(
            stage.objects(&observation, tg::TOOL_ERROR),
            [""; 0],
            "it came to its end"
        );
        assert_eq!(stage.count("calls cut off"), 1);
    }
}

/// Where whoever ends a step without a call keeps others from making one.
fn fence(engine: Engine) -> (Verb, &'static str) {
    if engine.atomic {
        (Commit, "outcome")
    } else {
        (Create, "intent")
    }
}

/// What the step of [`beside_a_cancel`] tells of calls.
fn calls_told(stage: &Stage) -> Vec<String> {
    let record = stage.record("r0", 1).unwrap();
    assert_eq!(record.outcome, OutcomeKind::Cancelled);
    let told = record.calls.iter().filter_map(|call| match call {
        Told::Tool { result, .. } => Some(result.clone()),
        _ => None,
    });
    told.collect()
}

// 14
#[test]
fn a_call_that_comes_to_its_end_after_a_cancel_is_told_as_open() {
    for engine in ENGINES {
        let (mut stage, worker, cancel) = beside_a_cancel(engine, During, Call, "write");
        stage.finish(cancel);
        stage.finish(worker);
        // That its result is there now is nothing that speaks against the record.
        stage.end();
        assert_eq!(calls_told(&stage), [Told::STARTED]);
        assert_eq!(stage.starts(), 1);
    }
}

// 14
#[test]
fn no_call_starts_once_a_cancel_has_looked_for_it() {
    for engine in ENGINES {
        let (mut stage, worker, cancel) = beside_a_cancel(engine, Before, Create, "intent");
        let (verb, what) = fence(engine);
        stage.run_to(cancel, After, verb, what);
        stage.finish(worker);
        stage.finish(cancel);
        stage.end();
        assert_eq!(calls_told(&stage), [""; 0]);
        assert_eq!(stage.starts(), 0, "{}", stage.story());
    }
}

// 14
#[test]
fn a_call_that_starts_before_a_cancel_can_keep_it_is_told() {
    for engine in ENGINES {
        let (mut stage, worker, cancel) = beside_a_cancel(engine, Before, Create, "intent");
        // It has looked, and found nothing.
        let (verb, what) = fence(engine);
        stage.run_to(cancel, Before, verb, what);
        stage.run_to(worker, After, Create, "intent");
        stage.finish(cancel);
        stage.finish(worker);
        stage.end();
        assert_eq!(calls_told(&stage), [Told::STARTED]);
        assert_eq!(stage.starts(), 1);
    }
}

// 14
#[test]
fn a_cancel_that_dies_behind_its_fence_keeps_no_call_from_being_made() {
    for engine in ENGINES {
        let (mut stage, worker, cancel) = beside_a_cancel(engine, Before, Create, "intent");
        let (verb, what) = fence(engine);
        stage.run_to(cancel, After, verb, what);
        stage.crash(cancel);
        stage.crash(worker);
        stage.end();
        // The tree was closed before, so the next worker ends it.
        assert_eq!(calls_told(&stage), [""; 0]);
        assert_eq!(stage.starts(), 0);
    }
}

// 14
#[test]
fn a_cancel_that_loses_its_race_publishes_what_won() {
    let engine = Engine::MIXED;
    let mut stage = Stage::asked(Scenario::new().react("r0", &[Use::Read]), engine);
    stage.work(Orchestrator, "r0 0");
    let worker = stage.give(Orchestrator, 0, "r0 1");
    stage.run_to(worker, Before, Create, "steps/1/outcome");
    let cancel = stage.cancel(&stage.session("r0"));
    stage.run_to(cancel, Before, Create, "steps/1/outcome");
    stage.run_to(worker, After, Create, "steps/1/outcome");
    stage.finish(cancel);
    let ends = stage.ends("r0");
    assert_eq!(ends, 1, "the cancel has published the answer that won");
    stage.crash(worker);
    stage.end();
    assert_eq!(stage.record("r0", 1).unwrap().outcome, OutcomeKind::Answer);
}

// 14
#[test]
fn a_cancel_that_dies_half_way_ends_the_run_all_the_same() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        let cancel = stage.cancel(&stage.session("r0"));
        stage.run_to(cancel, After, Create, "closed");
        stage.crash(cancel);
        let asked = stage.count("model calls");
        stage.end();
        assert_eq!(
            stage.count("model calls"),
            asked,
            "nothing starts in a closed tree"
        );
        assert_eq!(
            stage.record("r0", 1).unwrap().outcome,
            OutcomeKind::Cancelled
        );
    }
}

// 15
#[test]
fn a_budget_is_split_with_a_reserve_and_the_missing_count_as_spent() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 4)
            .trouble("r0.3", Trouble::Stuck)
            .with(|scenario| scenario.roots[0].limits.max_tokens = Some(1_000));
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        // What is there when the children are given theirs: a thousand, less the call that made their
        // goals, and a fifth stays.
        let each = stage
            .request(Orchestrator, "r0.0 0")
            .limits
            .max_tokens
            .unwrap();
        assert_eq!(each, (1_000 - 12) * 4 / 5 / 4);
        stage.end();
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(
            (verdict.missing.len(), verdict.missing_spent.tokens),
            (1, each)
        );
        let members: u64 = verdict
            .members
            .iter()
            .map(|member| member.spent.tokens)
            .sum();
        assert_eq!(members, 3 * 12);
        let record = stage.record("r0", 1).unwrap();
        assert_eq!(
            record.total.tokens,
            12 + members + each + record.usage.total()
        );
    }
}

fn nested() -> Scenario {
    let children = |name: &str| (0..2).map(|n| format!("{name}.{n}")).collect::<Vec<_>>();
    Scenario::new()
        .supervisor("r0", 2)
        .work("r0.0", Kind::Supervisor(vec![children("r0.0")]))
        .work("r0.0.0", Kind::React(vec![]))
        .trouble("r0.0.1", Trouble::Stuck)
}

// 16
#[test]
fn a_nested_join_ends_before_its_parents_and_its_part_counts() {
    for engine in ENGINES {
        let mut stage = Stage::asked(nested(), engine);
        stage.end();
        let inner = stage.verdict("r0.0", 0).expect("the inner verdict");
        assert_eq!((inner.cause, inner.members.len()), (JoinCause::Deadline, 1));
        let outer = stage.verdict("r0", 0).expect("the outer verdict");
        assert_eq!(outer.cause, JoinCause::Complete, "it waited for the part");
        assert_eq!(outer.members[0].status, CompletionStatus::Answered);
    }
}

// 16
#[test]
fn at_the_hard_deadline_no_model_is_asked() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Orchestrator]);
        stage.work(FanIn, "r0.0 0 completion");
        stage.work(FanIn, "r0.1 0 completion");
        let asked = stage.count("model calls");
        stage.pass(Duration::from_secs(600));
        stage.work(Orchestrator, "r0 1");
        assert_eq!(
            stage.record("r0", 1).unwrap().outcome,
            OutcomeKind::Cancelled
        );
        assert_eq!(stage.count("model calls"), asked);
        stage.end();
    }
}

fn quorum(children: usize) -> Scenario {
    Scenario::new()
        .supervisor("r0", children)
        .with(|s| s.policy = JoinPolicy::AtLeast(2))
}

// 17
#[test]
fn at_least_two_are_answers_and_close_the_rest() {
    for engine in ENGINES {
        let scenario = quorum(4).trouble("r0.0", Trouble::Refused);
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        for child in 0..2 {
            stage.run_to_answer("r0", child);
        }
        assert!(
            stage.verdict("r0", 0).is_none(),
            "a fast failure and an answer are not two"
        );
        stage.run_to_answer("r0", 2);
        assert_eq!(
            stage.verdict("r0", 0).expect("a verdict").cause,
            JoinCause::Enough
        );
        let asked = stage.count("model calls");
        stage.work(Orchestrator, "r0.3 0");
        assert_eq!(
            stage.record("r0.3", 0).unwrap().outcome,
            OutcomeKind::Cancelled
        );
        assert_eq!(stage.count("model calls"), asked);
        stage.end();
    }
}

// 17
#[test]
fn at_least_two_that_cannot_be_reached_any_more_do_not_hang() {
    for engine in ENGINES {
        let scenario = quorum(3)
            .trouble("r0.0", Trouble::Refused)
            .trouble("r0.1", Trouble::Refused);
        let mut stage = Stage::asked(scenario, engine);
        stage.run_all();
        assert_eq!(
            stage.verdict("r0", 0).expect("a verdict").cause,
            JoinCause::Complete
        );
        stage.end();
    }
}

// 18
#[test]
fn late_messages_of_an_erased_tree_do_nothing() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.keep(Orchestrator, "r0.0 0");
        stage.keep(Deadlines, "r0 0 join");
        stage.keep(Deadlines, "r0 0 hard");
        stage.run(&[Orchestrator]);
        stage.keep(FanIn, "r0.0 0 completion");
        stage.work(FanIn, "r0.0 0 completion");
        stage.work(FanIn, "r0.1 0 completion");
        stage.keep(Orchestrator, "r0 1");
        stage.keep_dead(Orchestrator, "r0 1");
        stage.end();
        stage.erase("r0");
        let (asked, responses) = (stage.count("model calls"), stage.responses());
        stage.bring_back();
        stage.run_all();
        while stage.pass_to_next() {
            stage.run_all();
        }
        let left = stage.keys_below("sessions/");
        assert!(
            left.is_empty(),
            "an erased tree came back: {left:?}\n{}",
            stage.story()
        );
        assert_eq!(
            (stage.count("model calls"), stage.responses()),
            (asked, responses)
        );
    }
}

// 19
#[test]
fn a_deadline_that_comes_early_is_delayed_again() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        for about in ["r0 0 join", "r0 0 hard"] {
            stage.work(Deadlines, about);
            assert!(stage.has(Deadlines, about), "it is there for its time");
        }
        assert!(stage.verdict("r0", 0).is_none());
        assert!(stage.record("r0", 1).is_none());
        stage.end();
        assert_eq!(stage.verdict("r0", 0).unwrap().cause, JoinCause::Complete);
    }
}

// 19
#[test]
fn a_long_wait_is_made_in_hops_and_ends_at_its_instant() {
    let hop = Duration::from_millis(HOP.unsigned_abs());
    for engine in ENGINES {
        let scenario = Scenario::new().supervisor("r0", 2).with(|scenario| {
            scenario.subagent_timeout_ms = 25 * 60 * 1_000;
            scenario.run_timeout_ms = 60 * 60 * 1_000;
        });
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        for child in ["r0.0 0", "r0.1 0"] {
            stage.lose(Orchestrator, child);
        }
        for passed in 0..5 {
            assert!(stage.verdict("r0", 0).is_none(), "after {passed} hops");
            for about in ["r0 0 join", "r0 0 hard"] {
                let delay = stage.delay(Deadlines, about);
                assert!(delay <= hop, "{about}: {delay:?} after {passed} hops");
            }
            stage.pass(hop);
            stage.run(&[Deadlines]);
        }
        // The hop that ends at the instant comes later by what clocks may differ.
        stage.pass(Duration::from_secs(2));
        stage.run(&[Deadlines]);
        assert_eq!(stage.verdict("r0", 0).unwrap().cause, JoinCause::Deadline);
        stage.run(&[Orchestrator]);
        assert_eq!(stage.ends("r0"), 1);
        // The run is over, so its own deadline goes no further.
        stage.pass(hop);
        stage.run(&[Deadlines]);
        assert!(!stage.has(Deadlines, "r0 0 hard"));
    }
}

// 19
#[test]
fn a_fan_out_whose_deadline_message_is_lost_is_ended_by_the_sweep() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Writer]);
        stage.lose(Deadlines, "r0 0 join");
        stage.lose(Orchestrator, "r0.0 0");
        stage.run_to_answer("r0", 1);
        stage.pass(JOIN);
        stage.sweep();
        assert!(stage.verdict("r0", 0).is_none(), "it may only be late");
        stage.pass(PATIENCE + Duration::from_millis(1));
        stage.sweep();
        assert_eq!(stage.count("overdue fan-outs"), 1);
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(verdict.cause, JoinCause::Deadline);
        assert_eq!((verdict.members.len(), verdict.missing.len()), (1, 1));
        stage.run(&[Orchestrator, Writer]);
        assert_eq!(stage.ends("r0"), 1);
        stage.pass(PATIENCE);
        stage.sweep();
        assert_eq!(stage.count("overdue fan-outs"), 1, "it is over");
        stage.hold();
    }
}

// 20
#[test]
fn a_deadline_worker_whose_clock_is_behind_does_not_spin() {
    let mut stage = fanned_out(2, Engine::DISTRIBUTED);
    let behind = stage.worker(Deadlines, 0);
    stage.sim.with(|world| world.skews.insert(behind, -2_000));
    stage.run(&[Orchestrator]);
    stage.pass(JOIN);
    let before = stage.count("publish calls");
    stage.work(Deadlines, "r0 0 join");
    stage.run(&[Deadlines]);
    let again = stage.count("publish calls") - before;
    assert!(
        again <= 1,
        "it was put back {again} times within an instant"
    );
    stage.end();
}

// 8
#[test]
fn a_try_after_a_fault_does_not_wait_for_the_lease_of_the_one_before() {
    for engine in ENGINES {
        let mut stage = Stage::asked(Scenario::new().react("r0", &[]), engine);
        stage.fail_next(Chat, "", Fault::Refused);
        stage.work(Orchestrator, "r0 0");
        // The model asked for two seconds.
        stage.pass(Duration::from_secs(2));
        stage.run(&[Orchestrator]);
        assert!(stage.record("r0", 0).is_some(), "{}", stage.story());
        stage.end();
    }
}

// 8
#[test]
fn a_model_that_is_away_is_waited_for_and_no_try_counts() {
    let scenario = || Scenario::new().react("r0", &[Use::Write]);
    for engine in ENGINES {
        let mut stage = Stage::asked(scenario(), engine);
        // More often than a step may be tried.
        for _ in 0..12 {
            stage.fail_next(Chat, "", Fault::Refused);
            stage.work(Orchestrator, "r0 0");
            let pause = stage.delay(Orchestrator, "r0 0");
            let bounds = Duration::from_secs(2)..=Duration::from_secs(30);
            assert!(bounds.contains(&pause), "{pause:?}");
            stage.pass(pause);
        }
        // A worker that dies when it has put the step back leaves it twice in the queue.
        stage.fail_next(Chat, "", Fault::Refused);
        let dies = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(dies, After, Publish, "agent-request");
        stage.crash(dies);
        stage.end();
        let record = stage.record("r0", 0).unwrap();
        let waited = record.worked.waited.clone().unwrap();
        assert!(waited.times >= 12 && waited.ms > 120_000, "{waited:?}");
        assert_eq!(waited.reason, "the model is overloaded");
        assert_eq!((record.outcome, stage.starts()), (OutcomeKind::Continue, 1));
        let node = uris::iteration(&record.session, 1);
        assert_eq!(
            stage.objects(&node, tg::MODEL_WAITS),
            [waited.times.to_string()]
        );
    }
}

// 8
#[test]
fn a_model_that_stays_away_ends_the_run_at_its_end_and_says_so() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .react("r0", &[])
            .trouble("r0", Trouble::Unavailable);
        let mut stage = Stage::asked(scenario, engine);
        stage.end();
        let record = stage.record("r0", 0).unwrap();
        let Activity::Concluded(end) = &record.activity else {
            panic!("{record:?}")
        };
        let error = end.error.as_ref().unwrap();
        assert_eq!(error.code, "model-failed");
        assert!(
            error
                .message
                .starts_with("the model is overloaded; it was asked ")
                && error.message.ends_with("until the wait for it was over"),
            "{}",
            error.message
        );
        assert!(record.worked.waited.is_some());
        assert_eq!(stage.ends("r0"), 1);
    }
}

// 21
#[test]
fn a_request_that_names_nobody_is_one_session_however_often_it_comes() {
    for engine in ENGINES {
        let scenario = Scenario::new().react("r0", &[Use::Read]).with(|scenario| {
            scenario.roots[0].identity = Identity::Nothing;
        });
        let mut stage = Stage::asked(scenario, engine);
        let first = stage.give_any(Orchestrator, 0);
        stage.run_to(first, Before, Chat, "");
        stage.crash(first);
        let second = stage.give_any(Orchestrator, 0);
        stage.finish(second);
        stage.end();
        assert_eq!(stage.sessions("r0"), 1);
    }
}

// 23
#[test]
fn a_hung_worker_does_not_hold_a_run() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 3)
            .trouble("r0.1", Trouble::Stuck);
        let mut stage = Stage::asked(scenario, engine);
        stage.end();
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(
            (verdict.cause, verdict.missing.len()),
            (JoinCause::Deadline, 1)
        );
        assert!(
            stage
                .answer("r0")
                .unwrap()
                .contains("not finished when the wait ended")
        );
        assert_eq!(
            stage.record("r0.1", 0).unwrap().outcome,
            OutcomeKind::Cancelled
        );
    }
}

// 24
#[test]
fn an_unreachable_graph_costs_no_fan_in() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Orchestrator]);
        for _ in 0..40 {
            stage.fail_next(Insert, "", Fault::Refused);
            stage.fail_next(Query, "", Fault::Refused);
        }
        stage.end();
        assert_eq!(stage.verdict("r0", 0).unwrap().cause, JoinCause::Complete);
    }
}

// 24
#[test]
fn one_completion_that_is_no_rdf_does_not_hold_up_the_others() {
    let scenario = Scenario::new().supervisor("r0", 2).supervisor("r1", 2);
    for engine in ENGINES {
        let mut stage = Stage::asked(scenario.clone(), engine);
        stage.run(&[Orchestrator]);
        stage.spoil(FanIn, "r0.0 0 completion");
        let batch = [
            "r0.0 0 completion",
            "r1.0 0 completion",
            "r1.1 0 completion",
        ];
        let task = stage.give_together(FanIn, 0, &batch);
        stage.finish(task);
        assert!(
            stage.verdict("r1", 0).is_some(),
            "another run waits for it\n{}",
            stage.story()
        );
    }
}

// 25
#[test]
fn two_writers_of_a_completion_write_the_same() {
    for engine in ENGINES {
        let mut stage = fanned_out(2, engine);
        stage.run(&[Orchestrator]);
        stage.work(FanIn, "r0.0 0 completion");
        let by_one = stage.quads();
        stage.work(Writer, "r0.0 0 completion");
        assert_eq!(stage.quads(), by_one);
        stage.end();
    }
}

// 26
#[test]
fn a_crash_between_publishing_and_acknowledging_repeats_the_same_end() {
    for engine in SEQUENTIAL {
        let mut stage = Stage::asked(Scenario::new().react("r0", &[]), engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, Before, Create, "published");
        stage.crash(first);
        stage.end();
        assert_eq!(stage.ends("r0"), 1);
        assert_eq!(
            stage.end_responses("r0"),
            2,
            "it was said twice, under one id"
        );
    }
}

// 35
#[test]
fn a_crash_before_markers_that_wait_for_each_other_repeats_what_was_published() {
    for engine in SEQUENTIAL {
        let mut stage = fanned_out(2, engine);
        // Everything of both is published, by one process, and neither is marked or acknowledged.
        let steps = ["r0.0 0", "r0.1 0"].map(|about| {
            let step = stage.give(Orchestrator, 0, about);
            stage.run_to(step, Before, Create, "published");
            step
        });
        stage.run(&[FanIn]);
        assert!(stage.verdict("r0", 0).is_some(), "{}", stage.story());
        stage.crash(steps[0]);
        stage.end();
        assert_eq!(stage.count("syntheses"), 1);
        assert_eq!(stage.verdict("r0", 0).unwrap().cause, JoinCause::Complete);
    }
}

// 36
#[test]
fn a_step_that_is_begun_beside_a_tombstone_leaves_nothing_of_an_erased_tree() {
    for engine in ENGINES {
        for when in [Before, After] {
            let mut stage = Stage::asked(Scenario::new().react("r0", &[]), engine);
            stage.keep(Orchestrator, "r0 0");
            stage.end();
            stage.bring_back();
            let late = stage.give(Orchestrator, 0, "r0 0");
            stage.run_to(late, when, Verb::Read, "tombstone");
            stage.erase("r0");
            let asked = stage.count("model calls");
            stage.finish(late);
            stage.run_all();
            let left = stage.keys_below("sessions/");
            assert!(left.is_empty(), "{left:?}\n{}", stage.story());
            assert_eq!(stage.count("model calls"), asked);
        }
    }
}

// 27
#[test]
fn a_fan_out_without_room_is_refused_before_its_commit() {
    type Limit = fn(&mut Scenario);
    let limits: [Limit; 3] = [
        |s| s.max_depth = 0,
        |s| s.roots[0].limits.max_sessions = Some(0),
        |s| s.roots[0].limits.max_tokens = Some(3),
    ];
    for engine in ENGINES {
        for limit in limits {
            let scenario = Scenario::new().supervisor("r0", 4).with(limit);
            let mut stage = Stage::asked(scenario, engine);
            stage.end();
            let record = stage.record("r0", 0).unwrap();
            assert_eq!(record.outcome, OutcomeKind::Continue);
            assert_eq!(record.decisions[0].chosen, "alone");
            assert!(stage.document(&keys::fan_out(&record.session, 0)).is_none());
        }
    }
}

// DR-1, 23
#[test]
fn draining_finishes_what_is_in_hand_and_hands_back_nothing_of_it() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut stage = Stage::asked(Scenario::new().react("r0", &[]), Engine::MIXED);
    let deliveries = runtime.block_on(stage.drain_shipped_loop());
    assert_eq!(stage.record("r0", 0).unwrap().outcome, OutcomeKind::Answer);
    assert_eq!(deliveries, 1, "it was given away while it was being worked");
    stage.end();
}
