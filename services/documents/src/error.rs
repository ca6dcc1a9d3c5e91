//! What can go wrong with documents, and whether trying again can help.

use agentfleet_storage as storage;
use std::time::Duration;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the key of a document is empty: name what it holds")]
    EmptyKey,
    #[error(transparent)]
    Storage(storage::Error),
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::EmptyKey => None,
            Self::Storage(error) => error.retry(),
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
            Error::EmptyKey => Self::aborted(error),
        }
    }
}
