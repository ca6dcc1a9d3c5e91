//! Calls that a person must approve: where a step pauses instead of making one, and what follows from
//! the answer.
//!
//! The gate stands outside the model and outside the patterns: whatever turn orders a call, the order
//! passes here before it reaches the driver. It lets a call through that needs nobody, and the one
//! call that was approved, with exactly the arguments that were approved.

use crate::limits::Limits;
use crate::order::{Finish, Order, Outcome, Said, ToolUse};
use crate::pipeline;
use crate::say;
use crate::turn::Situation;
use agentfleet_schema::config::{Approval, DefaultAnswer, ToolItem};
use agentfleet_schema::records::{
    Activity, ApprovalAnswer, Asked, Decided, DecidedBy, Decision, PauseRecord, Publication,
    StepRecord,
};
use agentfleet_schema::{
    AgentRequest, AgentStep, ApprovalId, HeldCall, MessageType, Millis, PatternState, StepKind,
    later, uris,
};
use std::collections::BTreeMap;

/// Subject of the decision that an answer is.
pub const SUBJECT: &str = "approval";
/// How a call that was not made for want of an approval is told to the model.
const NOT_MADE: &str = "Error: the call was not made: ";
/// Longest reason that an answer may give, in bytes.
pub const MAX_REASON: usize = 4_000;
/// Longest name that a person may have, in bytes.
pub const MAX_NAME: usize = 200;
/// A turn makes one call, so one call of a step can wait.
const CALL: u32 = 0;

/// What a turn that orders a call knows of it.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    pub request: &'a AgentRequest,
    /// The call that it was taken up with.
    pub held: Option<&'a HeldCall>,
    pub situation: &'a Situation,
    pub limits: &'a Limits,
    /// Number of the iteration.
    pub n: u32,
    pub tools: &'a [ToolItem],
    /// The call that was ordered last.
    pub calling: Option<&'a (ToolItem, BTreeMap<String, String>)>,
    pub thought: &'a str,
    pub not_run: &'a [String],
    pub model_ms: u64,
}

/// Lets a call through, or ends the step with a wait for a person.
pub(crate) fn gate(asker: &Asker<'_>, tool_use: ToolUse) -> Order {
    let Some(approval) = tool_use.tool.confirmation() else {
        return Order::CallTool(Box::new(tool_use));
    };
    let (tool, arguments) = (&tool_use.tool.name, &tool_use.arguments);
    if asker.held.is_some_and(|held| allows(held, tool, arguments)) {
        return Order::CallTool(Box::new(tool_use));
    }
    pause(
        asker,
        &tool_use.tool.name,
        tool_use.arguments,
        &approval,
        false,
    )
}

/// Ends the step with a wait for a person instead of the call that was ordered, because an equal call of
/// the tree was started earlier and nobody knows what became of it.
pub(crate) fn after_unknown(asker: &Asker<'_>) -> Option<Order> {
    let (tool, arguments) = asker.calling?;
    let approval = Approval {
        reason: "an equal call was started earlier in this run, and nobody knows whether it took \
                 effect"
            .to_owned(),
        default: DefaultAnswer::Deny,
        ..tool.confirmation().unwrap_or_default()
    };
    Some(pause(asker, &tool.name, arguments.clone(), &approval, true))
}

/// Whether a person approved just this call.
pub fn allows(held: &HeldCall, tool: &str, arguments: &BTreeMap<String, String>) -> bool {
    held.approved && held.tool == tool && held.arguments == *arguments
}

fn pause(
    asker: &Asker<'_>,
    tool: &str,
    arguments: BTreeMap<String, String>,
    approval: &Approval,
    after_unknown: bool,
) -> Order {
    let request = asker.request;
    let session = &request.session_id;
    let asked = Asked {
        id: ApprovalId::of_call(session, request.step, CALL),
        n: asker.n,
        tool: tool.to_owned(),
        arguments,
        thought: asker.thought.to_owned(),
        candidates: asker.tools.iter().map(|tool| tool.name.clone()).collect(),
        reason: approval.reason.clone(),
        after_unknown,
        asked_at: asker.situation.now,
        expires_at: expires_at(
            asker.situation.now,
            approval.timeout_ms,
            request.control.hard_deadline,
        ),
        default: approval.default,
        model_ms: asker.model_ms,
    };
    let mut resume = request.clone();
    resume.control.held = Some(HeldCall {
        approval: asked.id.clone(),
        tool: asked.tool.clone(),
        arguments: asked.arguments.clone(),
        thought: asked.thought.clone(),
        not_run: asker.not_run.to_vec(),
        approved: false,
    });
    let mut said = Vec::new();
    if !asked.thought.is_empty() {
        let uri = uris::document_of(&uris::approval_thought(session, &asked.id));
        said.push(Said {
            streamed: true,
            ..say::message(MessageType::Thought, &*asked.thought, uri)
        });
    }
    said.push(say::status(waits(&asked)));
    Order::Finish(Box::new(Finish {
        outcome: Outcome::Pause(Box::new(resume)),
        activity: Activity::Asked(asked),
        routed: None,
        decisions: Vec::new(),
        said,
    }))
}

