//! The tools against real stores: a database on disk, the embedded graph, a scripted model, and web
//! servers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod back;
mod completion;
mod diary;
mod documents;
mod dossier;
mod http;
mod knowledge;
mod mcp;
mod memory;
mod oauth;
mod offline;
mod opening;
mod place;
mod services;
#[allow(dead_code)] // shared with the library's tests, which use all of it
#[path = "../../../library/tests/it/place.rs"]
mod shelf;
