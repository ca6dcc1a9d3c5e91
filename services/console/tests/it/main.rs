//! What the console shows of runs that the core itself made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod expected;
mod lanes;
mod painter;
mod pictures;
mod queries;
mod sample;
mod trace_formats;
mod trace_model;
mod trace_properties;
