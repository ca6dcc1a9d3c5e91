//! Tools that count their starts. A call lasts: its process may die while it runs.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb, When};
use crate::world::Executed;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{Source, Trouble};
use agentfleet_tools::{Error, ToolCall, ToolResult, Tools};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::time::Duration;

#[async_trait]
impl Tools for Seam {
    fn parameters(&self, _: &ToolItem) -> Value {
        json!({"type": "object"})
    }

    fn timeout(&self, tool: &ToolItem) -> Duration {
        Duration::from_millis(tool.timeout_ms.unwrap_or(10_000))
    }

    async fn call(&self, call: ToolCall) -> Result<ToolResult, Error> {
        let key = call.context.idempotency_key.clone();
        let tool = call.tool.name.clone();
        let may_repeat = call.tool.effect().may_repeat();
        let effect = Effect::new(Verb::Call, format!("{tool} {:?} as {key}", call.arguments));
        self.pause(When::Before, &effect).await;
        let fault = self.shared.with(|world| {
            let fault = world.strike(&effect);
            world.log(&effect, fault);
            world.on_start(&effect);
            if call.tool.confirmation().is_some() {
                world.on_gated(&key, &tool, &call.arguments);
            }
            if fault != Some(Fault::Refused) && !may_repeat {
                world.on_side_effect(&key, &tool, &call.arguments);
            }
            fault
        });
        if fault == Some(Fault::Refused) {
            return Err(Error::Library(agentfleet_library::Error::Storage(busy())));
        }
        self.pause(When::During, &effect).await;
        let content = self.shared.with(|world| {
            let padding = "y".repeat(world.scenario.result_bytes);
            let content = format!("{tool} result {}{padding}", world.executed.len() + 1);
            if !may_repeat {
                world.executed.push(Executed {
                    key,
                    tool,
                    arguments: call.arguments,
                    content: content.clone(),
                });
            }
            content
        });
        self.pause(When::After, &effect).await;
        match fault {
            Some(Fault::ReplyLost) => {
                Err(Error::Library(agentfleet_library::Error::Storage(busy())))
            }
            // It is made again, and no run may notice.
            Some(Fault::Permanent) if may_repeat => Ok(ToolResult::troubled(
                Trouble::Unavailable,
                format!("{content} did not come"),
            )),
            Some(Fault::Permanent) => Ok(ToolResult {
                content: format!("Error: {content} was not what was hoped for"),
                is_error: true,
                ..ToolResult::default()
            }),
            _ => {
                // Sources as people name them.
                let uri = format!("urn:dossier:100% of {content}");
                let sources = vec![Source {
                    uri,
                    title: "A source".to_owned(),
                }];
                Ok(ToolResult {
                    content,
                    sources,
                    ..ToolResult::default()
                })
            }
        }
    }
}
