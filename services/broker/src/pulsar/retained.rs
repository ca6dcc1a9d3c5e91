//! Reading what a topic retains, by key: one tail for each topic and process, however many follow.
//!
//! The tail reads the topic from the moment of the first read on, and keeps what came in memory, by
//! key, up to a limit. What lies before (`horizon`) is read from the topic itself, by a pass that
//! looks for one key only: from where its reader is, up to the horizon.

use super::cluster::{Backoff, Cluster};
use super::names::Names;
use super::options::PulsarOptions;
use super::reader::{Reader, latest, start_after};
use crate::listeners::Listeners;
use crate::{Error, Retained, Witness};
use agentfleet_schema::topics::{Topic, property};
use pulsar::proto::MessageIdData;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Passes over the past that run at once; each may read a whole topic.
const PASSES: usize = 4;
/// What a kept message costs beside its payload.
const OVERHEAD: usize = 256;

pub(super) struct Shelves {
    cluster: Arc<Cluster>,
    names: Arc<Names>,
    limit: usize,
    patience: Duration,
    tails: Mutex<HashMap<Topic, Arc<Tail>>>,
    listeners: Arc<Listeners>,
    passes: Semaphore,
    stop: CancellationToken,
}

/// What the tail of a topic has read.
struct Tail {
    topic: Topic,
    name: String,
    started: OnceCell<()>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Everything behind this position is in memory.
    horizon: i64,
    last: i64,
    by_key: HashMap<String, VecDeque<Arc<Retained>>>,
    order: VecDeque<(String, usize)>,
    bytes: usize,
}

/// What memory says about a key.
enum Look {
    Found(Vec<Retained>),
    Nothing,
    /// The reader is before the horizon, which is here.
    Before(i64),
}

impl Kept {
    fn look(&self, key: &str, after: i64, max: usize) -> Look {
        if after < self.horizon {
            return Look::Before(self.horizon);
        }
        let Some(messages) = self.by_key.get(key) else {
            return Look::Nothing;
        };
        let first = messages.partition_point(|message| message.position <= after);
        let found: Vec<_> = messages
            .range(first..)
            .take(max)
            .map(|one| (**one).clone())
            .collect();
        if found.is_empty() {
            Look::Nothing
        } else {
            Look::Found(found)
        }
    }

