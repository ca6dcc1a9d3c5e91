//! Arguments of a call against those the tool declares.
//!
//! Models write numbers as text and text as numbers, so values are read by the declared type. What
//! cannot be read is told to the agent with what would be right, all of it at once.

use crate::config::ToolArgument;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Arguments that were checked, in the order of their declaration, each of its declared type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments(Vec<(String, Value)>);

/// The types an argument may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    /// JSON where it reads as such, else text.
    Any,
}

impl Type {
    /// Reads a declared type; what is unknown takes any text.
    fn of(declared: &str) -> Self {
        match declared.to_ascii_lowercase().as_str() {
            "integer" | "int" => Self::Integer,
            "number" | "float" | "double" | "decimal" => Self::Number,
            "boolean" | "bool" => Self::Boolean,
            "array" | "list" => Self::Array,
            "object" | "json" | "map" => Self::Object,
            "any" => Self::Any,
            _ => Self::Text,
        }
    }

    fn schema_name(self) -> &'static str {
        match self {
            Self::Text | Self::Any => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    fn described(self) -> &'static str {
        match self {
            Self::Text | Self::Any => "text",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::Boolean => "`true` or `false`",
            Self::Array => "a JSON array",
            Self::Object => "a JSON object",
        }
    }

    fn read(self, text: &str) -> Option<Value> {
        let bare = text.trim();
        match self {
            Self::Text => Some(Value::from(text)),
            Self::Integer => {
                let exact = bare.parse::<i64>().ok();
                // `5.0` is what some models make of 5.
                let rounded = || {
                    let number = bare.parse::<f64>().ok()?;
                    let whole = number.fract() == 0.0 && number.abs() < 9e15;
                    whole.then_some(number as i64)
                };
                exact.or_else(rounded).map(Value::from)
            }
            Self::Number => match bare.parse::<i64>() {
                Ok(number) => Some(Value::from(number)),
                Err(_) => serde_json::Number::from_f64(bare.parse().ok()?).map(Value::Number),
            },
            Self::Boolean => match bare.to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" => Some(Value::Bool(true)),
                "false" | "no" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Array => serde_json::from_str(bare).ok().filter(Value::is_array),
            Self::Object => serde_json::from_str(bare).ok().filter(Value::is_object),
            Self::Any => Some(serde_json::from_str(bare).unwrap_or_else(|_| Value::from(text))),
        }
    }
}

impl Arguments {
    /// Reads the given arguments by the declared ones, or says everything that is wrong.
    pub fn check(
        declared: &[ToolArgument],
        given: &BTreeMap<String, String>,
    ) -> Result<Self, String> {
        let mut faults = Vec::new();
        for name in given.keys() {
            if !declared.iter().any(|argument| argument.name == *name) {
                faults.push(format!(
                    "unknown argument `{name}` ({})",
                    expected(declared)
                ));
            }
        }
        let mut values = Vec::new();
        for argument in declared {
            let kind = Type::of(&argument.kind);
            // An argument left empty is one not given, unless empty text says something.
            let text = given
                .get(&argument.name)
                .filter(|text| !text.trim().is_empty());
            match text {
                Some(text) => match kind.read(text) {
                    Some(value) => {
                        values.push((argument.name.clone(), value));
                    }
                    None => faults.push(format!(
                        "argument `{}` must be {}, not `{}`",
                        argument.name,
                        kind.described(),
                        shortened(text)
                    )),
                },
                None if argument.required => faults.push(missing(argument, kind)),
                None => {}
            }
        }
        if faults.is_empty() {
            Ok(Self(values))
        } else {
            Err(faults.join("; "))
        }
    }

    /// A text argument; empty if it was not given.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A whole number that is not negative; `None` if it was not given.
    pub fn count(&self, name: &str) -> Option<usize> {
        self.get(name)
            .and_then(Value::as_u64)
            .and_then(|n| usize::try_from(n).ok())
    }

