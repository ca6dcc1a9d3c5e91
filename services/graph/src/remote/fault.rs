//! What can go wrong with a SPARQL server, and what to do about it.

use std::time::Duration;

/// A failure at the server, or on the way to it. Addresses in it hold no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteFault {
    #[error(
        "`{url}` is no address of a SPARQL server ({reason}): use one such as `http://host:3030/dataset`"
    )]
    Address { url: String, reason: String },
    #[error(
        "cannot reach the SPARQL server at `{url}` ({reason}): check that it runs, and the address"
    )]
    Unreachable { url: String, reason: String },
    #[error(
        "the SPARQL server at `{url}` refused the credentials (status {status}): check user and password, or the token"
    )]
    Credentials { url: String, status: u16 },
    #[error(
        "nothing answers SPARQL queries below `{url}` ({reason}): give the address of the dataset, or of its query endpoint"
    )]
    NoQueries { url: String, reason: String },
    #[error(
        "the SPARQL server does not take updates at `{url}` (status {status}, {reason}): allow updates there, or give the address of its update endpoint"
    )]
    UpdateRefused {
        url: String,
        status: u16,
        reason: String,
    },
    #[error("the SPARQL server at `{url}` refused the data (status {status}): {reason}")]
    Rejected {
        url: String,
        status: u16,
        reason: String,
    },
    #[error("the SPARQL server at `{url}` failed (status {status}): {reason}")]
    Failed {
        url: String,
        status: u16,
        reason: String,
    },
    #[error(
        "the SPARQL server at `{url}` gave stale answers: in round {round} a second connection did not see what was just written; fan-ins count on seeing it, so use one node, or a cluster whose reads are linearizable"
    )]
    NotLinearizable { url: String, round: usize },
    #[error("record `{batch}` of the SPARQL store cannot be read ({reason}): restore a backup")]
    Record { batch: String, reason: String },
}

impl RemoteFault {
    /// How long to wait before trying again. What an operator must mend is tried again, too: until
    /// then messages wait, and none is lost.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Unreachable { .. } | Self::Failed { .. } => Some(Duration::from_secs(1)),
            Self::Credentials { .. }
            | Self::NoQueries { .. }
            | Self::UpdateRefused { .. }
            | Self::NotLinearizable { .. } => Some(Duration::from_secs(30)),
            Self::Address { .. } | Self::Rejected { .. } | Self::Record { .. } => None,
        }
    }
}
