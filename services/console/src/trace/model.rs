//! What a trace is made of: the sessions of a run as the provenance graph tells them.
//!
//! These types are also the shape of `trace --format json` (see [`super::json`]): a field added here
//! is added there; none is renamed or removed without a new format version.

mod spent;

pub use spent::{Spent, Work};

use super::sources_of;
use agentfleet_core::provenance::date_time;
use agentfleet_schema::records::{RunState, Termination};
use agentfleet_schema::{CorrelationId, Millis, SessionId};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// An instant; in JSON as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub Millis);

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&date_time(self.0))
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How far a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The graph names it, and tells nothing more.
    #[default]
    NotStarted,
    Running,
    /// A call of it waits for a person.
    Waiting,
    Ended,
}

/// One agent execution.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Session {
    pub id: SessionId,
    pub uri: String,
    /// The session whose fan-out started it.
    pub parent: Option<SessionId>,
    /// The session it went on from, on forked and retried ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<SessionId>,
    /// The provenance node it went on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_at: Option<String>,
    /// That fan-out.
    pub correlation: Option<CorrelationId>,
    /// Its place among the siblings, from 0.
    pub index: Option<u32>,
    /// Sessions between it and its root.
    pub depth: u32,
    pub children: Vec<SessionId>,
    pub state: State,
    pub question: String,
    /// The focused goal, on subagents.
    pub goal: Option<String>,
    pub collection: Option<String>,
    pub conversation: Option<String>,
    pub config_version: Option<u64>,
    pub started_at: Option<Instant>,
    pub ended_at: Option<Instant>,
    pub duration_ms: Option<u64>,
    pub routing: Option<Routing>,
    /// What it did after the routing, in order.
    pub steps: Vec<Step>,
    pub conclusion: Option<Conclusion>,
    /// What it told its parent's fan-in, on subagents.
    pub completion: Option<Completion>,
    /// Itself.
    pub spent: Spent,
    /// Itself and all below it.
    pub spent_in_tree: Spent,
}

/// How task type and pattern were found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Routing {
    pub uri: String,
    pub task_type: Option<String>,
    pub pattern: Option<String>,
    pub decisions: Vec<Decision>,
    #[serde(flatten)]
    pub work: Work,
}

/// A choice from a configured set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Decision {
    pub uri: String,
    pub subject: String,
    /// Sorted by name: the graph keeps no order.
    pub options: Vec<String>,
    pub narrowed_by: Option<String>,
    pub signal: Option<String>,
    pub selected: String,
    /// `model`, `only-option`, `fallback`, `caller` or `person`.
    pub decided_by: Option<String>,
    /// The person who decided, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// URI of the document with the chooser's words.
    pub rationale: Option<String>,
    /// With what a call is made, where a person changed it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    #[serde(flatten)]
    pub work: Work,
}

impl Decision {
    /// Whether it is what a person, or the configured answer, said to a call that waited.
    pub(crate) fn is_approval(&self) -> bool {
        self.subject == "approval"
    }

    /// Whether the fan-out that follows shows what was chosen: that there is one, and what its subagents
    /// work by.
    pub(crate) fn is_of_fan_out(&self) -> bool {
        (self.subject == "fan-out" && self.selected == "fan-out")
            || self.subject.starts_with("subagent-pattern")
            || self.subject.starts_with("subagent-group")
    }

    /// The options that were not chosen.
    pub(crate) fn others(&self) -> Vec<&str> {
        let options = self.options.iter().map(String::as_str);
        options.filter(|option| *option != self.selected).collect()
    }

    /// What was answered to a call that waited, and by whom: `denied by ada`.
    pub(crate) fn answer_in_brief(&self) -> String {
        let answer = match self.selected.as_str() {
            "approve" => "approved",
            "deny" => "denied",
            "edit" => "changed and approved",
            other => other,
        };
        match (self.decided_by.as_deref(), self.person.as_deref()) {
            (_, Some(person)) => format!("{answer} by {person}"),
            (Some("person"), None) => format!("{answer} by a person"),
            // The reason beside it says that nobody did.
            (_, None) => format!("{answer} by default"),
        }
    }
}

/// One thing a session did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Step {
    Decision(Decision),
    Iteration(Iteration),
    FanOut(FanOut),
    Synthesis(Synthesis),
    Note(Note),
}

impl Step {
    pub fn uri(&self) -> &str {
        match self {
            Self::Decision(step) => &step.uri,
            Self::Iteration(step) => &step.uri,
            Self::FanOut(step) => &step.uri,
            Self::Synthesis(step) => &step.uri,
            Self::Note(step) => &step.uri,
        }
    }

