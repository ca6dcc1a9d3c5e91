//! What can stop whoever watches or ends runs. All of it is infrastructure: the message is tried again.

use agentfleet_runtime::Disposition;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Broker(#[from] agentfleet_broker::Error),
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
    #[error(transparent)]
    Graph(#[from] agentfleet_graph::Error),
    #[error(transparent)]
    Commit(#[from] agentfleet_runtime::Error),
}

impl Error {
    /// Whether something was larger than a message may be, which no other try can help.
    pub fn is_too_large(&self) -> bool {
        use agentfleet_broker::Error::{PropertiesTooLarge, TooLarge};
        let (Self::Broker(error) | Self::Commit(agentfleet_runtime::Error::Broker(error))) = self
        else {
            return false;
        };
        matches!(error, TooLarge { .. } | PropertiesTooLarge { .. })
    }

    /// Retried always: an aggregator that gave up would lose a fan-in.
    pub fn disposition(&self) -> Disposition {
        let after = match self {
            Self::Broker(error) => error.retry(),
            Self::Documents(error) => error.retry(),
            Self::Graph(error) => error.retry(),
            Self::Commit(agentfleet_runtime::Error::Unreadable { .. }) => None,
            Self::Commit(_) => Some(Duration::from_secs(1)),
        };
        Disposition::RetryAfter(after.unwrap_or(Duration::from_secs(10)))
    }
}
