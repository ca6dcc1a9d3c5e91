//! What can go wrong with documents, and whether trying again can help.

use agentfleet_storage as storage;
use std::time::Duration;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the key of a document is empty: name what it holds")]
    EmptyKey,
    #[error("`{0}` is no address of records: write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`")]
    Address(String),
    #[error("the settings of the records server are not usable: {0}")]
    Settings(String),
    #[error("`{address}` refuses access: {reason}; check {check}")]
    Denied {
        address: String,
        reason: String,
        /// What is usually wrong.
        check: &'static str,
    },
    #[error(
        "`{address}` has no such database or tables: {reason}; create the database, or name another"
    )]
    NoDatabase { address: String, reason: String },
    #[error(
        "`{address}` has `{setting} = off`, so it may lose what it has confirmed, and a step would be done twice: set it to `on`"
    )]
    Unsafe {
        address: String,
        setting: &'static str,
    },
    #[error(
        "`{address}` takes no writes: it is a standby, in recovery or read-only; name the primary, or all hosts by comma"
    )]
    ReadOnly { address: String },
    #[error(
        "`{address}` gives no connection to trust: {reason}; name its authority with `sslrootcert=FILE`, or write `sslmode=disable` where the network is your own"
    )]
    Untrusted { address: String, reason: String },
    #[error(
        "the tables of `{address}` are of version {found}, and this program reads version {known} only: use the program that wrote them, or another `schema=NAME`"
    )]
    OtherVersion {
        address: String,
        found: i32,
        known: i32,
    },
    #[error("`{address}` can never store this: {reason}")]
    Unstorable { address: String, reason: String },
    #[error("the server of `{address}` cannot be reached: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("`{address}` did not do what was asked: {reason}")]
    Unavailable { address: String, reason: String },
    #[error("the store says that `{key}` exists, and that it does not")]
    Contradictory { key: String },
    #[error("the object `{key}` is damaged, it cannot be unpacked: restore it from a backup")]
    Damaged { key: String },
    #[error("`{key}` is of a run that is over and archived, and its archive does not hold it so")]
    Archived { key: String },
    #[error(
        "the object that `{key}` stands for is not in the bucket: name the bucket that the run was archived to, or bring the object back"
    )]
    Lost { key: String },
    #[error(transparent)]
    Storage(storage::Error),
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::EmptyKey
            | Self::Address(_)
            | Self::Settings(_)
            | Self::OtherVersion { .. }
            | Self::Unstorable { .. }
            | Self::Archived { .. }
            | Self::Damaged { .. } => None,
            // What is set up wrong is put right while messages wait.
            Self::Denied { .. }
            | Self::NoDatabase { .. }
            | Self::Lost { .. }
            | Self::Unsafe { .. }
            | Self::ReadOnly { .. }
            | Self::Untrusted { .. } => Some(Duration::from_secs(10)),
            Self::Unreachable { .. } | Self::Unavailable { .. } | Self::Contradictory { .. } => {
                Some(Duration::from_secs(1))
            }
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
            other => Self::aborted(other),
        }
    }
}
