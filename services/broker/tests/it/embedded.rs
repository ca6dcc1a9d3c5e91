//! What only the embedded broker promises: units, hand-over inside a transaction, retention, counts.

use crate::contract::Fixture;
use crate::support::{Embedded, START, embedded, open};
use agentfleet_broker::{
    Broker, Consumer, Delivery, Durability, EmbeddedBroker, Error, Options, Outgoing, Parcel,
    SubscriptionStats,
};
use agentfleet_schema::topics::{AGENT_REQUEST, AGENT_RESPONSE, DEAD_LETTER, Topic, property};
use agentfleet_storage::{self as storage, Database};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_hours(24);

fn parcel(topic: &Topic, text: &str) -> Parcel {
    Parcel::of(message(topic, text)).unwrap()
}

fn message(topic: &Topic, body: &str) -> Outgoing {
    Outgoing {
        topic: topic.clone(),
        payload: body.into(),
        properties: BTreeMap::new(),
        deliver_at: None,
        durability: Durability::Durable,
    }
}

fn response(key: &str, body: &str) -> Outgoing {
    let properties = [(property::ROOT.to_owned(), key.to_owned())].into();
    Outgoing {
        properties,
        ..message(&AGENT_RESPONSE, body)
    }
}

async fn subscribe(broker: &EmbeddedBroker, topic: &Topic, name: &str) -> Box<dyn Consumer> {
    let subscription = agentfleet_broker::Subscription {
        topic: topic.clone(),
        name: name.to_owned(),
        only: None,
        lease: LEASE,
        max_deliveries: Some(2),
    };
    broker.subscribe(subscription).await.unwrap()
}

async fn publish(broker: &EmbeddedBroker, bodies: &[&str]) {
    let messages = bodies
        .iter()
        .map(|body| message(&AGENT_REQUEST, body))
        .collect();
    broker.publish(messages).await.unwrap();
}

/// What is ready now.
async fn ready(fixture: &Embedded, consumer: &mut dyn Consumer) -> Vec<Delivery> {
    let mut all = Vec::new();
    loop {
        tokio::select! {
            biased;
            more = consumer.receive(100) => all.extend(more.unwrap()),
            () = fixture.settle() => return all,
        }
    }
}

fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let text = |delivery: &Delivery| String::from_utf8(delivery.payload.to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

async fn rows(database: &Database, table: &'static str) -> i64 {
    let count = database.read(move |connection| {
        Ok(
            connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get(0)
            })?,
        )
    });
    count.await.unwrap()
}

