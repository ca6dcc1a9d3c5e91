//! The streams of this process's consumers: where they are open, and which are missing for how long.
//!
//! Every feed tells here what becomes of its stream. Who counts a backlog asks through a stream that
//! is open anyway, and who asks whether this process receives hears of those that are not.

use super::link::Link;
use super::stream::Stream;
use crate::Error;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A topic that moves, or a broker that starts again, is back sooner.
const MISSING: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum State {
    Open { link: Arc<Link>, consumer: u64 },
    Missing { since: Instant, reason: String },
}

#[derive(Debug)]
struct Entry {
    topic: String,
    subscription: String,
    state: State,
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    entries: Mutex<HashMap<u64, Entry>>,
}

impl Streams {
    fn entries(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a feed with its open stream, until what is returned is dropped.
    pub(super) fn list(
        self: &Arc<Self>,
        topic: &str,
        subscription: &str,
        stream: &Stream,
    ) -> Listed {
        let entry = Entry {
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            state: open(stream),
        };
        // The first stream's id is nobody else's.
        self.entries().insert(stream.id, entry);
        Listed {
            streams: Arc::clone(self),
            key: stream.id,
        }
    }

    /// An open stream of a subscription's topic, if a consumer of this process has one.
    pub(super) fn find(&self, topic: &str, subscription: &str) -> Option<(Arc<Link>, u64)> {
        self.entries()
            .values()
            .find_map(|entry| match &entry.state {
                State::Open { link, consumer }
                    if entry.topic == topic
                        && entry.subscription == subscription
                        && link.alive() =>
                {
                    Some((Arc::clone(link), *consumer))
                }
                State::Open { .. } | State::Missing { .. } => None,
            })
    }

    /// Whether every consumer of this process receives, or did a moment ago.
    pub(super) fn check(&self, now: Instant) -> Result<(), Error> {
        let entries = self.entries();
        let ill = entries.values().find_map(|entry| {
            let reason = entry.illness(now)?;
            Some((entry.topic.clone(), reason))
        });
        match ill {
            Some((topic, reason)) => Err(Error::Unready { topic, reason }),
            None => Ok(()),
        }
    }
}

impl Entry {
    fn illness(&self, now: Instant) -> Option<String> {
        match &self.state {
            State::Missing { since, reason } if now - *since >= MISSING => Some(format!(
                "`{}` has received nothing from it for {} s: {reason}",
                self.subscription,
                (now - *since).as_secs()
            )),
            State::Open { .. } | State::Missing { .. } => None,
        }
    }
}

fn open(stream: &Stream) -> State {
    State::Open {
        link: Arc::clone(&stream.link),
        consumer: stream.id,
    }
}

/// A feed's place in the list.
pub(super) struct Listed {
    streams: Arc<Streams>,
    key: u64,
}

impl Listed {
    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.streams.entries().get_mut(&self.key) {
            change(entry);
        }
    }

    pub(super) fn opened(&self, stream: &Stream) {
        self.change(|entry| entry.state = open(stream));
    }

    /// The stream is gone, or could not be opened again, for this reason.
    pub(super) fn missing(&self, reason: &str) {
        self.change(|entry| {
            let since = match entry.state {
                State::Missing { since, .. } => since,
                State::Open { .. } => Instant::now(),
            };
            entry.state = State::Missing {
                since,
                reason: reason.to_owned(),
            };
        });
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.streams.entries().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stream_may_be_missing_for_a_moment_but_not_for_long() {
        let streams = Arc::new(Streams::default());
        let since = Instant::now();
        let missing = Entry {
            topic: "work".to_owned(),
            subscription: "workers".to_owned(),
            state: State::Missing {
                since,
                reason: "its stream ended".to_owned(),
            },
        };
        streams.entries().insert(1, missing);
        let listed = Listed {
            streams: Arc::clone(&streams),
            key: 1,
        };
        assert!(streams.check(since).is_ok());
        // Another try that failed does not begin the wait anew.
        listed.missing("refused");
        assert!(streams.check(since + MISSING / 2).is_ok());
        let told = streams.check(since + MISSING).unwrap_err().to_string();
        let expected = "cannot serve `work` now: `workers` has received nothing from it for 10 s";
        assert!(told.contains(expected), "{told}");
        assert!(told.ends_with("refused"), "{told}");
        assert!(streams.find("work", "workers").is_none());
        drop(listed);
        assert!(streams.check(since + MISSING).is_ok(), "it is closed");
    }
}
