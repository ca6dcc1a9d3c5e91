//! What a server offers, as items of the config. All of it is somebody else's text: it is bounded, and what
//! cannot be had is left out by name.

use super::Listed;
use crate::openapi::Imported;
use crate::schemas::{MAX_DESCRIPTION, MAX_SCHEMA, Whole};
use agentfleet_schema::config::{Effect, McpServer, ToolItem, fits, tool_kind};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};

/// How tools are named and which are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Put before each name.
    pub prefix: &'a str,
    /// A glob that names have to fit, prefix included.
    pub only: &'a str,
}

/// The name of the tool that reads resources, behind the prefix.
const READ: &str = "read_resource";

/// The items of what a server offers.
pub(crate) fn tools(server: &McpServer, listed: &Listed, wanted: Wanted<'_>) -> Imported {
    let mut imported = Imported::default();
    let offered = listed.tools.iter().map(|tool| {
        let name = format!("{}{}", wanted.prefix, plain(&tool.name));
        (name, item(server, tool))
    });
    let reader = reader(server, listed).map(|item| (format!("{}{READ}", wanted.prefix), Ok(item)));
    for (name, item) in offered.chain(reader) {
        if !fits(wanted.only, &name) {
            continue;
        }
        let is_twice = imported.tools.iter().any(|one| one.name == name);
        match item {
            _ if is_twice => {
                let says = format!("{name}: another tool has this name");
                imported.left_out.push(says);
            }
            Ok(item) => imported.tools.push(ToolItem { name, ..item }),
            Err(why) => imported.left_out.push(format!("{name}: {why}")),
        }
    }
    imported
}

/// A name with the characters that names of tools have.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = name.chars();
    name.map(|c| if is_plain(c) { c } else { '_' }).collect()
}

fn item(server: &McpServer, tool: &Tool) -> Result<ToolItem, String> {
    let annotations = tool.annotations.as_ref();
    let title = annotations.and_then(|one| one.title.as_deref());
    let texts = [tool.description.as_deref(), tool.title.as_deref(), title];
    let text = texts
        .into_iter()
        .flatten()
        .find(|text| !text.trim().is_empty());
    Ok(ToolItem {
        description: shortened(text.unwrap_or(&tool.name)),
        parameters: Some(parameters(tool)?),
        tool: Some(tool.name.to_string()),
        effect: Some(annotations.map_or(Effect::NotIdempotent, effect)),
        ..of(server)
    })
}

fn of(server: &McpServer) -> ToolItem {
    ToolItem {
        kind: tool_kind::MCP.to_owned(),
        group: vec!["default".to_owned()],
        applicable_states: vec!["*".to_owned()],
        server: Some(server.name.clone()),
        ..ToolItem::default()
    }
}

/// What the server says that a call does. Without a word the call is made once.
fn effect(annotations: &ToolAnnotations) -> Effect {
    let says = |hint: Option<bool>| hint == Some(true);
    if says(annotations.read_only_hint) {
        Effect::ReadOnly
    } else if says(annotations.destructive_hint) {
        Effect::Destructive
    } else if says(annotations.idempotent_hint) {
        Effect::Idempotent
    } else {
        Effect::NotIdempotent
    }
}

/// The arguments of a tool, as an item has them.
pub(crate) fn parameters(tool: &Tool) -> Result<Value, String> {
    let given = Value::Object((*tool.input_schema).clone());
    let whole = Whole::of(&given);
    let mut schema = whole.value(&given);
    if let Some(reference) = whole.missing() {
        return Err(format!(
            "its schema refers to `{reference}`, which is not there"
        ));
    }
    if let Value::Object(fields) = &mut schema {
        for field in ["$schema", "$defs", "definitions", "title"] {
            fields.remove(field);
        }
        fields.entry("type").or_insert_with(|| "object".into());
        fields.entry("properties").or_insert_with(|| json!({}));
    }
    if schema.to_string().len() > MAX_SCHEMA {
        return Err(format!("its schema has more than {MAX_SCHEMA} bytes"));
    }
    Ok(schema)
}

