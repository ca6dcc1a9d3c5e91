//! The file format of scripts.
//!
//! ```json
//! {
//!   "native-tools": false,
//!   "rules": [
//!     {
//!       "operation": "agent-react",
//!       "contains": ["Observation:"],
//!       "matches": "(?i)financ",
//!       "steps": 1,
//!       "times": 1,
//!       "text": "Thought: enough.\nFinal Answer: 42",
//!       "words": true,
//!       "pause-ms": 20,
//!       "tool-calls": [{"id": "1", "name": "search", "arguments": {"query": "x"}}],
//!       "usage": {"input_tokens": 10, "output_tokens": 3},
//!       "cut": true
//!     },
//!     {"fail": "the provider is overloaded", "retry-after-ms": 100},
//!     {"times": 1, "garbled": "<html>"}
//!   ]
//! }
//! ```
//! Every field of a rule may be left out; a rule without conditions answers everything. An unknown
//! field is an error: a misspelt condition would match too much. A reply without a word is none. `tool-calls` are all made in the one
//! reply, in order; `cut` ends the reply as the limit of tokens ends one. A model that fails with
//! `retry-after-ms` is away and waited for; one that sends what is no reply (`garbled`) is tried again.

use super::{Rule, Script};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ScriptFile {
    #[serde(default)]
    native_tools: bool,
    rules: Vec<Value>,
}

/// Reads a script; the error says which rule is wrong and why.
pub(super) fn parse(text: &str) -> Result<Script, String> {
    let file: ScriptFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut script = Script {
        native_tools: file.native_tools,
        ..Script::default()
    };
    for (given, number) in file.rules.into_iter().zip(1..) {
        let rule = serde_json::from_value::<Rule>(given).map_err(|error| error.to_string());
        let rule = rule.and_then(Rule::checked);
        script
            .rules
            .push(rule.map_err(|reason| format!("rule {number}: {reason}"))?);
    }
    Ok(script)
}
