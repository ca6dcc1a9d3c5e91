//! What an attempt finds of another one that is dead, slow, or of another engine:
//! its notes, its fence, its call.

use super::{ENGINES, JOIN, SEQUENTIAL, ended_behind, fence, next_try};
use agentfleet_aggregator::Endings;
use agentfleet_broker::{Broker as _, Delivery, EmbeddedBroker, Options};
use agentfleet_documents::{Documents as _, EmbeddedDocuments};
use agentfleet_orchestrator::Orchestrator as Worker;
use agentfleet_runtime::{Disposition, EmbeddedCommitter, Handler as _, outgoing, staged};
use agentfleet_schema::keys;
use agentfleet_schema::records::{IntentRecord, StepRecord};
use agentfleet_storage::Database;
use agentfleet_tests::directed::Stage;
use agentfleet_tests::effect::Fault;
use agentfleet_tests::effect::Verb::{Call, Chat, Commit, Create, Publish, Read};
use agentfleet_tests::effect::When::{After, Before, During};
use agentfleet_tests::queues::Role::{Deadlines, Orchestrator};
use agentfleet_tests::queues::TaskId;
use agentfleet_tests::scenario::{Kind, Scenario, Use};
use agentfleet_tests::sim::Engine;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// What clocks may differ by, in milliseconds.
const SKEW: i64 = 2_000;
/// What is put back to come at once.
const AT_ONCE: Duration = Duration::from_millis(200);

/// A step in the hands of a worker that lives, the second process; the first one comes beside it.
fn owned(uses: &[Use], to: impl FnOnce(&mut Stage, TaskId)) -> (Stage, TaskId) {
    let scenario = Scenario::new().react("r0", uses);
    let mut stage = Stage::asked(scenario, Engine::DISTRIBUTED);
    let owner = stage.give(Orchestrator, 1, "r0 0");
    to(&mut stage, owner);
    (stage, owner)
}

/// Many leases pass. The owner renews its note every second, as late as it may: whoever is due comes
/// just before.
fn owner_lives_on(stage: &mut Stage, owner: TaskId) {
    for _ in 0..30 {
        stage.pass(SECOND);
        stage.run(&[Orchestrator]);
        stage.keep_lease(owner);
        assert!(stage.record("r0", 0).is_none(), "{}", stage.story());
    }
}

// 28
#[test]
fn a_call_is_not_unknown_while_its_owner_lives_whatever_clocks_say() {
    for ahead in [SKEW, 0, -SKEW] {
        let (mut stage, owner) = owned(&[Use::Write], |stage, owner| {
            stage.run_to(owner, During, Call, "write");
        });
        let waiter = stage.worker(Orchestrator, 0);
        stage.sim.with(|world| world.skews.insert(waiter, ahead));
        let again = stage.give_again(Orchestrator, 0, "r0 0");
        stage.finish(again);
        owner_lives_on(&mut stage, owner);
        stage.finish(owner);
        stage.end();
        let why = format!("{ahead} ms ahead\n{}", stage.story());
        assert_eq!(stage.count("unknown calls"), 0, "{why}");
        assert_eq!(stage.starts(), 1, "{why}");
    }
}

// 28
#[test]
fn where_no_attempts_are_noted_a_call_has_its_time_whatever_clocks_say() {
    for ahead in [SKEW, 0, -SKEW] {
        let scenario = Scenario::new().react("r0", &[Use::Write]);
        let mut stage = Stage::asked(scenario, Engine::MIXED);
        let waiter = stage.worker(Orchestrator, 0);
        stage.sim.with(|world| world.skews.insert(waiter, ahead));
        let owner = stage.give(Orchestrator, 1, "r0 0");
        stage.run_to(owner, During, Call, "write");
        // The tool may take twenty seconds.
        stage.pass(Duration::from_millis(19_999));
        let again = stage.give_again(Orchestrator, 0, "r0 0");
        stage.finish(again);
        stage.finish(owner);
        stage.end();
        assert_eq!(stage.count("unknown calls"), 0, "{}", stage.story());
        assert_eq!(stage.starts(), 1);
    }
}

