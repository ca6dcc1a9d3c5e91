//! Puts results together: a section for each as it is, what is missing, and every source once.

use super::goal::Goal;
use super::inputs::{list, text};
use serde_json::Value;
use std::fmt::Write as _;

const SOURCE: &str = "> Source: ";

/// The whole answer, as Markdown.
pub(super) fn answer(inputs: &Value) -> String {
    let question = text(inputs, "question").trim();
    let title = question.lines().next().unwrap_or_default();
    let mut parts = vec![
        format!("# {title}"),
        "*Assembled without a language model: each part is shown as it came, its quotations as the search \
         ranked them. Nothing was weighed, compared or concluded.*"
            .to_owned(),
    ];
    let mut missing = Vec::new();
    let mut sources: Vec<(String, Vec<String>)> = Vec::new();
    for result in list(inputs, "results") {
        let (status, body) = (text(result, "status"), text(result, "text").trim());
        let goal = Goal::of(text(result, "goal"));
        if body.is_empty() || !matches!(status, "" | "answered" | "complete" | "partial") {
            let first = body.lines().next().unwrap_or_default();
            let said = format!("{status}: {first}");
            missing.push((
                goal.title.to_owned(),
                said.trim_end_matches(": ").to_owned(),
            ));
            continue;
        }
        let title = if goal.title == question {
            "Findings"
        } else {
            goal.title
        };
        parts.push(format!("## {title}\n\n{}", below(body)));
        for source in body
            .lines()
            .filter_map(|line| line.trim().strip_prefix(SOURCE))
        {
            let document = source.split(", under \"").next().unwrap_or(source);
            match sources.iter_mut().find(|(known, _)| known == document) {
                Some((_, titles)) if titles.iter().any(|known| known == title) => {}
                Some((_, titles)) => titles.push(title.to_owned()),
                None => sources.push((document.to_owned(), vec![title.to_owned()])),
            }
        }
    }
    for gap in list(inputs, "missing") {
        let title = Goal::of(text(gap, "goal")).title.to_owned();
        missing.push((title, text(gap, "reason").to_owned()));
    }
    if !missing.is_empty() {
        let mut section = "## Not covered\n".to_owned();
        for (title, reason) in missing {
            let reason = if reason.is_empty() {
                "no result"
            } else {
                &reason
            };
            let _ = write!(section, "\n- {title}: {reason}");
        }
        parts.push(section);
    }
    if !sources.is_empty() {
        let mut section = "## Sources\n".to_owned();
        for (at, (source, titles)) in sources.iter().enumerate() {
            let _ = write!(
                section,
                "\n{}. {source}, quoted under: {}",
                at + 1,
                titles.join(", ")
            );
        }
        parts.push(section);
    }
    parts.join("\n\n")
}

/// A result whose own headings stand below that of its section. Headings within code stay.
fn below(body: &str) -> String {
    let mut in_code = false;
    let lines = body.lines().map(|line| {
        in_code ^= line.starts_with("```");
        let is_heading = !in_code && line.starts_with('#');
        if is_heading {
            format!("##{line}")
        } else {
            line.to_owned()
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}
