//! A plan as a directed acyclic graph: reading one from a model's reply, finding what is wrong with
//! it, and which of its steps can be worked on.

use crate::cut::no_json;
use crate::json;
use agentfleet_schema::{AgentRequest, PlanStep};
use serde_json::{Value, json};

pub(super) const PENDING: &str = "pending";
pub(crate) const COMPLETE: &str = "complete";
pub(crate) const FAILED: &str = "failed";
/// A step that a revision replaced.
pub(crate) const REVISED: &str = "revised";
/// What a step names that needs no tool. Not every provider takes an empty text as an option.
const NO_TOOL: &str = "none";
/// Most options of one choice that every provider takes in a schema.
const MOST_OPTIONS: usize = 200;

/// The newest plan of a session: it travels in the history.
pub(crate) fn current(request: &AgentRequest) -> Option<&Vec<PlanStep>> {
    request.history.iter().rev().find_map(|s| s.plan.as_ref())
}

/// What the steps of the newest plan that are complete came to: goal and result of each.
pub(crate) fn results_of_plan(request: &AgentRequest) -> impl Iterator<Item = (&str, &str)> {
    let steps = current(request).into_iter().flatten();
    steps
        .filter(|step| step.status == COMPLETE)
        .map(|step| (step.goal.as_str(), step.result.as_str()))
}

/// Reads `{"thought", "steps": [...]}`, or a bare array. `Err` names what is wrong. What is named as a tool
/// and is none of `tools` is no hint.
pub(super) fn read(text: &str, tools: &[&str]) -> Result<(String, Vec<PlanStep>), String> {
    let value = json::extract(text).ok_or_else(|| no_json(text))?;
    let text_of = |value: &Value, name: &str| json::text(value, name).to_owned();
    let hint = |entry: &Value| {
        let named = json::text(entry, "tool_hint");
        let known = tools.iter().find(|tool| tool.eq_ignore_ascii_case(named));
        known.map(|tool| (*tool).to_owned()).unwrap_or_default()
    };
    let list = match &value {
        Value::Array(list) => list,
        Value::Object(map) => map
            .get("steps")
            .and_then(Value::as_array)
            .ok_or("the reply has no list `steps`")?,
        _ => return Err("the reply is no list of steps".to_owned()),
    };
    let mut steps = Vec::with_capacity(list.len());
    for (at, entry) in list.iter().enumerate() {
        let goal = match entry {
            Value::String(goal) => goal.trim().to_owned(),
            entry => text_of(entry, "goal"),
        };
        if goal.is_empty() {
            return Err(format!("step {at} has no `goal`"));
        }
        let mut depends_on = Vec::new();
        for needed in entry
            .get("depends_on")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let number = needed
                .as_u64()
                .or_else(|| needed.as_str()?.trim().parse().ok())
                .and_then(|number| u32::try_from(number).ok());
            let number = number.ok_or_else(|| {
                format!("step {at} depends on {needed}, which is no number of a step")
            })?;
            if !depends_on.contains(&number) {
                depends_on.push(number);
            }
        }
        steps.push(PlanStep {
            goal,
            tool_hint: hint(entry),
            depends_on,
            specialist: text_of(entry, "specialist"),
            ..PlanStep::default()
        });
    }
    Ok((text_of(&value, "thought"), steps))
}

/// What is wrong with `added`, which come after the steps of `before`: a dependency on a step that is
/// not there, on a later one, on itself, or on one that has no result and will have none.
pub(super) fn fault(before: &[PlanStep], added: &[PlanStep]) -> Option<String> {
    let count = before.len() + added.len();
    for (step, at) in added.iter().zip(before.len()..) {
        for needed in step.depends_on.iter().map(|needed| *needed as usize) {
            let wrong = if needed >= count {
                format!("there is no step {needed}")
            } else if needed == at {
                "a step cannot depend on itself".to_owned()
            } else if needed > at {
                format!("step {needed} comes after it")
            } else if before.get(needed).is_some_and(|b| b.status != COMPLETE) {
                format!("step {needed} has no result")
            } else {
                continue;
            };
            return Some(format!("step {at} depends on step {needed}: {wrong}"));
        }
    }
    None
}

/// The steps that can be worked on now, by their place.
pub(super) fn ready(plan: &[PlanStep]) -> Vec<usize> {
    let is_done = |at: &u32| plan.get(*at as usize).is_some_and(|s| s.status == COMPLETE);
    let steps = plan.iter().enumerate();
    steps
        .filter(|(_, step)| step.status == PENDING && step.depends_on.iter().all(is_done))
        .map(|(at, _)| at)
        .collect()
}

/// The results that a step builds on, as prompts show them.
pub(super) fn needed(plan: &[PlanStep], step: &PlanStep) -> Vec<Value> {
    let results = step.depends_on.iter().filter_map(|at| {
        let done = plan.get(*at as usize)?;
        Some(json!({"index": at, "goal": done.goal, "result": done.result}))
    });
    results.collect()
}

