//! `prompt`: a prompt item as a tool. The call's arguments are the template's variables.
//!
//! A prompt that declares `response-type` `json` must be answered with JSON; what stands around it
//! is taken off, and an answer that is none is an error.

use super::model::ask;
use super::{ASKS_THE_MODEL, Call, PATIENT, ToolKind};
use crate::{Error, ToolResult};
use agentfleet_config::prompts::render;
use agentfleet_models::{ChatModel, Operation};
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Prompt(pub(crate) Arc<dyn ChatModel>);

#[async_trait]
impl ToolKind for Prompt {
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
        tool.declared()
    }

    fn patience(&self, usual: Duration) -> Duration {
        usual.max(PATIENT)
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        Ok(ASKS_THE_MODEL.to_owned())
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let Some(key) = call.tool.template.as_deref().filter(|key| !key.is_empty()) else {
            return Ok(ToolResult::error(format!(
                "tool `{}` names no prompt (its `template` must be the key of a `prompt` item)",
                call.tool.name
            )));
        };
        let prompts = &call.context.config.prompts;
        let Some(item) = prompts.get(key) else {
            let known: Vec<String> = prompts.keys().map(|key| format!("`{key}`")).collect();
            return Ok(ToolResult::error(format!(
                "unknown prompt `{key}` (available: {})",
                known.join(", ")
            )));
        };
        let inputs = variables(&call);
        let prompt = match render(key, item, &inputs) {
            Ok(prompt) => prompt,
            Err(error) => return Ok(ToolResult::error(error.to_string())),
        };
        let wants_json = item.response_type == "json";
        let result = ask(&*self.0, &call, Operation::Prompt, key, prompt, inputs).await?;
        Ok(if wants_json && !result.is_error {
            as_json(key, result)
        } else {
            result
        })
    }
}

/// The arguments, with those that may be left out as `null`, because a template names them all.
fn variables(call: &Call) -> Value {
    let absent = call
        .tool
        .arguments
        .iter()
        .map(|a| (a.name.clone(), Value::Null));
    let mut variables: Map<String, Value> = absent.collect();
    for (name, value) in call.arguments.iter() {
        variables.insert(name.to_owned(), value.clone());
    }
    Value::Object(variables)
}

fn as_json(key: &str, result: ToolResult) -> ToolResult {
    let text = result.content.trim();
    let inner = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|rest| rest.strip_suffix("```"))
        .unwrap_or(text)
        .trim();
    if serde_json::from_str::<Value>(inner).is_ok() {
        return ToolResult {
            content: inner.to_owned(),
            ..result
        };
    }
    let content = format!("prompt `{key}` asks for JSON and the model answered: {text}");
    ToolResult {
        content,
        is_error: true,
        ..result
    }
}
