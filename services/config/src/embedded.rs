//! The config of one data directory, in its database.
//!
//! Every change is one row in `config_versions` and one row for each item in `config_items`. Rows
//! are never changed, so any version can be read back: the newest row of each item up to it.

use crate::error::{Error, Problem};
use crate::seed::{self, SeedReport};
use crate::{ConfigStore, Item, ItemVersion, validate};
use agentfleet_schema::config::{Snapshot, item_type};
use agentfleet_storage::{Database, Durability, Error as StorageError, Unit};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::watch;

const TABLES: &[&str] = &["
    CREATE TABLE config_versions(
        version INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        author TEXT NOT NULL
    ) STRICT;
    CREATE TABLE config_items(
        type TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL REFERENCES config_versions(version),
        value TEXT NOT NULL,
        deleted INTEGER NOT NULL,
        PRIMARY KEY (type, key, version)
    ) STRICT, WITHOUT ROWID;
"];

/// Older versions kept in memory, for runs that are pinned to one.
const KEPT: usize = 8;

const COLUMNS: &str = "i.type, i.key, i.value, i.version, v.at, v.author, i.deleted";

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
    pub fn open(database: &Database) -> Result<Self, Error> {
        database.migrate("config", TABLES)?;
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
        if let Some((at, snapshot)) = &cached {
            if *at == tick {
                return Ok(Arc::clone(snapshot));
            }
        }
        let known = cached.map(|(_, snapshot)| snapshot);
        let version = known.as_ref().map(|snapshot| snapshot.version);
        let read = move |connection: &Connection| {
            let newest = newest(connection)?;
            if version == Some(newest) {
                Ok(None)
            } else {
                Ok(Some(set(connection, newest)?))
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
        if let Some((_, snapshot)) = self.cached() {
            if snapshot.version == version {
                return Ok(snapshot);
            }
        }
        {
            let mut older = self.older();
            if let Some(at) = older.iter().position(|set| set.version == version) {
                if let Some(found) = older.remove(at) {
                    older.push_front(Arc::clone(&found));
                    return Ok(found);
                }
            }
        }
        let read = move |connection: &Connection| {
            let newest = newest(connection)?;
            if version > newest {
                Ok(Err(newest))
            } else {
                Ok(Ok(set(connection, version)?))
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
        let item_type = item_type.map(str::to_owned);
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM config_items i JOIN config_versions v USING (version)
                 WHERE (?1 IS NULL OR i.type = ?1) AND NOT i.deleted AND i.version =
                    (SELECT max(version) FROM config_items WHERE type = i.type AND key = i.key)
                 ORDER BY i.type, i.key"
            ))?;
            let found = statement.query_map([item_type], item_version)?;
            Ok(found.collect::<Result<_, _>>()?)
        };
        Ok(self.inner.database.read(read).await?)
    }

    async fn history(&self, item_type: &str, key: &str) -> Result<Vec<ItemVersion>, Error> {
        let (item_type, key) = (item_type.to_owned(), key.to_owned());
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM config_items i JOIN config_versions v USING (version)
                 WHERE i.type = ?1 AND i.key = ?2 ORDER BY i.version DESC"
            ))?;
            let found = statement.query_map([item_type, key], item_version)?;
            Ok(found.collect::<Result<_, _>>()?)
        };
        Ok(self.inner.database.read(read).await?)
    }

    async fn put(&self, items: Vec<Item>, author: &str) -> Result<u64, Error> {
        let problems = validate::items(&items);
        if !problems.is_empty() {
            return Err(Error::Invalid(problems));
        }
        let author = author.to_owned();
        self.change(move |unit| {
            let before = newest(unit.tx())?;
            if items.is_empty() {
                return Ok(before);
            }
            refuse_new_problems(unit.tx(), before, |set| {
                items.iter().for_each(|item| put(set, item))
            })?;
            let version = new_version(unit, before, &author)?;
            for item in &items {
                write(unit.tx(), item, version, false)?;
            }
            Ok(version)
        })
        .await
    }

    async fn seed(&self, items: Vec<Item>) -> Result<SeedReport, Error> {
        let problems = validate::items(&items);
        if !problems.is_empty() {
            return Err(Error::Invalid(problems));
        }
        self.change(move |unit| {
            let before = newest(unit.tx())?;
            let mut report = SeedReport {
                version: before,
                ..SeedReport::default()
            };
            let mut wanted = Vec::new();
            for item in items {
                let newest = newest_of(unit.tx(), &item)?;
                wanted.extend(report.sort(newest.as_ref(), item));
            }
            let before_all = set(unit.tx(), before)?;
            let known = validate::together(&before_all);
            // What refers to something a person took away is left out, and so is what needs it.
            loop {
                let mut after = before_all.clone();
                wanted
                    .iter()
                    .for_each(|wanted: &seed::Wanted| put(&mut after, &wanted.item));
                let mut problems = validate::together(&after);
                problems.retain(|problem| !known.contains(problem));
                let count = wanted.len();
                wanted.retain(|wanted| !report.leave_out(&problems, wanted));
                if wanted.len() == count {
                    break;
                }
            }
            if !wanted.is_empty() {
                report.version = new_version(unit, before, seed::AUTHOR)?;
                for wanted in &wanted {
                    write(unit.tx(), &wanted.item, report.version, false)?;
                }
            }
            Ok(report)
        })
        .await
    }

    async fn delete(&self, item_type: &str, key: &str, author: &str) -> Result<Option<u64>, Error> {
        let author = author.to_owned();
        let item = Item {
            item_type: item_type.to_owned(),
            key: key.to_owned(),
            value: Value::Null,
        };
        self.change(move |unit| {
            if newest_of(unit.tx(), &item)?.is_none_or(|newest| newest.deleted) {
                return Ok(None);
            }
            let before = newest(unit.tx())?;
            refuse_new_problems(unit.tx(), before, |set| remove(set, &item))?;
            let version = new_version(unit, before, &author)?;
            write(unit.tx(), &item, version, true)?;
            Ok(Some(version))
        })
        .await
    }
}

