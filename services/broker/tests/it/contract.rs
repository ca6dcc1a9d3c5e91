//! What every broker must do, as one suite of checks written against the trait.
//!
//! An implementation runs all of it with one line in its tests: `broker_contract!(fixture())`, where
//! `fixture` is an async function that returns a [`Fixture`]. The broker behind it may be shared:
//! every check works on topics of its own. A check panics where the contract is broken.

use agentfleet_broker::{
    Broker, Consumer, Delivery, Durability, Error, MAX_PAYLOAD, Outgoing, Subscription,
};
use agentfleet_schema::topics::{AGENT_REQUEST, AGENT_RESPONSE, DEAD_LETTER, Topic, property};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A broker under test, and its surroundings.
#[async_trait]
pub(crate) trait Fixture: Send + Sync + 'static {
    /// A broker on the same queues, perhaps each time another one, as other processes have.
    /// [`AGENT_RESPONSE`] is retained.
    fn broker(&self) -> Arc<dyn Broker>;

    /// Lets time pass for the broker.
    async fn pass(&self, time: Duration);

    /// Returns once everything that can be delivered to who waits now has been.
    async fn settle(&self);

    /// Whether all messages of one publish become visible at once.
    fn atomic(&self) -> bool;

    /// Makes a name that no other check uses.
    fn unique(&self, name: &str) -> String;
}

/// Runs every check of the contract as a test of its own.
macro_rules! broker_contract {
    ($fixture:expr) => {
        broker_contract!(@each $fixture,
            a_message_arrives_as_it_was_published,
            nothing_of_a_publish_is_visible_if_a_part_is_refused,
            messages_of_one_publish_become_visible_together_if_the_broker_can,
            a_payload_over_the_limit_is_refused_by_name_and_size,
            a_subscription_receives_although_no_consumer_is_connected,
            every_subscription_gets_every_message,
            consumers_of_one_subscription_compete,
            receiving_waits_until_something_is_published,
            a_batch_has_at_most_as_many_messages_as_were_asked_for,
            receiving_may_be_cancelled_without_losing_anything,
            what_a_dropped_consumer_did_not_settle_goes_to_another,
            what_was_acknowledged_does_not_come_again,
            what_was_handed_back_comes_again_after_the_delay_with_its_count,
            what_is_held_beyond_its_lease_goes_to_another,
            a_held_message_may_be_held_for_longer,
            settling_twice_or_too_late_is_harmless,
            after_the_last_delivery_a_message_moves_to_the_dead_letter_topic,
            a_message_may_be_given_up_at_once,
            a_subscription_without_a_limit_never_gives_up,
            a_delayed_message_is_not_delivered_early,
            a_filter_lets_through_what_has_the_value_or_not_the_property,
            a_retained_topic_can_be_read_by_key_without_consuming_it,
            reading_waits_until_something_is_retained,
            from_a_mark_everything_later_can_be_read,
            the_backlog_counts_what_waits_and_what_is_delayed,
            a_subscription_that_is_established_receives_although_nobody_ever_consumed_it,
            who_listens_gets_what_is_published_from_then_on,
            a_topic_can_be_published_to_before_anything_is
        );
    };
    (@each $fixture:expr, $($check:ident),+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let fixture = $fixture.await;
                crate::contract::$check(&fixture).await;
            }
        )+
    };
}

const LEASE: Duration = Duration::from_secs(30);
const NO_TIME: Duration = Duration::ZERO;

fn topic(fixture: &dyn Fixture, name: &str) -> Topic {
    Topic::named(fixture.unique(name))
}

fn message(topic: &Topic, body: &str) -> Outgoing {
    Outgoing {
        topic: topic.clone(),
        payload: body.into(),
        properties: [("body".to_owned(), body.to_owned())].into(),
        deliver_at: None,
        durability: Durability::Durable,
    }
}

fn subscription(topic: &Topic) -> Subscription {
    Subscription {
        topic: topic.clone(),
        name: "workers".to_owned(),
        only: None,
        lease: LEASE,
        max_deliveries: None,
    }
}

/// A consumer with its broker: what one received is settled through the other.
struct Worker {
    broker: Arc<dyn Broker>,
    consumer: Box<dyn Consumer>,
}

