//! What the console shows of runs that the core itself made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sample;
mod trace_model;
