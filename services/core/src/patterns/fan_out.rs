//! One fan-out, whichever pattern orders it: children with their share of time and limits, and the
//! request that the verdict on them releases.

use super::REACT;
use super::assign::{Assigned, Offer};
use crate::limits::Limits;
use crate::order::{FanOut, Finish, Order, Outcome, Used};
use crate::say;
use crate::specialists;
use crate::turn::Situation;
use agentfleet_schema::records::{
    Activity, Child, Compared, CompletionStatus, DecidedBy, Decision, FanInRecord, FanInSummary,
    FannedOut, Member,
};
use agentfleet_schema::{
    AgentRequest, AgentStep, Ancestor, CorrelationId, MessageType, Millis, RunLimits, SessionId,
    StepKind, later, uris,
};
use serde_json::{Value, json};

/// What one subagent is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Goal {
    pub text: String,
    /// What it is asked, where that is not the goal itself.
    pub question: String,
    pub pattern: String,
    /// Whether that is the pattern's that fans out, and no choice.
    pub fixed: bool,
    /// The tool groups that it is narrowed to; empty means its parent's.
    pub group: Vec<String>,
    /// Why it is worked so, in the words of whoever chose.
    pub rationale: String,
    pub context: String,
    /// Key of its model profile; empty means its parent's.
    pub profile: String,
    pub specialist: String,
    /// The reasoner of a debate that it is.
    pub reasoner: String,
}

/// Name of the argument of the step that divided a task, for goals whose pattern was not open to them: a
/// line each, the goal and behind a tab why.
pub(super) const CLOSED: &str = "closed";

/// One fan-out, whether the first of its session or a later one.
pub(super) struct Round<'a> {
    pub request: &'a AgentRequest,
    pub situation: &'a Situation,
    pub limits: &'a Limits,
    pub thought: String,
    /// What the session's history says of it.
    pub history: Vec<AgentStep>,
    pub after: Option<FanInSummary>,
    pub compared: Option<Compared>,
    pub decisions: Vec<Decision>,
    /// By the step that orders it.
    pub used: Used,
}

impl Round<'_> {
    /// `Err` says why the limits forbid it.
    pub(super) fn fan_out(self, goals: Vec<Goal>) -> Result<Order, String> {
        let request = self.request;
        let count = goals.len() as u32;
        let spent = request.control.spent + self.used.spent;
        let allotment = self.limits.allot(count, spent)?;
        // The wait begins when the fan-out is committed, not when the model began to think of it.
        let committed = later(self.situation.now, self.used.ms);
        let hard_deadline = request.control.hard_deadline;
        let Some(join_deadline) = self.limits.join_deadline(committed, hard_deadline) else {
            return Err("no time is left to wait for subagents".to_owned());
        };
        let correlation = CorrelationId::of_fan_out(&request.session_id, request.step);
        let task_types = &self.situation.snapshot.task_types;
        let of_type = task_types.get(&request.task_type).map(|task| task.join);
        let policy = request.join.or(of_type).unwrap_or_default();
        let offer = Offer::of(request, self.situation, self.limits);
        let synthesis = self.synthesis(count, &correlation, closed(&offer, &goals));
        let (goals, assigned) = offer.assign(goals, request.group.as_ref());
        let siblings = Siblings {
            request,
            situation: self.situation,
            count,
            correlation: &correlation,
            limits: RunLimits {
                max_iterations: None,
                subagent_timeout_ms: request.limits.subagent_timeout_ms,
                ..allotment
            },
            join_deadline,
        };
        let children: Vec<(Child, AgentRequest)> = goals
            .into_iter()
            .zip(0u32..)
            .map(|(assigned, index)| siblings.one(assigned, index))
            .collect();
        let uri = uris::document_of(&uris::fan_out(&request.session_id, &correlation));
        let text = text(&self.thought, &children);
        Ok(Order::Finish(Box::new(Finish {
            activity: Activity::FannedOut(FannedOut {
                correlation: correlation.clone(),
                thought: self.thought,
                children: children.iter().map(|(child, _)| child.clone()).collect(),
                policy,
                join_deadline,
                round: synthesis.control.rounds,
                after: self.after,
                compared: self.compared,
                model_ms: self.used.ms,
            }),
            outcome: Outcome::FanOut(Box::new(FanOut {
                correlation,
                children,
                policy,
                join_deadline,
                synthesis,
            })),
            routed: None,
            decisions: self.decisions.into_iter().chain(assigned).collect(),
            said: vec![
                say::message(MessageType::Thought, text.trim_end(), uri),
                say::status(format!("Fanned out to {}", say::subagents(count as usize))),
            ],
        })))
    }

    /// The request that the verdict releases.
    fn synthesis(
        &self,
        count: u32,
        correlation: &CorrelationId,
        closed: Vec<String>,
    ) -> AgentRequest {
        let request = self.request;
        let mut history = self.history.clone();
        if let Some(first) = history.first_mut().filter(|_| !closed.is_empty()) {
            first.arguments.insert(CLOSED.to_owned(), closed.join("\n"));
        }
        let mut synthesis = request.clone();
        synthesis.control.rounds = request.control.rounds + 1;
        synthesis.limits.max_sessions = Some(self.limits.sessions_kept(count));
        synthesis.control.fan_in_step = Some(request.step);
        synthesis.control.derives_from = uris::fan_out(&request.session_id, correlation);
        synthesis.history.extend(history);
        synthesis
    }
}

