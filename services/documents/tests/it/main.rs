//! The documents store: the contract on each engine, and what is an engine's own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod contract;

mod archive;
mod crash;
mod embedded;
mod postgres;
