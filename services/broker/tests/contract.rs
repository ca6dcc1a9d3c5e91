//! The contract of brokers, for the embedded one: with one broker, and with several instances on one
//! data directory, as several processes have.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

agentfleet_broker::broker_contract!(support::one());

mod between_instances {
    use super::support;
    agentfleet_broker::broker_contract!(support::several());
}
