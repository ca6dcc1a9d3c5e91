//! Texts of nodes, as Mermaid reads them.

use super::super::model::{Decision, arguments_in_brief};
use super::LABEL;
use crate::style::{Line, PLAIN};
use crate::text;
use std::fmt::Write as _;

/// What else there was to choose, or who left no choice.
pub(super) fn of_options(decision: &Decision) -> String {
    if decision.decided_by.as_deref() == Some("caller") {
        return decision.signal.clone().unwrap_or_default();
    }
    let others = decision.others();
    if others.is_empty() {
        String::new()
    } else {
        wrapped(&format!("not: {}", others.join(", ")), 2)
    }
}

/// A decision, and its class.
pub(super) fn decided(decision: &Decision) -> (String, &'static str) {
    if !decision.is_approval() {
        let label = format!(
            "{}: {}\n{}",
            decision.subject,
            decision.selected,
            of_options(decision)
        );
        return (label, "decision");
    }
    let mut label = decision.answer_in_brief();
    if !decision.arguments.is_empty() {
        let arguments = arguments_in_brief(&decision.arguments, 400);
        let _ = write!(label, "\n{}", wrapped(&format!("with {arguments}"), 3));
    }
    if let Some(why) = &decision.signal {
        let _ = write!(label, "\n{}", wrapped(why, 3));
    }
    let class = match decision.selected.as_str() {
        "deny" => "error",
        _ => "decision",
    };
    (label, class)
}

/// A text over at most so many lines, with line feeds between them and an ellipsis where it is cut.
pub(super) fn wrapped(text: &str, most: usize) -> String {
    let text = text::preview(text, LABEL * most * 2);
    let mut lines: Vec<String> = Line::of(&text, PLAIN)
        .wrapped(LABEL)
        .iter()
        .map(Line::plain)
        .collect();
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = text::shorten(&format!("{last}{}", text::ELLIPSIS), LABEL);
        }
    }
    lines.join("\n")
}

/// Everything but plain words as numeric entity codes. Labels are read as Markdown before the codes
/// are, so what would begin a list is coded too.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut leading = true;
    for c in text.chars() {
        let punctuation = matches!(
            c,
            ' ' | '.' | ',' | '-' | '(' | ')' | '/' | '+' | '=' | '!' | '?'
        );
        let plain = c.is_alphanumeric() || (!c.is_ascii() && !c.is_control());
        if plain || (punctuation && !leading) {
            out.push(c);
        } else {
            let _ = write!(out, "#{};", u32::from(c));
        }
        leading = leading && c.is_ascii_digit();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_mermaid_becomes_an_entity_code() {
        assert_eq!(escape("a \"b\" #c; `d`"), "a #34;b#34; #35;c#59; #96;d#96;");
        assert_eq!(escape("%%{init}%%"), "#37;#37;#123;init#125;#37;#37;");
        assert_eq!(escape("日本語 🚀 style: x"), "日本語 🚀 style#58; x");
        assert_eq!(escape("1. one - two"), "1#46; one - two");
        assert_eq!(escape("- __bold__"), "#45; #95;#95;bold#95;#95;");
    }
}
