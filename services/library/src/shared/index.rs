//! Bringing the local index to the catalogue: reads the versions it lacks from the store.
//!
//! One task at a time does that, in one process at a time. It is started by whoever finds something
//! missing, outlives those who wait for it, and ends when nothing is missing that somebody wanted.

use super::catalogue;
use super::log::{Put, decode};
use super::version::Part;
use super::{Duration, Instant, Shared};
use crate::Error;
use crate::load::{Tables, Target as _};
use crate::store::{self, NewSource};
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
/// How often one looks whether another process is done.
const OTHER: Duration = Duration::from_millis(200);
/// How often progress is logged.
const SAY: Duration = Duration::from_secs(10);

/// The one task that builds, and what it is wanted for.
pub(crate) struct Builder {
    lock_file: PathBuf,
    wanted: Mutex<Wanted>,
    /// What those who wait hear: what stopped the building, if something did.
    news: watch::Sender<Option<Error>>,
}

#[derive(Default)]
struct Wanted {
    /// Collections, or all.
    scopes: BTreeSet<Option<String>>,
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

    pub(crate) fn news(&self) -> watch::Receiver<Option<Error>> {
        self.news.subscribe()
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, fault: Option<Error>) {
        self.news.send_replace(fault);
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

impl Shared {
    /// Sees to it that somebody brings the index up to date.
    pub(crate) fn build(self: &Arc<Self>, scope: Option<String>) {
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
                fault: Some(Error::Stopped),
            };
            running.fault = shared.build_all().await.err();
            if let Some(fault) = &running.fault {
                tracing::warn!(%fault, "the index of loaded documents could not be brought up to date");
            }
        });
    }

    /// Builds what is wanted, until nothing of that is missing.
    async fn build_all(&self) -> Result<(), Error> {
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
                let missing = self.missing(scope.as_deref()).await?;
                tracing::info!(missing, done, "building the index of loaded documents");
                told = Some(Instant::now());
            }
            done += some.len() as u64;
            self.index(some).await?;
            self.builder.say(None);
        }
    }

    fn lock(&self, lock: &mut Option<File>) -> Result<bool, Error> {
        *lock = self.builder.try_lock()?;
        Ok(lock.is_some())
    }

    /// Some versions that are missing and wanted; what one collection is asked for comes first.
    async fn wanted_now(&self) -> Result<Option<(Option<String>, Vec<Put>)>, Error> {
        loop {
            // Collections sort after all.
            let scope = self.builder.wanted().scopes.last().cloned();
            let Some(scope) = scope else {
                return Ok(None);
            };
            let asked = scope.clone();
            let some = self
                .database
                .read(move |connection| catalogue::missing(connection, asked.as_deref(), SOME))
                .await?;
            if !some.is_empty() {
                return Ok(Some((scope, some)));
            }
            self.builder.wanted().scopes.remove(&scope);
        }
    }

    async fn index(&self, versions: Vec<Put>) -> Result<(), Error> {
        let mut tables = Tables::new(&self.database, "");
        let mut gone = Vec::new();
        let (small, large): (Vec<Put>, Vec<Put>) =
            versions.into_iter().partition(|version| version.parts == 1);
        let names: Vec<String> = small.iter().map(|version| version.key(0)).collect();
        let bodies = self.documents.get_many(&names).await?;
        for (version, (name, body)) in small.into_iter().zip(names.iter().zip(bodies)) {
            if version.collection != tables.collection {
                tables.flush(Durability::Process).await?;
                tables = Tables::new(&self.database, &version.collection);
            }
            match body.map(|body| decode::<Part>(name, &body)).transpose()? {
                Some(Part {
                    header: Some(header),
                    passages,
                }) => {
                    tables.begin(named(header.source, &version), false).await?;
                    tables.passages(passages).await?;
                    tables.finish(header.triples).await?;
                }
                Some(_) | None => gone.push(version),
            }
        }
        tables.flush(Durability::Process).await?;
        for version in large {
            if self.index_large(&version).await? {
                self.builder.say(None);
            } else {
                gone.push(version);
            }
        }
        for version in gone {
            self.look_closer(version).await?;
        }
        Ok(())
    }

    /// `false` if parts of it are not there.
    async fn index_large(&self, version: &Put) -> Result<bool, Error> {
        let last = version.parts.saturating_sub(1);
        let name = version.key(last);
        let end = self.documents.get(&name).await?;
        let end = end.map(|body| decode::<Part>(&name, &body)).transpose()?;
        let Some(Part {
            header: Some(header),
            passages: rest,
        }) = end
        else {
            return Ok(false);
        };
        let mut tables = Tables::new(&self.database, &version.collection);
        tables.begin(named(header.source, version), false).await?;
        let mut part = 0;
        while part < last {
            let next = last.min(part + PARTS);
            let names: Vec<String> = (part..next).map(|part| version.key(part)).collect();
            let bodies = self.documents.get_many(&names).await?;
            for (name, body) in names.iter().zip(bodies) {
                let Some(body) = body else {
                    tables.abort().await?;
                    tables.flush(Durability::Process).await?;
                    return Ok(false);
                };
                tables
                    .passages(decode::<Part>(name, &body)?.passages)
                    .await?;
            }
            part = next;
        }
        tables.passages(rest).await?;
        tables.finish(header.triples).await?;
        tables.flush(Durability::Process).await?;
        Ok(true)
    }

    /// A version whose parts are not there was replaced in the meantime, or the store lost them.
    async fn look_closer(&self, version: Put) -> Result<(), Error> {
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
    pub(crate) async fn tidy(&self) -> Result<(), Error> {
        store::clear_all(&self.database, None).await?;
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
    fault: Option<Error>,
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

/// The document as it goes into the local index.
fn named(source: NewSource, version: &Put) -> NewSource {
    let version = Some(version.version.clone());
    NewSource { version, ..source }
}
