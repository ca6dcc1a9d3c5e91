//! Markers and acknowledgements of what was published, those of some milliseconds together: all markers
//! in one write, then the acknowledgements. Until then a crash leaves records whose messages come again,
//! are published again from their records, and are dropped as repeats by whoever reads them.

use crate::Error;
use agentfleet_broker::{Broker, Delivery};
use agentfleet_documents::Documents;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// How long a marker waits for others.
const LINGER: Duration = Duration::from_millis(20);
/// Most markers of one write, and as many that may wait behind them.
const MOST: usize = 256;

/// A record of which everything is published, and the message that it answers.
struct Settlement {
    marker: String,
    delivery: Delivery,
}

enum Order {
    Settle(Box<Settlement>),
    /// Answers when everything that was ordered before is done.
    Flush(oneshot::Sender<()>),
}

/// Hands over to the task that settles. The task ends with the last of them.
#[derive(Clone)]
pub(crate) struct Settler(mpsc::Sender<Order>);

impl Settler {
    pub(crate) fn start(broker: Arc<dyn Broker>, documents: Arc<dyn Documents>) -> Self {
        let (orders, queue) = mpsc::channel(MOST);
        tokio::spawn(run(queue, broker, documents));
        Self(orders)
    }

    /// Sees to it that a message is marked and acknowledged soon.
    pub(crate) async fn settle(&self, marker: String, delivery: Delivery) {
        let settlement = Settlement { marker, delivery };
        // Without its task the process is about to end, and the message comes again.
        drop(self.0.send(Order::Settle(Box::new(settlement))).await);
    }

    /// Waits until everything that was handed over is settled.
    pub(crate) async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.0.send(Order::Flush(done)).await.is_ok() {
            drop(is_done.await);
        }
    }
}

async fn run(
    mut queue: mpsc::Receiver<Order>,
    broker: Arc<dyn Broker>,
    documents: Arc<dyn Documents>,
) {
    while let Some(first) = queue.recv().await {
        let until = Instant::now() + LINGER;
        let (mut settlements, mut next) = (Vec::new(), Some(first));
        let mut flushed = None;
        while let Some(order) = next.take() {
            match order {
                Order::Settle(settlement) => settlements.push(*settlement),
                Order::Flush(done) => {
                    flushed = Some(done);
                    break;
                }
            }
            if settlements.len() < MOST {
                next = timeout_at(until, queue.recv()).await.ok().flatten();
            }
        }
        if let Err(error) = settle(&*broker, &*documents, &settlements).await {
            // Their leases run out, and they come again.
            let messages = settlements.len();
            tracing::warn!(messages, %error, "cannot mark what was published");
        }
        if let Some(done) = flushed {
            // Who waits no longer has nothing to be told.
            let _ = done.send(());
        }
    }
}

async fn settle(
    broker: &dyn Broker,
    documents: &dyn Documents,
    settlements: &[Settlement],
) -> Result<(), Error> {
    let markers = settlements.iter();
    let markers: Vec<_> = markers
        .map(|one| (one.marker.clone(), Vec::new()))
        .collect();
    documents.ensure_all(&markers).await?;
    let acks = settlements.iter().map(|one| broker.ack(&one.delivery));
    for acknowledged in futures::future::join_all(acks).await {
        acknowledged?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_broker::{
        Durability, EmbeddedBroker, Options, Outgoing, Properties, Subscription,
    };
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_schema::topics::AGENT_REQUEST;
    use agentfleet_storage::Database;

    #[tokio::test]
    async fn a_flush_leaves_nothing_unmarked_and_nothing_unacknowledged() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        let subscription = Subscription {
            topic: AGENT_REQUEST,
            name: "workers".to_owned(),
            only: None,
            lease: Duration::from_secs(3_600),
            max_deliveries: None,
        };
        broker
            .establish(std::slice::from_ref(&subscription))
            .await
            .unwrap();
        let message = || Outgoing {
            topic: AGENT_REQUEST,
            payload: b"{}".to_vec(),
            properties: Properties::new(),
            deliver_at: None,
            durability: Durability::Durable,
        };
        broker.publish(vec![message(), message()]).await.unwrap();
        let mut consumer = broker.subscribe(subscription).await.unwrap();
        let settler = Settler::start(Arc::new(broker.clone()), Arc::new(documents.clone()));
        let mut markers = Vec::new();
        while markers.len() < 2 {
            for delivery in consumer.receive(2).await.unwrap() {
                let marker = format!("marker/{}", markers.len());
                settler.settle(marker.clone(), delivery).await;
                markers.push(marker);
            }
        }
        settler.flush().await;
        assert_eq!(documents.list("marker/").await.unwrap(), markers);
        for queue in broker.stats().await.unwrap() {
            assert_eq!((queue.waiting, queue.in_flight), (0, 0));
        }
    }
}
