//! The queue seam: publish, subscribe, acknowledge, delay, give up.
//!
//! # Contract (the suite in `tests/it/contract.rs` checks every implementation)
//! - `publish` returns after the messages are durable. What can be refused beforehand, for its size,
//!   is refused before anything is visible. The embedded broker makes all of one call visible or
//!   none. Pulsar cannot (its transactions are a thousand times slower): there those of one topic
//!   become visible in order, those of different topics in any, and after an error any of them may
//!   be visible, the one that failed included. All of them may then be published again: who consumes
//!   can take repeats anyway.
//! - A subscription exists from `subscribe` on and receives everything published to its topic
//!   since, whether or not a consumer is connected. It is never removed by closing a consumer.
//! - Consumers of one subscription compete: a message is with one of them at a time, until it is
//!   acknowledged, negatively acknowledged, or its lease runs out. Delivery is at least once and in
//!   no promised order. On Pulsar the lease is kept by the process that holds the message, so it
//!   does not run out while that process hangs with its connection open.
//! - After `max_deliveries` deliveries a message moves to [`topics::DEAD_LETTER`], with its reason,
//!   its origin and all its properties. Pulsar counts what was handed back or held beyond its lease,
//!   but not what was lost with its consumer, process or connection.
//! - A delivery is settled through the broker whose consumer received it, or a clone of it; the
//!   embedded broker takes it from every process on its data directory.
//! - Acknowledging twice, or after the lease was lost, is harmless.
//! - A message with `deliver_at` is not delivered before that instant.

use agentfleet_schema::Millis;
use agentfleet_schema::topics::Topic;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

mod embedded;
mod error;
mod listeners;
mod outage;
mod pulsar;
mod signed;

pub use embedded::{EmbeddedBroker, Kept, Options, Parcel, SubscriptionStats};
pub use error::Error;
pub use outage::{Outage, Witness};
pub use pulsar::{PulsarBroker, PulsarOptions, Token};
pub use signed::{FleetSecret, LEAST_SECRET};

/// Message properties: small strings that travel beside the payload.
pub type Properties = BTreeMap<String, String>;

/// Largest payload a broker takes, in bytes; well below what Apache Pulsar refuses.
pub const MAX_PAYLOAD: usize = 4 * 1024 * 1024;

/// Largest properties of a message, names and values together, in bytes. With the payload they stay
/// below what Apache Pulsar takes by default (5 MiB).
pub const MAX_PROPERTIES: usize = 512 * 1024;

/// The size of a message's properties, names and values together, in bytes.
pub fn properties_size(properties: &Properties) -> usize {
    let each = properties.iter();
    each.map(|(name, value)| name.len() + value.len()).sum()
}

/// A message to publish.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub topic: Topic,
    pub payload: Vec<u8>,
    pub properties: Properties,
    pub deliver_at: Option<Millis>,
    /// How long the message must survive: [`Durability::Durable`] unless it may be lost with the
    /// machine's power, as a streamed chunk may.
    pub durability: Durability,
}

impl Outgoing {
    /// Refuses what is larger than a message may be.
    pub fn check(&self) -> Result<(), Error> {
        let (topic, size) = (self.topic.clone(), self.payload.len());
        if size > MAX_PAYLOAD {
            let limit = MAX_PAYLOAD;
            return Err(Error::TooLarge { topic, size, limit });
        }
        let size = properties_size(&self.properties);
        if size > MAX_PROPERTIES {
            let limit = MAX_PROPERTIES;
            return Err(Error::PropertiesTooLarge { topic, size, limit });
        }
        Ok(())
    }
}

/// What a publish survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Power loss.
    #[default]
    Durable,
    /// Death of every process, but not power loss.
    Process,
}

/// A subscription: the competing consumers of a topic share one by its name.
#[derive(Clone, Debug)]
pub struct Subscription {
    pub topic: Topic,
    pub name: String,
    /// Only messages whose property has this value, and those without the property, which are not of
    /// this fleet; others count as acknowledged.
    pub only: Option<(String, String)>,
    /// How long a consumer may hold a message before others get it.
    pub lease: Duration,
    /// Deliveries before the dead-letter topic; `None` never gives up.
    pub max_deliveries: Option<u32>,
}

/// A message in a consumer's hands.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The broker's id of the message, unique within its topic; equal on redelivery.
    pub message_id: String,
    pub topic: Topic,
    pub payload: Arc<[u8]>,
    pub properties: Properties,
    /// How often this message was delivered, this time included; `None` if the broker cannot tell
    /// reliably (then attempts are recorded before work).
    pub deliveries: Option<u32>,
    pub published_at: Millis,
    /// When it was delivered first, if that was before and the broker can tell.
    pub first_at: Option<Millis>,
    /// When the stream that brought it was opened again, if it was: the broker, the topic or the
    /// connection was away. What was in hands before that may be in living ones still.
    pub reopened_at: Option<Millis>,
    pub receipt: Receipt,
}

