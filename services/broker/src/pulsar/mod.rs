//! The broker of many machines: Apache Pulsar.
//!
//! - `options`: what an operator says. `names`: our topics on Pulsar. `dial`, `link`, `commands`:
//!   connections, over the codec of the `pulsar` crate. `cluster`: who serves what.
//! - `publisher`, `producer`: publishing. `feed`, `consumer`, `parcel`: receiving. `holdings`:
//!   leases. `retained`, `reader`: reading by key. `admin`: retention.
//! - A delivery is settled by the broker object (or a clone of it) whose consumer received it.
//! - Subscriptions are shared, durable, begin with the first message, and are never removed.
//! - What is handed back goes to a retry topic as a copy that counts its attempts; then the
//!   original is acknowledged. What is lost with a connection or a process is given to others by
//!   Pulsar, uncounted: so `deliveries` is `None`, and who works a message records its attempts.

mod admin;
mod cluster;
mod commands;
mod consumer;
mod dial;
mod feed;
mod holdings;
mod link;
mod names;
mod options;
mod parcel;
mod producer;
mod publisher;
mod reader;
mod retained;

pub use options::{PulsarOptions, Token};
pub use publisher::MAX_PROPERTIES;

use crate::{Broker, Consumer, Delivery, Durability, Error, Outgoing, Retained, Subscription};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{DEAD_LETTER, Topic, subscription};
use async_trait::async_trait;
use cluster::{Cluster, failed};
use consumer::{Intake, PulsarConsumer};
use feed::{Feed, Stream};
use holdings::{Held, Holdings, Terms};
use names::Names;
use publisher::Publisher;
use retained::Shelves;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A connection to a Pulsar cluster. Clones share it; it ends when the last one, and the last
/// consumer, is dropped.
#[derive(Clone, Debug)]
pub struct PulsarBroker {
    inner: Arc<Inner>,
}

struct Inner {
    options: PulsarOptions,
    cluster: Arc<Cluster>,
    names: Arc<Names>,
    publisher: Arc<Publisher>,
    holdings: Arc<Holdings>,
    shelves: Shelves,
    /// The subscriptions that this process knows.
    known: Mutex<BTreeSet<(Topic, String)>>,
    stop: CancellationToken,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PulsarBroker")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl PulsarBroker {
    /// Connects, and makes sure that no dead letter can be lost.
    pub async fn connect(options: PulsarOptions) -> Result<Self, Error> {
        let stop = CancellationToken::new();
        let cluster = Arc::new(Cluster::new(&options, stop.clone())?);
        let names = Arc::new(Names::new(&options));
        let publisher = Arc::new(Publisher::new(
            &options,
            Arc::clone(&cluster),
            Arc::clone(&names),
            stop.clone(),
        ));
        let holdings = Arc::new(Holdings::default());
        let shelves = Shelves::new(
            &options,
            Arc::clone(&cluster),
            Arc::clone(&names),
            stop.clone(),
        );
        let guard = stop.clone().drop_guard();
        cluster.any().await?;
        tokio::spawn(watch(
            Arc::clone(&holdings),
            Arc::clone(&publisher),
            stop.clone(),
        ));
        guard.disarm();
        let broker = Self {
            inner: Arc::new(Inner {
                options,
                cluster,
                names,
                publisher,
                holdings,
                shelves,
                known: Mutex::default(),
                stop,
            }),
        };
        broker
            .ensure(&[], &[(DEAD_LETTER, subscription::UNDERTAKER)])
            .await?;
        Ok(broker)
    }

    /// Creates what is not there yet: topics, subscriptions, and how long topics are retained. What
    /// is published to a subscription's topic from then on waits for it.
    pub async fn ensure(
        &self,
        topics: &[Topic],
        subscriptions: &[(Topic, &str)],
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        for (topic, name) in subscriptions {
            for (_, feed) in self.patiently(|| self.streams(topic, name)).await? {
                feed.close();
            }
            self.know(topic, name);
        }
        for topic in topics {
            let full = inner.names.full(topic);
            for part in self.patiently(|| inner.cluster.parts(&full)).await? {
                self.patiently(|| self.create(&part)).await?;
            }
            if let Some(keep) = inner.options.retain.get(topic) {
                admin::retain(&inner.options, &full, *keep).await?;
            }
        }
        Ok(())
    }

