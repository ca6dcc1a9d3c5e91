//! Waits for a person, each as one forced schedule: what competes for the step after the wait, and
//! what comes of it when the wait outlives what it was for.
//!
//! The number in `docs/interleavings.md` is 22, unless another one stands above a test.

use agentfleet_core::deadline::HOP;
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::ApprovalAnswer::{Approve, Deny, Edit};
use agentfleet_schema::records::{Activity, CompletionStatus, JoinCause, OutcomeKind, Termination};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{prov, tg};
use agentfleet_tests::directed::Stage;
use agentfleet_tests::effect::Verb::{Call, Commit, Create};
use agentfleet_tests::effect::When::{After, Before, During};
use agentfleet_tests::queues::Role::{Deadlines, FanIn, Orchestrator, Writer};
use agentfleet_tests::scenario::{Kind, Scenario, Use};
use agentfleet_tests::sim::Engine;
use std::time::Duration;

const ENGINES: [Engine; 3] = [Engine::DISTRIBUTED, Engine::MIXED, Engine::EMBEDDED];
/// Those whose commit is a sequence that can be cut.
const SEQUENTIAL: [Engine; 2] = [Engine::DISTRIBUTED, Engine::MIXED];

/// How long a person may take here.
const WAIT: Duration = Duration::from_secs(120);

/// A root that waits for a person to approve a payment.
fn paused(engine: Engine) -> Stage {
    let mut stage = Stage::asked(Scenario::new().react("r0", &[Use::Pay]), engine);
    stage.work(Orchestrator, "r0 0");
    assert_eq!(stage.record("r0", 0).unwrap().outcome, OutcomeKind::Pause);
    stage
}

/// A supervisor with a subagent that waits for a person, and one that answers.
fn paused_child(engine: Engine) -> Stage {
    let scenario = Scenario::new()
        .supervisor("r0", 2)
        .work("r0.1", Kind::React(vec![Use::Pay]));
    let mut stage = Stage::asked(scenario, engine);
    stage.work(Orchestrator, "r0 0");
    stage.run(&[Orchestrator, FanIn]);
    assert_eq!(stage.record("r0.1", 0).unwrap().outcome, OutcomeKind::Pause);
    stage
}

/// The decision at a step, as its record tells it: the answer, and who gave it.
fn decision(stage: &Stage, name: &str, step: u32) -> (&'static str, String) {
    match &stage.record(name, step).expect("a decision").activity {
        Activity::Decided(decided) => (decided.answer.as_str(), decided.by.clone()),
        other => panic!("no decision: {other:?}"),
    }
}

#[test]
fn an_approved_call_is_made_once_and_without_asking_the_model_again() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        assert!(stage.made("pay").is_empty());
        assert_eq!(stage.listed(), 1);
        let asked = stage.count("model calls");
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        assert_eq!(stage.listed(), 0);
        stage.work(Orchestrator, "r0 2");
        assert_eq!(stage.made("pay"), ["r0-0"]);
        assert_eq!(stage.count("model calls"), asked);
        let Activity::Iterated(call) = &stage.record("r0", 2).unwrap().activity else {
            panic!("no call");
        };
        assert_eq!((call.n, call.action.as_str()), (1, "pay"));
        stage.end();
        assert_eq!(stage.starts(), 1);
        assert_eq!(stage.record("r0", 3).unwrap().outcome, OutcomeKind::Answer);
    }
}

#[test]
fn an_edited_call_is_made_with_the_arguments_of_the_person() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        let ada = stage.decide("r0", 0, "ada", Edit);
        stage.finish(ada);
        stage.end();
        assert_eq!(stage.made("pay"), ["another"]);
        let session = stage.session("r0");
        let node = uris::decision(&session, 1, "approval");
        assert_eq!(
            stage.objects(&node, tg::ARGUMENTS),
            [r#"{"item":"another"}"#]
        );
    }
}

#[test]
fn a_denied_call_is_not_made_and_the_agent_is_told_who_denied_it_and_why() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        let ada = stage.decide("r0", 0, "ada", Deny);
        stage.finish(ada);
        let next = stage.request(Orchestrator, "r0 2");
        let told = &next.history.last().unwrap().observation;
        assert!(told.contains("denied by ada at 20"), "{told}");
        assert!(told.ends_with(": ada says so"), "{told}");
        assert!(next.control.held.is_none());
        stage.end();
        assert!(stage.made("pay").is_empty());
        assert_eq!(stage.record("r0", 2).unwrap().outcome, OutcomeKind::Answer);
    }
}

