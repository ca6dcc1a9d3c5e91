//! A response schema as providers take it that hold a model to it word for word.

use serde_json::{Map, Value};

/// Every object says that it has no further properties. OpenAI wants all of its properties required as
/// well (`all_required`).
pub(super) fn strict(schema: &Value, all_required: bool) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let nested = |value: &Value| strict(value, all_required);
    let mut out = Map::new();
    for (key, value) in map {
        let value = match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => named
                .iter()
                .map(|(name, value)| (name.clone(), nested(value)))
                .collect(),
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(items)) => {
                items.iter().map(nested).collect()
            }
            ("items" | "additionalProperties" | "not", value) => nested(value),
            (_, value) => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    let is_object = out.get("type").is_some_and(|of| of == "object");
    if is_object || out.contains_key("properties") {
        out.entry("additionalProperties")
            .or_insert(Value::Bool(false));
        if all_required && let Some(Value::Object(properties)) = out.get("properties") {
            let names = properties.keys().cloned().map(Value::String).collect();
            out.insert("required".to_owned(), Value::Array(names));
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_closed_at_every_depth_and_complete_where_it_is_asked() {
        let schema = json!({"type": "object", "required": ["b"], "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "string"}}}},
            "b": {"const": {"type": "object"}},
        }});
        let item = |extra: Value| {
            let mut item = json!({"type": "object", "properties": {"c": {"type": "string"}},
                "additionalProperties": false});
            if let (Value::Object(item), Value::Object(extra)) = (&mut item, extra) {
                item.extend(extra);
            }
            item
        };
        let closed = |item: Value, required: Value| {
            json!({"type": "object", "required": required, "additionalProperties": false,
                "properties": {"a": {"type": "array", "items": item}, "b": {"const": {"type": "object"}}}})
        };
        assert_eq!(
            strict(&schema, false),
            closed(item(json!({})), json!(["b"]))
        );
        assert_eq!(
            strict(&schema, true),
            closed(item(json!({"required": ["c"]})), json!(["a", "b"]))
        );
    }
}
