//! One step that stands for many: how many, of which kind, and a line for each of the newest.

use super::text::line;
use super::{SUMMARY, counted, number, plans};
use agentfleet_schema::{AgentStep, StepKind};
use serde_json::json;
use std::collections::BTreeMap;

/// Bytes of an argument in a line, and of what a summary says of a step.
pub(super) const ARGUMENT: usize = 120;

/// One step that stands for others. Its text has a line for each of the newest of them.
pub(super) fn summarised(gone: &[AgentStep], user: &str, most: usize) -> AgentStep {
    let (mut n, mut made) = (0, 0);
    let mut lines: Vec<String> = Vec::new();
    let mut calls: BTreeMap<String, u32> = BTreeMap::new();
    let mut unlisted = 0;
    for step in gone {
        n += counted(step);
        made += plans(step);
        if step.is(StepKind::Summary) {
            unlisted += number(step, "unlisted");
            let before = step.arguments.get("calls").map(String::as_str);
            let before: BTreeMap<String, u32> =
                serde_json::from_str(before.unwrap_or_default()).unwrap_or_default();
            for (name, times) in before {
                *calls.entry(name).or_default() += times;
            }
            let listed = step
                .observation
                .lines()
                .filter(|line| line.starts_with("- "));
            lines.extend(listed.map(str::to_owned));
            continue;
        }
        let name = if step.action.is_empty() {
            "none"
        } else {
            &step.action
        };
        *calls.entry(name.to_owned()).or_default() += 1;
        let arguments: Vec<&str> = step.arguments.values().map(String::as_str).collect();
        let said = line(
            &format!("{} {}", arguments.join(" "), step.thought),
            ARGUMENT,
        );
        let number = match counted(step) {
            0 => String::new(),
            _ => format!("{n}. "),
        };
        lines.push(format!("- {number}{name}: {said}"));
    }
    let mut size: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut dropped = 0;
    for line in &lines {
        if size <= most {
            break;
        }
        size -= line.len() + 1;
        dropped += 1;
    }
    unlisted += dropped as u32;
    let told: Vec<String> = calls
        .iter()
        .map(|(name, times)| format!("{name} {times}"))
        .collect();
    let mut text = format!(
        "Iterations 1 to {n}, in short. Steps by kind: {}.",
        told.join(", ")
    );
    if unlisted > 0 {
        text.push_str(&format!(" The oldest {unlisted} are not listed."));
    }
    for line in lines.iter().skip(dropped) {
        text.push('\n');
        text.push_str(line);
    }
    AgentStep {
        action: SUMMARY.into(),
        arguments: BTreeMap::from([
            ("iterations".to_owned(), n.to_string()),
            ("plans".to_owned(), made.to_string()),
            ("unlisted".to_owned(), unlisted.to_string()),
            ("calls".to_owned(), json!(calls).to_string()),
        ]),
        observation: text,
        user: user.to_owned(),
        step_type: StepKind::Summary.into(),
        ..AgentStep::default()
    }
}