async fn subscribe(fixture: &dyn Fixture, subscription: Subscription) -> Worker {
    let broker = fixture.broker();
    let consumer = broker.subscribe(subscription).await.unwrap();
    Worker { broker, consumer }
}

async fn publish(fixture: &dyn Fixture, topic: &Topic, bodies: &[&str]) {
    let messages = bodies.iter().map(|body| message(topic, body)).collect();
    fixture.broker().publish(messages).await.unwrap();
}

fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload.to_vec()).unwrap()
}

fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let mut bodies: Vec<_> = deliveries.iter().map(body).collect();
    bodies.sort();
    bodies
}

/// Receives until `count` messages are there.
async fn receive(worker: &mut Worker, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(worker.consumer.receive(count - all.len()).await.unwrap());
    }
    all
}

async fn one(worker: &mut Worker) -> Delivery {
    receive(worker, 1).await.remove(0)
}

/// What is ready now.
async fn ready(fixture: &dyn Fixture, worker: &mut Worker) -> Vec<Delivery> {
    let mut all = Vec::new();
    loop {
        tokio::select! {
            biased;
            more = worker.consumer.receive(100) => all.extend(more.unwrap()),
            () = fixture.settle() => return all,
        }
    }
}

async fn nothing_arrives(fixture: &dyn Fixture, worker: &mut Worker) {
    let arrived = ready(fixture, worker).await;
    assert!(arrived.is_empty(), "{:?}", bodies(&arrived));
}

/// Reads the dead letters with this body.
async fn mourner(fixture: &dyn Fixture, letter: &str) -> Worker {
    let own = Subscription {
        name: fixture.unique("mourners"),
        only: Some(("body".to_owned(), letter.to_owned())),
        ..subscription(&DEAD_LETTER)
    };
    subscribe(fixture, own).await
}

pub(crate) async fn a_message_arrives_as_it_was_published(fixture: &dyn Fixture) {
    let topic = topic(fixture, "plain");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    let mut outgoing = message(&topic, "");
    outgoing.payload = vec![0, 255, 10, 13, 0];
    let odd = [
        ("empty", ""),
        ("quotes", "\"'\\{}"),
        ("", "no key"),
        ("\u{e9}", "\u{1f980}\n\0"),
    ];
    outgoing.properties = odd
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    fixture
        .broker()
        .publish(vec![outgoing.clone()])
        .await
        .unwrap();
    let delivery = one(&mut consumer).await;
    assert_eq!(delivery.payload.as_ref(), outgoing.payload);
    assert_eq!(delivery.properties, outgoing.properties);
    assert_eq!(delivery.topic, topic);
    assert!(delivery.deliveries.is_none_or(|count| count == 1));
    assert!(delivery.published_at > 0);
    assert!(!delivery.message_id.is_empty());
}

pub(crate) async fn nothing_of_a_publish_is_visible_if_a_part_is_refused(fixture: &dyn Fixture) {
    let (one_topic, other_topic) = (topic(fixture, "one"), topic(fixture, "other"));
    let mut consumer = subscribe(fixture, subscription(&one_topic)).await;
    let mut other = subscribe(fixture, subscription(&other_topic)).await;
    let mut large = message(&other_topic, "");
    large.payload = vec![b'x'; MAX_PAYLOAD + 1];
    let refused = fixture
        .broker()
        .publish(vec![message(&one_topic, "a"), large])
        .await;
    assert!(refused.is_err());
    nothing_arrives(fixture, &mut consumer).await;

    let both = vec![message(&one_topic, "a"), message(&other_topic, "b")];
    fixture.broker().publish(both).await.unwrap();
    assert_eq!(body(&one(&mut consumer).await), "a");
    assert_eq!(bodies(&ready(fixture, &mut other).await), ["b"]);
    fixture.broker().publish(Vec::new()).await.unwrap();
}

