//! How many steps a second the embedded engine commits.
//!
//! ```text
//! cargo run --release -p agentfleet-broker --example hops -- [seconds]
//! ```
//! A hop is what a worker does to end one step: the step's record and its marker, three messages
//! (the next request, a response, the provenance), and the acknowledgement, as one durable
//! transaction, which also hands out the next message. Compared with durable single-row inserts
//! through the same writer, in the same run.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use agentfleet_broker::{
    Broker, Delivery, Durability, EmbeddedBroker, Options, Outgoing, Parcel, Properties,
    Subscription,
};
use agentfleet_documents::EmbeddedDocuments;
use agentfleet_schema::topics::{
    AGENT_REQUEST, AGENT_RESPONSE, EXPLAINABILITY, Topic, property, subscription,
};
use agentfleet_storage::{self as storage, Database};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

fn message(topic: &Topic, session: u64, step: u64, size: usize) -> Outgoing {
    let properties = [
        (property::ID, format!("caller-{session}")),
        (
            property::SESSION,
            format!("3c2e6b9a-5d0f-5b7e-9a61-{session:012}"),
        ),
        (
            property::ROOT,
            format!("3c2e6b9a-5d0f-5b7e-9a61-{session:012}"),
        ),
        (property::STEP, step.to_string()),
    ];
    Outgoing {
        topic: topic.clone(),
        payload: vec![b'x'; size],
        properties: properties
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
        deliver_at: None,
        durability: Durability::Durable,
    }
}

fn number(properties: &Properties, key: &str) -> u64 {
    let text = &properties[key];
    text[text.rfind('-').map_or(0, |dash| dash + 1)..]
        .parse()
        .unwrap()
}

async fn hop(
    database: &Database,
    broker: &EmbeddedBroker,
    documents: &EmbeddedDocuments,
    delivery: Delivery,
) {
    let (broker, documents) = (broker.clone(), documents.clone());
    let session = number(&delivery.properties, property::SESSION);
    let step = number(&delivery.properties, property::STEP);
    let outgoing = [
        message(&AGENT_REQUEST, session, step + 1, 1500),
        message(&AGENT_RESPONSE, session, step, 300),
        message(&EXPLAINABILITY, session, step, 1500),
    ];
    let parcels = outgoing.map(|message| Parcel::of(message).unwrap());
    let committed = database.write(storage::Durability::Durable, move |unit| {
        let key = format!("sessions/3c2e6b9a-5d0f-5b7e-9a61-{session:012}/steps/{step}/");
        documents.create_in(
            unit,
            &format!("{key}outcome"),
            &storage::Packed::of(&[b'r'; 2000][..]),
        )?;
        documents.create_in(
            unit,
            &format!("{key}published"),
            &storage::Packed::of(b"{}"),
        )?;
        broker.publish_in(unit, &parcels)?;
        broker.ack_in(unit, &delivery)
    });
    committed.await.unwrap();
}

fn subscribe(topic: &Topic, name: &str) -> Subscription {
    Subscription {
        topic: topic.clone(),
        name: name.to_owned(),
        only: None,
        lease: Duration::from_mins(1),
        max_deliveries: Some(5),
    }
}

/// Hops with `sessions` running at once; `graph` says whether provenance is consumed meanwhile.
async fn hops(sessions: u64, graph: bool, duration: Duration) -> f64 {
    let directory = tempfile::tempdir_in(".").unwrap();
    let database = Database::open(directory.path()).unwrap();
    let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
    let documents = EmbeddedDocuments::open(&database).unwrap();
    let mut consumer = broker
        .subscribe(subscribe(&AGENT_REQUEST, subscription::ORCHESTRATOR))
        .await
        .unwrap();
    let mut provenance = broker
        .subscribe(subscribe(&EXPLAINABILITY, subscription::GRAPH_WRITER))
        .await
        .unwrap();
    let writer = graph.then(|| {
        let (database, broker) = (database.clone(), broker.clone());
        tokio::spawn(async move {
            loop {
                let batch = provenance.receive(256).await.unwrap();
                let broker = broker.clone();
                let acked = database.write(storage::Durability::Process, move |unit| {
                    batch
                        .iter()
                        .try_for_each(|delivery| broker.ack_in(unit, delivery))
                });
                acked.await.unwrap();
            }
        })
    });
    let first = (0..sessions)
        .map(|session| message(&AGENT_REQUEST, session, 0, 1500))
        .collect();
    broker.publish(first).await.unwrap();

    let done = Arc::new(AtomicU64::new(0));
    let slots = Arc::new(Semaphore::new(sessions as usize));
    let start = Instant::now();
    while start.elapsed() < duration {
        // As a worker does: always one receive open, for as many messages as there are free hands.
        let batch = consumer.receive(sessions as usize).await.unwrap();
        for delivery in batch {
            let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
            let (database, broker, documents) =
                (database.clone(), broker.clone(), documents.clone());
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                hop(&database, &broker, &documents, delivery).await;
                done.fetch_add(1, Ordering::Relaxed);
                drop(slot);
            });
        }
    }
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    drop(slots.acquire_many(sessions as u32).await);
    if let Some(writer) = writer {
        writer.abort();
    }
    rate
}

/// Durable inserts of one small row, `writers` at once.
async fn inserts(writers: u64, duration: Duration) -> f64 {
    let directory = tempfile::tempdir_in(".").unwrap();
    let database = Database::open(directory.path()).unwrap();
    database
        .migrate(
            "raw",
            &["CREATE TABLE raw(id INTEGER PRIMARY KEY, body BLOB)"],
        )
        .unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let database = database.clone();
            tokio::spawn(async move {
                let mut done = 0_u32;
                while start.elapsed() < duration {
                    let inserted = database.write(storage::Durability::Durable, |unit| {
                        let mut insert = unit
                            .tx()
                            .prepare_cached("INSERT INTO raw(body) VALUES (?1)")?;
                        insert.execute([[b'x'; 100].as_slice()])?;
                        Ok(())
                    });
                    inserted.await.unwrap();
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    f64::from(done) / start.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args()
        .nth(1)
        .map_or(3, |text| text.parse().expect("seconds"));
    let duration = Duration::from_secs(seconds);
    println!(
        "{:>8} {:>14} {:>10} {:>22}",
        "at once", "raw inserts/s", "hops/s", "hops/s, graph consumed"
    );
    for sessions in [1, 8, 64] {
        let raw = inserts(sessions, duration).await;
        let alone = hops(sessions, false, duration).await;
        let consumed = hops(sessions, true, duration).await;
        println!("{sessions:>8} {raw:>14.0} {alone:>10.0} {consumed:>22.0}");
    }
}
