//! The variables a prompt was rendered from, read tolerantly: a missing or odd one is empty.

use crate::{Message, ModelRequest};
use serde_json::{Map, Value};

/// A text variable.
pub(super) fn text<'a>(inputs: &'a Value, name: &str) -> &'a str {
    inputs.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A list variable.
pub(super) fn list<'a>(inputs: &'a Value, name: &str) -> &'a [Value] {
    inputs
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A number variable.
pub(super) fn number(inputs: &Value, name: &str) -> Option<u64> {
    let value = inputs.get(name)?;
    value
        .as_u64()
        .or_else(|| value.as_str()?.trim().parse().ok())
}

pub(super) fn flag(inputs: &Value, name: &str) -> bool {
    inputs
        .get(name)
        .and_then(Value::as_bool)
        .unwrap_or_default()
}

/// Something to choose among.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choosable {
    pub name: String,
    pub description: String,
    pub when_to_use: String,
}

/// The options in a list variable: objects, or names alone.
pub(super) fn options(inputs: &Value, name: &str) -> Vec<Choosable> {
    list(inputs, name)
        .iter()
        .filter_map(|option| match option {
            Value::String(name) => Some(Choosable {
                name: name.clone(),
                ..Choosable::default()
            }),
            Value::Object(_) => Some(Choosable {
                name: text(option, "name").to_owned(),
                description: text(option, "description").to_owned(),
                when_to_use: text(option, "when_to_use").to_owned(),
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        })
        .filter(|option| !option.name.is_empty())
        .collect()
}

/// A tool an agent may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolInfo {
    pub name: String,
    pub description: String,
    pub arguments: Vec<ArgumentInfo>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArgumentInfo {
    pub name: String,
    pub description: String,
    pub is_text: bool,
    pub required: bool,
}

/// The tools offered: from the variables, or as native specifications.
pub(super) fn tools(request: &ModelRequest) -> Vec<ToolInfo> {
    let listed = list(&request.inputs, "tools");
    if !listed.is_empty() {
        return listed
            .iter()
            .map(tool)
            .filter(|tool| !tool.name.is_empty())
            .collect();
    }
    request
        .tools
        .iter()
        .map(|spec| ToolInfo {
            name: spec.name.clone(),
            description: spec.description.clone(),
            arguments: of_schema(&spec.parameters),
        })
        .collect()
}

fn tool(value: &Value) -> ToolInfo {
    let arguments = match value.get("arguments") {
        Some(Value::Array(arguments)) => arguments.iter().map(argument).collect(),
        Some(schema @ Value::Object(_)) => of_schema(schema),
        _ => Vec::new(),
    };
    ToolInfo {
        name: text(value, "name").to_owned(),
        description: text(value, "description").to_owned(),
        arguments,
    }
}

fn argument(value: &Value) -> ArgumentInfo {
    ArgumentInfo {
        name: text(value, "name").to_owned(),
        description: text(value, "description").to_owned(),
        is_text: matches!(text(value, "type"), "" | "string" | "text"),
        required: value
            .get("required")
            .and_then(Value::as_bool)
            .unwrap_or(true),
    }
}

fn of_schema(schema: &Value) -> Vec<ArgumentInfo> {
    let required = list(schema, "required");
    let empty = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    properties
        .iter()
        .map(|(name, property)| ArgumentInfo {
            name: name.clone(),
            description: text(property, "description").to_owned(),
            is_text: matches!(text(property, "type"), "" | "string"),
            required: required.iter().any(|r| r.as_str() == Some(name)),
        })
        .collect()
}

/// A call made earlier, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PastCall {
    pub tool: String,
    pub arguments: Vec<(String, String)>,
    pub observation: String,
}

/// The calls so far: from the history, or from native messages. Steps that called no tool on offer
/// (a plan, a reply that could not be read) found nothing out.
pub(super) fn past_calls(request: &ModelRequest, tools: &[ToolInfo]) -> Vec<PastCall> {
    let is_call = |name: &str| {
        !name.is_empty() && (tools.is_empty() || tools.iter().any(|tool| tool.name == name))
    };
    let history: Vec<PastCall> = list(&request.inputs, "history")
        .iter()
        .filter(|step| is_call(text(step, "action")))
        .map(|step| PastCall {
            tool: text(step, "action").to_owned(),
            arguments: pairs(step.get("arguments").unwrap_or(&Value::Null)),
            observation: text(step, "observation").to_owned(),
        })
        .collect();
    if !history.is_empty() {
        return history;
    }
    let mut calls: Vec<(&str, PastCall)> = Vec::new();
    for message in &request.messages {
        match message {
            Message::ToolCall {
                id,
                name,
                arguments,
                ..
            } => {
                let call = PastCall {
                    tool: name.clone(),
                    arguments: pairs(arguments),
                    observation: String::new(),
                };
                calls.push((id.as_str(), call));
            }
            Message::ToolResult { id, content, .. } => {
                if let Some((_, call)) = calls.iter_mut().rev().find(|(known, _)| known == id) {
                    call.observation.clone_from(content);
                }
            }
            Message::System(_) | Message::User(_) | Message::Assistant(_) => {}
        }
    }
    calls.into_iter().map(|(_, call)| call).collect()
}

fn pairs(arguments: &Value) -> Vec<(String, String)> {
    let empty = Map::new();
    let map = arguments.as_object().unwrap_or(&empty);
    map.iter()
        .map(|(name, value)| {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), value)
        })
        .collect()
}
