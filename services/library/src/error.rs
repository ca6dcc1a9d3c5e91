//! Faults of the library and of the stores that it lies in.

use std::path::PathBuf;
use std::time::Duration;

/// A load, a removal or a read that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Storage(#[from] agentfleet_storage::Error),
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
    #[error(transparent)]
    Graph(#[from] agentfleet_graph::Error),
    #[error("cannot load `{path}`: {source}")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("a collection needs a name, such as `dossier`")]
    NoCollection,
    /// This process has not yet read all that it must not leave out of an answer.
    #[error(
        "the index of the loaded documents is being built on this machine: {missing} to go; ask again shortly"
    )]
    Building { missing: u64 },
    #[error("collection `{0}` was cleared while it was loaded into: load again")]
    Cleared(String),
    #[error(
        "the load stood still for so long that what it had stored may have been cleared away: load again"
    )]
    Stalled,
    #[error("`{key}` of the library cannot be read: {reason}")]
    Shared { key: String, reason: String },
    #[error("the task was stopped before it was done")]
    Stopped,
}

impl Error {
    /// The same for one more who waited for what failed.
    pub(crate) fn told(&self) -> Self {
        match self {
            Self::Documents(error) => Self::Documents(error.clone()),
            Self::Storage(error) => Self::Storage(error.clone()),
            Self::Shared { key, reason } => {
                let (key, reason) = (key.clone(), reason.clone());
                Self::Shared { key, reason }
            }
            _ => Self::Stopped,
        }
    }

    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Storage(error) => error.retry(),
            Self::Documents(error) => error.retry(),
            Self::Graph(error) => error.retry(),
            // Another worker may have it ready.
            Self::Building { .. } => Some(Duration::from_secs(10)),
            Self::Unreadable { .. }
            | Self::NoCollection
            | Self::Cleared(_)
            | Self::Stalled
            | Self::Shared { .. }
            | Self::Stopped => None,
        }
    }
}
