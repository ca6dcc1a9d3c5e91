//! Serde helpers for peers that write `null`, the wrong scalar, or nothing at all.

use crate::{FAR, Millis};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reads `null` as the type's default.
pub fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads an instant as one that can be reckoned with; `null` is 0.
pub fn instant<'de, D: Deserializer<'de>>(from: D) -> Result<Millis, D::Error> {
    Ok(null_default::<D, Millis>(from)?.clamp(0, FAR))
}

/// Reads a number that is counted on, with room to do so; `null` is 0.
pub fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    Ok(null_default::<D, u32>(from)?.min(MOST_COUNTED))
}

/// Beyond every number of steps, rounds and retries that a run comes to.
pub const MOST_COUNTED: u32 = 1_000_000_000;

/// Reads a map whose values may be any JSON value; anything that is not text is kept as its JSON
/// text, because tool arguments are strings on the wire.
pub fn string_map<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    let map = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(map
        .into_iter()
        .map(|(name, value)| (name, text_of(value)))
        .collect())
}

/// The string form of an argument: text as it is, everything else as JSON.
pub fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
