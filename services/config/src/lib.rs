//! The config API: typed items, versioned with history, validated before they are stored.
//!
//! # Contract
//! - `put` stores all its items or none, as one new version. A bad item is refused with its type,
//!   key, field and reason; the set before stays in force.
//! - `snapshot` is always one consistent version; `snapshot_at` returns an older one for runs that
//!   are pinned to it. A store sees its own changes at once, and those of other processes as soon as
//!   it hears of their commit, within milliseconds.
//! - What refers to another item (a task type to its patterns, a tool to its prompt) finds it: a
//!   `put` or `delete` that would leave a reference without its end is refused.
//! - Seeding twice changes nothing, and never overwrites what a person edited, nor brings back what
//!   a person deleted. What one version of the product wrote, no older one overwrites.

use agentfleet_schema::Millis;
use agentfleet_schema::config::Snapshot;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

mod book;
#[cfg(test)]
#[macro_use]
mod contract_tests;
mod documents;
mod error;
pub mod prompts;
pub mod queries;
pub mod seed;
mod sets;
pub mod validate;

pub use documents::{DocumentsConfig, Notices};
pub use error::{Error, Problem};
pub use seed::{Release, SeedReport, Seeder};

/// One config item.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Item {
    #[serde(rename = "type")]
    pub item_type: String,
    pub key: String,
    pub value: Value,
}

/// One version of an item.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ItemVersion {
    #[serde(flatten)]
    pub item: Item,
    /// The store's version at which it came into force.
    pub version: u64,
    pub at: Millis,
    /// Who: `seed` with the version of the product, or the person or program that put it.
    pub author: String,
    /// Set on the version that removed the item.
    pub deleted: bool,
}

/// A store of config items.
#[async_trait]
pub trait ConfigStore: Send + Sync + 'static {
    /// The newest consistent set. Cheap: unchanged sets are shared.
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Error>;

    /// The set as it was at a version.
    async fn snapshot_at(&self, version: u64) -> Result<Arc<Snapshot>, Error>;

    async fn get(&self, item_type: &str, key: &str) -> Result<Option<ItemVersion>, Error>;

    /// Items in force, of one type or of all.
    async fn list(&self, item_type: Option<&str>) -> Result<Vec<ItemVersion>, Error>;

    /// Every version of one item, newest first.
    async fn history(&self, item_type: &str, key: &str) -> Result<Vec<ItemVersion>, Error>;

    /// Stores items as one new version and returns it; what is there already is not stored again, and
    /// nothing to store makes no version.
    async fn put(&self, items: Vec<Item>, author: &str) -> Result<u64, Error>;

    /// Stores items as the product's release or a person's directory, all or none, as one new version or
    /// none: those that never were there; of a release those that the same one wrote last, or an older one;
    /// of a directory those that no person wrote by itself.
    async fn seed(&self, items: Vec<Item>, by: &Seeder) -> Result<SeedReport, Error>;

    /// Removes an item; `None` if there was none.
    async fn delete(&self, item_type: &str, key: &str, author: &str) -> Result<Option<u64>, Error>;
}
