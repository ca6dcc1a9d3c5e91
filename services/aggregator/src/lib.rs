//! Fan-in, deadlines, endings: everything that watches runs rather than works them.
//!
//! - [`FanIn`] sees subagent completions on the explainability topic, asks the graph whether all
//!   are there, and publishes the synthesis request with the verdict.
//! - [`Deadlines`] does the same when a wait is over, and ends runs whose time is used up.
//! - [`Sweep`] looks now and then for fan-outs that no deadline message has ended.
//! - [`Undertaker`] ends the step of a message that nobody could work, and parks the message.
//! - [`Approvals`] lists what waits for a person, and takes the answers.
//! - [`Endings`] ends a run from outside: cancelled, or out of time.
//!
//! All of them are level-triggered and hold nothing in memory that matters: any number may run, any
//! may die, in any order.

mod approvals;
mod deadlines;
mod endings;
mod error;
mod fan_in;
mod sweep;
mod undertaker;

pub use approvals::{Answered, Approvals, Found, became};
pub use deadlines::Deadlines;
pub use endings::{Ended, Endings};
pub use error::Error;
pub use fan_in::FanIn;
pub use sweep::Sweep;
pub use undertaker::Undertaker;

use agentfleet_broker::{Broker, Subscription};
use agentfleet_core::ReplyTopics;
use agentfleet_documents::Documents;
use agentfleet_graph::Graph;
use agentfleet_runtime::{Committer, Host};
use agentfleet_schema::topics::{self, property, subscription};
use std::sync::Arc;
use std::time::Duration;

/// How long after its deadline a fan-out without a synthesis counts as overdue, and how long it is
/// between two sweeps: a deadline that comes late because there is much to do needs no help.
pub const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Everything an aggregator works with.
#[derive(Clone)]
pub struct Parts {
    pub broker: Arc<dyn Broker>,
    pub documents: Arc<dyn Documents>,
    pub committer: Arc<dyn Committer>,
    pub graph: Arc<dyn Graph>,
    pub host: Arc<dyn Host>,
    /// The topics that callers may name for their responses.
    pub reply_topics: ReplyTopics,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

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
