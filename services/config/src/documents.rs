//! The config among the documents, of one data directory or of many machines.
//!
//! Version N is one object, created if absent: whoever creates it has made the change, and who comes
//! second looks again. It holds the whole book, so that any version is one read. The newest is found
//! by asking for the next one; that is done when somebody tells of a change, and now and then besides,
//! because a notice may be lost.

use crate::book::{Book, Change};
use crate::error::{Error, Problem};
use crate::seed::{SeedReport, Seeder};
use crate::{ConfigStore, Item, ItemVersion, validate};
use agentfleet_documents::{Created, Documents};
use agentfleet_schema::Millis;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::keys;
use agentfleet_storage::Database;
use async_trait::async_trait;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the newest known version is taken for the newest without a look.
const FRESH: Duration = Duration::from_secs(2);
/// Older sets kept in memory, for runs that are pinned to one.
const KEPT: usize = 8;

/// How processes tell each other of changes. It may lose some.
#[async_trait]
pub trait Notices: Send + Sync + 'static {
    /// Tells the others that there is a new version.
    async fn tell(&self, version: u64);

    /// Changes with every notice of others.
    fn heard(&self) -> watch::Receiver<u64>;
}

/// Every commit on a data directory may be a change of the config.
#[async_trait]
impl Notices for Database {
    async fn tell(&self, _: u64) {}

    fn heard(&self) -> watch::Receiver<u64> {
        self.changes()
    }
}

/// The config in a documents store. Clones share it.
#[derive(Clone)]
pub struct DocumentsConfig {
    inner: Arc<Inner>,
}

struct Inner {
    documents: Arc<dyn Documents>,
    notices: Arc<dyn Notices>,
    now: Box<dyn Fn() -> Millis + Send + Sync>,
    heard: Mutex<watch::Receiver<u64>>,
    newest: Mutex<Option<Known>>,
    older: Mutex<VecDeque<Arc<Snapshot>>>,
    /// One look for the next version at a time: others wait for what it finds.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Known {
    book: Arc<Book>,
    set: Arc<Snapshot>,
    /// When the look began that found it.
    seen: Instant,
}

impl std::fmt::Debug for DocumentsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentsConfig").finish_non_exhaustive()
    }
}