pub(crate) async fn messages_of_one_publish_become_visible_together_if_the_broker_can(
    fixture: &dyn Fixture,
) {
    let topics = ["first", "second", "third"].map(|name| topic(fixture, name));
    let mut consumers = Vec::new();
    for topic in &topics {
        consumers.push(subscribe(fixture, subscription(topic)).await);
    }
    // If the broker is atomic, whoever sees one message of a publish sees all of them. All of them
    // come in any case, whichever is waited for first.
    for round in 0..9 {
        let seen = round % topics.len();
        let names: Vec<String> = (0..topics.len())
            .map(|part| format!("{round}.{part}"))
            .collect();
        let messages: Vec<Outgoing> = topics
            .iter()
            .zip(&names)
            .map(|(topic, name)| message(topic, name))
            .collect();
        let broker = fixture.broker();
        let publishing = tokio::spawn(async move { broker.publish(messages).await });
        let arrived = one(&mut consumers[seen]).await;
        assert_eq!(body(&arrived), names[seen]);
        let others = (0..topics.len()).filter(|part| *part != seen);
        if fixture.atomic() {
            for part in others {
                let found = bodies(&ready(fixture, &mut consumers[part]).await);
                assert_eq!(found, [names[part].as_str()], "seen: {}", names[seen]);
            }
        } else {
            for part in others {
                assert_eq!(body(&one(&mut consumers[part]).await), names[part]);
            }
        }
        publishing.await.unwrap().unwrap();
    }
}

