//! Why a step stopped without a commit.

use crate::away::{self, Wait};
use std::time::Duration;

/// A step that could not be brought to its commit now.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The step's own work failed: worth another try, and counted.
    #[error("{reason}")]
    Retry { reason: String, after: Duration },
    /// Nothing the step can help: somebody else is at it, a newer worker is needed, or a part of the
    /// fleet is away. Put back, not counted: a run outlives any outage that is shorter than itself.
    #[error("{reason}")]
    Postpone { reason: String, after: Duration },
    /// Another attempt is at work, and may be alive: put back for one lease. `attempt` is what the
    /// attempt said last.
    #[error("attempt {attempt} may be at work")]
    Behind { attempt: String, after: Duration },
    /// The model cannot answer now: put back until it may, not counted.
    #[error("{}", .0.told)]
    ModelAway(Box<Wait>),
}

impl Stop {
    /// A fault of a part of the fleet; `after` is when it may be gone, if it can go.
    pub(crate) fn fault(error: &dyn std::error::Error, after: Option<Duration>) -> Self {
        let reason = error.to_string();
        match after {
            Some(after) => Self::Postpone { reason, after },
            None => Self::Retry {
                reason,
                after: Duration::from_secs(1),
            },
        }
    }

    /// A record that is damaged, or of a later version.
    pub(crate) fn unreadable(key: &str, error: &serde_json::Error) -> Self {
        Self::Retry {
            reason: format!("record `{key}` cannot be read: {error}"),
            after: Duration::from_secs(30),
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
    agentfleet_config::Error,
    agentfleet_runtime::Error
);

impl From<agentfleet_tools::Error> for Stop {
    fn from(error: agentfleet_tools::Error) -> Self {
        match error {
            // A tool that asks a model waits for it as for every other part that is away.
            agentfleet_tools::Error::Model(error) => {
                let after = away::pause_asked(&error, 0);
                Self::fault(&error, after)
            }
            other => Self::fault(&other, other.retry()),
        }
    }
}
