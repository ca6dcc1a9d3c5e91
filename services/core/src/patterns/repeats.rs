//! Agents that go round in circles: the same call again, or one failing call after the other.
//!
//! The same action with the same arguments is answered with a hint once, and then ends the session.
//! What may answer otherwise the next time is no repetition: a tool that is said to be repeatable, a
//! call that failed once, or one before which something was changed.

use crate::history::{self, is_error};
use agentfleet_schema::config::{Effect, Snapshot, ToolItem};
use agentfleet_schema::{AgentRequest, AgentStep, StepKind};
use std::collections::BTreeMap;

/// How a hint begins.
const HINT: &str = "Error: this call was made before";
/// Hints that one session is given, whatever it repeats.
pub(super) const MOST_HINTS: u32 = 3;
/// How a hint begins that one tool is called again and again.
const SAME: &str = "Error: this tool was called";

/// How a call stands to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    New,
    /// It was made in this iteration, and the agent was not told so.
    Before(u32),
    Again,
}

fn is_call(step: &AgentStep) -> bool {
    step.is(StepKind::React)
}

/// Looks for a call among those of the session.
pub(super) fn seen(
    request: &AgentRequest,
    tool: &ToolItem,
    arguments: &BTreeMap<String, String>,
    snapshot: &Snapshot,
) -> Seen {
    if tool.repeatable {
        return Seen::New;
    }
    let calls: Vec<&AgentStep> = request
        .history
        .iter()
        .filter(|step| is_call(step))
        .collect();
    let mut before = equal(&calls, tool, arguments, snapshot);
    let Some((at, first)) = before.next() else {
        return Seen::New;
    };
    let later: Vec<&AgentStep> = before.map(|(_, step)| step).collect();
    let hinted = later.iter().any(|step| step.observation.starts_with(HINT));
    if hinted || request.control.state.react().repeats >= MOST_HINTS {
        return Seen::Again;
    }
    if later.is_empty() && is_error(&first.observation) {
        // It may work this time.
        return Seen::New;
    }
    let made: u32 = calls[..at].iter().map(|step| history::counted(step)).sum();
    Seen::Before(1 + summed(request) + made)
}

/// What the agent is told that calls one tool in a row as often as its task type allows, whatever the
/// arguments: it is to say what it does differently. The call after that is made.
pub(super) fn same_tool(
    request: &AgentRequest,
    tool: &ToolItem,
    snapshot: &Snapshot,
) -> Option<String> {
    let most = snapshot.task_types.get(&request.task_type)?.same_tool?;
    if tool.repeatable {
        return None;
    }
    let steps = request.history.iter().rev().filter(|step| is_call(step));
    let row: Vec<&AgentStep> = steps.take_while(|step| step.action == tool.name).collect();
    let is_told = row
        .first()
        .is_some_and(|step| step.observation.starts_with(SAME));
    let calls = row
        .iter()
        .filter(|step| !step.observation.starts_with(SAME))
        .count();
    (calls >= most as usize && !is_told).then(|| {
        format!(
            "{SAME} {calls} times in a row. It is not called now. Say in your thought what those calls lacked and \
             what the next one does differently; then make it, take another tool, or give the final answer."
        )
    })
}

/// The calls that equal one which is to be made, with their places, since something was changed: what
/// was seen before a change may be seen otherwise after it. A call that changes something itself is a
/// repetition all the same.
fn equal<'a>(
    calls: &[&'a AgentStep],
    tool: &ToolItem,
    arguments: &BTreeMap<String, String>,
    snapshot: &Snapshot,
) -> impl Iterator<Item = (usize, &'a AgentStep)> {
    let changes = |step: &AgentStep| {
        let tool = snapshot.tools.get(&step.action);
        !is_error(&step.observation) && tool.is_some_and(|tool| tool.effect() != Effect::ReadOnly)
    };
    let since = if tool.effect() == Effect::ReadOnly {
        let last = calls.iter().rposition(|step| changes(step));
        last.map_or(0, |at| at + 1)
    } else {
        0
    };
    calls
        .iter()
        .copied()
        .enumerate()
        .skip(since)
        .filter(|(_, step)| step.action == tool.name && step.arguments == *arguments)
}

/// Results of the steps of a plan that made a call before. A step of another goal may look for
/// something else in what it returns, so one that insists may make it a second time, and no more.
pub(super) fn of_plan<'a>(
    request: &'a AgentRequest,
    tool: &ToolItem,
    arguments: &BTreeMap<String, String>,
    snapshot: &Snapshot,
) -> Vec<&'a str> {
    if tool.repeatable {
        return Vec::new();
    }
    let steps = request.history.iter();
    let calls: Vec<&AgentStep> = steps.filter(|step| step.is(StepKind::Execute)).collect();
    let found = equal(&calls, tool, arguments, snapshot);
    found.map(|(_, step)| step.observation.as_str()).collect()
}

/// What a step of a plan is told that makes a call which another one made, with this result.
pub(super) fn hint_in_plan(result: &str) -> String {
    format!(
        "a step before this one made the same call with the same arguments, and its result was: \
         {result}\nUse that as the final answer of this step, or make another call. Make it again \
         only if its text is needed for another goal."
    )
}