/// Refuses a change after which a reference would miss its end.
fn refuse_new_problems(
    connection: &Connection,
    version: u64,
    change: impl FnOnce(&mut Snapshot),
) -> Result<(), StorageError> {
    let mut set = set(connection, version)?;
    // What was wrong before is not made worse, and must not stand in the way of mending it.
    let known = validate::together(&set);
    change(&mut set);
    let mut problems = validate::together(&set);
    problems.retain(|problem| !known.contains(problem));
    if problems.is_empty() {
        Ok(())
    } else {
        Err(StorageError::aborted(Refused(problems)))
    }
}

fn newest(connection: &Connection) -> Result<u64, StorageError> {
    let mut statement =
        connection.prepare_cached("SELECT coalesce(max(version), 0) FROM config_versions")?;
    Ok(statement.query_row([], |row| number(row, 0))?)
}

fn newest_of(connection: &Connection, item: &Item) -> Result<Option<ItemVersion>, StorageError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM config_items i JOIN config_versions v USING (version)
         WHERE i.type = ?1 AND i.key = ?2 ORDER BY i.version DESC LIMIT 1"
    ))?;
    Ok(statement
        .query_row([&item.item_type, &item.key], item_version)
        .optional()?)
}

fn new_version(unit: &Unit<'_>, before: u64, author: &str) -> Result<u64, StorageError> {
    let version = before + 1;
    unit.tx()
        .prepare_cached("INSERT INTO config_versions(version, at, author) VALUES (?1, ?2, ?3)")?
        .execute((version as i64, unit.now(), author))?;
    Ok(version)
}

fn write(
    connection: &Connection,
    item: &Item,
    version: u64,
    deleted: bool,
) -> Result<(), StorageError> {
    connection
        .prepare_cached(
            "INSERT INTO config_items(type, key, version, value, deleted) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((&item.item_type, &item.key, version as i64, item.value.to_string(), deleted))?;
    Ok(())
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

fn item_version(row: &Row<'_>) -> Result<ItemVersion, rusqlite::Error> {
    let text: String = row.get(2)?;
    Ok(ItemVersion {
        item: Item {
            item_type: row.get(0)?,
            key: row.get(1)?,
            // Written by this store; what is no JSON any more is damage that `get` must survive.
            value: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        },
        version: number(row, 3)?,
        at: row.get(4)?,
        author: row.get(5)?,
        deleted: row.get(6)?,
    })
}

/// The set at a version. An item that this program cannot read is left out, so that one item of a
/// newer or older program does not stop the fleet.
fn set(connection: &Connection, version: u64) -> Result<Snapshot, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT type, key, value FROM config_items i WHERE NOT deleted AND version =
            (SELECT max(version) FROM config_items
             WHERE type = i.type AND key = i.key AND version <= ?1)",
    )?;
    let mut rows = statement.query([version as i64])?;
    let mut set = Snapshot {
        version,
        ..Snapshot::default()
    };
    while let Some(row) = rows.next()? {
        let text: String = row.get(2)?;
        let value = serde_json::from_str(&text).unwrap_or_default();
        put(
            &mut set,
            &Item {
                item_type: row.get(0)?,
                key: row.get(1)?,
                value,
            },
        );
    }
    Ok(set)
}

