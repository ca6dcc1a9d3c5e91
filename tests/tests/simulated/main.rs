//! The shipped workers on the simulator's seams: forced schedules, and any schedule by its seed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod budgets;
mod interleavings;
mod pauses;
mod replay;
mod simulator;
mod simulator_fan_in;
