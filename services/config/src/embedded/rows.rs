//! The rows of the config: versions, and items as of versions.
//!
//! Every change is one row in `config_versions` and one row for each item in `config_items`. Rows
//! are never changed, so any version can be read back: the newest row of each item up to it.

use crate::book::Book;
use crate::{Item, ItemVersion, sets};
use agentfleet_schema::Millis;
use agentfleet_schema::config::Snapshot;
use agentfleet_storage::{Error, Unit};
use rusqlite::{Connection, Row};
use serde_json::Value;

pub(super) const TABLES: &[&str] = &["
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

const COLUMNS: &str = "i.type, i.key, i.value, i.version, v.at, v.author, i.deleted";

/// The store's version; 0 while nothing was ever put.
pub(super) fn newest(connection: &Connection) -> Result<u64, Error> {
    let mut statement =
        connection.prepare_cached("SELECT coalesce(max(version), 0) FROM config_versions")?;
    Ok(statement.query_row([], |row| number(row, 0))?)
}

/// The newest version of every item, removed ones included.
pub(super) fn book(connection: &Connection) -> Result<Book, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM config_items i JOIN config_versions v USING (version)
         WHERE i.version =
            (SELECT max(version) FROM config_items WHERE type = i.type AND key = i.key)
         ORDER BY i.type, i.key"
    ))?;
    let found = statement.query_map([], item_version)?;
    Ok(Book {
        version: newest(connection)?,
        items: found.collect::<Result<_, _>>()?,
    })
}

/// Every version of every item, the oldest first, and the store's version.
pub(super) fn all(connection: &Connection) -> Result<(u64, Vec<ItemVersion>), Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM config_items i JOIN config_versions v USING (version)
         ORDER BY i.version, i.type, i.key"
    ))?;
    let found = statement.query_map([], item_version)?;
    Ok((newest(connection)?, found.collect::<Result<_, _>>()?))
}

/// Every version of one item, newest first.
pub(super) fn history(
    connection: &Connection,
    item_type: &str,
    key: &str,
) -> Result<Vec<ItemVersion>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM config_items i JOIN config_versions v USING (version)
         WHERE i.type = ?1 AND i.key = ?2 ORDER BY i.version DESC"
    ))?;
    let found = statement.query_map([item_type, key], item_version)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The set as it was at a version.
pub(super) fn set_at(connection: &Connection, version: u64) -> Result<Snapshot, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT type, key, value FROM config_items i WHERE NOT deleted AND version =
            (SELECT max(version) FROM config_items
             WHERE type = i.type AND key = i.key AND version <= ?1)",
    )?;
    let found = statement.query_map([i64::try_from(version).unwrap_or(i64::MAX)], |row| {
        let (item_type, key) = (row.get(0)?, row.get(1)?);
        Ok(Item {
            item_type,
            key,
            value: value(row)?,
        })
    })?;
    let mut set = Snapshot {
        version,
        ..Snapshot::default()
    };
    for item in found {
        sets::put(&mut set, &item?);
    }
    Ok(set)
}

/// Begins a new version; what is written under it comes into force with the commit.
pub(super) fn new_version(unit: &Unit<'_>, before: u64, author: &str) -> Result<u64, Error> {
    let version = before + 1;
    begin(unit.tx(), version, unit.now(), author)?;
    Ok(version)
}

fn begin(connection: &Connection, version: u64, at: Millis, author: &str) -> Result<(), Error> {
    connection
        .prepare_cached("INSERT INTO config_versions(version, at, author) VALUES (?1, ?2, ?3)")?
        .execute((version as i64, at, author))?;
    Ok(())
}

/// Writes a version as another store has it.
pub(super) fn take_over(unit: &Unit<'_>, book: &Book) -> Result<(), Error> {
    let of_it = book.items.iter().filter(|it| it.version == book.version);
    let first = of_it.clone().next();
    let (at, author) = first.map_or((unit.now(), ""), |it| (it.at, it.author.as_str()));
    begin(unit.tx(), book.version, at, author)?;
    for it in of_it {
        write(unit.tx(), &it.item, it.version, it.deleted)?;
    }
    Ok(())
}

pub(super) fn write(
    connection: &Connection,
    item: &Item,
    version: u64,
    deleted: bool,
) -> Result<(), Error> {
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
    let (item_type, key) = (row.get(0)?, row.get(1)?);
    Ok(ItemVersion {
        item: Item {
            item_type,
            key,
            value: value(row)?,
        },
        version: number(row, 3)?,
        at: row.get(4)?,
        author: row.get(5)?,
        deleted: row.get(6)?,
    })
}

/// What is no JSON any more is damage that reading must survive: people have to see and mend it.
fn value(row: &Row<'_>) -> Result<Value, rusqlite::Error> {
    let text: String = row.get(2)?;
    Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
}
