//! The embedded broker: the contract, with one broker and with several instances on one data directory, as
//! several processes have; and what is its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod contract;
mod embedded;
mod model;
mod processes;
mod support;

broker_contract!(support::one());

mod between_instances {
    use crate::support;
    broker_contract!(support::several());
}