    fn keep(&mut self, key: String, message: Retained, limit: usize) {
        let size = message.payload.len() + key.len() * 2 + OVERHEAD;
        self.last = message.position;
        self.bytes += size;
        self.order.push_back((key.clone(), size));
        self.by_key
            .entry(key)
            .or_default()
            .push_back(Arc::new(message));
        while self.bytes > limit {
            let Some((key, size)) = self.order.pop_front() else {
                break;
            };
            self.bytes -= size;
            if let Some(messages) = self.by_key.get_mut(&key) {
                if let Some(oldest) = messages.pop_front() {
                    self.horizon = oldest.position;
                }
                if messages.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }
}

impl Tail {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelves {
    pub(super) fn new(
        options: &PulsarOptions,
        cluster: Arc<Cluster>,
        names: Arc<Names>,
        stop: CancellationToken,
    ) -> Self {
        let tails = options.retain.keys().map(|topic| {
            let tail = Tail {
                topic: topic.clone(),
                name: names.full(topic),
                started: OnceCell::new(),
                kept: Mutex::default(),
            };
            (topic.clone(), Arc::new(tail))
        });
        Self {
            tails: Mutex::new(tails.collect()),
            limit: options.retained_memory,
            patience: options.publish_timeout,
            cluster,
            names,
            listeners: Arc::default(),
            passes: Semaphore::new(PASSES),
            stop,
        }
    }

    pub(super) async fn read(
        &self,
        topic: &Topic,
        key: &str,
        mut after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error> {
        let tail = self.tail(topic).await?;
        let max = max.max(1);
        after = after.max(0);
        let listener = self.listeners.listen(topic, key);
        loop {
            // Listening begins before looking: what comes in between is not missed.
            let news = listener.notify.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let look = tail.kept().look(key, after, max);
            match look {
                Look::Found(found) => return Ok(found),
                Look::Nothing => tokio::select! {
                    () = news => {}
                    () = self.stop.cancelled() => return Err(Error::Closed),
                },
                Look::Before(horizon) => {
                    let found = self.pass(&tail, key, after, horizon, max).await?;
                    if !found.is_empty() {
                        return Ok(found);
                    }
                    after = horizon;
                }
            }
        }
    }

    /// What is published from now on lies behind what the tail has read by now.
    pub(super) async fn mark(&self, topic: &Topic) -> Result<i64, Error> {
        Ok(self.tail(topic).await?.kept().last)
    }

    async fn tail(&self, topic: &Topic) -> Result<Arc<Tail>, Error> {
        let tail = {
            let tails = self.tails.lock().unwrap_or_else(PoisonError::into_inner);
            tails.get(topic).map(Arc::clone)
        };
        let tail = tail.ok_or_else(|| Error::NotRetained(topic.clone()))?;
        tail.started.get_or_try_init(|| self.start(&tail)).await?;
        Ok(tail)
    }

    async fn start(&self, tail: &Arc<Tail>) -> Result<(), Error> {
        let deadline = Instant::now() + self.patience;
        let opened = self.cluster.patiently(deadline, || async {
            if self.cluster.parts(&tail.name).await?.len() > 1 {
                return Err(Error::Partitioned(self.names.full(&tail.topic)));
            }
            let reader = Reader::open(&self.cluster, &tail.name, latest()).await?;
            let last = reader.last().await?;
            Ok((reader, last))
        });
        let (reader, last) = opened.await?;
        {
            let mut kept = tail.kept();
            (kept.horizon, kept.last) = (last, last);
        }
        tokio::spawn(follow(
            Arc::clone(&self.cluster),
            Arc::clone(tail),
            Arc::clone(&self.listeners),
            self.limit,
            self.stop.clone(),
            reader,
        ));
        Ok(())
    }

    /// Reads the past for one key, from `after` up to `horizon`.
    async fn pass(
        &self,
        tail: &Tail,
        key: &str,
        after: i64,
        horizon: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error> {
        let _turn = self.passes.acquire().await.map_err(|_| Error::Closed)?;
        let found = Mutex::new((Vec::new(), after));
        let deadline = Instant::now() + self.patience;
        self.cluster
            .patiently(deadline, || async {
                let seen = found.lock().unwrap_or_else(PoisonError::into_inner).1;
                let mut reader = Reader::open(&self.cluster, &tail.name, start_after(seen)).await?;
                // The last message there is can be read; what the horizon stands for may be gone.
                let end = horizon.min(reader.last().await?);
                let mut seen = seen;
                while seen < end {
                    let (at, message) = reader.next().await?;
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    if at <= seen || at > horizon {
                        seen = seen.max(at);
                        continue;
                    }
                    seen = at;
                    found.1 = at;
                    found
                        .0
                        .extend(message.filter(|message| key_of(message) == Some(key)));
                    if found.0.len() >= max {
                        break;
                    }
                }
                Ok(())
            })
            .await?;
        Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// What a message is read by.
fn key_of(message: &Retained) -> Option<&str> {
    message.properties.get(property::ROOT).map(String::as_str)
}

/// A reader in the place of one that was lost, as soon as there can be one; nothing if the broker is closed.
pub(super) async fn reopened(
    cluster: &Cluster,
    topic: &str,
    start: MessageIdData,
    backoff: &mut Backoff,
    witness: &Witness,
    stop: &CancellationToken,
) -> Option<Reader> {
    loop {
        let opened = tokio::select! {
            opened = Reader::open(cluster, topic, start.clone()) => opened,
            () = stop.cancelled() => return None,
        };
        match opened {
            Ok(reader) => {
                witness.well();
                return Some(reader);
            }
            // Both may have been ready, and what is closed has nothing to warn about.
            Err(_) if stop.is_cancelled() => return None,
            Err(error) => witness.failed(&error),
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next()) => {}
            () = stop.cancelled() => return None,
        }
    }
}

/// Keeps what comes, for as long as the broker is open.
async fn follow(
    cluster: Arc<Cluster>,
    tail: Arc<Tail>,
    listeners: Arc<Listeners>,
    limit: usize,
    stop: CancellationToken,
    mut reader: Reader,
) {
    let mut backoff = cluster.backoff();
    let witness = cluster.outage.witness();
    loop {
        let next = tokio::select! {
            next = reader.next() => next,
            () = stop.cancelled() => return,
        };
        match next {
            Ok((at, message)) => {
                backoff = backoff.fresh();
                let mut kept = tail.kept();
                if at <= kept.last {
                    continue;
                }
                let keyed =
                    message.and_then(|message| Some((key_of(&message)?.to_owned(), message)));
                let Some((key, message)) = keyed else {
                    kept.last = at;
                    continue;
                };
                kept.keep(key.clone(), message, limit);
                drop(kept);
                listeners.notify(&tail.topic, &key);
            }
            Err(error) => {
                tracing::debug!(topic = tail.name, %error, "reading again");
                let last = tail.kept().last;
                let start = start_after(last);
                let opened = reopened(&cluster, &tail.name, start, &mut backoff, &witness, &stop);
                match opened.await {
                    Some(opened) => reader = opened,
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn message(position: i64) -> Retained {
        Retained {
            position,
            payload: Arc::from([0; 100].as_slice()),
            properties: crate::Properties::new(),
        }
    }

    #[test]
    fn memory_is_bounded_and_the_horizon_says_what_it_lost() {
        let mut kept = Kept {
            horizon: 10,
            ..Kept::default()
        };
        let limit = 10 * (100 + 2 + OVERHEAD);
        for at in 11..=30 {
            let key = if at % 2 == 0 { "a" } else { "b" };
            kept.keep(key.to_owned(), message(at), limit);
        }
        assert!(kept.bytes <= limit);
        assert_eq!((kept.horizon, kept.last), (20, 30));
        assert!(matches!(kept.look("a", 19, 100), Look::Before(20)));
        let Look::Found(found) = kept.look("a", 20, 100) else {
            panic!("what is kept is found")
        };
        let positions: Vec<_> = found.iter().map(|one| one.position).collect();
        assert_eq!(positions, [22, 24, 26, 28, 30]);
        assert!(matches!(kept.look("a", 30, 100), Look::Nothing));
        assert!(matches!(kept.look("c", 20, 100), Look::Nothing));
    }
}