/// JSON Schema of a plan whose steps may name one of `tools`.
pub(super) fn schema(tools: &[&str]) -> Value {
    let mut hint = json!({"type": "string", "description": "the tool that seems best, or `none`"});
    if tools.len() <= MOST_OPTIONS {
        let others = tools.iter().filter(|tool| **tool != NO_TOOL);
        hint["enum"] = others.chain([&NO_TOOL]).copied().collect();
    }
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["thought", "steps"],
        "properties": {
            "thought": {"type": "string", "description": "why these steps, in this order"},
            "steps": {"type": "array", "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["goal", "tool_hint", "depends_on"],
                "properties": {
                    "goal": {"type": "string", "description": "what the step is to find out or make"},
                    "tool_hint": hint,
                    "depends_on": {
                        "type": "array", "items": {"type": "integer"},
                        "description": "numbers of the steps, from 0, whose results it needs",
                    },
                },
            }},
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn step(status: &str, depends_on: &[u32]) -> PlanStep {
        PlanStep {
            goal: "g".into(),
            status: status.into(),
            depends_on: depends_on.to_vec(),
            ..PlanStep::default()
        }
    }

    #[test]
    fn plans_are_read_as_models_write_them() {
        for (text, expected) in [
            (
                r#"{"thought": "t", "steps": [{"goal": "a"}, {"goal": "b", "depends_on": [0, "0"], "tool_hint": "x"}]}"#,
                Ok(vec![vec![], vec![0]]),
            ),
            (
                r#"Here it is: ["a", {"goal": "b", "depends_on": [0]}]"#,
                Ok(vec![vec![], vec![0]]),
            ),
            (r#"{"steps": []}"#, Ok(vec![])),
            ("no plan", Err("no JSON")),
            (r#"{"plan": []}"#, Err("no list `steps`")),
            (r#"[{"tool_hint": "x"}]"#, Err("step 0 has no `goal`")),
            (
                r#"[{"goal": "a", "depends_on": ["first"]}]"#,
                Err(r#"depends on "first", which is no number"#),
            ),
        ] {
            match (read(text, &["x"]), expected) {
                (Ok((_, steps)), Ok(expected)) => {
                    let found: Vec<_> = steps.into_iter().map(|s| s.depends_on).collect();
                    assert_eq!(found, expected, "{text}");
                }
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{text}: {said}"),
                (read, _) => unreachable!("{text}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_hint_is_one_of_the_tools_or_none() {
        let of = |count: usize| -> Vec<String> { (0..count).map(|n| format!("t{n}")).collect() };
        for (count, offered) in [(0, 1), (2, 3), (MOST_OPTIONS, 201), (MOST_OPTIONS + 1, 0)] {
            let tools = of(count);
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let schema = schema(&tools);
            let hint = &schema["properties"]["steps"]["items"]["properties"]["tool_hint"];
            let options = hint["enum"].as_array().map_or(0, Vec::len);
            assert_eq!(options, offered, "{hint}");
        }
        for (named, hint) in [("T1", "t1"), ("none", ""), ("", ""), ("the pump", "")] {
            let text = json!([{"goal": "g", "tool_hint": named}]).to_string();
            let (_, steps) = read(&text, &["t0", "t1"]).unwrap();
            assert_eq!(steps[0].tool_hint, hint, "{named}");
        }
    }

    #[test]
    fn dependencies_lead_to_earlier_steps_that_have_or_will_have_a_result() {
        let done = [step(COMPLETE, &[]), step(FAILED, &[]), step(REVISED, &[])];
        for (before, added, expected) in [
            (0, vec![step(PENDING, &[])], None),
            (0, vec![step(PENDING, &[]), step(PENDING, &[0])], None),
            (
                0,
                vec![step(PENDING, &[0])],
                Some("cannot depend on itself"),
            ),
            // A cycle holds an edge to a later step, wherever it begins.
            (
                0,
                vec![step(PENDING, &[1]), step(PENDING, &[0])],
                Some("step 0 depends on step 1: step 1 comes after it"),
            ),
            (0, vec![step(PENDING, &[7])], Some("there is no step 7")),
            (3, vec![step(PENDING, &[0])], None),
            (3, vec![step(PENDING, &[]), step(PENDING, &[3])], None),
            (3, vec![step(PENDING, &[1])], Some("step 1 has no result")),
            (3, vec![step(PENDING, &[2])], Some("step 2 has no result")),
        ] {
            let fault = fault(&done[..before], &added);
            assert_eq!(fault.is_some(), expected.is_some(), "{added:?}: {fault:?}");
            if let (Some(fault), Some(expected)) = (fault, expected) {
                assert!(fault.contains(expected), "{fault}");
            }
        }
    }

    #[test]
    fn a_step_is_ready_when_all_it_needs_is_complete() {
        let plan = [
            step(COMPLETE, &[]),
            step(FAILED, &[]),
            step(PENDING, &[0]),
            step(PENDING, &[0, 1]),
            step(PENDING, &[2]),
            step(REVISED, &[]),
            step(PENDING, &[]),
        ];
        assert_eq!(ready(&plan), [2, 6]);
        assert_eq!(needed(&plan, &plan[2]).len(), 1);
    }
}
