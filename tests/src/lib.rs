//! A seeded simulator that drives the shipped workers: orchestrator, fan-in, deadlines, undertaker,
//! endings, graph-writer, and the sequential committer.
//!
//! Only the seams are replaced: queue, documents, graph, config, model, tools, clock and nonces
//! ([`seams`]). Every call of a seam stops before its effect and after it; a single-threaded
//! scheduler picks who goes on ([`sim`], [`explore`]), delivers twice, late, early and in any order,
//! loses receipts, moves the clock, and kills processes between any two effects. What must hold is
//! checked at the very effect that would break it ([`facts`]), when only deadlines are left, and at
//! the end ([`ending`]). A run is its seed: the same seed makes the same run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(missing_debug_implementations)]

pub mod callers;
pub mod directed;
pub mod effect;
pub mod ending;
pub mod evidence;
pub mod explore;
pub mod facts;
pub mod faults;
pub mod generate;
pub mod journal;
pub mod load;
pub mod pause;
pub mod place;
pub mod queues;
pub mod replayed;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod seams;
pub mod sim;
pub mod world;
