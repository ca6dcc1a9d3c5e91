//! Small builders of what a step leaves to be told.

use crate::step::{Answer, Finish, Outcome, Said};
use agentfleet_schema::records::{Activity, Concluded, Termination};
use agentfleet_schema::{ErrorBody, MessageType};

/// A message whose text is collated into a document.
pub fn message(kind: MessageType, text: impl Into<String>, document: String) -> Said {
    Said {
        message_type: kind,
        text: text.into(),
        streamed: false,
        document: Some(document),
    }
}

/// Progress for whoever watches; not stored.
pub fn status(text: impl Into<String>) -> Said {
    Said {
        message_type: MessageType::Status,
        text: text.into(),
        streamed: false,
        document: None,
    }
}

/// The end of a session in an error.
pub fn failed(error: ErrorBody, termination: Termination, model_ms: u64) -> Finish {
    Finish {
        activity: Activity::Concluded(Concluded {
            termination,
            error: Some(error.clone()),
            model_ms,
            ..Concluded::default()
        }),
        outcome: Outcome::Fail { error, termination },
        routed: None,
        decisions: Vec::new(),
        said: Vec::new(),
    }
}

/// The end of a session at its hard deadline.
pub fn time_used_up() -> Finish {
    cancelled("its time was used up", Termination::Timeout)
}

/// The end of a session because its tree was closed, or what it worked for is decided.
pub fn cancelled(reason: &str, termination: Termination) -> Finish {
    let text = format!("Stopped: {reason}.");
    Finish {
        activity: Activity::Concluded(Concluded {
            termination,
            ..Concluded::default()
        }),
        outcome: Outcome::Cancelled(Answer {
            text,
            termination,
            partial: true,
        }),
        routed: None,
        decisions: Vec::new(),
        said: Vec::new(),
    }
}
