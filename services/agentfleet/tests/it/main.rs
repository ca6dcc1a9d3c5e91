//! The program as its users run it: processes, exit codes, what is written where.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod again;
mod carried;
mod conversations;
#[path = "../../../tools/tests/it/diary.rs"]
mod diary;
mod erased;
mod examples;
mod mcp;
mod place;
mod prices;
mod runs;
mod seen;
mod services;
mod tls;
mod tools;
mod upkeep;
mod wrong;
