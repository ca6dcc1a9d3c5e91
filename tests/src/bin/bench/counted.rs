//! The seams of a role, counted: how often each is called, and how long the calls take. What passes
//! through is not changed.

use agentfleet::engine::Engine;
use agentfleet_broker::{
    Broker, Consumer, Delivery, Error as BrokerError, Outgoing, Retained, Subscription, Waiting,
};
use agentfleet_documents::{Created, Documents, Entry, Error as DocumentsError};
use agentfleet_graph::QueryOptions;
use agentfleet_graph::{Answer, Batch, EraseBy, Erased, Error as GraphError, Graph};
use agentfleet_runtime::SequentialCommitter;
use agentfleet_schema::Term;
use agentfleet_schema::topics::Topic;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was called so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) count: u64,
    /// Keys, messages or triples that went through.
    pub(crate) things: u64,
    pub(crate) micros: u64,
}

/// By the name of the call.
pub(crate) type Tally = BTreeMap<String, Calls>;

/// Shared by all seams of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<Mutex<Tally>>);

impl Counter {
    pub(crate) fn tally(&self) -> Tally {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn time<T>(&self, name: &str, things: usize, call: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let result = call.await;
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = tally.entry(name.to_owned()).or_default();
        calls.count += 1;
        calls.things += things as u64;
        calls.micros += began.elapsed().as_micros() as u64;
        result
    }

    /// Puts counted seams in the place of an engine's own. Its documents or its broker are on a
    /// server: commits are a sequence of calls then, all of which are counted.
    pub(crate) fn watch(&self, engine: &mut Engine) {
        let counted = |inner| Counted {
            inner,
            counter: self.clone(),
        };
        let documents: Arc<dyn Documents> = Arc::new(Counted {
            inner: engine.documents(),
            counter: self.clone(),
        });
        let broker: Arc<dyn Broker> = Arc::new(counted(engine.broker()));
        engine.store.committer = Arc::new(SequentialCommitter::settling(
            Arc::clone(&broker),
            Arc::clone(&documents),
        ));
        engine.store.documents = documents;
        engine.store.broker = broker;
        engine.graph = Arc::new(Counted {
            inner: Arc::clone(&engine.graph),
            counter: self.clone(),
        });
    }
}

struct Counted<T: ?Sized> {
    counter: Counter,
    inner: Arc<T>,
}

#[async_trait]
impl Documents for Counted<dyn Documents> {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, DocumentsError> {
        let call = self.inner.create(key, body);
        self.counter.time("documents create", 1, call).await
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, DocumentsError> {
        self.counter
            .time("documents get", 1, self.inner.get(key))
            .await
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, DocumentsError> {
        let call = self.inner.get_many(keys);
        self.counter
            .time("documents get_many", keys.len(), call)
            .await
    }

    async fn create_with(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Option<Arc<[u8]>>, DocumentsError> {
        let call = self.inner.create_with(key, body, others);
        let many = 1 + others.len();
        self.counter.time("documents create_with", many, call).await
    }

    async fn begin(
        &self,
        first: (&str, Vec<u8>),
        others: &[(String, Vec<u8>)],
        asked: &[String],
        unless: usize,
    ) -> Result<(Created, Vec<Option<Arc<[u8]>>>), DocumentsError> {
        let call = self.inner.begin(first, others, asked, unless);
        let many = 1 + others.len() + asked.len();
        self.counter.time("documents begin", many, call).await
    }

    async fn ensure_all(&self, objects: &[(String, Vec<u8>)]) -> Result<(), DocumentsError> {
        // Of nothing it asks nothing.
        if objects.is_empty() {
            return Ok(());
        }
        let call = self.inner.ensure_all(objects);
        let many = objects.len();
        self.counter.time("documents ensure_all", many, call).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, DocumentsError> {
        let call = self.inner.list(prefix);
        self.counter.time("documents list", 1, call).await
    }

    async fn entries(
        &self,
        prefix: &str,
        after: &str,
        max: usize,
    ) -> Result<Vec<Entry>, DocumentsError> {
        let call = self.inner.entries(prefix, after, max);
        self.counter.time("documents list", 1, call).await
    }

    async fn delete(&self, keys: &[String]) -> Result<(), DocumentsError> {
        let call = self.inner.delete(keys);
        self.counter
            .time("documents delete", keys.len(), call)
            .await
    }
}

#[async_trait]
impl Broker for Counted<dyn Broker> {
    async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), BrokerError> {
        let many = messages.len();
        let call = self.inner.publish(messages);
        self.counter.time("broker publish", many, call).await
    }

    async fn subscribe(
        &self,
        subscription: Subscription,
    ) -> Result<Box<dyn Consumer>, BrokerError> {
        self.inner.subscribe(subscription).await
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), BrokerError> {
        let call = self.inner.ack(delivery);
        self.counter.time("broker ack", 1, call).await
    }

    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), BrokerError> {
        let call = self.inner.nack(delivery, delay);
        self.counter.time("broker nack", 1, call).await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), BrokerError> {
        self.inner.dead_letter(delivery, reason).await
    }

    async fn extend(&self, delivery: &Delivery) -> Result<(), BrokerError> {
        self.inner.extend(delivery).await
    }

    async fn read(
        &self,
        topic: &Topic,
        key: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, BrokerError> {
        self.inner.read(topic, key, after, max).await
    }

    async fn mark(&self, topic: &Topic) -> Result<i64, BrokerError> {
        self.inner.mark(topic).await
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, BrokerError> {
        self.inner.waiting().await
    }
}

#[async_trait]
impl Graph for Counted<dyn Graph> {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), GraphError> {
        let triples = batches.iter().map(|batch| batch.triples.len()).sum();
        let call = self.inner.insert(batches);
        self.counter.time("graph insert", triples, call).await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, GraphError> {
        let call = self.inner.query(sparql, bindings, options);
        self.counter.time("graph query", 1, call).await
    }

    async fn erase_all(&self, by: Vec<EraseBy>) -> Result<Erased, GraphError> {
        self.inner.erase_all(by).await
    }

    async fn batches(&self) -> Result<u64, GraphError> {
        self.inner.batches().await
    }

    async fn ready(&self) -> Result<(), GraphError> {
        self.inner.ready().await
    }
}
