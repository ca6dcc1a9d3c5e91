//! A call that waits for a person, and what became of it.

use super::Publication;
use crate::Millis;
use crate::config::DefaultAnswer;
use crate::id::{ApprovalId, SessionId};
use crate::request::AgentRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A call that waits for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub id: ApprovalId,
    /// Number of the iteration that it is a call of, from 1.
    pub n: u32,
    pub tool: String,
    pub arguments: BTreeMap<String, String>,
    pub thought: String,
    /// Tools that were visible: the options of this choice.
    pub candidates: Vec<String>,
    /// Why a person is asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Set where the config asks for nobody, and an equal call of this tree was started of which
    /// nobody knows whether it took effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_unknown: bool,
    pub asked_at: Millis,
    pub expires_at: Millis,
    #[serde(default)]
    pub default: DefaultAnswer,
    #[serde(default)]
    pub model_ms: u64,
}

/// What became of a call that waited for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub id: ApprovalId,
    /// Number of the iteration that it is a call of.
    pub n: u32,
    pub tool: String,
    /// With what it is called now, or would have been.
    pub arguments: BTreeMap<String, String>,
    pub answer: ApprovalAnswer,
    /// Who answered; empty where nobody did in time, and the configured answer counts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Why, in the person's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub at: Millis,
}

/// What a person can answer about a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAnswer {
    Approve,
    #[default]
    Deny,
    /// Approve it with other arguments.
    Edit,
}

impl ApprovalAnswer {
    pub const ALL: [Self; 3] = [Self::Approve, Self::Deny, Self::Edit];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Edit => "edit",
        }
    }

    /// In the past, for sentences.
    pub fn done(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Deny => "denied",
            Self::Edit => "approved with other arguments",
        }
    }
}

/// A wait for a person: `sessions/{session}/steps/{n}/pause`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PauseRecord {
    pub session: SessionId,
    pub step: u32,
    pub root: SessionId,
    pub asked: Asked,
    /// The request that the answer is given to: the decision's step works it, and so does whatever
    /// ends the session meanwhile.
    pub resume: Publication,
}

impl PauseRecord {
    /// The request that the answer is given to.
    pub fn request(&self) -> Option<AgentRequest> {
        serde_json::from_str(&self.resume.body).ok()
    }
}

/// Where a wait for a person lies: `approvals/{root}/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalPlace {
    pub session: SessionId,
    pub step: u32,
}