impl DocumentsConfig {
    /// `now` tells when a change is made.
    pub fn new(
        documents: Arc<dyn Documents>,
        notices: Arc<dyn Notices>,
        now: impl Fn() -> Millis + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                heard: Mutex::new(notices.heard()),
                documents,
                notices,
                now: Box::new(now),
                newest: Mutex::default(),
                older: Mutex::default(),
                looking: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// What is known, if it may still be taken for the newest.
    fn fresh(&self) -> Option<Known> {
        let told = lock(&self.inner.heard).has_changed().unwrap_or(false);
        let known = lock(&self.inner.newest).clone();
        known.filter(|known| !told && known.seen.elapsed() < FRESH)
    }

    async fn newest(&self) -> Result<Known, Error> {
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        let asked = Instant::now();
        let _alone = self.inner.looking.lock().await;
        // A look that began after this was asked serves all who waited for it, whatever was told since.
        let known = lock(&self.inner.newest).clone();
        match known.filter(|known| known.seen >= asked) {
            Some(known) => Ok(known),
            None => self.look().await,
        }
    }

    /// Finds the newest version, from the newest known on.
    async fn look(&self) -> Result<Known, Error> {
        // Before the look: what is told while it goes on is looked at again.
        let seen = Instant::now();
        lock(&self.inner.heard).mark_unchanged();
        let known = lock(&self.inner.newest).clone();
        let mut book = match &known {
            Some(known) => Arc::clone(&known.book),
            None => self.last_listed().await?,
        };
        while let Some(next) = self.read(book.version + 1).await? {
            book = Arc::new(next);
        }
        let set = match known.filter(|known| known.book.version == book.version) {
            Some(known) => known.set,
            None => Arc::new(book.set()),
        };
        let newest = Known { book, set, seen };
        self.keep(&newest);
        Ok(newest)
    }

    fn keep(&self, found: &Known) {
        let mut newest = lock(&self.inner.newest);
        if newest
            .as_ref()
            .is_none_or(|known| known.book.version <= found.book.version)
        {
            *newest = Some(found.clone());
        }
    }

    /// Of a process that knows of none yet.
    async fn last_listed(&self) -> Result<Arc<Book>, Error> {
        let listed = self.inner.documents.list(keys::CONFIG).await?;
        let version = listed
            .iter()
            .filter_map(|key| keys::config_version(key))
            .max();
        match version {
            Some(version) => Ok(Arc::new(self.read(version).await?.unwrap_or_default())),
            None => Ok(Arc::default()),
        }
    }

    async fn read(&self, version: u64) -> Result<Option<Book>, Error> {
        let Some(body) = self.inner.documents.get(&keys::config(version)).await? else {
            return Ok(None);
        };
        let book = serde_json::from_slice(&body).map_err(|error| Error::Damaged {
            version,
            reason: error.to_string(),
        })?;
        Ok(Some(book))
    }

    /// Makes a change on the newest book, again and again until nobody was faster. Says the version
    /// it has made, or the newest if there was nothing to change.
    async fn change<T>(
        &self,
        author: &str,
        decide: impl Fn(&Book) -> Result<(T, Change), Vec<Problem>> + Send,
    ) -> Result<(T, Option<u64>, u64), Error>
    where
        T: Send,
    {
        loop {
            let _alone = self.inner.looking.lock().await;
            let known = self.look().await?;
            let (decided, change) = decide(&known.book).map_err(Error::Invalid)?;
            if change.is_empty() {
                return Ok((decided, None, known.book.version));
            }
            let next = known.book.after(&change, author, (self.inner.now)());
            let body = serde_json::to_vec(&next).unwrap_or_default();
            let key = keys::config(next.version);
            let seen = Instant::now();
            let created = self.inner.documents.create(&key, body).await?;
            // A reply that was lost makes one's own object look like another's.
            if created == Created::Exists && self.read(next.version).await?.as_ref() != Some(&next)
            {
                continue;
            }
            let version = next.version;
            self.keep(&Known {
                set: Arc::new(next.set()),
                book: Arc::new(next),
                seen,
            });
            self.inner.notices.tell(version).await;
            return Ok((decided, Some(version), version));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn valid(items: &[Item]) -> Result<(), Error> {
    match validate::items(items) {
        problems if problems.is_empty() => Ok(()),
        problems => Err(Error::Invalid(problems)),
    }
}

#[async_trait]
impl ConfigStore for DocumentsConfig {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Error> {
        Ok(self.newest().await?.set)
    }

    async fn snapshot_at(&self, version: u64) -> Result<Arc<Snapshot>, Error> {
        if version == 0 {
            return Ok(Arc::default());
        }
        let newest = lock(&self.inner.newest).clone();
        if let Some(known) = newest.filter(|known| known.book.version == version) {
            return Ok(known.set);
        }
        let kept = lock(&self.inner.older)
            .iter()
            .find(|set| set.version == version)
            .cloned();
        if let Some(set) = kept {
            return Ok(set);
        }
        let Some(book) = self.read(version).await? else {
            let newest = self.newest().await?.book.version;
            return Err(Error::UnknownVersion { version, newest });
        };
        let set = Arc::new(book.set());
        let mut older = lock(&self.inner.older);
        older.push_front(Arc::clone(&set));
        older.truncate(KEPT);
        Ok(set)
    }

    async fn get(&self, item_type: &str, key: &str) -> Result<Option<ItemVersion>, Error> {
        let book = self.newest().await?.book;
        let newest = book.newest(item_type, key);
        Ok(newest.filter(|version| !version.deleted).cloned())
    }

    async fn list(&self, item_type: Option<&str>) -> Result<Vec<ItemVersion>, Error> {
        Ok(self.newest().await?.book.list(item_type))
    }

    async fn history(&self, item_type: &str, key: &str) -> Result<Vec<ItemVersion>, Error> {
        let mut versions = Vec::new();
        let mut book = self.newest().await?.book;
        // Each version of an item leads to the book before it, and so to the version before.
        while let Some(found) = book.newest(item_type, key).cloned() {
            let before = found.version.saturating_sub(1);
            versions.push(found);
            match self.read(before).await? {
                Some(older) => book = Arc::new(older),
                None => break,
            }
        }
        Ok(versions)
    }

    async fn put(&self, items: Vec<Item>, author: &str) -> Result<u64, Error> {
        valid(&items)?;
        let decide = |book: &Book| Ok(((), book.put(items.clone(), author)?));
        let ((), _, version) = self.change(author, decide).await?;
        Ok(version)
    }

    async fn seed(&self, items: Vec<Item>, by: &Seeder) -> Result<SeedReport, Error> {
        valid(&items)?;
        let decide = |book: &Book| Ok(book.seed(items.clone(), by));
        let (mut report, _, version) = self.change(&by.author(), decide).await?;
        report.version = version;
        Ok(report)
    }

    async fn delete(&self, item_type: &str, key: &str, author: &str) -> Result<Option<u64>, Error> {
        let decide = |book: &Book| Ok(((), book.remove(item_type, key)?));
        let ((), made, _) = self.change(author, decide).await?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::contract_tests::Fixture;
    use crate::seed;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_storage::Database;
    use serde_json::json;
    use tempfile::TempDir;

    /// Notices between the handles of one test, unless they are lost.
    struct Told {
        channel: watch::Sender<u64>,
        lost: bool,
    }

    #[async_trait]
    impl Notices for Told {
        async fn tell(&self, version: u64) {
            if !self.lost {
                self.channel.send_replace(version);
            }
        }

        fn heard(&self) -> watch::Receiver<u64> {
            self.channel.subscribe()
        }
    }

    fn pair(lost: bool) -> (DocumentsConfig, DocumentsConfig, TempDir) {
        let directory = TempDir::new().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let documents = Arc::new(EmbeddedDocuments::open(&database).unwrap());
        let channel = watch::Sender::new(0);
        let open = || {
            let notices = Told {
                channel: channel.clone(),
                lost,
            };
            DocumentsConfig::new(Arc::clone(&documents) as _, Arc::new(notices), || 7)
        };
        (open(), open(), directory)
    }

    #[derive(Default)]
    struct TwoHandles {
        directories: Mutex<Vec<TempDir>>,
    }

    #[async_trait]
    impl Fixture for TwoHandles {
        async fn pair(&self) -> (Arc<dyn ConfigStore>, Arc<dyn ConfigStore>) {
            let (one, two, directory) = pair(false);
            self.directories.lock().unwrap().push(directory);
            (Arc::new(one), Arc::new(two))
        }
    }

    config_contract!(TwoHandles::default());

    /// Two processes on one data directory.
    #[derive(Default)]
    struct OneDirectory {
        directories: Mutex<Vec<TempDir>>,
    }

    #[async_trait]
    impl Fixture for OneDirectory {
        async fn pair(&self) -> (Arc<dyn ConfigStore>, Arc<dyn ConfigStore>) {
            let directory = TempDir::new().unwrap();
            let open = async || {
                let database = Database::open(directory.path()).unwrap();
                let documents = Arc::new(EmbeddedDocuments::open(&database).unwrap());
                Arc::new(DocumentsConfig::new(documents, Arc::new(database), || 7))
            };
            let (one, two) = (open().await, open().await);
            self.directories.lock().unwrap().push(directory);
            (one, two)
        }
    }

    mod of_directory {
        use super::*;
        config_contract!(OneDirectory::default());
    }

    fn tool(key: &str) -> Item {
        Item {
            item_type: "tool".to_owned(),
            key: key.to_owned(),
            value: json!({"name": key, "type": "document-search"}),
        }
    }

    #[tokio::test]
    async fn a_change_is_made_on_the_newest_although_its_notice_was_lost() {
        let (one, other, _directory) = pair(true);
        one.put(vec![tool("a")], "someone").await.unwrap();
        assert_eq!(other.put(vec![tool("b")], "someone").await.unwrap(), 2);
        // It has not heard of it, and must not undo it.
        assert_eq!(one.put(vec![tool("c")], "someone").await.unwrap(), 3);
        assert_eq!(one.snapshot().await.unwrap().tools.len(), 3);
    }

    #[tokio::test]
    async fn an_unchanged_set_is_shared() {
        let (one, _, _directory) = pair(false);
        seed::seed(&one, seed::embedded().unwrap()).await.unwrap();
        let first = one.snapshot().await.unwrap();
        assert!(Arc::ptr_eq(&first, &one.snapshot().await.unwrap()));
    }
}
