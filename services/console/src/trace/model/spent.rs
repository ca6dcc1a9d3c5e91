//! What work cost: of one node, and of sessions.

use super::Instant;
use crate::text;
use agentfleet_schema::Cost;
use serde::Serialize;

/// Tokens, money and time of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Of attempts that came to nothing, beside the others.
    pub wasted_tokens: u64,
    /// In the currency of the model profile's prices, that of wasted attempts with it.
    #[serde(flatten)]
    pub cost: Cost,
    /// Time in models; of parallel sessions it adds up to more than passed.
    pub model_ms: u64,
    pub tool_ms: u64,
    /// Steps that were committed.
    pub steps: u64,
    /// Without draft answers that were sent back.
    pub tool_calls: u64,
}

impl Spent {
    pub fn tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.wasted_tokens)
    }

    /// The tokens in words, with how many of them came to nothing.
    pub fn tokens_told(&self) -> String {
        text::tokens(self.tokens(), self.wasted_tokens)
    }

    /// What a run of so many sessions took, and how long it was.
    pub(crate) fn told(&self, sessions: usize, ms: Option<u64>) -> String {
        let mut parts = vec![
            text::counted(sessions as u64, "session"),
            text::counted(self.steps, "step"),
            text::counted(self.tool_calls, "tool call"),
            self.tokens_told(),
        ];
        if !self.cost.is_nothing() {
            parts.push(format!("cost {}", text::money(self.cost)));
        }
        parts.extend(ms.map(text::duration));
        parts.join(" · ")
    }

    pub fn add(&mut self, other: &Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.wasted_tokens = self.wasted_tokens.saturating_add(other.wasted_tokens);
        self.cost = self.cost + other.cost;
        self.model_ms = self.model_ms.saturating_add(other.model_ms);
        self.tool_ms = self.tool_ms.saturating_add(other.tool_ms);
        self.steps = self.steps.saturating_add(other.steps);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
    }
}

/// What one node of the graph cost, and when and by which model it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    pub at: Option<Instant>,
    pub model: Option<String>,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Of the calls that have a price.
    pub cost: Option<f64>,
    /// Model calls that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpriced_calls: Option<u64>,
    pub model_ms: Option<u64>,
    /// The attempt that won, if not the first.
    pub attempt: Option<u64>,
    /// Replies that were cut at the limit of their length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_replies: Option<u64>,
    /// Tools that a reply called, and that were not called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_calls: Vec<String>,
    /// How long the step waited for a model that could not answer, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_wait_reason: Option<String>,
    /// Tokens of other attempts at the step, on its main node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wasted_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wasted_cost: Option<f64>,
    /// Tools that the step called, on its main node.
    #[serde(skip)]
    pub tool_calls: Option<u64>,
    /// The key of the step's record, on its main node: a step has one, so that counting them counts
    /// each step once.
    #[serde(skip)]
    pub record: Option<String>,
}

impl Work {
    /// What is known of its cost. Tokens without a price cost nobody knows what.
    pub fn known_cost(&self) -> Cost {
        let read = self.input_tokens.unwrap_or(0) > 0 || self.output_tokens.unwrap_or(0) > 0;
        let is_whole = self.unpriced_calls.is_none() && (self.cost.is_some() || !read);
        Cost::of(self.cost.unwrap_or(0.0), is_whole)
    }
}
