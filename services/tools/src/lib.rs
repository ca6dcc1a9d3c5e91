//! The tool seam: a named tool with arguments in, an observation with its sources out.
//!
//! # Contract
//! - `call` never panics and never lasts longer than the tool's timeout.
//! - A tool sees only the collection of its call, or the one its item is restricted to.
//! - A failed call is an ordinary result with `is_error`; [`Error`] means the call could not be
//!   made at all (an infrastructure fault, worth a retry of the step).

use agentfleet_models::Tried;
use agentfleet_schema::config::{Fallbacks, Snapshot, ToolItem};
use agentfleet_schema::records::{Source, Trouble};
use agentfleet_schema::{CollectionName, Lineage, Millis, redacted};
use async_trait::async_trait;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

mod error;
mod kinds;
pub mod mcp;
mod memories;
mod oauth;
pub mod openapi;
mod registry;
mod schemas;
mod secrets;

pub use error::Error;
pub use memories::{Memories, Refused};
pub use registry::Toolbox;
pub use secrets::{Secrets, VARIABLE as SECRET_VARIABLE};

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct ToolCall {
    pub tool: ToolItem,
    pub arguments: BTreeMap<String, String>,
    pub collection: CollectionName,
    pub context: CallContext,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct CallContext {
    pub session: String,
    /// The root of the session's tree.
    pub root: String,
    /// Whose data it may see; empty where nobody was asked who they are.
    pub tenant: String,
    /// Who asks; empty if unknown.
    pub user: String,
    pub now: Millis,
    /// Whose iterations its history begins with, where they are not its own.
    pub lineage: Vec<Lineage>,
    /// The same on every try of the same call; sent to services that can drop repeats.
    pub idempotency_key: String,
    /// The config the run is pinned to (prompt tools render from it).
    pub config: Arc<Snapshot>,
    /// Where a tool that asks a model may go if that is away.
    pub fallbacks: Fallbacks,
}

/// What a call came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResult {
    pub content: String,
    pub is_error: bool,
    pub sources: Vec<Source>,
    /// Set where nothing came of the call for a reason that lies around the tool, and that may pass.
    pub trouble: Option<Trouble>,
    /// Tokens spent by tools that ask a model.
    pub usage: agentfleet_schema::records::Usage,
    /// The model that was asked; empty where none was.
    pub model: String,
    /// Models that were to answer before, and did not.
    pub tried: Vec<Tried>,
}

impl ToolResult {
    /// A failure that the agent is told about.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            content: message.into(),
            is_error: true,
            ..Self::default()
        }
    }

    /// A failure around the tool, in the words of whatever failed.
    pub fn troubled(why: Trouble, error: impl Into<String>) -> Self {
        Self {
            trouble: Some(why),
            ..Self::error(error)
        }
    }

    /// As it may be recorded and told to the graph: addresses carry the keys of services.
    fn without_credentials(mut self) -> Self {
        for source in &mut self.sources {
            source.uri = redacted(&source.uri).into_owned();
        }
        if self.is_error {
            self.content = redacted(&self.content).into_owned();
        }
        self
    }
}

/// Everything an agent may call.
#[async_trait]
pub trait Tools: Send + Sync + 'static {
    /// JSON Schema of the arguments of a tool: fixed for most kinds, from the item for the rest.
    fn parameters(&self, tool: &ToolItem) -> Value;

    /// The longest that a call may take.
    fn timeout(&self, tool: &ToolItem) -> Duration;

    async fn call(&self, call: ToolCall) -> Result<ToolResult, Error>;
}