/// The goals whose pattern was not open to them, and why, as the history says it.
fn closed(offer: &Offer, goals: &[Goal]) -> Vec<String> {
    let closed = goals.iter().filter(|goal| offer.is_closed(goal));
    let said = closed.map(|goal| {
        let (text, pattern) = (say::in_one_line(&goal.text), &goal.pattern);
        let narrowed_by = &offer.narrowed_by;
        format!("{text}\t`{pattern}` was not open to it: {narrowed_by}")
    });
    said.collect()
}

/// What a fan-out says of itself.
fn text(thought: &str, children: &[(Child, AgentRequest)]) -> String {
    let goals = children
        .iter()
        .map(|(child, _)| format!("{}. {}\n", child.index + 1, child.goal));
    let goals: String = goals.collect();
    if thought.is_empty() {
        goals
    } else {
        format!("{thought}\n\n{goals}")
    }
}

/// What the subagents of a fan-out have in common.
struct Siblings<'a> {
    request: &'a AgentRequest,
    situation: &'a Situation,
    count: u32,
    correlation: &'a CorrelationId,
    /// The share of each.
    limits: RunLimits,
    join_deadline: Millis,
}

impl Siblings<'_> {
    /// A subagent, and what it is asked.
    fn one(&self, assigned: Assigned, index: u32) -> (Child, AgentRequest) {
        let request = self.request;
        let Assigned {
            goal,
            pattern,
            pattern_by,
            group,
        } = assigned;
        let child = Child {
            index,
            session: SessionId::child(
                &request.session_id,
                request.step,
                index,
                &self.situation.nonce,
            ),
            goal: goal.text.clone(),
            pattern: pattern.clone(),
            group: group.clone(),
        };
        let question = if goal.question.is_empty() {
            goal.text.clone()
        } else {
            goal.question
        };
        let mut asked = AgentRequest {
            question,
            // In another state it might see tools that its parent does not.
            state: request.state.clone(),
            group,
            user: request.user.clone(),
            collection: request.collection.clone(),
            streaming: request.streaming,
            session_id: child.session.clone(),
            conversation_id: request.conversation_id.clone(),
            pattern,
            task_type: request.task_type.clone(),
            framing: request.framing.clone(),
            correlation_id: self.correlation.clone(),
            parent_session_id: request.session_id.clone(),
            subagent_goal: goal.text,
            expected_siblings: self.count,
            model: request.model.clone(),
            tool_policy: request.tool_policy.clone(),
            locale: request.locale.clone(),
            join: request.join,
            limits: self.limits.clone(),
            ..AgentRequest::default()
        };
        let control = &mut asked.control;
        if asked.question == request.question {
            // Nobody who saw the conversation made a goal of it.
            control
                .conversation
                .clone_from(&request.control.conversation);
        }
        // It may use what its parent may use now, and knows what that one knows.
        control.known.clone_from(&request.control.known);
        control.position.clone_from(&request.control.position);
        control.without.clone_from(&request.control.without);
        control.root = request.root().clone();
        control.principal.clone_from(&request.control.principal);
        control.ancestors.clone_from(&request.control.ancestors);
        control.ancestors.push(Ancestor {
            session: request.session_id.clone(),
            step: request.step,
        });
        control.context = goal.context;
        control.index = index;
        control.config_version = request.control.config_version;
        // After the join nobody waits for it.
        control.hard_deadline = self.join_deadline;
        control.derives_from = uris::goal(&request.session_id, self.correlation, index);
        control.reasoner = goal.reasoner;
        control.pattern_by = Some(pattern_by);
        control.specialist.clone_from(&request.control.specialist);
        control.profile = if goal.profile.is_empty() {
            request.control.profile.clone()
        } else {
            goal.profile
        };
        if !goal.specialist.is_empty() {
            specialists::engage(&mut asked, &goal.specialist, &self.situation.snapshot);
        }
        (child, asked)
    }
}