    /// The arguments as a JSON object.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.iter().cloned().collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

/// The JSON Schema of an arguments object.
pub fn schema(declared: &[ToolArgument]) -> Value {
    let properties: Map<String, Value> = declared
        .iter()
        .map(|argument| {
            let kind = Type::of(&argument.kind);
            let mut property = match kind {
                Type::Any => json!({}),
                kind => json!({ "type": kind.schema_name() }),
            };
            if !argument.description.is_empty() {
                property["description"] = Value::from(argument.description.as_str());
            }
            if kind == Type::Array {
                property["items"] = json!({});
            }
            (argument.name.clone(), property)
        })
        .collect();
    let required: Vec<&str> = declared
        .iter()
        .filter(|a| a.required)
        .map(|a| a.name.as_str())
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// A required text argument.
pub fn text(name: &str, description: &str) -> ToolArgument {
    ToolArgument {
        name: name.to_owned(),
        kind: "string".to_owned(),
        description: description.to_owned(),
        required: true,
    }
}

fn expected(declared: &[ToolArgument]) -> String {
    if declared.is_empty() {
        return "this tool takes none".to_owned();
    }
    let names: Vec<String> = declared.iter().map(|a| format!("`{}`", a.name)).collect();
    format!("expected: {}", names.join(", "))
}

fn missing(argument: &ToolArgument, kind: Type) -> String {
    let what = if argument.description.is_empty() {
        kind.described().to_owned()
    } else {
        format!("{}: {}", kind.described(), argument.description)
    };
    format!("missing argument `{}` ({what})", argument.name)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn argument(name: &str, kind: &str, required: bool) -> ToolArgument {
        ToolArgument {
            name: name.into(),
            kind: kind.into(),
            description: String::new(),
            required,
        }
    }

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        let query = [text("query", "what to look for")];
        let typed = [
            argument("n", "integer", true),
            argument("on", "boolean", false),
        ];
        for (declared, arguments, expected) in [
            (
                &query[..],
                given(&[("qery", "x")]),
                "unknown argument `qery` (expected: `query`); missing argument `query` (text: what to look for)",
            ),
            (
                &query,
                given(&[("query", " ")]),
                "missing argument `query` (text: what to look for)",
            ),
            (
                &[],
                given(&[("x", "")]),
                "unknown argument `x` (this tool takes none)",
            ),
            (
                &typed,
                given(&[("n", "five"), ("on", "maybe")]),
                "argument `n` must be a whole number, not `five`; argument `on` must be `true` or `false`, not `maybe`",
            ),
        ] {
            assert_eq!(
                Arguments::check(declared, &arguments).unwrap_err(),
                expected
            );
        }
    }

    #[test]
    fn values_are_read_by_their_declared_type() {
        for (kind, text, expected) in [
            ("string", "5", json!("5")),
            ("string", " a ", json!(" a ")),
            ("strange", "true", json!("true")),
            ("integer", "5", json!(5)),
            ("int", "5.0", json!(5)),
            ("number", "5", json!(5)),
            ("number", "-1.5", json!(-1.5)),
            ("boolean", "True", json!(true)),
            ("bool", "no", json!(false)),
            ("array", "[1]", json!([1])),
            ("object", "{\"a\":1}", json!({ "a": 1 })),
        ] {
            let checked = Arguments::check(&[argument("v", kind, true)], &given(&[("v", text)]));
            assert_eq!(checked.unwrap().to_value()["v"], expected, "{kind} {text}");
        }
        for (kind, text) in [
            ("integer", "1.5"),
            ("number", "NaN"),
            ("array", "{}"),
            ("object", "[]"),
            ("int", "1e99"),
        ] {
            let checked = Arguments::check(&[argument("v", kind, true)], &given(&[("v", text)]));
            assert!(checked.is_err(), "{kind} {text}");
        }
    }

    #[test]
    fn the_schema_says_types_and_what_is_required() {
        let schema = schema(&[text("query", "words"), argument("tags", "list", false)]);
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": {
                    "query": { "type": "string", "description": "words" },
                    "tags": { "type": "array", "items": {} },
                },
                "required": ["query"],
                "additionalProperties": false,
            })
        );
    }
}
