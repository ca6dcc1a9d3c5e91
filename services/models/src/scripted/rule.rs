//! One rule: when it applies, and what it says.

use super::Gate;
use crate::error::{Error, Kind};
use crate::{ModelReply, TextSink, ToolCall};
use agentfleet_schema::Operation;
use agentfleet_schema::records::Usage;
use regex::Regex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rule of a script, read from a file or built step by step: conditions first, then what it says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    #[serde(deserialize_with = "operation")]
    operation: Option<Operation>,
    #[serde(deserialize_with = "one_or_many")]
    contains: Vec<String>,
    #[serde(deserialize_with = "pattern")]
    matches: Option<Regex>,
    steps: Option<usize>,
    times: Option<u64>,
    text: String,
    /// In place of the text.
    pieces: Option<Vec<String>>,
    /// Sends the text word by word.
    words: bool,
    /// Between two pieces.
    pause_ms: u64,
    tool_calls: Vec<ToolCall>,
    usage: Tokens,
    cut: bool,
    fail: Option<String>,
    retry_after_ms: Option<u64>,
    garbled: Option<String>,
    /// Where it waits, and after how many pieces.
    #[serde(skip)]
    gate: Option<(Gate, usize)>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
}

fn operation<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Operation>, D::Error> {
    let name = String::deserialize(from)?;
    let found = Operation::ALL.into_iter().find(|one| one.as_str() == name);
    found.map(Some).ok_or_else(|| {
        let known = Operation::ALL.map(Operation::as_str).join("`, `");
        D::Error::custom(format!("unknown operation `{name}` (available: `{known}`)"))
    })
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(from)? {
        Value::String(one) => Ok(vec![one]),
        many => serde_json::from_value(many).map_err(D::Error::custom),
    }
}

fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    let pattern = Regex::new(&String::deserialize(from)?);
    let pattern = pattern.map_err(|error| D::Error::custom(format!("`matches`: {error}")));
    pattern.map(Some)
}

impl Rule {
    /// A rule for every operation.
    pub fn any() -> Self {
        Self::default()
    }

    /// A rule for one operation.
    pub fn on(operation: Operation) -> Self {
        Self {
            operation: Some(operation),
            ..Self::default()
        }
    }

    /// Applies where the rendered messages contain this text. Several must all be there.
    #[must_use]
    pub fn containing(mut self, text: impl Into<String>) -> Self {
        self.contains.push(text.into());
        self
    }

    /// Applies where the rendered messages match this pattern.
    #[must_use]
    pub fn matching(mut self, pattern: Regex) -> Self {
        self.matches = Some(pattern);
        self
    }

    /// Applies where the agent has taken this many steps. Reads the inputs only: cheaper than text.
    #[must_use]
    pub fn after_steps(mut self, steps: usize) -> Self {
        self.steps = Some(steps);
        self
    }

