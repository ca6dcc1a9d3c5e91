//! What is set right about arguments where nothing is lost by it: another name of an argument, a default, the
//! case of a value that the tool lists, and a required one that is missing and that a tool gave before.

use crate::{known, say};
use agentfleet_schema::Known;
use agentfleet_schema::config::{ToolArgument, ToolItem};
use agentfleet_schema::records::Decision;
use agentfleet_schema::tolerant::text_of;
use serde_json::Value;
use std::collections::BTreeMap;

/// Subject of the decision that arguments were set right.
const SUBJECT: &str = "tool-arguments";

/// The arguments as the tool declares them, as far as no judgement is needed.
pub(crate) fn arguments(
    tool: &ToolItem,
    given: &BTreeMap<String, String>,
    known: &[Known],
    decided: &mut Vec<Decision>,
) -> BTreeMap<String, String> {
    let mut healed = given.clone();
    let mut changes = Vec::new();
    let declared = tool.declared();
    for argument in &declared {
        let name = &argument.name;
        let aliases = tool.aliases.get(name).map_or(&[][..], Vec::as_slice);
        rename(&declared, name, aliases, &mut healed, &mut changes);
        let property = tool
            .parameters
            .as_ref()
            .map(|schema| &schema["properties"][name.as_str()]);
        if let Some(property) = property {
            fill(name, property, &mut healed, &mut changes);
            listed(name, property, &mut healed, &mut changes);
        }
        // What the model says, if only that there is nothing, is not said otherwise.
        if argument.required && !healed.contains_key(name) {
            recall(known, tool, argument, &mut healed, &mut changes);
        }
    }
    if !changes.is_empty() {
        decided.push(say::only(
            SUBJECT,
            "healed",
            format!("what tool `{}` declares", tool.name),
            changes.join("; "),
        ));
    }
    healed
}

fn is_missing(arguments: &BTreeMap<String, String>, name: &str) -> bool {
    let given = arguments.get(name);
    given.is_none_or(|text| text.trim().is_empty())
}

/// Takes a value that stands under another name of an argument, where just one does.
fn rename(
    declared: &[ToolArgument],
    name: &str,
    aliases: &[String],
    arguments: &mut BTreeMap<String, String>,
    changes: &mut Vec<String>,
) {
    if !is_missing(arguments, name) {
        return;
    }
    let plain = |s: &str| s.to_lowercase().replace(['_', '-', '.', ' '], "");
    let is_other = |given: &&String| {
        let is_declared = declared.iter().any(|one| one.name == **given);
        !is_declared && (aliases.contains(given) || plain(given) == plain(name))
    };
    let others: Vec<String> = arguments.keys().filter(is_other).cloned().collect();
    if let [other] = others.as_slice()
        && let Some(value) = arguments.remove(other)
    {
        changes.push(format!("`{other}` is read as `{name}`"));
        arguments.insert(name.to_owned(), value);
    }
}

fn fill(
    name: &str,
    property: &Value,
    arguments: &mut BTreeMap<String, String>,
    changes: &mut Vec<String>,
) {
    if let Some(default) = property.get("default")
        && is_missing(arguments, name)
    {
        let text = text_of(default.clone());
        changes.push(format!(
            "`{name}` is `{}` by default",
            say::in_one_line(&text)
        ));
        arguments.insert(name.to_owned(), text);
    }
}

/// Takes what a tool gave before.
fn recall(
    known: &[Known],
    tool: &ToolItem,
    argument: &ToolArgument,
    arguments: &mut BTreeMap<String, String>,
    changes: &mut Vec<String>,
) {
    if let Some(one) = known::value_for(known, tool, argument) {
        changes.push(format!(
            "`{}` was missing, and is `{}`: `{}` of `{}`",
            argument.name,
            say::in_one_line(&one.value),
            one.name,
            one.tool
        ));
        arguments.insert(argument.name.clone(), one.value.clone());
    }
}

/// Takes the one value of a list that a given one differs from in case alone.
fn listed(
    name: &str,
    property: &Value,
    arguments: &mut BTreeMap<String, String>,
    changes: &mut Vec<String>,
) {
    let values = property["enum"].as_array().into_iter().flatten();
    let values: Vec<&str> = values.filter_map(Value::as_str).collect();
    let Some(given) = arguments.get_mut(name) else {
        return;
    };
    let same = |value: &&&str| value.eq_ignore_ascii_case(given.trim());
    let alike: Vec<&&str> = values.iter().filter(same).collect();
    if let [value] = alike.as_slice()
        && **value != given.as_str()
    {
        changes.push(format!("`{name}` is read as `{value}`"));
        (**value).clone_into(given);
    }
}
