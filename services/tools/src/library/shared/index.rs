//! Bringing the local index to the catalogue: reads the versions it lacks from the store.
//!
//! One task at a time does that, in one process at a time. It is started by whoever finds something
//! missing, outlives those who wait for it, and ends when nothing is missing that somebody wanted.

use super::catalogue::{self, Scope};
use super::log::Put;
use super::version::{Header, Part};
use super::{Duration, Instant, Shared};
use crate::Error;
use crate::library::passage::Passage;
use crate::library::store::{self, Change, Open};
use agentfleet_documents as documents;
use agentfleet_schema::keys;
use agentfleet_storage::{self as storage, Durability};
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Documents read together, if they are small.
const SOME: usize = 64;
/// Parts of a large document read together.
const PARTS: u32 = 8;
/// Passages after which a batch is written.
const BATCH: usize = 400;
/// How often one looks whether another process is done.
const OTHER: Duration = Duration::from_millis(200);
/// How often progress is logged.
const SAY: Duration = Duration::from_secs(10);

/// What those who wait hear.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// What stopped the building.
    pub(crate) fault: Option<Fault>,
}

/// Why the index could not be built now.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Documents(#[from] documents::Error),
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error("`{key}` of the library cannot be read: {reason}")]
    Shared { key: String, reason: String },
    #[error("{0}")]
    Other(String),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Documents(error) => Self::Documents(error),
            Fault::Storage(error) => Self::Storage(error),
            Fault::Shared { key, reason } => Self::Shared { key, reason },
            Fault::Other(_) => Self::Stopped,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Documents(error) => Self::Documents(error),
            Error::Storage(error) => Self::Storage(error),
            Error::Shared { key, reason } => Self::Shared { key, reason },
            other => Self::Other(other.to_string()),
        }
    }
}

/// The one task that builds, and what it is wanted for.
pub(crate) struct Builder {
    lock_file: PathBuf,
    wanted: Mutex<Wanted>,
    news: watch::Sender<News>,
}

#[derive(Default)]
struct Wanted {
    scopes: BTreeSet<Scope>,
    is_running: bool,
}

impl Builder {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            lock_file: folder.join("run").join("index.lock"),
            wanted: Mutex::default(),
            news: watch::Sender::default(),
        }
    }

    pub(crate) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, fault: Option<Fault>) {
        self.news.send_replace(News { fault });
    }

    /// The lock of the index, if no other process has it.
    fn try_lock(&self) -> Result<Option<File>, storage::Error> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let locked = options
            .open(&self.lock_file)
            .and_then(|file| match file.try_lock() {
                Ok(()) => Ok(Some(file)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            });
        locked.map_err(|source| storage::Error::Io {
            doing: "lock",
            path: self.lock_file.clone(),
            source: Arc::new(source),
        })
    }
}

/// How a version was found.
enum Found {
    Indexed,
    /// Parts of it are not there.
    Gone,
}

/// What one transaction writes.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    weight: usize,
    /// The document that the batches before left unfinished.
    open: Option<Open>,
}

impl Batch {
    fn push(&mut self, change: Change) {
        self.weight += match &change {
            Change::Passages(passages) => passages.len(),
            Change::Begin(_) | Change::Finish { .. } | Change::Abort => 1,
        };
        self.changes.push(change);
    }
}

