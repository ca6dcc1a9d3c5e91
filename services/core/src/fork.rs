//! Going on another way: the request of a new root session that begins where a step of another one
//! began. Pure.
//!
//! What the step had before it stays: question, history, tool state, and the verdict of a synthesis.
//! What belonged to the other session's place and time does not: its parent, its deadline, what it
//! had spent, its config version. A plan comes along with what its steps came to, unless another question
//! is asked or another pattern is to answer it: then the new session makes its own.

use crate::conversation;
use crate::history;
use crate::limits::Both;
use crate::patterns;
use agentfleet_schema::records::{ForkedFrom, StepRecord};
use agentfleet_schema::{
    AgentRequest, AgentStep, HeldCall, Lineage, PatternState, RunControl, RunLimits, SessionId,
    StepKind, uris,
};

/// What is to be otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Otherwise {
    pub question: Option<String>,
    pub pattern: Option<String>,
    /// A task type, with its framing.
    pub task_type: Option<(String, String)>,
    pub model: Option<String>,
    pub config_version: Option<u64>,
    /// Bounds that the caller sets.
    pub limits: RunLimits,
}

/// Why a step cannot be gone on from so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotFork {
    #[error(
        "step {step} reads the verdict of a fan-out, which pattern `{pattern}` cannot: fork at an \
         earlier step, or leave the pattern out"
    )]
    ReadsAVerdict { step: u32, pattern: String },
}

/// The request of a session that goes on from the message which a committed step worked.
pub fn fork(
    record: &StepRecord,
    message: &AgentRequest,
    otherwise: Otherwise,
) -> Result<AgentRequest, CannotFork> {
    let mut message = message.clone();
    history::settle(&mut message);
    let message = &message;
    let before = &message.control;
    let is_planned = is_planned(message);
    let (history, goes_by_plan) = taken_along(message, &otherwise);
    // Whose iterations the history is of, so that what they observed is found.
    let mut lineage = before.lineage.clone();
    let iterations = patterns::iterations(message);
    if !is_planned && iterations > 0 {
        lineage.push(Lineage {
            session: record.session.clone(),
            iterations,
        });
    }
    let fan_in_step = before.fan_in_step.filter(|_| !is_planned);
    if let Some(pattern) = &otherwise.pattern
        && fan_in_step.is_some()
        && *pattern != message.pattern
    {
        return Err(CannotFork::ReadsAVerdict {
            step: record.step,
            pattern: pattern.clone(),
        });
    }
    let fan_in_session = match fan_in_step {
        None => SessionId::default(),
        Some(_) if before.fan_in_session.is_empty() => record.session.clone(),
        Some(_) => before.fan_in_session.clone(),
    };
    let node = if record.derives_from.is_empty() {
        uris::question(&record.session)
    } else {
        record.derives_from.clone()
    };
    let (task_type, framing) = otherwise
        .task_type
        .clone()
        .unwrap_or_else(|| (message.task_type.clone(), message.framing.clone()));
    let (known, tool_policy) = known(record, message, &otherwise);
    Ok(AgentRequest {
        locale: message.locale.clone(),
        question: otherwise
            .question
            .unwrap_or_else(|| message.question.clone()),
        state: message.state.clone(),
        group: message.group.clone(),
        history,
        user: message.user.clone(),
        collection: message.collection.clone(),
        streaming: message.streaming,
        conversation_id: message.conversation_id.clone(),
        pattern: otherwise.pattern.unwrap_or_else(|| message.pattern.clone()),
        task_type,
        framing,
        model: otherwise.model.unwrap_or_else(|| message.model.clone()),
        tool_policy,
        limits: Both::First.of_limits(&otherwise.limits, &message.limits),
        control: RunControl {
            context: before.context.clone(),
            principal: before.principal.clone(),
            specialist: before.specialist.clone(),
            reasoner: before.reasoner.clone(),
            profile: before.profile.clone(),
            fan_in_step,
            fan_in_session,
            rounds: before.rounds,
            // What was wrong with the plan is to be put right here as well.
            state: match &before.state {
                PatternState::Plan(_) if goes_by_plan => before.state.clone(),
                _ => PatternState::None,
            },
            // What a person approved was approved for the other session: this one asks again.
            held: before.held.clone().map(|held| HeldCall {
                approved: false,
                ..held
            }),
            lineage,
            sources: before.sources.clone(),
            config_version: otherwise.config_version,
            forked_from: Some(ForkedFrom {
                session: record.session.clone(),
                step: record.step,
                node,
            }),
            ..known
        },
        ..AgentRequest::default()
    })
}

