//! What takes a judgement, and so a language model: a critique, a comparison of answers, a verdict on
//! them. Each says that there was none.

use super::inputs::{list, options, text};
use super::route::said;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Nothing is ever sent back. That nobody looked is what there is to say.
pub(super) fn critique() -> Value {
    json!({
        "decision": "go-on",
        "wrong": "unknown, because no language model is at work: I cannot criticise",
        "next": "",
    })
}

/// Answers are never held against each other, and another round would bring the same ones.
pub(super) fn comparison(inputs: &Value) -> Value {
    let positions: Vec<Value> = list(inputs, "answers")
        .iter()
        .map(|answer| json!({"reasoner": text(answer, "reasoner"), "position": "not compared"}))
        .collect();
    json!({
        "agreement": "agree",
        "reason": "no language model is at work: the answers were not compared, and another round \
                   would bring the same ones",
        "positions": positions,
        "disagreements": [],
    })
}

/// The answers side by side; those that are equal, once.
pub(super) fn verdict(inputs: &Value) -> String {
    let mut answers: Vec<(Vec<&str>, &str)> = Vec::new();
    for answer in list(inputs, "answers") {
        let (name, said) = (text(answer, "reasoner"), text(answer, "text").trim());
        match answers.iter_mut().find(|(_, known)| *known == said) {
            Some((names, _)) => names.push(name),
            None => answers.push((vec![name], said)),
        }
    }
    let mut out =
        "*No language model was at work: I cannot debate or judge. These are the answers \
                   of the reasoners, as they came and not reconciled.*"
            .to_owned();
    for (names, said) in answers {
        let _ = write!(out, "\n\n## {}\n\n{said}", names.join(", "));
    }
    out
}

/// Every message is a task as it stands: which of them are talk takes a language model.
pub(super) fn gate(inputs: &Value) -> Value {
    json!({
        "intent": "TASK",
        "confidence": 0.5,
        "reason": "no language model is at work: every message is taken for a task",
        "goal": text(inputs, "question"),
        "entities": {},
        "constraints": [],
        "ambiguities": [],
    })
}

/// The intent and the specialist that the message names, if it names any.
pub(super) fn intent(inputs: &Value) -> Value {
    let message = text(inputs, "message");
    let pick = |name: &str, fallback: &str| {
        let options = options(inputs, name);
        let said = said(&options, message);
        let fallback = options.iter().find(|option| option.name == fallback);
        let chosen = said.or(fallback).or(options.first());
        (
            chosen.map(|o| o.name.clone()).unwrap_or_default(),
            said.is_some(),
        )
    };
    let (intent, known) = pick("intents", "general_chat");
    let (specialist, responsible) = pick("specialists", "general");
    json!({
        "intent": intent,
        "confidence": if known || responsible { 0.6 } else { 0.2 },
        "specialist": specialist,
        "services": [],
        "entities": [],
        "time_scope": "none",
        "action_required": false,
        "multi_step": false,
        "steps": [],
    })
}
