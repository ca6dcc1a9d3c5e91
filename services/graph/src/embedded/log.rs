//! The log: every quad of the graph, durable, in the database of the data directory.
//!
//! Rows are batches, in the order of their commits: `seq` only grows and is never given out twice,
//! so whoever has applied all rows up to a `seq` needs only what is above it. The one change
//! beside appending is erasure, which raises the epoch: who sees a new epoch reads the log anew.

use super::body;
use crate::error::Error;
use crate::{Batch, terms};
use agentfleet_storage::{Error as StorageError, Unit};
use oxigraph::model::Quad;
use rusqlite::Connection;
use sha2::Digest as _;

pub(crate) const TABLES: &[&str] = &["
    CREATE TABLE graph_log(
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        digest BLOB NOT NULL UNIQUE,
        root TEXT NOT NULL,
        collection TEXT NOT NULL,
        conversation TEXT NOT NULL,
        n INTEGER NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE graph_state(
        one INTEGER PRIMARY KEY CHECK (one = 1),
        epoch INTEGER NOT NULL
    ) STRICT;
    INSERT INTO graph_state(one, epoch) VALUES (1, 0);
"];

/// A batch that was checked and written down, ready to be appended in a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    digest: [u8; 16],
    root: String,
    collection: String,
    conversation: String,
    quads: u64,
    body: Vec<u8>,
}

impl Prepared {
    pub(crate) fn new(batch: &Batch) -> Result<Self, Error> {
        Ok(Self::of_quads(batch, &terms::quads(batch)?))
    }

    /// As `new`, with quads that take the place of the batch's triples.
    pub(crate) fn of_quads(batch: &Batch, quads: &[Quad]) -> Self {
        let body = body::encode(quads);
        let mut hash = sha2::Sha256::new();
        hash.update((batch.key.len() as u64).to_le_bytes());
        hash.update(batch.key.as_bytes());
        hash.update(&body);
        let mut digest = [0; 16];
        for (to, from) in digest.iter_mut().zip(hash.finalize()) {
            *to = from;
        }
        Self {
            digest,
            root: batch.root.clone(),
            collection: batch.collection.clone(),
            conversation: batch.conversation.clone(),
            quads: quads.len() as u64,
            body,
        }
    }

    pub(crate) fn digest(&self) -> &[u8; 16] {
        &self.digest
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// How many quads it holds.
    pub(crate) fn quads(&self) -> u64 {
        self.quads
    }

    /// Appends it to the log inside the caller's transaction; `false` if it was there already.
    /// After the commit every later query of every process sees it.
    pub(crate) fn append(&self, unit: &Unit<'_>) -> Result<bool, StorageError> {
        let added = unit
            .tx()
            .prepare_cached(
                "INSERT INTO graph_log(digest, root, collection, conversation, n, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(digest) DO NOTHING",
            )?
            .execute((
                &self.digest,
                &self.root,
                &self.collection,
                &self.conversation,
                self.quads as i64,
                &self.body,
            ))?;
        Ok(added > 0)
    }
}

/// One row, as it is applied.
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) quads: u64,
    pub(crate) body: Vec<u8>,
}

/// What the log holds above a `seq`.
pub(crate) struct Since {
    pub(crate) epoch: i64,
    pub(crate) rows: Vec<Row>,
    /// Whether there may be rows beyond these.
    pub(crate) more: bool,
}

/// Reads rows above `seq`, until their bodies pass `bytes`; no rows means there are none.
pub(crate) fn since(
    connection: &Connection,
    seq: i64,
    bytes: usize,
) -> Result<Since, StorageError> {
    let epoch = epoch(connection)?;
    let (rows, more) = above(connection, seq, bytes, "", |row, _| Ok(row))?;
    Ok(Since { epoch, rows, more })
}

