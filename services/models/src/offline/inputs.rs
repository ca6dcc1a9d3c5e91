//! The variables a prompt was rendered from, read tolerantly: a missing or odd one is empty.

use serde_json::Value;

/// A text variable.
pub(super) fn text<'a>(inputs: &'a Value, name: &str) -> &'a str {
    inputs.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A list variable.
pub(super) fn list<'a>(inputs: &'a Value, name: &str) -> &'a [Value] {
    let list = inputs.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// A number variable.
pub(super) fn number(inputs: &Value, name: &str) -> Option<u64> {
    let value = inputs.get(name)?;
    value
        .as_u64()
        .or_else(|| value.as_str()?.trim().parse().ok())
}

pub(super) fn flag(inputs: &Value, name: &str) -> bool {
    inputs.get(name).and_then(Value::as_bool) == Some(true)
}

/// Something to choose among.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choosable {
    pub name: String,
    pub description: String,
}

/// The options in a list variable: objects, or names alone.
pub(super) fn options(inputs: &Value, name: &str) -> Vec<Choosable> {
    let options = list(inputs, name).iter().map(|option| Choosable {
        name: option
            .as_str()
            .unwrap_or_else(|| text(option, "name"))
            .to_owned(),
        description: text(option, "description").to_owned(),
    });
    options.filter(|option| !option.name.is_empty()).collect()
}

/// A call made earlier, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PastCall {
    pub tool: String,
    /// The texts that it was made with.
    pub asked: Vec<String>,
    pub observation: String,
}

/// The calls so far.
pub(super) fn past_calls(inputs: &Value) -> Vec<PastCall> {
    let calls = list(inputs, "history").iter().map(|step| PastCall {
        tool: text(step, "action").to_owned(),
        asked: step
            .get("arguments")
            .and_then(Value::as_object)
            .map(|all| all.values().filter_map(Value::as_str).map(str::to_owned))
            .map(Iterator::collect)
            .unwrap_or_default(),
        observation: text(step, "observation").to_owned(),
    });
    calls.filter(|call| !call.tool.is_empty()).collect()
}
