//! The end of a session, and how far a run is.

use super::{Compared, Critique, FanInSummary, Iterated, OutcomeKind, Source, StepRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// Confidence in one part of an answer, from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Confidence")]
pub struct PartConfidence {
    /// Empty for the whole.
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
        let end = record.concluded();
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
    /// Something is missing that only who asked can say: the answer is the question for it.
    NeedsClarification,
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
            Self::NeedsClarification => "needs-clarification",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::DeadLettered => "dead-lettered",
        }
    }
}
