//! The config of one data directory, in its database.
//!
//! Each change is one durable transaction that checks the set it would lead to. Sets are kept in
//! memory; whether the newest is still the newest is asked only after the database has changed.

mod rows;

#[cfg(test)]
mod tests;

use crate::book::{Book, Change};
use crate::error::{Error, Problem};
use crate::seed::{SeedReport, Seeder};
use crate::{ConfigStore, Item, ItemVersion, validate};
use agentfleet_documents::Documents;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::keys;
use agentfleet_storage::{Database, Durability, Error as StorageError, Unit};
use async_trait::async_trait;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::watch;

/// Older versions kept in memory, for runs that are pinned to one.
const KEPT: usize = 8;

/// The config of one data directory. Clones share it.
#[derive(Clone)]
pub struct EmbeddedConfig {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    changes: watch::Receiver<u64>,
    /// The newest set read, and the tick of the database it was read at.
    current: RwLock<Option<(u64, Arc<Snapshot>)>>,
    /// The most recently used first.
    older: Mutex<VecDeque<Arc<Snapshot>>>,
}

impl std::fmt::Debug for EmbeddedConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedConfig")
            .field("data_dir", &self.inner.database.data_dir())
            .finish_non_exhaustive()
    }
}

impl EmbeddedConfig {
    /// The book at each version, the first first.
    pub(crate) async fn books(&self) -> Result<Vec<Book>, Error> {
        let (newest, items) = self.inner.database.read(rows::all).await?;
        let mut items = items.into_iter().peekable();
        let mut book = Book::default();
        let mut books = Vec::new();
        for version in 1..=newest {
            book.version = version;
            while let Some(item) = items.next_if(|item| item.version <= version) {
                book.replace(item);
            }
            books.push(book.clone());
        }
        Ok(books)
    }

    /// Takes over the versions that lie at some keys of another store, for one that is new. Answers how
    /// many there were.
    pub async fn take_over(
        &self,
        documents: &dyn Documents,
        versions: &[String],
    ) -> Result<u64, Error> {
        let mut versions: Vec<&String> = versions.iter().collect();
        versions.sort();
        for key in &versions {
            let body = documents.get(key).await?.unwrap_or_default();
            let book: Book = serde_json::from_slice(&body).map_err(|error| Error::Damaged {
                version: keys::config_version(key).unwrap_or_default(),
                reason: error.to_string(),
            })?;
            let written = self.inner.database.write(Durability::Durable, move |unit| {
                rows::take_over(unit, &book)
            });
            written.await?;
        }
        Ok(versions.len() as u64)
    }

    pub fn open(database: &Database) -> Result<Self, Error> {
        database.migrate("config", rows::TABLES)?;
        Ok(Self {
            inner: Arc::new(Inner {
                changes: database.changes(),
                database: database.clone(),
                current: RwLock::default(),
                older: Mutex::default(),
            }),
        })
    }

    fn cached(&self) -> Option<(u64, Arc<Snapshot>)> {
        self.inner
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps a set, unless a newer one is there already.
    fn keep(&self, tick: u64, snapshot: &Arc<Snapshot>) {
        let mut current = self
            .inner
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let newer = |(at, known): &(u64, Arc<Snapshot>)| {
            known.version > snapshot.version || (known.version == snapshot.version && *at > tick)
        };
        if !current.as_ref().is_some_and(newer) {
            *current = Some((tick, Arc::clone(snapshot)));
        }
    }

    fn older(&self) -> MutexGuard<'_, VecDeque<Arc<Snapshot>>> {
        self.inner
            .older
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change; its own store sees it at once.
    async fn change<T: Send + 'static>(
        &self,
        action: impl FnOnce(&Unit<'_>) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, Error> {
        let changed = self
            .inner
            .database
            .write(Durability::Durable, move |unit| action(unit))
            .await;
        *self
            .inner
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner) = None;
        changed.map_err(|error| match error.reason::<Refused>() {
            Some(Refused(problems)) => Error::Invalid(problems.clone()),
            None => error.into(),
        })
    }
}

/// Why a change was given up inside its transaction.
#[derive(Debug, thiserror::Error)]
#[error("the change is refused")]
struct Refused(Vec<Problem>);

