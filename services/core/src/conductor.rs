//! Which tools the policy of a run leaves open, and what a call that succeeded makes of its position.
//!
//! One step of the policy is active. While its sequence is not done, only the next tool of it may be called,
//! whatever lists say. Behind it, or where there is none, the step's lists count. After each call that
//! succeeded the first step whose conditions are met becomes active, unless a sequence is under way: that is
//! finished first. Where no condition is met the step stays. A call that failed moves nothing.
//!
//! The position travels with the run's messages, and with the conversation to the next run.

use crate::{say, tools};
use agentfleet_schema::config::{PolicyStep, Snapshot, ToolItem, ToolPolicy, condition_type};
use agentfleet_schema::records::Decision;
use agentfleet_schema::{AgentRequest, PolicyPosition};
use serde_json::{Value, json};

/// Subject of the decision that another step is active.
const SUBJECT: &str = "tool-policy";
/// Calls that a position remembers: more than the longest sequence that can be saved.
const REMEMBERED: usize = 64;

/// The policy of a run: that of its specialist, else of its task type, else the one that the caller named, so
/// that nobody who asks can loosen what the config says.
fn policy<'a>(request: &AgentRequest, snapshot: &'a Snapshot) -> Option<(&'a str, &'a ToolPolicy)> {
    let specialist = snapshot.specialists.get(&request.control.specialist);
    let task_type = snapshot.task_types.get(&request.task_type);
    let key = [
        specialist.map(|item| &item.tool_policy),
        task_type.map(|item| &item.tool_policy),
        Some(&request.tool_policy),
    ];
    let key = key.into_iter().flatten().find(|key| !key.is_empty())?;
    let found = snapshot.tool_policies.get_key_value(key)?;
    Some((found.0.as_str(), found.1))
}

/// What is wrong with the policy that a caller names, if something is.
pub fn unknown(request: &AgentRequest, snapshot: &Snapshot) -> Option<String> {
    let (wanted, known) = (&request.tool_policy, &snapshot.tool_policies);
    if wanted.is_empty() || known.contains_key(wanted) {
        return None;
    }
    let known: Vec<String> = known.keys().map(|name| format!("`{name}`")).collect();
    Some(match known.as_slice() {
        [] => format!("tool policy `{wanted}` is not known (there is none)"),
        known => format!(
            "tool policy `{wanted}` is not known (available: {})",
            known.join(", ")
        ),
    })
}

/// Where a run says that it stands in a policy.
fn held<'a>(
    request: &'a AgentRequest,
    key: &str,
    policy: &ToolPolicy,
) -> Option<&'a PolicyPosition> {
    let held = request.control.position.as_deref();
    held.filter(|held| held.policy == key && policy.step(&held.step).is_some())
}

/// Where a run stands: as it says, or at the beginning.
fn position(request: &AgentRequest, key: &str, policy: &ToolPolicy) -> PolicyPosition {
    let held = held(request, key, policy).cloned();
    held.unwrap_or_else(|| PolicyPosition {
        policy: key.to_owned(),
        step: policy
            .first()
            .map(|step| step.name.clone())
            .unwrap_or_default(),
        ..PolicyPosition::default()
    })
}

/// The step of a run that is active, and the tool that comes next where it is in a sequence.
fn active<'a>(
    request: &AgentRequest,
    snapshot: &'a Snapshot,
) -> Option<(&'a PolicyStep, Option<&'a str>)> {
    let (key, policy) = policy(request, snapshot)?;
    let (step, at) = match held(request, key, policy) {
        Some(held) => (policy.step(&held.step)?, held.at),
        None => (policy.first()?, 0),
    };
    let next = step.sequence.get(at as usize);
    Some((step, next.map(String::as_str)))
}

/// Whether the policy of a request leaves a tool open.
pub(crate) fn allows(request: &AgentRequest, snapshot: &Snapshot) -> impl Fn(&ToolItem) -> bool {
    let active = active(request, snapshot);
    move |tool| match active {
        None => true,
        Some((_, Some(next))) => tool.name == next,
        Some((step, None)) => step.available_tools.allow(&tool.name),
    }
}

/// What prompts show of the policy: the active step, which tool comes next, and whether the run lacks it.
pub(crate) fn shown(request: &AgentRequest, snapshot: &Snapshot) -> Value {
    let Some((step, next)) = active(request, snapshot) else {
        return Value::Null;
    };
    let granted = tools::granted(request, snapshot);
    let is_missing = next.is_some_and(|next| granted.iter().all(|tool| tool.name != next));
    json!({"step": step.name, "description": step.description, "next": next, "is_missing": is_missing})
}

/// Moves the position of a request on by a call that succeeded; says so where another step is active then.
pub(crate) fn advance(
    request: &mut AgentRequest,
    snapshot: &Snapshot,
    tool: &str,
) -> Option<Decision> {
    let (key, policy) = policy(request, snapshot)?;
    let mut position = position(request, key, policy);
    let step = policy.step(&position.step)?;
    position.used.push(tool.to_owned());
    let over = position.used.len().saturating_sub(REMEMBERED);
    position.used.drain(..over);
    if step
        .sequence
        .get(position.at as usize)
        .is_some_and(|next| next == tool)
    {
        position.at += 1;
    }
    let is_done = position.at as usize >= step.sequence.len();
    let met = policy.steps.iter().filter(|_| is_done);
    let next = met.into_iter().find_map(|step| {
        let why = why(step, policy, &position.used)?;
        Some((step, why))
    });
    let before = (position.step.clone(), position.at);
    if let Some((next, why)) = &next {
        position.step.clone_from(&next.name);
        position.at = if why.is_own_sequence {
            u32::try_from(next.sequence.len()).unwrap_or(u32::MAX)
        } else {
            0
        };
    }
    let is_moved = before != (position.step.clone(), position.at);
    request.control.position = Some(Box::new(position));
    let (next, why) = next.filter(|_| is_moved)?;
    Some(say::only(
        SUBJECT,
        &next.name,
        format!("the first step of policy `{key}` whose conditions are met"),
        why.text,
    ))
}

/// Why a step becomes active.
struct Why {
    text: String,
    /// Its own sequence was just used, and so is done.
    is_own_sequence: bool,
}

/// Why the conditions of a step are met; `None` where one is not, or where there are none.
fn why(step: &PolicyStep, policy: &ToolPolicy, used: &[String]) -> Option<Why> {
    let mut texts = Vec::new();
    let mut is_own_sequence = false;
    for condition in &step.conditions {
        texts.push(match condition.kind.as_str() {
            condition_type::TOOL_USED if used.last() == Some(&condition.value) => {
                format!("`{}` was used", condition.value)
            }
            condition_type::SEQUENCE_MATCH => {
                let of = policy.sequence_of(step, condition)?;
                if of.sequence.is_empty() || !used.ends_with(&of.sequence) {
                    return None;
                }
                is_own_sequence |= of.name == step.name;
                format!("the sequence of step `{}` was used", of.name)
            }
            _ => return None,
        });
    }
    (!texts.is_empty()).then(|| Why {
        text: texts.join(", and "),
        is_own_sequence,
    })
}

#[cfg(test)]
#[path = "conductor_tests.rs"]
mod tests;
