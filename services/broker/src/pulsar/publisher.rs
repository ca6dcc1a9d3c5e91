//! Publishing: checks, and a producer for each topic.
//!
//! Pulsar's client protocol knows transactions, but at 42 of them a second on one machine they are
//! of no use here. So the messages of one publish are sent to all their topics at the same time, and
//! keep their order within each. If a publish fails, any of its messages may be there; publishing all
//! of it again repeats them and harms nobody.

use super::cluster::Cluster;
use super::names::Names;
use super::options::PulsarOptions;
use super::parcel::{self, Arrived};
use super::producer::{Job, Producer};
use super::reader::MAX_PACKED;
use crate::{Error, MAX_PAYLOAD, MAX_PROPERTIES, Outgoing, properties_size};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{DEAD_LETTER, Topic, property};
use agentfleet_storage::{Clock as _, SystemClock};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What is kept of a dead letter that is too large.
const BEGINNING: usize = 64 * 1024;
/// Shares of what may be in flight, in bytes.
const SHARE: usize = 1024;
/// Bytes of messages that share an entry.
const MAX_SHARED: usize = 256 * 1024;
/// Messages that wait for one producer's task.
const QUEUE: usize = 256;

#[derive(Debug)]
pub(super) struct Publisher {
    cluster: Arc<Cluster>,
    names: Arc<Names>,
    /// Topics whose messages are retained and read by key.
    read_only: BTreeSet<Topic>,
    outlets: Mutex<HashMap<String, Arc<Outlet>>>,
    shares: Arc<Semaphore>,
    all_shares: usize,
    timeout: Duration,
    stop: CancellationToken,
}

/// The producers of a topic: one, or one for each partition.
#[derive(Debug)]
struct Outlet {
    lanes: Vec<mpsc::Sender<Job>>,
    next: AtomicUsize,
}

