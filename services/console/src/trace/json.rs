//! `trace --format json`: the model as data, for programs.
//!
//! One object:
//! - `format`: `agentfleet-trace/1`. Fields may be added under this name; none is renamed, removed
//!   or given another meaning without a new one.
//! - `running`: whether a root has not ended yet.
//! - `roots`: ids of the sessions that begin a tree.
//! - `totals`: tokens, cost, times, steps and tool calls of everything.
//! - `sources`: what results were taken from, as `{uri, title}`.
//! - `sessions`: every session once, each after its parent, as [`super::model::Session`] says. Steps
//!   have a `kind`: `decision`, `iteration`, `fan-out` or `synthesis`.
//!
//! Every field is always there; what is unknown is `null`. Instants are RFC 3339 in UTC, durations
//! milliseconds. Texts are named by the URI of their document.

use super::Trace;
use super::model::{Session, Source, Spent};
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
    sources: Vec<&'a Source>,
    sessions: &'a [Session],
}

pub(super) fn render(trace: &Trace) -> String {
    let document = Document {
        format: FORMAT,
        running: trace.is_running(),
        roots: trace.roots().map(|root| &root.id).collect(),
        totals: trace.totals(),
        sources: trace.sources(),
        sessions: &trace.sessions,
    };
    // The model is plain data with text keys: writing it as JSON cannot fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}
