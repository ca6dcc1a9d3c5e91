//! What hangs on a session, and which sessions are told of.

use super::super::facts::Facts;
use super::super::model::NoteKind;
use super::Builder;
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{prov, tg};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of node that hang on a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Routing,
    Decision,
    Iteration,
    FanOut,
    Synthesis,
    Note(NoteKind),
    Conclusion,
    Completion,
}

impl Kind {
    const BY_CLASS: [(&'static str, Self); 13] = [
        (tg::ROUTING_DECISION, Self::Routing),
        (tg::DECISION, Self::Decision),
        (tg::FAN_OUT, Self::FanOut),
        (tg::SYNTHESIS, Self::Synthesis),
        (tg::PLAN, Self::Note(NoteKind::Plan)),
        (tg::STEP_RESULT, Self::Note(NoteKind::StepResult)),
        (tg::CRITIQUE, Self::Note(NoteKind::Critique)),
        (tg::COMPARISON, Self::Note(NoteKind::Comparison)),
        (tg::APPROVAL_REQUEST, Self::Note(NoteKind::Approval)),
        (tg::SUBAGENT_COMPLETION, Self::Completion),
        (tg::CONCLUSION, Self::Conclusion),
        (tg::ANALYSIS, Self::Iteration),
        (tg::TOOL_USE, Self::Iteration),
    ];

    pub(super) fn of(facts: &Facts<'_>, uri: &str) -> Option<Self> {
        Self::BY_CLASS
            .iter()
            .find(|(class, _)| facts.is_a(uri, class))
            .map(|(_, kind)| *kind)
    }
}

/// Nodes by the session that generated them; a peer's, which may not say so, by their URI.
pub(super) fn nodes_by_session<'a>(facts: &Facts<'a>) -> BTreeMap<String, Vec<(&'a str, Kind)>> {
    let mut nodes: BTreeMap<String, Vec<(&str, Kind)>> = BTreeMap::new();
    for subject in facts.subjects() {
        let Some(kind) = Kind::of(facts, subject) else {
            continue;
        };
        let session = facts
            .link(subject, prov::WAS_GENERATED_BY)
            .or_else(|| uris::session_of(subject).map(|id| uris::session(&id)));
        if let Some(session) = session.filter(|session| session != subject) {
            nodes.entry(session).or_default().push((subject, kind));
        }
    }
    nodes
}

/// Every session that is told of: described, or at work.
pub(super) fn session_uris(builder: &Builder<'_>) -> BTreeSet<String> {
    let facts = builder.facts;
    let described = facts.subjects().filter(|subject| {
        facts.is_a(subject, tg::AGENT_QUESTION)
            || facts.has(subject, tg::ROOT_SESSION_ID)
            || (facts.has(subject, tg::QUERY) && Kind::of(facts, subject).is_none())
    });
    described
        .map(str::to_owned)
        .chain(builder.nodes.keys().cloned())
        .collect()
}
