//! The records of the protocol: what a committed step, a fan-out and a verdict say.
//!
//! Records are create-if-absent and never change. Replay, verification and audit read nothing
//! else. Everything in them is tolerant of missing and unknown fields, because old and new workers
//! share them during a rollout.

mod access;
mod activity;
mod approval;
mod call;
mod end;
mod fan_out;

use crate::Millis;
use crate::id::{CollectionName, ConversationId, CorrelationId, Digest, SessionId};
use crate::request::AgentRequest;
pub use crate::request::Source;
use crate::spent::Spent;
use crate::topics::{AGENT_REQUEST, EXPLAINABILITY, property};
pub use crate::worked::{
    Adopted, EndedBy, EndedFromOutside, FailedCall, FleetLimits, ForkedFrom, ModelWait,
    StreamedPart, StreamedParts, Worked,
};
pub use access::{ApiKeyRecord, AuditEntry, MemoryRecord, RevokedRecord, Used};
pub use activity::{
    Activity, Critique, DecidedBy, Decision, Described, Executed, Iterated, Planned, Routed,
    StepResult,
};
pub use approval::{ApprovalAnswer, ApprovalPlace, Asked, Decided, PauseRecord};
pub use call::{
    Call, CallStatus, DebitRecord, FailedTry, IntentRecord, ResultRecord, Trouble, Usage,
};
pub use end::{Concluded, Grounds, PartConfidence, RunState, Termination};
pub use fan_out::{
    Child, Compared, CompletionStatus, FanInRecord, FanInSummary, FanOutRecord, FannedOut,
    JoinCause, Member, Position,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

impl StepRecord {
    /// SHA-256 of the record without what it publishes. The next record names it, so that a chain
    /// of records can be verified; the publications carry the name, so they cannot be part of it.
    pub fn identity(&self) -> Digest {
        Digest::of(&self.bare())
    }

    /// The record without what it publishes, as JSON.
    pub fn bare(&self) -> Vec<u8> {
        // A record is plain data: writing it as JSON cannot fail.
        if self.publications.is_empty() {
            return serde_json::to_vec(self).unwrap_or_default();
        }
        let bare = Self {
            publications: Vec::new(),
            ..self.clone()
        };
        serde_json::to_vec(&bare).unwrap_or_default()
    }

    /// The record as it is stored: its [`bare`](Self::bare) form and what it publishes. What it tells the
    /// graph follows from the rest, so the bodies of those messages are left out.
    pub fn stored(mut bare: Vec<u8>, publications: &[Publication]) -> Vec<u8> {
        const NONE: &[u8] = b"\"publications\":[]";
        let kept: Vec<Kept<'_>> = publications.iter().map(Kept::of).collect();
        let kept = serde_json::to_vec(&kept).unwrap_or_default();
        // Members that come after it have no such name within them, so it is the last one.
        let last = bare.windows(NONE.len()).rposition(|bytes| bytes == NONE);
        if let Some(end) = last.map(|at| at + NONE.len()) {
            bare.splice(end - 2..end, kept);
        }
        bare
    }

    /// When the step began: its first attempt, not the one that won.
    pub fn began(&self) -> Millis {
        let came_at = self.worked.came_at.unwrap_or(self.started_at);
        came_at.min(self.started_at)
    }

    /// What the answer of a session rests on, where the record ends one and that is known.
    pub fn grounds(&self) -> Option<&Grounds> {
        self.concluded()?.grounds.as_ref()
    }

    /// How the session ended, where the record ends it.
    pub fn concluded(&self) -> Option<&Concluded> {
        match &self.activity {
            Activity::Concluded(end) => Some(end),
            _ => None,
        }
    }

    /// The subagents that the step started.
    pub fn children(&self) -> &[Child] {
        match &self.activity {
            Activity::FannedOut(fan_out) => &fan_out.children,
            _ => &[],
        }
    }

    /// The messages of what the step tells the graph: one, or more where there is much to tell.
    pub fn provenance(&self) -> impl Iterator<Item = &Publication> {
        let published = self.publications.iter();
        published.filter(|publication| publication.topic == EXPLAINABILITY.as_str())
    }

    /// The request that the record published for a session, its own or a subagent's.
    pub fn request_for(&self, session: &SessionId) -> Option<&Publication> {
        self.publications.iter().find(|publication| {
            let of = publication.properties.get(property::SESSION);
            publication.topic == AGENT_REQUEST.as_str()
                && of.map(String::as_str) == Some(session.as_str())
        })
    }
}

/// `sessions/{session}/accepted`: a request that was taken in, and the message that was made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AcceptedRecord {
    pub session: SessionId,
    /// The caller's own id of the request.
    pub id: String,
    pub user: String,
    pub accepted_at: Millis,
    /// Identifies the creator, to settle an ambiguous reply.
    pub nonce: String,
    /// Position on the topic of responses that every response of the run lies behind; 0 if that is
    /// not known.
    pub responses_after: i64,
    pub publication: Publication,
}

