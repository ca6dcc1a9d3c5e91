//! Fan-in, deadlines, endings: everything that watches runs rather than works them.
//!
//! - [`FanIn`] sees subagent completions on the explainability topic, asks the graph whether all
//!   are there, and publishes the synthesis request with the verdict.
//! - [`Deadlines`] does the same when a wait is over, and ends runs whose time is used up.
//! - [`Sweep`] looks now and then for fan-outs that no deadline message has ended.
//! - [`Undertaker`] ends the step of a message that nobody could work, and parks the message.
//!
//! All of them are level-triggered and hold nothing in memory that matters: any number may run, any
//! may die, in any order.

mod completion;
mod deadlines;
mod fan_in;
mod siblings;
mod sweep;
mod undertaker;

pub use agentfleet_runs::{Answered, Approvals, Ended, Endings, Error, Found, Parts, became};
pub use deadlines::Deadlines;
pub use fan_in::FanIn;
pub use sweep::Sweep;
pub use undertaker::{Undertaker, session_of};

use agentfleet_broker::Subscription;
use agentfleet_schema::topics::{self, property, subscription};
use std::time::Duration;

/// How long after its deadline a fan-out without a synthesis counts as overdue, and how long it is
/// between two sweeps: a deadline that comes late because there is much to do needs no help.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// The aggregator's subscription to completions. It never gives up: an infrastructure fault must
/// not cost a fan-in.
pub fn completions() -> Subscription {
    Subscription {
        topic: topics::EXPLAINABILITY,
        name: subscription::AGGREGATOR.to_owned(),
        only: Some((
            property::KIND.to_owned(),
            property::KIND_COMPLETION.to_owned(),
        )),
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

/// The aggregator's subscription to deadlines.
pub fn deadlines() -> Subscription {
    Subscription {
        topic: topics::DEADLINE,
        name: subscription::AGGREGATOR.to_owned(),
        only: None,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}

/// The undertaker's subscription to dead letters.
pub fn dead_letters() -> Subscription {
    Subscription {
        topic: topics::DEAD_LETTER,
        name: subscription::UNDERTAKER.to_owned(),
        only: None,
        lease: Duration::from_secs(30),
        max_deliveries: None,
    }
}
