//! What is remembered for a user or a tenant: bounded, with an end where one is given.
//!
//! Nothing is overwritten: a write creates the newest of a name and then takes the older ones away, so a
//! reader sees one or the other. Who writes last is right.

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_schema::records::MemoryRecord;
use agentfleet_schema::{Millis, keys};
use std::collections::BTreeSet;

/// Most names of a user, and of what a tenant shares.
pub(crate) const MOST: usize = 200;
/// Longest name, in bytes.
pub(crate) const MAX_NAME: usize = 100;
/// Longest value, in bytes.
pub(crate) const MAX_VALUE: usize = 4_000;
/// Entries read at once: names, and what newer ones have not yet taken away.
const READ: usize = 2 * MOST;

/// Why something is not remembered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("`name` must have 1 to {MAX_NAME} bytes")]
    Name,
    #[error("`value` has {0} bytes, the limit is {MAX_VALUE}; put longer texts into a document")]
    Value(usize),
    #[error("{MOST} names are remembered, which is the most: delete one first")]
    Full,
}

/// Whose memories: a user's, or with an empty user those that all of a tenant share.
#[derive(Clone, Copy)]
pub struct Memories<'a> {
    pub documents: &'a dyn Documents,
    pub tenant: &'a str,
    pub user: &'a str,
}

impl std::fmt::Debug for Memories<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memories")
            .field("tenant", &self.tenant)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Memories<'_> {
    /// What is remembered at an instant, by name.
    pub async fn all(&self, now: Millis) -> Result<Vec<MemoryRecord>, Error> {
        let folder = keys::memories(self.tenant, self.user);
        let mut found = self.newest(&folder, now).await?;
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// What is remembered under a name.
    pub async fn get(&self, name: &str, now: Millis) -> Result<Option<MemoryRecord>, Error> {
        let folder = keys::memory(self.tenant, self.user, name);
        Ok(self.newest(&folder, now).await?.pop())
    }

    /// The newest of each name below a folder, unless its time is over.
    async fn newest(&self, folder: &str, now: Millis) -> Result<Vec<MemoryRecord>, Error> {
        let entries = self.documents.entries(folder, "", READ).await?;
        let mut seen = BTreeSet::new();
        let keys: Vec<String> = entries
            .into_iter()
            .map(|entry| entry.key)
            .filter(|key| {
                key.rsplit_once('/')
                    .is_some_and(|(name, _)| seen.insert(name.to_owned()))
            })
            .collect();
        let bodies = self.documents.get_many(&keys).await?;
        let records = bodies.into_iter().flatten();
        let records = records.filter_map(|body| serde_json::from_slice::<MemoryRecord>(&body).ok());
        Ok(records
            .filter(|one| one.expires_at == 0 || one.expires_at > now)
            .collect())
    }

    /// Remembers a value under a name, in place of what was there. `writer` is the same on every try of one
    /// write.
    pub async fn set(
        &self,
        record: MemoryRecord,
        writer: &str,
    ) -> Result<Result<(), Refused>, Error> {
        if record.name.trim().is_empty() || record.name.len() > MAX_NAME {
            return Ok(Err(Refused::Name));
        }
        if record.value.len() > MAX_VALUE {
            return Ok(Err(Refused::Value(record.value.len())));
        }
        let now = record.written_at;
        let all = self.all(now).await?;
        if all.len() >= MOST && all.iter().all(|one| one.name != record.name) {
            return Ok(Err(Refused::Full));
        }
        let folder = keys::memory(self.tenant, self.user, &record.name);
        let key = keys::memory_at(self.tenant, self.user, &record.name, now, writer);
        // Plain data: writing it as JSON cannot fail.
        let body = serde_json::to_vec(&record).unwrap_or_default();
        self.documents.ensure(&key, body).await?;
        let older = self.documents.entries(&folder, &key, READ).await?;
        let older: Vec<String> = older.into_iter().map(|entry| entry.key).collect();
        if !older.is_empty() {
            self.documents.delete(&older).await?;
        }
        Ok(Ok(()))
    }

    /// Forgets a name; whether there was anything to forget.
    pub async fn forget(&self, name: &str) -> Result<bool, Error> {
        let folder = keys::memory(self.tenant, self.user, name);
        Ok(self.documents.delete_prefix(&folder).await? > 0)
    }

    /// Forgets everything; says how many entries there were.
    pub async fn forget_all(&self) -> Result<usize, Error> {
        let folder = keys::memories(self.tenant, self.user);
        Ok(self.documents.delete_prefix(&folder).await?)
    }
}