impl Shared {
    /// Sees to it that somebody brings the index up to date.
    pub(crate) fn build(self: &Arc<Self>, scope: Scope) {
        let mut wanted = self.builder.wanted();
        wanted.scopes.insert(scope);
        if std::mem::replace(&mut wanted.is_running, true) {
            return;
        }
        drop(wanted);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let mut running = Running {
                builder: &shared.builder,
                fault: Some(Fault::Other("it was cut off".to_owned())),
            };
            running.fault = shared.build_all().await.err();
            if let Some(fault) = &running.fault {
                tracing::warn!(%fault, "the index of loaded documents could not be brought up to date");
            }
        });
    }

    /// Builds what is wanted, until nothing of that is missing.
    async fn build_all(&self) -> Result<(), Fault> {
        let mut lock = None;
        let mut told: Option<Instant> = None;
        let mut done = 0_u64;
        loop {
            let some = self.wanted_now().await?;
            let Some((scope, some)) = some else {
                if told.is_some() {
                    tracing::info!(
                        documents = done,
                        "the index of loaded documents is up to date"
                    );
                }
                // Whoever has the lock clears away what it finds at its end.
                if self.database.read(store::has_hidden).await?
                    && (lock.is_some() || self.lock(&mut lock)?)
                {
                    self.tidy().await?;
                }
                return Ok(());
            };
            if lock.is_none() {
                if self.lock(&mut lock)? {
                    // Left by a process that was killed while it had the lock.
                    self.database
                        .write(Durability::Process, store::give_up)
                        .await?;
                } else {
                    tokio::time::sleep(OTHER).await;
                    // Those who wait look for themselves.
                    self.builder.say(None);
                }
                // Another process may have done some of it.
                continue;
            }
            if told.is_none_or(|at| at.elapsed() > SAY) {
                let missing = self.missing(&scope).await?;
                tracing::info!(missing, done, "building the index of loaded documents");
                told = Some(Instant::now());
            }
            done += some.len() as u64;
            self.index(some).await?;
            self.builder.say(None);
        }
    }

    fn lock(&self, lock: &mut Option<File>) -> Result<bool, Fault> {
        *lock = self.builder.try_lock()?;
        Ok(lock.is_some())
    }

    /// Some versions that are missing and wanted; what one collection is asked for comes first.
    async fn wanted_now(&self) -> Result<Option<(Scope, Vec<Put>)>, Fault> {
        loop {
            // Collections sort after `All`.
            let scope = self.builder.wanted().scopes.last().cloned();
            let Some(scope) = scope else {
                return Ok(None);
            };
            let asked = scope.clone();
            let some = self
                .database
                .read(move |connection| catalogue::missing(connection, &asked, SOME))
                .await?;
            if !some.is_empty() {
                return Ok(Some((scope, some)));
            }
            self.builder.wanted().scopes.remove(&scope);
        }
    }

    async fn index(&self, versions: Vec<Put>) -> Result<(), Fault> {
        let mut batch = Batch::default();
        let mut collection = String::new();
        let mut gone = Vec::new();
        let (small, large): (Vec<Put>, Vec<Put>) =
            versions.into_iter().partition(|version| version.parts == 1);
        let names: Vec<String> = small.iter().map(|version| key(version, 0)).collect();
        let bodies = self.documents.get_many(&names).await?;
        for (version, (name, body)) in small.into_iter().zip(names.iter().zip(bodies)) {
            if version.collection != collection {
                self.write(&collection, &mut batch).await?;
                collection.clone_from(&version.collection);
            }
            match body.map(|body| Part::decode(name, &body)).transpose()? {
                Some(Part {
                    header: Some(header),
                    passages,
                }) => {
                    let triples = header.triples;
                    batch.push(Change::Begin(header.source(&version.version)));
                    batch.push(Change::Passages(passages));
                    batch.push(Change::Finish { triples });
                }
                Some(_) | None => gone.push(version),
            }
            if batch.weight >= BATCH {
                self.write(&collection, &mut batch).await?;
            }
        }
        self.write(&collection, &mut batch).await?;
        for version in large {
            match self.index_large(&version).await? {
                Found::Indexed => self.builder.say(None),
                Found::Gone => gone.push(version),
            }
        }
        for version in gone {
            self.look_closer(version).await?;
        }
        Ok(())
    }

    async fn index_large(&self, version: &Put) -> Result<Found, Fault> {
        let last = version.parts.saturating_sub(1);
        let Some(end) = self.part(version, last).await? else {
            return Ok(Found::Gone);
        };
        let Part {
            header: Some(header),
            passages: rest,
        } = end
        else {
            return Ok(Found::Gone);
        };
        let Header { triples, .. } = header;
        let collection = version.collection.as_str();
        let mut batch = Batch::default();
        batch.push(Change::Begin(header.source(&version.version)));
        let mut part = 0;
        while part < last {
            let next = last.min(part + PARTS);
            let names: Vec<String> = (part..next).map(|part| key(version, part)).collect();
            let bodies = self.documents.get_many(&names).await?;
            for (name, body) in names.iter().zip(bodies) {
                let Some(body) = body else {
                    batch.push(Change::Abort);
                    self.write(collection, &mut batch).await?;
                    return Ok(Found::Gone);
                };
                let Part { passages, .. } = Part::decode(name, &body)?;
                self.some(collection, &mut batch, passages).await?;
            }
            part = next;
        }
        self.some(collection, &mut batch, rest).await?;
        batch.push(Change::Finish { triples });
        self.write(collection, &mut batch).await?;
        Ok(Found::Indexed)
    }

    async fn some(
        &self,
        collection: &str,
        batch: &mut Batch,
        mut passages: Vec<Passage>,
    ) -> Result<(), Fault> {
        while !passages.is_empty() {
            let later = passages.split_off(passages.len().min(BATCH));
            batch.push(Change::Passages(passages));
            passages = later;
            if batch.weight >= BATCH {
                self.write(collection, batch).await?;
            }
        }
        Ok(())
    }

    async fn part(&self, version: &Put, part: u32) -> Result<Option<Part>, Fault> {
        let name = key(version, part);
        let body = self.documents.get(&name).await?;
        Ok(body.map(|body| Part::decode(&name, &body)).transpose()?)
    }

    async fn write(&self, collection: &str, batch: &mut Batch) -> Result<(), Fault> {
        let Batch { changes, open, .. } = std::mem::take(batch);
        if changes.is_empty() {
            batch.open = open;
            return Ok(());
        }
        let collection = collection.to_owned();
        let applied = self
            .database
            .write(Durability::Process, move |unit| {
                let collection = store::ensure_collection(unit, &collection)?;
                store::apply(unit, collection, changes, open)
            })
            .await?;
        batch.open = applied.open;
        Ok(())
    }

    /// A version whose parts are not there was replaced in the meantime, or the store lost them.
    async fn look_closer(&self, version: Put) -> Result<(), Fault> {
        self.refresh(Duration::ZERO).await?;
        let (name, collection) = (version.version.clone(), version.collection.clone());
        let is_lost = self
            .database
            .write(Durability::Process, move |unit| {
                catalogue::lost(unit, &version)
            })
            .await?;
        if is_lost {
            tracing::error!(
                version = %name,
                %collection,
                "the store has lost parts of a loaded document: purge its collection and load it again"
            );
        }
        Ok(())
    }

    /// Clears away what is hidden.
    pub(crate) async fn tidy(&self) -> Result<(), Fault> {
        loop {
            let hidden = self
                .database
                .write(Durability::Process, store::hidden)
                .await?;
            if hidden.is_empty() {
                break;
            }
            store::clear_all(&self.database, hidden).await?;
        }
        self.database
            .write(Durability::Process, store::drop_unused)
            .await?;
        Ok(())
    }
}

/// Says that the task has ended, however it ended. Whoever wanted something in its last moment hears
/// of it and wants it again.
struct Running<'b> {
    builder: &'b Builder,
    fault: Option<Fault>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut wanted = self.builder.wanted();
        wanted.is_running = false;
        wanted.scopes.clear();
        drop(wanted);
        self.builder.say(self.fault.take());
    }
}

fn key(version: &Put, part: u32) -> String {
    keys::library_part(&version.collection, version.epoch, &version.version, part)
}
