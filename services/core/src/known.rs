//! What tools gave that later calls may need: ids and named values, as each tool's `outputs` declare them. They
//! travel with the run's messages apart from its history, so that no summary of it loses them, and are shown to
//! whoever decides on the next call.
//!
//! Nothing is kept that no item declares: a result is text of a stranger, and may not choose the names under
//! which later calls are filled.

use agentfleet_schema::arguments::Arguments;
use agentfleet_schema::config::{ToolArgument, ToolItem};
use agentfleet_schema::{AgentRequest, Known};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Most values that a run keeps; the oldest goes first.
const MOST: usize = 40;
/// Bytes of the longest value that is kept.
const LONGEST: usize = 400;
/// Below it, numbers with a fraction are what they seem to be.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Keeps what a result gives, under its newest value. A name that the tool declares and this result has no value
/// for is known no more: what was found before is not what was looked for last.
pub(crate) fn keep(request: &mut AgentRequest, tool: &ToolItem, content: &str) {
    if tool.outputs.is_empty() {
        return;
    }
    let result = serde_json::from_str::<Value>(content).unwrap_or_default();
    let known = &mut request.control.known;
    for (name, pointer) in &tool.outputs {
        known.retain(|one| one.name != *name);
        if let Some(value) = result.pointer(pointer).and_then(scalar) {
            known.push(Known {
                name: name.clone(),
                value,
                tool: tool.name.clone(),
            });
        }
    }
    let over = known.len().saturating_sub(MOST);
    known.drain(..over);
}

/// A value that fits on a line; what is longer is no id.
fn scalar(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        // A longer one has lost digits when it was read.
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        Value::Number(number) if number.as_f64().is_some_and(|n| n.abs() < EXACT) => {
            number.to_string()
        }
        Value::Number(_) | Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => {
            return None;
        }
    };
    let fits = !text.is_empty() && text.len() <= LONGEST && !text.contains(char::is_control);
    fits.then_some(text)
}

/// What prompts show of it.
pub(crate) fn shown(request: &AgentRequest) -> Value {
    let known = request.control.known.iter();
    known
        .map(|one| json!({"name": one.name, "value": one.value, "tool": one.tool}))
        .collect()
}

/// The value for an argument that a call lacks: what is known under its name, or under another that the
/// tool gives it, or else the one value of the argument's format, where no other argument has that. It has to
/// fit what the tool's schema says of the argument.
pub(crate) fn value_for<'a>(
    known: &'a [Known],
    tool: &ToolItem,
    argument: &ToolArgument,
) -> Option<&'a Known> {
    let fits = |one: &&Known| {
        let given = BTreeMap::from([(argument.name.clone(), one.value.clone())]);
        let read = Arguments::check(std::slice::from_ref(argument), &given);
        let value = read.ok().and_then(|read| read.get(&argument.name).cloned());
        value.is_some_and(|value| is_valid(tool, &argument.name, &value))
    };
    let named = |name: &str| {
        let mut newest = known.iter().rev();
        newest.find(|one| one.name == name).filter(fits)
    };
    let aliases = tool.aliases.get(&argument.name).into_iter().flatten();
    named(&argument.name)
        .or_else(|| aliases.into_iter().find_map(|alias| named(alias)))
        .or_else(|| of_format(known, tool, &argument.name).filter(fits))
}

/// Whether a value is what the tool's schema says of an argument.
fn is_valid(tool: &ToolItem, name: &str, value: &Value) -> bool {
    let Some(parameters) = &tool.parameters else {
        return true;
    };
    let property = &parameters["properties"][name];
    jsonschema::validator_for(property).is_ok_and(|validator| validator.is_valid(value))
}

