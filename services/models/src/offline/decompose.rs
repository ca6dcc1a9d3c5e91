//! Splits a question into goals along the parts that it, or its framing, enumerates.

use super::inputs::{number, options, text};
use super::parts::{self, Parts};
use serde_json::{Value, json};

const DEFAULT_MOST: u64 = 8;
/// What a subagent works by, where it is on offer.
const PATTERN: &str = "react";

/// One goal per part; the question itself where there are no parts.
pub(super) fn goals(inputs: &Value) -> Value {
    let question = text(inputs, "question").trim();
    let most = number(inputs, "max_subagents").unwrap_or(DEFAULT_MOST);
    let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
    let patterns = options(inputs, "patterns");
    let react = patterns.iter().find(|p| p.name == PATTERN);
    let pattern = react.or(patterns.first()).map_or(PATTERN, |p| &p.name);
    let asked = parts::find(question).map(|parts| (parts, true));
    let framed = || parts::find(text(inputs, "framing")).map(|parts| (parts, false));
    let (thought, goals) = match asked.or_else(framed).filter(|_| most > 1) {
        Some((parts, in_question)) => {
            let named = parts.items.join(", ");
            let origin = if in_question { "question" } else { "framing" };
            let goals: Vec<String> = within(&parts.items, most)
                .iter()
                .map(|part| worded(part, question, in_question.then_some(&parts)))
                .collect();
            let count = goals.len();
            (
                format!("The {origin} names parts: {named}. I make {count} goals of them."),
                goals,
            )
        }
        None => (
            "Without a language model I split along parts that are written down, and there are none, so \
             the question is the one goal."
                .to_owned(),
            vec![question.to_owned()],
        ),
    };
    let rationale = rationale(pattern, patterns.len());
    let goals: Vec<Value> = goals
        .into_iter()
        .map(|goal| json!({"goal": goal, "pattern": pattern, "rationale": rationale}))
        .collect();
    json!({"thought": thought, "goals": goals})
}

/// Why the goals are worked as they are: a reason for the choice, whatever the goal is.
fn rationale(pattern: &str, offered: usize) -> String {
    match offered {
        0 | 1 => format!("`{pattern}` is the only pattern on offer"),
        _ if pattern == PATTERN => format!(
            "no language model is at work, so every goal is worked by `{pattern}`, the simplest pattern on \
             offer, with all the tools of its parent"
        ),
        _ => format!(
            "no language model is at work, and `{PATTERN}` is not on offer, so every goal is worked by the \
             first pattern that is"
        ),
    }
}

/// The parts, the last one holding all that would be too many.
fn within(items: &[String], most: usize) -> Vec<String> {
    if items.len() <= most {
        return items.to_vec();
    }
    let (own, rest) = items.split_at(most - 1);
    let mut all = own.to_vec();
    all.push(rest.join(" and "));
    all
}

/// `Financial dimension: <question>`, or the question with one part in place of the row.
fn worded(part: &str, question: &str, row: Option<&Parts>) -> String {
    let mut chars = part.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    let title: String = first.chain(chars).collect();
    match row {
        Some(Parts { before, after, .. }) => {
            let spaced = before.is_empty() || before.ends_with(' ');
            let gap = if spaced { "" } else { " " };
            format!("{title}: {before}{gap}{part}{after}")
        }
        None => format!("{title} dimension: {question}"),
    }
}
