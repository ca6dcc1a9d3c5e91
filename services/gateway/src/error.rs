//! What can keep a gateway from serving. What a caller did wrong is a [`crate::problem::Problem`].

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot listen on `{address}`: {reason}; another port can be chosen, or 0 for a free one"
    )]
    Listen {
        address: SocketAddr,
        #[source]
        reason: std::io::Error,
    },
    #[error("cannot serve HTTPS with the {what} file `{}`: {reason}", path.display())]
    Tls {
        /// `certificate` or `key`.
        what: &'static str,
        path: PathBuf,
        reason: String,
    },
    #[error("cannot serve HTTPS: {0}")]
    Versions(String),
}
