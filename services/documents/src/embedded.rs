//! Documents as rows of the embedded database, so that a record can be committed in the same
//! transaction as the messages that follow from it.

use crate::error::Error;
use crate::range::after_all_below;
use crate::{Created, Documents, Entry};
use agentfleet_storage::{self as storage, Database, Durability, Packed, Unit};
use async_trait::async_trait;
use rusqlite::Connection;
use rusqlite::types::Value;
use std::sync::Arc;

const PART: &str = "documents";

const TABLES: &[&str] = &["CREATE TABLE objects(
       id INTEGER PRIMARY KEY,
       key TEXT NOT NULL UNIQUE,
       created_at INTEGER NOT NULL,
       body BLOB NOT NULL);"];

/// The documents store of one data directory. Clones share it.
#[derive(Clone, Debug)]
pub struct EmbeddedDocuments {
    database: Database,
}

impl EmbeddedDocuments {
    pub fn open(database: &Database) -> Result<Self, Error> {
        database.migrate(PART, TABLES)?;
        Ok(Self {
            database: database.clone(),
        })
    }

    /// Creates an object as part of the caller's unit: it is there if and when the unit commits.
    pub fn create_in(
        &self,
        unit: &mut Unit<'_>,
        key: &str,
        body: &Packed,
    ) -> Result<Created, storage::Error> {
        if key.is_empty() {
            return Err(Error::EmptyKey.into());
        }
        let new = unit
            .tx()
            .prepare_cached(
                "INSERT INTO objects(key, created_at, body) VALUES (?1, ?2, ?3)
                 ON CONFLICT(key) DO NOTHING",
            )?
            .execute((key, unit.now(), body.as_bytes()))?;
        Ok(Created::of(new == 1))
    }

    /// An object's body, as the caller's unit sees it.
    pub fn get_in(&self, unit: &Unit<'_>, key: &str) -> Result<Option<Arc<[u8]>>, storage::Error> {
        body(unit.tx(), key)
    }
}

#[async_trait]
impl Documents for EmbeddedDocuments {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error> {
        let documents = self.clone();
        let key = key.to_owned();
        let body = Packed::of(&body);
        let created = self.database.write(Durability::Durable, move |unit| {
            documents.create_in(unit, &key, &body)
        });
        Ok(created.await?)
    }

    async fn create_with(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let (documents, key, packed) = (self.clone(), key.to_owned(), Packed::of(&body));
        let others: Vec<(String, Packed)> = others
            .iter()
            .map(|(key, body)| (key.clone(), Packed::of(body)))
            .collect();
        let there = self.database.write(Durability::Durable, move |unit| {
            if documents.create_in(unit, &key, &packed)? == Created::Exists {
                return documents.get_in(unit, &key);
            }
            for (key, body) in &others {
                documents.create_in(unit, key, body)?;
            }
            Ok(None)
        });
        Ok(there.await?.filter(|there| **there != *body))
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        let key = key.to_owned();
        Ok(self
            .database
            .read(move |connection| body(connection, &key))
            .await?)
    }

    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error> {
        let keys = keys.to_owned();
        let bodies = self
            .database
            .read(move |connection| keys.iter().map(|key| body(connection, key)).collect());
        Ok(bodies.await?)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let range = Range::below(prefix);
        let keys = self.database.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT key FROM objects WHERE key >= ?1 AND key < ?2 ORDER BY key",
            )?;
            let keys = statement.query_map((range.from, range.to), |row| row.get(0))?;
            Ok(keys.collect::<Result<_, _>>()?)
        });
        Ok(keys.await?)
    }

    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error> {
        let range = Range::below(prefix).after(after);
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let entries = self.database.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT key, created_at FROM objects WHERE key >= ?1 AND key < ?2
                 ORDER BY key LIMIT ?3",
            )?;
            let entries = statement.query_map((range.from, range.to, max), |row| {
                Ok(Entry {
                    key: row.get(0)?,
                    created_at: row.get(1)?,
                })
            })?;
            Ok(entries.collect::<Result<_, _>>()?)
        });
        Ok(entries.await?)
    }

    /// In transactions of some, so that others get their turn.
    async fn delete_prefix(&self, prefix: &str) -> Result<usize, Error> {
        if prefix.is_empty() {
            return Err(Error::EmptyKey);
        }
        let range = Range::below(prefix);
        let mut deleted = 0;
        loop {
            let range = range.clone();
            let some = self
                .database
                .write(Durability::Durable, move |unit| range.delete(unit.tx()));
            let some = some.await?;
            deleted += some;
            if some < Range::SOME {
                return Ok(deleted);
            }
        }
    }

    async fn delete(&self, keys: &[String]) -> Result<(), Error> {
        let keys = keys.to_owned();
        let deleted = self.database.write(Durability::Durable, move |unit| {
            let mut statement = unit
                .tx()
                .prepare_cached("DELETE FROM objects WHERE key = ?1")?;
            for key in &keys {
                statement.execute([key])?;
            }
            Ok(())
        });
        Ok(deleted.await?)
    }
}

fn body(connection: &Connection, key: &str) -> Result<Option<Arc<[u8]>>, storage::Error> {
    let mut statement = connection.prepare_cached("SELECT body FROM objects WHERE key = ?1")?;
    let mut rows = statement.query([key])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let damaged = || Error::Damaged {
        key: key.to_owned(),
    };
    // Nothing of ours writes a body as a text or a number.
    let Ok(stored) = row.get_ref(0)?.as_blob() else {
        return Err(damaged().into());
    };
    match storage::unpack(stored) {
        Err(storage::Error::Unpackable) => Err(damaged().into()),
        unpacked => unpacked.map(Some),
    }
}

/// The keys that start with a prefix: from `from`, inclusive, to `to`, exclusive. Keys compare as
/// bytes, here and in SQLite.
#[derive(Clone, Debug)]
struct Range {
    from: String,
    to: Value,
}

impl Range {
    /// Rows deleted in one transaction: others must get their turn.
    const SOME: usize = 500;

    fn below(prefix: &str) -> Self {
        Self {
            from: prefix.to_owned(),
            // A blob comes after every text.
            to: after_all_below(prefix).map_or(Value::Blob(Vec::new()), Value::Text),
        }
    }

    /// The part of the range that comes after a key.
    fn after(mut self, key: &str) -> Self {
        if key >= self.from.as_str() {
            self.from = format!("{key}\0");
        }
        self
    }

    fn delete(&self, connection: &Connection) -> Result<usize, storage::Error> {
        let mut statement = connection.prepare_cached(
            "DELETE FROM objects WHERE id IN (
               SELECT id FROM objects WHERE key >= ?1 AND key < ?2 LIMIT ?3)",
        )?;
        Ok(statement.execute((&self.from, &self.to, Self::SOME as i64))?)
    }
}
