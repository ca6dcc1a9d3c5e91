//! Values that the graph holds as texts.

use super::super::model::Confidence;
use std::collections::BTreeMap;

/// The arguments as they were given; a text that is no JSON object is shown as it is.
pub(super) fn read_arguments(text: &str) -> BTreeMap<String, String> {
    if text.is_empty() {
        return BTreeMap::new();
    }
    match serde_json::from_str::<BTreeMap<String, serde_json::Value>>(text) {
        Ok(map) => map
            .into_iter()
            .map(|(name, value)| match value {
                serde_json::Value::String(text) => (name, text),
                other => (name, other.to_string()),
            })
            .collect(),
        Err(_) => BTreeMap::from([(String::new(), text.to_owned())]),
    }
}

/// `part: 0.80`, or `0.80` of the whole.
pub(super) fn read_confidence(text: &str) -> Confidence {
    let value = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite());
    if let Some(value) = value(text) {
        return Confidence {
            part: String::new(),
            value: Some(value),
        };
    }
    match text.rsplit_once(':') {
        Some((part, number)) if value(number).is_some() => Confidence {
            part: part.trim().to_owned(),
            value: value(number),
        },
        _ => Confidence {
            part: text.to_owned(),
            value: None,
        },
    }
}
