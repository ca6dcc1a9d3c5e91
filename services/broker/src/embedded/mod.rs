//! The broker of one machine: queues as tables of the embedded database, shared by any number of
//! processes on one data directory.
//!
//! - `tables`: what lies where. `topology`: topics and subscriptions. `store`: publish, claim and
//!   settle inside a transaction. `dispatcher`: hands ready messages to who waits, around every
//!   commit. `consumer`: the waiting end. `listening`: subscriptions that end with their process. `admin`:
//!   counts, retention, erasure.
//! - What must happen together with other changes has an `_in` form that takes the caller's unit.
//! - A message whose topic has no subscription, and is not retained, is dropped: subscriptions must
//!   exist before their first message. `dead-letter` has one from the start.

mod admin;
mod consumer;
mod dispatcher;
mod export;
mod listening;
mod store;
mod tables;
mod topology;

pub use admin::SubscriptionStats;
pub use export::Kept;

use crate::error::Error;
use crate::listeners::Listeners;
use crate::{
    Broker, Consumer, Delivery, Durability, Outgoing, Receipt, Retained, Subscription, Waiting,
};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{AGENT_RESPONSE, Topic};
use agentfleet_storage::{self as storage, Database, Instances, Poker, Unit};
use async_trait::async_trait;
use consumer::EmbeddedConsumer;
use dispatcher::{Dispatcher, Returned, Waiter};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use store::Parcel;
use store::Terms;
use tokio::sync::mpsc;
use topology::Topology;

/// How the embedded broker differs from topic to topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Topics that keep their messages, for at least how long, whether or not they are consumed.
    /// [`EmbeddedBroker::purge`] deletes what is older.
    pub retain: BTreeMap<Topic, Duration>,
}

impl Default for Options {
    fn default() -> Self {
        let week = Duration::from_hours(7 * 24);
        Self {
            retain: BTreeMap::from([(AGENT_RESPONSE, week)]),
        }
    }
}

/// The broker of one data directory. Clones share it.
#[derive(Clone, Debug)]
pub struct EmbeddedBroker {
    database: Database,
    state: Arc<State>,
}

/// What consumers, the writer thread and the broker share. Does not keep the database open.
#[derive(Debug)]
struct State {
    instances: Instances,
    poker: Poker,
    retain: BTreeMap<Topic, Duration>,
    listeners: Arc<Listeners>,
    /// Used on the writer thread only.
    topology: Mutex<Topology>,
    mailbox: Mutex<Mailbox>,
    held: Mutex<HashMap<i64, Held>>,
    consumers: AtomicU64,
}

/// What waits for the dispatcher.
#[derive(Debug, Default)]
struct Mailbox {
    waiters: Vec<Waiter>,
    returned: Vec<Returned>,
}

/// A delivery in the hands of a consumer of this process.
#[derive(Clone, Copy, Debug)]
struct Held {
    receipt: Receipt,
    lease: Millis,
    consumer: u64,
}

impl State {
    fn own(&self) -> i64 {
        self.instances.own()
    }

    fn retains(&self, topic: &Topic) -> bool {
        self.retain.contains_key(topic)
    }

    fn topology(&self) -> MutexGuard<'_, Topology> {
        self.topology.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<i64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, waiter: Waiter) {
        self.mailbox().waiters.push(waiter);
        self.poker.poke();
    }

    fn hand_back(&self, returned: Vec<Returned>) {
        for returned in &returned {
            self.settled(returned.receipt);
        }
        self.mailbox().returned.extend(returned);
        self.poker.poke();
    }

    fn hold(&self, consumer: u64, lease: Millis, deliveries: &[Delivery]) {
        let mut held = self.held();
        for delivery in deliveries {
            let receipt = delivery.receipt;
            held.insert(
                receipt.delivery,
                Held {
                    receipt,
                    lease,
                    consumer,
                },
            );
        }
    }

    /// The lease that a receipt stands for, while it is held.
    fn lease(&self, receipt: Receipt) -> Option<Millis> {
        let held = self.held();
        held.get(&receipt.delivery)
            .filter(|held| held.receipt == receipt)
            .map(|held| held.lease)
    }

    fn settled(&self, receipt: Receipt) {
        let mut held = self.held();
        if held
            .get(&receipt.delivery)
            .is_some_and(|held| held.receipt == receipt)
        {
            held.remove(&receipt.delivery);
        }
    }

    /// The receipt is settled if and when the unit commits.
    fn settle_with(self: &Arc<Self>, unit: &mut Unit<'_>, receipt: Receipt) {
        let state = Arc::clone(self);
        unit.after_commit(move || state.settled(receipt));
    }

    /// Hands back what a consumer did not settle.
    fn let_go(&self, consumer: u64) {
        let unsettled = |held: &Held| {
            let (receipt, is_seen) = (held.receipt, true);
            (held.consumer == consumer).then_some(Returned { receipt, is_seen })
        };
        let returned: Vec<Returned> = self.held().values().filter_map(unsettled).collect();
        if !returned.is_empty() {
            self.hand_back(returned);
        }
    }
}

