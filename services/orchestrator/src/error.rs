//! Why a step stopped without a commit.

use std::time::Duration;

/// A step that could not be brought to its commit now.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// An infrastructure fault: worth another try, and counted.
    #[error("{reason}")]
    Retry { reason: String, after: Duration },
    /// Not a fault: somebody else is at it, or a newer worker is needed. Put back, not counted.
    #[error("{reason}")]
    Postpone { reason: String, after: Duration },
}

impl Stop {
    pub(crate) fn fault(error: &dyn std::error::Error, after: Option<Duration>) -> Self {
        Self::Retry {
            reason: error.to_string(),
            after: after.unwrap_or(Duration::from_secs(1)),
        }
    }
}

macro_rules! fault_from {
    ($($error:ty),+) => {$(
        impl From<$error> for Stop {
            fn from(error: $error) -> Self {
                let after = error.retry();
                Self::fault(&error, after)
            }
        }
    )+};
}

fault_from!(
    agentfleet_broker::Error,
    agentfleet_documents::Error,
    agentfleet_graph::Error
);

impl From<agentfleet_runtime::Error> for Stop {
    fn from(error: agentfleet_runtime::Error) -> Self {
        Self::fault(&error, None)
    }
}

impl From<agentfleet_config::Error> for Stop {
    fn from(error: agentfleet_config::Error) -> Self {
        Self::fault(&error, None)
    }
}

impl From<agentfleet_tools::Error> for Stop {
    fn from(error: agentfleet_tools::Error) -> Self {
        Self::fault(&error, None)
    }
}
