//! The generated files, as values: what the generator writes and the currency test compares.

use agentfleet_schema::json_schema;
use std::error::Error;

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
    Ok(outputs)
}
