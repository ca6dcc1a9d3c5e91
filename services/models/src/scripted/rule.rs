//! One rule: when it applies, and what it says.

use super::Gate;
use crate::error::{Error, Kind};
use crate::{ModelReply, TextSink, ToolCall};
use agentfleet_schema::Operation;
use agentfleet_schema::records::Usage;
use regex::Regex;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rule of a script, built step by step: conditions first, then what it says.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    operation: Option<Operation>,
    contains: Vec<String>,
    matches: Option<Regex>,
    steps: Option<usize>,
    times: Option<u64>,
    text: String,
    tool_calls: Vec<ToolCall>,
    /// In place of a reply.
    fails: Option<Error>,
    pieces: Pieces,
    pause: Duration,
    gate: Option<(Gate, usize)>,
    usage: Usage,
    cut: bool,
}

/// How a text reaches the sink.
#[derive(Clone, Debug, Default)]
enum Pieces {
    /// In one piece: nothing is split or copied.
    #[default]
    Whole,
    Words,
    Given(Vec<String>),
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
        // It plays a provider: one that may be asked again cannot answer now.
        self.fails = Some(match retry_after {
            Some(after) => Error::new(Kind::Unavailable, message).after(after),
            None => Error::new(Kind::Refused, message),
        });
        self
    }

    /// Sends the text word by word.
    #[must_use]
    pub fn word_by_word(mut self) -> Self {
        self.pieces = Pieces::Words;
        self
    }

    /// Says these pieces, one after the other.
    #[must_use]
    pub fn in_pieces<S: Into<String>>(self, pieces: impl IntoIterator<Item = S>) -> Self {
        let pieces: Vec<String> = pieces.into_iter().map(Into::into).collect();
        let mut rule = self.text(pieces.concat());
        rule.pieces = Pieces::Given(pieces);
        rule
    }

    /// Waits this long between pieces, for demonstrations.
    #[must_use]
    pub fn pausing(mut self, pause: Duration) -> Self {
        self.pause = pause;
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
        self.usage = Usage {
            input_tokens,
            output_tokens,
            cost: 0.0,
            unpriced_calls: 0,
        };
        self
    }

    /// Sends something that is no reply.
    #[must_use]
    pub fn garbled(mut self, sent: &str) -> Self {
        self.fails = Some(Error::malformed("the script", sent));
        self
    }

    /// Ends the reply as the limit of tokens ends one.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.cut = true;
        self
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

    /// Says it.
    pub(super) async fn answer(&self, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        // As providers are read: a reply without a word is none.
        let is_empty = self.text.trim().is_empty() && self.tool_calls.is_empty();
        let empty = || Error::empty("the script", "scripted", self.cut, self.usage);
        if let Some(error) = self.fails.clone().or_else(|| is_empty.then(empty)) {
            self.hold(0).await;
            return Err(error);
        }
        self.say(&self.text, sink).await;
        Ok(ModelReply {
            text: self.text.clone(),
            tool_calls: self.tool_calls.clone(),
            usage: self.usage,
            model: "scripted".to_owned(),
            cut: self.cut,
        })
    }

    async fn say(&self, text: &str, sink: &dyn TextSink) {
        match &self.pieces {
            Pieces::Whole => {
                self.hold(0).await;
                if !text.is_empty() {
                    sink.text(text);
                }
                self.hold(1).await;
            }
            Pieces::Words => {
                self.say_each(text.split_inclusive(char::is_whitespace), sink)
                    .await;
            }
            Pieces::Given(pieces) => self.say_each(pieces.iter().map(String::as_str), sink).await,
        }
    }

    async fn say_each<'a>(
        &self,
        pieces: impl Iterator<Item = &'a str> + Send,
        sink: &dyn TextSink,
    ) {
        let mut said = 0;
        for piece in pieces {
            self.hold(said).await;
            if said > 0 && !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            sink.text(piece);
            said += 1;
        }
        self.hold(said).await;
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
