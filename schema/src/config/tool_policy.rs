//! `tool-policy` items: in which order tools may be used.

use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;

/// `tool-policy`: steps, each with the tools that may be called in it. Just one is active at a time.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolPolicy {
    pub name: String,
    pub description: String,
    /// In this order they are looked at: the first whose conditions are met becomes active.
    pub steps: Vec<PolicyStep>,
}

/// One step of a policy.
#[apply(
    String => #[serde(default, deserialize_with = "null_default")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyStep {
    pub name: String,
    /// What the agent is told of the step.
    pub description: String,
    /// Whether a run begins in it. One step has this.
    #[serde(
        rename = "isDefault",
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub is_default: bool,
    /// All of them must be met for the step to become active.
    pub conditions: Vec<Condition>,
    /// Tools that must be used in this order. It comes before `availableTools`, which counts once all of
    /// them were used.
    pub sequence: Vec<String>,
    #[serde(
        rename = "availableTools",
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "AvailableTools::is_all"
    )]
    pub available_tools: AvailableTools,
}

/// When a step becomes active.
#[apply(String => #[serde(default, deserialize_with = "null_default")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Condition {
    /// `tool_used`: the newest call that succeeded was of the tool `value`. `sequence_match`: the newest
    /// calls that succeeded are the sequence of the step `value`, or of this one where none is named.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// Types a condition may have.
pub mod condition_type {
    pub const TOOL_USED: &str = "tool_used";
    pub const SEQUENCE_MATCH: &str = "sequence_match";
    pub const ALL: &[&str] = &[TOOL_USED, SEQUENCE_MATCH];
}

/// Tools by name, as globs in which `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AvailableTools {
    /// None but these; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    /// Not these, whatever is allowed.
    #[serde(default, deserialize_with = "null_default")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
}

impl AvailableTools {
    fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a tool of that name is among them.
    pub fn allow(&self, tool: &str) -> bool {
        let fits = |globs: &[String]| globs.iter().any(|glob| super::fits(glob, tool));
        self.allowed.as_deref().is_none_or(fits) && !fits(&self.denied)
    }
}

impl ToolPolicy {
    pub fn step(&self, name: &str) -> Option<&PolicyStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// The step whose sequence a condition of a step is about: the one that it names, else its own.
    pub fn sequence_of<'a>(
        &'a self,
        own: &'a PolicyStep,
        condition: &Condition,
    ) -> Option<&'a PolicyStep> {
        if condition.value.is_empty() {
            return Some(own);
        }
        self.step(&condition.value)
    }

    /// The step that a run begins in.
    pub fn first(&self) -> Option<&PolicyStep> {
        let default = self.steps.iter().find(|step| step.is_default);
        default.or_else(|| self.steps.first())
    }
}
