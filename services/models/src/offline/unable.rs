//! The patterns that take a judgement, and so a language model. A question may still ask for one by name;
//! its steps then say what they cannot.

use super::inputs::{options, text};
use serde_json::Value;

const UNABLE: [(&str, &str); 3] = [
    ("reflexion", "criticising one's own steps"),
    ("debate", "arguing, and weighing what others argue"),
    ("router", "telling whom a message is meant for"),
];

/// Adds to the choice of a pattern which of those on offer could not be worked, and why.
pub(super) fn told(mut choice: Value, inputs: &Value) -> Value {
    let offered = options(inputs, "patterns");
    let said: Vec<String> = UNABLE
        .iter()
        .filter(|(name, _)| offered.iter().any(|option| option.name == *name))
        .map(|(name, takes)| format!("`{name}` ({takes})"))
        .collect();
    if !said.is_empty() {
        let rationale = text(&choice, "rationale");
        choice["rationale"] = format!(
            "{rationale}. These take a language model to work as they are meant: {}",
            said.join(", ")
        )
        .into();
    }
    choice
}