    /// Applies this many times, counted over all sessions, and then no more.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Says this.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Calls a tool natively, after what the rule says.
    #[must_use]
    pub fn tool_call(mut self, id: &str, name: &str, arguments: Value) -> Self {
        self.tool_calls.push(ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
        });
        self
    }

    /// Fails; `retry_after` says that another try may help.
    #[must_use]
    pub fn fail(mut self, message: impl Into<String>, retry_after: Option<Duration>) -> Self {
        self.fail = Some(message.into());
        self.retry_after_ms = retry_after.map(|after| after.as_millis() as u64);
        self
    }

    /// Sends the text word by word.
    #[must_use]
    pub fn word_by_word(mut self) -> Self {
        self.words = true;
        self
    }

    /// Says these pieces, one after the other.
    #[must_use]
    pub fn in_pieces<S: Into<String>>(mut self, pieces: impl IntoIterator<Item = S>) -> Self {
        self.pieces = Some(pieces.into_iter().map(Into::into).collect());
        self
    }

    /// Holds the reply at a gate after this many pieces; 0 holds all of it.
    #[must_use]
    pub fn held_at(mut self, gate: &Gate, after_pieces: usize) -> Self {
        self.gate = Some((gate.clone(), after_pieces));
        self
    }

    /// Reports these tokens.
    #[must_use]
    pub fn costing(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Tokens {
            input_tokens,
            output_tokens,
        };
        self
    }

    /// Sends something that is no reply.
    #[must_use]
    pub fn garbled(mut self, sent: &str) -> Self {
        self.garbled = Some(sent.to_owned());
        self
    }

    /// Ends the reply as the limit of tokens ends one.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    /// Refuses a rule of a file that says two things at once.
    pub(super) fn checked(self) -> Result<Self, String> {
        let has_text = !self.text.is_empty();
        let replies = has_text || self.pieces.is_some() || !self.tool_calls.is_empty() || self.cut;
        if self.garbled.is_some() {
            return Ok(self);
        }
        if self.fail.is_some() && replies {
            return Err("it both fails and replies".to_owned());
        }
        if self.fail.is_none() && self.retry_after_ms.is_some() {
            return Err("`retry-after-ms` belongs to `fail`".to_owned());
        }
        if has_text && self.pieces.is_some() {
            return Err("give either `text` or `pieces`".to_owned());
        }
        Ok(self)
    }

    pub(super) fn is_for(&self, operation: Operation) -> bool {
        self.operation.is_none_or(|mine| mine == operation)
    }

    pub(super) fn fits_steps(&self, inputs: &Value) -> bool {
        let Some(wanted) = self.steps else {
            return true;
        };
        let history = inputs.get("history").and_then(Value::as_array);
        // A summary stands for the steps that it counts.
        let stands_for = |step: &Value| {
            let counted = step
                .pointer("/arguments/iterations")
                .and_then(Value::as_str);
            let counted = counted.filter(|_| step.get("summary") == Some(&Value::Bool(true)));
            counted.and_then(|n| n.parse::<usize>().ok()).unwrap_or(1)
        };
        wanted == history.map_or(0, |history| history.iter().map(stands_for).sum())
    }

    pub(super) fn reads_text(&self) -> bool {
        !self.contains.is_empty() || self.matches.is_some()
    }

    pub(super) fn fits_text(&self, text: &str) -> bool {
        self.contains
            .iter()
            .all(|part| text.contains(part.as_str()))
            && self
                .matches
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(text))
    }

    /// Uses the rule once more, unless it is used up.
    pub(super) fn take_one(&self, used: &AtomicU64) -> bool {
        let Some(times) = self.times else {
            used.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < times).then_some(n + 1)
        })
        .is_ok()
    }

    /// What it plays instead of a reply. As providers are read: a reply without a word is none.
    fn fault(&self, text: &str, usage: Usage) -> Option<Error> {
        if let Some(sent) = &self.garbled {
            return Some(Error::malformed("the script", sent));
        }
        match (&self.fail, self.retry_after_ms) {
            // A provider that may be asked again cannot answer now.
            (Some(message), Some(ms)) => {
                let error = Error::new(Kind::Unavailable, message);
                Some(error.after(Duration::from_millis(ms)))
            }
            (Some(message), None) => Some(Error::new(Kind::Refused, message)),
            (None, _) if text.trim().is_empty() && self.tool_calls.is_empty() => {
                Some(Error::empty("the script", "scripted", self.cut, usage))
            }
            (None, _) => None,
        }
    }

    /// Says it.
    pub(super) async fn answer(&self, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        let text = match &self.pieces {
            Some(pieces) => pieces.concat(),
            None => self.text.clone(),
        };
        let usage = Usage {
            input_tokens: self.usage.input_tokens,
            output_tokens: self.usage.output_tokens,
            ..Usage::default()
        };
        if let Some(error) = self.fault(&text, usage) {
            self.hold(0).await;
            return Err(error);
        }
        let pieces: Vec<&str> = match &self.pieces {
            Some(pieces) => pieces.iter().map(String::as_str).collect(),
            None if self.words => text.split_inclusive(char::is_whitespace).collect(),
            None if text.is_empty() => Vec::new(),
            None => vec![&text],
        };
        for (said, piece) in pieces.iter().enumerate() {
            self.hold(said).await;
            if said > 0 && self.pause_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
            }
            sink.text(piece);
        }
        self.hold(pieces.len()).await;
        Ok(ModelReply {
            text,
            tool_calls: self.tool_calls.clone(),
            usage,
            model: "scripted".to_owned(),
            cut: self.cut,
            ..ModelReply::default()
        })
    }

    /// Waits at the gate if it stands here.
    async fn hold(&self, said: usize) {
        if let Some((gate, after)) = &self.gate
            && *after == said
        {
            gate.pass().await;
        }
    }
}
