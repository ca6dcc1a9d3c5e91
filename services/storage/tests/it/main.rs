//! The embedded database: opening, committing, copying, and several instances on one data directory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod copies;
mod groups;
mod opening;
mod processes;
