//! A reply as it comes: text to the sink piece by piece, tool calls and usage gathered, all within the
//! bounds.

use super::bounds::{self, Bound};
use super::failure::Fault;
use crate::{TextSink, ToolCall};
use agentfleet_schema::records::Usage;
use serde_json::{Value, json};

/// What has come so far.
pub(super) struct Reply<'s> {
    sink: &'s dyn TextSink,
    pub text: String,
    pub usage: Usage,
    /// Why the model stopped, in the provider's word; empty until it says.
    pub stop: String,
    /// The model that answered; empty where the reply does not say.
    pub model: String,
    /// The model says that it will not answer.
    pub refused: bool,
    /// The model has stopped. Usage may follow.
    pub finished: bool,
    /// Nothing follows.
    pub ended: bool,
    calls: Vec<Call>,
    argument_bytes: usize,
}

/// A tool call that grows.
struct Call {
    /// The provider's own number of it.
    index: Option<u64>,
    id: String,
    name: String,
    arguments: Value,
}

/// A piece of a tool call as it came.
#[derive(Clone, Copy, Default)]
pub(super) struct Piece<'a> {
    pub index: Option<u64>,
    pub id: &'a str,
    pub name: &'a str,
    /// Text that is added to what came, or the whole object.
    pub arguments: Option<&'a Value>,
}

impl<'s> Reply<'s> {
    pub(super) fn new(sink: &'s dyn TextSink) -> Self {
        Self {
            sink,
            text: String::new(),
            usage: Usage::default(),
            stop: String::new(),
            model: String::new(),
            refused: false,
            finished: false,
            ended: false,
            calls: Vec::new(),
            argument_bytes: 0,
        }
    }

    /// Adds text, if that is what it is.
    pub(super) fn say(&mut self, piece: Option<&Value>) -> Result<(), Fault> {
        let Some(piece) = piece.and_then(Value::as_str).filter(|p| !p.is_empty()) else {
            return Ok(());
        };
        if !Bound::Text.holds(self.text.len() + piece.len()) {
            return Err(Fault::Beyond(Bound::Text));
        }
        self.sink.text(piece);
        self.text.push_str(piece);
        Ok(())
    }

    /// Names the model, unless it was named before. What is no name is none.
    pub(super) fn is_by(&mut self, model: Option<&Value>) {
        let told = model.and_then(Value::as_str).unwrap_or_default();
        if self.model.is_empty() && !told.contains(char::is_control) {
            bounds::name(told).clone_into(&mut self.model);
        }
    }

    /// Notes why the model stopped, once it says so.
    pub(super) fn stops(&mut self, reason: Option<&Value>) {
        if let Some(reason) = reason.and_then(Value::as_str).filter(|r| !r.is_empty()) {
            bounds::name(reason).clone_into(&mut self.stop);
            self.finished = true;
        }
    }

    /// Adds a piece of a tool call to the call it belongs to. The provider's number of a call is
    /// compared and never used to count with: it can be anything.
    pub(super) fn call(&mut self, piece: Piece<'_>) -> Result<(), Fault> {
        let known = match piece.index {
            // Some servers give all calls of a reply the same number.
            Some(_) => self
                .calls
                .iter_mut()
                .rfind(|call| call.index == piece.index)
                .filter(|call| piece.name.is_empty() || piece.id.is_empty() || call.id == piece.id),
            None if piece.name.is_empty() => self.calls.last_mut(),
            None => None,
        };
        let call = match known {
            Some(call) => call,
            // A piece of nothing.
            None if piece.name.is_empty() => return Ok(()),
            None => {
                if !Bound::ToolCalls.holds(self.calls.len() + 1) {
                    return Err(Fault::Beyond(Bound::ToolCalls));
                }
                self.calls.push(Call {
                    index: piece.index,
                    id: bounds::name(piece.id).to_owned(),
                    name: bounds::name(piece.name).to_owned(),
                    arguments: Value::Null,
                });
                let at = self.calls.len() - 1;
                &mut self.calls[at]
            }
        };
        let arguments = match piece.arguments {
            None | Some(Value::Null) => return Ok(()),
            // What begins as an empty object is told in pieces of text afterwards.
            Some(Value::Object(map)) if map.is_empty() => return Ok(()),
            Some(arguments) => arguments,
        };
        self.argument_bytes += match arguments {
            Value::String(text) => text.len(),
            whole => whole.to_string().len(),
        };
        if !Bound::Arguments.holds(self.argument_bytes) {
            return Err(Fault::Beyond(Bound::Arguments));
        }
        match (&mut call.arguments, arguments) {
            (Value::String(before), Value::String(text)) => before.push_str(text),
            (before, arguments) => *before = arguments.clone(),
        }
        Ok(())
    }

    /// All tool calls in order, each with an id of its own.
    pub(super) fn take_calls(&mut self) -> Result<Vec<ToolCall>, Fault> {
        let mut calls: Vec<ToolCall> = Vec::with_capacity(self.calls.len());
        for call in std::mem::take(&mut self.calls) {
            let n = calls.len();
            let id = match call.id.as_str() {
                "" => format!("call_{n}"),
                id if calls.iter().any(|other| other.id == id) => format!("{id}-{n}"),
                id => id.to_owned(),
            };
            calls.push(ToolCall {
                id,
                name: call.name,
                arguments: parsed(call.arguments)?,
            });
        }
        Ok(calls)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.calls.is_empty()
    }
}

/// Arguments that arrived as text. Text that is no JSON stays text: the caller says so to the model.
fn parsed(arguments: Value) -> Result<Value, Fault> {
    match arguments {
        Value::String(text) if text.trim().is_empty() => Ok(json!({})),
        Value::String(text) => match super::read::json(text.as_bytes()) {
            Err(Fault::Malformed(_)) => Ok(Value::String(text)),
            other => other,
        },
        Value::Null => Ok(json!({})),
        other => Ok(other),
    }
}

/// A count of tokens, if it is one.
pub(super) fn tokens(told: Option<&Value>) -> Option<u64> {
    told.and_then(Value::as_u64)
        .map(|count| count.min(bounds::TOKENS))
}