/// What a broker needs to settle a delivery; opaque to everyone else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub delivery: i64,
    pub lease: i64,
}

/// A retained message, as a reader sees it.
#[derive(Clone, Debug)]
pub struct Retained {
    /// Position in the topic: strictly increasing.
    pub position: i64,
    pub payload: Arc<[u8]>,
    pub properties: Properties,
}

/// What waits in a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// `topic/name`.
    pub queue: String,
    /// What a free consumer would get now. On Pulsar what consumers have in their hands counts too.
    pub ready: u64,
    /// What is not to be worked before some time to come. On Pulsar this is all that was ever
    /// delayed or handed back and is not acknowledged, also if its time has come.
    pub delayed: u64,
}

/// A queue.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), Error>;

    /// Opens a consumer, creating the subscription if it is new.
    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error>;

    /// Makes subscriptions that are new, and consumes nothing: what is published from then on waits
    /// for their consumers.
    async fn establish(&self, subscriptions: &[Subscription]) -> Result<(), Error> {
        for subscription in subscriptions {
            drop(self.subscribe(subscription.clone()).await?);
        }
        Ok(())
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), Error>;

    /// Hands the message back; it comes again after `delay`, with its count kept.
    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), Error>;

    /// Gives up on a message now: moves it to the dead-letter topic with a reason.
    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), Error>;

    /// Holds on to a message for another lease.
    async fn extend(&self, delivery: &Delivery) -> Result<(), Error>;

    /// Reads what a topic retained under `key` (the `root` property), without consuming it: waits
    /// until there is something after `after`, then returns up to `max` messages in order.
    async fn read(
        &self,
        topic: &Topic,
        key: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error>;

    /// Where `read` may begin for a key that nothing was published under before this call. Where
    /// reading costs the same from everywhere this is 0, the beginning.
    async fn mark(&self, topic: &Topic) -> Result<i64, Error>;

    /// Whether the broker answers, and the consumers of this process can receive. Cheap: it may be
    /// asked every second.
    async fn ready(&self) -> Result<(), Error> {
        self.waiting().await.map(drop)
    }

    /// Passes on what is published to a topic from now on, whoever subscribes to it, until what is returned is
    /// dropped. Nothing of it outlives this process, however that ends. What comes while the broker is away may be
    /// missed.
    async fn listen(&self, topic: &Topic) -> Result<mpsc::Receiver<Retained>, Error> {
        Err(Error::Unlistened(topic.clone()))
    }

    /// Makes sure that a topic can be published to, and publishes nothing: how many subscriptions get what is
    /// published there, or have somebody who does, if the broker can say.
    async fn reach(&self, topic: &Topic) -> Result<Option<u64>, Error> {
        Err(Error::Unlistened(topic.clone()))
    }

    /// Whether a topic is one of the fleet's own, by whatever name.
    fn is_own(&self, topic: &Topic) -> bool {
        topic.is_of_fleet()
    }

    /// What waits, by subscription. Pulsar tells it for the subscriptions that this process knows.
    async fn waiting(&self) -> Result<Vec<Waiting>, Error>;

    /// Who consumes each of these subscriptions (`topic/name`), by address; `None` if the broker cannot
    /// say.
    async fn consumers(
        &self,
        _subscriptions: &[Subscription],
    ) -> Result<Option<Vec<(String, Vec<String>)>>, Error> {
        Ok(None)
    }

    /// Messages waiting, delayed ones included, by subscription (`topic/name`).
    async fn backlog(&self) -> Result<Vec<(String, u64)>, Error> {
        let waiting = self.waiting().await?.into_iter();
        Ok(waiting
            .map(|one| (one.queue, one.ready + one.delayed))
            .collect())
    }

    /// Stops everything: returns when the broker has taken every acknowledgement, and has given what
    /// consumers of this process still hold to others; or after a few seconds without an answer.
    /// Nothing can be published or received afterwards. Clones of a broker are closed together.
    async fn close(&self) {}
}

/// The receiving end of a subscription. Dropping it hands back what it did not settle.
#[async_trait]
pub trait Consumer: Send {
    /// Waits until at least one message is ready, then returns up to `max`.
    /// Cancel safe: a message is either returned or stays with the broker.
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, Error>;
}
