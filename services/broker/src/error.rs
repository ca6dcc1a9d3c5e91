//! What can go wrong with the queue, and whether trying again can help.

use agentfleet_schema::topics::{DEAD_LETTER, Topic};
use agentfleet_storage as storage;
use std::time::Duration;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "a message for `{topic}` has {size} bytes, the limit is {limit}: keep large texts as documents and send their keys"
    )]
    TooLarge {
        topic: Topic,
        size: usize,
        limit: usize,
    },
    #[error(
        "topic `{0}` retains nothing that could be read: subscribe to it, or configure its retention"
    )]
    NotRetained(Topic),
    #[error("topic `{0}` is on a broker that passes nothing on")]
    Unlistened(Topic),
    #[error(
        "a message of `{DEAD_LETTER}` cannot be dead-lettered again: acknowledge it or hand it back"
    )]
    AlreadyDead,
    #[error("no further subscription `{0}`: a data directory holds at most {1}")]
    TooManySubscriptions(String, i64),
    #[error(
        "the properties of message `{0}` cannot be read: the database was changed by something else"
    )]
    Properties(String),
    #[error("the broker is closed")]
    Closed,
    #[error(
        "the properties of a message for `{topic}` have {size} bytes, the limit is {limit}: they are for ids, not for texts"
    )]
    PropertiesTooLarge {
        topic: Topic,
        size: usize,
        limit: usize,
    },
    #[error(
        "`{0}` is no service URL of Apache Pulsar: write `pulsar://host:6650` or `pulsar+ssl://host:6651`, several hosts by comma"
    )]
    ServiceUrl(String),
    #[error("cannot read {purpose} from `{path}`: {reason}")]
    File {
        purpose: &'static str,
        path: String,
        reason: String,
    },
    #[error(
        "no Pulsar broker answers at `{url}`: {reason}. Is it running, is the address right, and does nothing block the port?"
    )]
    Unreachable { url: String, reason: String },
    #[error(
        "the Pulsar broker at `{url}` refuses to talk to us: {reason}. Check the token, and what it may do in this namespace"
    )]
    Unauthorized { url: String, reason: String },
    #[error(
        "Pulsar has no topic `{topic}`: {reason}. Create it, or let the broker create topics by itself"
    )]
    NoTopic { topic: String, reason: String },
    #[error("Pulsar cannot serve `{topic}` now: {reason}")]
    Unready { topic: String, reason: String },
    #[error("Pulsar refuses `{topic}`: {reason}")]
    Refused { topic: String, reason: String },
    #[error("topic `{0}` has partitions, but a topic that is read by key must have none")]
    Partitioned(String),
    #[error("Pulsar's admin API at `{url}` failed: {reason}")]
    Admin { url: String, reason: String },
    #[error(transparent)]
    Storage(storage::Error),
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Storage(error) => error.retry(),
            Self::Unreachable { .. } | Self::Unready { .. } | Self::Admin { .. } => {
                Some(Duration::from_secs(1))
            }
            Self::TooLarge { .. }
            | Self::PropertiesTooLarge { .. }
            | Self::ServiceUrl(_)
            | Self::File { .. }
            | Self::Unauthorized { .. }
            | Self::NoTopic { .. }
            | Self::Refused { .. }
            | Self::Unlistened(_)
            | Self::Partitioned(_)
            | Self::NotRetained(_)
            | Self::AlreadyDead
            | Self::TooManySubscriptions(..)
            | Self::Properties(_)
            | Self::Closed => None,
        }
    }
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error.reason::<Self>() {
            Some(own) => own.clone(),
            None => Self::Storage(error),
        }
    }
}

/// For use inside an operation: the reason comes back out of `Database::write`.
impl From<Error> for storage::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Storage(error) => error,
            own => Self::aborted(own),
        }
    }
}