/// Everything of a simulated fleet that was moved onto the embedded engine, with the message of a step.
struct Moved {
    _directory: tempfile::TempDir,
    broker: EmbeddedBroker,
    documents: EmbeddedDocuments,
    committer: EmbeddedCommitter,
}

impl Moved {
    async fn from(stage: &Stage) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        let objects = stage.sim.with(|world| world.documents.clone());
        for (key, body) in objects {
            documents.create(&key, body.to_vec()).await.unwrap();
        }
        let committer = EmbeddedCommitter::new(database, broker.clone(), documents.clone());
        Self {
            _directory: directory,
            broker,
            documents,
            committer,
        }
    }

    /// The shipped worker comes to the step of a message.
    async fn work(&self, stage: &Stage, before: &StepRecord) {
        let next = before.request_for(&before.session).unwrap().clone();
        let options = stage.sim.options();
        let mut consumer = self.broker.subscribe(options.subscription()).await.unwrap();
        self.broker.publish(vec![outgoing(next)]).await.unwrap();
        let delivery: Delivery = consumer.receive(1).await.unwrap().remove(0);
        let parts = agentfleet_orchestrator::Parts {
            broker: Arc::new(self.broker.clone()),
            documents: Arc::new(self.documents.clone()),
            committer: Arc::new(self.committer.clone()),
            ..stage.sim.parts().0
        };
        let worker = Worker::new(parts, options.clone());
        assert_eq!(worker.handle(&delivery).await, Disposition::Settled);
    }

    /// Somebody cancels the run.
    async fn cancel(&self, stage: &Stage) {
        let parts = agentfleet_aggregator::Parts {
            broker: Arc::new(self.broker.clone()),
            documents: Arc::new(self.documents.clone()),
            committer: Arc::new(self.committer.clone()),
            ..stage.sim.parts().1
        };
        let session = stage.session("r0");
        let endings = Endings::new(parts);
        let ended = endings.end(&session, "cancelled", "somebody").await;
        ended.unwrap();
    }
}

/// Whether what a fence says was staged is in its place, on the engine that wrote the fence and on the
/// embedded one.
fn is_in_place_on_both(mut stage: Stage, cancelled: bool, texts: &[&str]) {
    let session = stage.session("r0");
    let fence = stage.document(&keys::intent(&session, 1, 0)).unwrap();
    let fence: IntentRecord = serde_json::from_str(&fence).unwrap();
    let key = keys::outcome(&session, 1);
    let expected = staged(&key, fence.record.unwrap().as_bytes()).unwrap();
    for text in texts {
        let is_there = expected.iter().any(|(key, _)| key.contains(text));
        assert!(is_there, "no `{text}` in {expected:?}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let moved = Moved::from(&stage).await;
        if cancelled {
            moved.cancel(&stage).await;
        } else {
            moved.work(&stage, &stage.record("r0", 0).unwrap()).await;
        }
        assert!(moved.documents.get(&key).await.unwrap().is_some());
        let marker = keys::published(&session, 1);
        assert!(moved.documents.get(&marker).await.unwrap().is_some());
        for (key, body) in &expected {
            let there = moved.documents.get(key).await.unwrap();
            assert_eq!(there.as_deref(), Some(&body[..]), "{key} on the embedded");
        }
    });
    if cancelled {
        let cancel = stage.cancel(&session);
        stage.finish(cancel);
    }
    stage.run(&[Orchestrator]);
    for (key, body) in expected {
        let text = String::from_utf8(body).unwrap();
        assert_eq!(stage.document(&key), Some(text), "{key} on the staged");
    }
    stage.end();
}

// 29
#[test]
fn a_fence_that_comes_to_the_embedded_engine_brings_the_objects_of_its_step() {
    for engine in SEQUENTIAL {
        // A call was on offer, and the step read something instead.
        let scenario = Scenario::new().react("r0", &[Use::Read, Use::Read, Use::Write]);
        let mut stage = Stage::asked(scenario, engine);
        stage.work(Orchestrator, "r0 0");
        let dies = stage.give(Orchestrator, 0, "r0 1");
        stage.run_to(dies, Before, Create, "outcome");
        stage.crash(dies);
        is_in_place_on_both(stage, false, &["thought", "observation"]);
    }
}