pub(crate) async fn a_payload_over_the_limit_is_refused_by_name_and_size(fixture: &dyn Fixture) {
    let topic = topic(fixture, "large");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    let mut largest = message(&topic, "");
    largest.payload = vec![b'x'; MAX_PAYLOAD];
    fixture
        .broker()
        .publish(vec![largest.clone()])
        .await
        .unwrap();
    assert_eq!(one(&mut consumer).await.payload.len(), MAX_PAYLOAD);

    largest.payload.push(b'x');
    let error = fixture.broker().publish(vec![largest]).await.unwrap_err();
    let Error::TooLarge { size, limit, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((*size, *limit), (MAX_PAYLOAD + 1, MAX_PAYLOAD));
    for part in [topic.as_str(), &size.to_string(), &limit.to_string()] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(error.retry().is_none());
}

pub(crate) async fn a_subscription_receives_although_no_consumer_is_connected(
    fixture: &dyn Fixture,
) {
    let topic = topic(fixture, "absent");
    drop(subscribe(fixture, subscription(&topic)).await);
    publish(fixture, &topic, &["a", "b"]).await;
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    assert_eq!(bodies(&receive(&mut consumer, 2).await), ["a", "b"]);
}

pub(crate) async fn every_subscription_gets_every_message(fixture: &dyn Fixture) {
    let topic = topic(fixture, "shared");
    let mut consumers = Vec::new();
    for name in ["one", "two", "three"] {
        let named = Subscription {
            name: name.to_owned(),
            ..subscription(&topic)
        };
        consumers.push(subscribe(fixture, named).await);
    }
    publish(fixture, &topic, &["a", "b"]).await;
    for consumer in &mut consumers {
        let received = receive(consumer, 2).await;
        assert_eq!(bodies(&received), ["a", "b"]);
        // Settling it here settles it for nobody else.
        for delivery in received {
            consumer.broker.ack(&delivery).await.unwrap();
        }
    }
}

pub(crate) async fn consumers_of_one_subscription_compete(fixture: &dyn Fixture) {
    let topic = topic(fixture, "contested");
    let names: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let mut tasks = Vec::new();
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..4 {
        let mut consumer = subscribe(fixture, subscription(&topic)).await;
        let arrived = arrived.clone();
        tasks.push(tokio::spawn(async move {
            loop {
                for delivery in consumer.consumer.receive(3).await.unwrap() {
                    arrived.send(body(&delivery)).unwrap();
                    consumer.broker.ack(&delivery).await.unwrap();
                }
            }
        }));
    }
    for names in names.chunks(7) {
        publish(
            fixture,
            &topic,
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    }
    let mut seen = BTreeSet::new();
    while seen.len() < names.len() {
        let name = arrivals.recv().await.unwrap();
        assert!(seen.insert(name.clone()), "{name} came twice");
    }
    fixture.settle().await;
    assert!(arrivals.try_recv().is_err());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

pub(crate) async fn receiving_waits_until_something_is_published(fixture: &dyn Fixture) {
    let topic = topic(fixture, "later");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    nothing_arrives(fixture, &mut consumer).await;
    let waiting = tokio::spawn(async move { one(&mut consumer).await });
    fixture.settle().await;
    publish(fixture, &topic, &["a"]).await;
    assert_eq!(body(&waiting.await.unwrap()), "a");
}

pub(crate) async fn a_batch_has_at_most_as_many_messages_as_were_asked_for(fixture: &dyn Fixture) {
    let topic = topic(fixture, "many");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a", "b", "c", "d", "e"]).await;
    let mut all = Vec::new();
    for max in [1, 2, 100] {
        let batch = consumer.consumer.receive(max).await.unwrap();
        assert!((1..=max).contains(&batch.len()), "{} of {max}", batch.len());
        all.extend(batch);
    }
    all.extend(ready(fixture, &mut consumer).await);
    assert_eq!(bodies(&all), ["a", "b", "c", "d", "e"]);
    let ids: BTreeSet<_> = all.iter().map(|delivery| &delivery.message_id).collect();
    assert_eq!(ids.len(), 5, "ids are unique");
}

pub(crate) async fn receiving_may_be_cancelled_without_losing_anything(fixture: &dyn Fixture) {
    let topic = topic(fixture, "cancelled");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    let mut seen = BTreeSet::new();
    for round in 0..60 {
        let name = format!("{round:02}");
        let published = [name.as_str()];
        let publishing = publish(fixture, &topic, &published);
        tokio::pin!(publishing);
        match round % 3 {
            // Given up after the message was on its way, and not looked at again.
            0 => {
                let receiving = consumer.consumer.receive(1);
                tokio::pin!(receiving);
                let waits = std::future::poll_fn(|context| {
                    Poll::Ready(receiving.as_mut().poll(context).is_pending())
                });
                assert!(waits.await);
                publishing.await;
                fixture.settle().await;
            }
            // Given up at some moment around the publication.
            1 => tokio::select! {
                biased;
                () = &mut publishing => {}
                batch = consumer.consumer.receive(1) => {
                    // It may come before its publisher hears that it is stored.
                    let batch = batch.unwrap();
                    consumer.broker.ack(&batch[0]).await.unwrap();
                    seen.extend(bodies(&batch));
                }
            },
            // Given up before.
            _ => {
                tokio::select! {
                    biased;
                    batch = consumer.consumer.receive(1) => panic!("{:?}", bodies(&batch.unwrap())),
                    () = std::future::ready(()) => {}
                }
                publishing.await;
            }
        }
        if !seen.contains(&name) {
            let delivery = one(&mut consumer).await;
            assert_eq!(body(&delivery), name);
            assert!(
                delivery.deliveries.is_none_or(|count| count == 1),
                "nobody saw it before"
            );
            seen.insert(name.clone());
            consumer.broker.ack(&delivery).await.unwrap();
        }
        nothing_arrives(fixture, &mut consumer).await;
    }
}

pub(crate) async fn what_a_dropped_consumer_did_not_settle_goes_to_another(fixture: &dyn Fixture) {
    let topic = topic(fixture, "dropped");
    let mut first = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a", "b", "c"]).await;
    let held = receive(&mut first, 3).await;
    let (settled, kept): (Vec<_>, Vec<_>) = held.iter().partition(|held| body(held) == "b");
    first.broker.ack(settled[0]).await.unwrap();
    let mut second = subscribe(fixture, subscription(&topic)).await;
    nothing_arrives(fixture, &mut second).await;
    drop(first);
    let again = receive(&mut second, 2).await;
    assert_eq!(bodies(&again), ["a", "c"]);
    for delivery in &again {
        let before = kept
            .iter()
            .find(|kept| body(kept) == body(delivery))
            .unwrap();
        assert_eq!(before.message_id, delivery.message_id);
        assert!(delivery.deliveries.is_none_or(|count| count == 2));
    }
    nothing_arrives(fixture, &mut second).await;
}

pub(crate) async fn what_was_acknowledged_does_not_come_again(fixture: &dyn Fixture) {
    let topic = topic(fixture, "acknowledged");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a"]).await;
    let delivery = one(&mut consumer).await;
    consumer.broker.ack(&delivery).await.unwrap();
    fixture.pass(LEASE * 2).await;
    nothing_arrives(fixture, &mut consumer).await;
    drop(consumer);
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    nothing_arrives(fixture, &mut consumer).await;
}

pub(crate) async fn what_was_handed_back_comes_again_after_the_delay_with_its_count(
    fixture: &dyn Fixture,
) {
    let topic = topic(fixture, "handed-back");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a"]).await;
    let first = one(&mut consumer).await;
    consumer.broker.nack(&first, NO_TIME).await.unwrap();
    let second = one(&mut consumer).await;
    assert_eq!(second.message_id, first.message_id);
    assert!(second.deliveries.is_none_or(|count| count == 2));
    fixture
        .broker()
        .nack(&second, Duration::from_secs(10))
        .await
        .unwrap();
    nothing_arrives(fixture, &mut consumer).await;
    fixture.pass(Duration::from_secs(11)).await;
    let third = one(&mut consumer).await;
    assert_eq!(
        (&third.payload, &third.properties),
        (&first.payload, &first.properties)
    );
    assert!(third.deliveries.is_none_or(|count| count == 3));
}

pub(crate) async fn what_is_held_beyond_its_lease_goes_to_another(fixture: &dyn Fixture) {
    let topic = topic(fixture, "expired");
    let mut slow = subscribe(fixture, subscription(&topic)).await;
    let mut other = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a"]).await;
    let held = one(&mut slow).await;
    fixture.pass(LEASE / 2).await;
    nothing_arrives(fixture, &mut other).await;
    fixture.pass(LEASE).await;
    let again = one(&mut other).await;
    assert_eq!(again.message_id, held.message_id);
}

pub(crate) async fn a_held_message_may_be_held_for_longer(fixture: &dyn Fixture) {
    let topic = topic(fixture, "extended");
    let mut slow = subscribe(fixture, subscription(&topic)).await;
    let mut other = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a"]).await;
    let held = one(&mut slow).await;
    for _ in 0..3 {
        fixture.pass(LEASE * 2 / 3).await;
        slow.broker.extend(&held).await.unwrap();
        nothing_arrives(fixture, &mut other).await;
    }
    fixture.pass(LEASE * 2).await;
    assert_eq!(body(&one(&mut other).await), "a");
    // What was lost cannot be held on to: it stays with the other.
    slow.broker.extend(&held).await.unwrap();
}

pub(crate) async fn settling_twice_or_too_late_is_harmless(fixture: &dyn Fixture) {
    let topic = topic(fixture, "stale");
    let mut slow = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a"]).await;
    let stale = one(&mut slow).await;
    fixture.pass(LEASE * 2).await;
    let mut other = subscribe(fixture, subscription(&topic)).await;
    let held = one(&mut other).await;
    // None of these takes it away from who has it now.
    slow.broker.ack(&stale).await.unwrap();
    slow.broker.nack(&stale, NO_TIME).await.unwrap();
    slow.broker.dead_letter(&stale, "stale").await.unwrap();
    slow.broker.extend(&stale).await.unwrap();
    nothing_arrives(fixture, &mut slow).await;
    other.broker.nack(&held, NO_TIME).await.unwrap();
    let held = one(&mut other).await;
    for _ in 0..2 {
        other.broker.ack(&held).await.unwrap();
    }
    other.broker.nack(&held, NO_TIME).await.unwrap();
    other.broker.dead_letter(&held, "too late").await.unwrap();
    fixture.pass(LEASE * 2).await;
    nothing_arrives(fixture, &mut other).await;
}

pub(crate) async fn after_the_last_delivery_a_message_moves_to_the_dead_letter_topic(
    fixture: &dyn Fixture,
) {
    let topic = topic(fixture, "hopeless");
    let limited = Subscription {
        max_deliveries: Some(3),
        ..subscription(&topic)
    };
    let mut consumer = subscribe(fixture, limited).await;
    let letter = fixture.unique("letter");
    let mut mourner = mourner(fixture, &letter).await;
    let mut outgoing = message(&topic, &letter);
    outgoing
        .properties
        .insert("kept".to_owned(), "as it was".to_owned());
    fixture.broker().publish(vec![outgoing]).await.unwrap();
    for _ in 0..3 {
        let delivery = one(&mut consumer).await;
        nothing_arrives(fixture, &mut mourner).await;
        consumer.broker.nack(&delivery, NO_TIME).await.unwrap();
    }
    // Whoever waits for dead letters gets it at once.
    let waiting = tokio::spawn(async move {
        let dead = one(&mut mourner).await;
        (mourner, dead)
    });
    fixture.settle().await;
    nothing_arrives(fixture, &mut consumer).await;
    let (mourner, dead) = waiting.await.unwrap();
    assert_eq!(body(&dead), letter);
    assert_eq!(dead.topic, DEAD_LETTER);
    assert_eq!(dead.properties[property::ORIGIN], topic.as_str());
    assert!(
        dead.properties[property::REASON].contains('3'),
        "{:?}",
        dead.properties
    );
    assert_eq!(dead.properties["kept"], "as it was");
    mourner.broker.ack(&dead).await.unwrap();
    fixture.pass(LEASE * 2).await;
    nothing_arrives(fixture, &mut consumer).await;
}

pub(crate) async fn a_message_may_be_given_up_at_once(fixture: &dyn Fixture) {
    let topic = topic(fixture, "given-up");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    let letter = fixture.unique("letter");
    let mut mourner = mourner(fixture, &letter).await;
    publish(fixture, &topic, &[&letter]).await;
    let delivery = one(&mut consumer).await;
    fixture
        .broker()
        .dead_letter(&delivery, "cannot be decoded")
        .await
        .unwrap();
    let dead = one(&mut mourner).await;
    assert_eq!(dead.payload, delivery.payload);
    assert_eq!(dead.properties[property::REASON], "cannot be decoded");
    assert_eq!(
        dead.properties[property::ORIGIN_MESSAGE],
        delivery.message_id
    );
    assert_eq!(dead.properties[property::ORIGIN], topic.as_str());
    assert_eq!(dead.properties["body"], letter);
    fixture.pass(LEASE * 2).await;
    nothing_arrives(fixture, &mut consumer).await;
}

pub(crate) async fn a_subscription_without_a_limit_never_gives_up(fixture: &dyn Fixture) {
    let topic = topic(fixture, "stubborn");
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["a"]).await;
    for round in 1..=30 {
        let delivery = one(&mut consumer).await;
        assert!(delivery.deliveries.is_none_or(|count| count == round));
        consumer.broker.nack(&delivery, NO_TIME).await.unwrap();
    }
}

pub(crate) async fn a_delayed_message_is_not_delivered_early(fixture: &dyn Fixture) {
    let topic = topic(fixture, "delayed");
    // What was received is held for as long as this takes, on the slowest machine: whatever arrives was
    // delayed.
    let held = Subscription {
        lease: Duration::from_hours(1),
        ..subscription(&topic)
    };
    let mut consumer = subscribe(fixture, held).await;
    publish(fixture, &topic, &["clock"]).await;
    let now = one(&mut consumer).await.published_at;
    let delayed = |body: &str, seconds: i64| Outgoing {
        deliver_at: Some(now + seconds * 1000),
        ..message(&topic, body)
    };
    let mixed = vec![
        delayed("late", 60),
        delayed("soon", 20),
        message(&topic, "now"),
        delayed("past", -60),
    ];
    fixture.broker().publish(mixed).await.unwrap();
    assert_eq!(
        bodies(&ready(fixture, &mut consumer).await),
        ["now", "past"]
    );
    fixture.pass(Duration::from_secs(10)).await;
    nothing_arrives(fixture, &mut consumer).await;
    // It comes by itself to who waits.
    let waiting = tokio::spawn(async move {
        let delivery = one(&mut consumer).await;
        (consumer, delivery)
    });
    fixture.settle().await;
    fixture.pass(Duration::from_secs(15)).await;
    let (mut consumer, soon) = waiting.await.unwrap();
    assert_eq!(body(&soon), "soon");
    consumer.broker.ack(&soon).await.unwrap();
    nothing_arrives(fixture, &mut consumer).await;
    fixture.pass(Duration::from_secs(40)).await;
    assert_eq!(bodies(&ready(fixture, &mut consumer).await), ["late"]);
}

pub(crate) async fn a_filter_lets_through_what_has_the_value_or_not_the_property(
    fixture: &dyn Fixture,
) {
    let topic = topic(fixture, "filtered");
    let only = |value: &str| Subscription {
        name: format!("only {value}"),
        only: Some(("body".to_owned(), value.to_owned())),
        ..subscription(&topic)
    };
    let mut all = subscribe(fixture, subscription(&topic)).await;
    let mut a = subscribe(fixture, only("a")).await;
    let mut none = subscribe(fixture, only("none")).await;
    let mut bare = message(&topic, "bare");
    bare.properties.clear();
    publish(fixture, &topic, &["a", "b", "A", "a"]).await;
    fixture.broker().publish(vec![bare]).await.unwrap();
    assert_eq!(
        bodies(&receive(&mut all, 5).await),
        ["A", "a", "a", "b", "bare"]
    );
    assert_eq!(bodies(&receive(&mut a, 3).await), ["a", "a", "bare"]);
    assert_eq!(bodies(&receive(&mut none, 1).await), ["bare"]);
    nothing_arrives(fixture, &mut none).await;
}

fn response(key: &str, body: &str) -> Outgoing {
    let mut outgoing = message(&AGENT_RESPONSE, body);
    outgoing
        .properties
        .insert(property::ROOT.to_owned(), key.to_owned());
    outgoing
}

pub(crate) async fn a_retained_topic_can_be_read_by_key_without_consuming_it(
    fixture: &dyn Fixture,
) {
    let broker = fixture.broker();
    let (key, other) = (fixture.unique("session"), fixture.unique("other"));
    let named = Subscription {
        name: fixture.unique("consumer"),
        ..subscription(&AGENT_RESPONSE)
    };
    let mut consumer = subscribe(fixture, named).await;
    let names: Vec<String> = (0..7).map(|number| format!("{key} {number}")).collect();
    for name in &names {
        broker
            .publish(vec![response(&other, "other"), response(&key, name)])
            .await
            .unwrap();
    }
    let mut read = Vec::new();
    let mut after = 0;
    while read.len() < names.len() {
        let some = broker.read(&AGENT_RESPONSE, &key, after, 3).await.unwrap();
        assert!((1..=3).contains(&some.len()));
        for message in some {
            assert!(message.position > after, "positions grow");
            assert_eq!(message.properties[property::ROOT], key);
            after = message.position;
            read.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
    }
    assert_eq!(read, names, "in order");
    // It can be read again, from anywhere, and whether or not it was consumed.
    for delivery in receive(&mut consumer, 14).await {
        consumer.broker.ack(&delivery).await.unwrap();
    }
    let again = broker.read(&AGENT_RESPONSE, &key, 0, 100).await.unwrap();
    assert_eq!(again.len(), names.len());
    let rest = broker
        .read(&AGENT_RESPONSE, &key, again[4].position, 100)
        .await
        .unwrap();
    assert_eq!(
        rest.iter().map(|one| one.position).collect::<Vec<_>>(),
        [again[5].position, after]
    );
}

pub(crate) async fn reading_waits_until_something_is_retained(fixture: &dyn Fixture) {
    let (key, other) = (fixture.unique("session"), fixture.unique("other"));
    fixture
        .broker()
        .publish(vec![response(&key, "old")])
        .await
        .unwrap();
    let old = fixture
        .broker()
        .read(&AGENT_RESPONSE, &key, 0, 10)
        .await
        .unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (broker, key, after) = (fixture.broker(), key.clone(), old[0].position);
            tokio::spawn(
                async move { broker.read(&AGENT_RESPONSE, &key, after, 10).await.unwrap() },
            )
        })
        .collect();
    fixture.settle().await;
    fixture
        .broker()
        .publish(vec![response(&other, "not this")])
        .await
        .unwrap();
    fixture.settle().await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    fixture
        .broker()
        .publish(vec![response(&key, "new")])
        .await
        .unwrap();
    for task in waiting {
        let read = task.await.unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].payload.as_ref(), b"new");
    }
}

