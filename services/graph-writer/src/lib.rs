//! Explainability topic in, graph out, in batches. A message that cannot be written goes to the
//! dead-letter topic and never holds up the rest.

use agentfleet_broker::{Delivery, Subscription, Witness};
use agentfleet_documents::Documents;
use agentfleet_graph::{Batch, Graph};
use agentfleet_runtime::{BatchHandler, Disposition, Host, erased, metrics};
use agentfleet_schema::Triples;
use agentfleet_schema::topics::{self, subscription};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Most messages written in one transaction.
pub const MAX_BATCH: usize = 256;

/// Between two batches, as each is a commit of the graph. No run waits for it.
pub const LINGER: Duration = Duration::from_millis(50);

/// The graph-writer's subscription.
pub fn explainability() -> Subscription {
    Subscription {
        topic: topics::EXPLAINABILITY,
        name: subscription::GRAPH_WRITER.to_owned(),
        only: None,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

/// The worker of `explainability`.
#[derive(Clone)]
pub struct GraphWriter {
    graph: Arc<dyn Graph>,
    documents: Arc<dyn Documents>,
    host: Arc<dyn Host>,
    graph_away: Arc<Witness>,
    documents_away: Arc<Witness>,
}

impl std::fmt::Debug for GraphWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraphWriter").finish_non_exhaustive()
    }
}

impl GraphWriter {
    pub fn new(graph: Arc<dyn Graph>, documents: Arc<dyn Documents>, host: Arc<dyn Host>) -> Self {
        Self {
            graph,
            documents,
            host,
            graph_away: Arc::new(Witness::of("writing provenance to the graph")),
            documents_away: Arc::new(Witness::of("reading what was erased")),
        }
    }

    /// Writes messages one at a time, to find those that are refused for what they hold.
    async fn one_by_one(&self, read: &Read, deliveries: &[Delivery]) -> Vec<Disposition> {
        let mut dispositions = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let Ok(Some(batch)) = read.batch(delivery) else {
                dispositions.push(Disposition::Ack);
                continue;
            };
            dispositions.push(match self.graph.insert(vec![batch]).await {
                Ok(()) => Disposition::Ack,
                Err(error) => self.refused(&error),
            });
        }
        dispositions
    }

    fn refused(&self, error: &agentfleet_graph::Error) -> Disposition {
        match error.retry() {
            Some(after) => {
                self.graph_away.failed(error);
                Disposition::RetryAfter(after)
            }
            None => Disposition::DeadLetter(error.to_string()),
        }
    }
}

/// How a message is read.
struct Read {
    /// Roots whose data was erased: what was erased stays erased.
    erased: BTreeSet<String>,
}

impl Read {
    /// What a message brings into the graph, if anything.
    fn batch(&self, delivery: &Delivery) -> Result<Option<Batch>, serde_json::Error> {
        let message: Triples = serde_json::from_slice(&delivery.payload)?;
        if message.triples.is_empty() {
            return Ok(None);
        }
        let batch = Batch::of_message(message, &delivery.properties);
        Ok((!self.erased.contains(&batch.root)).then_some(batch))
    }
}

#[async_trait]
impl BatchHandler for GraphWriter {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Disposition> {
        let erased = match erased(&*self.documents, deliveries).await {
            Ok(erased) => {
                self.documents_away.well();
                erased
            }
            Err(error) => {
                self.documents_away.failed(&error);
                let again = Disposition::RetryAfter(Duration::from_secs(1));
                return vec![again; deliveries.len()];
            }
        };
        let read = Read { erased };
        let mut unreadable = Vec::new();
        let mut together = Vec::with_capacity(deliveries.len());
        for (at, delivery) in deliveries.iter().enumerate() {
            match read.batch(delivery) {
                Ok(batch) => together.extend(batch),
                Err(error) => {
                    unreadable.push((at, format!("the message is no `Triples`: {error}")));
                }
            }
        }
        let is_asked = !together.is_empty();
        let mut dispositions = match self.graph.insert(together).await {
            Ok(()) => {
                if is_asked {
                    self.graph_away.well();
                }
                let now = self.host.now();
                for delivery in deliveries {
                    metrics::written(delivery.published_at, now);
                }
                vec![Disposition::Ack; deliveries.len()]
            }
            Err(error) if error.retry().is_some() => {
                vec![self.refused(&error); deliveries.len()]
            }
            // Rare, so that the messages are read again rather than kept twice.
            Err(_) => self.one_by_one(&read, deliveries).await,
        };
        for (at, reason) in unreadable {
            dispositions[at] = Disposition::DeadLetter(reason);
        }
        dispositions
    }
}
