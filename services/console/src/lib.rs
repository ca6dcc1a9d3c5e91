//! Everything the command line shows to people: traces, Markdown, the live view of a run, tables,
//! and the same as data for programs.
//!
//! Functions and small views. Nothing here reads a store, a clock or the environment: triples, events,
//! texts, instants, widths and colour wishes come in as arguments. Only [`lanes::Painter`] writes, to
//! writers it is given.
//!
//! Invariants
//! - Nothing a model, a tool or a document said reaches a terminal with control characters in it.
//! - Whatever a graph says, reading it ends, and every session appears once.

mod columns;
pub mod diff;
pub mod json;
pub mod lanes;
pub mod markdown;
pub mod style;
pub mod table;
pub mod text;
pub mod trace;

pub use style::Look;
