//! One message in, one committed step out.
//!
//! The orchestrator drives the core with models, tools and documents. It holds no state:
//! what it knows of a run is in the message and in the records. `protocol.md`'s rules live here:
//! look the step up before working (OR-2), commit once, publish from the record, adopt what
//! somebody else committed.

mod attempts;
mod away;
mod begin;
mod calls;
mod commit;
mod conversation;
mod debits;
mod drive;
mod error;
mod found;
mod handle;
mod intake;
mod model;
mod put_back;
mod rates;
pub mod replay;
mod stream;
mod trust;
mod watched;
mod work;

pub use away::{Away, LONGEST_WAIT, Wait};
pub use error::Stop;
pub use handle::Orchestrator;
pub use trust::Trust;

use agentfleet_broker::{Broker, Subscription};
use agentfleet_config::ConfigStore;
use agentfleet_core::{FleetLimits, ReplyTopics};
use agentfleet_documents::Documents;
use agentfleet_models::ChatModel;
use agentfleet_runtime::{Committer, Host};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::topics::{self, subscription};
use agentfleet_tools::Tools;
use std::sync::Arc;
use std::time::Duration;

/// Everything an orchestrator works with.
#[derive(Clone)]
pub struct Parts {
    pub broker: Arc<dyn Broker>,
    pub documents: Arc<dyn Documents>,
    pub committer: Arc<dyn Committer>,
    pub config: Arc<dyn ConfigStore>,
    pub model: Arc<dyn ChatModel>,
    pub tools: Arc<dyn Tools>,
    pub host: Arc<dyn Host>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("model", &self.model.describe())
            .finish_non_exhaustive()
    }
}

/// How an orchestrator works.
#[derive(Clone, Debug)]
pub struct Options {
    pub limits: FleetLimits,
    /// Tries at a step before it ends as failed.
    pub max_attempts: u32,
    /// Longest a model call may take.
    pub model_timeout: Duration,
    /// Longest a step waits for a model that is away.
    pub model_wait: Duration,
    /// Who may put requests on the queue.
    pub trust: Trust,
    /// How long a message is held without a sign of life.
    pub lease: Duration,
    /// How often a step at work looks whether somebody still waits for it; at the latest when its lease
    /// is kept, three times within it, and no oftener than every second. Each look reads the store.
    pub look: Duration,
    /// The topics that callers may name for their responses.
    pub reply_topics: ReplyTopics,
    /// Prompts used for operations that the config has none for.
    pub default_prompts: Arc<Snapshot>,
}

impl Options {
    pub fn new(default_prompts: Arc<Snapshot>) -> Self {
        Self {
            limits: FleetLimits::default(),
            max_attempts: 5,
            model_timeout: Duration::from_secs(300),
            model_wait: Duration::from_hours(24),
            trust: Trust::default(),
            lease: Duration::from_secs(30),
            look: Duration::from_secs(10),
            reply_topics: ReplyTopics::default(),
            default_prompts,
        }
    }

    /// The subscription orchestrators share. The broker gives up later than the orchestrator does:
    /// its limit is for steps that kill their worker before it can give up itself.
    pub fn subscription(&self) -> Subscription {
        Subscription {
            topic: topics::AGENT_REQUEST,
            name: subscription::ORCHESTRATOR.to_owned(),
            only: None,
            lease: self.lease,
            max_deliveries: Some(self.max_attempts + 3),
        }
    }
}