const WAITS: &str = "Waits for a person: `agentfleet approvals approve ";

/// What whoever watches is told of a wait, with how to answer.
fn waits(asked: &Asked) -> String {
    let why = if asked.reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", asked.reason)
    };
    let (id, call) = (&asked.id, say::action(&asked.tool, &asked.arguments));
    format!("{WAITS}{id}` or `deny {id}`, for {call}{why}")
}

/// The approval that a status message tells a wait for.
pub fn waits_for(status: &str) -> Option<&str> {
    status.strip_prefix(WAITS)?.split('`').next()
}

/// When a wait ends: after its own time, but a reserve before `hard_deadline` (0 means none), so that
/// the session can still say what became of it.
fn expires_at(now: Millis, timeout_ms: u64, hard_deadline: Millis) -> Millis {
    let own = later(now, timeout_ms);
    if hard_deadline == 0 {
        return own;
    }
    let left = hard_deadline.saturating_sub(now).max(0);
    let reserve = (left / 5).min(30_000);
    own.min(hard_deadline - reserve).max(now)
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misanswered {
    #[error("who decides is not said: an answer needs a name of at most {MAX_NAME} bytes")]
    NoName,
    #[error("the reason has {0} bytes, the limit is {MAX_REASON}")]
    ReasonTooLong(usize),
    #[error("`edit` needs the arguments to call `{0}` with instead")]
    NoArguments(String),
    #[error("only `edit` takes arguments")]
    Arguments,
    #[error("the arguments do not fit: {0}")]
    Misfit(String),
}

/// What a person says about a call that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub answer: ApprovalAnswer,
    pub by: String,
    pub reason: String,
    /// With `edit`, what to call the tool with instead.
    pub arguments: Option<BTreeMap<String, String>>,
}

/// A person's answer, checked against the call that it is about. `tool` is its config at the version
/// of the run, if that is known.
pub fn decide(
    asked: &Asked,
    verdict: Verdict,
    tool: Option<&ToolItem>,
    at: Millis,
) -> Result<Decided, Misanswered> {
    let by = verdict.by.trim();
    if by.is_empty() || by.len() > MAX_NAME {
        return Err(Misanswered::NoName);
    }
    let reason = verdict.reason.trim();
    if reason.len() > MAX_REASON {
        return Err(Misanswered::ReasonTooLong(reason.len()));
    }
    let arguments = match (verdict.answer, verdict.arguments) {
        (ApprovalAnswer::Edit, None) => return Err(Misanswered::NoArguments(asked.tool.clone())),
        (ApprovalAnswer::Edit, Some(arguments)) => {
            let arguments = tool.map_or_else(
                || arguments.clone(),
                |tool| pipeline::healed(tool, &arguments, &[], &mut Vec::new()),
            );
            if let Some(misfit) = tool.and_then(|tool| pipeline::misused(tool, &arguments)) {
                let misfit = misfit.strip_prefix("Error: ").unwrap_or(&misfit).to_owned();
                return Err(Misanswered::Misfit(misfit));
            }
            arguments
        }
        (ApprovalAnswer::Approve | ApprovalAnswer::Deny, None) => asked.arguments.clone(),
        (ApprovalAnswer::Approve | ApprovalAnswer::Deny, Some(_)) => {
            return Err(Misanswered::Arguments);
        }
    };
    Ok(Decided {
        id: asked.id.clone(),
        n: asked.n,
        tool: asked.tool.clone(),
        arguments,
        answer: verdict.answer,
        by: by.to_owned(),
        reason: reason.to_owned(),
        at: at.max(asked.asked_at),
    })
}

