//! Faults of the stores behind the tools. What goes wrong inside a call is told to the agent as a
//! result, and is not here.

use std::time::Duration;

/// A call that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Library(#[from] agentfleet_library::Error),
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
    #[error(transparent)]
    Graph(#[from] agentfleet_graph::Error),
    /// Only failures that may pass; others are told to the agent.
    #[error(transparent)]
    Model(#[from] agentfleet_models::Error),
    #[error("cannot prepare HTTP calls: {0}")]
    Http(#[source] reqwest::Error),
    #[error("the task was stopped before it was done")]
    Stopped,
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Library(error) => error.retry(),
            Self::Documents(error) => error.retry(),
            Self::Graph(error) => error.retry(),
            Self::Model(error) => error.retry(),
            Self::Http(_) | Self::Stopped => None,
        }
    }
}
