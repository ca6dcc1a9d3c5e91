//! Plans without reasoning: a step for each part that the task enumerates, each carried out by one
//! search, and the results put together as those of subagents are.

use super::inputs::{flag, list, number, text};
use super::{decompose, react, synthesise};
use serde_json::{Value, json};

/// A step for each goal that a fan-out would have; none needs another.
pub(super) fn steps(inputs: &Value) -> Value {
    let most = number(inputs, "max_steps");
    let given = json!({
        "question": text(inputs, "question"),
        "framing": text(inputs, "framing"),
        "max_subagents": most,
    });
    let divided = decompose::goals(&given);
    let steps: Vec<Value> = list(&divided, "goals")
        .iter()
        .map(|goal| json!({"goal": text(goal, "goal"), "tool_hint": "", "depends_on": []}))
        .collect();
    json!({"thought": text(&divided, "thought"), "steps": steps})
}

/// What to do instead is a judgement, so nothing is.
pub(super) fn revised() -> Value {
    json!({
        "thought": "No language model is at work, and what to do instead cannot be told by counting.",
        "steps": [],
    })
}

/// The step's result is what can be quoted from the observation.
pub(super) fn assessed(inputs: &Value) -> Value {
    let turn = react::turn(&json!({
        "goal": text(inputs, "goal"),
        "history": [{
            "action": text(inputs, "action"),
            "arguments": inputs.get("arguments").cloned().unwrap_or_default(),
            "observation": text(inputs, "observation"),
        }],
        "last": true,
    }));
    let answer = turn.split_once("Final Answer:").map(|(_, text)| text);
    let (status, reason) = if flag(inputs, "is_error") {
        ("failed", "the call ended in an error")
    } else {
        (
            "complete",
            "the call returned; no language model is at work to judge what",
        )
    };
    json!({"status": status, "reason": reason, "result": answer.unwrap_or(&turn).trim()})
}

/// The results, as an answer of a supervisor would be made of them.
pub(super) fn answer(inputs: &Value) -> String {
    let results: Vec<Value> = list(inputs, "steps")
        .iter()
        .map(|step| {
            json!({"goal": text(step, "goal"), "status": "answered", "text": text(step, "result")})
        })
        .collect();
    synthesise::answer(&json!({
        "question": text(inputs, "question"),
        "results": results,
        "missing": inputs.get("missing").cloned().unwrap_or_default(),
    }))
}