/// What counts where nobody answered in time.
pub fn expired(asked: &Asked, at: Millis) -> Decided {
    Decided {
        id: asked.id.clone(),
        n: asked.n,
        tool: asked.tool.clone(),
        arguments: asked.arguments.clone(),
        answer: match asked.default {
            DefaultAnswer::Deny => ApprovalAnswer::Deny,
            DefaultAnswer::Approve => ApprovalAnswer::Approve,
        },
        by: String::new(),
        reason: String::new(),
        at: at.max(asked.asked_at),
    }
}

/// The step that an answer is. `request` is the one it was given to.
pub fn answered(request: &AgentRequest, decided: &Decided) -> Finish {
    let mut next = request.clone();
    let held = next.control.held.take().unwrap_or_default();
    let call = say::action(&decided.tool, &decided.arguments);
    let who = who(decided);
    let signal = match (decided.by.is_empty(), decided.reason.is_empty()) {
        (true, _) => "nobody answered in time: the configured answer counts".to_owned(),
        (false, true) => format!("{} gave no reason", decided.by),
        (false, false) => decided.reason.clone(),
    };
    let said = match decided.answer {
        ApprovalAnswer::Approve | ApprovalAnswer::Edit => {
            next.control.held = Some(HeldCall {
                arguments: decided.arguments.clone(),
                approved: true,
                ..held
            });
            say::status(format!("{}: {call}", capital(&who)))
        }
        ApprovalAnswer::Deny => {
            let observation = format!("{NOT_MADE}{who}");
            if let PatternState::React(state) = &mut next.control.state {
                state.retries = 0;
            }
            next.history.push(AgentStep {
                thought: held.thought,
                action: decided.tool.clone(),
                arguments: decided.arguments.clone(),
                observation,
                user: request.user.clone(),
                step_type: StepKind::React.into(),
                plan: None,
                subagent_results: None,
            });
            say::status(format!("{}: {call}", capital(&who)))
        }
    };
    Finish {
        outcome: Outcome::Continue(Box::new(next)),
        activity: Activity::Decided(decided.clone()),
        routed: None,
        decisions: vec![Decision {
            subject: SUBJECT.into(),
            options: ApprovalAnswer::ALL.map(|a| a.as_str().to_owned()).to_vec(),
            narrowed_by: "what can be answered about a call that waits".into(),
            signal,
            chosen: decided.answer.as_str().to_owned(),
            decided_by: if decided.by.is_empty() {
                DecidedBy::Fallback
            } else {
                DecidedBy::Person
            },
            rationale: String::new(),
        }],
        said: vec![said],
    }
}

/// Who answered what, when and why: `denied by ada at 2026-11-21T10:00:00.000Z: too expensive`.
pub fn who(decided: &Decided) -> String {
    let (did, at) = (
        decided.answer.done(),
        crate::provenance::date_time(decided.at),
    );
    if decided.by.is_empty() {
        return format!("{did} because nobody had answered by {at}");
    }
    let why = if decided.reason.is_empty() {
        String::new()
    } else {
        format!(": {}", decided.reason)
    };
    format!("{did} by {} at {at}{why}", decided.by)
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next()
        .map(|first| first.to_uppercase().chain(rest).collect())
        .unwrap_or_default()
}

/// What a model was told of calls that were denied since the newest step of the history that
/// `is_mark`.
pub(crate) fn denied_since(
    request: &AgentRequest,
    is_mark: impl Fn(&AgentStep) -> bool,
) -> Vec<&AgentStep> {
    let newest = request.history.iter().rev();
    let mut denied: Vec<&AgentStep> = newest
        .take_while(|step| !is_mark(step))
        .filter(|step| step.observation.starts_with(NOT_MADE))
        .collect();
    denied.reverse();
    denied
}

/// Whether a step is the decision that approved a call.
pub fn is_by(held: &HeldCall, before: &StepRecord) -> bool {
    let Activity::Decided(decided) = &before.activity else {
        return false;
    };
    let allowed = match decided.answer {
        ApprovalAnswer::Approve | ApprovalAnswer::Edit => true,
        ApprovalAnswer::Deny => false,
    };
    allowed
        && held.approval == decided.id
        && held.tool == decided.tool
        && held.arguments == decided.arguments
}

/// The wait of a step, as whoever answers reads it.
pub(crate) fn record(record: &StepRecord, resume: Publication) -> Option<PauseRecord> {
    let Activity::Asked(asked) = &record.activity else {
        return None;
    };
    Some(PauseRecord {
        session: record.session.clone(),
        step: record.step,
        root: record.root.clone(),
        asked: asked.clone(),
        resume,
    })
}

#[cfg(test)]
#[path = "approval_tests.rs"]
mod tests;
