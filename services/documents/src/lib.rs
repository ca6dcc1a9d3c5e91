//! The librarian: records of the protocol, collated texts, large results. Create-if-absent, never
//! updated in place.
//!
//! # Contract
//! - `create` returns after the object is durable; of any number of concurrent creates of one key
//!   exactly one reports [`Created::New`].
//! - `create_with` stores the object and the others as one, or none of them.
//! - `get` after a successful `create` (by anyone) returns the object, until it is deleted.
//! - `list` returns the keys below a prefix, sorted.
//! - `entries` pages through the same keys in an order of the store's own, which stays the same.

use agentfleet_schema::Millis;
use async_trait::async_trait;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use std::sync::Arc;

mod archive;
mod embedded;
mod error;
mod postgres;
mod range;

pub use archive::{Archive, Archived, SETTLE, Stage};
pub use embedded::EmbeddedDocuments;
pub use error::Error;
pub use postgres::{PostgresDocuments, Standing};

/// How often a create is repeated that is refused although nothing is there, before its caller is
/// told to come again later.
const REPEATS: u32 = 4;
/// Objects of one call that are put at the same time.
const AT_ONCE: usize = 8;

/// Whether a create stored something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    Exists,
}

impl Created {
    fn of(is_new: bool) -> Self {
        if is_new { Self::New } else { Self::Exists }
    }
}

/// What is known of an object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub created_at: Millis,
}

/// A store of immutable objects by key.
#[async_trait]
pub trait Documents: Send + Sync + 'static {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error>;

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error>;

    /// Several keys in one round trip, in the order asked for.
    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error>;

    /// Whether the store answers. It says soon why it does not, where work would be tried for longer.
    async fn ready(&self) -> Result<(), Error> {
        self.get("health").await.map(drop)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error>;

    /// Up to `max` objects below a prefix, those after the key `after` (empty for the first).
    async fn entries(&self, prefix: &str, after: &str, max: usize) -> Result<Vec<Entry>, Error>;

    /// Deletes what exists of these keys. Only retention and erasure may call it.
    async fn delete(&self, keys: &[String]) -> Result<(), Error>;

    /// Creates an object, or answers with another's that is there. What is there decides, not the
    /// reply: a store may report that an object exists where none was stored, and a create whose
    /// reply was lost finds its own object when it is repeated.
    async fn create_or_get(&self, key: &str, body: Vec<u8>) -> Result<Option<Arc<[u8]>>, Error> {
        for _ in 0..REPEATS {
            if self.create(key, body.clone()).await? == Created::New {
                return Ok(None);
            }
            if let Some(there) = self.get(key).await? {
                return Ok((*there != *body).then_some(there));
            }
        }
        Err(Error::Contradictory {
            key: key.to_owned(),
        })
    }

    /// Sees to it that an object is there which nobody writes otherwise.
    async fn ensure(&self, key: &str, body: Vec<u8>) -> Result<(), Error> {
        self.create_or_get(key, body).await.map(drop)
    }

    /// The same for several.
    async fn ensure_all(&self, objects: &[(String, Vec<u8>)]) -> Result<(), Error> {
        let puts = objects
            .iter()
            .map(|(key, body)| self.ensure(key, body.clone()))
            // Collected, or the compiler cannot see that they may go to other threads.
            .collect::<Vec<_>>();
        let puts = stream::iter(puts).buffer_unordered(AT_ONCE);
        puts.try_collect().await
    }

    /// As [`Documents::create_or_get`]; and if the object is new, others with it that nobody writes
    /// otherwise, all as one. Where only this default is, they follow it: enough for a test without crashes.
    async fn create_with(
        &self,
        key: &str,
        body: Vec<u8>,
        others: &[(String, Vec<u8>)],
    ) -> Result<Option<Arc<[u8]>>, Error> {
        let there = self.create_or_get(key, body).await?;
        if there.is_none() {
            self.ensure_all(others).await?;
        }
        Ok(there)
    }

    /// Creates an object and others with it, unless one of the first `unless` of the keys `asked` is
    /// there; and reads all of these, as they were before. What [`Created`] says is true of all that was to
    /// be created. It is one round trip where the store can do it as one. The body names who begins: an
    /// equal one that is there may be taken for it.
    async fn begin(
        &self,
        (key, body): (&str, Vec<u8>),
        others: &[(String, Vec<u8>)],
        asked: &[String],
        unless: usize,
    ) -> Result<(Created, Vec<Option<Arc<[u8]>>>), Error> {
        let found = self.get_many(asked).await?;
        let is_new = !found.iter().take(unless).any(Option::is_some)
            && self.create_with(key, body, others).await?.is_none();
        Ok((Created::of(is_new), found))
    }

    /// Deletes everything below a prefix and says how much it was. For retention and erasure.
    async fn delete_prefix(&self, prefix: &str) -> Result<usize, Error> {
        if prefix.is_empty() {
            return Err(Error::EmptyKey);
        }
        let keys = self.list(prefix).await?;
        for some in keys.chunks(500) {
            self.delete(some).await?;
        }
        Ok(keys.len())
    }
}
