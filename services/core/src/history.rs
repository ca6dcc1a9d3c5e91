//! The history of a run against the model's window: what is shown of it, and what travels.
//!
//! Where it grows past its room, its oldest steps become one line each, without what they observed;
//! where lines are too many, the oldest of them become one summary. The newest steps stay whole, and
//! so does what patterns go by: the newest plan, the critiques that are carried, the numbers that are
//! counted. It goes down to half the room, so that not every step does it again. What is left out
//! lies in the librarian, and its place is named. The summary is a digest: no model is asked for it.
//!
//! Pure, and the same on every try and every replay of a step. That it was done is a [`Decision`].

mod fitting;
mod summary;
mod text;

use crate::limits::FleetLimits;
use crate::patterns;
use agentfleet_schema::config::{ModelProfile, Snapshot};
use agentfleet_schema::records::Decision;
use agentfleet_schema::{AgentRequest, AgentStep, Lineage, Operation, SessionId, StepKind};
use serde_json::{Value, json};
pub(crate) use text::is_error;
pub use text::is_left_out;
use text::is_short;
pub(crate) use text::preview;

/// What the decision chose where one step stands for others, and what that step did.
pub const SUMMARY: &str = StepKind::Summary.as_str();
/// Subject of the decision.
pub const CONTEXT: &str = "context";

/// What is no longer than this is not left out: its place would take as much.
const SHORT: usize = 200;

/// Tokens of a text of that many bytes: an estimate, on the high side for English prose.
pub fn tokens(bytes: usize) -> u64 {
    (bytes as u64 * 2).div_ceil(7)
}

/// What a history may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The model's window, in tokens.
    pub window: u32,
    /// Bytes for the history: at most half of the window. A quarter is for the reply; the question and
    /// what comes with it may take more than the last quarter, but never all.
    pub bytes: usize,
}

impl Room {
    /// What the request's model leaves for its history; `None` where nothing bounds it.
    pub fn of(request: &AgentRequest, snapshot: &Snapshot, fleet: &FleetLimits) -> Option<Self> {
        let window = window(request, snapshot).unwrap_or(fleet.context_window);
        if window == 0 {
            return None;
        }
        let texts = [
            &request.question,
            &request.framing,
            &request.subagent_goal,
            &request.control.context,
        ];
        let rest = tokens(texts.into_iter().map(String::len).sum());
        let all = u64::from(window);
        let left = (all - all / 4).saturating_sub(rest);
        let bytes = left.clamp(all / 8, all / 2) * 7 / 2;
        Some(Self {
            window,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        })
    }

    /// The longest observation that is shown whole: it goes down to half the room, so that some more
    /// have room before it does again.
    pub fn observation(self) -> usize {
        (self.bytes / 8).max(SHORT)
    }
}

/// The smallest window of the models that the request's pattern shows its history to.
fn window(request: &AgentRequest, snapshot: &Snapshot) -> Option<u32> {
    let of = |profile: &ModelProfile| profile.context_window;
    let named = snapshot
        .profiles
        .values()
        .find(|profile| !request.model.is_empty() && profile.model == request.model);
    if let Some(window) = named.and_then(of) {
        return Some(window);
    }
    let pattern = patterns::by_name(&request.pattern);
    let operations = pattern.map_or(&[Operation::React][..], |pattern| {
        pattern.shows_history_in()
    });
    operations
        .iter()
        .filter_map(|operation| {
            of(&snapshot.profile(&[&request.control.profile, operation.as_str()]))
        })
        .min()
}

/// Iterations done so far: making a plan and synthesising do not count.
pub(crate) fn iterations(request: &AgentRequest) -> u32 {
    request.history.iter().map(counted).sum()
}

/// Whether a step of the history is one iteration.
pub(crate) fn is_iteration(step: &AgentStep) -> bool {
    match step.kind() {
        Some(StepKind::React | StepKind::Execute) => true,
        Some(StepKind::Reflect) => step.action == patterns::ANSWER,
        Some(
            StepKind::Plan
            | StepKind::Supervise
            | StepKind::Synthesise
            | StepKind::Summary
            | StepKind::Route,
        )
        | None => false,
    }
}

/// Iterations that a step of the history stands for.
pub(crate) fn counted(step: &AgentStep) -> u32 {
    if step.is(StepKind::Summary) {
        return number(step, "iterations");
    }
    u32::from(is_iteration(step))
}

/// Plans that a step of the history stands for.
pub(crate) fn plans(step: &AgentStep) -> u32 {
    if step.is(StepKind::Summary) {
        return number(step, "plans");
    }
    u32::from(step.action == "plan")
}

fn number(step: &AgentStep, name: &str) -> u32 {
    let text = step.arguments.get(name);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Whether something of the history lies elsewhere, so that it can be read back.
pub fn has_more(request: &AgentRequest) -> bool {
    let of_plan = |step: &AgentStep| {
        let steps = step.plan.iter().flatten();
        steps.map(|step| &step.result).any(|text| is_short(text))
    };
    request
        .history
        .iter()
        .any(|step| step.is(StepKind::Summary) || is_short(&step.observation) || of_plan(step))
}

/// Notes which steps of a history no step of this session made, before the first one is worked.
pub(crate) fn settle(request: &mut AgentRequest) {
    let control = &request.control;
    if request.step > 0 || !control.lineage.is_empty() || request.history.is_empty() {
        return;
    }
    let iterations = iterations(request);
    request.control.lineage.push(Lineage {
        session: SessionId::default(),
        iterations,
    });
}

/// The session whose iteration that is; `None` if the caller brought it along.
fn session_of(request: &AgentRequest, n: u32) -> Option<&SessionId> {
    let lineage = request.control.lineage.iter();
    match lineage.into_iter().find(|before| n <= before.iterations) {
        Some(before) if before.session.is_empty() => None,
        Some(before) => Some(&before.session),
        None => Some(&request.session_id),
    }
}

/// The request with a history that has room, and what was done to it; `None` where it has room as it
/// is.
pub fn fitted(
    request: &AgentRequest,
    snapshot: &Snapshot,
    fleet: &FleetLimits,
) -> Option<(AgentRequest, Decision)> {
    let room = Room::of(request, snapshot, fleet)?;
    fitting::fitted(request, room)
}

/// The request as its step worked it.
pub fn as_worked(request: &AgentRequest, snapshot: &Snapshot, fleet: &FleetLimits) -> AgentRequest {
    let mut request = request.clone();
    settle(&mut request);
    match fitted(&request, snapshot, fleet) {
        Some((fitted, _)) => fitted,
        None => request,
    }
}

/// A step as prompts show it.
pub(crate) fn shown(step: &AgentStep) -> Value {
    json!({
        "thought": step.thought, "action": step.action,
        "arguments": step.arguments, "observation": step.observation,
        "summary": step.is(StepKind::Summary),
    })
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