#[test]
fn who_decided_what_and_why_is_in_the_graph() {
    let mut stage = paused(Engine::MIXED);
    let id = stage.pause("r0", 0).asked.id;
    let ada = stage.decide("r0", 0, "ada", Approve);
    stage.finish(ada);
    stage.end();
    let session = stage.session("r0");
    let (asked, node) = (
        uris::approval(&session, &id),
        uris::decision(&session, 1, "approval"),
    );
    assert_eq!(stage.objects(&asked, tg::ACTION), ["pay"]);
    assert_eq!(stage.objects(&node, tg::SELECTED), ["approve"]);
    assert_eq!(stage.objects(&node, tg::DECIDED_BY), ["person"]);
    assert_eq!(stage.objects(&node, tg::SIGNAL), ["ada says so"]);
    assert_eq!(stage.objects(&node, prov::WAS_DERIVED_FROM), [asked]);
    assert_eq!(
        stage.objects(&node, prov::WAS_ATTRIBUTED_TO),
        [uris::person("ada")]
    );
}

#[test]
fn of_approve_and_deny_at_once_one_counts_and_the_other_is_told_which() {
    for engine in ENGINES {
        for ada_first in [true, false] {
            let mut stage = paused(engine);
            let ada = stage.decide("r0", 0, "ada", Approve);
            let ben = stage.decide("r0", 0, "ben", Deny);
            let verb = if engine.atomic { Commit } else { Create };
            for task in [ada, ben] {
                stage.run_to(task, Before, verb, "steps/1/outcome");
            }
            let order = if ada_first { [ada, ben] } else { [ben, ada] };
            for task in order {
                stage.finish(task);
            }
            let (first, second) = if ada_first {
                ("ada", "ben")
            } else {
                ("ben", "ada")
            };
            assert_eq!(stage.told(first).as_deref(), Some("counts"));
            let told = stage.told(second).unwrap();
            let did = if ada_first { "approved" } else { "denied" };
            assert!(told.starts_with(&format!("{did} by {first} at ")), "{told}");
            stage.end();
            assert_eq!(stage.made("pay").len(), usize::from(ada_first));
        }
    }
}

#[test]
fn of_an_answer_and_the_end_of_the_wait_one_counts() {
    for engine in ENGINES {
        for ada_first in [true, false] {
            let mut stage = paused(engine);
            stage.pass(WAIT);
            let ada = stage.decide("r0", 0, "ada", Approve);
            let over = stage.give(Deadlines, 0, "r0 0 approval");
            let verb = if engine.atomic { Commit } else { Create };
            for task in [ada, over] {
                stage.run_to(task, Before, verb, "steps/1/outcome");
            }
            let order = if ada_first { [ada, over] } else { [over, ada] };
            for task in order {
                stage.finish(task);
            }
            let expected = if ada_first {
                ("approve", "ada")
            } else {
                ("deny", "")
            };
            let (answer, by) = decision(&stage, "r0", 1);
            assert_eq!((answer, by.as_str()), expected);
            if !ada_first {
                let told = stage.told("ada").unwrap();
                assert!(
                    told.starts_with("denied because nobody had answered by"),
                    "{told}"
                );
            }
            stage.end();
            assert_eq!(stage.made("pay").len(), usize::from(ada_first));
            assert_eq!(stage.listed(), 0);
        }
    }
}

#[test]
fn of_an_answer_and_a_cancel_one_counts() {
    for engine in ENGINES {
        for ada_first in [true, false] {
            let mut stage = paused(engine);
            let session = stage.session("r0");
            let ada = stage.decide("r0", 0, "ada", Approve);
            let cancel = stage.cancel(&session);
            let verb = if engine.atomic { Commit } else { Create };
            for task in [ada, cancel] {
                stage.run_to(task, Before, verb, "steps/1/outcome");
            }
            let order = if ada_first {
                [ada, cancel]
            } else {
                [cancel, ada]
            };
            for task in order {
                stage.finish(task);
            }
            if ada_first {
                // The answer counts, and the cancel ends the step after it.
                assert_eq!(decision(&stage, "r0", 1), ("approve", "ada".to_owned()));
            } else {
                let told = stage.told("ada").unwrap();
                assert_eq!(told, "over, because its session ended (cancelled)");
            }
            stage.end();
            let last = if ada_first { 2 } else { 1 };
            let end = stage.record("r0", last).unwrap();
            assert_eq!(end.outcome, OutcomeKind::Cancelled);
            assert!(stage.made("pay").is_empty());
            assert_eq!(stage.listed(), 0);
        }
    }
}