/// What the session knew before the step, and the tool policy that its caller named.
fn known(
    record: &StepRecord,
    message: &AgentRequest,
    otherwise: &Otherwise,
) -> (RunControl, String) {
    let before = &message.control;
    let (conversation, memories, carried) = if record.step == 0 {
        // Its message is the caller's, and says nothing of them.
        let worked = &record.worked;
        (
            &worked.conversation,
            &worked.memories,
            worked.carried.clone(),
        )
    } else {
        let carried = conversation::carried(message);
        (&before.conversation, &before.memories, carried)
    };
    let mut known = RunControl {
        conversation: conversation.clone(),
        memories: memories.clone(),
        known: carried.known,
        position: carried.position,
        ..RunControl::default()
    };
    // What the other run made of its message says nothing of another one.
    if otherwise.question.is_none() {
        known.brief.clone_from(&before.brief);
        known.without = carried.without;
    }
    (known, carried.tool_policy)
}

fn is_planned(message: &AgentRequest) -> bool {
    message.history.iter().any(|step| step.plan.is_some())
}

/// The history that the new session begins with, and whether it goes on by the plan in it.
fn taken_along(message: &AgentRequest, otherwise: &Otherwise) -> (Vec<AgentStep>, bool) {
    let is_planned = is_planned(message);
    let of_plan = |step: &AgentStep| {
        let kinds = [StepKind::Plan, StepKind::Execute, StepKind::Summary];
        is_planned && kinds.into_iter().any(|kind| step.is(kind))
    };
    let others = message.history.iter().filter(|step| !of_plan(step));
    let mut history: Vec<AgentStep> = others.cloned().collect();
    let plan = patterns::current_plan(message).filter(|_| {
        let pattern = otherwise.pattern.as_ref().unwrap_or(&message.pattern);
        let same_task = otherwise.question.is_none() && otherwise.task_type.is_none();
        same_task
            && *pattern == message.pattern
            && patterns::by_name(pattern).is_some_and(patterns::Pattern::has_plan)
    });
    let goes_by_plan = plan.is_some();
    history.extend(plan.map(|plan| AgentStep {
        action: "plan".to_owned(),
        user: message.user.clone(),
        step_type: StepKind::Plan.into(),
        plan: Some(plan.clone()),
        ..AgentStep::default()
    }));
    (history, goes_by_plan)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::PlanState;

    fn record(step: u32, derives_from: &str) -> StepRecord {
        StepRecord {
            session: "s".into(),
            step,
            derives_from: derives_from.into(),
            ..StepRecord::default()
        }
    }

    fn message() -> AgentRequest {
        let mut message = AgentRequest {
            question: "q".into(),
            session_id: "s".into(),
            state: "reviewed".into(),
            pattern: "supervisor".into(),
            task_type: "research".into(),
            framing: "f".into(),
            history: vec![agentfleet_schema::AgentStep::default()],
            correlation_id: "c".into(),
            parent_session_id: "p".into(),
            subagent_goal: "q".into(),
            expected_siblings: 2,
            step: 3,
            ..AgentRequest::default()
        };
        message.limits.max_tokens = Some(100);
        message.control.context = "what the parent found".into();
        message.control.spent.tokens = 90;
        message.control.hard_deadline = 1;
        message.control.config_version = Some(4);
        message
    }

    #[test]
    fn what_the_step_had_before_it_stays_and_what_was_of_its_time_and_place_does_not() {
        let fork = fork(&record(3, "urn:node"), &message(), Otherwise::default()).unwrap();
        let expected = AgentRequest {
            session_id: SessionId::default(),
            correlation_id: agentfleet_schema::CorrelationId::default(),
            parent_session_id: SessionId::default(),
            subagent_goal: String::new(),
            expected_siblings: 0,
            step: 0,
            control: RunControl {
                context: "what the parent found".into(),
                forked_from: Some(ForkedFrom {
                    session: "s".into(),
                    step: 3,
                    node: "urn:node".into(),
                }),
                lineage: vec![Lineage {
                    session: "s".into(),
                    iterations: 1,
                }],
                ..RunControl::default()
            },
            ..message()
        };
        assert_eq!(fork, expected);
    }

    #[test]
    fn a_plan_comes_along_unless_something_else_is_to_be_done() {
        let mut message = message();
        message.pattern = "plan-then-execute".into();
        message.control.state = PatternState::Plan(PlanState {
            replans: 1,
            replan: "step 1 failed".into(),
        });
        let plan = vec![agentfleet_schema::PlanStep {
            goal: "pay".into(),
            status: "complete".into(),
            ..Default::default()
        }];
        for (action, kind) in [("plan", "plan"), ("pay", "execute")] {
            message.history.push(AgentStep {
                action: action.into(),
                step_type: kind.into(),
                plan: (kind == "execute").then(|| plan.clone()),
                ..AgentStep::default()
            });
        }
        let retried = fork(&record(3, "n"), &message, Otherwise::default()).unwrap();
        let last = retried.history.last().unwrap();
        assert_eq!((last.step_type.as_str(), &last.plan), ("plan", &Some(plan)));
        assert_eq!(
            retried.history.len(),
            2,
            "what made it is told of the other run"
        );
        assert_eq!(retried.control.state, message.control.state);
        let otherwise = |question: &str, pattern: &str| Otherwise {
            question: (!question.is_empty()).then(|| question.to_owned()),
            pattern: (!pattern.is_empty()).then(|| pattern.to_owned()),
            ..Otherwise::default()
        };
        for other in [otherwise("another", ""), otherwise("", "react")] {
            let fork = fork(&record(3, "n"), &message, other).unwrap();
            assert!(fork.history.iter().all(|step| step.plan.is_none()));
            assert_eq!(fork.control.state, PatternState::None);
        }
    }

    #[test]
    fn what_is_to_be_otherwise_is() {
        let otherwise = Otherwise {
            question: Some("r".into()),
            pattern: Some("react".into()),
            task_type: Some(("general".into(), "g".into())),
            model: Some("m".into()),
            config_version: Some(9),
            limits: RunLimits {
                max_depth: Some(1),
                ..RunLimits::default()
            },
        };
        let fork = fork(&record(0, ""), &message(), otherwise).unwrap();
        let texts = [
            &fork.question,
            &fork.pattern,
            &fork.task_type,
            &fork.framing,
        ];
        assert_eq!(texts, ["r", "react", "general", "g"]);
        assert_eq!(fork.model, "m");
        assert_eq!(fork.control.config_version, Some(9));
        assert_eq!(
            (fork.limits.max_depth, fork.limits.max_tokens),
            (Some(1), Some(100))
        );
        let from = fork.control.forked_from.unwrap();
        assert_eq!(
            from.node,
            uris::question(&"s".into()),
            "nothing came before"
        );
    }

    #[test]
    fn a_synthesis_keeps_its_verdict_wherever_that_lies() {
        let mut message = message();
        message.control.fan_in_step = Some(2);
        let plain = || Otherwise::default();
        let first = fork(&record(3, "n"), &message, plain()).unwrap();
        assert_eq!(first.control.fan_in_step, Some(2));
        assert_eq!(first.control.fan_in_session, "s".into());
        let of_the_fork = StepRecord {
            session: "t".into(),
            ..record(0, "n")
        };
        let second = fork(&of_the_fork, &first, plain()).unwrap();
        assert_eq!(second.control.fan_in_session, "s".into());
        let react = Otherwise {
            pattern: Some("react".into()),
            ..plain()
        };
        assert!(fork(&record(3, "n"), &message, react).is_err());
    }
}
