//! How many hops a second go through Apache Pulsar, beside the `pulsar` crate's own client.
//!
//! ```text
//! deploy/pulsar.sh start
//! cargo run --release -p agentfleet-broker --example pulsar_hops -- pulsar://127.0.0.1:6650 [seconds]
//! ```
//! A hop: a message is received, the next one is published and confirmed, the first is
//! acknowledged. So many of them run at once as there are sessions. Both clients run in turn, in
//! the same process, on the same broker, three times; the ratio is that of the medians.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// The futures of the `pulsar` crate are what they are.
#![allow(clippy::large_futures)]

use agentfleet_broker::{
    Broker, Durability, Outgoing, Properties, PulsarBroker, PulsarOptions, Subscription,
};
use agentfleet_schema::topics::Topic;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SIZE: usize = 1024;
const ROUNDS: usize = 3;

fn unique(name: &str) -> Topic {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Topic::named(format!("{name}-{}-{number}", std::process::id()))
}

fn message(topic: &Topic) -> Outgoing {
    Outgoing {
        topic: topic.clone(),
        payload: vec![b'x'; SIZE],
        properties: Properties::new(),
        deliver_at: None,
        durability: Durability::Durable,
    }
}

async fn ours(url: &str, sessions: usize, duration: Duration) -> f64 {
    let broker = Arc::new(
        PulsarBroker::connect(PulsarOptions::new(url))
            .await
            .unwrap(),
    );
    let topic = unique("hops-ours");
    let subscription = Subscription {
        topic: topic.clone(),
        name: "workers".to_owned(),
        only: None,
        lease: Duration::from_secs(60),
        max_deliveries: None,
    };
    let mut consumer = broker.subscribe(subscription).await.unwrap();
    broker
        .publish(vec![message(&topic); sessions])
        .await
        .unwrap();
    let mut running = JoinSet::new();
    let (mut done, start) = (0_u32, Instant::now());
    while start.elapsed() < duration {
        while running.len() >= sessions {
            running.join_next().await;
        }
        while running.try_join_next().is_some() {}
        // A hop that ends makes room for another one.
        let received = tokio::select! {
            biased;
            received = consumer.receive(sessions - running.len()) => received.unwrap(),
            Some(_) = running.join_next() => continue,
        };
        for delivery in received {
            done += 1;
            let (broker, next) = (Arc::clone(&broker), message(&topic));
            running.spawn(async move {
                broker.publish(vec![next]).await.unwrap();
                broker.ack(&delivery).await.unwrap();
            });
        }
    }
    let rate = f64::from(done) / start.elapsed().as_secs_f64();
    running.shutdown().await;
    rate
}

async fn theirs(url: &str, sessions: usize, duration: Duration) -> f64 {
    let client: pulsar::Pulsar<_> = pulsar::Pulsar::builder(url, pulsar::TokioExecutor)
        .build()
        .await
        .unwrap();
    let topic = format!("persistent://public/default/{}", unique("hops-theirs"));
    let mut consumer: pulsar::Consumer<Vec<u8>, _> = client
        .consumer()
        .with_topic(&topic)
        .with_subscription("workers")
        .with_subscription_type(pulsar::SubType::Shared)
        .build()
        .await
        .unwrap();
    let mut producer = client.producer().with_topic(&topic).build().await.unwrap();
    for _ in 0..sessions {
        producer
            .send_non_blocking(vec![b'x'; SIZE])
            .await
            .unwrap()
            .await
            .unwrap();
    }
    let mut publishing = FuturesUnordered::new();
    let (mut done, start) = (0_u32, Instant::now());
    while start.elapsed() < duration {
        tokio::select! {
            received = consumer.next() => {
                let received = received.unwrap().unwrap();
                done += 1;
                let sent = producer.send_non_blocking(vec![b'x'; SIZE]).await.unwrap();
                publishing.push(async move { sent.await.map(|_| received) });
            }
            Some(published) = publishing.next() => {
                consumer.ack(&published.unwrap()).await.unwrap();
            }
        }
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .unwrap_or_else(|| "pulsar://127.0.0.1:6650".to_owned());
    let seconds = arguments
        .next()
        .map_or(3, |text| text.parse().expect("seconds"));
    let duration = Duration::from_secs(seconds);
    println!(
        "{:>8} {:>14} {:>12} {:>8}",
        "sessions", "crate hops/s", "our hops/s", "ratio"
    );
    for sessions in [1, 16, 64] {
        let (mut raw, mut own) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            raw.push(theirs(&url, sessions, duration).await);
            own.push(ours(&url, sessions, duration).await);
        }
        let (raw, own) = (median(raw), median(own));
        println!("{sessions:>8} {raw:>14.0} {own:>12.0} {:>8.2}", own / raw);
    }
}