#[tokio::test]
async fn a_unit_commits_what_it_published_and_acknowledged_or_nothing_of_it() {
    let fixture = embedded(1);
    let broker = fixture.brokers[0].clone();
    let mut consumer = subscribe(&broker, &AGENT_REQUEST, "workers").await;
    publish(&broker, &["step 0"]).await;
    for fails in [true, false] {
        let held = match ready(&fixture, consumer.as_mut()).await.as_slice() {
            [held] => held.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(held.payload.as_ref(), b"step 0");
        let (inside, delivery) = (broker.clone(), held.clone());
        let new_topic = Topic::named("first used here");
        let hop = broker
            .database()
            .write(storage::Durability::Durable, move |unit| {
                inside.publish_in(
                    unit,
                    &[parcel(&AGENT_REQUEST, "step 1"), parcel(&new_topic, "x")],
                )?;
                inside.ack_in(unit, &delivery)?;
                if fails {
                    Err(storage::Error::Closed)
                } else {
                    Ok(())
                }
            });
        // At the same time, and perhaps in the same transaction, somebody else succeeds.
        let other = broker.publish(vec![response("other", "unharmed")]);
        let (hop, other) = tokio::join!(hop, other);
        assert_eq!(hop.is_err(), fails);
        other.unwrap();
        let arrived = ready(&fixture, consumer.as_mut()).await;
        if fails {
            assert!(arrived.is_empty(), "{arrived:?}");
            // It is still held, so it can still be handed back.
            broker.nack(&held, Duration::ZERO).await.unwrap();
        } else {
            assert_eq!(bodies(&arrived), ["step 1"]);
        }
    }
    let retained = broker.read(&AGENT_RESPONSE, "other", 0, 10).await.unwrap();
    assert_eq!(retained.len(), 2);
    assert_eq!(broker.database().problems().unwrap(), [""; 0]);
}

#[tokio::test]
async fn the_next_step_is_handed_out_in_the_transaction_that_published_it() {
    let fixture = embedded(1);
    let broker = fixture.brokers[0].clone();
    let mut consumer = subscribe(&broker, &AGENT_REQUEST, "workers").await;
    publish(&broker, &["step 0"]).await;
    let mut held = consumer.receive(1).await.unwrap().remove(0);
    for step in 1..5 {
        let inside = broker.clone();
        let hop = broker
            .database()
            .write(storage::Durability::Durable, move |unit| {
                inside.publish_in(unit, &[parcel(&AGENT_REQUEST, &format!("step {step}"))])?;
                inside.ack_in(unit, &held)?;
                Ok(unit.transaction())
            });
        // The worker already waits when it commits.
        let (next, hop) = tokio::join!(biased; consumer.receive(1), hop);
        held = next.unwrap().remove(0);
        assert_eq!(held.payload.as_ref(), format!("step {step}").as_bytes());
        let after = broker
            .database()
            .write(storage::Durability::Process, |unit| Ok(unit.transaction()));
        assert_eq!(
            after.await.unwrap(),
            hop.unwrap() + 1,
            "no transaction in between"
        );
    }
}

/// The number of the next transaction.
async fn transaction(broker: &EmbeddedBroker) -> u64 {
    let number = |unit: &mut storage::Unit<'_>| Ok(unit.transaction());
    broker
        .database()
        .write(storage::Durability::Process, number)
        .await
        .unwrap()
}

#[tokio::test]
async fn waiting_for_nothing_writes_nothing() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut consumer = subscribe(broker, &AGENT_REQUEST, "workers").await;
    let before = transaction(broker).await;
    for _ in 0..10 {
        tokio::select! {
            biased;
            _ = consumer.receive(1) => panic!("nothing was published"),
            () = tokio::task::yield_now() => {}
        }
        fixture.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(transaction(broker).await, before + 1);
}

#[tokio::test]
async fn a_delivery_that_lost_its_message_does_not_keep_the_writer_busy() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut consumer = subscribe(broker, &AGENT_REQUEST, "workers").await;
    publish(broker, &["a"]).await;
    let damage = broker
        .database()
        .write(storage::Durability::Process, |unit| {
            Ok(unit.tx().execute("DELETE FROM messages", [])?)
        });
    assert_eq!(damage.await.unwrap(), 1);
    let waiting = tokio::spawn(async move { consumer.receive(1).await.unwrap() });
    fixture.settle().await;
    let before = transaction(broker).await;
    for _ in 0..10 {
        fixture.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    assert_eq!(transaction(broker).await, before + 1);
    publish(broker, &["b"]).await;
    assert_eq!(bodies(&waiting.await.unwrap()), ["b"]);
}

#[tokio::test]
async fn what_comes_due_is_handed_out_however_busy_the_writer_is() {
    let fixture = embedded(1);
    let broker = fixture.brokers[0].clone();
    let mut consumer = subscribe(&broker, &AGENT_REQUEST, "workers").await;
    let delayed = Outgoing {
        deliver_at: Some(START + 1000),
        ..message(&AGENT_REQUEST, "due")
    };
    broker.publish(vec![delayed]).await.unwrap();
    // Dropping the consumer would hand the message back, in a transaction more.
    let waiting = tokio::spawn(async move { (consumer.receive(1).await.unwrap(), consumer) });
    fixture.settle().await;

    // The second operation is queued while the first is running, so the writer is never idle.
    let (release, held) = std::sync::mpsc::channel();
    let (entered, inside) = tokio::sync::oneshot::channel();
    let first = broker
        .database()
        .write(storage::Durability::Process, move |_| {
            entered.send(()).unwrap();
            let _: () = held.recv().unwrap();
            Ok(())
        });
    let opened = async {
        inside.await.unwrap();
        let second = transaction(&broker);
        let moved = async {
            fixture.clock.advance(Duration::from_secs(1));
            release.send(()).unwrap();
        };
        tokio::join!(biased; second, moved).0
    };
    let (first, second) = tokio::join!(first, opened);
    first.unwrap();
    assert_eq!(
        transaction(&broker).await,
        second + 1,
        "no transaction of its own"
    );
    assert_eq!(bodies(&waiting.await.unwrap().0), ["due"]);
}

#[tokio::test]
async fn what_nobody_subscribed_to_is_dropped_and_dead_letters_never() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    publish(broker, &["lost"]).await;
    assert_eq!(rows(broker.database(), "messages").await, 0);
    let mut late = subscribe(broker, &AGENT_REQUEST, "workers").await;
    publish(broker, &["found"]).await;
    let found = ready(&fixture, late.as_mut()).await;
    assert_eq!(bodies(&found), ["found"]);

    broker.dead_letter(&found[0], "no use").await.unwrap();
    let mut undertaker = subscribe(broker, &DEAD_LETTER, "undertaker").await;
    let dead = ready(&fixture, undertaker.as_mut()).await;
    assert_eq!(bodies(&dead), ["found"]);
    // From there nothing goes further, although this subscription has a limit.
    let error = broker.dead_letter(&dead[0], "again").await.unwrap_err();
    assert!(matches!(error, Error::AlreadyDead), "{error}");
    let mut dead = dead;
    for count in 1..6 {
        assert_eq!(dead[0].deliveries, Some(count));
        broker.nack(&dead[0], Duration::ZERO).await.unwrap();
        dead = ready(&fixture, undertaker.as_mut()).await;
    }
}

