//! What is Pulsar's own: where delayed messages lie, partitions, topics that move, messages of
//! other producers, and reading what memory does not hold any more.

// The futures of the `pulsar` crate are what they are.
#![allow(clippy::large_futures)]

use crate::fixture::server;
use crate::server::http;
use agentfleet_broker::{
    Broker, Consumer, Delivery, Durability, Error, Outgoing, PulsarBroker, PulsarOptions,
    Subscription,
};
use agentfleet_schema::topics::{AGENT_RESPONSE, DEADLINE, Topic, property};
use std::collections::BTreeSet;
use std::time::Duration;

async fn connect(change: impl FnOnce(&mut PulsarOptions)) -> PulsarBroker {
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    let mut options = server.options();
    change(&mut options);
    PulsarBroker::connect(options).await.unwrap()
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
        lease: Duration::from_secs(60),
        max_deliveries: None,
    }
}

async fn receive(consumer: &mut dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(consumer.receive(count - all.len()).await.unwrap());
    }
    all
}

fn bodies(deliveries: &[Delivery]) -> BTreeSet<String> {
    let text = |one: &Delivery| String::from_utf8(one.payload.to_vec()).unwrap();
    deliveries.iter().map(text).collect()
}

async fn stats(topic: &str) -> serde_json::Value {
    let path = format!("persistent/public/default/{topic}/stats?getPreciseBacklog=true");
    http()
        .get(server().admin(&path))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap()
}

async fn backlog(topic: &str) -> i64 {
    stats(topic).await["subscriptions"]["workers"]["msgBacklog"]
        .as_i64()
        .unwrap()
}

#[tokio::test]
async fn what_waits_for_its_time_does_not_count_as_work() {
    let broker = connect(|_| {}).await;
    let topic = Topic::named("scaled");
    let mut consumer = broker.subscribe(subscription(&topic)).await.unwrap();
    let now = message(&topic, "now");
    broker.publish(vec![now]).await.unwrap();
    let delivery = receive(&mut *consumer, 1).await.remove(0);
    broker
        .nack(&delivery, Duration::from_secs(3600))
        .await
        .unwrap();
    let mut later = message(&topic, "later");
    later.deliver_at = Some(delivery.published_at + 3_600_000);
    broker.publish(vec![later]).await.unwrap();
    // Also: every acknowledgement is taken.
    assert_eq!(broker.backlog().await.unwrap().last().unwrap().1, 2);
    assert_eq!(backlog("scaled").await, 0);
    assert_eq!(backlog("scaled-delayed").await, 1);
    assert_eq!(backlog("scaled-workers-retry").await, 1);
}

#[tokio::test]
async fn a_subscription_is_there_for_what_is_published_before_its_first_consumer() {
    let broker = connect(|_| {}).await;
    let topic = Topic::named("ensured");
    let known = [(topic.clone(), "workers"), (DEADLINE, "workers")];
    broker
        .ensure(&[topic.clone(), AGENT_RESPONSE], &known)
        .await
        .unwrap();
    broker
        .publish(vec![message(&topic, "early")])
        .await
        .unwrap();
    let mut late = message(&topic, "delayed");
    late.deliver_at = Some(agentfleet_now() + 500);
    broker.publish(vec![late]).await.unwrap();
    drop(broker);
    let other = connect(|_| {}).await;
    let mut consumer = other.subscribe(subscription(&topic)).await.unwrap();
    let came = receive(&mut *consumer, 2).await;
    assert_eq!(
        bodies(&came),
        BTreeSet::from(["early".to_owned(), "delayed".to_owned()])
    );
    let path = "persistent/public/default/agent-response/retention";
    let kept = http().get(server().admin(path)).send().await.unwrap();
    let kept: serde_json::Value = kept.json().await.unwrap();
    assert_eq!(kept["retentionTimeInMinutes"], 7 * 24 * 60);
}

fn agentfleet_now() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[tokio::test]
async fn topics_are_called_as_the_operator_says() {
    let topic = Topic::named("ours");
    let broker = connect(|options| {
        options.names = [(topic.clone(), "theirs".to_owned())].into();
    })
    .await;
    let mut consumer = broker.subscribe(subscription(&topic)).await.unwrap();
    broker.publish(vec![message(&topic, "a")]).await.unwrap();
    let delivery = receive(&mut *consumer, 1).await.remove(0);
    assert_eq!(delivery.topic, topic);
    assert_eq!(backlog("theirs").await, 1);
}

