//! What the tree says of one thing, in a line or less.

use super::super::NOT_HEARD_OF;
use super::super::model::{Confidence, Decision, Session, Source, Spent, State, Work};
use super::branch::Detail;
use super::sureness;
use crate::style::{BAD, DIM, GOOD, Line, PLAIN, WARN};
use crate::text;
use anstyle::Style;
use std::collections::BTreeMap;

/// Sources named at one place.
const SOURCES: usize = 6;

/// `Confidence: 0.71 (...)`: a line of its own, and no sentence that has the word in it.
pub(super) fn states_confidence(line: &str) -> bool {
    let line = line.trim_start_matches(['*', '_', ' ']);
    let Some((word, value)) = line.split_once(':') else {
        return false;
    };
    let value = value.trim_start_matches(['*', '_', ' ']);
    word.trim_end_matches(['*', '_'])
        .eq_ignore_ascii_case("confidence")
        && value.starts_with(|c: char| c.is_ascii_digit())
}

pub(super) fn sign(session: &Session) -> (&'static str, Style) {
    let late = session.completion.as_ref().is_some_and(|c| c.late);
    match (session.state, &session.conclusion) {
        (State::NotStarted, _) => ("○", DIM),
        (State::Running | State::Waiting, _) => ("◐", WARN),
        (State::Ended, Some(end)) if !end.answered => ("✖", BAD),
        (State::Ended, Some(end)) if end.partial || late => ("●", WARN),
        (State::Ended, _) => ("●", GOOD),
    }
}

pub(super) fn remarks(session: &Session, above_waiting: bool) -> Line {
    let mut remarks = Line::new();
    if let Some(pattern) = session.pattern() {
        push_part(&mut remarks, pattern);
    }
    let Spent { steps, .. } = session.spent;
    push_part(&mut remarks, &text::counted(steps, "step"));
    if session.spent_in_tree.tokens() > 0 {
        push_part(&mut remarks, &session.spent_in_tree.tokens_told());
    }
    if let Some(ms) = session.duration_ms {
        push_part(&mut remarks, &text::duration(ms));
    }
    match session.state {
        State::NotStarted => push_part(&mut remarks, NOT_HEARD_OF),
        State::Running if above_waiting => {
            push_part(&mut remarks, "a subagent waits for a person");
        }
        State::Running => push_part(&mut remarks, "running"),
        State::Waiting => push_part(&mut remarks, "waits for a person"),
        State::Ended => {}
    }
    if session.depth > 0 {
        push_part(&mut remarks, &format!("session {}", session.id));
    }
    remarks
}

/// The options that were not chosen.
pub(super) fn others(decision: &Decision) -> Line {
    let others = decision.others();
    if others.is_empty() {
        Line::of(", the only option", DIM)
    } else {
        Line::of(&format!(", not {}", others.join(" or ")), DIM)
    }
}

pub(super) fn decided_by(decision: &Decision) -> &str {
    match decision.decided_by.as_deref() {
        Some("model") => decision.work.model.as_deref().unwrap_or("the model"),
        Some("only-option") => "necessity",
        Some("caller") => "the caller",
        Some("fallback") => "the fallback rule",
        Some("person") => decision.person.as_deref().unwrap_or("a person"),
        Some(other) => other,
        None => "nobody knows whom",
    }
}

pub(super) fn arguments(arguments: &BTreeMap<String, String>) -> String {
    let shown: Vec<String> = arguments
        .iter()
        .map(|(name, value)| {
            let value = text::preview(value, 60);
            if name.is_empty() {
                value
            } else {
                format!("{name}: \"{value}\"")
            }
        })
        .collect();
    shown.join(", ")
}

pub(super) fn push_part(line: &mut Line, part: &str) {
    if !line.is_empty() {
        line.push(" · ", DIM);
    }
    line.push(part, DIM);
}

/// Tokens, time, and the attempt if it was not the first.
pub(super) fn worked(work: &Work) -> Line {
    let mut line = Line::new();
    let tokens = work
        .input_tokens
        .unwrap_or(0)
        .saturating_add(work.output_tokens.unwrap_or(0));
    if tokens > 0 {
        push_part(&mut line, &text::counted(tokens, "token"));
    }
    if let Some(ms) = work.model_ms {
        push_part(&mut line, &format!("model {}", text::duration(ms)));
    }
    if let Some(attempt) = work.attempt.filter(|attempt| *attempt > 1) {
        push_part(&mut line, &format!("attempt {attempt}"));
    }
    if let Some(ms) = work.model_wait_ms {
        let why = work.model_wait_reason.as_deref().unwrap_or_default();
        let why = text::one_line(why);
        push_part(
            &mut line,
            &format!("waited {} for the model: {why}", text::duration(ms)),
        );
    }
    if work.cut_replies.is_some() {
        push_part(&mut line, "reply cut at the limit of its length");
    }
    if !work.ignored_calls.is_empty() {
        push_part(
            &mut line,
            &format!("not called: {}", work.ignored_calls.join(", ")),
        );
    }
    line
}

pub(super) fn confidence(parts: &[Confidence]) -> Option<Detail> {
    if parts.is_empty() {
        return None;
    }
    let mut line = Line::of("confidence: ", DIM);
    for (position, Confidence { part, value }) in parts.iter().enumerate() {
        if position > 0 {
            line.push(" · ", DIM);
        }
        if !part.is_empty() {
            line.push(&text::one_line(part), PLAIN).push(" ", PLAIN);
        }
        if let Some(value) = value {
            line.push(&format!("{value:.2}"), sureness(*value));
        }
    }
    Some(Detail::Whole(line))
}

pub(super) fn sources(what: &str, sources: &[&Source]) -> Option<Detail> {
    if sources.is_empty() {
        return None;
    }
    let names: Vec<String> = sources
        .iter()
        .take(SOURCES)
        .map(|s| text::preview(s.name(), 80))
        .collect();
    let mut line = Line::of(what, DIM).with(&names.join(", "), PLAIN);
    if sources.len() > SOURCES {
        line.push(&format!(" and {} more", sources.len() - SOURCES), DIM);
    }
    Some(Detail::Whole(line))
}

/// An instant as people read it.
pub(super) fn clock(at: i64) -> String {
    chrono::DateTime::from_timestamp_millis(at).map_or_else(
        || at.to_string(),
        |at| at.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}
