//! The wall limit of a delivery: who works one for longer hangs, and keeps its message for ever while
//! the lease is renewed. Then the process has to end, because nothing inside it can be trusted to:
//! the message goes to others, and the try counts.
//!
//! It watches from a thread of its own, so that it also sees a handler that never gives its thread
//! back. When one is overdue nothing more is received, the others get the grace period, and then the
//! process is told to end: they are not to pay for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What took too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The subscription and the message.
    pub what: String,
    pub limit: Duration,
}

impl std::fmt::Display for Overdue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, limit } = self;
        write!(f, "{what} was worked for more than {limit:?}")
    }
}

/// Watches the deliveries of one process.
#[derive(Clone, Debug)]
pub struct Watchdog {
    limit: Duration,
    /// Cancelled when something is overdue: nothing more is to be received.
    pub stop: CancellationToken,
    watched: Arc<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    deliveries: Mutex<Deliveries>,
    /// A delivery is over, and somebody waits for that.
    over: Condvar,
}

#[derive(Debug, Default)]
struct Deliveries {
    next: u64,
    /// When each must be over, in order of arrival and so of time.
    held: BTreeMap<u64, (Instant, String)>,
    /// Whether the process is about to end, and spares those that are not overdue.
    ends: bool,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, Deliveries> {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchdog {
    /// `end` is called once, on a thread of the watchdog's, and is to end the process.
    pub fn start(
        limit: Duration,
        grace: Duration,
        end: impl FnOnce(Overdue) + Send + 'static,
    ) -> std::io::Result<Self> {
        let watchdog = Self {
            limit,
            stop: CancellationToken::new(),
            watched: Arc::default(),
        };
        let (watched, stop) = (Arc::downgrade(&watchdog.watched), watchdog.stop.clone());
        std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                if let Some(what) = watch(&watched, limit.min(LOOK)) {
                    let overdue = Overdue { what, limit };
                    tracing::error!(%overdue, "a worker hangs; the process ends");
                    stop.cancel();
                    spare_others(&watched, grace);
                    end(overdue);
                }
            })?;
        Ok(watchdog)
    }

    /// Watches one delivery until what is returned is dropped.
    pub(crate) fn hold(&self, what: String) -> Leash {
        let until = Instant::now() + self.limit;
        let mut deliveries = self.watched.lock();
        let number = deliveries.next;
        deliveries.next += 1;
        deliveries.held.insert(number, (until, what));
        drop(deliveries);
        Leash {
            watched: Arc::clone(&self.watched),
            number,
        }
    }
}

/// A delivery that is watched.
#[derive(Debug)]
pub(crate) struct Leash {
    watched: Arc<Watched>,
    number: u64,
}

impl Drop for Leash {
    fn drop(&mut self) {
        let mut deliveries = self.watched.lock();
        deliveries.held.remove(&self.number);
        let ends = deliveries.ends;
        drop(deliveries);
        // Else nobody waits for it: waking the thread for each delivery costs more than its looks do.
        if ends {
            self.watched.over.notify_all();
        }
    }
}

/// Waits for the first delivery that is overdue; `None` if nobody holds the watchdog any more. It sleeps
/// for `look` at most, and nothing that comes meanwhile is overdue before that.
fn watch(watched: &Weak<Watched>, look: Duration) -> Option<String> {
    loop {
        let sleep = {
            let watched = watched.upgrade()?;
            let mut deliveries = watched.lock();
            let now = Instant::now();
            match deliveries.held.values().next().cloned() {
                Some((until, what)) if until <= now => {
                    deliveries.ends = true;
                    return Some(what);
                }
                Some((until, _)) => (until - now).min(look),
                None => look,
            }
        };
        std::thread::sleep(sleep);
    }
}

/// How long it sleeps at most.
const LOOK: Duration = Duration::from_secs(1);

/// Waits until nothing but what is overdue is held, no longer than `grace`.
fn spare_others(watched: &Weak<Watched>, grace: Duration) {
    let Some(watched) = watched.upgrade() else {
        return;
    };
    let until = Instant::now() + grace;
    let mut deliveries = watched.lock();
    loop {
        let now = Instant::now();
        let others = deliveries.held.values().any(|(due, _)| *due > now);
        if !others || now >= until {
            return;
        }
        let wait = (until - now).min(LOOK);
        let waited = watched.over.wait_timeout(deliveries, wait);
        deliveries = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc;

    const SHORT: Duration = Duration::from_millis(20);

    fn started(limit: Duration, grace: Duration) -> (Watchdog, mpsc::Receiver<Overdue>) {
        let (told, overdue) = mpsc::channel();
        let watchdog = Watchdog::start(limit, grace, move |overdue| {
            let _ = told.send(overdue);
        });
        (watchdog.unwrap(), overdue)
    }

    #[test]
    fn what_is_overdue_stops_receiving_and_ends_the_process() {
        let (watchdog, overdue) = started(SHORT, Duration::ZERO);
        drop(watchdog.hold("over in time".into()));
        let _hangs = watchdog.hold("message 7".into());
        let overdue = overdue.recv().unwrap();
        assert_eq!(overdue.what, "message 7");
        assert!(watchdog.stop.is_cancelled());
    }

    #[test]
    fn others_in_flight_come_to_their_end_first() {
        let (watchdog, overdue) = started(SHORT, Duration::from_secs(3_600));
        let _hangs = watchdog.hold("hangs".into());
        let mut slow = watchdog.clone();
        slow.limit = Duration::from_secs(7_200);
        let other = slow.hold("takes its time".into());
        while !watchdog.stop.is_cancelled() {
            std::thread::yield_now();
        }
        assert!(overdue.try_recv().is_err());
        drop(other);
        assert_eq!(overdue.recv().unwrap().what, "hangs");
    }

    #[test]
    fn a_watchdog_that_nobody_holds_ends_in_silence() {
        let (watchdog, overdue) = started(SHORT, Duration::ZERO);
        drop(watchdog.hold("over in time".into()));
        drop(watchdog);
        assert!(overdue.recv().is_err());
    }
}
