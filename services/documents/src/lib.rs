//! The librarian: records of the protocol, collated texts, large results. Create-if-absent, never
//! updated in place.
//!
//! # Contract
//! - `create` returns after the object is durable; of any number of concurrent creates of one key
//!   exactly one reports [`Created::New`].
//! - `get` after a successful `create` (by anyone) returns the object, until it is deleted.
//! - `list` returns the keys below a prefix, sorted.

use async_trait::async_trait;
use std::sync::Arc;

#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod embedded;
mod error;

pub use embedded::EmbeddedDocuments;
pub use error::Error;

/// Whether a create stored something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    New,
    Exists,
}

/// A store of immutable objects by key.
#[async_trait]
pub trait Documents: Send + Sync + 'static {
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<Created, Error>;

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error>;

    /// Several keys in one round trip, in the order asked for.
    async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Arc<[u8]>>>, Error>;

    async fn list(&self, prefix: &str) -> Result<Vec<String>, Error>;

    /// Deletes what exists of these keys. Only retention and erasure may call it.
    async fn delete(&self, keys: &[String]) -> Result<(), Error>;
}