impl AcceptedRecord {
    /// What was asked.
    pub fn asked(&self) -> Option<AgentRequest> {
        serde_json::from_str(&self.publication.body).ok()
    }
}

/// What one step decided and did: the commit point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub session: SessionId,
    pub step: u32,
    pub root: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLink>,
    #[serde(default, skip_serializing_if = "ConversationId::is_empty")]
    pub conversation: ConversationId,
    /// Whose run it is; empty where nobody was asked who they are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// Who asked, where that was found out at a door.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub principal: String,
    #[serde(default)]
    pub collection: CollectionName,
    /// SHA-256 of the request message this step answers.
    #[serde(default)]
    pub request: Digest,
    /// SHA-256 of the record of the step before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// Identifies the attempt that won.
    #[serde(default)]
    pub nonce: String,
    #[serde(default)]
    pub attempt: u32,
    #[serde(default)]
    pub config_version: u64,
    #[serde(default)]
    pub started_at: Millis,
    #[serde(default)]
    pub committed_at: Millis,
    pub outcome: OutcomeKind,
    /// The routing of this run, on the step that routed it or first found it preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<Routed>,
    /// Choices from configured sets, other than the routing's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// What the step did, as provenance tells it.
    #[serde(default)]
    pub activity: Activity,
    /// The node this step's first node derives from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub derives_from: String,
    /// Every call out, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    #[serde(default)]
    pub usage: Usage,
    /// What this session and all below it have spent, this step included.
    #[serde(flatten, with = "crate::spent::total")]
    pub total: Spent,
    /// What attempts at this step spent that did not come to this record; counted in `total`.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub wasted: Spent,
    /// Everything to be published, in order.
    #[serde(default)]
    pub publications: Vec<Publication>,
    /// Documents created with this record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub documents: Vec<DocumentRef>,
    /// Where this session went on from another, on its first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// What else the step was worked with, so that it can be worked again from this record.
    #[serde(default)]
    pub worked: Box<Worked>,
}

/// A subagent's place in its parent's fan-out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentLink {
    pub session: SessionId,
    pub step: u32,
    pub correlation: CorrelationId,
    pub index: u32,
    #[serde(default)]
    pub goal: String,
}

/// How a step ended: exactly one of these (OR-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeKind {
    #[default]
    Continue,
    FanOut,
    Answer,
    Pause,
    Cancelled,
    Fail,
}

impl OutcomeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::FanOut => "fan-out",
            Self::Pause => "pause",
            Self::Answer => "answer",
            Self::Cancelled => "cancelled",
            Self::Fail => "fail",
        }
    }

    /// Whether the session ends with it.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Continue | Self::FanOut | Self::Pause => false,
            Self::Answer | Self::Cancelled | Self::Fail => true,
        }
    }
}

/// One message to be published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Publication {
    pub topic: String,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Millis>,
    /// The payload, JSON text. Empty where a record is stored with what it tells the graph: that
    /// follows from the record.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// A publication as it is stored with its record.
#[derive(Serialize)]
struct Kept<'a> {
    topic: &'a str,
    properties: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<Millis>,
    #[serde(skip_serializing_if = "str::is_empty")]
    body: &'a str,
}

impl<'a> Kept<'a> {
    fn of(publication: &'a Publication) -> Self {
        let is_told = publication.topic == EXPLAINABILITY.as_str();
        Self {
            topic: &publication.topic,
            properties: &publication.properties,
            deliver_at: publication.deliver_at,
            body: if is_told { "" } else { &publication.body },
        }
    }
}

/// A text in the librarian.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentRef {
    pub uri: String,
    pub digest: Digest,
    pub bytes: u64,
}

/// `trees/{root}/closed`: nothing new starts in this tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedRecord {
    /// `cancelled` or `deadline`.
    pub cause: String,
    pub at: Millis,
    #[serde(default)]
    pub by: String,
}

/// `trees/{session}/tombstone`: this session was erased.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    #[serde(default)]
    pub erased_at: Millis,
}

impl Tombstone {
    pub fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

/// A message that could not be worked: `parked/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedRecord {
    pub id: String,
    pub topic: String,
    pub reason: String,
    pub parked_at: Millis,
    pub properties: BTreeMap<String, String>,
    /// The body, as text where it is UTF-8, else base16.
    pub body: String,
    #[serde(default)]
    pub binary: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven_as: Option<String>,
}
