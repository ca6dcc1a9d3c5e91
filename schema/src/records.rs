//! The records of the protocol: what a committed step, a fan-out and a verdict say.
//!
//! Records are create-if-absent and never change. Replay, verification and audit read nothing
//! else. Everything in them is tolerant of missing and unknown fields, because old and new workers
//! share them during a rollout.

use crate::Millis;
use crate::config::{DefaultAnswer, JoinPolicy};
use crate::id::{ApprovalId, CollectionName, ConversationId, CorrelationId, Digest, SessionId};
pub use crate::request::Source;
use crate::request::{AgentRequest, PlanStep, RunLimits};
use crate::spent::{Cost, Money, Spent};
use crate::topics::{AGENT_REQUEST, EXPLAINABILITY, property};
pub use crate::worked::{
    Adopted, EndedBy, EndedFromOutside, FailedCall, FleetLimits, ForkedFrom, ModelWait, PRICED,
    StreamedPart, StreamedParts, TELLING, Worked,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

impl StepRecord {
    /// SHA-256 of the record without what it publishes. The next record names it, so that a chain
    /// of records can be verified; the publications carry the name, so they cannot be part of it.
    pub fn identity(&self) -> Digest {
        let bare = Self {
            publications: Vec::new(),
            ..self.clone()
        };
        // A record is plain data: writing it as JSON cannot fail.
        Digest::of(&serde_json::to_vec(&bare).unwrap_or_default())
    }

    /// [`TELLING`] of the version that worked the step.
    pub fn telling(&self) -> u32 {
        self.worked.as_ref().map_or(0, |worked| worked.telling)
    }

    /// The nonce from which the sessions of subagents were derived, where they were.
    pub fn nonce_told(&self) -> String {
        match self.telling() {
            0..=2 => String::new(),
            _ => self.nonce.clone(),
        }
    }

    /// When the step began: its first attempt, not the one that won.
    pub fn began(&self) -> Millis {
        let worked = self.worked.as_ref().filter(|_| self.telling() > 0);
        let came_at = worked.and_then(|worked| worked.came_at);
        came_at.map_or(self.started_at, |came_at| came_at.min(self.started_at))
    }

    /// What the answer of a session rests on, where the record ends one and that is known.
    pub fn grounds(&self) -> Option<&Grounds> {
        match &self.activity {
            Activity::Concluded(end) => end.grounds.as_ref(),
            Activity::None
            | Activity::Iterated(_)
            | Activity::FannedOut(_)
            | Activity::Planned(_)
            | Activity::Executed(_)
            | Activity::Asked(_)
            | Activity::Decided(_) => None,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worked: Option<Box<Worked>>,
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
}

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

/// The end of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Concluded {
    pub termination: Termination,
    pub thought: String,
    /// Number of the iteration the answer was given in; 0 for a synthesis.
    #[serde(default)]
    pub n: u32,
    #[serde(default)]
    pub partial: bool,
    /// The fan-in this synthesis read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_in: Option<FanInSummary>,
    /// Set at the end of a debate: what its last round came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// What the agent said of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critique: Option<Critique>,
    /// Confidence by part, from 0 to 1, as stated in the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confidence: Vec<PartConfidence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::response::ErrorBody>,
    #[serde(default)]
    pub model_ms: u64,
    /// Calls that attempts at this step had made before it was ended over their heads. They are
    /// iterations of the session, cut off after the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_off: Vec<Iterated>,
    /// What an answer rests on; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grounds: Option<Grounds>,
}

/// The sources that were read for an answer. It rests on none of them where both lists are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Grounds {
    /// Those that the answer names.
    pub cited: Vec<Source>,
    /// The others.
    pub consulted: Vec<Source>,
}

impl Grounds {
    pub fn is_empty(&self) -> bool {
        self.cited.is_empty() && self.consulted.is_empty()
    }

    pub fn all(&self) -> impl Iterator<Item = &Source> {
        self.cited.iter().chain(&self.consulted)
    }
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

/// Confidence in one part of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartConfidence {
    pub part: String,
    pub confidence: f64,
}

/// How far a run is, by the name it has on every surface: the command line, HTTP, filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "SessionState")]
pub enum RunState {
    /// Taken in, and no step is done: it waits for a worker, or is at work on its first step.
    #[default]
    Queued,
    Running,
    /// With a call that waits for a person.
    Waiting,
    Answered,
    /// With an answer in which something is missing.
    Partial,
    /// Ended in an error, a dead letter included.
    Failed,
    Cancelled,
    /// Ended because its time was used up.
    Timeout,
}

impl RunState {
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Answered,
        Self::Partial,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Answered => "answered",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    pub fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Waiting => false,
            Self::Answered | Self::Partial | Self::Failed | Self::Cancelled | Self::Timeout => true,
        }
    }

    /// Of a session, by the newest of its steps.
    pub fn of(newest: Option<&StepRecord>) -> Self {
        let Some(record) = newest else {
            return Self::Queued;
        };
        let end = match &record.activity {
            Activity::Concluded(end) => Some(end),
            _ => None,
        };
        let termination = end.map(|end| end.termination);
        match record.outcome {
            OutcomeKind::Continue | OutcomeKind::FanOut => Self::Running,
            OutcomeKind::Pause => Self::Waiting,
            OutcomeKind::Answer => {
                Self::ended(true, end.is_some_and(|end| end.partial), termination)
            }
            OutcomeKind::Cancelled | OutcomeKind::Fail => Self::ended(false, false, termination),
        }
    }

    /// Of a session that has ended.
    pub fn ended(answered: bool, partial: bool, termination: Option<Termination>) -> Self {
        match (answered, partial, termination) {
            (true, false, _) => Self::Answered,
            (true, true, _) => Self::Partial,
            (false, _, Some(Termination::Cancelled)) => Self::Cancelled,
            (false, _, Some(Termination::Timeout)) => Self::Timeout,
            (false, _, _) => Self::Failed,
        }
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Termination {
    #[default]
    FinalAnswer,
    SubagentsComplete,
    PlanComplete,
    MaxIterations,
    /// A plan was revised as often as it may be, and a step of it failed or surprised again.
    MaxReplans,
    BudgetExhausted,
    /// It made the same call again and again.
    RepeatedAction,
    /// The model's reply was cut at the limit of its length: what there is of it is the answer.
    ReplyCut,
    Error,
    Cancelled,
    Timeout,
    DeadLettered,
}

impl Termination {
    /// Reads what [`Self::as_str`] writes.
    pub fn named(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::FinalAnswer => "final-answer",
            Self::SubagentsComplete => "subagents-complete",
            Self::PlanComplete => "plan-complete",
            Self::MaxIterations => "max-iterations",
            Self::MaxReplans => "max-replans",
            Self::BudgetExhausted => "budget-exhausted",
            Self::RepeatedAction => "repeated-action",
            Self::ReplyCut => "reply-cut",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::DeadLettered => "dead-lettered",
        }
    }
}

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
    },
    Tool {
        name: String,
        arguments: BTreeMap<String, String>,
        result: String,
        is_error: bool,
        ms: u64,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sources: Vec<Source>,
        /// Set where it is another attempt's call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adopted: Option<Adopted>,
    },
    Facts {
        query: String,
        rows: u64,
        /// Pairs of subagent session and source.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        found: Vec<(String, Source)>,
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
            Self::Facts { .. } | Self::Document { .. } => Spent::default(),
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
    /// What is known of the cost, from a record that tells of its step as `telling` says. Before
    /// [`PRICED`] a record did not say whether there were prices.
    pub fn known_cost(&self, telling: u32) -> Cost {
        let says = telling >= PRICED || self.cost > 0.0 || self.total() == 0;
        Cost::of(self.cost, says && self.unpriced_calls == 0)
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

/// One message to be published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Publication {
    pub topic: String,
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Millis>,
    /// The payload, JSON text.
    pub body: String,
}

/// A text in the librarian.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentRef {
    pub uri: String,
    pub digest: Digest,
    pub bytes: u64,
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
    /// What its answer rests on, sorted by URI; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<Source>>,
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

/// `trees/{root}/closed`: nothing new starts in this tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedRecord {
    /// `cancelled` or `deadline`.
    pub cause: String,
    pub at: Millis,
    #[serde(default)]
    pub by: String,
}

/// `trees/{session}/tombstone`: this session was erased. Older programs left it empty.
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
