//! The graph on SPARQL servers: the contract on each kind, and what only a server can do wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod endpoint;
mod faults;
mod servers;
mod serving;