pub(crate) async fn from_a_mark_everything_later_can_be_read(fixture: &dyn Fixture) {
    let broker = fixture.broker();
    let other = fixture.unique("other");
    let mut last = 0;
    for _ in 0..3 {
        // Each time by a broker that may be new, and one that is not.
        for marker in [fixture.broker(), Arc::clone(&broker)] {
            let key = fixture.unique("session");
            let mark = marker.mark(&AGENT_RESPONSE).await.unwrap();
            broker
                .publish(vec![response(&other, "other"), response(&key, "first")])
                .await
                .unwrap();
            broker
                .publish(vec![response(&key, "second")])
                .await
                .unwrap();
            for reader in [fixture.broker(), Arc::clone(&broker)] {
                let (mut read, mut after) = (Vec::new(), mark);
                while read.len() < 2 {
                    for message in reader.read(&AGENT_RESPONSE, &key, after, 10).await.unwrap() {
                        after = message.position;
                        read.push(String::from_utf8(message.payload.to_vec()).unwrap());
                    }
                }
                assert_eq!(read, ["first", "second"]);
                assert!(
                    mark == 0 || (mark >= last && mark < after),
                    "{last} {mark} {after}"
                );
            }
            last = mark;
        }
    }
    assert!(matches!(
        broker.mark(&AGENT_REQUEST).await,
        Err(Error::NotRetained(topic)) if topic == AGENT_REQUEST
    ));
}

