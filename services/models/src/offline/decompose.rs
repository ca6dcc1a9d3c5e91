//! Splits a question into goals along the parts that it, or its framing, enumerates.

use super::dimensions::{self, Enumeration, Kind};
use super::inputs::{number, options, text};
use serde_json::{Value, json};

const DEFAULT_MOST: u64 = 8;
/// What a subagent works by, where it is on offer.
const PATTERN: &str = "react";

/// One goal per part; the question itself where there are no parts.
pub(super) fn goals(inputs: &Value) -> Value {
    let question = text(inputs, "question");
    let most = number(inputs, "max_subagents")
        .unwrap_or(DEFAULT_MOST)
        .max(1) as usize;
    let patterns = options(inputs, "patterns");
    let pattern = patterns
        .iter()
        .find(|p| p.name == PATTERN)
        .or(patterns.first())
        .map_or(PATTERN, |p| p.name.as_str());
    let (thought, goals) = match dimensions::find(question, text(inputs, "framing")) {
        Some(parts) if most > 1 => (thought(&parts, most), worded(&parts, question, most)),
        Some(_) => (
            "Parts are named, but there is room for one goal only: the question itself.".to_owned(),
            vec![question.trim().to_owned()],
        ),
        None => (
            "Neither the question nor its framing enumerates parts, so the question is the one \
             goal. Without a language model I split along what is written and nothing else."
                .to_owned(),
            vec![question.trim().to_owned()],
        ),
    };
    let goals: Vec<Value> = goals
        .into_iter()
        .map(|goal| json!({"goal": goal, "pattern": pattern}))
        .collect();
    json!({"thought": thought, "goals": goals})
}

fn thought(parts: &Enumeration, most: usize) -> String {
    let count = parts.items.len();
    let joined = if count > most {
        format!(" There is room for {most} goals, so the last one holds the remaining parts.")
    } else {
        String::new()
    };
    format!(
        "The {} names {count} parts: \"{}\". One goal for each: {}.{joined}",
        parts.origin.as_str(),
        parts.fragment,
        parts.items.join(", "),
    )
}

fn worded(parts: &Enumeration, question: &str, most: usize) -> Vec<String> {
    let count = parts.items.len();
    // The last goal takes what would not fit.
    let (own, rest) = parts
        .items
        .split_at(if count > most { most - 1 } else { count });
    let mut goals: Vec<String> = own.iter().map(|item| goal(parts, item, question)).collect();
    if !rest.is_empty() {
        goals.push(goal(parts, &joined(rest), question));
    }
    goals
}

fn joined(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `Financial dimension: <question>` or `Postgres: <question>`.
fn goal(parts: &Enumeration, item: &str, question: &str) -> String {
    let about = parts.question_about(item, question);
    let head = capitalised(item);
    if about.is_empty() || about == item {
        return head;
    }
    match parts.kind {
        Kind::Dimensions => format!("{head} dimension: {about}"),
        Kind::Parts => format!("{head}: {about}"),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