impl EmbeddedBroker {
    pub fn open(database: &Database, options: Options) -> Result<Self, Error> {
        database.migrate(tables::PART, tables::TABLES)?;
        let state = Arc::new(State {
            instances: database.instances().clone(),
            poker: database.poker(),
            retain: options.retain,
            listeners: Arc::default(),
            topology: Mutex::default(),
            mailbox: Mutex::default(),
            held: Mutex::default(),
            consumers: AtomicU64::new(0),
        });
        database.hook(Box::new(Dispatcher::new(Arc::clone(&state))));
        Ok(Self {
            database: database.clone(),
            state,
        })
    }

    /// The database that the broker works on.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Publishes as part of the caller's unit: all is visible if and when the unit commits. The
    /// unit's durability is that of the messages.
    pub fn publish_in(
        &self,
        unit: &mut Unit<'_>,
        parcels: &[Parcel],
    ) -> Result<(), storage::Error> {
        store::publish(&self.state, unit, parcels)
    }

    /// Acknowledges as part of the caller's unit.
    pub fn ack_in(&self, unit: &mut Unit<'_>, delivery: &Delivery) -> Result<(), storage::Error> {
        self.state.settle_with(unit, delivery.receipt);
        store::ack(unit, delivery.receipt)
    }

    async fn write<F>(&self, durability: storage::Durability, action: F) -> Result<(), Error>
    where
        F: FnOnce(&Arc<State>, &mut Unit<'_>) -> Result<(), storage::Error> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        let written = self
            .database
            .write(durability, move |unit| action(&state, unit));
        Ok(written.await?)
    }