fn put(set: &mut Snapshot, item: &Item) {
    match item.item_type.as_str() {
        item_type::AGENT_PATTERN => read_into(&mut set.patterns, item),
        item_type::AGENT_TASK_TYPE => read_into(&mut set.task_types, item),
        item_type::PROMPT => read_into(&mut set.prompts, item),
        item_type::TOOL => read_into(&mut set.tools, item),
        item_type::MODEL_PROFILE => read_into(&mut set.profiles, item),
        // Stored for others.
        _ => (),
    }
}

fn read_into<T: DeserializeOwned>(map: &mut BTreeMap<String, T>, item: &Item) {
    match serde_json::from_value(item.value.clone()) {
        Ok(value) => {
            map.insert(item.key.clone(), value);
        }
        Err(error) => {
            map.remove(&item.key);
            tracing::warn!(
                item_type = item.item_type,
                key = item.key,
                %error,
                "config item cannot be read and is left out"
            );
        }
    }
}

fn remove(set: &mut Snapshot, item: &Item) {
    let key = &item.key;
    match item.item_type.as_str() {
        item_type::AGENT_PATTERN => drop(set.patterns.remove(key)),
        item_type::AGENT_TASK_TYPE => drop(set.task_types.remove(key)),
        item_type::PROMPT => drop(set.prompts.remove(key)),
        item_type::TOOL => drop(set.tools.remove(key)),
        item_type::MODEL_PROFILE => drop(set.profiles.remove(key)),
        _ => (),
    }
}

/// A set of items that lies in no store.
pub(crate) fn loose(items: &[Item]) -> Snapshot {
    let mut set = Snapshot::default();
    items.iter().for_each(|item| put(&mut set, item));
    set
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::contract::Fixture;
    use tempfile::TempDir;

    #[derive(Default)]
    struct TwoHandles {
        directories: Mutex<Vec<TempDir>>,
    }

    #[async_trait]
    impl Fixture for TwoHandles {
        async fn pair(&self) -> (Arc<dyn ConfigStore>, Arc<dyn ConfigStore>) {
            let directory = TempDir::new().unwrap();
            let open = || {
                let database = Database::open(directory.path()).unwrap();
                Arc::new(EmbeddedConfig::open(&database).unwrap())
            };
            let (one, two) = (open(), open());
            self.directories.lock().unwrap().push(directory);
            (one, two)
        }
    }

    crate::config_contract!(TwoHandles::default());

    #[tokio::test]
    async fn an_unchanged_set_is_shared_even_while_others_write() {
        let directory = TempDir::new().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let config = EmbeddedConfig::open(&database).unwrap();
        config.seed(seed::embedded().unwrap()).await.unwrap();
        let first = config.snapshot().await.unwrap();
        assert!(Arc::ptr_eq(&first, &config.snapshot().await.unwrap()));
        // A commit that has nothing to do with the config.
        database
            .migrate("other", &["CREATE TABLE other(x INTEGER)"])
            .unwrap();
        let action =
            |unit: &mut Unit<'_>| Ok(unit.tx().execute("INSERT INTO other VALUES (1)", [])?);
        database.write(Durability::Process, action).await.unwrap();
        assert!(Arc::ptr_eq(&first, &config.snapshot().await.unwrap()));
    }

    #[tokio::test]
    async fn an_item_that_cannot_be_read_is_left_out_and_can_be_mended() {
        let directory = TempDir::new().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let config = EmbeddedConfig::open(&database).unwrap();
        let action = |unit: &mut Unit<'_>| {
            unit.tx().execute_batch(
                "INSERT INTO config_versions VALUES (1, 0, 'older program');
                 INSERT INTO config_items VALUES ('tool', 'odd', 1, '{\"kind\": 7}', 0);
                 INSERT INTO config_items VALUES ('agent-pattern', 'react', 1, '{\"name\": \"react\"}', 0);",
            )?;
            Ok(())
        };
        database.write(Durability::Durable, action).await.unwrap();
        let set = config.snapshot().await.unwrap();
        assert_eq!((set.tools.len(), set.patterns.len()), (0, 1));
        assert!(config.get("tool", "odd").await.unwrap().is_some());
        let mended = serde_json::json!({"name": "odd", "type": "document-search"});
        let item = Item {
            item_type: "tool".to_owned(),
            key: "odd".to_owned(),
            value: mended,
        };
        config.put(vec![item], "someone").await.unwrap();
        assert_eq!(config.snapshot().await.unwrap().tools.len(), 1);
    }
}