#[test]
fn an_answer_after_a_cancel_is_too_late() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        let session = stage.session("r0");
        let cancel = stage.cancel(&session);
        // Closed, and the end is not there yet.
        stage.run_to(cancel, After, Create, "closed");
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        let told = stage.told("ada").unwrap();
        assert_eq!(told, "too late: the run was cancelled by somebody");
        stage.end();
        assert!(stage.made("pay").is_empty());
    }
}

#[test]
fn an_end_of_the_wait_that_comes_again_after_the_decision_changes_nothing() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        stage.repeat(Deadlines, "r0 0 approval");
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        stage.pass(WAIT);
        stage.work(Deadlines, "r0 0 approval");
        stage.work(Deadlines, "r0 0 approval");
        assert_eq!(decision(&stage, "r0", 1), ("approve", "ada".to_owned()));
        stage.end();
        assert_eq!(stage.made("pay").len(), 1);
        assert_eq!(stage.end_responses("r0"), 1);
    }
}

#[test]
fn a_wait_that_ends_early_is_put_back_in_hops() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        stage.work(Deadlines, "r0 0 approval");
        assert!(stage.record("r0", 1).is_none(), "it is early");
        let delay = stage.delay(Deadlines, "r0 0 approval");
        assert!(
            delay <= Duration::from_millis(HOP.unsigned_abs()),
            "{delay:?}"
        );
        stage.pass(WAIT);
        stage.work(Deadlines, "r0 0 approval");
        assert_eq!(decision(&stage, "r0", 1), ("deny", String::new()));
        stage.end();
    }
}

#[test]
fn the_configured_answer_counts_where_nobody_gives_one() {
    for engine in ENGINES {
        let mut stage = Stage::asked(Scenario::new().react("r0", &[Use::Peek]), engine);
        stage.end();
        assert_eq!(decision(&stage, "r0", 1), ("approve", String::new()));
        let Activity::Iterated(call) = &stage.record("r0", 2).unwrap().activity else {
            panic!("no call");
        };
        assert_eq!(call.action, "peek");
        let node = uris::decision(&stage.session("r0"), 1, "approval");
        assert_eq!(stage.objects(&node, tg::DECIDED_BY), ["fallback"]);
        assert!(stage.objects(&node, prov::WAS_ATTRIBUTED_TO).is_empty());
    }
}

#[test]
fn a_decision_whose_maker_dies_before_it_is_published_goes_out_with_the_end_of_the_wait() {
    for engine in SEQUENTIAL {
        let mut stage = paused(engine);
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.run_to(ada, After, Create, "steps/1/outcome");
        stage.crash(ada);
        assert!(!stage.has(Orchestrator, "r0 2"));
        stage.work(Deadlines, "r0 0 approval");
        assert!(!stage.has(Orchestrator, "r0 2"), "it is early");
        stage.pass(WAIT);
        stage.work(Deadlines, "r0 0 approval");
        assert_eq!(decision(&stage, "r0", 1), ("approve", "ada".to_owned()));
        stage.end();
        assert_eq!(stage.made("pay").len(), 1);
        assert_eq!(stage.listed(), 0);
    }
}

#[test]
fn a_decision_whose_maker_dies_before_it_is_published_goes_out_with_a_sweep() {
    for engine in SEQUENTIAL {
        let mut stage = paused(engine);
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.run_to(ada, After, Create, "steps/1/outcome");
        stage.crash(ada);
        stage.sweep();
        assert!(stage.has(Orchestrator, "r0 2"));
        assert_eq!(stage.listed(), 0);
        stage.end();
        assert_eq!(stage.made("pay").len(), 1);
    }
}

