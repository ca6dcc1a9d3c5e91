//! `agent`: another agent. No worker makes such a call: the step that wants it starts a run of its own,
//! and goes on with its answer. Here is what the call takes, and why it cannot be made alone.

use super::{ASKS_THE_MODEL, Call, ToolKind};
use crate::{Error, ToolResult};
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use async_trait::async_trait;

pub(crate) struct Agent;

#[async_trait]
impl ToolKind for Agent {
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
        tool.declared()
    }

    async fn look(&self, _tool: &ToolItem, _config: &Snapshot) -> Result<String, String> {
        Ok(ASKS_THE_MODEL.to_owned())
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        Ok(ToolResult::error(format!(
            "`{}` is an agent, and works in a run only: ask a question that it is needed for",
            call.tool.name
        )))
    }
}
