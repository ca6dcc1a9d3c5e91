//! Differences between two JSON values, place by place.

use super::{Divergence, short};
use serde_json::Value;

/// Most differences told of one step.
const MOST: usize = 20;

/// Reads the texts that are messages, so that differences in them have a place.
pub(super) fn with_bodies(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(with_bodies).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| match (name.as_str(), &value) {
                    ("body", Value::String(text)) => {
                        let read = serde_json::from_str(text);
                        (name, read.unwrap_or(value))
                    }
                    _ => (name, with_bodies(value)),
                })
                .collect(),
        ),
        other => other,
    }
}

/// Tells where two values differ.
pub(super) fn values(at: &str, recorded: &Value, derived: &Value, out: &mut Vec<Divergence>) {
    if out.len() >= MOST || same(recorded, derived) {
        return;
    }
    let below = |name: &str| {
        if at.is_empty() {
            name.to_owned()
        } else {
            format!("{at}.{name}")
        }
    };
    match (recorded, derived) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let more = theirs.keys().filter(|name| !ours.contains_key(*name));
            for name in ours.keys().chain(more) {
                let value =
                    |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or_default();
                values(&below(name), &value(ours), &value(theirs), out);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                values(&format!("{at}[{index}]"), ours, theirs, out);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            let first = ours.iter().zip(theirs).take_while(|(a, b)| same(a, b));
            let first = first.count();
            let told = |list: &[Value]| {
                let entry = list.get(first).map_or_else(String::new, Value::to_string);
                short(&format!("{} entries; {entry}", list.len()))
            };
            out.push(Divergence {
                at: format!("{at}[{first}]"),
                recorded: told(ours),
                derived: told(theirs),
            });
        }
        _ => out.push(Divergence {
            at: at.to_owned(),
            recorded: in_short(recorded),
            derived: in_short(derived),
        }),
    }
}

fn in_short(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        value => short(&value.to_string()),
    }
}

/// Whether two values say the same; fractions may differ in the last digit.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
                _ => false,
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
