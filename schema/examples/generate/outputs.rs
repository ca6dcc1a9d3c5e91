//! The generated files, as values: what the generator writes and the currency test compares.

use crate::dictionary;
use agentfleet_schema::json_schema;
use std::error::Error;

/// The ontology, as it is committed.
pub(crate) const ONTOLOGY: &str = include_str!("../../ontology/agentfleet.ttl");
/// The shapes, as they are committed.
pub(crate) const SHAPES: &str = include_str!("../../shapes/agentfleet.ttl");

/// A generated file.
#[derive(Debug)]
pub(crate) struct Output {
    /// Path from the top of the project.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every generated file.
pub(crate) fn all() -> Result<Vec<Output>, Box<dyn Error>> {
    let mut outputs = Vec::new();
    for (name, schema) in json_schema::messages()
        .into_iter()
        .chain(json_schema::config_items())
    {
        outputs.push(Output {
            path: format!("schema/json-schema/{name}.json"),
            text: serde_json::to_string_pretty(&schema)? + "\n",
        });
    }
    outputs.push(Output {
        path: "docs/data-dictionary.md".into(),
        text: dictionary::written(ONTOLOGY, SHAPES)?,
    });
    Ok(outputs)
}
