//! What a step record holds beside its outcome, so that the step can be worked again from records
//! alone: surroundings of the work, failed model calls, what was streamed, and ends that came from
//! outside the turn. Everything in it is tolerant of missing and unknown fields.

use crate::Millis;
use crate::carried::{Carried, Exchange, Memory};
use crate::id::{Digest, SessionId};
use crate::records::{FailedTry, Termination};
use crate::request::RunLimits;
use crate::response::ErrorBody;
use crate::spent::Money;
use crate::tolerant::null_default;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;

/// The surroundings of one step's work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worked {
    /// The message that was worked, where no record before this one holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What the message was found to follow in its conversation, on a root's first step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conversation: Vec<Exchange>,
    /// What was remembered for who asked, on a root's first step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memories: Vec<Memory>,
    /// What the run before it in its conversation carried, on a root's first step.
    #[serde(skip_serializing_if = "Carried::is_nothing")]
    pub carried: Carried,
    /// What was left of the tenant's quota, on a root's first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<QuotaLeft>,
    /// When the message came first, where that is not when the work began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub came_at: Option<Millis>,
    /// Whether the model could call tools natively.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub native_tools: bool,
    /// The fleet's own limits in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetLimits>,
    /// Where the responses went, if not to the fleet's own topic.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub responses: String,
    /// Model calls that failed for good, and that the turn was told of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailedCall>,
    /// The model call that was not made, because what was left of a budget does not pay for it; the step
    /// ended with what it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unaffordable: Option<FailedCall>,
    /// Set where the model could not answer at first, or never did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited: Option<ModelWait>,
    #[serde(skip_serializing_if = "StreamedParts::is_empty")]
    pub streamed: StreamedParts,
    /// Set where the step did not end by its own turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedFromOutside>,
}

/// With fewer tokens left no run comes to anything.
pub const LEAST_TOKENS: u64 = 1_000;

/// What was left of the quota of a tenant. Absent means without bound.
#[apply(Option<_> => #[serde(default, skip_serializing_if = "Option::is_none")])]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaLeft {
    /// The month that was counted, as `2026-11`.
    #[serde(default, deserialize_with = "null_default")]
    pub month: String,
    pub runs: Option<u64>,
    pub tokens: Option<u64>,
    pub cost: Option<Money>,
}

impl QuotaLeft {
    /// What is used up, if anything is.
    pub fn used_up(&self) -> Option<&'static str> {
        let is_none = |left: Option<u64>| left == Some(0);
        if is_none(self.runs) {
            return Some("runs");
        }
        if self.tokens.is_some_and(|left| left < LEAST_TOKENS) {
            return Some("tokens");
        }
        is_none(self.cost.map(Money::as_millionths)).then_some("money")
    }
}

/// A model call without a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedCall {
    /// How many recorded calls came before it.
    pub after: u32,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Whether the model replied, without a word: the next recorded call is this one, with what it cost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replied: bool,
    /// Models that were to answer, and did not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<FailedTry>,
}

/// How a step was put off because its model could not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelWait {
    /// How often it was put off.
    pub times: u32,
    /// From the first failure to the beginning of the attempt that the record is of.
    pub ms: u64,
    /// What the provider said last.
    pub reason: String,
}

/// What was streamed before the commit, by part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamedParts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<StreamedPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<StreamedPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<StreamedPart>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_gap: bool,
}

impl StreamedParts {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A text that was streamed: in the end it is, or is not, the beginning of what was said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamedPart {
    pub chunks: u32,
    pub bytes: u64,
    pub digest: Digest,
}

impl StreamedPart {
    /// `None` where nothing was streamed.
    pub fn of(text: &str, chunks: u32) -> Option<Self> {
        (chunks > 0).then(|| Self {
            chunks,
            bytes: text.len() as u64,
            digest: Digest::of(text.as_bytes()),
        })
    }
}

/// How a step ended over the head of its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedFromOutside {
    pub by: EndedBy,
    /// In the words of the end; empty where there is an error.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub termination: Termination,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// What ended a step over the head of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndedBy {
    /// The run was closed: cancelled, or its time was up.
    Closed,
    /// A fan-out above has its verdict.
    DecidedAbove,
    /// The time of the run was up when the step was worked.
    Deadline,
    /// No try came to its end.
    GaveUp,
    /// The request asks for what cannot be done.
    Refused,
    /// The step would have published more than a message may hold.
    TooLarge,
    /// Ended from outside: cancelled, out of time, or decided above.
    Cancelled,
    /// Ended from outside: no worker could work its message.
    DeadLetter,
    /// By something that a later version knows of.
    #[default]
    #[serde(rename = "", other)]
    Unsaid,
}

/// How a call of another attempt came into a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adopted {
    /// In place of the call that was ordered.
    Instead,
    /// Before an end that ordered none.
    Unasked,
}

/// Where a forked session went on from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForkedFrom {
    #[serde(default)]
    pub session: SessionId,
    /// The step whose request it works.
    #[serde(default)]
    pub step: u32,
    /// The provenance node which that step derived from.
    #[serde(default)]
    pub node: String,
}

/// The fleet's own settings, used where nothing narrower says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetLimits {
    pub max_iterations: u32,
    pub max_subagents: u32,
    pub max_depth: u32,
    pub max_sessions: u32,
    pub max_rounds: u32,
    pub max_replan_depth: u32,
    pub max_reflections: u32,
    pub subagent_timeout_ms: u64,
    pub run_timeout_ms: u64,
    /// Largest observation that travels in the history; longer ones become documents.
    pub max_observation_bytes: usize,
    /// Tokens of the model's window where its profile does not say; 0 bounds no history.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub context_window: u32,
    /// Replies in a row that cannot be used before the step gives up on a better one.
    pub max_retries: u32,
    /// What the operator allows at most, whatever request and config say.
    pub most: RunLimits,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's `skip_serializing_if` passes a reference
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Default for FleetLimits {
    fn default() -> Self {
        Self {
            max_iterations: 10,
            max_subagents: 8,
            max_depth: 2,
            max_sessions: 1_000,
            max_rounds: 3,
            max_replan_depth: 2,
            max_reflections: 2,
            subagent_timeout_ms: 5 * 60_000,
            run_timeout_ms: 60 * 60_000,
            max_observation_bytes: 16 * 1024,
            context_window: 128_000,
            max_retries: 3,
            most: RunLimits::default(),
        }
    }
}