    /// Stops everything: returns when the broker has taken every acknowledgement. What consumers
    /// still hold goes to others.
    pub async fn close(&self) {
        for link in self.inner.cluster.links().await {
            if let Err(fault) = link.flush().await {
                tracing::warn!(url = link.url, %fault, "closing before Pulsar had taken everything");
            }
        }
        self.inner.stop.cancel();
    }

    async fn patiently<T, F: Future<Output = Result<T, Error>>>(
        &self,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + self.inner.options.publish_timeout;
        self.inner.cluster.patiently(deadline, attempt).await
    }

    /// Opening a producer creates its topic.
    async fn create(&self, topic: &str) -> Result<(), Error> {
        let cluster = &self.inner.cluster;
        let link = cluster.serving(topic).await?;
        let id = cluster.id();
        let opened = link
            .ask(|request| commands::producer(request, id, topic))
            .await;
        link.close_producer(id);
        opened
            .map(|_| ())
            .map_err(|fault| failed(topic, &link, fault))
    }

    fn know(&self, topic: &Topic, name: &str) {
        let mut known = self
            .inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.insert((topic.clone(), name.to_owned()));
    }

    /// Opens a stream on each topic that a subscription reads.
    async fn streams(&self, topic: &Topic, name: &str) -> Result<Vec<(Feed, Stream)>, Error> {
        let subscription = Subscription {
            topic: topic.clone(),
            name: name.to_owned(),
            only: None,
            lease: Duration::ZERO,
            max_deliveries: None,
        };
        let intake = Arc::new(Intake::new());
        self.open(&subscription, &intake, &CancellationToken::new())
            .await
    }

    async fn open(
        &self,
        subscription: &Subscription,
        intake: &Arc<Intake>,
        stop: &CancellationToken,
    ) -> Result<Vec<(Feed, Stream)>, Error> {
        let inner = &*self.inner;
        let Subscription { topic, name, .. } = subscription;
        let (full, delayed) = (inner.names.full(topic), inner.names.delayed(topic));
        let retry = inner.names.retry(topic, name);
        let terms = Arc::new(Terms {
            topic: topic.clone(),
            retry: retry.clone(),
            lease: subscription.lease,
            max_deliveries: subscription.max_deliveries,
        });
        let mut feeds = Vec::new();
        let mut add = |topic: String, delays: bool, copies: bool| {
            feeds.push(Feed {
                cluster: Arc::clone(&inner.cluster),
                publisher: Arc::clone(&inner.publisher),
                holdings: Arc::clone(&inner.holdings),
                intake: Arc::clone(intake),
                terms: Arc::clone(&terms),
                topic,
                subscription: name.clone(),
                only: subscription.only.clone(),
                copies,
                silence: (!delays).then_some(inner.options.silence),
                stop: stop.clone(),
            });
        };
        for part in inner.cluster.parts(&full).await? {
            add(part, full == delayed, false);
        }
        if delayed != full {
            for part in inner.cluster.parts(&delayed).await? {
                add(part, true, false);
            }
        }
        for part in inner.cluster.parts(&retry).await? {
            add(part, true, true);
        }
        let mut streams: Vec<(Feed, Stream)> = Vec::new();
        for feed in feeds {
            match feed.open().await {
                Ok(stream) => streams.push((feed, stream)),
                Err(error) => {
                    for (_, stream) in streams {
                        stream.close();
                    }
                    return Err(error);
                }
            }
        }
        Ok(streams)
    }
}

/// Hands back what was held for too long.
async fn watch(holdings: Arc<Holdings>, publisher: Arc<Publisher>, stop: CancellationToken) {
    loop {
        let expired = tokio::select! {
            expired = holdings.expired() => expired,
            () = stop.cancelled() => return,
        };
        for held in expired {
            tracing::warn!(
                topic = %held.terms.topic,
                message = held.arrived.message_id,
                "a message was held beyond its lease; others get it"
            );
            let publisher = Arc::clone(&publisher);
            tokio::spawn(async move {
                if let Err(error) = hand_back(&publisher, &held, Duration::ZERO).await {
                    tracing::warn!(%error, "cannot put a message back; Pulsar hands it on uncounted");
                }
            });
        }
    }
}

