//! `trace --format json`: the model as data, for programs.
//!
//! One object:
//! - `format`: `agentfleet-trace/1`. Fields may be added under this name; none is renamed, removed
//!   or given another meaning without a new one.
//! - `running`: whether a root has not ended yet.
//! - `roots`: ids of the sessions that begin a tree.
//! - `totals`: tokens, cost, times, steps and tool calls of everything.
//! - `sources`: what was read, as `{uri, title, cited}`: those that the answer of a root names first.
//!   `cited` is `null` where there is no answer to look at.
//! - `sessions`: every session once, each after its parent, as [`super::model::Session`] says. Steps
//!   have a `kind`: `decision`, `iteration`, `fan-out`, `synthesis` or `note`
//!   (what a pattern wrote down: its `note` is `plan`, `step-result`, `critique`, `comparison` or
//!   `approval`).
//!
//! Every field is always there; what is unknown is `null`. Instants are RFC 3339 in UTC, durations
//! milliseconds. Texts are named by the URI of their document.

use super::model::{Session, Source, Spent};
use super::{Texts, Trace};
use agentfleet_core::cited;
use agentfleet_schema::SessionId;
use serde::Serialize;

/// Name and version of the structure.
pub const FORMAT: &str = "agentfleet-trace/1";

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    running: bool,
    roots: Vec<&'a SessionId>,
    totals: Spent,
    sources: Vec<Listed<'a>>,
    sessions: &'a [Session],
}

/// A source, and whether an answer names it.
#[derive(Debug, Serialize)]
pub(crate) struct Listed<'a> {
    #[serde(flatten)]
    source: &'a Source,
    cited: Option<bool>,
}

fn listed<'a>(trace: &'a Trace, texts: Texts<'_>) -> Vec<Listed<'a>> {
    let answers: Vec<String> = trace
        .roots()
        .filter_map(|root| root.conclusion.as_ref()?.document.as_deref())
        .filter_map(texts)
        .collect();
    if answers.is_empty() {
        return all(trace.sources(), None).collect();
    }
    divided(trace, &answers.join("\n\n"))
}

fn all(sources: Vec<&Source>, cited: Option<bool>) -> impl Iterator<Item = Listed<'_>> {
    let sources = sources.into_iter();
    sources.map(move |source| Listed { source, cited })
}

/// What was read, that first which `answer` names.
pub(crate) fn divided<'a>(trace: &'a Trace, answer: &str) -> Vec<Listed<'a>> {
    let divided = cited::divide(answer, trace.sources(), Source::names);
    all(divided.cited, Some(true))
        .chain(all(divided.only_read, Some(false)))
        .collect()
}

pub(super) fn render(trace: &Trace, texts: Texts<'_>) -> String {
    let document = Document {
        format: FORMAT,
        running: trace.is_running(),
        roots: trace.roots().map(|root| &root.id).collect(),
        totals: trace.totals(),
        sources: listed(trace, texts),
        sessions: &trace.sessions,
    };
    // The model is plain data with text keys: writing it as JSON cannot fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}
