//! What a step decided and did: the input of its provenance triples.

use super::{Asked, Concluded, Decided, FanInSummary, FannedOut, Source};
use crate::history::PlanStep;
use crate::id::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the step did: the input of its provenance triples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Activity {
    /// Nothing beside the routing and the decisions.
    #[default]
    None,
    Iterated(Iterated),
    FannedOut(FannedOut),
    Planned(Planned),
    Executed(Executed),
    Asked(Asked),
    Decided(Decided),
    Concluded(Concluded),
}

/// The meta-router's decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routed {
    pub question: String,
    pub task_type: String,
    pub pattern: String,
    pub decisions: Vec<Decision>,
    /// What the config said of the task types and patterns that the decisions name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub described: Vec<Described>,
}

/// A configured item in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Described {
    /// Subject of the decision that names it: `task-type` or `pattern`.
    pub subject: String,
    pub name: String,
    pub description: String,
}

/// A choice from a configured set (PV-2: `chosen` is among `options`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What was chosen: `task-type`, `pattern`, `next-round`.
    pub subject: String,
    pub options: Vec<String>,
    /// What narrowed the options to these.
    pub narrowed_by: String,
    /// What made the choice among them.
    pub signal: String,
    pub chosen: String,
    pub decided_by: DecidedBy,
    /// The chooser's words; stored as a document, not as a triple.
    #[serde(default)]
    pub rationale: String,
}

/// How a decision was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    Model,
    OnlyOption,
    #[default]
    Fallback,
    Caller,
    Person,
}

impl DecidedBy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::OnlyOption => "only-option",
            Self::Fallback => "fallback",
            Self::Caller => "caller",
            Self::Person => "person",
        }
    }
}

/// One think, act, observe cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iterated {
    /// Number of the iteration, from 1.
    pub n: u32,
    pub thought: String,
    pub action: String,
    pub arguments: BTreeMap<String, String>,
    /// The observation; a preview if the whole is a document.
    pub observation: String,
    #[serde(default)]
    pub is_error: bool,
    /// Tools that were visible: the options of this choice.
    pub candidates: Vec<String>,
    #[serde(default)]
    pub sources: Vec<Source>,
    #[serde(default)]
    pub model_ms: u64,
    #[serde(default)]
    pub tool_ms: u64,
    /// What the agent said of it afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critique: Option<Critique>,
    /// What the agent that was called brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FanInSummary>,
}

/// What an agent finds wrong with what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Critique {
    /// What went wrong; empty if nothing did.
    pub wrong: String,
    /// What to try next.
    pub next: String,
    /// Whether it sent the agent back.
    #[serde(default)]
    pub sent_back: bool,
}

/// A plan that was made or revised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// 0 for the first plan.
    pub revision: u32,
    pub thought: String,
    /// Why it was revised.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The whole plan, with what was done of it before.
    pub steps: Vec<PlanStep>,
    /// Index of the first step that is new.
    #[serde(default)]
    pub first: u32,
    #[serde(default)]
    pub model_ms: u64,
}

/// Steps of a plan that came to an end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Executed {
    /// Revision of the plan they belong to.
    pub revision: u32,
    pub steps: Vec<StepResult>,
    /// The call that was made for them; none if none was needed, or if subagents worked on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Iterated>,
    /// What subagents brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FanInSummary>,
    #[serde(default)]
    pub model_ms: u64,
}

/// What became of one step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepResult {
    /// Place in the plan, from 0.
    pub index: u32,
    pub goal: String,
    /// `complete` or `failed`.
    pub status: String,
    #[serde(default)]
    pub depends_on: Vec<u32>,
    /// Session of the subagent that worked on it; empty if none did.
    #[serde(default, skip_serializing_if = "SessionId::is_empty")]
    pub session: SessionId,
}
