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
    #[error(transparent)]
    Storage(storage::Error),
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Storage(error) => error.retry(),
            Self::TooLarge { .. }
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
