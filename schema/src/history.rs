//! What a request brings with it of the steps before: the history, and the plan in it.

use crate::tolerant::{null_default, string_map};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $kind:literal;)+) => {
        /// What a step of a history was, as its `step_type` says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StepKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl StepKind {
            const ALL: &[Self] = &[$(Self::$name),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $kind,)+
                }
            }
        }
    };
}

kinds! {
    /// An iteration of an agent.
    React = "react";
    /// A plan that was made or revised.
    Plan = "plan";
    /// A step of a plan.
    Execute = "execute";
    /// A fan-out, or why there was none.
    Supervise = "supervise";
    /// A fan-in.
    Synthesise = "synthesise";
    /// What stands for older steps.
    Summary = "summary";
    /// A critique.
    Reflect = "reflect";
    /// What a router gave away: nothing that was found out.
    Route = "route";
}

impl From<StepKind> for String {
    fn from(kind: StepKind) -> Self {
        kind.as_str().to_owned()
    }
}

impl AgentStep {
    /// `None` for a kind of nobody here: callers may bring a history along.
    pub fn kind(&self) -> Option<StepKind> {
        if self.step_type.is_empty() {
            return Some(StepKind::React);
        }
        let mut kinds = StepKind::ALL.iter().copied();
        kinds.find(|kind| kind.as_str() == self.step_type)
    }

    pub fn is(&self, kind: StepKind) -> bool {
        self.kind() == Some(kind)
    }
}

/// One step in the history of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentStep {
    #[serde(default, deserialize_with = "null_default")]
    pub thought: String,
    /// Tool name, or what the step did.
    #[serde(default, deserialize_with = "null_default")]
    pub action: String,
    #[serde(default, deserialize_with = "string_map")]
    pub arguments: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_default")]
    pub observation: String,
    #[serde(default, deserialize_with = "null_default")]
    pub user: String,
    /// `react`, `plan`, `execute`, `supervise`, `synthesise`, `summary`; empty reads as `react`.
    #[serde(default, deserialize_with = "null_default")]
    pub step_type: String,
    /// The structured plan, on plan-then-execute steps.
    #[serde(default)]
    pub plan: Option<Vec<PlanStep>>,
    /// Goal to result (a document URI or a status), on synthesise steps.
    #[serde(default)]
    pub subagent_results: Option<BTreeMap<String, serde_json::Value>>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    #[serde(default, deserialize_with = "null_default")]
    pub goal: String,
    /// Suggested tool: advice, not a rule.
    #[serde(default, deserialize_with = "null_default")]
    pub tool_hint: String,
    /// Indices of the steps this one needs.
    #[serde(default, deserialize_with = "null_default")]
    pub depends_on: Vec<u32>,
    /// `pending`, `complete`, `failed` or `revised`.
    #[serde(default = "pending", deserialize_with = "status")]
    pub status: String,
    #[serde(default, deserialize_with = "null_default")]
    pub result: String,
    /// Who is to work on it; empty if it does not matter. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub specialist: String,
    /// Whether something is missing from its result. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub partial: bool,
}

impl Default for PlanStep {
    fn default() -> Self {
        Self {
            goal: String::new(),
            tool_hint: String::new(),
            depends_on: Vec::new(),
            status: pending(),
            result: String::new(),
            specialist: String::new(),
            partial: false,
        }
    }
}

fn pending() -> String {
    "pending".to_owned()
}

fn status<'de, D: serde::Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(d)?
        .filter(|s| !s.is_empty())
        .unwrap_or_else(pending))
}
