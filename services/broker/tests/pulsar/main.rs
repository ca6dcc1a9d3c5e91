//! The contract of brokers, for Apache Pulsar, on a real one; and what is Pulsar's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
#[path = "../it/contract.rs"]
mod contract;
mod fixture;
mod own;
#[path = "../server/mod.rs"]
mod server;

broker_contract!(fixture::pulsar());
