//! What a failure means: try again, on another connection, or tell.

use crate::error::Error;
use tokio_postgres::error::{DbError, SqlState};

/// How the driver begins to tell that a connection broke, or that there is none.
const LOST: [&str; 4] = [
    "error connecting to server",
    "error communicating with the server",
    "connection closed",
    "timeout waiting for server",
];

/// What a failed try leaves to do.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The same may go well soon.
    Again(Error),
    /// The same may go well on another connection, perhaps to another server.
    Elsewhere(Error),
    /// Nothing that this program does can help.
    Final(Error),
}

impl Fault {
    /// What to tell of it.
    pub(super) fn error(&self) -> &Error {
        let (Self::Again(error) | Self::Elsewhere(error) | Self::Final(error)) = self;
        error
    }

    /// `address` is told, and holds no credentials.
    pub(super) fn of(error: &tokio_postgres::Error, address: &str) -> Self {
        let address = address.to_owned();
        if let Some(error) = error.as_db_error() {
            return Self::told(error, address);
        }
        let reason = chain(error);
        if reason.contains("performing TLS handshake") {
            return Self::Final(Error::Untrusted { address, reason });
        }
        if reason.contains("password missing") || reason.starts_with("authentication error") {
            return Self::Final(denied(address, reason));
        }
        let is_lost = |kind: &&str| reason.starts_with(*kind);
        Self::Elsewhere(if LOST.iter().any(is_lost) {
            // What the driver was at says nothing to who runs the server.
            let reason = innermost(error);
            Error::Unreachable { address, reason }
        } else {
            Error::Unavailable { address, reason }
        })
    }

    fn told(error: &DbError, address: String) -> Self {
        let code = error.code();
        let reason = format!("{} (SQLSTATE {})", error.message(), code.code());
        if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            // Another server took over.
            return Self::Elsewhere(Error::ReadOnly { address });
        }
        if *code == SqlState::INVALID_CATALOG_NAME || *code == SqlState::UNDEFINED_TABLE {
            return Self::Final(Error::NoDatabase { address, reason });
        }
        let again = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::QUERY_CANCELED,
        ];
        let elsewhere = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
        ];
        let class = code.code().get(..2).unwrap_or_default();
        if again.contains(code) {
            Self::Again(Error::Unavailable { address, reason })
        } else if elsewhere.contains(code) || class == "08" {
            Self::Elsewhere(Error::Unavailable { address, reason })
        } else if class == "28" || *code == SqlState::INSUFFICIENT_PRIVILEGE {
            Self::Final(denied(address, reason))
        } else if class == "22" {
            Self::Final(Error::Unstorable { address, reason })
        } else {
            Self::Final(Error::Unavailable { address, reason })
        }
    }
}

fn denied(address: String, reason: String) -> Error {
    Error::Denied {
        address,
        reason,
        check: "user and password (in the address or PGPASSWORD), and what the user may do: it needs CREATE in the database, or a schema of its own",
    }
}

/// The cause of all other causes.
fn innermost(mut error: &dyn std::error::Error) -> String {
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string().replace('\n', "; ")
}

/// An error with its causes, each once, on one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string().replace('\n', "; ");
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
