//! The broker of many machines: Apache Pulsar.
//!
//! - `options`: what an operator says. `names`: our topics on Pulsar. `dial`, `link`, `commands`:
//!   connections, over the codec of the `pulsar` crate. `cluster`: who serves what.
//! - `publisher`, `producer`: publishing. `stream`, `feed`, `consumer`, `parcel`: receiving.
//!   `holdings`: leases. `retained`, `reader`: reading by key.
//!   `listening`: what is published to a topic from now on. `admin`: retention. `streams`,
//!   `backlog`: whether messages come, and how many wait.
//! - A delivery is settled by the broker object (or a clone of it) whose consumer received it.
//! - Subscriptions are shared, durable, begin with the first message, and are never removed.
//! - What is handed back goes to a retry topic as a copy that counts its attempts; then the
//!   original is acknowledged. What is lost with a connection or a process is given to others by
//!   Pulsar, uncounted: so `deliveries` is `None`, and who works a message records its attempts.

mod admin;
mod backlog;
mod cluster;
mod commands;
mod consumer;
mod dial;
mod feed;
mod holdings;
mod link;
mod listening;
mod names;
mod options;
mod parcel;
mod producer;
mod publisher;
mod reader;
mod retained;
mod stream;
mod streams;

pub use options::{PulsarOptions, Token};

