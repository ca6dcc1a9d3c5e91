//! What the library holds, as its readers see it.

use super::{count, store};
use agentfleet_schema::Millis;

/// What a collection holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Collection {
    pub name: String,
    pub documents: u64,
    pub passages: u64,
    pub entities: u64,
    pub triples: u64,
    pub loaded_at: Option<Millis>,
}

/// A loaded document.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Document {
    pub uri: String,
    pub title: String,
    /// Below the folder it was loaded from.
    pub path: String,
    pub media_type: String,
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub digest: String,
    pub loaded_at: Millis,
}

/// A part of a document's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub document: Document,
    pub text: String,
    /// Characters before the part, and after it.
    pub before: usize,
    pub after: usize,
}

/// Documents with their source ids.
pub(super) fn documents(
    connection: &rusqlite::Connection,
    collection: &str,
    uri: Option<&str>,
    limit: usize,
) -> Result<Vec<(i64, Document)>, agentfleet_storage::Error> {
    let Some(collection) = store::collection(connection, collection)? else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(
        "SELECT id, uri, title, path, media_type, bytes, digest, loaded_at FROM library_sources
         WHERE collection = ?1 AND state = 1 AND (?2 IS NULL OR uri = ?2) ORDER BY path LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map((collection, uri, limit), |row| {
        Ok((
            row.get(0)?,
            Document {
                uri: row.get(1)?,
                title: row.get(2)?,
                path: row.get(3)?,
                media_type: row.get(4)?,
                bytes: count(row, 5)?,
                digest: row.get(6)?,
                loaded_at: row.get(7)?,
            },
        ))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
