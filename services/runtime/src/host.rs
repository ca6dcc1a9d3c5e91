//! Time and chance, as arguments: a simulator replaces both.

use agentfleet_schema::Millis;
use agentfleet_storage::Instances;
use futures::future::BoxFuture;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Clocks of recorder, broker and handler may differ by this much. It is added to the time that a call
/// may take, and to deadlines that are put off: a handler whose clock is behind would else find them
/// early again at once, and for ever. No safety rests on it.
pub const CLOCK_SKEW: Duration = Duration::from_secs(2);

/// The clock and the source of nonces of a worker.
pub trait Host: Send + Sync + 'static {
    /// Now, in milliseconds since the epoch.
    fn now(&self) -> Millis;

    /// A text nobody else has.
    fn nonce(&self) -> String;

    /// Waits for so long, where nothing but the moment of something depends on it.
    fn rest(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    /// Whether the process that made a nonce is gone for certain. `false` where that cannot be known.
    fn is_gone(&self, _nonce: &str) -> bool {
        false
    }
}

/// The machine's clock and random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    fn now(&self) -> Millis {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as Millis)
    }

    fn nonce(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }
}

/// The machine's clock, and nonces that tell which process made them: for a fleet whose queue lies in
/// one data directory, so that each process can see which others live.
#[derive(Clone, Debug)]
pub struct InstanceHost(pub Instances);

impl Host for InstanceHost {
    fn now(&self) -> Millis {
        SystemHost.now()
    }

    fn nonce(&self) -> String {
        format!("{}.{}", self.0.own(), SystemHost.nonce())
    }

    fn is_gone(&self, nonce: &str) -> bool {
        let maker = nonce.split_once('.').and_then(|(id, _)| id.parse().ok());
        maker.is_some_and(|id| !self.0.alive(id))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_storage::Database;

    #[test]
    fn a_nonce_tells_whether_its_process_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let host = |database: &Database| InstanceHost(database.instances().clone());
        let (one, other) = (
            Database::open(directory.path()).unwrap(),
            Database::open(directory.path()).unwrap(),
        );
        let (here, there) = (host(&one), host(&other));
        let (mine, theirs) = (here.nonce(), there.nonce());
        assert_ne!(mine, here.nonce());
        assert!(!here.is_gone(&mine) && !here.is_gone(&theirs) && !there.is_gone(&mine));
        drop((there, other));
        assert!(here.is_gone(&theirs) && !here.is_gone(&mine));
        // Of a program that did not say, or of another machine, nothing is known.
        for unknown in [SystemHost.nonce(), String::new(), "n.1".to_owned()] {
            assert!(!here.is_gone(&unknown), "{unknown}");
            assert!(!SystemHost.is_gone(&unknown), "{unknown}");
        }
    }
}
