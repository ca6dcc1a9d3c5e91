//! The examples as services: over HTTP, each with a file of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod business;
mod crm;
mod place;