/// The value of the format that the tool's schema wants, where just one is known.
fn of_format<'a>(known: &'a [Known], tool: &ToolItem, name: &str) -> Option<&'a Known> {
    let property = &tool.parameters.as_ref()?["properties"][name];
    let format = property.get("format")?;
    let all = tool.parameters.as_ref()?["properties"].as_object()?;
    if all
        .values()
        .filter(|other| other.get("format") == Some(format))
        .count()
        > 1
    {
        return None;
    }
    let schema = json!({"type": "string", "format": format});
    let options = jsonschema::options();
    let validator = options.should_validate_formats(true).build(&schema).ok()?;
    // A format that nobody knows takes everything.
    if validator.is_valid(&Value::from("\u{1}")) {
        return None;
    }
    let fitting = known
        .iter()
        .filter(|one| validator.is_valid(&Value::from(one.value.as_str())));
    let fitting: Vec<&Known> = fitting.collect();
    let values: BTreeSet<&str> = fitting.iter().map(|one| one.value.as_str()).collect();
    fitting.last().copied().filter(|_| values.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(value: Value) -> ToolItem {
        serde_json::from_value(value).unwrap_or_default()
    }

    #[test]
    fn what_is_declared_is_kept_once_and_bounded() {
        let fetch = tool(json!({"name": "contact.find", "type": "http", "outputs": {
            "contact_id": "/id", "contact_email": "/mail/0", "note": "/note", "whole": ""}}));
        let mut request = AgentRequest::default();
        let kept = |request: &AgentRequest| -> Vec<String> {
            let known = request.control.known.iter();
            known
                .map(|one| format!("{}={}", one.name, one.value))
                .collect()
        };
        for (content, expected) in [
            ("no JSON", vec![]),
            (r#"{"other": 1}"#, vec![]),
            (
                r#"{"id": 7, "mail": ["a@b.example"], "note": {"x": 1}}"#,
                vec!["contact_email=a@b.example", "contact_id=7"],
            ),
            // What it has no value for is known no more.
            (r#"{"id": " abc "}"#, vec!["contact_id=abc"]),
            (r#"{"id": "two\nlines"}"#, vec![]),
            (r#"{"id": 12345678901234567890123}"#, vec![]),
            (r#"{"id": true}"#, vec![]),
            (r#"{"id": "abc"}"#, vec!["contact_id=abc"]),
            ("found nobody", vec![]),
        ] {
            keep(&mut request, &fetch, content);
            assert_eq!(kept(&request), expected, "{content}");
        }
        let long = json!({"id": "x".repeat(LONGEST + 1)}).to_string();
        keep(&mut request, &fetch, &long);
        assert!(kept(&request).is_empty());
        for n in 0..MOST {
            let one =
                tool(json!({"name": "t", "type": "http", "outputs": {(format!("n{n}")): "/id"}}));
            keep(&mut request, &one, r#"{"id": 1}"#);
        }
        assert_eq!(request.control.known.len(), MOST);
        assert_eq!(kept(&request)[0], "n0=1");
    }

    #[test]
    fn an_argument_is_filled_by_name_alias_and_format() {
        let send = tool(json!({"name": "mail.send", "type": "http",
            "aliases": {"contact": ["contact_id"]},
            "parameters": {"type": "object", "required": ["contact", "to", "n", "made_up"], "properties": {
                "contact": {"type": "string"}, "to": {"type": "string", "format": "email"},
                "n": {"type": "integer"}, "made_up": {"type": "string", "format": "no-such-format"}}}}));
        let known = |pairs: &[(&str, &str)]| -> Vec<Known> {
            let one = |(name, value): &(&str, &str)| Known {
                name: (*name).to_owned(),
                value: (*value).to_owned(),
                tool: "t".to_owned(),
            };
            pairs.iter().map(one).collect()
        };
        let all = known(&[("contact_id", "c1"), ("mail", "a@b.example"), ("n", "x")]);
        let filled = |known: &[Known], name: &str| {
            let declared = send.declared();
            let argument = declared.iter().find(|one| one.name == name)?;
            value_for(known, &send, argument).map(|one| one.value.clone())
        };
        assert_eq!(filled(&all, "contact").as_deref(), Some("c1"));
        assert_eq!(filled(&all, "to").as_deref(), Some("a@b.example"));
        assert_eq!(filled(&all, "n"), None, "`x` is no number");
        assert_eq!(filled(&all, "made_up"), None);
        let two = known(&[("mail", "a@b.example"), ("copy", "c@d.example")]);
        assert_eq!(filled(&two, "to"), None, "two would do");
        let pair = tool(
            json!({"name": "copy", "type": "http", "parameters": {"type": "object",
            "required": ["from", "to", "kind"], "properties": {
                "from": {"type": "string", "format": "email"}, "to": {"type": "string", "format": "email"},
                "kind": {"type": "string", "enum": ["a", "b"]}}}}),
        );
        let all = known(&[("mail", "a@b.example"), ("kind", "c")]);
        for argument in pair.declared() {
            assert_eq!(value_for(&all, &pair, &argument), None, "{}", argument.name);
        }
    }
}