#[async_trait]
impl ConfigStore for EmbeddedConfig {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        // The tick comes first: what is committed after it will tick again.
        let tick = *self.inner.changes.borrow();
        let cached = self.cached();
        if let Some((at, snapshot)) = &cached
            && *at == tick
        {
            return Ok(Arc::clone(snapshot));
        }
        let known = cached.map(|(_, snapshot)| snapshot);
        let version = known.as_ref().map(|snapshot| snapshot.version);
        let read = move |connection: &Connection| {
            let newest = rows::newest(connection)?;
            if version == Some(newest) {
                Ok(None)
            } else {
                Ok(Some(rows::set_at(connection, newest)?))
            }
        };
        let snapshot = match (self.inner.database.read(read).await?, known) {
            (Some(set), _) => Arc::new(set),
            (None, Some(known)) => known,
            // The version was only compared if there was one.
            (None, None) => Arc::default(),
        };
        self.keep(tick, &snapshot);
        Ok(snapshot)
    }

    async fn snapshot_at(&self, version: u64) -> Result<Arc<Snapshot>, Error> {
        if let Some((_, snapshot)) = self.cached()
            && snapshot.version == version
        {
            return Ok(snapshot);
        }
        {
            let mut older = self.older();
            if let Some(at) = older.iter().position(|set| set.version == version)
                && let Some(found) = older.remove(at)
            {
                older.push_front(Arc::clone(&found));
                return Ok(found);
            }
        }
        let read = move |connection: &Connection| {
            let newest = rows::newest(connection)?;
            if version > newest {
                Ok(Err(newest))
            } else {
                Ok(Ok(rows::set_at(connection, version)?))
            }
        };
        match self.inner.database.read(read).await? {
            Ok(set) => {
                let set = Arc::new(set);
                let mut older = self.older();
                older.push_front(Arc::clone(&set));
                older.truncate(KEPT);
                Ok(set)
            }
            Err(newest) => Err(Error::UnknownVersion { version, newest }),
        }
    }

    async fn get(&self, item_type: &str, key: &str) -> Result<Option<ItemVersion>, Error> {
        let newest = self.history(item_type, key).await?.into_iter().next();
        Ok(newest.filter(|version| !version.deleted))
    }

    async fn list(&self, item_type: Option<&str>) -> Result<Vec<ItemVersion>, Error> {
        let book = self.inner.database.read(rows::book).await?;
        Ok(book.list(item_type))
    }

    async fn history(&self, item_type: &str, key: &str) -> Result<Vec<ItemVersion>, Error> {
        let (item_type, key) = (item_type.to_owned(), key.to_owned());
        let read = move |connection: &Connection| rows::history(connection, &item_type, &key);
        Ok(self.inner.database.read(read).await?)
    }

    async fn put(&self, items: Vec<Item>, author: &str) -> Result<u64, Error> {
        let problems = validate::items(&items);
        if !problems.is_empty() {
            return Err(Error::Invalid(problems));
        }
        let author = author.to_owned();
        self.change(move |unit| {
            let book = rows::book(unit.tx())?;
            let change = book.put(items, &author).map_err(refused)?;
            write(unit, book.version, &change, &author)
        })
        .await
    }

    async fn seed(&self, items: Vec<Item>, by: &Seeder) -> Result<SeedReport, Error> {
        let problems = validate::items(&items);
        if !problems.is_empty() {
            return Err(Error::Invalid(problems));
        }
        let by = by.clone();
        self.change(move |unit| {
            let book = rows::book(unit.tx())?;
            let (mut report, change) = book.seed(items, &by);
            report.version = write(unit, book.version, &change, &by.author())?;
            Ok(report)
        })
        .await
    }

    async fn delete(&self, item_type: &str, key: &str, author: &str) -> Result<Option<u64>, Error> {
        let author = author.to_owned();
        let (item_type, key) = (item_type.to_owned(), key.to_owned());
        self.change(move |unit| {
            let book = rows::book(unit.tx())?;
            let change = book.remove(&item_type, &key).map_err(refused)?;
            let version = write(unit, book.version, &change, &author)?;
            Ok((!change.is_empty()).then_some(version))
        })
        .await
    }
}

fn refused(problems: Vec<Problem>) -> StorageError {
    StorageError::aborted(Refused(problems))
}

/// Writes a change down as the next version; nothing to write makes none.
fn write(unit: &Unit<'_>, before: u64, change: &Change, author: &str) -> Result<u64, StorageError> {
    if change.is_empty() {
        return Ok(before);
    }
    let version = rows::new_version(unit, before, author)?;
    for item in &change.put {
        rows::write(unit.tx(), item, version, false)?;
    }
    for item in &change.removed {
        rows::write(unit.tx(), item, version, true)?;
    }
    Ok(version)
}