#[tokio::test]
async fn a_message_goes_with_its_last_delivery() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut one = subscribe(broker, &AGENT_REQUEST, "one").await;
    let mut two = subscribe(broker, &AGENT_REQUEST, "two").await;
    publish(broker, &["a", "b"]).await;
    for (consumer, left) in [(&mut one, 2), (&mut two, 0)] {
        for delivery in ready(&fixture, consumer.as_mut()).await {
            broker.ack(&delivery).await.unwrap();
        }
        assert_eq!(rows(broker.database(), "messages").await, left);
    }
    assert_eq!(rows(broker.database(), "deliveries").await, 0);
}

#[tokio::test]
async fn ids_are_not_used_again() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut consumer = subscribe(broker, &AGENT_REQUEST, "workers").await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..5 {
        publish(broker, &["a"]).await;
        let delivery = ready(&fixture, consumer.as_mut()).await.remove(0);
        broker.ack(&delivery).await.unwrap();
        assert_eq!(rows(broker.database(), "messages").await, 0);
        assert!(ids.insert(delivery.message_id));
    }
}

#[tokio::test]
async fn a_failed_operation_leaves_no_topic_behind_that_others_would_publish_to() {
    let fixture = embedded(1);
    let broker = fixture.brokers[0].clone();
    let new = Topic::named("new");
    for round in 0..20 {
        let topic = Topic::named(format!("new {round}"));
        let (inside, wanted) = (broker.clone(), topic.clone());
        let fails = broker
            .database()
            .write(storage::Durability::Process, move |unit| {
                inside.publish_in(unit, &[parcel(&wanted, "a"), parcel(&wanted, "b")])?;
                Err::<(), _>(storage::Error::Closed)
            });
        let (failed, consumer, other) = tokio::join!(
            fails,
            subscribe(&broker, &topic, "workers"),
            broker.publish(vec![message(&new, "x")])
        );
        assert!(failed.is_err());
        other.unwrap();
        let mut consumer = consumer;
        broker.publish(vec![message(&topic, "c")]).await.unwrap();
        assert_eq!(bodies(&ready(&fixture, consumer.as_mut()).await), ["c"]);
    }
}

#[tokio::test]
async fn the_newest_filter_of_a_subscription_holds_from_then_on() {
    let fixture = embedded(2);
    let [one, two] = [&fixture.brokers[0], &fixture.brokers[1]];
    let filtered = |value: &str| agentfleet_broker::Subscription {
        topic: AGENT_REQUEST,
        name: "workers".to_owned(),
        only: Some(("kind".to_owned(), value.to_owned())),
        lease: LEASE,
        max_deliveries: None,
    };
    let kind = |value: &str| Outgoing {
        properties: [("kind".to_owned(), value.to_owned())].into(),
        ..message(&AGENT_REQUEST, value)
    };
    let both = || vec![kind("a"), kind("b")];
    let mut consumer = one.subscribe(filtered("a")).await.unwrap();
    one.publish(both()).await.unwrap();
    // Another process changes it; what the first one knows of it is renewed.
    two.subscribe(filtered("b")).await.unwrap();
    one.publish(both()).await.unwrap();
    assert_eq!(
        bodies(&ready(&fixture, consumer.as_mut()).await),
        ["a", "b"]
    );
}

