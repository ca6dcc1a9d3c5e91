//! Our messages and tools in the provider crate's terms.
//!
//! Invariants: a tool result follows the call it answers and shares its id; calls are sent as tool
//! calls only while tools are offered (a provider refuses a transcript with calls but no tools),
//! and as plain text otherwise; there is always a user message.

use super::ProviderKind;
use crate::{Message, ToolSpec};
use genai::chat::{
    ChatMessage, ChatRequest, ContentPart, MessageContent, Tool, ToolCall, ToolResponse,
};
use serde_json::Value;

/// The request for a provider of this kind.
pub(super) fn chat_request(
    kind: ProviderKind,
    messages: &[Message],
    tools: &[ToolSpec],
) -> ChatRequest {
    let native = !tools.is_empty();
    let mut out: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    let mut last = Turn::Other;
    for message in messages {
        let turn = match message {
            Message::ToolCall { .. } if native => Turn::Calls,
            Message::ToolResult { .. } if native => Turn::Results,
            Message::System(_)
            | Message::User(_)
            | Message::Assistant(_)
            | Message::ToolCall { .. }
            | Message::ToolResult { .. } => Turn::Other,
        };
        let parts = parts_of(message, native);
        // Calls of one turn go out as one message, and so do their results: Anthropic and Gemini
        // refuse anything else. Ollama's adapter sends one result per message, so there they stay
        // apart.
        let joins = match turn {
            Turn::Calls => last == Turn::Calls,
            Turn::Results => last == Turn::Results && kind != ProviderKind::Ollama,
            Turn::Other => false,
        };
        match out.last_mut() {
            Some(previous) if joins => {
                for part in parts {
                    previous.content.push(part);
                }
            }
            _ => out.push(with_role(message, native, parts)),
        }
        last = turn;
    }
    if !out
        .iter()
        .any(|m| matches!(m.role, genai::chat::ChatRole::User))
    {
        ask_with_the_system_text(&mut out);
    }
    let request = ChatRequest::new(out);
    if native {
        request.with_tools(tools.iter().map(tool).collect::<Vec<_>>())
    } else {
        request
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Calls,
    Results,
    Other,
}

fn parts_of(message: &Message, native: bool) -> Vec<ContentPart> {
    match message {
        Message::System(text) | Message::User(text) | Message::Assistant(text) => {
            vec![ContentPart::from_text(text.as_str())]
        }
        Message::ToolCall {
            id,
            name,
            arguments,
            thought,
        } if native => {
            let mut parts = Vec::new();
            if !thought.trim().is_empty() {
                parts.push(ContentPart::from_text(thought.as_str()));
            }
            parts.push(ContentPart::ToolCall(ToolCall {
                call_id: portable_id(id),
                fn_name: name.clone(),
                fn_arguments: as_object(arguments),
                thought_signatures: None,
            }));
            parts
        }
        Message::ToolResult { id, name, content } if native => {
            vec![ContentPart::ToolResponse(
                ToolResponse::new(portable_id(id), content.as_str()).with_fn_name(name.as_str()),
            )]
        }
        Message::ToolCall {
            name,
            arguments,
            thought,
            ..
        } => {
            let args = as_object(arguments);
            let text = format!("{thought}\nAction: {name}\nArgs: {args}");
            vec![ContentPart::from_text(text.trim_start())]
        }
        Message::ToolResult { name, content, .. } => {
            vec![ContentPart::from_text(format!(
                "Observation from `{name}`: {content}"
            ))]
        }
    }
}

fn with_role(message: &Message, native: bool, parts: Vec<ContentPart>) -> ChatMessage {
    let content = MessageContent::from_parts(parts);
    match message {
        Message::System(_) => ChatMessage::system(content),
        Message::Assistant(_) | Message::ToolCall { .. } => ChatMessage::assistant(content),
        Message::ToolResult { .. } if native => ChatMessage::tool(content),
        Message::User(_) | Message::ToolResult { .. } => ChatMessage::user(content),
    }
}

/// A prompt may be all system text; providers want somebody to have asked something.
fn ask_with_the_system_text(messages: &mut [ChatMessage]) {
    if let Some(system) = messages
        .iter_mut()
        .rev()
        .find(|m| matches!(m.role, genai::chat::ChatRole::System))
    {
        system.role = genai::chat::ChatRole::User;
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    let schema = if spec.parameters.is_object() {
        spec.parameters.clone()
    } else {
        serde_json::json!({"type": "object", "properties": {}})
    };
    Tool::new(spec.name.as_str())
        .with_description(spec.description.as_str())
        .with_schema(schema)
}

/// Arguments of a recorded call as the object every provider insists on.
fn as_object(arguments: &Value) -> Value {
    match arguments {
        Value::Object(_) => arguments.clone(),
        Value::Null => serde_json::json!({}),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            serde_json::json!({ "input": arguments })
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
