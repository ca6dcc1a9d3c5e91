//! The embedded graph: a durable log of quads in the data directory's database, and the engine
//! over all of it in the memory of each process.
//!
//! Invariants
//! - The log is the truth. Memory only ever holds rows that are committed, in their order.
//! - Before a query runs, memory has caught up with every commit made before the query began, by
//!   whichever process. So reads are linearizable on one data directory, and no process owns the
//!   graph.
//! - One task at a time applies rows, because the engine has one writer.
//! - After an erasure the log is read anew beside the old memory, which answers until it is
//!   replaced.

mod apart;
pub(crate) mod body;
pub mod export;
mod generation;
mod health;
mod log;
mod memory;
mod query;
mod run;

#[cfg(test)]
mod tests;

pub use health::{Health, Level};
pub(crate) use log::Prepared;
pub use log::{EraseBy, Erased};

use crate::error::Error;
use crate::{Answer, Batch, Graph, QueryOptions};
use agentfleet_schema::Term;
use agentfleet_storage::{Database, Durability, Error as StorageError, Unit};
use async_trait::async_trait;
use generation::{Generation, Rate};
use health::Limits;
use log::Row;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Name of its tables among those of the database.
const PART: &str = "graph";
/// Between two looks at the log in the background; queries do not wait for them.
const FOLLOW_EVERY: Duration = Duration::from_millis(50);
/// After a look that failed.
const FOLLOW_AGAIN: Duration = Duration::from_secs(5);
/// Work on more quads than this leaves the async threads.
const INLINE: u64 = 512;
/// Queries of others at once; more wait.
pub const QUERIES_APART: usize = 4;

/// Limits of the embedded graph; what is absent follows from the memory there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct GraphOptions {
    /// The most quads, above which inserts are refused.
    pub max_quads: Option<u64>,
    /// By how many bytes a query of somebody else may grow.
    pub max_query_bytes: Option<u64>,
}

/// The graph of one data directory. Clones share it.
#[derive(Clone)]
pub struct EmbeddedGraph {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    limits: Limits,
    current: RwLock<Arc<Generation>>,
    /// Held by whoever applies rows to `current`, or replaces it.
    following: tokio::sync::Mutex<()>,
    /// Held for reading by every query that runs in this process.
    reading: Arc<tokio::sync::RwLock<()>>,
    /// For queries that run in a process of their own.
    room: Arc<Semaphore>,
    /// Held by whoever reads the log anew.
    rebuilding: tokio::sync::Mutex<()>,
    rate: Mutex<Rate>,
    /// The level last told to people.
    told: AtomicU8,
    running: watch::Sender<usize>,
    follower: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for EmbeddedGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedGraph")
            .field("data_dir", &self.inner.database.data_dir())
            .field("quads", &self.inner.current().quads())
            .finish_non_exhaustive()
    }
}

impl EmbeddedGraph {
    /// Opens the graph of a database and reads its log into memory. `progress` is called with the
    /// quads read so far and those there are.
    pub async fn open(
        database: Database,
        options: GraphOptions,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<Self, Error> {
        database.migrate(PART, log::TABLES)?;
        let limits = Limits::new(options);
        let (generation, rate) = Generation::load(&database, limits.max_quads, progress).await?;
        let inner = Arc::new(Inner {
            database,
            limits,
            current: RwLock::new(generation),
            following: tokio::sync::Mutex::default(),
            reading: Arc::default(),
            room: Arc::new(Semaphore::new(QUERIES_APART)),
            rebuilding: tokio::sync::Mutex::default(),
            rate: Mutex::new(rate),
            told: AtomicU8::default(),
            running: watch::Sender::new(0),
            follower: Mutex::default(),
        });
        inner.tell();
        let follower = tokio::spawn(follow(inner.database.changes(), Arc::downgrade(&inner)));
        *lock(&inner.follower) = Some(follower);
        Ok(Self { inner })
    }

    /// Queries that use a core now; it falls back soon after a timeout.
    pub fn running(&self) -> watch::Receiver<usize> {
        self.inner.running.subscribe()
    }

    /// How full the graph is, and what to do about it.
    pub fn health(&self) -> Health {
        self.inner.health()
    }

    /// Stores what was prepared, all or none, and makes it visible.
    async fn store(&self, prepared: Vec<Prepared>) -> Result<(), Error> {
        let (quads, limits) = (self.inner.current().quads(), self.inner.limits);
        let append = move |unit: &mut Unit<'_>| {
            let mut added = 0;
            for batch in &prepared {
                // What is there already needs no room.
                if batch.append(unit)? {
                    added += batch.quads();
                    limits.check(quads + added).map_err(StorageError::aborted)?;
                }
            }
            Ok(())
        };
        match self.inner.database.write(Durability::Durable, append).await {
            Ok(()) => self.inner.caught_up().await.map(drop),
            Err(error) => Err(match error.reason() {
                Some(&Error::Full { quads, max }) => Error::Full { quads, max },
                _ => error.into(),
            }),
        }
    }
}

#[async_trait]
impl Graph for EmbeddedGraph {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error> {
        let triples: usize = batches.iter().map(|batch| batch.triples.len()).sum();
        let prepare = move || {
            let filled = batches.iter().filter(|batch| !batch.triples.is_empty());
            filled.map(Prepared::new).collect::<Result<Vec<_>, _>>()
        };
        let prepared = if triples as u64 <= INLINE {
            prepare()?
        } else {
            tokio::task::spawn_blocking(prepare)
                .await
                .map_err(|_| Error::Stopped)??
        };
        if prepared.is_empty() {
            return Ok(());
        }
        self.store(prepared).await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, Error> {
        self.inner.query(sparql, bindings, options).await
    }

