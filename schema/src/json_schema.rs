//! JSON Schemas of every message and config item, exactly as tolerant as the decoders.
//!
//! The shapes come from the types. What a decoder forgives beyond them (`null` for a missing value,
//! response types of newer peers, arguments that are no text, other names of a field) is asked of
//! the decoder itself, so that a schema never refuses what the product reads.
//! `cargo run -p agentfleet-schema --example generate` writes them to `schema/json-schema/`.

use crate::config::{self, item_type};
use crate::records::ForkedFrom;
use crate::{
    AgentRequest, AgentResponse, AgentStep, Ancestor, ErrorBody, Exchange, HeldCall, Lineage,
    Metadata, PlanStep, RoutingContext, RunControl, RunLimits, Source, Term, ToolServiceRequest,
    ToolServiceResponse, Triple, Triples,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The messages: file stem and schema.
pub fn messages() -> Vec<(&'static str, Value)> {
    vec![
        ("agent-request", of::<AgentRequest>()),
        ("agent-step", of::<AgentStep>()),
        ("plan-step", of::<PlanStep>()),
        ("agent-response", of::<AgentResponse>()),
        ("term", of::<Term>()),
        ("triple", of::<Triple>()),
        ("triples", of::<Triples>()),
        ("tool-service-request", of::<ToolServiceRequest>()),
        ("tool-service-response", of::<ToolServiceResponse>()),
    ]
}

/// The config items: item type, which is the file stem, and schema.
pub fn config_items() -> Vec<(&'static str, Value)> {
    item_type::ALL
        .iter()
        .filter_map(|name| Some((*name, config_item(name)?)))
        .collect()
}

/// The schema of one config item type; `None` if items of that type are not validated.
pub fn config_item(name: &str) -> Option<Value> {
    match name {
        item_type::AGENT_PATTERN => Some(of::<config::AgentPattern>()),
        item_type::AGENT_TASK_TYPE => Some(of::<config::AgentTaskType>()),
        item_type::PROMPT => Some(of::<config::PromptItem>()),
        item_type::TOOL => Some(of::<config::ToolItem>()),
        item_type::MODEL_PROFILE => Some(of::<config::ModelProfile>()),
        item_type::INTENT => Some(of::<config::Intent>()),
        item_type::SPECIALIST => Some(of::<config::Specialist>()),
        item_type::QUERY => Some(of::<config::QueryItem>()),
        item_type::MCP_SERVER => Some(of::<config::McpServer>()),
        item_type::ROLE => Some(of::<config::RoleItem>()),
        item_type::TENANT => Some(of::<config::TenantItem>()),
        item_type::TOOL_POLICY => Some(of::<config::ToolPolicy>()),
        item_type::TOOL_SERVICE => Some(of::<config::ToolService>()),
        _ => None,
    }
}

/// An object type with its decoder, asked for one property at a time.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// The name under which schemas refer to the type.
    pub name: fn() -> String,
    /// An instance with every default, as it is written.
    pub default: fn() -> Value,
    pub accepts: fn(Value) -> bool,
}

const fn decoder<T: JsonSchema + Default + Serialize + DeserializeOwned>() -> Decoder {
    Decoder {
        name: || T::schema_name().into_owned(),
        // Plain data: writing it as JSON cannot fail.
        default: || serde_json::to_value(T::default()).unwrap_or_default(),
        accepts: |value| serde_json::from_value::<T>(value).is_ok(),
    }
}

impl Decoder {
    /// Whether the decoder reads an instance with this property set to this value.
    pub fn takes(&self, property: &str, value: Value) -> bool {
        let mut instance = (self.default)();
        match &mut instance {
            Value::Object(map) => map.insert(property.to_owned(), value),
            _ => return false,
        };
        (self.accepts)(instance)
    }
}

/// Every object type that occurs in a message or config item.
pub const DECODERS: [Decoder; 54] = [
    decoder::<AgentRequest>(),
    decoder::<AgentStep>(),
    decoder::<PlanStep>(),
    decoder::<RunLimits>(),
    decoder::<RunControl>(),
    decoder::<Source>(),
    decoder::<Ancestor>(),
    decoder::<Exchange>(),
    decoder::<HeldCall>(),
    decoder::<Lineage>(),
    decoder::<crate::Principal>(),
    decoder::<crate::Memory>(),
    decoder::<crate::Known>(),
    decoder::<crate::Brief>(),
    decoder::<crate::PolicyPosition>(),
    decoder::<crate::QuotaLeft>(),
    decoder::<AgentResponse>(),
    decoder::<ErrorBody>(),
    decoder::<Term>(),
    decoder::<Triple>(),
    decoder::<Triples>(),
    decoder::<Metadata>(),
    decoder::<config::AgentPattern>(),
    decoder::<config::AgentTaskType>(),
    decoder::<config::TerminationCriteria>(),
    decoder::<config::PromptItem>(),
    decoder::<config::ToolItem>(),
    decoder::<config::ToolArgument>(),
    decoder::<config::RateLimit>(),
    decoder::<config::Approval>(),
    decoder::<config::ModelProfile>(),
    decoder::<config::Reasoner>(),
    decoder::<config::Intent>(),
    decoder::<config::Specialist>(),
    decoder::<RoutingContext>(),
    decoder::<ForkedFrom>(),
    decoder::<config::QueryItem>(),
    decoder::<config::QueryParameter>(),
    decoder::<config::McpServer>(),
    decoder::<config::OAuth>(),
    decoder::<config::RoleItem>(),
    decoder::<config::TenantItem>(),
    decoder::<config::Gate>(),
    decoder::<config::Constraint>(),
    decoder::<config::ToolPolicy>(),
    decoder::<config::PolicyStep>(),
    decoder::<config::Condition>(),
    decoder::<config::AvailableTools>(),
    decoder::<config::Evidence>(),
    decoder::<config::EvidenceRun>(),
    decoder::<config::ToolService>(),
    decoder::<config::ConfigParam>(),
    decoder::<ToolServiceRequest>(),
    decoder::<ToolServiceResponse>(),
];

