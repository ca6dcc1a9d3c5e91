//! Embedded brokers on a directory of their own, with a clock that is moved by hand.

use crate::contract::Fixture;
use agentfleet_broker::{Broker, EmbeddedBroker, Options};
use agentfleet_storage::{Database, Durability, ManualClock};
use async_trait::async_trait;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const START: i64 = 1_700_000_000_000;

pub(crate) struct Embedded {
    pub(crate) brokers: Vec<EmbeddedBroker>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) directory: TempDir,
    next: AtomicUsize,
}

pub(crate) fn open(directory: &Path, clock: &Arc<ManualClock>) -> EmbeddedBroker {
    let database = Database::open_with(directory, Arc::clone(clock) as _).unwrap();
    EmbeddedBroker::open(&database, Options::default()).unwrap()
}

/// Brokers on one directory, each an instance of its own.
pub(crate) fn embedded(count: usize) -> Embedded {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let brokers = (0..count).map(|_| open(directory.path(), &clock)).collect();
    Embedded {
        brokers,
        clock,
        directory,
        next: AtomicUsize::new(0),
    }
}

#[allow(clippy::unused_async)]
pub(crate) async fn one() -> Embedded {
    embedded(1)
}

#[allow(clippy::unused_async)]
pub(crate) async fn several() -> Embedded {
    embedded(3)
}

#[async_trait]
impl Fixture for Embedded {
    fn broker(&self) -> Arc<dyn Broker> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        Arc::new(self.brokers[next % self.brokers.len()].clone())
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn settle(&self) {
        // A write that is done at once would not let anybody else begin to wait.
        tokio::task::yield_now().await;
        // Every transaction serves who waits there; what it makes ready for others is served in
        // their next one.
        for _ in 0..2 {
            for broker in &self.brokers {
                broker
                    .database()
                    .write(Durability::Process, |_| Ok(()))
                    .await
                    .unwrap();
            }
        }
    }

    fn atomic(&self) -> bool {
        true
    }

    fn unique(&self, name: &str) -> String {
        format!("{name}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }
}
