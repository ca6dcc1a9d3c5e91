//! Clearing the store of what no entry of the log counts on: versions that were replaced, removed or
//! cleared by somebody who was cut off before deleting them, and what a load left that was cut off.

use super::log::Change;
use super::{Duration, Shared, catalogue};
use crate::Error;
use agentfleet_schema::{Millis, keys};
use std::collections::HashMap;

/// A version that no entry names is left alone for so long after its last part: its load may be
/// under way. Loads that stand still give up earlier.
const ABANDONED: Millis = 24 * 60 * 60 * 1000;
/// Objects listed at once.
const PAGE: usize = 1_000;

/// A version as it lies in the store.
#[derive(Debug)]
struct Stored {
    /// Of its collection.
    folder: String,
    epoch: u64,
    keys: Vec<String>,
    has_statements: bool,
    newest: Millis,
}

impl Shared {
    /// Deletes what is left over of one collection, or of all; says how many versions it was.
    pub(crate) async fn sweep(&self, collection: Option<&str>) -> Result<usize, Error> {
        let prefix = match collection {
            Some(name) => format!("{}{}/", keys::LIBRARY_VERSIONS, keys::library_folder(name)),
            None => keys::LIBRARY_VERSIONS.to_owned(),
        };
        let stored = self.stored(&prefix).await?;
        // After the listing: whatever was named meanwhile is known to be.
        self.refresh(Duration::ZERO).await?;
        let (present, known, epochs) = self
            .database
            .read(|connection| {
                let (present, known) = catalogue::versions(connection)?;
                Ok((present, known, catalogue::epochs(connection)?))
            })
            .await?;
        let epochs: HashMap<String, u64> = epochs
            .into_iter()
            .map(|(name, epoch)| (keys::library_folder(&name), epoch))
            .collect();
        let now = self.database.clock().now();
        let mut swept = 0;
        for (version, stored) in stored {
            let is_void = epochs
                .get(&stored.folder)
                .is_some_and(|epoch| stored.epoch < *epoch);
            let is_over = known.contains(&version) || stored.newest < now - ABANDONED;
            if present.contains(&version) || !(is_void || is_over) {
                continue;
            }
            if stored.has_statements {
                self.take_back(std::iter::once(version.as_str())).await?;
            }
            self.documents.delete(&stored.keys).await?;
            swept += 1;
        }
        Ok(swept)
    }

    async fn stored(&self, prefix: &str) -> Result<HashMap<String, Stored>, Error> {
        let mut found: HashMap<String, Stored> = HashMap::new();
        let mut after = String::new();
        loop {
            let page = self.documents.entries(prefix, &after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(found);
            };
            after.clone_from(&last.key);
            for entry in page {
                let Some(rest) = entry.key.strip_prefix(keys::LIBRARY_VERSIONS) else {
                    continue;
                };
                let parts: Vec<&str> = rest.split('/').collect();
                let [folder, epoch, version, name] = parts.as_slice() else {
                    continue;
                };
                let Ok(epoch) = epoch.parse() else {
                    continue;
                };
                let stored = found
                    .entry((*version).to_owned())
                    .or_insert_with(|| Stored {
                        folder: (*folder).to_owned(),
                        epoch,
                        keys: Vec::new(),
                        has_statements: false,
                        newest: Millis::MIN,
                    });
                stored.has_statements |= *name == "begun";
                stored.newest = stored.newest.max(entry.created_at);
                stored.keys.push(entry.key);
            }
        }
    }

    /// Removes all that a collection holds; says how many documents that was.
    pub(crate) async fn clear(&self, collection: &str) -> Result<usize, Error> {
        self.refresh(Duration::ZERO).await?;
        let collections = self.database.read(catalogue::collections).await?;
        let held = collections
            .iter()
            .find(|(name, _)| name == collection)
            .map_or(0, |(_, count)| *count);
        // Also where nothing is known to be there: a load may be under way.
        let clear = Change::Clear {
            collection: collection.to_owned(),
        };
        self.append(vec![clear], None).await?;
        self.sweep(Some(collection)).await?;
        Ok(usize::try_from(held).unwrap_or(usize::MAX))
    }
}
