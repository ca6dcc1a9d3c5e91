//! Calls out of a step: what they were, what they used up, and what is noted before and after one.

use super::{Adopted, Source};
use crate::Millis;
use crate::id::Digest;
use crate::spent::{Cost, Money, Spent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One call out of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub enum Call {
    Model {
        operation: String,
        model: String,
        /// The rendered messages.
        prompt: String,
        reply: String,
        #[serde(default)]
        usage: Usage,
        ms: u64,
        /// The reply is JSON of a text and native tool calls.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        calls_tools: bool,
        /// The reply was cut at the limit of its length.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
        /// Tools that the reply called and that were not called: one call is made at a time, and half a
        /// call is none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ignored: Vec<String>,
        /// Models that were to answer before, and did not.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tried: Vec<FailedTry>,
    },
    Tool {
        name: String,
        arguments: BTreeMap<String, String>,
        result: String,
        is_error: bool,
        ms: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sources: Vec<Source>,
        /// Tries that failed around the tool: it was not reached, or not in time, or not allowed now; and models that
        /// it asked in vain before another answered.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tried: Vec<FailedTry>,
        /// Set where it is another attempt's call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adopted: Option<Adopted>,
    },
    Document {
        uri: String,
        digest: Digest,
        /// There was none.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        missing: bool,
    },
}

impl Call {
    /// The result of a call that had not come to its end, as far as anybody knew.
    pub const STARTED: &str = "started; its end is unknown";

    /// What the call used up.
    pub fn spent(&self) -> Spent {
        match self {
            Self::Model { usage, .. } => Spent {
                model_calls: 1,
                ..usage.spent()
            },
            Self::Tool { .. } => Spent {
                tool_calls: 1,
                ..Spent::default()
            },
            Self::Document { .. } => Spent::default(),
        }
    }
}

/// A try of a call that failed around the tool, and says nothing of what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTry {
    /// The model that was tried, also where a tool asked it; empty where the call itself was tried.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    pub why: Trouble,
    /// In the words of whatever failed; people are told otherwise.
    pub error: String,
}

/// Why a call came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trouble {
    /// The service did not answer, or said that it cannot now.
    Unavailable,
    /// Its time was up.
    Timeout,
    /// The tenant made all the calls that it may make for now.
    RateLimited,
    /// It failed too often lately, and was not asked.
    PassedOver,
}

impl Trouble {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate-limited",
            Self::PassedOver => "passed-over",
        }
    }
}

/// Tokens and their price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    /// In the currency of the model profile's prices. Of the calls that have a price.
    #[serde(default)]
    pub cost: f64,
    /// Calls of which nobody knows what they cost.
    #[serde(default, skip_serializing_if = "crate::spent::is_zero")]
    pub unpriced_calls: u64,
}

impl Usage {
    /// What is known of the cost.
    pub fn known_cost(&self) -> Cost {
        Cost::of(self.cost, self.unpriced_calls == 0)
    }

    /// On an account that counts no calls.
    pub fn spent(&self) -> Spent {
        Spent {
            tokens: self.total(),
            cost: Money::of(self.cost),
            unpriced_calls: self.unpriced_calls,
            ..Spent::default()
        }
    }

    pub fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    pub fn add(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost += other.cost;
        self.unpriced_calls = self.unpriced_calls.saturating_add(other.unpriced_calls);
    }
}

/// A side-effecting call about to start: `.../calls/{k}/intent`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentRecord {
    pub tool: String,
    pub arguments: BTreeMap<String, String>,
    pub nonce: String,
    /// Until then the owner may still be working on it.
    pub lease_until: Millis,
    /// Set where nothing is called: this attempt ends the step without the call, and keeps earlier
    /// ones from making it still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fence: bool,
    /// Of a fence, where record and fence cannot be created together: the record that ends the step, as it
    /// is stored. Whoever finds it puts it in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The config that it was chosen under. Until a run has its first record, it is pinned by this: who
    /// adopts the call works under the same, or the call would be none of its options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u64>,
}

impl IntentRecord {
    /// The call as a record tells it that did not make it; `result` is what is known of its end.
    pub fn told(self, result: Option<ResultRecord>) -> Call {
        let result = result.unwrap_or_default();
        Call::Tool {
            name: self.tool,
            arguments: self.arguments,
            is_error: result.status != CallStatus::Ok,
            result: match result.status {
                CallStatus::Ok | CallStatus::Error => result.content,
                CallStatus::Unknown => Call::STARTED.to_owned(),
            },
            ms: 0,
            sources: result.sources,
            tried: Vec::new(),
            adopted: None,
        }
    }
}

/// What became of it: `.../calls/{k}/result`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRecord {
    pub status: CallStatus,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
}

/// How a side-effecting call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallStatus {
    Ok,
    Error,
    /// Started, perhaps, by somebody who is gone. Not run again by itself.
    #[default]
    Unknown,
}

/// A call that is about to be made, on the account of its step: `.../debits/{k}`. Each is created
/// behind the one before, so whoever debits has seen all that was debited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DebitRecord {
    /// The attempt that debits.
    pub nonce: String,
    /// What its calls before this one came to.
    #[serde(skip_serializing_if = "Spent::is_nothing")]
    pub settled: Spent,
    /// What this call may come to. It counts where nothing was settled after it.
    #[serde(skip_serializing_if = "Spent::is_nothing")]
    pub reserved: Spent,
}
