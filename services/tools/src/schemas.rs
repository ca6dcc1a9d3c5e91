//! Schemas that others wrote: bounded, and with what they refer to in place.

use serde_json::{Value, json};
use std::cell::{Cell, RefCell};

/// How deep references are followed; what lies deeper may be anything.
const DEEP: usize = 8;
/// Values of one schema, however often references repeat them.
const MANY: usize = 20_000;
/// Longest schema of one tool, in bytes: models read it with each call.
pub(crate) const MAX_SCHEMA: usize = 32 * 1024;
/// Longest description of one tool, in characters.
pub(crate) const MAX_DESCRIPTION: usize = 1_000;

/// Puts what lies elsewhere in a document in the place of references to it.
pub(crate) struct Whole<'a> {
    document: &'a Value,
    /// Values that may still be put in the place of references.
    left: Cell<usize>,
    /// A reference that leads nowhere.
    missing: RefCell<Option<String>>,
}

impl<'a> Whole<'a> {
    pub(crate) fn of(document: &'a Value) -> Self {
        Self {
            document,
            left: Cell::new(MANY),
            missing: RefCell::default(),
        }
    }

    /// A value with what it refers to in place.
    pub(crate) fn value(&self, value: &Value) -> Value {
        self.down(value, DEEP)
    }

    /// A reference that led nowhere, if there was one.
    pub(crate) fn missing(&self) -> Option<String> {
        self.missing.take()
    }

    fn down(&self, value: &Value, deep: usize) -> Value {
        let Some(left) = self.left.get().checked_sub(1) else {
            return json!({});
        };
        self.left.set(left);
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let there = reference.strip_prefix('#');
            return match there.and_then(|pointer| self.document.pointer(pointer)) {
                Some(there) if deep > 0 => self.down(there, deep - 1),
                Some(_) => json!({}),
                None => {
                    self.missing
                        .borrow_mut()
                        .get_or_insert_with(|| reference.to_owned());
                    json!({})
                }
            };
        }
        match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                Value::Object(
                    fields
                        .map(|(n, v)| (n.clone(), self.down(v, deep)))
                        .collect(),
                )
            }
            Value::Array(items) => items.iter().map(|one| self.down(one, deep)).collect(),
            other => other.clone(),
        }
    }
}
