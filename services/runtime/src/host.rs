//! Time and chance, as arguments: a simulator replaces both.

use agentfleet_schema::Millis;
use std::time::{SystemTime, UNIX_EPOCH};

/// The clock and the source of nonces of a worker.
pub trait Host: Send + Sync + 'static {
    /// Now, in milliseconds since the epoch.
    fn now(&self) -> Millis;

    /// A text nobody else has.
    fn nonce(&self) -> String;
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