#[tokio::test]
async fn a_topic_may_have_partitions() {
    let broker = connect(|_| {}).await;
    let path = server().admin("persistent/public/default/parted/partitions");
    let made = http().put(path).json(&3).send().await.unwrap();
    assert!(made.status().is_success(), "{}", made.status());
    let topic = Topic::named("parted");
    let mut consumer = broker.subscribe(subscription(&topic)).await.unwrap();
    let names: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
    let messages = names.iter().map(|name| message(&topic, name)).collect();
    broker.publish(messages).await.unwrap();
    let came = receive(&mut *consumer, 9).await;
    assert_eq!(bodies(&came), names.iter().cloned().collect());
    for delivery in &came {
        broker.ack(delivery).await.unwrap();
    }
    for part in 0..3 {
        let part = stats(&format!("parted-partition-{part}")).await;
        assert_eq!(part["msgInCounter"], 3, "each has its share");
    }
    let known = broker.backlog().await.unwrap();
    assert_eq!(known.last().unwrap(), &("parted/workers".to_owned(), 0));
}

#[tokio::test]
async fn producers_and_consumers_follow_a_topic_that_moves() {
    let broker = connect(|_| {}).await;
    let topic = Topic::named("moving");
    let mut consumer = broker.subscribe(subscription(&topic)).await.unwrap();
    for round in 0..5 {
        let name = format!("round {round}");
        let publishing = broker.publish(vec![message(&topic, &name)]);
        let path = server().admin("persistent/public/default/moving/unload");
        let unloading = http().put(path).send();
        let (published, unloaded) = tokio::join!(publishing, unloading);
        published.unwrap();
        assert!(unloaded.unwrap().status().is_success());
        // It may come twice: what was not acknowledged when the topic moved comes again.
        loop {
            let delivery = receive(&mut *consumer, 1).await.remove(0);
            broker.ack(&delivery).await.unwrap();
            if delivery.payload.as_ref() == name.as_bytes() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_failing_publish_leaves_what_came_before_and_may_be_repeated() {
    let broker = connect(|options| options.publish_timeout = Duration::from_secs(4)).await;
    let (here, nowhere) = (
        Topic::named("here"),
        Topic::named("persistent://no/such/topic"),
    );
    let mut consumer = broker.subscribe(subscription(&here)).await.unwrap();
    let both = vec![
        message(&here, "a"),
        message(&nowhere, "b"),
        message(&here, "c"),
    ];
    let error = broker.publish(both).await.unwrap_err();
    assert!(
        error.to_string().contains("persistent://no/such/topic"),
        "{error}"
    );
    broker
        .publish(vec![message(&here, "a"), message(&here, "c")])
        .await
        .unwrap();
    let came = receive(&mut *consumer, 3).await;
    let texts: Vec<_> = came
        .iter()
        .map(|one| one.properties["body"].as_str())
        .collect();
    assert_eq!(texts, ["a", "a", "c"]);
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_name() {
    let broker = connect(|_| {}).await;
    let mut large = message(&Topic::named("large"), "");
    let limit = agentfleet_broker::MAX_PROPERTIES;
    large
        .properties
        .insert("text".to_owned(), "x".repeat(limit));
    let error = broker.publish(vec![large]).await.unwrap_err();
    assert!(matches!(error, Error::PropertiesTooLarge { .. }), "{error}");
    assert!(error.retry().is_none());
}

#[tokio::test]
async fn messages_that_others_packed_together_are_taken_one_by_one() {
    let broker = connect(|_| {}).await;
    let topic = Topic::named("packed");
    let mut consumer = broker.subscribe(subscription(&topic)).await.unwrap();
    let other: pulsar::Pulsar<_> = pulsar::Pulsar::builder(&server().url, pulsar::TokioExecutor)
        .build()
        .await
        .unwrap();
    let packing = pulsar::ProducerOptions {
        batch_size: Some(4),
        ..pulsar::ProducerOptions::default()
    };
    let mut producer = other
        .producer()
        .with_topic("persistent://public/default/packed")
        .with_options(packing)
        .build()
        .await
        .unwrap();
    let mut receipts = Vec::new();
    for number in 0..4 {
        receipts.push(
            producer
                .send_non_blocking(format!("part {number}"))
                .await
                .unwrap(),
        );
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let came = receive(&mut *consumer, 4).await;
    assert_eq!(bodies(&came).len(), 4);
    let ids: BTreeSet<_> = came.iter().map(|one| &one.message_id).collect();
    assert_eq!(ids.len(), 4, "each has an id of its own");
    // One of them comes again alone, as a copy; the entry ends when all parts are settled.
    let again = came
        .iter()
        .find(|one| one.payload.as_ref() == b"part 2")
        .unwrap();
    broker.nack(again, Duration::ZERO).await.unwrap();
    let copy = receive(&mut *consumer, 1).await.remove(0);
    assert_eq!(copy.payload, again.payload);
    assert_eq!(copy.message_id, again.message_id);
    for delivery in came.iter().chain([&copy]) {
        broker.ack(delivery).await.unwrap();
    }
    assert_eq!(broker.backlog().await.unwrap().last().unwrap().1, 0);
}

#[tokio::test]
async fn what_memory_does_not_hold_is_read_from_the_topic() {
    let retain = |topic: &Topic| [(topic.clone(), Duration::from_secs(3600))].into();
    let (kept, packed) = (Topic::named("kept"), Topic::named("packed"));
    read_with_little_memory(&kept, connect(|_| {}).await).await;
    // Who knows that a topic is retained packs what is published together.
    let writer = connect(|options| options.retain = retain(&packed)).await;
    read_with_little_memory(&packed, writer).await;
    assert!(entries("kept").await >= 1_200);
    // 600 messages at a time, 63 to an entry; what is confirmed late is sent again.
    let packed = entries("packed").await;
    assert!((20..40).contains(&packed), "{packed}");
}

/// How many entries lie in a topic.
async fn entries(topic: &str) -> i64 {
    let path = format!("persistent/public/default/{topic}/internalStats");
    let stats = http().get(server().admin(&path)).send().await.unwrap();
    let stats: serde_json::Value = stats.json().await.unwrap();
    stats["numberOfEntries"].as_i64().unwrap()
}

async fn read_with_little_memory(topic: &Topic, writer: PulsarBroker) {
    let response = |key: &str, number: usize| {
        let mut outgoing = message(topic, &format!("{key} {number}"));
        outgoing
            .properties
            .insert(property::ROOT.to_owned(), key.to_owned());
        outgoing
    };
    let some = |from: usize, to: usize| {
        let pairs = (from..to).flat_map(|number| [response("a", number), response("b", number)]);
        pairs.collect::<Vec<_>>()
    };
    writer.publish(some(0, 300)).await.unwrap();
    // It comes to know the topic only now, and has memory for a few messages.
    let reader = connect(|options| {
        options.retain = [(topic.clone(), Duration::from_secs(3600))].into();
        options.retained_memory = 20_000;
    })
    .await;
    let mut after = 0;
    let mut texts = Vec::new();
    while texts.len() < 600 {
        let read = reader.read(topic, "a", after, 70).await.unwrap();
        assert!(read.len() <= 70 && !read.is_empty());
        for one in read {
            assert!(one.position > after);
            after = one.position;
            texts.push(String::from_utf8(one.payload.to_vec()).unwrap());
        }
        if texts.len() == 300 {
            writer.publish(some(300, 600)).await.unwrap();
        }
    }
    let expected: Vec<String> = (0..600).map(|number| format!("a {number}")).collect();
    assert_eq!(texts, expected);
    // What a position means does not depend on who reads.
    let other = connect(|options| {
        options.retain = [(topic.clone(), Duration::from_secs(3600))].into();
    })
    .await;
    let last = other.read(topic, "a", after - 1, 10).await.unwrap();
    assert_eq!(last[0].position, after);
    let unknown = other
        .read(&Topic::named("elsewhere"), "a", 0, 1)
        .await
        .unwrap_err();
    assert!(matches!(unknown, Error::NotRetained(_)));
}

#[tokio::test]
async fn another_host_of_the_service_url_serves_when_the_first_does_not() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = free.local_addr().unwrap();
    drop(free);
    let broker = connect(|options| {
        let living = options.url.trim_start_matches("pulsar://").to_owned();
        options.url = format!("pulsar://{dead},{living}");
    })
    .await;
    let topic = Topic::named("second");
    let mut consumer = broker.subscribe(subscription(&topic)).await.unwrap();
    broker.publish(vec![message(&topic, "a")]).await.unwrap();
    receive(&mut *consumer, 1).await;
    broker.close().await;
    let closed = broker
        .publish(vec![message(&topic, "b")])
        .await
        .unwrap_err();
    assert!(matches!(closed, Error::Closed), "{closed}");
    assert!(matches!(consumer.receive(1).await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_stream_that_is_silent_although_messages_wait_is_opened_anew() {
    let topic = Topic::named("silent");
    let (busy, silent) = (
        connect(|_| {}).await,
        connect(|options| options.silence = Duration::from_millis(200)),
    );
    let silent = silent.await;
    let mut first = busy.subscribe(subscription(&topic)).await.unwrap();
    busy.publish(vec![message(&topic, "held")]).await.unwrap();
    receive(&mut *first, 1).await;
    // To the second, the message that the first one works on is a backlog that it does not get.
    let mut second = silent.subscribe(subscription(&topic)).await.unwrap();
    let waiting = tokio::spawn(async move {
        let came = receive(&mut *second, 1).await;
        (second, came)
    });
    let names = async || -> BTreeSet<String> {
        let stats = stats("silent").await;
        let consumers = stats["subscriptions"]["workers"]["consumers"]
            .as_array()
            .unwrap();
        let name = |one: &serde_json::Value| one["consumerName"].as_str().unwrap().to_owned();
        consumers.iter().map(name).collect()
    };
    // The first one's name, the second one's, and another one of the second.
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        seen.extend(names().await);
    }
    busy.publish(vec![message(&topic, "new")]).await.unwrap();
    let (_second, came) = waiting.await.unwrap();
    assert_eq!(came[0].payload.as_ref(), b"new");
}

/// The names of a subscription's consumers, as the broker knows them.
async fn consumers(topic: &str) -> Vec<String> {
    let stats = stats(topic).await;
    let all = stats["subscriptions"]["workers"]["consumers"].as_array();
    let name = |one: &serde_json::Value| one["consumerName"].as_str().unwrap().to_owned();
    all.into_iter().flatten().map(name).collect()
}

#[tokio::test]
async fn counting_a_backlog_opens_no_consumer_where_there_is_one_and_else_one_for_good() {
    let (worker, other) = (connect(|_| {}).await, connect(|_| {}).await);
    let topic = Topic::named("observed");
    let _consumer = worker.subscribe(subscription(&topic)).await.unwrap();
    other.establish(&[subscription(&topic)]).await.unwrap();
    let alone = consumers("observed").await;
    assert_eq!(alone.len(), 1, "what was established consumes nothing");
    worker.publish(vec![message(&topic, "a")]).await.unwrap();
    let counted = async |broker: &PulsarBroker| {
        let all = broker.waiting().await.unwrap().into_iter();
        let mut found = all.filter(|one| one.queue == "observed/workers");
        found.next().unwrap().ready
    };
    for _ in 0..3 {
        assert_eq!(counted(&worker).await, 1);
    }
    assert_eq!(
        consumers("observed").await,
        alone,
        "the worker asks through its own"
    );
    assert_eq!(counted(&other).await, 1);
    let both = consumers("observed").await;
    assert_eq!(both.len(), 2);
    for _ in 0..3 {
        assert_eq!(counted(&other).await, 1);
    }
    assert_eq!(consumers("observed").await, both, "and it stays the same");
    // A topic that moves ends it, and it is opened anew.
    let path = server().admin("persistent/public/default/observed/unload");
    let unloaded = http().put(path).send().await.unwrap();
    assert!(unloaded.status().is_success());
    assert_eq!(counted(&other).await, 1);
    // It takes nothing from who works.
    let mut working = worker.subscribe(subscription(&topic)).await.unwrap();
    assert_eq!(receive(&mut *working, 1).await[0].payload.as_ref(), b"a");
    // It goes with its process, and with a consumer of its own there is no need of it.
    other.close().await;
    let left = consumers("observed").await;
    assert!(
        left.iter().all(|name| !both[1..].contains(name)),
        "{left:?} {both:?}"
    );
}

#[tokio::test]
async fn closing_ends_what_is_open_and_others_have_at_once_what_was_not_worked() {
    let (first, second) = (connect(|_| {}).await, connect(|_| {}).await);
    let topic = Topic::named("closing");
    let mut consumer = first.subscribe(subscription(&topic)).await.unwrap();
    let names: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
    let messages = names.iter().map(|name| message(&topic, name)).collect();
    // The producer is of the one that is closed, too.
    first.publish(messages).await.unwrap();
    let held = receive(&mut *consumer, 6).await;
    first.ack(&held[0]).await.unwrap();
    assert_eq!(consumers("closing").await.len(), 1);
    assert_eq!(
        stats("closing").await["publishers"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    first.close().await;
    // Nothing is waited for: the broker had confirmed it when closing returned.
    let after = stats("closing").await;
    assert_eq!(after["publishers"].as_array().unwrap().len(), 0, "{after}");
    for lane in ["closing", "closing-delayed", "closing-workers-retry"] {
        assert_eq!(consumers(lane).await, Vec::<String>::new(), "{lane}");
    }
    assert_eq!(after["subscriptions"]["workers"]["unackedMessages"], 0);
    let mut other = second.subscribe(subscription(&topic)).await.unwrap();
    let came = receive(&mut *other, 9).await;
    let mut expected: BTreeSet<String> = names.into_iter().collect();
    expected.remove(std::str::from_utf8(&held[0].payload).unwrap());
    assert_eq!(bodies(&came), expected);
    // What the first one still does with its messages has no effect.
    first.ack(&held[1]).await.unwrap();
    assert!(matches!(consumer.receive(1).await, Err(Error::Closed)));
    assert!(matches!(first.ready().await, Err(Error::Closed)));
    let late = first.subscribe(subscription(&topic)).await;
    assert!(matches!(late.map(drop), Err(Error::Closed)));
}
