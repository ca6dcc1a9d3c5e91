//! The graph on SPARQL servers: the contract on each kind, and what only a server can do wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Handlers of a server are async, whether they wait or not.
#![allow(clippy::unused_async)]

#[macro_use]
mod contract;
mod endpoint;
mod faults;
mod servers;
mod serving;