#[test]
fn a_second_answer_publishes_the_first_if_its_maker_died() {
    for engine in SEQUENTIAL {
        let mut stage = paused(engine);
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.run_to(ada, After, Create, "steps/1/outcome");
        stage.crash(ada);
        let ben = stage.decide("r0", 0, "ben", Deny);
        stage.finish(ben);
        assert!(stage.told("ben").unwrap().starts_with("approved by ada"));
        assert!(stage.has(Orchestrator, "r0 2"));
        stage.end();
        assert_eq!(stage.made("pay").len(), 1);
    }
}

#[test]
fn a_wait_whose_worker_dies_before_publishing_is_adopted() {
    for engine in SEQUENTIAL {
        let mut stage = Stage::asked(Scenario::new().react("r0", &[Use::Pay]), engine);
        let first = stage.give(Orchestrator, 0, "r0 0");
        stage.run_to(first, After, Create, "steps/0/outcome");
        stage.crash(first);
        // Created as one with the record; what publishes its end is not out.
        assert_eq!(stage.listed(), 1);
        assert!(!stage.has(Deadlines, "r0 0 approval"));
        stage.work(Orchestrator, "r0 0");
        assert_eq!(stage.listed(), 1);
        assert!(stage.has(Deadlines, "r0 0 approval"));
        stage.end();
        assert_eq!(decision(&stage, "r0", 1), ("deny", String::new()));
    }
}

#[test]
fn a_crash_at_any_point_of_an_answer_leaves_at_most_one_call() {
    for engine in ENGINES {
        for after in 0..40 {
            let mut stage = paused(engine);
            let ada = stage.decide("r0", 0, "ada", Approve);
            let ended = stage.go_on_and_die(ada, after);
            let again = stage.decide("r0", 0, "ada", Approve);
            stage.finish(again);
            assert_eq!(decision(&stage, "r0", 1), ("approve", "ada".to_owned()));
            stage.end();
            assert_eq!(stage.made("pay").len(), 1);
            if ended {
                break;
            }
            assert!(after < 39, "it never ends");
        }
    }
}

#[test]
fn an_approved_call_whose_worker_dies_is_not_started_twice() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        let call = stage.give(Orchestrator, 0, "r0 2");
        stage.run_to(call, During, Call, "pay");
        stage.crash(call);
        stage.end();
        // Nobody knows what became of it: it is told so.
        assert_eq!(stage.starts(), 1);
        let Activity::Iterated(call) = &stage.record("r0", 2).unwrap().activity else {
            panic!("no call");
        };
        assert!(call.is_error && call.observation.contains("may or may not"));
    }
}

#[test]
fn a_request_that_claims_an_approval_that_nobody_gave_is_refused() {
    for engine in ENGINES {
        let mut stage = paused(engine);
        let pause = stage.pause("r0", 0);
        let mut forged = pause.request().unwrap();
        forged.control.held.as_mut().unwrap().approved = true;
        stage.sim.with(|world| {
            let body = serde_json::to_vec(&forged).unwrap();
            let (topic, now) = (agentfleet_schema::topics::AGENT_REQUEST, world.now);
            let properties = pause.resume.properties.clone();
            world
                .queues
                .publish(&topic, body.into(), &properties, now, now);
        });
        stage.work(Orchestrator, "r0 1");
        assert!(stage.made("pay").is_empty());
        let Activity::Concluded(end) = &stage.record("r0", 1).unwrap().activity else {
            panic!("no end");
        };
        assert_eq!(end.error.as_ref().unwrap().code, "not-approved");
    }
}

#[test]
fn a_wait_that_outlives_its_join_is_ended_by_the_verdict_and_an_answer_is_too_late() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 3)
            .work("r0.2", Kind::React(vec![Use::Pay]))
            .with(|scenario| scenario.policy = JoinPolicy::AtLeast(2));
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        stage.run(&[Orchestrator]);
        stage.work(FanIn, "r0.0 0 completion");
        let last = stage.give(FanIn, 0, "r0.1 0 completion");
        // The verdict is there, and what it makes needless is not ended yet.
        stage.run_to(last, After, Create, "fanin");
        let ada = stage.decide("r0.2", 0, "ada", Approve);
        stage.finish(ada);
        let told = stage.told("ada").unwrap();
        let reason = "the fan-out above was concluded without this result";
        assert_eq!(told, format!("too late: {reason}"));
        stage.finish(last);
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(verdict.cause, JoinCause::Enough);
        let end = stage.record("r0.2", 1).unwrap();
        assert_eq!(end.outcome, OutcomeKind::Cancelled);
        assert_eq!(stage.listed(), 0);
        stage.end();
        assert!(stage.made("pay").is_empty());
    }
}

