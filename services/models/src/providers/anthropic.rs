//! Anthropic's messages.

use super::failure::Fault;
use super::messages::{Turn, parameters, system_text};
use super::protocol::Outgoing;
use super::reply::{Piece, Reply, tokens};
use super::schema::strict;
use agentfleet_schema::config::portable_name;
use serde_json::{Value, json};

/// The version of the protocol.
pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn body(call: &Outgoing<'_>) -> Value {
    let mut body = json!({
        "model": call.model,
        "stream": call.streaming,
        // The protocol wants a limit.
        "max_tokens": call.max_tokens.unwrap_or_else(|| most_tokens(call.model)),
    });
    let system = system_text(call.turns);
    if !system.is_empty() {
        body["system"] = json!(system);
    }
    if !call.tools.is_empty() {
        body["tools"] = call
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "name": portable_name(&tool.name), "description": tool.description, "input_schema": parameters(tool),
                })
            })
            .collect();
        if call.one_call {
            body["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
        }
        // A transcript of tool calls must repeat the model's signed thinking, which no step carries:
        // with tools, models that think by default are asked not to.
        if thinks_by_default(call.model) {
            body["thinking"] = json!({"type": "disabled"});
        }
    }
    body["messages"] = call.turns.iter().filter_map(message).collect();
    if let Some((_, schema)) = call.schema {
        body["output_config"] =
            json!({"format": {"type": "json_schema", "schema": strict(schema, false)}});
    }
    if let Some(temperature) = call.temperature {
        body["temperature"] = json!(temperature);
    }
    body
}

/// The family of a model's name and its main version: `claude-opus-4-5` is of `opus` 4.
fn family(model: &str) -> (&str, u32) {
    let mut parts = model.strip_prefix("claude-").unwrap_or_default().split('-');
    let family = parts.next().unwrap_or_default();
    let version = parts.next().filter(|part| part.len() < 3);
    (family, version.and_then(|v| v.parse().ok()).unwrap_or(0))
}

/// The most tokens a model writes at once, where the operation's profile sets no limit. Newer models
/// may write more; this is plenty.
fn most_tokens(model: &str) -> u32 {
    match family(model) {
        ("3", 5) => 8_192,
        ("3", 7) => 64_000,
        ("3", _) => 4_096,
        ("opus", 4) => 32_000,
        _ => 64_000,
    }
}

fn thinks_by_default(model: &str) -> bool {
    let (family, version) = family(model);
    matches!(family, "opus" | "sonnet" | "haiku") && version >= 5
}

fn message(turn: &Turn) -> Option<Value> {
    match turn {
        // Goes apart.
        Turn::System(_) => None,
        Turn::User(text) => Some(json!({"role": "user", "content": text})),
        Turn::Assistant { text, calls } if calls.is_empty() => {
            Some(json!({"role": "assistant", "content": text}))
        }
        Turn::Assistant { text, calls } => {
            let said = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
            let called = calls.iter().map(|call| {
                json!({
                    "type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments,
                })
            });
            let parts: Value = said.into_iter().chain(called).collect();
            Some(json!({"role": "assistant", "content": parts}))
        }
        Turn::Results(results) => {
            let parts: Value = results
                .iter()
                .map(|result| {
                    json!({
                        "type": "tool_result", "tool_use_id": result.id, "content": result.content,
                    })
                })
                .collect();
            Some(json!({"role": "user", "content": parts}))
        }
    }
}

pub(super) fn take(told: &Value, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let index = told.get("index").and_then(Value::as_u64);
    let of = told.get("type").and_then(Value::as_str);
    match of.unwrap_or_default() {
        // A reply in one piece.
        "message" => {
            begins(told, reply);
            let blocks = told.get("content").and_then(Value::as_array);
            for (at, one) in (0..).zip(blocks.into_iter().flatten()) {
                block(Some(at), one, reply)?;
            }
            reply.stops(told.get("stop_reason"));
        }
        "message_start" => begins(told.get("message").unwrap_or(&Value::Null), reply),
        "content_block_start" => {
            block(
                index,
                told.get("content_block").unwrap_or(&Value::Null),
                reply,
            )?;
        }
        "content_block_delta" => {
            // What a model thinks by itself is not part of its reply.
            reply.say(told.pointer("/delta/text"))?;
            reply.call(Piece {
                index,
                arguments: told.pointer("/delta/partial_json"),
                ..Piece::default()
            })?;
        }
        "message_delta" => {
            reply.stops(told.pointer("/delta/stop_reason"));
            read_usage(told.get("usage"), reply);
        }
        "message_stop" => (reply.finished, reply.ended) = (true, true),
        _ => {}
    }
    Ok(())
}

fn begins(message: &Value, reply: &mut Reply<'_>) {
    reply.is_by(message.get("model"));
    read_usage(message.get("usage"), reply);
}

fn block(index: Option<u64>, block: &Value, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let text = |field: &str| block.get(field).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text" => reply.say(block.get("text")),
        "tool_use" => reply.call(Piece {
            index,
            id: text("id"),
            name: text("name"),
            arguments: block.get("input"),
        }),
        _ => Ok(()),
    }
}

/// What was read from the cache or written to it is not among the tokens that the service calls input.
/// Counts are told again as they grow.
fn read_usage(usage: Option<&Value>, reply: &mut Reply<'_>) {
    const INPUT: [&str; 3] = [
        "input_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    ];
    let Some(usage) = usage else { return };
    let input = INPUT.map(|field| tokens(usage.get(field)).unwrap_or(0));
    let output = tokens(usage.get("output_tokens")).unwrap_or(0);
    reply.usage.input_tokens = reply.usage.input_tokens.max(input.iter().sum());
    reply.usage.output_tokens = reply.usage.output_tokens.max(output);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_says_how_much_it_writes_and_whether_it_thinks() {
        for (model, most, thinks) in [
            ("claude-sonnet-5", 64_000, true),
            ("claude-opus-5-1", 64_000, true),
            ("claude-haiku-4-5-20251001", 64_000, false),
            ("claude-opus-4-1", 32_000, false),
            ("claude-opus-4-20250514", 32_000, false),
            ("claude-3-5-haiku-latest", 8_192, false),
            ("claude-3-haiku-20240307", 4_096, false),
            ("somebody-elses", 64_000, false),
        ] {
            assert_eq!(most_tokens(model), most, "{model}");
            assert_eq!(thinks_by_default(model), thinks, "{model}");
        }
    }
}