pub(crate) async fn the_backlog_counts_what_waits_and_what_is_delayed(fixture: &dyn Fixture) {
    let topic = topic(fixture, "counted");
    let broker = fixture.broker();
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    let name = format!("{topic}/workers");
    let waiting = async || {
        broker.ready().await.unwrap();
        let backlog = broker.backlog().await.unwrap();
        let waiting = broker.waiting().await.unwrap();
        let found = backlog.iter().find(|(found, _)| *found == name).unwrap();
        let apart = waiting.iter().find(|one| one.queue == name).unwrap();
        assert_eq!(found.1, apart.ready + apart.delayed);
        (apart.ready, apart.delayed)
    };
    assert_eq!(waiting().await, (0, 0));
    publish(fixture, &topic, &["a", "b"]).await;
    let mut delayed = message(&topic, "c");
    delayed.deliver_at = Some(i64::MAX / 2);
    broker.publish(vec![delayed]).await.unwrap();
    assert_eq!(waiting().await, (2, 1));
    for delivery in receive(&mut consumer, 2).await {
        consumer.broker.ack(&delivery).await.unwrap();
    }
    assert_eq!(waiting().await, (0, 1));
}

pub(crate) async fn a_subscription_that_is_established_receives_although_nobody_ever_consumed_it(
    fixture: &dyn Fixture,
) {
    let topic = topic(fixture, "established");
    let broker = fixture.broker();
    // Again and again is the same as once.
    for _ in 0..2 {
        broker.establish(&[subscription(&topic)]).await.unwrap();
    }
    publish(fixture, &topic, &["early"]).await;
    let mut consumer = subscribe(fixture, subscription(&topic)).await;
    let came = receive(&mut consumer, 1).await;
    assert_eq!(&*came[0].payload, b"early");
}