#[test]
fn a_wait_of_a_subagent_ends_before_its_join_so_that_it_can_still_answer() {
    for engine in ENGINES {
        let mut stage = paused_child(engine);
        let asked = stage.pause("r0.1", 0).asked;
        let Activity::FannedOut(fan_out) = &stage.record("r0", 0).unwrap().activity else {
            panic!("no fan-out");
        };
        assert!(asked.expires_at < fan_out.join_deadline);
        stage.end();
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(verdict.cause, JoinCause::Complete);
        assert_eq!(decision(&stage, "r0.1", 1), ("deny", String::new()));
    }
}

#[test]
fn an_approval_beside_the_verdict_resumes_into_a_cancelled_step() {
    for engine in ENGINES {
        let mut stage = paused_child(engine);
        let ada = stage.decide("r0.1", 0, "ada", Approve);
        let verb = if engine.atomic { Commit } else { Create };
        stage.run_to(ada, Before, verb, "steps/1/outcome");
        stage.pass(Duration::from_secs(60));
        let join = stage.give(Deadlines, 0, "r0 0 join");
        stage.run_to(join, After, Create, "fanin");
        stage.finish(ada);
        assert_eq!(stage.told("ada").as_deref(), Some("counts"));
        stage.finish(join);
        stage.end();
        assert!(stage.made("pay").is_empty());
        let end = stage.record("r0.1", 2).unwrap();
        assert_eq!(end.outcome, OutcomeKind::Cancelled);
        let completion = uris::completion(&stage.session("r0.1"));
        assert_eq!(stage.objects(&completion, tg::LATE), ["true"]);
    }
}

#[test]
fn a_sibling_that_waits_is_ended_when_enough_others_have_answered() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .supervisor("r0", 3)
            .work("r0.2", Kind::React(vec![Use::Pay]))
            .with(|scenario| scenario.policy = JoinPolicy::AtLeast(2));
        let mut stage = Stage::asked(scenario, engine);
        stage.run(&[Orchestrator, FanIn]);
        assert_eq!(stage.verdict("r0", 0).unwrap().cause, JoinCause::Enough);
        assert_eq!(
            stage.record("r0.2", 1).unwrap().outcome,
            OutcomeKind::Cancelled
        );
        stage.end();
        assert_eq!(stage.listed(), 0);
    }
}

#[test]
fn a_cancel_ends_what_waits_anywhere_in_the_tree() {
    for engine in ENGINES {
        let mut stage = paused_child(engine);
        let root = stage.session("r0");
        let cancel = stage.cancel(&root);
        stage.finish(cancel);
        let end = stage.record("r0.1", 1).unwrap();
        assert_eq!(end.outcome, OutcomeKind::Cancelled);
        assert_eq!(stage.listed(), 0);
        stage.end();
    }
}

#[test]
fn a_hard_deadline_ends_what_waits() {
    for engine in ENGINES {
        let scenario = Scenario::new()
            .react("r0", &[Use::Pay])
            .with(|scenario| scenario.run_timeout_ms = 100_000);
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        let asked = stage.pause("r0", 0).asked;
        let hard = stage
            .pause("r0", 0)
            .request()
            .unwrap()
            .control
            .hard_deadline;
        // The wait ends a reserve earlier than the run.
        assert_eq!(hard - asked.expires_at, 20_000);
        stage.lose(Deadlines, "r0 0 approval");
        stage.pass(Duration::from_secs(101));
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        let told = stage.told("ada").unwrap();
        assert_eq!(told, "too late: the time of the run is used up");
        stage.work(Deadlines, "r0 0 hard");
        stage.end();
        let Activity::Concluded(end) = &stage.record("r0", 1).unwrap().activity else {
            panic!("no end");
        };
        assert_eq!(end.termination, Termination::Timeout);
        assert!(stage.made("pay").is_empty());
    }
}

