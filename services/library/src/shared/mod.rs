//! The library of a fleet on many machines: what was loaded lies in the documents store, and every
//! machine keeps an index of it, which it brings up to date by itself.
//!
//! ```text
//! library/log/{n}                                         which versions are the present ones
//! library/versions/{collection}/{epoch}/{version}/{part}  what a loaded document says
//! ```
//!
//! # Invariants
//! - The log alone says what the library is. Entries are created if absent, without gaps, and stay.
//! - A version is complete before the log names it. Its objects are deleted only after an entry that
//!   replaces or removes it, or when it was never named and its load must be over.
//! - A read sees everything that was in the log [`STALE`] before it began, and nothing of a collection
//!   that is not indexed so far: it waits, for [`PATIENCE`] at most, and then fails with
//!   [`Error::Building`].
//! - The index can be thrown away at any time.

pub(crate) mod catalogue;
mod index;
pub(crate) mod log;
mod moving;
mod sweep;
mod upload;
pub(crate) mod version;

pub(crate) use upload::Upload;

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_graph::Graph;
use agentfleet_storage::{Database, Durability};
use catalogue::At;
use index::Builder;
use log::{Change, Entry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A log that was looked at so recently is not looked at again for a read.
pub(crate) const STALE: Duration = Duration::from_secs(1);
/// How long a read waits for the index; shorter than tools may take.
const PATIENCE: Duration = Duration::from_secs(45);
/// How often a worker looks at the log when nobody reads.
const LOOK: Duration = Duration::from_secs(5);
/// Entries read at once by one that is behind.
const AHEAD: u64 = 64;

/// The shared library as one process sees it.
pub(crate) struct Shared {
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) graph: Arc<dyn Graph>,
    /// Of the index and the catalogue.
    pub(crate) database: Database,
    /// When the log was last looked at and followed to its end. Held while that is done.
    looked: Mutex<Option<Instant>>,
    builder: Builder,
}

/// How the local index stands to the shared library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Standing {
    /// Documents of the library.
    pub documents: u64,
    /// Those that the index has not read yet.
    pub missing: u64,
    /// Those whose parts the store does not have.
    pub lost: u64,
    /// Entries of the log.
    pub entries: u64,
}

/// What must be so for an entry to be right.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) collection: String,
    /// The collection was not cleared after.
    pub(crate) epoch: u64,
    pub(crate) documents: Vec<String>,
}

impl Shared {
    pub(crate) async fn open(
        documents: Arc<dyn Documents>,
        graph: Arc<dyn Graph>,
        database: Database,
    ) -> Result<Arc<Self>, Error> {
        database.migrate(catalogue::PART, catalogue::TABLES)?;
        database
            .write(Durability::Process, catalogue::look_again)
            .await?;
        Ok(Arc::new(Self {
            documents,
            graph,
            builder: Builder::new(database.data_dir()),
            database,
            looked: Mutex::new(None),
        }))
    }

    /// Waits until a read of a collection, or of all, sees what it must.
    pub(crate) async fn current(self: &Arc<Self>, collection: Option<&str>) -> Result<(), Error> {
        self.current_within(collection, Some(PATIENCE)).await
    }

    /// As [`Shared::current`], for as long as it takes unless there is a limit.
    pub(crate) async fn current_within(
        self: &Arc<Self>,
        collection: Option<&str>,
        patience: Option<Duration>,
    ) -> Result<(), Error> {
        self.refresh(STALE).await?;
        let until = patience.map(|patience| Instant::now() + patience);
        let mut news = self.builder.news();
        loop {
            let missing = self.missing(collection).await?;
            if missing == 0 {
                return Ok(());
            }
            self.build(collection.map(str::to_owned));
            let heard = match until {
                Some(until) => tokio::time::timeout_at(until, news.changed()).await,
                None => Ok(news.changed().await),
            };
            match heard {
                Err(_) => return Err(Error::Building { missing }),
                Ok(Err(_)) => return Err(Error::Stopped),
                Ok(Ok(())) => {}
            }
            if let Some(fault) = &*news.borrow_and_update() {
                return Err(fault.told());
            }
        }
    }

