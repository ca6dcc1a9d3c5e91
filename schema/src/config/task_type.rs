//! `agent-task-type` items, and the policy by which their fan-outs are joined.

use crate::id::SessionId;
use crate::request::RunLimits;
use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `agent-task-type`: a problem domain, its framing and the patterns that suit it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentTaskType {
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub description: String,
    /// Domain methodology put before the question. The peer calls it `framing`.
    #[serde(default, deserialize_with = "null_default", alias = "framing")]
    pub framing_prompt: String,
    /// Patterns a run of this type may use, best first; empty means all that are configured.
    #[serde(default, deserialize_with = "null_default")]
    pub valid_patterns: Vec<String>,
    #[serde(default, deserialize_with = "null_default")]
    pub when_to_use: String,
    /// When a fan-out of this type may conclude.
    #[serde(default, deserialize_with = "null_default")]
    pub join: JoinPolicy,
    /// When an agent of this type is to stop.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "TerminationCriteria::is_empty"
    )]
    pub termination: TerminationCriteria,
    /// By pattern, the key of the model profile that comes before those of the operations.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub profiles: BTreeMap<String, String>,
    /// By operation, the id of the prompt that is used instead of its own.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub prompts: BTreeMap<String, String>,
    /// Key of the policy that says in which order its runs may use tools; empty leaves it to the caller.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tool_policy: String,
    /// Asks first whether a message is a task at all, and sets it out for what follows; absent asks nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// Whether the person is asked for an argument that a call lacks and nobody knows, instead of letting the
    /// agent try for as long as it may.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub ask_back: bool,
    /// How often in a row the same tool may be called, whatever its arguments, before the agent is asked what it
    /// does differently; absent leaves that open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_tool: Option<u32>,
    /// The language of sentences that the fleet itself writes, where a request names none.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub locale: String,
    /// Most exchanges of the conversation that prompts of its runs show, the newest; 20 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanges: Option<u32>,
    /// The most that a caller may ask for; absent leaves it to the fleet.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "is_default"
    )]
    pub most: RunLimits,
    /// What callers may not choose for a run of this type: of `join`, `model`, `framing`, `group`.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub fixed: Vec<String>,
    /// Whether it is in force. Only what is approved is ever offered.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Status::is_approved"
    )]
    pub status: Status,
    /// The task type whose framing it proposes to replace; empty for a task type of its own.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub improves: String,
    /// The runs that it was proposed for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Who approved or rejected it.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub decided_by: String,
    #[serde(flatten)]
    pub limits: RunLimits,
}

/// The question whether a message is a task or talk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// Most exchanges of the conversation that it is shown, the newest; 3 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanges: Option<u32>,
    /// What people may demand in so many words, and which tools are closed then.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub constraints: Vec<Constraint>,
}

/// A demand that closes tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Constraint {
    /// Phrases of a message that make it, in any case, such as `draft only`.
    #[serde(default, deserialize_with = "null_default")]
    pub phrases: Vec<String>,
    /// What is closed, as globs in which `*` stands for any characters.
    #[serde(default, deserialize_with = "null_default")]
    pub without: Vec<String>,
}

/// What a task type may keep callers from choosing.
pub mod choice {
    pub const JOIN: &str = "join";
    pub const MODEL: &str = "model";
    pub const FRAMING: &str = "framing";
    pub const GROUP: &str = "group";
    pub const ALL: &[&str] = &[JOIN, MODEL, FRAMING, GROUP];
}

/// When an agent is to stop, beside its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminationCriteria {
    /// When the task is done, in words that every agent of the type reads.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub done_when: String,
    /// Tool calls in a row that may fail before a session ends with its best partial answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u32>,
}

impl TerminationCriteria {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a task type came to be, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// In force, as are those that a person wrote.
    #[default]
    Approved,
    /// Waits for a person.
    Proposed,
    Rejected,
    /// Its framing was taken over by the task type that it improves.
    Applied,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Proposed => "proposed",
            Self::Rejected => "rejected",
            Self::Applied => "applied",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's `skip_serializing_if` passes a reference
    fn is_approved(&self) -> bool {
        *self == Self::Approved
    }
}

/// Runs that speak for a task type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// How many there were.
    #[serde(default, deserialize_with = "null_default")]
    pub runs: u32,
    /// What their questions have in common, most telling first.
    #[serde(default, deserialize_with = "null_default")]
    pub terms: Vec<String>,
    /// How many ended in which way.
    #[serde(default, deserialize_with = "null_default")]
    pub ended: BTreeMap<String, u32>,
    /// Some of them, newest first.
    #[serde(default, deserialize_with = "null_default")]
    pub sessions: Vec<EvidenceRun>,
}

/// One of those runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceRun {
    #[serde(default, deserialize_with = "null_default")]
    pub session: SessionId,
    #[serde(default, deserialize_with = "null_default")]
    pub question: String,
    /// Why it ended.
    #[serde(default, deserialize_with = "null_default")]
    pub ended: String,
}

/// When a fan-in may conclude before its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JoinPolicy {
    /// Every sibling is terminal.
    #[default]
    All,
    /// This many have answered, or every sibling is terminal.
    AtLeast(u32),
    /// More than half of them have answered, or every sibling is terminal.
    Quorum,
    /// Whoever has answered when the wait ends. Nobody else is missed.
    Deadline,
}

impl JoinPolicy {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's `skip_serializing_if` passes a reference
    pub(crate) fn is_all(&self) -> bool {
        *self == Self::All
    }

    /// How many of so many siblings must have answered before the others are not waited for; `None`
    /// where all are.
    pub fn enough(self, siblings: usize) -> Option<usize> {
        match self {
            Self::All | Self::Deadline => None,
            Self::AtLeast(count) => Some(count.max(1) as usize),
            Self::Quorum => Some(siblings / 2 + 1),
        }
    }
}

/// As provenance states it.
impl std::fmt::Display for JoinPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::AtLeast(count) => write!(f, "at-least {count}"),
            Self::Quorum => f.write_str("quorum"),
            Self::Deadline => f.write_str("deadline"),
        }
    }
}