#[test]
fn a_wait_of_days_survives_the_death_of_every_process() {
    for engine in ENGINES {
        let days = Duration::from_secs(3 * 86_400);
        let scenario = Scenario::new().react("r0", &[Use::Pay]).with(|scenario| {
            scenario.run_timeout_ms = 30 * 86_400_000;
            scenario.approval_ms = 7 * 86_400_000;
        });
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        let mut hops = 0;
        let until = stage.sim.with(|world| world.now) + days.as_millis() as i64;
        while stage.sim.with(|world| world.now) < until {
            assert!(stage.pass_to_next());
            stage.run(&[Deadlines, Writer]);
            hops += 1;
            for process in stage.sim.processes.keys().copied().collect::<Vec<_>>() {
                stage.sim.crash(process, 0);
            }
        }
        assert!(hops > 100, "a wait of days goes in hops: {hops}");
        assert!(stage.record("r0", 1).is_none());
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        stage.run(&[Orchestrator]);
        assert_eq!(stage.made("pay").len(), 1);
        assert_eq!(stage.record("r0", 3).unwrap().outcome, OutcomeKind::Answer);
        stage.end();
    }
}

#[test]
fn a_step_of_a_plan_waits_and_goes_on_with_the_approved_call() {
    for engine in ENGINES {
        for approve in [true, false] {
            let scenario = Scenario::new()
                .work("r0.0", Kind::React(vec![Use::Pay]))
                .of("r0", Kind::Plan(vec![("r0.0".into(), vec![])]));
            let mut stage = Stage::asked(scenario, engine);
            stage.run(&[Orchestrator]);
            assert_eq!(stage.record("r0", 1).unwrap().outcome, OutcomeKind::Pause);
            let answer = if approve { Approve } else { Deny };
            let ada = stage.decide("r0", 1, "ada", answer);
            stage.finish(ada);
            stage.work(Orchestrator, "r0 3");
            let Activity::Executed(executed) = &stage.record("r0", 3).unwrap().activity else {
                panic!("no step");
            };
            let expected = if approve { "complete" } else { "failed" };
            assert_eq!(executed.steps[0].status, expected);
            stage.end();
            assert_eq!(stage.made("pay").len(), usize::from(approve));
        }
    }
}

#[test]
fn a_call_is_criticised_after_it_was_approved() {
    for engine in ENGINES {
        let scenario = Scenario::new().of("r0", Kind::Reflexion(vec![Use::Pay]));
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        let ada = stage.decide("r0", 0, "ada", Approve);
        stage.finish(ada);
        stage.work(Orchestrator, "r0 2");
        let Activity::Iterated(call) = &stage.record("r0", 2).unwrap().activity else {
            panic!("no call");
        };
        assert!(call.critique.is_some());
        stage.end();
        assert_eq!(stage.made("pay").len(), 1);
    }
}

// 11
#[test]
fn after_unknown_an_equal_call_waits_for_a_person() {
    for engine in ENGINES {
        for approve in [true, false] {
            let scenario = Scenario::new().react("r0", &[Use::Write, Use::Write]);
            let mut stage = Stage::asked(scenario, engine);
            let first = stage.give(Orchestrator, 0, "r0 0");
            stage.run_to(first, During, Call, "write");
            stage.crash(first);
            // The time of the call, and what its owner is waited for where attempts are noted.
            for seconds in [60, 5] {
                stage.pass(Duration::from_secs(seconds));
                stage.run(&[Orchestrator]);
            }
            let asked = stage.pause("r0", 1).asked;
            assert!(asked.after_unknown && asked.reason.contains("nobody knows"));
            let answer = if approve { Approve } else { Deny };
            let ada = stage.decide("r0", 1, "ada", answer);
            stage.finish(ada);
            stage.end();
            assert_eq!(stage.starts(), if approve { 2 } else { 1 });
        }
    }
}

#[test]
fn a_subagent_that_waits_answers_its_parent_when_it_is_approved_in_time() {
    for engine in ENGINES {
        let mut stage = paused_child(engine);
        let ada = stage.decide("r0.1", 0, "ada", Approve);
        stage.finish(ada);
        stage.run_all();
        let verdict = stage.verdict("r0", 0).unwrap();
        assert_eq!(verdict.cause, JoinCause::Complete);
        assert_eq!(verdict.members[1].status, CompletionStatus::Answered);
        stage.end();
    }
}