    /// Keeps the index up to date in the background, for as long as somebody holds this.
    pub(crate) fn keep_current(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut due = tokio::time::interval(LOOK);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                match shared.refresh(LOOK).await {
                    Ok(()) => shared.build(None),
                    Err(error) => {
                        tracing::warn!(%error, "cannot look at the log of loaded documents");
                    }
                }
            }
        });
    }

    /// Follows the log to its end, unless that was done `age` ago or later.
    pub(crate) async fn refresh(&self, age: Duration) -> Result<(), Error> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|at| at + age > asked) {
            return Ok(());
        }
        let began = Instant::now();
        self.follow().await?;
        *looked = Some(began);
        Ok(())
    }

    async fn follow(&self) -> Result<At, Error> {
        // One entry at first: mostly there is none.
        let mut most = 1;
        loop {
            let at = self.database.read(catalogue::at).await?;
            let next = at.position + 1;
            let entries = log::read(&*self.documents, next, most, &at.entry).await?;
            let Some(entries) = entries else {
                tracing::warn!(
                    position = at.position,
                    "the store has another library than the one indexed here: the index is built anew"
                );
                self.database
                    .write(Durability::Process, catalogue::forget)
                    .await?;
                continue;
            };
            let found = entries.len() as u64;
            if found > 0 {
                self.take_in(next, entries).await?;
            }
            if found < most {
                return Ok(self.database.read(catalogue::at).await?);
            }
            most = AHEAD;
        }
    }

    async fn take_in(&self, first: u64, entries: Vec<Entry>) -> Result<(), Error> {
        Ok(self
            .database
            .write(Durability::Process, move |unit| {
                catalogue::advance(unit, first, entries)
            })
            .await?)
    }

    /// Adds an entry to the log, and says how many of its documents the collection held already. When it fails for another reason than [`Error::Cleared`], the entry
    /// may be there all the same.
    pub(crate) async fn append(
        &self,
        changes: Vec<Change>,
        expected: Option<Expected>,
    ) -> Result<usize, Error> {
        let entry = Entry {
            id: uuid::Uuid::new_v4().to_string(),
            changes,
        };
        let mut looked = self.looked.lock().await;
        loop {
            let began = Instant::now();
            let at = self.follow().await?;
            *looked = Some(began);
            let held = match &expected {
                Some(expected) => self.held(expected.clone()).await?,
                None => 0,
            };
            let position = at.position + 1;
            if log::create(&*self.documents, position, &entry).await? {
                self.take_in(position, vec![entry]).await?;
                return Ok(held);
            }
        }
    }

    /// How many of the documents of an entry are there already.
    async fn held(&self, expected: Expected) -> Result<usize, Error> {
        let name = expected.collection.clone();
        if self.epoch(&name).await? != expected.epoch {
            return Err(Error::Cleared(name));
        }
        let held = self.database.read(move |connection| {
            catalogue::count_held(connection, &expected.collection, &expected.documents)
        });
        Ok(held.await?)
    }

    pub(crate) async fn epoch(&self, collection: &str) -> Result<u64, Error> {
        let collection = collection.to_owned();
        let epoch = self
            .database
            .read(move |connection| catalogue::epoch(connection, &collection));
        Ok(epoch.await?)
    }

    async fn missing(&self, collection: Option<&str>) -> Result<u64, Error> {
        let collection = collection.map(str::to_owned);
        let missing = self
            .database
            .read(move |connection| catalogue::count_missing(connection, collection.as_deref()));
        Ok(missing.await?)
    }

    /// Names of the collections, with how many documents they hold; needs no index.
    pub(crate) async fn collections(&self) -> Result<Vec<(String, u64)>, Error> {
        self.refresh(STALE).await?;
        Ok(self.database.read(catalogue::collections).await?)
    }

    /// The collection that holds a document; needs no index.
    pub(crate) async fn holder(&self, uri: &str) -> Result<Option<String>, Error> {
        self.refresh(STALE).await?;
        let document = log::document(uri);
        let holder = self
            .database
            .read(move |connection| catalogue::holder(connection, &document));
        Ok(holder.await?)
    }

    pub(crate) async fn standing(&self) -> Result<Standing, Error> {
        self.refresh(Duration::ZERO).await?;
        let standing = self.database.read(|connection| {
            let collections = catalogue::collections(connection)?;
            Ok(Standing {
                documents: collections.iter().map(|(_, count)| count).sum(),
                missing: catalogue::count_missing(connection, None)?,
                lost: catalogue::count_lost(connection)?,
                entries: catalogue::at(connection)?.position,
            })
        });
        Ok(standing.await?)
    }
}
