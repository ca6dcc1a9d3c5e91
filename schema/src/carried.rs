//! What a run carries from call to call, and a conversation from run to run: what was said and is remembered, what
//! a message was taken for, the values that tools gave, and where the tool policy stands.

use crate::id::SessionId;
use crate::tolerant::{count, null_default};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;
use std::collections::BTreeMap;

/// A value that a tool's result gave under a name, as the tool's `outputs` declare it.
#[apply(String => #[serde(default, deserialize_with = "null_default")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Known {
    /// Such as `contact_id`.
    pub name: String,
    pub value: String,
    /// The tool that gave it.
    pub tool: String,
}

/// Where a run stands in its tool policy.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")],
    u32 => #[serde(default, deserialize_with = "count")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyPosition {
    /// Key of the policy.
    pub policy: String,
    /// Name of the step that is active.
    pub step: String,
    /// How many tools of that step's sequence were used.
    pub at: u32,
    /// Tools whose calls succeeded, the newest last.
    pub used: Vec<String>,
}

/// What the next run of a conversation begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// The policy that the caller named.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool_policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Box<PolicyPosition>>,
    /// Tools that stay closed, because the message that closed them is not done: the person was asked back.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

impl Carried {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A question of a conversation, and what the run that worked it answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exchange {
    #[serde(default)]
    pub session: SessionId,
    #[serde(default, deserialize_with = "null_default")]
    pub question: String,
    #[serde(default, deserialize_with = "null_default")]
    pub answer: String,
}

/// Something remembered for a user or a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    #[serde(default, deserialize_with = "null_default")]
    pub name: String,
    #[serde(default, deserialize_with = "null_default")]
    pub value: String,
}

/// A message as the stages behind the gate work it: set out once, so that none of them reads it anew.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Brief {
    /// `TASK` or `CONVERSATION`.
    pub intent: String,
    /// What is to be done, in full words.
    pub goal: String,
    /// What the message names, by kind, such as `contacts` or `emails`.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entities: BTreeMap<String, Vec<String>>,
    /// What who asks demands beside it, such as a draft only.
    pub constraints: Vec<String>,
    /// What is not clear.
    pub ambiguities: Vec<String>,
    /// The message as it came.
    pub raw_message: String,
}
