//! What can keep a gateway from serving. What a caller did wrong is a [`crate::problem::Problem`].

use std::net::SocketAddr;

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
}
