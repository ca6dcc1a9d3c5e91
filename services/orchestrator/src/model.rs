//! From what the core asks to what a model is sent: rendered prompt, native transcript, tools,
//! profile and price.

use crate::Options;
use agentfleet_core::{ModelAsk, Reply, task_types};
use agentfleet_models::{Message, ModelReply, ModelRequest, ToolSpec};
use agentfleet_schema::config::{ModelProfile, Snapshot};
use agentfleet_schema::records::Usage;
use agentfleet_schema::tolerant::text_of;
use agentfleet_schema::{AgentRequest, AgentStep, Operation, Spent};
use agentfleet_tools::Tools;
use serde_json::{Value, json};

/// Builds the call that a request's turn asks for. `Err` says which prompt could not be rendered, and
/// why.
pub(crate) fn request(
    ask: &ModelAsk,
    of: &AgentRequest,
    snapshot: &Snapshot,
    options: &Options,
    tools: &dyn Tools,
) -> Result<ModelRequest, String> {
    let profile = profile(snapshot, of, ask.operation);
    Ok(ModelRequest {
        operation: ask.operation,
        messages: messages(ask, of, snapshot, &options.default_prompts)?,
        tools: ask
            .tools
            .iter()
            .map(|tool| ToolSpec {
                name: tool.name.clone(),
                description: tool.description.clone(),
                parameters: tools.parameters(tool),
            })
            .collect(),
        schema: ask.schema.clone(),
        inputs: ask.variables.clone(),
        model: named(profile.model, &of.model),
        temperature: profile.temperature,
        max_tokens: profile.max_tokens,
        timeout: options.model_timeout,
    })
}

/// What the model reads: the rendered prompt, then the native transcript.
pub(crate) fn messages(
    ask: &ModelAsk,
    of: &AgentRequest,
    snapshot: &Snapshot,
    defaults: &Snapshot,
) -> Result<Vec<Message>, String> {
    let id = task_types::prompt_of(of, snapshot, ask.operation);
    let rendered = {
        let from = if snapshot.prompts.contains_key(id) {
            snapshot
        } else {
            defaults
        };
        let Some(item) = from.prompts.get(id) else {
            return Err(format!("there is no prompt `{id}`: seed the config"));
        };
        agentfleet_config::prompts::render(id, item, &ask.variables)
            .map_err(|error| error.to_string())?
    };
    let mut messages = Vec::new();
    if !rendered.system.is_empty() {
        messages.push(Message::System(rendered.system));
    }
    messages.push(Message::User(rendered.prompt));
    for (step, n) in ask.transcript.iter().zip(1..) {
        shown(step, n, &mut messages);
    }
    Ok(messages)
}

/// A step of the history as a native call and its result; what was no call, as plain turns.
fn shown(step: &AgentStep, n: usize, messages: &mut Vec<Message>) {
    let is_call = matches!(step.step_type.as_str(), "" | "react") && !step.action.starts_with("__");
    if is_call {
        let id = format!("call-{n}");
        messages.push(Message::ToolCall {
            id: id.clone(),
            name: step.action.clone(),
            arguments: json!(step.arguments),
            thought: step.thought.clone(),
        });
        messages.push(Message::ToolResult {
            id,
            name: step.action.clone(),
            content: step.observation.clone(),
        });
    } else {
        if !step.thought.is_empty() {
            messages.push(Message::Assistant(step.thought.clone()));
        }
        if !step.observation.is_empty() {
            messages.push(Message::User(step.observation.clone()));
        }
    }
}

/// The model of a call: the request's where it names one, else the profile's.
fn named(of_the_profile: String, of_the_request: &str) -> String {
    if of_the_request.is_empty() {
        of_the_profile
    } else {
        of_the_request.to_owned()
    }
}

/// The profile that the request names, else what its task type gives its pattern, else that of the
/// operation, else `default`, else empty.
pub(crate) fn profile(
    snapshot: &Snapshot,
    of: &AgentRequest,
    operation: Operation,
) -> ModelProfile {
    let of_type = task_types::profile_of(of, snapshot);
    snapshot.profile(&[&of.control.profile, of_type, operation.as_str()])
}

