//! The conversation as every provider wants it: turns.
//!
//! Invariants: a tool result follows the call it answers and shares its id; calls are sent as tool
//! calls only while tools are offered (a provider refuses a transcript with calls but no tools),
//! and as plain text otherwise; there is always a user's turn; the calls of one turn are together, and
//! so are their results (Anthropic and Gemini refuse anything else).

use crate::{Message, ToolCall, ToolSpec};
use agentfleet_schema::config::portable_name;
use serde_json::{Value, json};

/// A turn of the conversation.
pub(super) enum Turn {
    System(String),
    User(String),
    /// The arguments of its calls are objects.
    Assistant {
        text: String,
        calls: Vec<ToolCall>,
    },
    Results(Vec<Outcome>),
}

/// What came of a tool call.
pub(super) struct Outcome {
    pub id: String,
    pub name: String,
    pub content: String,
}

/// The turns; `native` where tools are offered.
pub(super) fn turns(messages: &[Message], native: bool) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::with_capacity(messages.len());
    for message in messages {
        let turn = turn(message, native);
        match (turns.last_mut(), turn) {
            (
                Some(Turn::Assistant {
                    text: before,
                    calls,
                }),
                Turn::Assistant { text, calls: more },
            ) if !calls.is_empty() && !more.is_empty() => {
                if !before.is_empty() && !text.is_empty() {
                    before.push_str("\n\n");
                }
                before.push_str(&text);
                calls.extend(more);
            }
            (Some(Turn::Results(results)), Turn::Results(more)) => results.extend(more),
            (_, turn) => turns.push(turn),
        }
    }
    if !turns.iter().any(|turn| matches!(turn, Turn::User(_))) {
        ask_with_the_system_text(&mut turns);
    }
    turns
}

fn turn(message: &Message, native: bool) -> Turn {
    match message {
        Message::System(text) => Turn::System(text.clone()),
        Message::User(text) => Turn::User(text.clone()),
        Message::Assistant(text) => Turn::Assistant {
            text: text.clone(),
            calls: Vec::new(),
        },
        Message::ToolCall {
            id,
            name,
            arguments,
            thought,
        } if native => Turn::Assistant {
            // Anthropic refuses text that is all white space.
            text: match thought.trim() {
                "" => String::new(),
                _ => thought.clone(),
            },
            calls: vec![ToolCall {
                id: portable_id(id),
                name: portable_name(name),
                arguments: as_object(arguments),
            }],
        },
        Message::ToolResult { id, name, content } if native => Turn::Results(vec![Outcome {
            id: portable_id(id),
            name: portable_name(name),
            content: content.clone(),
        }]),
        Message::ToolCall {
            name,
            arguments,
            thought,
            ..
        } => {
            let args = as_object(arguments);
            let text = format!("{thought}\nAction: {name}\nArgs: {args}");
            Turn::Assistant {
                text: text.trim_start().to_owned(),
                calls: Vec::new(),
            }
        }
        Message::ToolResult { name, content, .. } => {
            Turn::User(format!("Observation from `{name}`: {content}"))
        }
    }
}

/// A prompt may be all system text; providers want somebody to have asked something.
fn ask_with_the_system_text(turns: &mut [Turn]) {
    let last = turns
        .iter_mut()
        .rev()
        .find(|turn| matches!(turn, Turn::System(_)));
    if let Some(turn) = last
        && let Turn::System(text) = turn
    {
        *turn = Turn::User(std::mem::take(text));
    }
}

/// All system text, for providers that want it apart.
pub(super) fn system_text(turns: &[Turn]) -> String {
    let texts = turns.iter().filter_map(|turn| match turn {
        Turn::System(text) => Some(text.as_str()),
        Turn::User(_) | Turn::Assistant { .. } | Turn::Results(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// The schema of a tool's arguments.
pub(super) fn parameters(tool: &ToolSpec) -> Value {
    if tool.parameters.is_object() {
        tool.parameters.clone()
    } else {
        json!({"type": "object", "properties": {}})
    }
}

/// Arguments of a recorded call as the object every provider insists on.
fn as_object(arguments: &Value) -> Value {
    match arguments {
        Value::Object(_) => arguments.clone(),
        Value::Null => json!({}),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            json!({ "input": arguments })
        }
    }
}

/// A call id that every provider accepts. A transcript may come from another provider's call.
fn portable_id(id: &str) -> String {
    let safe: String = id
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') {
                c
            } else {
                '_'
            }
        })
        .collect();
    if safe.is_empty() {
        "call".to_owned()
    } else {
        safe
    }
}
