//! What the kinds that ask a model share: the profile of an operation, the call and its price.

use super::Call;
use crate::{Error, ToolResult};
use agentfleet_config::prompts::Rendered;
use agentfleet_models::{ChatModel, Discard, Message, ModelRequest, Operation};
use agentfleet_schema::config::ModelProfile;
use agentfleet_schema::records::Trouble;
use serde_json::Value;

/// Asks the model. One that is away is trouble as that of any service: the call is made again as often as its
/// tool allows, and then the agent is told. The step does not wait for it, which would ask the agent's own
/// model anew each time.
pub(super) async fn ask(
    model: &dyn ChatModel,
    call: &Call,
    operation: Operation,
    profile_key: &str,
    prompt: Rendered,
    inputs: Value,
) -> Result<ToolResult, Error> {
    let config = &call.context.config;
    let profile = config.profile(&[profile_key, operation.as_str()]);
    let mut messages = Vec::with_capacity(2);
    if !prompt.system.trim().is_empty() {
        messages.push(Message::System(prompt.system));
    }
    messages.push(Message::User(prompt.prompt));
    let request = ModelRequest {
        operation,
        messages,
        tools: Vec::new(),
        schema: None,
        inputs,
        model: profile.model.clone(),
        fallbacks: config.fallbacks(&profile, call.context.fallbacks),
        temperature: profile.temperature,
        max_tokens: profile.max_tokens,
        timeout: call.timeout,
    };
    match model.chat(request, &Discard).await {
        Ok(reply) => Ok(ToolResult {
            content: if reply.cut {
                format!(
                    "{}\n\n(Not whole: the reply was cut at the limit of its length.)",
                    reply.text.trim()
                )
            } else {
                reply.text.trim().to_owned()
            },
            usage: if !model.capabilities().metered {
                reply.usage
            } else if reply.fallback.is_empty() {
                config.prices(profile, "").priced(reply.usage)
            } else {
                let other = config.prices(ModelProfile::default(), &reply.fallback);
                other.priced(reply.usage)
            },
            model: reply.model,
            tried: reply.tried,
            ..ToolResult::default()
        }),
        Err(error) => Ok(ToolResult {
            trouble: error.retry().map(|_| Trouble::Unavailable),
            tried: error.tried().to_vec(),
            ..ToolResult::error(error.to_string())
        }),
    }
}
