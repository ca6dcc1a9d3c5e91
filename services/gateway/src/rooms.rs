//! Room for connections. Whoever opens many and says nothing must not keep others out: when all
//! room is taken, the connection that was idle for longest makes some.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// While every connection is busy, between two looks whether one has become idle.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Rooms {
    free: Arc<Semaphore>,
    taken: Arc<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Counts what happens: the smaller, the longer ago.
    clock: AtomicU64,
    connections: Mutex<HashMap<u64, Connection>>,
}

struct Connection {
    /// Since when it is idle; `None` while a request of it is worked, or an event stream goes on.
    idle: Option<u64>,
    close: CancellationToken,
}

/// The room of one connection; free again when the last clone is gone.
#[derive(Clone)]
pub(crate) struct Room(Arc<Inner>);

struct Inner {
    name: u64,
    close: CancellationToken,
    taken: Arc<Taken>,
    _permit: OwnedSemaphorePermit,
}

/// A request that is worked. One that is dropped was given up with its connection.
pub(crate) struct Busy(Room);

impl Rooms {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            taken: Arc::default(),
        }
    }

    /// Room for one more, which an idle connection may have to make.
    pub(crate) async fn room(&self) -> Room {
        loop {
            if self.free.available_permits() == 0 {
                self.taken.close_idlest();
            }
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(permit)) = tokio::time::timeout(LOOK_AGAIN, free).await {
                return self.taken.enter(permit);
            }
        }
    }
}

impl Taken {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Connection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn enter(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Room {
        let (name, close) = (self.now(), CancellationToken::new());
        let connection = Connection {
            idle: Some(name),
            close: close.clone(),
        };
        self.connections().insert(name, connection);
        Room(Arc::new(Inner {
            name,
            close,
            taken: Arc::clone(self),
            _permit: permit,
        }))
    }

    fn close_idlest(&self) {
        let connections = self.connections();
        let open = connections.values().filter(|one| !one.close.is_cancelled());
        if let Some(idlest) = open
            .filter(|one| one.idle.is_some())
            .min_by_key(|one| one.idle)
        {
            idlest.close.cancel();
        }
    }

    fn set(&self, name: u64, idle: Option<u64>) {
        if let Some(connection) = self.connections().get_mut(&name) {
            connection.idle = idle;
        }
    }
}

impl Room {
    /// A request has come.
    pub(crate) fn busy(&self) -> Busy {
        self.0.taken.set(self.0.name, None);
        Busy(self.clone())
    }

    /// Returns when the connection has to make room.
    pub(crate) async fn closed(&self) {
        self.0.close.cancelled().await;
    }
}

impl Busy {
    /// The answer is there; an event stream keeps its connection busy.
    pub(crate) fn done(self, streams: bool) {
        let Room(inner) = self.0;
        if !streams {
            inner.taken.set(inner.name, Some(inner.taken.now()));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.taken.connections().remove(&self.name);
    }
}
