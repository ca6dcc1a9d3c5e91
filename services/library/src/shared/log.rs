//! The log of the shared library: which version of which document is the present one, in the order in
//! which everybody sees it.
//!
//! An entry knows documents by fingerprints of their URIs and says nothing of what is in one, so that
//! erasing the versions erases what they say; what stays are fingerprints and the names of collections.
//! Entries are created if absent, one after the
//! other, and never change, so all who follow the log come to the same library.

use crate::Error;
use agentfleet_documents::{Created, Documents};
use agentfleet_schema::{Digest, keys};
use agentfleet_storage::{Packed, unpack};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// What becomes part of the library at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Tells an entry from another that was meant for the same place.
    pub(crate) id: String,
    pub(crate) changes: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// A version that takes the place of the one before, if there is one.
    Put(Put),
    /// A document is removed.
    Drop {
        collection: String,
        document: String,
    },
    /// All that a collection holds is removed. What was begun before and not put is void.
    Clear { collection: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Put {
    pub(crate) collection: String,
    /// Where the collection was cleared last; 0 if never.
    pub(crate) epoch: u64,
    /// See [`document`].
    pub(crate) document: String,
    pub(crate) version: String,
    pub(crate) parts: u32,
    /// Whether it has statements in the graph.
    #[serde(default)]
    pub(crate) statements: bool,
}

impl Put {
    /// Where a part of it lies.
    pub(crate) fn key(&self, part: u32) -> String {
        keys::library_part(&self.collection, self.epoch, &self.version, part)
    }
}

/// A name for a document that does not tell its URI.
pub(crate) fn document(uri: &str) -> String {
    Digest::of(uri.as_bytes()).as_str()[..32].to_owned()
}

/// The entries from `position` on, up to `most` of them. With `expected`, the id of the entry before:
/// none if that is another.
pub(crate) async fn read(
    documents: &dyn Documents,
    position: u64,
    most: u64,
    expected: &str,
) -> Result<Option<Vec<Entry>>, Error> {
    let first = if position > 1 { position - 1 } else { position };
    let keys: Vec<String> = (first..position + most).map(keys::library_log).collect();
    let bodies = documents.get_many(&keys).await?;
    let mut found = Vec::new();
    for (key, body) in keys.iter().zip(bodies) {
        // There are no gaps: what comes after was created after.
        let Some(body) = body else {
            break;
        };
        found.push(decode::<Entry>(key, &body)?);
    }
    if position > 1 {
        if found.first().is_none_or(|before| before.id != expected) {
            return Ok(None);
        }
        found.remove(0);
    }
    Ok(Some(found))
}

/// Puts an entry at a position; `false` if another is there.
pub(crate) async fn create(
    documents: &dyn Documents,
    position: u64,
    entry: &Entry,
) -> Result<bool, Error> {
    let key = keys::library_log(position);
    if documents.create(&key, encode(&key, entry)?).await? == Created::New {
        return Ok(true);
    }
    // A create whose reply was lost finds its own entry there.
    let there = documents.get(&key).await?;
    let there = there.map(|body| decode::<Entry>(&key, &body)).transpose()?;
    Ok(there.is_some_and(|there| there.id == entry.id))
}

pub(crate) fn encode(key: &str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(value).map_err(|error| unreadable(key, &error))?;
    Ok(Packed::of(&text).as_bytes().to_vec())
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, body: &[u8]) -> Result<T, Error> {
    let text: Arc<[u8]> = unpack(body).map_err(|error| unreadable(key, &error))?;
    serde_json::from_slice(&text).map_err(|error| unreadable(key, &error))
}

fn unreadable(key: &str, error: &dyn std::error::Error) -> Error {
    Error::Shared {
        key: key.to_owned(),
        reason: format!("{error}; a newer program may have written it"),
    }
}