    pub fn work(&self) -> &Work {
        match self {
            Self::Decision(step) => &step.work,
            Self::Iteration(step) => &step.work,
            Self::FanOut(step) => &step.work,
            Self::Synthesis(step) => &step.work,
            Self::Note(step) => &step.work,
        }
    }
}

/// One think, act, observe cycle.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Iteration {
    pub uri: String,
    pub number: Option<u64>,
    pub action: String,
    pub arguments: BTreeMap<String, String>,
    /// The tools that were visible, sorted by name.
    pub candidates: Vec<String>,
    /// URI of the thought's text.
    pub thought: Option<String>,
    pub observation: Option<Observation>,
    /// Set where it called no tool, but was an answer that a critique sent back: what was wrong with
    /// it, in the critique's words as far as they are told.
    pub sent_back: Option<String>,
    #[serde(flatten)]
    pub work: Work,
}

impl Iteration {
    /// The arguments for a small place: one alone needs no name.
    pub(crate) fn arguments_in_brief(&self) -> String {
        arguments_in_brief(&self.arguments, 60)
    }
}

/// Arguments in one line, each value no wider than `most`: one alone needs no name.
pub(crate) fn arguments_in_brief(arguments: &BTreeMap<String, String>, most: usize) -> String {
    let named = arguments.len() > 1;
    let parts: Vec<String> = arguments
        .iter()
        .map(|(name, value)| {
            let mut value = crate::text::preview(value, most);
            // What looks like further arguments is told from them by quotes that nothing in it can close.
            if ["\"", ", ", ": "].iter().any(|part| value.contains(part)) {
                value = serde_json::Value::from(value).to_string();
            }
            if named {
                format!("{name}: {value}")
            } else {
                value
            }
        })
        .collect();
    parts.join(", ")
}

/// What a tool returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Observation {
    pub uri: String,
    /// URI of its text.
    pub document: Option<String>,
    /// Set where the tool failed, or was called wrongly.
    pub error: Option<String>,
    pub tool_ms: Option<u64>,
    pub sources: Vec<Source>,
}

/// Something a result was taken from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    pub uri: String,
    pub title: Option<String>,
}

impl Source {
    /// The URI and the title.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.uri, self.title.as_deref().unwrap_or_default())
    }

    /// The title, or where there is none the URI.
    pub fn name(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.uri)
    }
}

/// Subagents that were started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FanOut {
    pub uri: String,
    pub correlation: CorrelationId,
    pub round: Option<u64>,
    pub expected: Option<u64>,
    /// What the wait is for: `all`, `at-least k`, `quorum` or `deadline`.
    pub policy: Option<String>,
    pub join_deadline: Option<Instant>,
    /// URI of the supervisor's reasoning.
    pub document: Option<String>,
    pub goals: Vec<Goal>,
    #[serde(flatten)]
    pub work: Work,
}

impl FanOut {
    pub(crate) fn title(&self) -> String {
        let count = self.expected.unwrap_or(self.goals.len() as u64);
        format!("fan-out to {}", crate::text::counted(count, "subagent"))
    }

    /// Its join policy, where it is not the one that waits for everyone.
    pub(crate) fn policy_of_note(&self) -> Option<&str> {
        self.policy.as_deref().filter(|policy| *policy != "all")
    }
}

/// A subagent's goal, which is a document too.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Goal {
    pub uri: String,
    pub index: u32,
    pub text: String,
    /// The session that works on it, once it has begun.
    pub session: Option<SessionId>,
}

/// The end of a wait for subagents.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Synthesis {
    pub uri: String,
    pub correlation: CorrelationId,
    /// What ended the wait: `complete`, `enough` or `deadline`.
    pub cause: Option<String>,
    /// Nodes it derives from: answers, and completions of subagents that failed.
    pub derived_from: Vec<String>,
    /// Subagents that had no result when it began.
    pub missing: Vec<SessionId>,
    #[serde(flatten)]
    pub work: Work,
}

/// What a session wrote down on its way: a plan, the result of one of its steps, a critique, a
/// comparison of answers, a call that waits for a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Note {
    pub uri: String,
    pub note: NoteKind,
    /// What it is, in a few words.
    pub label: String,
    /// What it says that has words of its own in the graph: steps, positions, disagreements.
    pub lines: Vec<String>,
    /// It tells of something that went wrong.
    pub failed: bool,
    /// The number of the plan's step, on a step's result.
    pub index: Option<u64>,
    /// URI of its text.
    pub document: Option<String>,
    #[serde(flatten)]
    pub work: Work,
}

