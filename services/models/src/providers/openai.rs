//! OpenAI's chat completions.

use super::failure::Fault;
use super::messages::{Turn, parameters};
use super::protocol::Outgoing;
use super::reply::{Piece, Reply, tokens};
use super::schema::strict;
use agentfleet_schema::config::portable_name;
use serde_json::{Value, json};

pub(super) fn body(call: &Outgoing<'_>) -> Value {
    let mut body = json!({"model": call.model, "stream": call.streaming});
    if !call.tools.is_empty() {
        // Before the messages: what stays the same from call to call comes first, for the cache.
        body["tools"] = call
            .tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "function": {
                    "name": portable_name(&tool.name), "description": tool.description, "parameters": parameters(tool),
                }})
            })
            .collect();
        if call.one_call {
            body["parallel_tool_calls"] = json!(false);
        }
    }
    body["messages"] = call.turns.iter().flat_map(messages).collect();
    if let Some((name, schema)) = call.schema {
        body["response_format"] = json!({"type": "json_schema", "json_schema": {
            "name": name, "strict": true, "schema": strict(schema, true),
        }});
    }
    if call.streaming && call.usage {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some(temperature) = call.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(max) = call.max_tokens {
        body[limit_field(call.model, call.other_limit)] = json!(max);
    }
    body
}

/// OpenAI's models that reason take `max_completion_tokens` and refuse `max_tokens`; other servers know
/// the older name alone.
fn limit_field(model: &str, other: bool) -> &'static str {
    const REASONING: &[&str] = &["gpt-5", "gpt-6", "o1", "o3", "o4"];
    let reasons = REASONING.iter().any(|family| model.starts_with(family));
    if reasons == other {
        "max_tokens"
    } else {
        "max_completion_tokens"
    }
}

fn messages(turn: &Turn) -> Vec<Value> {
    match turn {
        Turn::System(text) => vec![json!({"role": "system", "content": text})],
        Turn::User(text) => vec![json!({"role": "user", "content": text})],
        Turn::Assistant { text, calls } => {
            let mut message = json!({"role": "assistant", "content": text});
            if !calls.is_empty() {
                message["tool_calls"] = calls
                    .iter()
                    .map(|call| {
                        json!({"type": "function", "id": call.id, "function": {
                            "name": call.name, "arguments": call.arguments.to_string(),
                        }})
                    })
                    .collect();
            }
            vec![message]
        }
        Turn::Results(results) => results
            .iter()
            .map(|result| {
                json!({"role": "tool", "tool_call_id": result.id, "content": result.content})
            })
            .collect(),
    }
}

/// A chunk of a stream and a whole reply differ in the name of the message alone.
pub(super) fn take(told: &Value, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.is_by(told.get("model"));
    if let Some(usage) = told.get("usage").filter(|usage| usage.is_object()) {
        read_usage(usage, reply);
    }
    let Some(choice) = told.pointer("/choices/0") else {
        return Ok(());
    };
    if let Some(message) = choice.get("delta").or_else(|| choice.get("message")) {
        match message.get("content") {
            // Mistral's reasoning models say their text in parts.
            Some(Value::Array(parts)) => {
                for part in parts {
                    reply.say(part.get("text"))?;
                }
            }
            content => reply.say(content)?,
        }
        let refusal = message.get("refusal").and_then(Value::as_str);
        reply.refused |= refusal.is_some_and(|words| !words.is_empty());
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let text = |path: &str| call.pointer(path).and_then(Value::as_str);
            reply.call(Piece {
                index: call.get("index").and_then(Value::as_u64),
                id: text("/id").unwrap_or_default(),
                name: text("/function/name").unwrap_or_default(),
                arguments: call.pointer("/function/arguments"),
            })?;
        }
    }
    reply.stops(choice.get("finish_reason"));
    Ok(())
}

/// Cached tokens are among those of the prompt, and reasoning among those of the completion.
fn read_usage(usage: &Value, reply: &mut Reply<'_>) {
    if let Some(input) = tokens(usage.get("prompt_tokens")) {
        reply.usage.input_tokens = input;
    }
    let reasoning = usage.pointer("/completion_tokens_details/reasoning_tokens");
    if let Some(output) = tokens(usage.get("completion_tokens")).or_else(|| tokens(reasoning)) {
        reply.usage.output_tokens = output;
    }
}