/// The profile whose prices count: of the model that the request names, as far as a profile knows it,
/// else the operation's.
pub(crate) fn prices(snapshot: &Snapshot, of: &AgentRequest, operation: Operation) -> ModelProfile {
    let mut named = snapshot.profiles.values();
    let named = named.find(|profile| !of.model.is_empty() && profile.model == of.model);
    named
        .cloned()
        .unwrap_or_else(|| profile(snapshot, of, operation))
}

/// Output tokens that a call is taken to come to where its profile sets no bound.
const UNBOUNDED_OUTPUT: u64 = 1_000;
/// Bytes of a prompt that are taken for a token.
const BYTES_OF_A_TOKEN: u64 = 4;

/// What a call may come to, for as long as nobody knows.
pub(crate) fn reserved(
    snapshot: &Snapshot,
    of: &AgentRequest,
    operation: Operation,
    prompt: &str,
) -> Spent {
    let most = profile(snapshot, of, operation).max_tokens.map(u64::from);
    let usage = Usage {
        input_tokens: (prompt.len() as u64).div_ceil(BYTES_OF_A_TOKEN),
        output_tokens: most.unwrap_or(UNBOUNDED_OUTPUT),
        cost: 0.0,
    };
    Spent {
        model_calls: 1,
        ..priced(usage, &prices(snapshot, of, operation)).spent()
    }
}

/// What the tokens of a reply cost under a profile.
pub(crate) fn priced(usage: Usage, profile: &ModelProfile) -> Usage {
    let million = 1_000_000.0;
    let cost = usage.input_tokens as f64 * profile.input_price.unwrap_or_default() / million
        + usage.output_tokens as f64 * profile.output_price.unwrap_or_default() / million;
    Usage {
        cost: usage.cost + cost,
        ..usage
    }
}

/// The reply as the core reads it.
pub(crate) fn reply(reply: &ModelReply, usage: Usage, ms: u64) -> Reply {
    Reply {
        text: reply.text.clone(),
        tool_calls: reply
            .tool_calls
            .iter()
            .map(|call| {
                let arguments = match &call.arguments {
                    Value::Object(map) => map
                        .iter()
                        .map(|(name, value)| (name.clone(), text_of(value.clone())))
                        .collect(),
                    _ => std::collections::BTreeMap::new(),
                };
                (call.name.clone(), arguments)
            })
            .collect(),
        usage,
        ms,
    }
}

/// The rendered messages as the record keeps them.
pub(crate) fn prompt_text(messages: &[Message]) -> String {
    let mut text = String::new();
    for message in messages {
        let (role, content) = match message {
            Message::System(content) => ("system", content.clone()),
            Message::User(content) => ("user", content.clone()),
            Message::Assistant(content) => ("assistant", content.clone()),
            Message::ToolCall {
                name,
                arguments,
                thought,
                ..
            } => ("tool call", format!("{thought}\n{name} {arguments}")),
            Message::ToolResult { name, content, .. } => {
                ("tool result", format!("{name}\n{content}"))
            }
        };
        text.push_str(&format!("[{role}]\n{content}\n\n"));
    }
    text.truncate(text.trim_end().len());
    text
}

/// The reply as the record keeps it.
pub(crate) fn reply_text(reply: &ModelReply) -> String {
    if reply.tool_calls.is_empty() {
        return reply.text.clone();
    }
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .map(|call| json!({"name": call.name, "arguments": call.arguments}))
        .collect();
    json!({"text": reply.text, "tool_calls": calls}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_the_request_overrides_the_profiles_and_costs_what_its_profile_says() {
        let profile = |model: &str, price: f64| ModelProfile {
            model: model.to_owned(),
            input_price: Some(price),
            ..ModelProfile::default()
        };
        let mut snapshot = Snapshot::default();
        for (key, model, price) in [("default", "small", 1.0), ("agent-react", "large", 5.0)] {
            snapshot
                .profiles
                .insert(key.to_owned(), profile(model, price));
        }
        let operation = Operation::React;
        for (asked, model, price) in [
            ("", "large", 5.0),
            ("small", "small", 1.0),
            ("unheard-of", "unheard-of", 5.0),
        ] {
            let of = AgentRequest {
                model: asked.to_owned(),
                ..AgentRequest::default()
            };
            let of_the_profile = super::profile(&snapshot, &of, operation).model;
            assert_eq!(named(of_the_profile, asked), model);
            let prices = prices(&snapshot, &of, operation);
            assert_eq!(prices.input_price, Some(price), "{asked}");
        }
    }
}
