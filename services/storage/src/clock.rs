//! Where instants come from: the system, or a test that moves time by hand.

use agentfleet_schema::Millis;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Called when a clock was moved by hand.
pub type Moved = Box<dyn Fn() + Send + Sync>;

/// A source of instants.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Millis;

    /// How long to sleep until `instant`; `None` if sleeping does not bring it nearer.
    fn until(&self, instant: Millis) -> Option<Duration>;

    /// Registers what must look again once the clock was moved by hand.
    fn on_moved(&self, moved: Moved);
}

/// The clock on the wall.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// The longest sleep: bounds what a changed wall clock or a suspended machine can delay.
const LONGEST: Duration = Duration::from_secs(30);

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
    }

    fn until(&self, instant: Millis) -> Option<Duration> {
        let millis = u64::try_from(instant.saturating_sub(self.now())).unwrap_or(0);
        Some(Duration::from_millis(millis).min(LONGEST))
    }

    fn on_moved(&self, _moved: Moved) {}
}

/// A clock that stands still until it is moved: for tests that must not sleep.
#[derive(Default)]
pub struct ManualClock {
    now: AtomicI64,
    moved: Mutex<Vec<Moved>>,
}

impl std::fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManualClock")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl ManualClock {
    pub fn new(now: Millis) -> Self {
        Self {
            now: AtomicI64::new(now),
            moved: Mutex::default(),
        }
    }

    pub fn advance(&self, by: Duration) {
        let millis = Millis::try_from(by.as_millis()).unwrap_or(Millis::MAX);
        self.now.fetch_add(millis, Ordering::SeqCst);
        for moved in self
            .moved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            moved();
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        self.now.load(Ordering::SeqCst)
    }

    fn until(&self, instant: Millis) -> Option<Duration> {
        (instant <= self.now()).then_some(Duration::ZERO)
    }

    fn on_moved(&self, moved: Moved) {
        self.moved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(moved);
    }
}