// 29
#[test]
fn an_end_that_comes_to_the_embedded_engine_in_a_fence_brings_its_answer() {
    for engine in SEQUENTIAL {
        for cancelled in [true, false] {
            let (mut stage, other) = ended_behind(engine, |_| ());
            stage.crash(other);
            is_in_place_on_both(stage, cancelled, &["answer"]);
        }
    }
}

// 30
#[test]
fn beside_a_living_model_call_the_model_is_asked_at_most_once_more() {
    // The model turns the second attempt away, or answers both.
    for away in [true, false] {
        let (mut stage, owner) = owned(&[], |stage, owner| {
            stage.run_to(owner, During, Chat, "");
        });
        if away {
            stage.fail_next(Chat, "", Fault::Refused);
        }
        let again = stage.give_again(Orchestrator, 0, "r0 0");
        stage.finish(again);
        if away {
            owner_lives_on(&mut stage, owner);
        }
        stage.finish(owner);
        stage.end();
        assert_eq!(stage.count("model calls"), 2, "{}", stage.story());
    }
}

// 30
#[test]
fn beside_a_call_that_begins_meanwhile_the_model_is_asked_once_more_and_not_once_per_lease() {
    let (mut stage, owner) = owned(&[Use::Write], |stage, owner| {
        stage.run_to(owner, During, Chat, "");
    });
    let again = stage.give_again(Orchestrator, 0, "r0 0");
    stage.run_to(again, During, Chat, "");
    stage.run_to(owner, During, Call, "write");
    stage.finish(again);
    owner_lives_on(&mut stage, owner);
    assert_eq!(stage.count("model calls"), 2, "{}", stage.story());
    stage.finish(owner);
    stage.end();
    assert_eq!(stage.starts(), 1);
}

// 30
#[test]
fn beside_a_call_that_was_found_begun_no_model_is_asked() {
    let (mut stage, owner) = owned(&[Use::Write], |stage, owner| {
        stage.run_to(owner, During, Call, "write");
    });
    let again = stage.give_again(Orchestrator, 0, "r0 0");
    stage.finish(again);
    owner_lives_on(&mut stage, owner);
    assert_eq!(stage.count("model calls"), 1, "{}", stage.story());
    stage.finish(owner);
    stage.end();
    assert_eq!(stage.starts(), 1);
}

/// A supervisor whose subagent wants the same call in both rounds, and whose worker died in it in the
/// first.
fn died_in_the_first_round(engine: Engine) -> Stage {
    let round = || vec!["r0.0".to_owned(), "r0.1".to_owned()];
    let scenario = Scenario::new()
        .supervisor("r0", 2)
        .work("r0", Kind::Supervisor(vec![round(), round()]))
        .work("r0.0", Kind::React(vec![Use::Write]));
    let mut stage = Stage::asked(scenario, engine);
    stage.work(Orchestrator, "r0 0");
    stage.run_to_answer("r0", 1);
    let dies = stage.give(Orchestrator, 0, "r0.0 0");
    stage.run_to(dies, During, Call, "write");
    stage.crash(dies);
    stage
}

/// The second round comes to the equal call, and nobody makes it without a person.
fn second_round_asks_a_person(mut stage: Stage) {
    stage.end();
    assert_eq!(stage.starts(), 1, "{}", stage.story());
    assert_eq!(stage.count("syntheses"), 2, "{}", stage.story());
    assert_eq!(stage.count("pauses after unknown"), 1, "{}", stage.story());
}

// 31
#[test]
fn a_call_that_a_join_deadline_cut_off_is_not_made_again_by_the_next_round() {
    for engine in ENGINES {
        let mut stage = died_in_the_first_round(engine);
        stage.pass(JOIN);
        stage.work(Deadlines, "r0 0 join");
        second_round_asks_a_person(stage);
    }
}

