//! One file for each command, or for a few that belong together.

pub(crate) mod approvals;
pub(crate) mod ask;
pub(crate) mod config;
pub(crate) mod cost;
pub(crate) mod diff;
pub(crate) mod discover;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fork;
mod gather;
pub(crate) mod library;
pub(crate) mod migrate;
mod person;
pub(crate) mod purge;
pub(crate) mod query;
pub(crate) mod records;
pub(crate) mod replay;
pub(crate) mod retry;
mod servers;
pub(crate) mod sessions;
mod spend;
pub(crate) mod trace;
pub(crate) mod up;
pub(crate) mod upkeep;
pub(crate) mod verify;
pub(crate) mod watch;
