//! What is done to a run from outside, by whichever door: ending it, and answering a call of it that waits
//! for a person. The aggregator, the gateway and the command line do it through these types alone.
//!
//! - [`Endings`] ends a run: cancelled, out of time, or given up by every worker.
//! - [`Approvals`] lists what waits for a person, and takes the answers.
//! - [`Root`] is a run in a list, [`exchanges`] are the runs of a conversation, [`Usage`] is what tenants used,
//!   [`started`] finds subagents that have no record yet.
//! - [`audit`] is the log of what was refused, answered and changed, whichever door it came to.
//!
//! The first two are level-triggered and hold nothing in memory: any number may do the same at the same time, and
//! the record that is created first decides.

mod approvals;
pub mod audit;
mod endings;
mod error;
mod exchanges;
mod roots;
mod started;
mod usage;

pub use approvals::{Answered, Approvals, Found, became, tool_of};
pub use endings::{Ended, Endings};
pub use error::Error;
pub use exchanges::{Asked, exchanges};
pub use roots::Root;
pub use started::{Started, started};
pub use usage::Usage;

use agentfleet_broker::Broker;
use agentfleet_core::ReplyTopics;
use agentfleet_documents::Documents;
use agentfleet_graph::Graph;
use agentfleet_runtime::{Committer, Host, Records};
use std::sync::Arc;

/// Everything that runs are watched and ended with.
#[derive(Clone)]
pub struct Parts {
    pub broker: Arc<dyn Broker>,
    pub documents: Arc<dyn Documents>,
    pub committer: Arc<dyn Committer>,
    pub graph: Arc<dyn Graph>,
    /// The dataset that counts the siblings of open fan-outs, where that is not the graph.
    pub coordination: Option<Arc<dyn Graph>>,
    pub host: Arc<dyn Host>,
    /// The topics that callers may name for their responses.
    pub reply_topics: ReplyTopics,
}

impl Parts {
    pub fn records(&self) -> Records<'_> {
        Records::new(&*self.documents)
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}