/// The tool that reads the resources of a server, if there are any.
fn reader(server: &McpServer, listed: &Listed) -> Option<ToolItem> {
    let fixed = listed.resources.iter();
    let fixed = fixed.map(|one| (&one.uri, &one.name, one.description.as_deref()));
    let filled = listed.templates.iter();
    let filled = filled.map(|one| (&one.uri_template, &one.name, one.description.as_deref()));
    let told: Vec<String> = fixed
        .chain(filled)
        .map(|(uri, name, text)| {
            let text = text.map_or_else(String::new, |text| format!(": {text}"));
            format!("{uri} ({name}{text})")
        })
        .collect();
    if told.is_empty() {
        return None;
    }
    let text = format!(
        "Read a resource of {} by its URI. There are: {}",
        server.name,
        told.join("; ")
    );
    let uri = json!({"type": "string", "description": "URI of the resource"});
    Some(ToolItem {
        description: shortened(&text),
        parameters: Some(json!({
            "type": "object", "properties": {"uri": uri}, "required": ["uri"],
        })),
        resource: Some("{+uri}".to_owned()),
        effect: Some(Effect::ReadOnly),
        ..of(server)
    })
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(MAX_DESCRIPTION).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rmcp::model::ResourceTemplate;

    fn tool(value: Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    fn imported(tools_of: Vec<Value>, only: &str) -> Imported {
        let listed = Listed {
            tools: tools_of.into_iter().map(tool).collect(),
            templates: vec![ResourceTemplate::new("notes://{day}", "notes")],
            ..Listed::default()
        };
        let server = McpServer {
            name: "diary".into(),
            ..McpServer::default()
        };
        let prefix = "diary.";
        tools(&server, &listed, Wanted { prefix, only })
    }

    #[test]
    fn hints_become_effects_and_none_is_not_idempotent() {
        let hints = [
            (
                json!({"readOnlyHint": true, "destructiveHint": true}),
                "read-only",
            ),
            (
                json!({"destructiveHint": true, "idempotentHint": true}),
                "destructive",
            ),
            (
                json!({"destructiveHint": false, "idempotentHint": true}),
                "idempotent",
            ),
            (json!({"readOnlyHint": false}), "not-idempotent"),
            (Value::Null, "not-idempotent"),
        ];
        for (hint, expected) in hints {
            let made = imported(
                vec![json!({"name": "t", "inputSchema": {}, "annotations": hint})],
                "*.t",
            );
            assert_eq!(made.tools[0].effect().as_str(), expected, "{hint}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_left_out_by_name() {
        let long = "x".repeat(MAX_SCHEMA);
        let made = imported(
            vec![
                json!({"name": "write day", "description": " Writes. ", "inputSchema": {
                    "$schema": "x", "type": "object", "properties": {"day": {"$ref": "#/$defs/Day"}},
                    "$defs": {"Day": {"type": "string"}}}}),
                json!({"name": "write/day", "inputSchema": {}}),
                json!({"name": "elsewhere", "inputSchema": {"properties": {"a": {"$ref": "http://x/y"}}}}),
                json!({"name": "long", "inputSchema": {"properties": {"a": {"description": long}}}}),
            ],
            "*",
        );
        assert_eq!(
            made.left_out,
            [
                "diary.write_day: another tool has this name",
                "diary.elsewhere: its schema refers to `http://x/y`, which is not there",
                "diary.long: its schema has more than 32768 bytes",
            ]
        );
        let [write, read] = &made.tools[..] else {
            unreachable!("{made:?}");
        };
        assert_eq!(write.tool.as_deref(), Some("write day"));
        assert_eq!(write.description, "Writes.");
        let schema = json!({"type": "object", "properties": {"day": {"type": "string"}}});
        assert_eq!(write.parameters, Some(schema));
        assert_eq!(
            (read.name.as_str(), read.effect()),
            ("diary.read_resource", Effect::ReadOnly)
        );
        assert!(read.description.ends_with("notes://{day} (notes)"));
    }
}
