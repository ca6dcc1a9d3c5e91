//! The library on real stores: files of every kind, loaded, loaded again, and shared by several machines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hostile;
mod loading;
mod opening;
mod place;
mod reloading;
mod sharing;