    /// Settling may be lost with the power: then the message comes again, as it may at any time.
    async fn settle<F>(&self, action: F) -> Result<(), Error>
    where
        F: FnOnce(&Arc<State>, &mut Unit<'_>) -> Result<(), storage::Error> + Send + 'static,
    {
        self.write(storage::Durability::Process, action).await
    }
}

#[async_trait]
impl Broker for EmbeddedBroker {
    async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        let durable = |message: &Outgoing| message.durability == Durability::Durable;
        let durability = if messages.iter().any(durable) {
            storage::Durability::Durable
        } else {
            storage::Durability::Process
        };
        let parcels: Vec<Parcel> = messages
            .into_iter()
            .map(Parcel::of)
            .collect::<Result<_, _>>()?;
        self.write(durability, move |state, unit| {
            store::publish(state, unit, &parcels)
        })
        .await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let Subscription {
            topic,
            name,
            only,
            lease,
            max_deliveries,
        } = subscription;
        let (state, wanted) = (Arc::clone(&self.state), topic.clone());
        let subscribed = self
            .database
            .write(storage::Durability::Durable, move |unit| {
                state
                    .topology()
                    .subscribe(unit, &wanted, &name, only.as_ref())
            });
        let (subscription, topic_id) = subscribed.await?;
        let lease = store::millis(lease).max(1);
        Ok(Box::new(EmbeddedConsumer {
            broker: self.clone(),
            terms: Terms {
                subscription,
                topic,
                lease,
                max_deliveries,
                max: 1,
            },
            topic_id,
            id: self.state.consumers.fetch_add(1, Ordering::Relaxed),
        }))
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), Error> {
        let receipt = delivery.receipt;
        self.settle(move |state, unit| {
            state.settle_with(unit, receipt);
            store::ack(unit, receipt)
        })
        .await
    }

    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), Error> {
        let receipt = delivery.receipt;
        self.settle(move |state, unit| {
            state.settle_with(unit, receipt);
            store::nack(state, unit, receipt, delay, true)
        })
        .await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), Error> {
        let (delivery, reason) = (delivery.clone(), reason.to_owned());
        self.write(storage::Durability::Durable, move |state, unit| {
            state.settle_with(unit, delivery.receipt);
            store::dead_letter(state, unit, &delivery, &reason)
        })
        .await
    }

    async fn extend(&self, delivery: &Delivery) -> Result<(), Error> {
        let receipt = delivery.receipt;
        match self.state.lease(receipt) {
            Some(lease) => {
                self.settle(move |_, unit| store::extend(unit, receipt, lease))
                    .await
            }
            None => Ok(()),
        }
    }

    async fn read(
        &self,
        topic: &Topic,
        key: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error> {
        if !self.state.retains(topic) {
            return Err(Error::NotRetained(topic.clone()));
        }
        let listener = self.state.listeners.listen(topic, key);
        let max = i64::try_from(max.max(1)).unwrap_or(i64::MAX);
        loop {
            // Listening begins before looking: what is published in between is not missed.
            let news = listener.notify.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let (topic, key) = (topic.clone(), key.to_owned());
            let found = self
                .database
                .read(move |connection| retained(connection, &topic, &key, after, max))
                .await?;
            if !found.is_empty() {
                return Ok(found);
            }
            news.await;
        }
    }

    /// Reading goes by an index.
    async fn mark(&self, topic: &Topic) -> Result<i64, Error> {
        if self.state.retains(topic) {
            Ok(0)
        } else {
            Err(Error::NotRetained(topic.clone()))
        }
    }

    async fn ready(&self) -> Result<(), Error> {
        let found = self.database.read(|connection| {
            let any = "SELECT EXISTS (SELECT 1 FROM subscriptions)";
            Ok(connection
                .prepare_cached(any)?
                .query_row([], |row| row.get::<_, bool>(0))?)
        });
        found.await?;
        Ok(())
    }

    async fn listen(&self, topic: &Topic) -> Result<mpsc::Receiver<Retained>, Error> {
        listening::listen(self, topic).await
    }

    async fn reach(&self, topic: &Topic) -> Result<Option<u64>, Error> {
        let topic = topic.clone();
        let counted = self.database.read(move |connection| {
            let all = "SELECT count(*) FROM subscriptions JOIN topics ON topics.id = topic
                       WHERE topics.name = ?1";
            let mut statement = connection.prepare_cached(all)?;
            Ok(statement.query_row([topic.as_str()], |row| row.get(0))?)
        });
        let counted: i64 = counted.await?;
        Ok(u64::try_from(counted).ok())
    }

    async fn close(&self) {
        if let Err(error) = listening::leave(self).await {
            tracing::debug!(%error, "listeners stay until somebody else listens");
        }
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        let stats = self.stats().await?.into_iter();
        let waiting = stats.map(|stats| Waiting {
            queue: format!("{}/{}", stats.topic, stats.subscription),
            ready: stats.waiting,
            delayed: stats.delayed,
        });
        Ok(waiting.collect())
    }
}

fn retained(
    connection: &Connection,
    topic: &Topic,
    key: &str,
    after: i64,
    max: i64,
) -> Result<Vec<Retained>, storage::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT id, properties, payload FROM messages
         WHERE topic = (SELECT id FROM topics WHERE name = ?1) AND key = ?2 AND id > ?3
         ORDER BY id LIMIT ?4",
    )?;
    let mut rows = statement.query((topic.as_str(), key, after, max))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let position: i64 = row.get(0)?;
        let properties = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
        found.push(Retained {
            position,
            properties: store::decode(&position.to_string(), properties)?,
            payload: storage::unpack(row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?)?,
        });
    }
    Ok(found)
}