pub(crate) async fn who_listens_gets_what_is_published_from_then_on(fixture: &dyn Fixture) {
    let topic = topic(fixture, "listened");
    let mut worker = subscribe(fixture, subscription(&topic)).await;
    publish(fixture, &topic, &["before"]).await;
    one(&mut worker).await;
    // Both of one process, or each of its own.
    let mut first = fixture.broker().listen(&topic).await.unwrap();
    let mut second = fixture.broker().listen(&topic).await.unwrap();
    publish(fixture, &topic, &["a", "b"]).await;
    for listener in [&mut first, &mut second] {
        for expected in ["a", "b"] {
            let heard = listener.recv().await.unwrap();
            assert_eq!(&*heard.payload, expected.as_bytes());
            assert_eq!(heard.properties["body"], expected);
        }
    }
    assert_eq!(bodies(&receive(&mut worker, 2).await), ["a", "b"]);
    drop(first);
    publish(fixture, &topic, &["c"]).await;
    assert_eq!(&*second.recv().await.unwrap().payload, b"c");
    // Nobody is to wait for what listeners have not heard yet.
    let waiting = fixture.broker().waiting().await.unwrap();
    let queues = waiting.iter().map(|one| one.queue.as_str());
    let queues: Vec<_> = queues
        .filter(|queue| queue.contains(topic.as_str()))
        .collect();
    assert!(
        queues.iter().all(|queue| queue.ends_with("/workers")),
        "{queues:?}"
    );
}

pub(crate) async fn a_topic_can_be_published_to_before_anything_is(fixture: &dyn Fixture) {
    let topic = topic(fixture, "reached");
    let broker = fixture.broker();
    let before = broker.reach(&topic).await.unwrap();
    assert!(before.is_none_or(|count| count == 0), "{before:?}");
    assert!(broker.is_own(&AGENT_REQUEST) && !broker.is_own(&topic));
    let mut worker = subscribe(fixture, subscription(&topic)).await;
    nothing_arrives(fixture, &mut worker).await;
}