use crate::{
    Broker, Consumer, Delivery, Durability, Error, Outgoing, Retained, Subscription, Waiting,
};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{DEAD_LETTER, Topic, subscription};
use async_trait::async_trait;
use backlog::Backlog;
use cluster::{Cluster, failed};
use consumer::{Intake, PulsarConsumer};
use feed::Feed;
use futures::future::{join_all, try_join_all};
use holdings::{Held, Holdings, Terms};
use names::{Carries, Lane, Names};
use publisher::Publisher;
use retained::Shelves;
use std::sync::Arc;
use std::time::Duration;
use stream::Stream;
use streams::Streams;
use tokio::sync::mpsc;
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
    streams: Arc<Streams>,
    backlog: Backlog,
    /// Cancelled first when the broker is closed: feeds and producers end, connections stay.
    working: CancellationToken,
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
        let working = stop.child_token();
        let publisher = Arc::new(Publisher::new(
            &options,
            Arc::clone(&cluster),
            Arc::clone(&names),
            working.clone(),
        ));
        let holdings = Arc::new(Holdings::default());
        let shelves = Shelves::new(
            &options,
            Arc::clone(&cluster),
            Arc::clone(&names),
            stop.clone(),
        );
        let streams = Arc::new(Streams::default());
        let backlog = Backlog::new(
            Arc::clone(&cluster),
            Arc::clone(&names),
            Arc::clone(&streams),
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
                streams,
                backlog,
                working,
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
        let each = subscriptions
            .iter()
            .map(|(topic, name)| self.patiently(|| self.open(topic, name)));
        // One that is opened brings nothing; it is closed again at once, and the subscription stays.
        drop(try_join_all(each).await?);
        for (topic, name) in subscriptions {
            inner.backlog.know(topic, name);
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

    /// Returns when the cluster has taken everything that was sent to it.
    async fn flush(&self) -> Result<(), Error> {
        let cluster = &self.inner.cluster;
        // Also without a connection so far it must be true that one broker answers.
        cluster.any().await?;
        let links = cluster.links().await;
        let each = links.iter().map(async |link| {
            let flushed = link.flush().await;
            flushed.map_err(|fault| failed("", link, fault))
        });
        try_join_all(each).await?;
        Ok(())
    }

    /// Opens a stream on each topic that a subscription reads.
    async fn open(&self, topic: &Topic, name: &str) -> Result<Vec<(Lane, Stream)>, Error> {
        let inner = &*self.inner;
        let cluster = &inner.cluster;
        let each = inner
            .names
            .lanes(topic, name)
            .into_iter()
            .map(async |lane| {
                let parts = cluster.parts(&lane.topic).await?;
                let each = parts.into_iter().map(async |topic| {
                    let stream = Stream::open(cluster, &topic, name).await?;
                    let carries = lane.carries;
                    Ok::<_, Error>((Lane { topic, carries }, stream))
                });
                try_join_all(each).await
            });
        let opened = try_join_all(each).await?;
        Ok(opened.into_iter().flatten().collect())
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
        publisher.bury(&terms.topic, arrived, &reason).await
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
    async fn publish(&self, mut messages: Vec<Outgoing>) -> Result<(), Error> {
        if let Some(secret) = &self.inner.options.secret {
            secret.sign(&mut messages);
        }
        self.inner.publisher.publish(messages).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        let inner = &*self.inner;
        let intake = Arc::new(Intake::new());
        let Subscription { topic, name, .. } = &subscription;
        let terms = Arc::new(Terms {
            topic: topic.clone(),
            retry: inner.names.retry(topic, name),
            lease: subscription.lease,
            max_deliveries: subscription.max_deliveries,
        });
        if inner.working.is_cancelled() {
            return Err(Error::Closed);
        }
        let stop = inner.working.child_token();
        let opened = self.patiently(|| self.open(topic, name)).await?;
        for (Lane { topic, carries }, stream) in opened {
            let feed = Feed {
                cluster: Arc::clone(&inner.cluster),
                publisher: Arc::clone(&inner.publisher),
                holdings: Arc::clone(&inner.holdings),
                intake: Arc::clone(&intake),
                terms: Arc::clone(&terms),
                topic,
                subscription: name.clone(),
                only: subscription.only.clone(),
                copies: carries == Carries::Copies,
                silence: (carries == Carries::Work).then_some(inner.options.silence),
                streams: Arc::clone(&inner.streams),
                stop: stop.clone(),
                _task: inner.cluster.tasks().token(),
            };
            tokio::spawn(feed.run(stream));
        }
        inner.backlog.know(topic, name);
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
        let publisher = &self.inner.publisher;
        let buried = publisher.bury(&delivery.topic, &held.arrived, reason).await;
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

    async fn listen(&self, topic: &Topic) -> Result<mpsc::Receiver<Retained>, Error> {
        let inner = &*self.inner;
        let full = inner.names.full(topic);
        self.patiently(|| listening::listen(&inner.cluster, &full, &inner.working))
            .await
    }

    async fn reach(&self, topic: &Topic) -> Result<Option<u64>, Error> {
        let inner = &*self.inner;
        let mut served = 0;
        for part in inner.cluster.parts(&inner.names.full(topic)).await? {
            self.create(&part).await?;
            if inner.options.admin_url.is_none() {
                continue;
            }
            // Who may publish there need not be allowed to ask this.
            match admin::served(&inner.options, &part).await {
                Ok(count) => served += count,
                Err(error) => {
                    tracing::debug!(%error, "who consumes a topic is not told");
                    return Ok(None);
                }
            }
        }
        Ok(inner.options.admin_url.is_some().then_some(served))
    }

    fn is_own(&self, topic: &Topic) -> bool {
        let names = &self.inner.names;
        topic.is_of_fleet() || names.is_own(&names.full(topic))
    }

    async fn establish(&self, subscriptions: &[Subscription]) -> Result<(), Error> {
        let named = subscriptions.iter();
        let named: Vec<_> = named
            .map(|one| (one.topic.clone(), one.name.as_str()))
            .collect();
        self.ensure(&[], &named).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.flush().await?;
        self.inner.streams.check(Instant::now())
    }

    /// Of the subscriptions that this process knows: those it consumes, and those of `ensure`.
    async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        // What was acknowledged before is not to be counted.
        self.flush().await?;
        self.inner.backlog.count().await
    }

    async fn consumers(
        &self,
        subscriptions: &[Subscription],
    ) -> Result<Option<Vec<(String, Vec<String>)>>, Error> {
        let inner = &*self.inner;
        if inner.options.admin_url.is_none() {
            return Ok(None);
        }
        let mut told = Vec::new();
        for Subscription { topic, name, .. } in subscriptions {
            let mut who = Vec::new();
            // What is ready comes on the first lane.
            for lane in inner.names.lanes(topic, name).into_iter().take(1) {
                for part in inner.cluster.parts(&lane.topic).await? {
                    who.extend(admin::consumers(&inner.options, &part, name).await?);
                }
            }
            told.push((format!("{topic}/{name}"), who));
        }
        Ok(Some(told))
    }

    async fn close(&self) {
        let Inner {
            cluster,
            backlog,
            working,
            stop,
            options,
            ..
        } = &*self.inner;
        working.cancel();
        cluster.tasks().close();
        let orderly = async {
            tokio::join!(cluster.tasks().wait(), backlog.close());
            let links = cluster.links().await;
            for (link, flushed) in
                join_all(links.iter().map(async |link| (link, link.flush().await))).await
            {
                if let Err(fault) = flushed {
                    tracing::warn!(url = link.url, %fault, "closing before Pulsar had taken everything");
                }
            }
        };
        // Each answer has its own limit; twice that is more than enough for all of them.
        if tokio::time::timeout(options.operation_timeout * 2, orderly)
            .await
            .is_err()
        {
            tracing::warn!("Pulsar did not confirm in time that all is closed; it will notice");
        }
        stop.cancel();
    }
}