/// Goes on without subagents, and says why: the session works on by itself.
pub(super) fn alone(
    request: &AgentRequest,
    action: &str,
    goal: Option<Goal>,
    signal: &str,
    rationale: &str,
    decided_by: DecidedBy,
) -> Order {
    let mut next = request.clone();
    REACT.clone_into(&mut next.pattern);
    let goal = goal.map(|goal| goal.text).filter(|text| !text.is_empty());
    next.history.push(AgentStep {
        thought: goal.unwrap_or_else(|| signal.to_owned()),
        action: action.to_owned(),
        observation: format!("No fan-out: {signal}."),
        user: next.user.clone(),
        step_type: StepKind::Supervise.into(),
        ..AgentStep::default()
    });
    Finish::goes_on(
        next,
        Activity::None,
        vec![decided(ALONE, signal, rationale, decided_by)],
        vec![say::status(format!("No fan-out: {signal}"))],
    )
}

pub(super) const ALONE: &str = "alone";
pub(super) const FAN_OUT: &str = "fan-out";

/// The choice between subagents and none.
pub(super) fn decided(
    chosen: &str,
    signal: &str,
    rationale: &str,
    decided_by: DecidedBy,
) -> Decision {
    Decision {
        subject: FAN_OUT.into(),
        options: match decided_by {
            // The limits took the other one away.
            DecidedBy::OnlyOption => vec![chosen.to_owned()],
            DecidedBy::Model | DecidedBy::Fallback | DecidedBy::Caller | DecidedBy::Person => {
                vec![FAN_OUT.into(), ALONE.into()]
            }
        },
        narrowed_by: "the limits and what there is to divide".into(),
        signal: signal.into(),
        chosen: chosen.into(),
        decided_by,
        rationale: rationale.into(),
    }
}

/// What a fan-in brought, as the record of the step that read it says.
pub(super) fn summary(verdict: &FanInRecord) -> FanInSummary {
    FanInSummary {
        correlation: verdict.correlation.clone(),
        cause: verdict.cause,
        members: verdict.members.clone(),
        missing: verdict.missing.clone(),
        spent: verdict.spent(),
    }
}

/// Why one child has no result to show, if it has none: by its place, with the text of its end.
pub(super) fn failure(verdict: &FanInRecord, index: u32, text: Option<&str>) -> Option<String> {
    let Some(member) = verdict.members.iter().find(|m| m.index == index) else {
        let cause = verdict.cause.as_str();
        return Some(format!("not finished when the wait ended ({cause})"));
    };
    let reason = match (member.status, text) {
        (CompletionStatus::Answered, Some(_)) => return None,
        (CompletionStatus::Answered, None) => "its text could not be read",
        (other, _) => other.as_str(),
    };
    Some(match text {
        Some(text) => format!("{reason}: {}", bounded(text, 300)),
        None => reason.to_owned(),
    })
}

/// The children without a result to show, as prompts and answers name them: what each was for, with
/// the reason. `texts` are those of the verdict's members, in their order.
pub(super) fn missing(
    verdict: &FanInRecord,
    texts: &[Option<String>],
    name: impl Fn(u32, &str) -> String,
) -> Vec<Value> {
    let gap = |index: u32, goal: &str, text: Option<&str>| {
        let reason = failure(verdict, index, text)?;
        Some(json!({"goal": name(index, goal), "reason": reason}))
    };
    let members = verdict.members.iter().zip(texts);
    let failed = members.filter_map(|(m, text)| gap(m.index, &m.goal, text.as_deref()));
    let waiting = verdict.missing.iter();
    failed
        .chain(waiting.filter_map(|child| gap(child.index, &child.goal, None)))
        .collect()
}

/// Why an answer is partial, as those say that are made from it.
pub(super) const ENDED_EARLY: &str = "it ended before it was done, and its own answer says why";

/// The children whose answers lack something, as [`missing`] has those without one.
pub(super) fn in_part(verdict: &FanInRecord, name: impl Fn(u32, &str) -> String) -> Vec<Value> {
    let answered = |m: &&Member| m.status == CompletionStatus::Answered && m.partial;
    let members = verdict.members.iter().filter(answered);
    members
        .map(|m| {
            json!({"goal": name(m.index, &m.goal),
                   "reason": ENDED_EARLY})
        })
        .collect()
}

/// Of what [`missing`] names, what the answer lacks: not those that the fan-in did without.
pub(super) fn lacked(verdict: &FanInRecord, mut missing: Vec<Value>) -> Vec<Value> {
    if verdict.does_without() {
        missing.truncate(missing.len().saturating_sub(verdict.missing.len()));
    }
    missing
}

/// A text that is cut, and says so, where it is longer than `max` bytes.
pub(super) fn bounded(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} [cut]", &text[..end])
}