/// Puts a message back as a copy that comes after `delay`, or gives up on it if it came too often.
/// If that fails, Pulsar hands the message on.
async fn hand_back(publisher: &Publisher, held: &Held, delay: Duration) -> Result<(), Error> {
    let (arrived, terms) = (&held.arrived, &held.terms);
    let deliveries = arrived.attempt + 1;
    // The dead-letter topic is the end: from there nothing goes further.
    let limit = terms.max_deliveries.filter(|_| terms.topic != DEAD_LETTER);
    let done = if limit.is_some_and(|limit| deliveries >= limit) {
        let reason = format!("delivered {deliveries} times without being acknowledged");
        let (payload, properties) = (arrived.payload.to_vec(), arrived.properties.clone());
        publisher
            .bury(
                &terms.topic,
                &arrived.message_id,
                payload,
                properties,
                &reason,
            )
            .await
    } else {
        let (payload, properties) = arrived.again(deliveries);
        let delay = Millis::try_from(delay.as_millis()).unwrap_or(Millis::MAX / 4);
        let again = Outgoing {
            topic: terms.topic.clone(),
            payload,
            properties,
            deliver_at: (delay > 0).then(|| publisher::now().saturating_add(delay)),
            durability: Durability::Durable,
        };
        publisher.copy(&terms.retry, again).await
    };
    match done {
        Ok(()) => arrived.entry.settle(),
        Err(_) => arrived.entry.give_back(),
    }
    done
}

#[async_trait]
impl Broker for PulsarBroker {
    async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        self.inner.publisher.publish(messages).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let inner = &*self.inner;
        let intake = Arc::new(Intake::new());
        let stop = inner.stop.child_token();
        let streams = self
            .patiently(|| self.open(&subscription, &intake, &stop))
            .await?;
        let terms = Arc::new(Terms {
            retry: inner.names.retry(&subscription.topic, &subscription.name),
            topic: subscription.topic.clone(),
            lease: subscription.lease,
            max_deliveries: subscription.max_deliveries,
        });
        for (feed, stream) in streams {
            tokio::spawn(feed.run(stream));
        }
        self.know(&subscription.topic, &subscription.name);
        Ok(Box::new(PulsarConsumer {
            intake,
            holdings: Arc::clone(&inner.holdings),
            terms,
            holder: inner.cluster.id(),
            stop,
            _broker: self.clone(),
        }))
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), Error> {
        if let Some(held) = self.inner.holdings.take(delivery.receipt) {
            held.arrived.entry.settle();
        }
        Ok(())
    }

    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), Error> {
        match self.inner.holdings.take(delivery.receipt) {
            Some(held) => hand_back(&self.inner.publisher, &held, delay).await,
            None => Ok(()),
        }
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), Error> {
        if delivery.topic == DEAD_LETTER {
            return Err(Error::AlreadyDead);
        }
        let Some(held) = self.inner.holdings.take(delivery.receipt) else {
            return Ok(());
        };
        let arrived = &held.arrived;
        let (payload, properties) = (arrived.payload.to_vec(), arrived.properties.clone());
        let publisher = &self.inner.publisher;
        let buried = publisher
            .bury(
                &delivery.topic,
                &arrived.message_id,
                payload,
                properties,
                reason,
            )
            .await;
        match buried {
            Ok(()) => held.arrived.entry.settle(),
            Err(_) => self.inner.holdings.put_back(delivery.receipt, held),
        }
        buried
    }

    async fn extend(&self, delivery: &Delivery) -> Result<(), Error> {
        self.inner.holdings.extend(delivery.receipt);
        Ok(())
    }

    async fn read(
        &self,
        topic: &Topic,
        key: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error> {
        self.inner.shelves.read(topic, key, after, max).await
    }

    async fn mark(&self, topic: &Topic) -> Result<i64, Error> {
        self.inner.shelves.mark(topic).await
    }

    /// Of the subscriptions that this process knows: those it consumes, and those of `ensure`.
    async fn backlog(&self) -> Result<Vec<(String, u64)>, Error> {
        // Also without any subscription it must be true that the cluster answers.
        let any = self.inner.cluster.any().await?;
        any.flush().await.map_err(|fault| failed("", &any, fault))?;
        let known = self
            .inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut backlog = Vec::new();
        for (topic, name) in known {
            let mut count = 0;
            for (feed, stream) in self.streams(&topic, &name).await? {
                let waiting = feed.backlog(&stream).await;
                stream.close();
                count += waiting?;
            }
            backlog.push((format!("{topic}/{name}"), count));
        }
        Ok(backlog)
    }
}
