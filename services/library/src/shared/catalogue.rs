//! What the log of the shared library comes to, as tables beside the local index: which versions are
//! the present ones, and which of them the index holds.
//!
//! The index is brought to the catalogue by what is missing from it, never by what was done, so it
//! does not matter where an earlier try was cut off.

use super::log::{Change, Entry, Put};
use crate::store::{self, GONE, LIVE};
use agentfleet_storage::{Error as StorageError, Unit};
use rusqlite::{Connection, OptionalExtension as _, Row};
use std::collections::HashSet;

pub(crate) const PART: &str = "library-shared";

pub(crate) const TABLES: &[&str] = &["
    CREATE TABLE shared_log(position INTEGER NOT NULL, entry TEXT NOT NULL) STRICT;
    INSERT INTO shared_log VALUES (0, '');
    CREATE TABLE shared_versions(
        id INTEGER PRIMARY KEY,
        version TEXT NOT NULL UNIQUE,
        collection TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        document TEXT NOT NULL,
        parts INTEGER NOT NULL,
        statements INTEGER NOT NULL,
        state INTEGER NOT NULL,
        -- Its row in `library_sources`; 0 if its parts were not found.
        source INTEGER
    ) STRICT;
    CREATE INDEX shared_versions_document ON shared_versions(collection, document);
    CREATE UNIQUE INDEX shared_versions_present ON shared_versions(document, collection)
        WHERE state = 1;
    CREATE INDEX shared_versions_missing ON shared_versions(collection)
        WHERE state = 1 AND source IS NULL;
    CREATE TABLE shared_epochs(
        collection TEXT PRIMARY KEY,
        epoch INTEGER NOT NULL
    ) STRICT;
"];

const PRESENT: i64 = 1;
const REPLACED: i64 = 2;
/// Replaced, and its objects were deleted from here.
const DISCARDED: i64 = 3;
/// In place of a source: parts were not found.
const LOST: i64 = 0;

/// Where in the log this index is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) position: u64,
    /// The entry there.
    pub(crate) entry: String,
}

pub(crate) fn at(connection: &Connection) -> Result<At, StorageError> {
    let mut statement = connection.prepare_cached("SELECT position, entry FROM shared_log")?;
    let at = statement.query_row([], |row| {
        Ok(At {
            position: row.get::<_, i64>(0)? as u64,
            entry: row.get(1)?,
        })
    });
    Ok(at?)
}

/// Takes in the entries from a position on; those that were taken in before are passed over.
pub(crate) fn advance(
    unit: &mut Unit<'_>,
    first: u64,
    entries: Vec<Entry>,
) -> Result<(), StorageError> {
    for (position, entry) in (first..).zip(entries) {
        if at(unit.tx())?.position + 1 != position {
            continue;
        }
        for change in entry.changes {
            match change {
                Change::Put(new) => put(unit, &new)?,
                Change::Drop {
                    collection,
                    document,
                } => remove(unit, &collection, &document)?,
                Change::Clear { collection } => clear(unit, &collection, position)?,
            }
        }
        unit.tx()
            .prepare_cached("UPDATE shared_log SET position = ?1, entry = ?2")?
            .execute((position as i64, entry.id))?;
    }
    Ok(())
}

fn put(unit: &mut Unit<'_>, new: &Put) -> Result<(), StorageError> {
    let tx = unit.tx();
    let known = tx
        .prepare_cached("SELECT 1 FROM shared_versions WHERE version = ?1")?
        .exists([&new.version])?;
    if known || new.epoch < epoch(tx, &new.collection)? {
        return Ok(());
    }
    replace(unit, &new.collection, &new.document)?;
    unit.tx()
        .prepare_cached(
            "INSERT INTO shared_versions(version, collection, epoch, document, parts, statements, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            &new.version,
            &new.collection,
            new.epoch as i64,
            &new.document,
            new.parts,
            new.statements,
            PRESENT,
        ))?;
    Ok(())
}

fn replace(unit: &mut Unit<'_>, collection: &str, document: &str) -> Result<(), StorageError> {
    unit.tx()
        .prepare_cached(
            "UPDATE shared_versions SET state = ?3
             WHERE collection = ?1 AND document = ?2 AND state = ?4",
        )?
        .execute((collection, document, REPLACED, PRESENT))?;
    Ok(())
}

fn remove(unit: &mut Unit<'_>, collection: &str, document: &str) -> Result<(), StorageError> {
    replace(unit, collection, document)?;
    hide(unit, collection, document)
}

/// Hides a document in whichever version: the index may still show one that was replaced.
fn hide(unit: &mut Unit<'_>, collection: &str, document: &str) -> Result<(), StorageError> {
    unit.tx()
        .prepare_cached(
            "UPDATE library_sources SET state = ?3 WHERE state = ?4 AND id IN (
                 SELECT source FROM shared_versions WHERE collection = ?1 AND document = ?2)",
        )?
        .execute((collection, document, GONE, LIVE))?;
    Ok(())
}

