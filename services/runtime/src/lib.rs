//! What every worker shares: the consume loop, what becomes of a delivery, committing, draining.
//!
//! A worker is a [`Handler`]; [`serve`] gives it deliveries, holds their leases while it works, and
//! carries out the [`Disposition`] it answers with. [`Committer`] makes a step's record, documents,
//! publications, marker and acknowledgement one thing, as far as the engine allows.

pub mod account;
pub mod client;
pub mod clock;
mod commit;
mod consume;
pub mod effects;
mod erased;
mod host;
pub mod metrics;
pub mod records;
mod settle;
mod steps;
pub mod telemetry;
mod watchdog;

pub use commit::{
    Adoption, AtomicCommitter, Committed, Committer, EmbeddedCommitter, Joint, SequentialCommitter,
    StepCommit, Transaction, TransactionalStore, outgoing, staged,
};
pub use consume::{BatchHandler, Disposition, Drain, Handler, serve, serve_batches};
pub use erased::erased;
pub use host::{CLOCK_SKEW, Host, InstanceHost, SystemHost};
pub use records::Records;
pub use steps::{EndedStep, StepCommitted, commit_step};
pub use watchdog::{Overdue, Watchdog};

use std::time::Duration;

/// What can go wrong below a worker. All of it is infrastructure: worth another try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Broker(#[from] agentfleet_broker::Error),
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
    #[error(transparent)]
    Storage(#[from] agentfleet_storage::Error),
    #[error("record `{key}` cannot be read: {reason}")]
    Unreadable { key: String, reason: String },
    #[error("record `{key}` is missing: {what}")]
    Missing { key: String, what: &'static str },
}

impl Error {
    pub fn unreadable(key: &str, error: &serde_json::Error) -> Self {
        Self::Unreadable {
            key: key.to_owned(),
            reason: error.to_string(),
        }
    }

    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Broker(error) => error.retry(),
            Self::Documents(error) => error.retry(),
            Self::Storage(error) => error.retry(),
            Self::Unreadable { .. } | Self::Missing { .. } => None,
        }
    }
}
