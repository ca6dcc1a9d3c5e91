//! A fan-out, its verdict, and what a synthesis reads of it.

use super::{Publication, Source};
use crate::Millis;
use crate::config::JoinPolicy;
use crate::id::{CorrelationId, SessionId};
use crate::request::RunLimits;
use crate::spent::Spent;
use serde::{Deserialize, Serialize};

/// What the answers of a debate say, side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    pub round: u32,
    pub agreed: bool,
    pub positions: Vec<Position>,
    /// On what they do not agree.
    #[serde(default)]
    pub disagreements: Vec<String>,
}

/// Where one reasoner of a debate stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub reasoner: String,
    pub session: SessionId,
    pub position: String,
}

/// A fan-out, as provenance tells it; [`FanOutRecord`] is what the aggregator reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FannedOut {
    pub correlation: CorrelationId,
    pub thought: String,
    pub children: Vec<Child>,
    #[serde(default)]
    pub policy: JoinPolicy,
    pub join_deadline: Millis,
    pub round: u32,
    /// Set when a synthesis decided to go on: what it had read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FanInSummary>,
    /// Set in a debate: what the round before came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    #[serde(default)]
    pub model_ms: u64,
}

/// What a synthesis had before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FanInSummary {
    pub correlation: CorrelationId,
    pub cause: JoinCause,
    pub members: Vec<Member>,
    pub missing: Vec<Child>,
    /// Spent below the fan-out.
    #[serde(flatten)]
    pub spent: Spent,
}

/// A subagent of a fan-out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    pub index: u32,
    pub session: SessionId,
    pub goal: String,
    #[serde(default)]
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Vec<String>>,
}

/// What fan-in reads: `sessions/{session}/steps/{n}/fanout`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FanOutRecord {
    pub session: SessionId,
    pub step: u32,
    pub root: SessionId,
    pub correlation: CorrelationId,
    pub children: Vec<Child>,
    pub policy: JoinPolicy,
    pub join_deadline: Millis,
    pub synthesis_step: u32,
    /// Bounds each child was given.
    #[serde(default)]
    pub allotment: RunLimits,
    /// The synthesis request: it carries only the verdict's key, so it can be written beforehand.
    pub synthesis: Publication,
}

/// The verdict: `sessions/{session}/steps/{n}/fanin`. Frozen: the synthesis reads only this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FanInRecord {
    pub correlation: CorrelationId,
    pub members: Vec<Member>,
    pub missing: Vec<Child>,
    pub cause: JoinCause,
    /// The rule it was concluded by.
    #[serde(default, skip_serializing_if = "JoinPolicy::is_all")]
    pub policy: JoinPolicy,
    /// What the missing may have spent: their whole allotment.
    #[serde(flatten, with = "crate::spent::missing")]
    pub missing_spent: Spent,
    /// Identifies the creator, to settle an ambiguous reply.
    #[serde(default)]
    pub nonce: String,
}

impl FanInRecord {
    /// Whether those that had not ended are done without: their rule did not wait for them.
    pub fn does_without(&self) -> bool {
        match self.cause {
            JoinCause::Complete | JoinCause::Enough => true,
            JoinCause::Deadline => self.policy == JoinPolicy::Deadline,
        }
    }

    /// Spent below this fan-out; the missing count as fully spent.
    pub fn spent(&self) -> Spent {
        self.members.iter().map(|m| m.spent).sum::<Spent>() + self.missing_spent
    }
}

/// What let a fan-in conclude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinCause {
    #[default]
    Complete,
    Enough,
    Deadline,
}

impl JoinCause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Enough => "enough",
            Self::Deadline => "deadline",
        }
    }
}

/// A sibling that is terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub index: u32,
    pub session: SessionId,
    pub goal: String,
    pub status: CompletionStatus,
    /// Whether something is missing from its answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// URI of the result document; empty where there is none.
    #[serde(default)]
    pub document: String,
    /// What its answer rests on, sorted by URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// What the sibling and all below it spent.
    #[serde(flatten)]
    pub spent: Spent,
}

/// The terminal states of a sibling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompletionStatus {
    Answered,
    #[default]
    Error,
    Timeout,
    Cancelled,
    DeadLettered,
}

impl CompletionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::DeadLettered => "dead-lettered",
        }
    }

    /// Reads the literal of `tg:status`; anything unknown counts as an error.
    pub fn from_literal(text: &str) -> Self {
        match text {
            "answered" | "complete" | "completed" => Self::Answered,
            "timeout" => Self::Timeout,
            "cancelled" => Self::Cancelled,
            "dead-lettered" => Self::DeadLettered,
            _ => Self::Error,
        }
    }
}