/// The same rows with `others` of their columns, and whether there may be rows beyond them.
fn above<T>(
    connection: &Connection,
    seq: i64,
    bytes: usize,
    others: &str,
    read: impl Fn(Row, &rusqlite::Row<'_>) -> Result<T, rusqlite::Error>,
) -> Result<(Vec<T>, bool), StorageError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT seq, n, body{others} FROM graph_log WHERE seq > ?1 ORDER BY seq"
    ))?;
    let mut found = statement.query([seq])?;
    let (mut rows, mut size) = (Vec::new(), 0);
    while size <= bytes
        && let Some(columns) = found.next()?
    {
        let row = Row {
            seq: columns.get(0)?,
            quads: count(columns, 1)?,
            body: columns.get(2)?,
        };
        size += row.body.len();
        rows.push(read(row, columns)?);
    }
    Ok((rows, size > bytes))
}

/// A row with its owners, to be given to another graph.
pub(crate) struct Owned {
    pub(crate) row: Row,
    pub(crate) digest: Vec<u8>,
    pub(crate) root: String,
    pub(crate) collection: String,
    pub(crate) conversation: String,
}

/// Reads rows above `seq` with their owners, until their bodies pass `bytes`.
pub(crate) fn owned_since(
    connection: &Connection,
    seq: i64,
    bytes: usize,
) -> Result<Vec<Owned>, StorageError> {
    let owners = ", digest, root, collection, conversation";
    let owned = above(connection, seq, bytes, owners, |row, columns| {
        Ok(Owned {
            row,
            digest: columns.get(3)?,
            root: columns.get(4)?,
            collection: columns.get(5)?,
            conversation: columns.get(6)?,
        })
    });
    Ok(owned?.0)
}

/// How often the log was erased from.
pub(crate) fn epoch(connection: &Connection) -> Result<i64, StorageError> {
    let mut statement = connection.prepare_cached("SELECT epoch FROM graph_state")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}

/// How many quads the log holds.
pub(crate) fn quads(connection: &Connection) -> Result<u64, StorageError> {
    Ok(
        connection.query_row("SELECT coalesce(sum(n), 0) FROM graph_log", [], |row| {
            count(row, 0)
        })?,
    )
}

/// A column that is never negative.
fn count(row: &rusqlite::Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

/// What to erase.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EraseBy {
    /// Everything of one root session: its own steps and those of its subagents.
    Root(String),
    Conversation(String),
    /// Everything of a collection: what was loaded into it, and the sessions that ran in it.
    Collection(String),
}

/// What an erasure removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Erased {
    pub batches: u64,
    pub quads: u64,
}

/// Says to all processes that rows were deleted.
pub(crate) fn raise_epoch(connection: &Connection) -> Result<(), StorageError> {
    connection.execute("UPDATE graph_state SET epoch = epoch + 1", [])?;
    Ok(())
}

/// Deletes rows; the caller raises the epoch if there were any.
pub(crate) fn erase(connection: &Connection, by: &EraseBy) -> Result<Erased, StorageError> {
    let (condition, value) = match by {
        // An empty name means `none`, and never `all without one`.
        EraseBy::Root(root) => ("root = ?1 AND root <> ''", root),
        EraseBy::Conversation(name) => ("conversation = ?1 AND conversation <> ''", name),
        EraseBy::Collection(name) => ("collection = ?1 AND collection <> ''", name),
    };
    let (batches, quads) = connection.query_row(
        &format!("SELECT count(*), coalesce(sum(n), 0) FROM graph_log WHERE {condition}"),
        [value],
        |row| Ok((count(row, 0)?, count(row, 1)?)),
    )?;
    if batches > 0 {
        connection.execute(&format!("DELETE FROM graph_log WHERE {condition}"), [value])?;
    }
    Ok(Erased { batches, quads })
}

/// How many batches the log holds.
pub(crate) fn batches(connection: &Connection) -> Result<u64, StorageError> {
    Ok(connection.query_row("SELECT count(*) FROM graph_log", [], |row| count(row, 0))?)
}