fn clear(unit: &mut Unit<'_>, collection: &str, position: u64) -> Result<(), StorageError> {
    let tx = unit.tx();
    tx.execute(
        "INSERT INTO shared_epochs VALUES (?1, ?2)
         ON CONFLICT(collection) DO UPDATE SET epoch = excluded.epoch",
        (collection, position as i64),
    )?;
    tx.execute(
        "DELETE FROM shared_versions WHERE collection = ?1",
        [collection],
    )?;
    if let Some(id) = store::collection(tx, collection)? {
        store::hide(unit, id, None)?;
    }
    Ok(())
}

/// Forgets everything: the log is another than the one that was followed.
pub(crate) fn forget(unit: &mut Unit<'_>) -> Result<(), StorageError> {
    let tx = unit.tx();
    tx.execute_batch(
        "DELETE FROM shared_versions;
         DELETE FROM shared_epochs;
         UPDATE shared_log SET position = 0, entry = '';",
    )?;
    tx.execute("UPDATE library_sources SET state = ?1", [GONE])?;
    Ok(())
}

/// Where a collection was cleared last; 0 if never.
pub(crate) fn epoch(connection: &Connection, collection: &str) -> Result<u64, StorageError> {
    let mut statement =
        connection.prepare_cached("SELECT epoch FROM shared_epochs WHERE collection = ?1")?;
    let epoch = statement
        .query_row([collection], |row| row.get::<_, i64>(0))
        .optional()?;
    Ok(epoch.unwrap_or(0) as u64)
}

/// Notes that the index holds a version as `source`; `false` if it must not show it.
pub(crate) fn indexed(
    unit: &mut Unit<'_>,
    version: &str,
    source: i64,
) -> Result<bool, StorageError> {
    let noted = unit
        .tx()
        .prepare_cached(
            "UPDATE shared_versions SET source = ?2
             WHERE version = ?1 AND state = ?3 AND source IS NULL",
        )?
        .execute((version, source, PRESENT))?;
    Ok(noted > 0)
}

/// Notes that parts of a version were not found; `false` if it is not the present one any more. What
/// the index shows of the document in an older version is hidden.
pub(crate) fn lost(unit: &mut Unit<'_>, lost: &Put) -> Result<bool, StorageError> {
    let is_present = indexed(unit, &lost.version, LOST)?;
    if is_present {
        hide(unit, &lost.collection, &lost.document)?;
    }
    Ok(is_present)
}

/// Versions that were not found are looked for again.
pub(crate) fn look_again(unit: &mut Unit<'_>) -> Result<(), StorageError> {
    unit.tx().execute(
        "UPDATE shared_versions SET source = NULL WHERE source = ?1",
        [LOST],
    )?;
    Ok(())
}

const COLUMNS: &str = "version, collection, epoch, document, parts, statements";

fn version(row: &Row<'_>) -> Result<Put, rusqlite::Error> {
    Ok(Put {
        version: row.get(0)?,
        collection: row.get(1)?,
        epoch: row.get::<_, i64>(2)? as u64,
        document: row.get(3)?,
        parts: row.get(4)?,
        statements: row.get(5)?,
    })
}

/// Some versions that the index lacks, those of a collection or of any.
pub(crate) fn missing(
    connection: &Connection,
    collection: Option<&str>,
    limit: usize,
) -> Result<Vec<Put>, StorageError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM shared_versions
         WHERE state = 1 AND source IS NULL AND (?1 IS NULL OR collection = ?1)
         ORDER BY id LIMIT ?2"
    ))?;
    let rows = statement.query_map((collection, limit as i64), version)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn count_missing(
    connection: &Connection,
    collection: Option<&str>,
) -> Result<u64, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM shared_versions
         WHERE state = 1 AND source IS NULL AND (?1 IS NULL OR collection = ?1)",
    )?;
    let count = statement.query_row([collection], |row| row.get::<_, i64>(0))?;
    Ok(count as u64)
}

pub(crate) fn count_lost(connection: &Connection) -> Result<u64, StorageError> {
    let mut statement = connection
        .prepare_cached("SELECT count(*) FROM shared_versions WHERE state = 1 AND source = ?1")?;
    let count = statement.query_row([LOST], |row| row.get::<_, i64>(0))?;
    Ok(count as u64)
}

/// The collections that hold documents, with how many these are.
pub(crate) fn collections(connection: &Connection) -> Result<Vec<(String, u64)>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT collection, count(*) FROM shared_versions WHERE state = 1
         GROUP BY collection ORDER BY collection",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The collection that holds a document.
pub(crate) fn holder(
    connection: &Connection,
    document: &str,
) -> Result<Option<String>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT collection FROM shared_versions WHERE document = ?1 AND state = 1",
    )?;
    Ok(statement
        .query_row([document], |row| row.get(0))
        .optional()?)
}

/// How many of these documents a collection holds.
pub(crate) fn count_held(
    connection: &Connection,
    collection: &str,
    documents: &[String],
) -> Result<usize, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM shared_versions WHERE state = 1 AND collection = ?1
         AND document IN (SELECT value FROM json_each(?2))",
    )?;
    let documents = serde_json::Value::from(documents).to_string();
    let count = statement.query_row((collection, documents), |row| row.get::<_, i64>(0))?;
    Ok(count as usize)
}

