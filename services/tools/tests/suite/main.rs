//! The tools against real stores: a database on disk, the embedded graph, a scripted model, and web
//! servers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod back;
mod completion;
mod documents;
mod dossier;
mod hostile;
mod http;
mod knowledge;
mod loading;
mod offline;
mod opening;
mod place;
mod reloading;
mod sharing;