// 31
#[test]
fn a_call_that_a_cancel_cut_off_is_not_made_again_by_the_next_round() {
    for engine in ENGINES {
        let mut stage = died_in_the_first_round(engine);
        let cancel = stage.cancel_child("r0", 0, 0);
        stage.finish(cancel);
        second_round_asks_a_person(stage);
    }
}

// 31
#[test]
fn a_call_that_a_worker_finds_cut_off_is_not_made_again_by_the_next_round() {
    for engine in ENGINES {
        let mut stage = died_in_the_first_round(engine);
        stage.pass(JOIN);
        let deadline = stage.give(Deadlines, 0, "r0 0 join");
        let (verb, _) = fence(engine);
        stage.run_to(deadline, After, verb, "fanin");
        stage.crash(deadline);
        stage.work(Orchestrator, "r0.0 0");
        second_round_asks_a_person(stage);
    }
}

// 31
#[test]
fn a_round_is_released_when_the_calls_of_the_one_before_are_told_and_no_sooner() {
    for engine in ENGINES {
        for dies in [true, false] {
            let mut stage = died_in_the_first_round(engine);
            // Its broker gives it out again late.
            stage.keep(Orchestrator, "r0.0 0");
            stage.lose(Orchestrator, "r0.0 0");
            stage.pass(JOIN);
            let deadline = stage.give(Deadlines, 0, "r0 0 join");
            let (verb, what) = if engine.atomic {
                (Commit, "fanin")
            } else {
                (Publish, "agent-request")
            };
            stage.run_to(deadline, After, verb, what);
            if dies {
                stage.crash(deadline);
            }
            stage.run(&[Orchestrator]);
            stage.bring_back();
            second_round_asks_a_person(stage);
        }
    }
}

/// Puts the second step back because its model is away, long before.
fn put_back_long_ago(stage: &mut Stage) {
    stage.fail_next(Chat, "", Fault::Refused);
    stage.work(Orchestrator, "r0 1");
    stage.pass(60 * SECOND);
}

/// A run whose second step was put back long ago.
fn waited_long(engine: Engine) -> Stage {
    let scenario = Scenario::new()
        .react("r0", &[Use::Read, Use::Write])
        .with(|s| s.fickle = true);
    let mut stage = Stage::asked(scenario, engine);
    stage.work(Orchestrator, "r0 0");
    put_back_long_ago(&mut stage);
    stage
}

// 33
#[test]
fn who_goes_past_the_fence_of_an_ended_step_comes_again_at_once() {
    for engine in SEQUENTIAL {
        let (mut stage, other) = ended_behind(engine, put_back_long_ago);
        stage.finish(other);
        assert_eq!(stage.delay(Orchestrator, "r0 1"), AT_ONCE);
        stage.end();
    }
}

// 33
#[test]
fn who_finds_a_call_where_its_fence_would_be_comes_again_at_once() {
    for engine in ENGINES {
        let mut stage = waited_long(engine);
        next_try(&mut stage, "r0 agent-react 1 0", 2);
        let ends = stage.give(Orchestrator, 0, "r0 1");
        let (verb, what) = fence(engine);
        stage.run_to(ends, Before, verb, what);
        next_try(&mut stage, "r0 agent-react 1 0", 0);
        let calls = stage.give_again(Orchestrator, 1, "r0 1");
        stage.run_to(calls, During, Call, "write");
        stage.finish(ends);
        assert_eq!(stage.delay(Orchestrator, "r0 1"), AT_ONCE);
        stage.finish(calls);
        stage.end();
        assert_eq!(stage.starts(), 1);
        assert_eq!(stage.count("unknown calls"), 0);
    }
}

// 33
#[test]
fn what_is_away_is_looked_for_after_pauses_that_grow() {
    for engine in ENGINES {
        let mut stage = waited_long(engine);
        stage.fail_next(Read, "", Fault::Refused);
        stage.work(Orchestrator, "r0 1");
        let pause = stage.delay(Orchestrator, "r0 1");
        assert!(
            pause >= 15 * SECOND,
            "{pause:?} after a minute\n{}",
            stage.story()
        );
        stage.end();
    }
}
