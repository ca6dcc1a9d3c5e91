//! Whether arguments fit what a tool declares.

use agentfleet_schema::arguments::Arguments;
use agentfleet_schema::config::{ToolArgument, ToolItem};
use std::collections::BTreeMap;

/// An error text if the arguments do not fit a tool that declares them.
pub(crate) fn misused(tool: &ToolItem, arguments: &BTreeMap<String, String>) -> Option<String> {
    let declared = tool.declared();
    if declared.is_empty() && tool.parameters.is_none() {
        // Kinds with fixed arguments check them themselves.
        return None;
    }
    let faults = match Arguments::check(&declared, arguments) {
        Ok(arguments) => unfit(tool, &arguments)?,
        Err(faults) => faults,
    };
    Some(format!("Error: tool `{}`: {faults}", tool.name))
}

/// Required arguments that a call has not.
pub(super) fn missing(tool: &ToolItem, given: &BTreeMap<String, String>) -> Vec<ToolArgument> {
    let mut declared = tool.declared();
    declared.retain(|one| {
        let text = given.get(&one.name);
        one.required && text.is_none_or(|text| text.trim().is_empty())
    });
    declared
}

/// What of typed arguments is outside the tool's schema.
fn unfit(tool: &ToolItem, arguments: &Arguments) -> Option<String> {
    let schema = tool.parameters.as_ref()?;
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        // The config refuses such a schema; a run may be pinned to a version that is older than that rule.
        Err(error) => return Some(format!("its `parameters` are no JSON Schema: {error}")),
    };
    let value = arguments.to_value();
    let faults: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| {
            let path = error.instance_path().to_string();
            match path.trim_start_matches('/') {
                "" => error.to_string(),
                path => format!("argument `{}`: {error}", path.replace('/', ".")),
            }
        })
        .collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}