pub(crate) fn is_known(connection: &Connection, version: &str) -> Result<bool, StorageError> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM shared_versions WHERE version = ?1")?;
    Ok(statement.exists([version])?)
}

/// Versions of these documents that were replaced or removed, and whose objects may still be there.
pub(crate) fn replaced(
    connection: &Connection,
    collection: &str,
    documents: &[String],
) -> Result<Vec<Put>, StorageError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM shared_versions WHERE state = ?3 AND collection = ?1
         AND document IN (SELECT value FROM json_each(?2))"
    ))?;
    let documents = serde_json::Value::from(documents).to_string();
    let rows = statement.query_map((collection, documents, REPLACED), version)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn discarded(unit: &mut Unit<'_>, versions: &[String]) -> Result<(), StorageError> {
    let mut statement = unit.tx().prepare_cached(
        "UPDATE shared_versions SET state = ?2 WHERE version = ?1 AND state = ?3",
    )?;
    for version in versions {
        statement.execute((version, DISCARDED, REPLACED))?;
    }
    Ok(())
}

/// Collections that were cleared, with where.
pub(crate) fn epochs(connection: &Connection) -> Result<Vec<(String, u64)>, StorageError> {
    let mut statement = connection.prepare_cached("SELECT collection, epoch FROM shared_epochs")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The present versions, and all that the log has named.
pub(crate) fn versions(
    connection: &Connection,
) -> Result<(HashSet<String>, HashSet<String>), StorageError> {
    let mut statement = connection.prepare_cached("SELECT version, state FROM shared_versions")?;
    let mut rows = statement.query([])?;
    let (mut present, mut known) = (HashSet::new(), HashSet::new());
    while let Some(row) = rows.next()? {
        let version: String = row.get(0)?;
        if row.get::<_, i64>(1)? == PRESENT {
            present.insert(version.clone());
        }
        known.insert(version);
    }
    Ok((present, known))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_storage::{Database, Durability};

    fn put(version: &str, document: &str, epoch: u64) -> Change {
        Change::Put(Put {
            collection: "c".into(),
            epoch,
            document: document.into(),
            version: version.into(),
            parts: 1,
            statements: false,
        })
    }

    fn removed(document: &str) -> Change {
        Change::Drop {
            collection: "c".into(),
            document: document.into(),
        }
    }

    fn cleared() -> Change {
        Change::Clear {
            collection: "c".into(),
        }
    }

    /// The versions that are present after these entries, taken in so many at a time.
    async fn present(entries: &[Vec<Change>], at_once: usize) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path()).unwrap();
        database.migrate(store::PART, store::TABLES).unwrap();
        database.migrate(PART, TABLES).unwrap();
        let entries: Vec<Entry> = (1..)
            .zip(entries)
            .map(|(number, changes)| Entry {
                id: format!("entry {number}"),
                changes: changes.clone(),
            })
            .collect();
        let mut first = 1;
        for some in entries.chunks(at_once) {
            let (some, count) = (some.to_vec(), some.len() as u64);
            // Twice, as two processes on one data directory do.
            for some in [some.clone(), some] {
                database
                    .write(Durability::Process, move |unit| advance(unit, first, some))
                    .await
                    .unwrap();
            }
            first += count;
        }
        let (at, versions) = database
            .read(|connection| Ok((at(connection)?, missing(connection, None, 100)?)))
            .await
            .unwrap();
        assert_eq!(at.position, entries.len() as u64);
        versions
            .into_iter()
            .map(|version| version.version)
            .collect()
    }

    #[tokio::test]
    async fn the_log_alone_says_which_versions_are_present() {
        for (name, entries, expected) in [
            ("nothing", vec![], vec![]),
            (
                "each document once",
                vec![vec![put("1", "a", 0), put("2", "b", 0)]],
                vec!["1", "2"],
            ),
            (
                "the later version counts",
                vec![vec![put("1", "a", 0)], vec![put("2", "a", 0)]],
                vec!["2"],
            ),
            (
                "a version that was named before changes nothing",
                vec![
                    vec![put("1", "a", 0)],
                    vec![put("2", "a", 0)],
                    vec![put("1", "a", 0)],
                ],
                vec!["2"],
            ),
            (
                "a removed document may come back",
                vec![
                    vec![put("1", "a", 0), put("2", "b", 0)],
                    vec![removed("a"), removed("none")],
                    vec![put("3", "a", 0)],
                ],
                vec!["2", "3"],
            ),
            (
                "what was begun before the collection was cleared is void",
                vec![
                    vec![put("1", "a", 0)],
                    vec![cleared()],
                    vec![put("2", "b", 0)],
                    vec![put("3", "c", 2)],
                ],
                vec!["3"],
            ),
        ] {
            for at_once in [1, 2, 100] {
                assert_eq!(present(&entries, at_once).await, expected, "{name}");
            }
        }
    }
}