/// Iterations that only a summary tells of.
fn summed(request: &AgentRequest) -> u32 {
    let steps = request.history.iter();
    let summaries = steps.filter(|step| step.is(StepKind::Summary));
    summaries.map(history::counted).sum()
}

/// What the agent is told that makes a call it made in iteration `n`.
pub(super) fn hint(n: u32) -> String {
    format!(
        "{HINT}, in iteration {n}, with the same arguments. It is not made again: build on its \
         result, make another call, or give the final answer. Made once more, it ends the session."
    )
}

/// Calls at the end of the history that failed, one after the other.
pub(super) fn failures_in_a_row(request: &AgentRequest) -> u32 {
    let calls = request.history.iter().rev().filter(|step| is_call(step));
    calls.take_while(|step| is_error(&step.observation)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolItem {
        ToolItem {
            name: name.into(),
            side_effects: name == "send",
            repeatable: name == "poll",
            ..ToolItem::default()
        }
    }

    fn call(action: &str, query: &str, observation: &str) -> AgentStep {
        AgentStep {
            action: action.into(),
            arguments: [("query".to_owned(), query.to_owned())].into(),
            observation: observation.into(),
            ..AgentStep::default()
        }
    }

    #[test]
    fn the_same_call_is_hinted_at_once_and_then_stopped() {
        let mut snapshot = Snapshot::default();
        for name in ["search", "send", "poll"] {
            snapshot.tools.insert(name.into(), tool(name));
        }
        let told = hint(1);
        let fine = |name, query| call(name, query, "found");
        let failed = |name, query| call(name, query, "Error: timed out");
        let hinted = |name, query| call(name, query, &told);
        let cases = [
            ("search", vec![], Seen::New),
            ("search", vec![fine("search", "y")], Seen::New),
            (
                "search",
                vec![fine("search", "y"), fine("search", "x")],
                Seen::Before(2),
            ),
            (
                "search",
                vec![fine("search", "x"), hinted("search", "x")],
                Seen::Again,
            ),
            (
                "search",
                vec![
                    fine("search", "x"),
                    hinted("search", "x"),
                    fine("search", "y"),
                ],
                Seen::Again,
            ),
            // A failure may pass; a second one will not.
            ("search", vec![failed("search", "x")], Seen::New),
            (
                "search",
                vec![failed("search", "x"), failed("search", "x")],
                Seen::Before(1),
            ),
            // What was changed may be seen.
            (
                "search",
                vec![fine("search", "x"), fine("send", "x")],
                Seen::New,
            ),
            (
                "search",
                vec![fine("search", "x"), failed("send", "x")],
                Seen::Before(1),
            ),
            ("send", vec![fine("send", "x")], Seen::Before(1)),
            (
                "poll",
                vec![fine("poll", "x"), fine("poll", "x")],
                Seen::New,
            ),
        ];
        for (name, history, expected) in cases {
            let request = AgentRequest {
                history,
                ..AgentRequest::default()
            };
            let asked = call(name, "x", "").arguments;
            let found = seen(&request, &tool(name), &asked, &snapshot);
            assert_eq!(found, expected, "{name} after {:?}", request.history);
        }
    }

    #[test]
    fn calls_of_a_plan_are_those_of_its_steps_since_the_last_change() {
        let mut snapshot = Snapshot::default();
        for name in ["search", "send", "poll"] {
            snapshot.tools.insert(name.into(), tool(name));
        }
        let step = |action: &str, result: &str| AgentStep {
            step_type: "execute".into(),
            ..call(action, "x", result)
        };
        let history = vec![
            call("search", "x", "of no plan"),
            step("search", "one"),
            step("send", "sent"),
            step("search", "two"),
            step("poll", "three"),
        ];
        let request = AgentRequest {
            history,
            ..AgentRequest::default()
        };
        for (name, query, expected) in [
            ("search", "x", &["two"][..]),
            ("search", "y", &[]),
            ("send", "x", &["sent"]),
            ("poll", "x", &[]),
        ] {
            let asked = call(name, query, "").arguments;
            let found = of_plan(&request, &tool(name), &asked, &snapshot);
            assert_eq!(found, expected, "{name} {query}");
        }
    }

    #[test]
    fn an_agent_that_repeats_one_thing_after_the_other_is_not_hinted_at_for_ever() {
        let mut request = AgentRequest {
            history: vec![call("search", "x", "found")],
            ..AgentRequest::default()
        };
        (request.control.state).set_react(|state| state.repeats = MOST_HINTS);
        let asked = call("search", "x", "").arguments;
        let found = seen(&request, &tool("search"), &asked, &Snapshot::default());
        assert_eq!(found, Seen::Again);
    }

    #[test]
    fn failures_are_counted_from_the_end() {
        let history = |observations: &[&str]| AgentRequest {
            history: observations
                .iter()
                .map(|o| call("search", "x", o))
                .collect(),
            ..AgentRequest::default()
        };
        for (observations, expected) in [
            (&[][..], 0),
            (&["Error: a"], 1),
            (&["Error: a", "fine", "Error: b", "Error: c"], 2),
            (&["Error: a", "fine"], 0),
        ] {
            assert_eq!(failures_in_a_row(&history(observations)), expected);
        }
    }
}