/// Other names under which a decoder reads a property: type, alias, property.
pub const ALIASES: [(&str, &str, &str); 4] = [
    ("AgentRequest", "context_type", "task_type"),
    ("AgentRequest", "framing_prompt", "framing"),
    ("AgentTaskType", "framing", "framing_prompt"),
    ("ToolItem", "available_in_states", "applicable-states"),
];

fn of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = generator.into_root_schema_for::<T>().to_value();
    let name = T::schema_name();
    if let Value::Object(object) = &mut root {
        relax(&name, object);
        if let Some(Value::Object(definitions)) = object.get_mut("$defs") {
            for (name, definition) in definitions {
                if let Value::Object(definition) = definition {
                    relax(name, definition);
                }
            }
        }
    }
    unwrap_lines(&mut root);
    let Value::Object(mut body) = root else {
        return root;
    };
    // A reader wants to know first what it is.
    let mut ordered = Map::new();
    for key in ["$schema", "title", "description"] {
        if let Some(value) = body.remove(key) {
            ordered.insert(key.to_owned(), value);
        }
    }
    ordered.extend(body);
    Value::Object(ordered)
}

/// Joins the lines of descriptions, which are broken where the source is; paragraphs stay.
fn unwrap_lines(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(text)) = map.get_mut("description") {
                let paragraphs: Vec<String> =
                    text.split("\n\n").map(|p| p.replace('\n', " ")).collect();
                *text = paragraphs.join("\n\n");
            }
            map.values_mut().for_each(unwrap_lines);
        }
        Value::Array(list) => list.iter_mut().for_each(unwrap_lines),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makes the schema of one type as tolerant as its decoder.
fn relax(name: &str, schema: &mut Map<String, Value>) {
    if name == "MessageType" {
        // A type of a newer peer is read as unknown, so any text is valid.
        let known = schema.remove("oneOf").unwrap_or_default();
        schema.insert(
            "anyOf".into(),
            json!([{ "oneOf": known }, { "type": "string" }]),
        );
    }
    let Some(decoder) = DECODERS.iter().find(|decoder| (decoder.name)() == name) else {
        return;
    };
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    for (property, value) in properties.iter_mut() {
        let Value::Object(value) = value else {
            continue;
        };
        if decoder.takes(property, Value::Null) {
            allow_null(value);
        }
        let any_values = value.contains_key("additionalProperties")
            && decoder.takes(property, json!({"text": "a", "flag": true, "list": [1]}));
        if any_values {
            value.insert("additionalProperties".into(), Value::Bool(true));
        }
    }
    for (_, alias, property) in ALIASES.iter().filter(|(owner, ..)| *owner == name) {
        if let Some(mut other) = properties.get(*property).cloned() {
            if let Value::Object(other) = &mut other {
                let note = format!("Another name of `{property}`; a value has one of the two.");
                other.insert("description".into(), Value::String(note));
                other.remove("default");
            }
            properties.insert((*alias).to_owned(), other);
        }
    }
    // Both at once is a contradiction, and the decoder says so.
    let of_type = ALIASES.iter().filter(|(owner, ..)| *owner == name);
    let both: Vec<Value> = of_type
        .map(|(_, alias, property)| json!({ "required": [property, alias] }))
        .collect();
    match both.as_slice() {
        [] => {}
        [only] => {
            schema.insert("not".into(), only.clone());
        }
        several => {
            schema.insert("not".into(), json!({ "anyOf": several }));
        }
    }
}

fn allow_null(schema: &mut Map<String, Value>) {
    let is_null = |kind: &Value| kind == "null";
    let listed = |any: &Value| any.get("type").is_some_and(is_null);
    let any_of = schema.get("anyOf").and_then(Value::as_array);
    if any_of.is_some_and(|any| any.iter().any(listed)) {
        return;
    }
    match schema.get("type").cloned() {
        Some(Value::Array(kinds)) if kinds.iter().any(is_null) => {}
        Some(Value::String(kind)) if !schema.contains_key("enum") => {
            schema.insert("type".into(), json!([kind, "null"]));
        }
        _ => {
            let mut outer = Map::new();
            for note in ["description", "default"] {
                if let Some(value) = schema.remove(note) {
                    outer.insert(note.to_owned(), value);
                }
            }
            let own = Value::Object(std::mem::take(schema));
            outer.insert("anyOf".into(), json!([own, { "type": "null" }]));
            *schema = outer;
        }
    }
}
