//! Time and chance, as arguments: a simulator replaces both.

use agentfleet_schema::Millis;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Clocks of recorder, broker and handler may differ by this much. It is added to leases, and to
/// whatever is put off to an instant: a handler whose clock is behind would else find it early again
/// at once, and for ever. No safety rests on it.
pub const CLOCK_SKEW: Duration = Duration::from_secs(2);

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
