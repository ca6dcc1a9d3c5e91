//! The HTTP interface over real sockets, with a fleet whose only part not of the product is the
//! model: see `fleet`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod begun;
mod client;
mod documentation;
mod errors;
mod events;
mod examples;
mod fleet;
mod identity;
mod independent;
mod keys;
mod proxies;
mod requests;
mod rights;
mod sessions;
mod sparql;
mod stopping;
mod tls;
mod tokens;
mod update;
