//! JSON in which no object has a name twice: which of the two counts would depend on who reads it.

use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The object in a text.
pub(crate) fn object(text: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(text) {
        Ok(Unambiguous(Value::Object(object))) => Some(object),
        _ => None,
    }
}

struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without a name that stands twice")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, is: bool) -> Result<Value, E> {
        Ok(Value::Bool(is))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Unambiguous(value))) = fields.next_entry::<String, _>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name stands twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_that_stands_twice_is_refused_at_every_depth() {
        for (text, is_read) in [
            (
                r#"{"a": 1, "b": [null, true, -2, 2.5, "t", {"a": 1}]}"#,
                true,
            ),
            (r"{}", true),
            (r#"{"a": 1, "a": 1}"#, false),
            // The same name, written another way.
            (r#"{"sub": "ann", "su\u0062": "eve"}"#, false),
            (r#"{"a": {"b": 1, "b": 2}}"#, false),
            (r#"{"a": [{"b": 1, "b": 2}]}"#, false),
            (r#"{"a": 1} {"a": 1}"#, false),
            ("[]", false),
            ("1", false),
            ("", false),
        ] {
            let read = object(text.as_bytes());
            assert_eq!(read.is_some(), is_read, "{text}: {read:?}");
            if let Some(read) = read {
                let whole: Value = serde_json::from_str(text).unwrap_or_default();
                assert_eq!(json!(read), whole);
            }
        }
    }
}