impl Publisher {
    pub(super) fn new(
        options: &PulsarOptions,
        cluster: Arc<Cluster>,
        names: Arc<Names>,
        stop: CancellationToken,
    ) -> Self {
        let all_shares = (options.in_flight / SHARE).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            cluster,
            names,
            read_only: options.retain.keys().cloned().collect(),
            outlets: Mutex::default(),
            shares: Arc::new(Semaphore::new(all_shares)),
            all_shares,
            timeout: options.publish_timeout,
            stop,
        }
    }

    /// Publishes, in order within each topic. What can be refused beforehand is refused before
    /// anything is sent.
    pub(super) async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        for message in &messages {
            message.check()?;
        }
        let now = now();
        let mut waiting: Vec<oneshot::Receiver<Result<(), Error>>> = Vec::new();
        for (topic, entry) in self.entries(messages, now) {
            waiting.push(self.send(&topic, entry, now).await?);
        }
        all(waiting).await
    }

    /// The topic and the messages of each entry. Messages to a topic that is read and not worked share as
    /// few entries as hold them, because an entry costs the broker about as much as a message. Elsewhere
    /// each message is an entry, because each is settled by itself.
    fn entries(&self, messages: Vec<Outgoing>, now: Millis) -> Vec<(String, Vec<Outgoing>)> {
        let mut entries: Vec<(String, Vec<Outgoing>)> = Vec::new();
        for message in messages {
            let later = message.deliver_at.is_some_and(|at| at > now);
            let topic = if later {
                self.names.delayed(&message.topic)
            } else {
                self.names.full(&message.topic)
            };
            let is_shared = !later && self.read_only.contains(&message.topic);
            match entries.iter_mut().rfind(|(name, _)| *name == topic) {
                Some((_, entry)) if is_shared && has_room(entry, &message) => entry.push(message),
                _ => entries.push((topic, vec![message])),
            }
        }
        entries
    }

    /// Publishes a copy of a message to a topic of our own.
    pub(super) async fn copy(&self, topic: &str, message: Outgoing) -> Result<(), Error> {
        let sent = self.send(topic, vec![message], now()).await?;
        all(vec![sent]).await
    }

    /// Moves a message to the dead-letter topic, with everything that is known of it.
    pub(super) async fn bury(
        &self,
        topic: &Topic,
        arrived: &Arrived,
        reason: &str,
    ) -> Result<(), Error> {
        let (mut payload, mut properties) = (arrived.payload.to_vec(), arrived.properties.clone());
        let message_id = &arrived.message_id;
        if payload.len() > MAX_PAYLOAD {
            // It could not be published as it is; its beginning shows people what it was.
            payload.truncate(BEGINNING);
        }
        if properties_size(&properties) > MAX_PROPERTIES {
            properties.retain(|name, value| name.len() + value.len() <= property::MAX_CARRIED);
            while properties_size(&properties) > MAX_PROPERTIES {
                properties.pop_last();
            }
        }
        properties.insert(property::REASON.to_owned(), reason.to_owned());
        properties.insert(property::ORIGIN.to_owned(), topic.to_string());
        properties
            .entry(property::ORIGIN_MESSAGE.to_owned())
            .or_insert_with(|| message_id.clone());
        let letter = Outgoing {
            topic: DEAD_LETTER,
            payload,
            properties,
            deliver_at: None,
            durability: crate::Durability::Durable,
        };
        self.copy(&self.names.full(&DEAD_LETTER), letter).await?;
        tracing::warn!(%topic, message = message_id, reason, "message moved to the dead-letter topic");
        Ok(())
    }

    async fn send(
        &self,
        topic: &str,
        entry: Vec<Outgoing>,
        now: Millis,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let deadline = Instant::now() + self.timeout;
        let share = self.share(&entry).await?;
        let (metadata, data) = parcel::pack(entry, now);
        let (reply, receipt) = oneshot::channel();
        let mut job = Job {
            topic: Topic::named(topic.to_owned()),
            metadata,
            data,
            deadline,
            reply,
            _share: Some(share),
        };
        loop {
            let outlet = self.outlet(topic, deadline).await?;
            let lane = outlet.next.fetch_add(1, Ordering::Relaxed) % outlet.lanes.len();
            match outlet.lanes[lane].send(job).await {
                Ok(()) => return Ok(receipt),
                Err(refused) if !self.stop.is_cancelled() => {
                    // Its producer had nothing to do for long and ended.
                    self.forget(topic, &outlet);
                    job = refused.0;
                }
                Err(_) => return Err(Error::Closed),
            }
        }
    }

    async fn share(&self, entry: &[Outgoing]) -> Result<OwnedSemaphorePermit, Error> {
        let bytes: usize = entry.iter().map(size).sum();
        let wanted = bytes.div_ceil(SHARE).clamp(1, self.all_shares);
        let shares = Arc::clone(&self.shares)
            .acquire_many_owned(wanted as u32)
            .await;
        shares.map_err(|_| Error::Closed)
    }

    async fn outlet(&self, topic: &str, deadline: Instant) -> Result<Arc<Outlet>, Error> {
        if let Some(outlet) = self.outlets().get(topic) {
            return Ok(Arc::clone(outlet));
        }
        let cluster = &self.cluster;
        let parts = cluster.patiently(deadline, || cluster.parts(topic)).await?;
        let mut outlets = self.outlets();
        let outlet = outlets.entry(topic.to_owned()).or_insert_with(|| {
            let lanes = parts.into_iter().map(|part| self.lane(part)).collect();
            Arc::new(Outlet {
                lanes,
                next: AtomicUsize::new(0),
            })
        });
        Ok(Arc::clone(outlet))
    }

    fn lane(&self, topic: String) -> mpsc::Sender<Job> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let producer = Producer::new(Arc::clone(&self.cluster), topic);
        tokio::spawn(producer.run(queue, self.stop.clone()));
        jobs
    }

    fn forget(&self, topic: &str, outlet: &Arc<Outlet>) {
        let mut outlets = self.outlets();
        if outlets
            .get(topic)
            .is_some_and(|found| Arc::ptr_eq(found, outlet))
        {
            outlets.remove(topic);
        }
    }

    fn outlets(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Outlet>>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(message: &Outgoing) -> usize {
    message.payload.len() + properties_size(&message.properties)
}

/// Whether an entry may hold one more message.
fn has_room(entry: &[Outgoing], message: &Outgoing) -> bool {
    let bytes: usize = entry.iter().chain([message]).map(size).sum();
    entry.len() < MAX_PACKED && bytes <= MAX_SHARED
}

/// Waits for all of them, and returns the first failure.
async fn all(waiting: Vec<oneshot::Receiver<Result<(), Error>>>) -> Result<(), Error> {
    for receipt in waiting {
        receipt.await.unwrap_or(Err(Error::Closed))?;
    }
    Ok(())
}

pub(super) fn now() -> Millis {
    SystemClock.now()
}