#[tokio::test]
async fn what_is_too_old_is_purged_unless_somebody_still_waits_for_it() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    broker.publish(vec![response("s", "old")]).await.unwrap();
    let mut consumer = subscribe(broker, &AGENT_RESPONSE, "slow").await;
    let mut worker = subscribe(broker, &AGENT_REQUEST, "workers").await;
    broker
        .publish(vec![
            response("s", "old, awaited"),
            message(&AGENT_REQUEST, "stuck"),
        ])
        .await
        .unwrap();
    fixture.clock.advance(DAY * 5);
    broker
        .publish(vec![response("s", "young"), response("t", "young")])
        .await
        .unwrap();
    assert_eq!(
        broker.purge().await.unwrap(),
        0,
        "a week is kept by default"
    );

    fixture.clock.advance(DAY * 3);
    assert_eq!(broker.purge().await.unwrap(), 2);
    let left = broker.read(&AGENT_RESPONSE, "s", 0, 10).await.unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].payload.as_ref(), b"young");
    let awaited = ready(&fixture, consumer.as_mut()).await;
    assert_eq!(bodies(&awaited), ["old, awaited", "young", "young"]);
    assert_eq!(bodies(&ready(&fixture, worker.as_mut()).await), ["stuck"]);
    // With its last delivery it goes for good.
    let before = rows(broker.database(), "messages").await;
    for delivery in &awaited {
        broker.ack(delivery).await.unwrap();
    }
    assert_eq!(rows(broker.database(), "messages").await, before - 1);

    // Erasure is by key, whatever the age.
    assert_eq!(broker.forget("t").await.unwrap(), 1);
    let left = broker.read(&AGENT_RESPONSE, "s", 0, 10).await.unwrap();
    assert_eq!(left.len(), 1);
}

#[tokio::test]
async fn purging_goes_through_any_number_of_messages() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(storage::ManualClock::new(START));
    let database = Database::open_with(directory.path(), Arc::clone(&clock) as _).unwrap();
    let chunks = Topic::named("chunks");
    let retain = [(chunks.clone(), DAY), (AGENT_RESPONSE, DAY * 100)].into();
    let broker = EmbeddedBroker::open(&database, Options { retain }).unwrap();
    for round in 0..5 {
        let mut messages: Vec<_> = (0..700).map(|_| message(&chunks, "x")).collect();
        messages.push(response("kept", "x"));
        broker.publish(messages).await.unwrap();
        clock.advance(DAY / 2);
        assert_eq!(
            broker.purge().await.unwrap(),
            if round < 2 { 0 } else { 700 }
        );
    }
    assert_eq!(
        broker
            .read(&AGENT_RESPONSE, "kept", 0, 10)
            .await
            .unwrap()
            .len(),
        5
    );
    assert_eq!(rows(&database, "messages").await, 2 * 700 + 5);
    // The key of a message without one is empty.
    assert_eq!(broker.read(&chunks, "", 0, 10).await.unwrap().len(), 10);
}

#[tokio::test]
async fn only_retained_topics_can_be_read() {
    let fixture = embedded(1);
    let error = fixture.brokers[0]
        .read(&AGENT_REQUEST, "s", 0, 10)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::NotRetained(topic) if *topic == AGENT_REQUEST),
        "{error}"
    );
}

#[tokio::test]
async fn stats_tell_what_waits_what_is_delayed_and_what_is_worked_on() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut consumer = subscribe(broker, &AGENT_REQUEST, "workers").await;
    publish(broker, &["a", "b"]).await;
    let held = consumer.receive(1).await.unwrap();
    fixture.clock.advance(Duration::from_secs(5));
    publish(broker, &["c"]).await;
    let delayed = Outgoing {
        deliver_at: Some(START + 60_000),
        ..message(&AGENT_REQUEST, "d")
    };
    broker.publish(vec![delayed]).await.unwrap();
    let expected = |waiting, delayed, in_flight, oldest| SubscriptionStats {
        topic: AGENT_REQUEST.to_string(),
        subscription: "workers".to_owned(),
        waiting,
        delayed,
        in_flight,
        oldest,
    };
    let stats = async || broker.stats().await.unwrap().remove(0);
    assert_eq!(stats().await, expected(2, 1, 1, Some(START)));
    // A lease that ran out is no longer work in progress.
    fixture.clock.advance(LEASE);
    assert_eq!(stats().await, expected(3, 1, 0, Some(START)));
    broker.ack(&held[0]).await.unwrap();
    fixture.clock.advance(LEASE);
    assert_eq!(stats().await, expected(3, 0, 0, Some(START)));
    let backlog = broker.backlog().await.unwrap();
    let find = |name: &str| backlog.iter().find(|(found, _)| found == name).unwrap().1;
    assert_eq!(find("agent-request/workers"), 3);
    assert_eq!(find("dead-letter/undertaker"), 0);
}