    async fn begun(
        &self,
        before: Option<(&str, &str)>,
        max: usize,
    ) -> Result<Option<Vec<(String, String)>>, Error> {
        Ok(Some(self.inner.caught_up().await?.begun(before, max)))
    }

    /// All or none, and the log is read anew once: when it returns, this process no longer answers with
    /// what was erased. Others follow when they notice, as soon as they have read the log anew.
    async fn erase_all(&self, by: Vec<EraseBy>) -> Result<Erased, Error> {
        let erase = move |unit: &mut Unit<'_>| {
            let mut erased = Erased::default();
            for by in &by {
                let more = log::erase(unit.tx(), by)?;
                erased.batches += more.batches;
                erased.quads += more.quads;
            }
            if erased.batches > 0 {
                log::raise_epoch(unit.tx())?;
            }
            Ok(erased)
        };
        let erased = self
            .inner
            .database
            .write(Durability::Durable, erase)
            .await?;
        if erased.batches > 0 {
            self.inner.rebuild(false).await?;
        }
        Ok(erased)
    }

    async fn batches(&self) -> Result<u64, Error> {
        Ok(self.inner.database.read(log::batches).await?)
    }

    async fn ready(&self) -> Result<(), Error> {
        let health = self.health();
        match health.level {
            Level::Fine | Level::Large => Ok(()),
            Level::Full => Err(Error::Full {
                quads: health.quads,
                max: health.max_quads,
            }),
        }
    }
}

impl Inner {
    fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Memory that holds every commit made before this call.
    async fn caught_up(self: &Arc<Self>) -> Result<Arc<Generation>, Error> {
        let generation = self.current();
        let applied = generation.applied();
        let mut since = generation::read(&self.database, applied).await?;
        if since.epoch != generation.epoch {
            self.rebuild_in_background();
        }
        if since.rows.is_empty() {
            return Ok(generation);
        }
        let one = self.following.lock().await;
        let seen = generation;
        let generation = self.current();
        if !Arc::ptr_eq(&seen, &generation) || generation.applied() != applied {
            // Another task was quicker; it may still lack what was committed since.
            since = generation::read(&self.database, generation.applied()).await?;
        }
        let applied = self.apply_all(&generation, since).await;
        drop(one);
        match applied {
            Ok(()) => {
                self.tell();
                Ok(generation)
            }
            Err(Error::Engine(reason)) => {
                tracing::error!(%reason, "the graph in memory failed; reading its log anew");
                self.rebuild(true).await?;
                Ok(self.current())
            }
            Err(error) => Err(error),
        }
    }

    /// Applies rows and whatever follows them. The caller holds `following`.
    async fn apply_all(
        &self,
        generation: &Arc<Generation>,
        mut since: log::Since,
    ) -> Result<(), Error> {
        loop {
            let more = since.more;
            self.apply(generation, since.rows).await?;
            if !more {
                return Ok(());
            }
            since = generation::read(&self.database, generation.applied()).await?;
        }
    }

    async fn apply(&self, generation: &Arc<Generation>, rows: Vec<Row>) -> Result<(), Error> {
        let quads = rows.iter().map(|row| row.quads).sum::<u64>();
        // Another process may have room where this one has none: it stops rather than die.
        self.limits.check_hard(generation.quads() + quads)?;
        if quads <= INLINE {
            return generation.apply(&rows);
        }
        let generation = Arc::clone(generation);
        let task = tokio::task::spawn_blocking(move || generation.apply(&rows));
        task.await.map_err(|_| Error::Stopped)?
    }

    /// Reads the log anew if it was erased from, or if `forced`, and replaces what is in memory.
    async fn rebuild(&self, forced: bool) -> Result<(), Error> {
        let _one = self.rebuilding.lock().await;
        let epoch = self.database.read(log::epoch).await?;
        if !forced && self.current().epoch == epoch {
            return Ok(());
        }
        let quiet = |_, _| ();
        let (generation, rate) =
            Generation::load(&self.database, self.limits.hard(), &quiet).await?;
        let old = {
            let _one = self.following.lock().await;
            // Nothing that a query has seen may be missing from what comes next.
            let since = generation::read(&self.database, generation.applied()).await?;
            self.apply_all(&generation, since).await?;
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, generation)
        };
        *lock(&self.rate) = rate;
        self.tell();
        // Giving back that much memory takes a while.
        tokio::task::spawn_blocking(move || drop(old));
        Ok(())
    }

    fn rebuild_in_background(self: &Arc<Self>) {
        if self.rebuilding.try_lock().is_err() {
            return;
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = inner.rebuild(false).await {
                tracing::error!(%error, "cannot read the graph's log anew; erased quads still answer");
            }
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(follower) = lock(&self.follower).take() {
            follower.abort();
        }
    }
}

/// Keeps memory warm: applies what others commit before a query has to.
async fn follow(mut changes: watch::Receiver<u64>, graph: Weak<Inner>) {
    while changes.changed().await.is_ok() {
        let Some(inner) = graph.upgrade() else { return };
        let outcome = inner.caught_up().await;
        drop(inner);
        let pause = match outcome {
            Ok(_) => FOLLOW_EVERY,
            Err(error) => {
                tracing::warn!(%error, "the graph cannot follow its log");
                FOLLOW_AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
