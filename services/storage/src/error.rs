//! What can go wrong with the embedded database, and whether trying again can help.

use rusqlite::ErrorCode as Code;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A failure of the embedded database. Cheap to clone, because a failed commit fails every
/// operation of its group.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the database in `{0}` is busy: another process held its write lock too long")]
    Busy(PathBuf),
    #[error("no space left for the database in `{0}`: free some disk space; nothing was lost")]
    DiskFull(PathBuf),
    #[error("the database in `{0}` cannot be written: check owner and permissions of its files")]
    ReadOnly(PathBuf),
    #[error(
        "`{0}` is damaged: stop all processes, keep a copy, and restore a backup into a new data directory"
    )]
    Corrupt(PathBuf),
    #[error(
        "`{0}` is not an Agentfleet database: choose another data directory or move the file away"
    )]
    Foreign(PathBuf),
    #[error(
        "the data in `{file}` has format {found}, and this program reads format {known} only: use the program that wrote it, or another data directory"
    )]
    OtherFormat {
        file: PathBuf,
        found: i32,
        known: i32,
    },
    #[error(
        "the tables of `{part}` have version {found}, this program knows {known}: use the newer program that wrote them"
    )]
    Newer {
        part: String,
        found: u32,
        known: u32,
    },
    #[error("`{0}` exists already: choose a path that does not")]
    Exists(PathBuf),
    #[error(
        "a restore into `{0}` is under way or was cut off: `restore` the backup again, or delete the directory"
    )]
    HalfRestored(PathBuf),
    #[error("`{0}` is in use by a running process: stop it first")]
    InUse(PathBuf),
    #[error("`{0}` is not empty: choose a new data directory, or move this one away")]
    NotEmpty(PathBuf),
    #[error("a stored body is damaged: it cannot be unpacked")]
    Unpackable,
    #[error("the database is closed")]
    Closed,
    #[error("an operation on the database panicked; its changes were rolled back")]
    Panicked,
    #[error("cannot {doing} `{path}`: {source}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: Arc<std::io::Error>,
    },
    #[error("database: {0}")]
    Sqlite(Arc<rusqlite::Error>),
    /// An operation gave up for a reason of its own; its changes were rolled back.
    #[error("{0}")]
    Aborted(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Gives up on an operation for a reason of the caller's, to be found again with
    /// [`Error::reason`].
    pub fn aborted(reason: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Aborted(Arc::new(reason))
    }

    /// The caller's own reason, if this is [`Error::Aborted`] with a reason of that type.
    pub fn reason<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Aborted(reason) => reason.downcast_ref(),
            _ => None,
        }
    }

    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Busy(_) => Some(Duration::from_millis(250)),
            Self::DiskFull(_) => Some(Duration::from_secs(10)),
            Self::Io { .. } => Some(Duration::from_secs(5)),
            Self::ReadOnly(_)
            | Self::Corrupt(_)
            | Self::Foreign(_)
            | Self::OtherFormat { .. }
            | Self::Newer { .. }
            | Self::Exists(_)
            | Self::HalfRestored(_)
            | Self::InUse(_)
            | Self::NotEmpty(_)
            | Self::Unpackable
            | Self::Closed
            | Self::Panicked
            | Self::Sqlite(_)
            | Self::Aborted(_) => None,
        }
    }

    pub(crate) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::StorageFull {
            return Self::DiskFull(path.to_owned());
        }
        Self::Io {
            doing,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// Names the file in the failures that concern the whole of it.
    pub(crate) fn at(self, path: &Path) -> Self {
        let Self::Sqlite(source) = &self else {
            return self;
        };
        match source.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy(path.to_owned()),
            Some(Code::DiskFull) => Self::DiskFull(path.to_owned()),
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
                Self::ReadOnly(path.to_owned())
            }
            Some(Code::DatabaseCorrupt) => Self::Corrupt(path.to_owned()),
            Some(Code::NotADatabase) => Self::Foreign(path.to_owned()),
            _ => self,
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(source: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(source))
    }
}
