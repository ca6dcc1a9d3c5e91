//! Faults of the stores behind the tools. What goes wrong inside a call is told to the agent as a
//! result, and is not here.

use std::path::PathBuf;
use std::time::Duration;

/// A call or a load that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Storage(#[from] agentfleet_storage::Error),
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
    #[error(transparent)]
    Graph(#[from] agentfleet_graph::Error),
    /// Only failures that may pass; others are told to the agent.
    #[error(transparent)]
    Model(#[from] agentfleet_models::Error),
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
    #[error("cannot prepare HTTP calls: {0}")]
    Http(#[source] reqwest::Error),
    #[error("the task was stopped before it was done")]
    Stopped,
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Storage(error) => error.retry(),
            Self::Documents(error) => error.retry(),
            Self::Graph(error) => error.retry(),
            Self::Model(error) => match error.retry() {
                agentfleet_models::Retry::After(pause) => Some(pause),
                agentfleet_models::Retry::No => None,
            },
            Self::Stopped => Some(Duration::from_secs(1)),
            Self::Building { .. } => Some(Duration::from_secs(10)),
            Self::Unreadable { .. }
            | Self::NoCollection
            | Self::Http(_)
            | Self::Cleared(_)
            | Self::Stalled
            | Self::Shared { .. } => None,
        }
    }
}