impl Note {
    /// What it is, as people read it: steps by their number in the plan, and one step in the singular.
    pub(crate) fn title(&self) -> String {
        match (self.note, self.index) {
            (NoteKind::StepResult, Some(index)) => {
                let goal = self.label.strip_prefix("Step result: ");
                let came = if self.failed { "failed" } else { "result" };
                format!("Step {index} {came}: {}", goal.unwrap_or(&self.label))
            }
            (NoteKind::Plan, _) => self
                .label
                .replace("with 1 steps", "with 1 step")
                .replace("with 1 new steps", "with 1 new step"),
            (
                NoteKind::StepResult
                | NoteKind::Critique
                | NoteKind::Comparison
                | NoteKind::Approval,
                _,
            ) => self.label.clone(),
        }
    }
}

/// The kinds of note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    #[default]
    Plan,
    StepResult,
    Critique,
    Comparison,
    Approval,
}

/// What a subagent's end told its parent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Completion {
    pub uri: String,
    /// `answered`, `error`, `timeout`, `cancelled` or `dead-lettered`.
    pub status: String,
    /// It came after the verdict, and had no effect.
    pub late: bool,
    pub result: Option<String>,
    /// Tokens of the subagent and all below it, by its own record.
    pub tokens: Option<u64>,
    pub at: Option<Instant>,
}

/// The end of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conclusion {
    pub uri: String,
    /// False where it ended in an error.
    pub answered: bool,
    pub termination: Option<String>,
    pub partial: bool,
    pub error_code: Option<String>,
    /// URI of the answer's text.
    pub document: Option<String>,
    /// URI of the last thought's text.
    pub thought: Option<String>,
    pub confidence: Vec<Confidence>,
    /// Whether it is an answer for which nothing was read, by its session or any below it.
    pub unsourced: bool,
    #[serde(flatten)]
    pub work: Work,
}

impl Conclusion {
    pub fn state(&self) -> RunState {
        let reason = self.termination.as_deref();
        RunState::ended(
            self.answered,
            self.partial,
            reason.and_then(Termination::named),
        )
    }

    /// What ended the session: the code of an error, or how it came to its end.
    pub(crate) fn reason(&self) -> Option<&str> {
        let code = self.error_code.as_deref();
        code.or(self.termination.as_deref())
    }
}

/// How sure an answer is of one of its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Confidence {
    /// Empty where it speaks of the whole.
    pub part: String,
    /// From 0 to 1.
    pub value: Option<f64>,
}

impl Session {
    /// What it was asked: the goal of a subagent, else the question.
    pub fn title(&self) -> &str {
        match &self.goal {
            Some(goal) if !goal.is_empty() => goal,
            _ if self.question.is_empty() => self.id.as_str(),
            _ => &self.question,
        }
    }

    pub fn pattern(&self) -> Option<&str> {
        self.routing.as_ref()?.pattern.as_deref()
    }

    pub fn iterations(&self) -> impl Iterator<Item = &Iteration> {
        self.steps.iter().filter_map(|step| match step {
            Step::Iteration(iteration) => Some(iteration),
            Step::Decision(_) | Step::FanOut(_) | Step::Synthesis(_) | Step::Note(_) => None,
        })
    }

    /// The session below this one that works on a goal.
    pub(crate) fn child_of<'g>(&self, goal: &'g Goal) -> Option<&'g SessionId> {
        let session = goal.session.as_ref();
        session.filter(|id| self.children.contains(id))
    }

    pub fn fan_outs(&self) -> impl Iterator<Item = &FanOut> {
        self.steps.iter().filter_map(|step| match step {
            Step::FanOut(fan_out) => Some(fan_out),
            Step::Decision(_) | Step::Iteration(_) | Step::Synthesis(_) | Step::Note(_) => None,
        })
    }

    /// What its own tools took their results from, each once.
    pub fn sources(&self) -> Vec<&Source> {
        sources_of(std::slice::from_ref(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_pass_for_further_arguments() {
        let told = |given: &[(&str, &str)]| {
            let given = given.iter();
            let arguments = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            arguments_in_brief(&arguments.collect(), 60)
        };
        assert_eq!(told(&[("query", "cold plants")]), "cold plants");
        assert_eq!(
            told(&[("amount", "5"), ("to", "ada")]),
            "amount: 5, to: ada"
        );
        assert_eq!(
            told(&[("amount", "5, to: ada"), ("to", "eve")]),
            r#"amount: "5, to: ada", to: eve"#
        );
        assert_eq!(
            told(&[("amount", r#""5", to: "ada"#)]),
            r#""\"5\", to: \"ada""#
        );
    }
}