#[tokio::test]
async fn what_the_disk_has_no_room_for_is_refused_as_worth_another_try() {
    let fixture = embedded(1);
    let broker = &fixture.brokers[0];
    let mut consumer = subscribe(broker, &AGENT_REQUEST, "workers").await;
    let limit = |pages: i64| {
        broker
            .database()
            .write(storage::Durability::Process, move |unit| {
                Ok(unit
                    .tx()
                    .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)
            })
    };
    limit(1).await.unwrap();
    // Nothing that packing makes small.
    let large: String = (0..20_000u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_string())
        .collect();
    let error = broker
        .publish(vec![message(&AGENT_REQUEST, &large)])
        .await
        .unwrap_err();
    assert!(error.retry().is_some(), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    limit(1 << 30).await.unwrap();
    publish(broker, &["later"]).await;
    assert_eq!(bodies(&consumer.receive(10).await.unwrap()), ["later"]);
}

#[tokio::test]
async fn messages_survive_closing_and_backups() {
    let fixture = embedded(1);
    let broker = fixture.brokers[0].clone();
    drop(subscribe(&broker, &AGENT_REQUEST, "workers").await);
    publish(&broker, &["a"]).await;
    let copy = fixture.directory.path().join("copy.db");
    broker.database().backup(&copy, |_| {}).unwrap();
    let Embedded {
        brokers,
        clock,
        directory,
        ..
    } = fixture;
    drop((broker, brokers));

    let restored = directory.path().join("restored");
    Database::restore(&copy, &restored, |_| {}).unwrap();
    for place in [directory.path(), restored.as_path()] {
        let broker = open(place, &clock);
        let mut consumer = subscribe(&broker, &AGENT_REQUEST, "workers").await;
        assert_eq!(
            bodies(&consumer.receive(10).await.unwrap()),
            ["a"],
            "{}",
            place.display()
        );
    }
}

#[tokio::test]
async fn a_delayed_message_comes_by_the_clock_on_the_wall() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path()).unwrap();
    let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
    let mut consumer = subscribe(&broker, &AGENT_REQUEST, "workers").await;
    let due = database.clock().now() + 50;
    let delayed = Outgoing {
        deliver_at: Some(due),
        ..message(&AGENT_REQUEST, "a")
    };
    broker.publish(vec![delayed]).await.unwrap();
    let delivery = consumer.receive(1).await.unwrap().remove(0);
    assert!(database.clock().now() >= due);
    assert_eq!(delivery.payload.as_ref(), b"a");
}

async fn comes_to(broker: &EmbeddedBroker, topic: &Topic, expected: u64) {
    let reached = async {
        while broker.reach(topic).await.unwrap() != Some(expected) {
            tokio::task::yield_now().await;
        }
    };
    let patience = Duration::from_secs(60);
    tokio::time::timeout(patience, reached)
        .await
        .expect("it comes to that");
}

#[tokio::test]
async fn a_listener_ends_with_who_holds_it_its_broker_or_its_process() {
    let place = embedded(1);
    let (broker, topic) = (&place.brokers[0], Topic::named("answers"));
    let held = broker.listen(&topic).await.unwrap();
    assert_eq!(broker.reach(&topic).await.unwrap(), Some(1));
    drop(held);
    comes_to(broker, &topic, 0).await;
    let _held = broker.listen(&topic).await.unwrap();
    broker.close().await;
    assert_eq!(broker.reach(&topic).await.unwrap(), Some(0));

    // A process that is killed removes nothing.
    let (path, clock) = (place.directory.path().to_owned(), Arc::clone(&place.clock));
    let named = topic.clone();
    let process = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let held = runtime.block_on(async { open(&path, &clock).listen(&named).await.unwrap() });
        runtime.shutdown_background();
        drop(held);
    });
    process.join().unwrap();
    broker.publish(vec![message(&topic, "late")]).await.unwrap();
    let _other = broker.listen(&Topic::named("others")).await.unwrap();
    comes_to(broker, &topic, 0).await;
    let kept = broker.kept(0, 10).await.unwrap();
    assert!(kept.is_empty(), "{kept:?}");
}
