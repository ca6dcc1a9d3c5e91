//! `text-completion`: a question to the model alone, without documents or tools.
//!
//! The prompt item `question` frames it where there is one; else the question is sent as it is.

use super::model::ask;
use super::{ASKS_THE_MODEL, Call, PATIENT, ToolKind};
use crate::{Error, ToolResult};
use agentfleet_config::prompts::{Rendered, render};
use agentfleet_models::{ChatModel, Operation};
use agentfleet_schema::arguments;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct TextCompletion(pub(crate) Arc<dyn ChatModel>);

#[async_trait]
impl ToolKind for TextCompletion {
    fn arguments(&self, _tool: &ToolItem) -> Vec<ToolArgument> {
        vec![arguments::text("question", "what to ask the model")]
    }

    fn patience(&self, usual: Duration) -> Duration {
        usual.max(PATIENT)
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        Ok(ASKS_THE_MODEL.to_owned())
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let question = call.arguments.text("question");
        let inputs = json!({ "question": question });
        let key = Operation::Complete.as_str();
        let prompt = match call.context.config.prompts.get(key) {
            Some(item) => match render(key, item, &inputs) {
                Ok(prompt) => prompt,
                Err(error) => return Ok(ToolResult::error(error.to_string())),
            },
            None => Rendered {
                system: String::new(),
                prompt: question.to_owned(),
            },
        };
        ask(&*self.0, &call, Operation::Complete, key, prompt, inputs).await
    }
}
