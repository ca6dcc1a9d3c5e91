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
use agentfleet_schema::Operation;
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ScriptFile {
    #[serde(default)]
    native_tools: bool,
    rules: Vec<RuleFile>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct RuleFile {
    operation: Option<String>,
    contains: OneOrMany,
    matches: Option<String>,
    steps: Option<usize>,
    times: Option<u64>,
    text: String,
    pieces: Option<Vec<String>>,
    words: bool,
    pause_ms: u64,
    tool_calls: Vec<CallFile>,
    usage: UsageFile,
    cut: bool,
    fail: Option<String>,
    retry_after_ms: Option<u64>,
    garbled: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallFile {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct UsageFile {
    input_tokens: u64,
    output_tokens: u64,
}

/// Reads a script; the error says which rule is wrong and why.
pub(super) fn parse(text: &str) -> Result<Script, String> {
    let file: ScriptFile = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut script = Script::new();
    if file.native_tools {
        script = script.with_native_tools();
    }
    for (at, given) in file.rules.into_iter().enumerate() {
        script = script.rule(rule(given).map_err(|reason| format!("rule {}: {reason}", at + 1))?);
    }
    Ok(script)
}

fn rule(given: RuleFile) -> Result<Rule, String> {
    let mut rule = match given.operation.as_deref() {
        None => Rule::any(),
        Some(name) => Rule::on(operation(name)?),
    };
    match given.contains {
        OneOrMany::None => {}
        OneOrMany::One(text) => rule = rule.containing(text),
        OneOrMany::Many(texts) => {
            for text in texts {
                rule = rule.containing(text);
            }
        }
    }
    if let Some(pattern) = given.matches {
        let pattern = Regex::new(&pattern).map_err(|error| format!("`matches`: {error}"))?;
        rule = rule.matching(pattern);
    }
    if let Some(steps) = given.steps {
        rule = rule.after_steps(steps);
    }
    if let Some(times) = given.times {
        rule = rule.times(times);
    }
    rule = rule
        .costing(given.usage.input_tokens, given.usage.output_tokens)
        .pausing(Duration::from_millis(given.pause_ms));
    if let Some(sent) = given.garbled {
        return Ok(rule.garbled(&sent));
    }
    if let Some(message) = given.fail {
        if !given.text.is_empty()
            || given.pieces.is_some()
            || !given.tool_calls.is_empty()
            || given.cut
        {
            return Err("it both fails and replies".to_owned());
        }
        return Ok(rule.fail(message, given.retry_after_ms.map(Duration::from_millis)));
    }
    if given.retry_after_ms.is_some() {
        return Err("`retry-after-ms` belongs to `fail`".to_owned());
    }
    rule = match given.pieces {
        Some(pieces) if given.text.is_empty() => rule.in_pieces(pieces),
        Some(_) => return Err("give either `text` or `pieces`".to_owned()),
        None => rule.text(given.text),
    };
    if given.words {
        rule = rule.word_by_word();
    }
    if given.cut {
        rule = rule.cut();
    }
    for call in given.tool_calls {
        rule = rule.tool_call(&call.id, &call.name, call.arguments);
    }
    Ok(rule)
}

fn operation(name: &str) -> Result<Operation, String> {
    Operation::ALL
        .into_iter()
        .find(|o| o.as_str() == name)
        .ok_or_else(|| {
            let known: Vec<String> = Operation::ALL
                .iter()
                .map(|o| format!("`{}`", o.as_str()))
                .collect();
            format!(
                "unknown operation `{name}` (available: {})",
                known.join(", ")
            )
        })
}
