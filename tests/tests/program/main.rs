//! The program and its fleet on the embedded parts, as processes and in this one; and what documents say of both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod discover;
mod house;
mod kill;
mod long_history;
mod producers;
mod protocol;
mod replicas;
mod streaming;
