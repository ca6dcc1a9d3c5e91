//! An agent as a tool: a fan-out of one. The step that calls ends with it, and the call waits in the
//! request for the verdict, as one waits that a person was asked about. The agent's answer is its result.

use super::REACT;
use super::fan_out::{ENDED_EARLY, Goal, Round, failure, summary};
use crate::approval::Asker;
use crate::order::{Order, ToolOutcome, ToolUse, Used};
use crate::say;
use crate::turn::Situation;
use agentfleet_schema::config::{ToolItem, tool_kind};
use agentfleet_schema::records::{DecidedBy, Decision, FanInRecord, FanInSummary};
use agentfleet_schema::{AgentRequest, HeldCall, Millis};

/// Subject of the decision on which agent is asked.
const AGENT: &str = "agent";

/// Starts the agent that a call names. What comes back otherwise is what the caller is told instead: why
/// the limits forbid it.
pub(crate) fn start(
    asker: &Asker<'_>,
    call: &ToolUse,
    used: Used,
) -> Result<Order, Box<ToolOutcome>> {
    let ToolUse { tool, arguments } = call;
    let argument = |name: &str| arguments.get(name).cloned().unwrap_or_default();
    let goal = Goal {
        text: argument("question"),
        context: argument("context"),
        pattern: tool.pattern.clone().unwrap_or_else(|| REACT.to_owned()),
        fixed: true,
        specialist: tool.specialist.clone().unwrap_or_default(),
        ..Goal::default()
    };
    let mut limits = asker.limits.clone();
    if let Some(ms) = tool.timeout_ms {
        limits.subagent_timeout_ms = limits.subagent_timeout_ms.min(ms);
    }
    let mut waiting = asker.request.clone();
    waiting.control.held = Some(HeldCall {
        tool: tool.name.clone(),
        arguments: arguments.clone(),
        thought: asker.thought.to_owned(),
        not_run: asker.not_run.to_vec(),
        ..HeldCall::default()
    });
    let round = Round {
        request: &waiting,
        situation: asker.situation,
        limits: &limits,
        thought: asker.thought.to_owned(),
        history: Vec::new(),
        after: None,
        compared: None,
        decisions: vec![chosen(asker.tools, &tool.name, &goal)],
        used,
    };
    let started = round.fan_out(vec![goal]);
    started.map(|order| announced(order, call)).map_err(|why| {
        Box::new(ToolOutcome {
            content: format!("Error: `{}` cannot be asked: {why}", tool.name),
            is_error: true,
            ..ToolOutcome::default()
        })
    })
}

/// Says the call when the agent starts: what that says comes after it.
fn announced(mut order: Order, call: &ToolUse) -> Order {
    if let Order::Finish(finish) = &mut order {
        let thought = finish.said.len().min(1);
        finish
            .said
            .insert(thought, say::called(&call.tool.name, &call.arguments));
    }
    order
}

fn chosen(tools: &[ToolItem], name: &str, goal: &Goal) -> Decision {
    let agents = tools.iter().filter(|tool| tool.kind == tool_kind::AGENT);
    Decision {
        subject: AGENT.into(),
        options: agents.map(|tool| tool.name.clone()).collect(),
        narrowed_by: "the agents among the tools that are visible here".into(),
        signal: say::in_one_line(&goal.text),
        chosen: name.to_owned(),
        decided_by: DecidedBy::Model,
        rationale: String::new(),
    }
}

/// The verdict that a request reads which waits for an agent.
pub(super) fn answered<'a>(
    request: &AgentRequest,
    situation: &'a Situation,
) -> Option<&'a FanInRecord> {
    let waits = request.control.fan_in_step.is_some();
    situation.fan_in.as_ref().filter(|_| waits)
}

/// The order to read what the agent said.
pub(super) fn read(verdict: &FanInRecord) -> Order {
    let members = verdict.members.iter();
    Order::ReadDocuments(members.map(|member| member.document.clone()).collect())
}

/// What the agent brought that a request waits for: as the result of the call, and in short. From then on the
/// request waits no more.
pub(super) fn brought(
    request: &mut AgentRequest,
    situation: &Situation,
    texts: &[Option<String>],
) -> Option<(ToolOutcome, FanInSummary)> {
    let verdict = answered(request, situation)?;
    request.control.fan_in_step = None;
    let waited = situation.now - request.control.after;
    Some((outcome(verdict, texts, waited), summary(verdict)))
}

/// The result of a call that was made before `waited`.
fn outcome(verdict: &FanInRecord, texts: &[Option<String>], waited: Millis) -> ToolOutcome {
    let text = texts.first().and_then(Option::as_deref);
    let ms = u64::try_from(waited).unwrap_or_default();
    if let Some(reason) = failure(verdict, 0, text) {
        return ToolOutcome {
            content: format!("Error: the agent gave no answer: {reason}"),
            is_error: true,
            ms,
            ..ToolOutcome::default()
        };
    }
    let member = verdict.members.first();
    let mut content = text.unwrap_or_default().to_owned();
    if member.is_some_and(|member| member.partial) {
        content.push_str(&format!("\n\n(Incomplete: {ENDED_EARLY}.)"));
    }
    ToolOutcome {
        content,
        ms,
        sources: member
            .map(|member| member.sources.clone())
            .unwrap_or_default(),
        ..ToolOutcome::default()
    }
}

#[cfg(test)]
#[path = "delegate_tests.rs"]
mod tests;
