//! The trace of a run: read from provenance triples, shown as text, picture or data.
//!
//! [`queries`] fetches the triples, [`Trace::from_triples`] reads them, [`Trace::render`] shows them.
//! Nothing here touches a store: texts that triples only point to come through a [`Texts`] closure,
//! and [`Trace::documents`] names them beforehand.
//!
//! A new format is a file with a `render`, a variant of [`Format`], and its expected files in
//! `tests/expected/`.

mod build;
mod facts;
mod json;
mod mermaid;
pub mod model;
mod order;
mod prov_json;
pub mod queries;
mod svg;
mod tree;

pub use json::FORMAT as JSON_FORMAT;
pub(crate) use json::{Listed, divided};
pub(crate) use tree::sureness;

use crate::style::Look;
use agentfleet_schema::{SessionId, Triple, uris};
use model::{Session, Source, Spent, State, Step};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Where a session stands of which the graph tells no step. It may be at work on its first, or wait for
/// a worker: a step is told once it is done.
const NOT_HEARD_OF: &str = "no step done yet";

/// What is said of an answer for which nothing was read.
pub(crate) const UNSOURCED: &str = "rests on nothing that was read";

/// Looks up a document by its URI.
pub type Texts<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One or many runs, as the graph tells them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Each after its parent; a session of depth 0 begins a tree.
    pub sessions: Vec<Session>,
    /// The distinct statements it was read from, sorted.
    pub triples: Vec<Triple>,
}

/// A way to show a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Tree,
    Mermaid,
    Svg,
    Json,
    ProvJson,
}

impl Format {
    pub const ALL: [Self; 5] = [
        Self::Tree,
        Self::Mermaid,
        Self::Svg,
        Self::Json,
        Self::ProvJson,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Mermaid => "mermaid",
            Self::Svg => "svg",
            Self::Json => "json",
            Self::ProvJson => "prov-json",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }
}

impl Trace {
    /// Shows the trace; the text ends with a line feed. `look` matters to the tree only.
    pub fn render(&self, format: Format, look: Look, texts: Texts<'_>) -> String {
        match format {
            Format::Tree => tree::render(self, look, texts),
            Format::Mermaid => mermaid::render(self),
            Format::Svg => svg::render(self, texts),
            Format::Json => json::render(self, texts),
            Format::ProvJson => prov_json::render(self),
        }
    }

    pub fn session(&self, id: &SessionId) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == *id)
    }

    pub fn roots(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().filter(|session| session.depth == 0)
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether a root has not ended yet.
    pub fn is_running(&self) -> bool {
        self.roots().any(|root| root.state != State::Ended)
    }

    /// Whether a call waits for a person somewhere in a tree that has not ended.
    pub fn waits(&self) -> bool {
        self.is_running() && self.sessions.iter().any(|s| s.state == State::Waiting)
    }

    /// The sessions that go on once a person has answered a session below them.
    fn above_waiting(&self) -> HashSet<&SessionId> {
        let mut above = HashSet::new();
        // Sessions come after their parents.
        for session in self.sessions.iter().rev() {
            let waits = session.state == State::Waiting
                || (session.state == State::Running && above.contains(&session.id));
            if let Some(parent) = session.parent.as_ref().filter(|_| waits) {
                above.insert(parent);
            }
        }
        above
    }

    /// What all of it spent.
    pub fn totals(&self) -> Spent {
        let mut sum = Spent::default();
        for root in self.roots() {
            sum.add(&root.spent_in_tree);
        }
        sum
    }

    /// Everything results were taken from, each once, by URI.
    pub fn sources(&self) -> Vec<&Source> {
        sources_of(&self.sessions)
    }

    /// URIs of the texts a renderer may ask for, so that they can be read at once beforehand.
    pub fn documents(&self) -> Vec<String> {
        let mut uris = BTreeSet::new();
        for session in &self.sessions {
            let routing = session.routing.iter().flat_map(|r| &r.decisions);
            uris.extend(routing.filter_map(|d| d.rationale.clone()));
            for step in &session.steps {
                match step {
                    Step::Decision(step) => uris.extend(step.rationale.clone()),
                    Step::Iteration(step) => {
                        uris.extend(step.thought.clone());
                        uris.extend(step.observation.as_ref().and_then(|o| o.document.clone()));
                    }
                    Step::FanOut(step) => uris.extend(step.document.clone()),
                    Step::Note(step) => uris.extend(step.document.clone()),
                    Step::Synthesis(_) => {}
                }
            }
            if let Some(conclusion) = &session.conclusion {
                uris.extend(conclusion.document.clone());
                uris.extend(conclusion.thought.clone());
            }
        }
        uris.into_iter().collect()
    }

    /// A session and all below it, which follow it, deeper.
    fn tree_of(&self, id: &SessionId) -> &[Session] {
        let Some(at) = self.sessions.iter().position(|session| session.id == *id) else {
            return &[];
        };
        let from = &self.sessions[at..];
        let below = from[1..].iter().take_while(|s| s.depth > from[0].depth);
        &from[..=below.count()]
    }

    /// The trace of one session and all below it.
    pub fn subtree(&self, id: &SessionId) -> Option<Self> {
        let mut sessions = self.tree_of(id).to_vec();
        let depth = sessions.first()?.depth;
        for session in &mut sessions {
            session.depth -= depth;
        }
        let kept: BTreeSet<&SessionId> = sessions.iter().map(|s| &s.id).collect();
        let all: BTreeSet<&SessionId> = self.sessions.iter().map(|s| &s.id).collect();
        let is_of = |some: &BTreeSet<&SessionId>, triple: &Triple| {
            uris::session_of(&triple.s.iri).is_some_and(|id| some.contains(&id))
        };
        let triples = self.triples.iter();
        let own = triples.clone().filter(|triple| is_of(&kept, triple));
        let linked: HashSet<&str> = own.map(|triple| triple.o.iri.as_str()).collect();
        // Agents, sources and what a fork went on from are of none of the sessions.
        let is_linked = |triple: &Triple| linked.contains(triple.s.iri.as_str());
        let triples = triples
            .filter(|t| is_of(&kept, t) || (!is_of(&all, t) && is_linked(t)))
            .cloned()
            .collect();
        Some(Self { sessions, triples })
    }

    fn by_id(&self) -> HashMap<&SessionId, &Session> {
        self.sessions
            .iter()
            .map(|session| (&session.id, session))
            .collect()
    }
}

/// What tools of these sessions took their results from, each once, by URI.
fn sources_of(sessions: &[Session]) -> Vec<&Source> {
    let iterations = sessions.iter().flat_map(Session::iterations);
    let observations = iterations.filter_map(|iteration| iteration.observation.as_ref());
    let mut sources: Vec<&Source> = observations.flat_map(|seen| &seen.sources).collect();
    sources.sort();
    sources.dedup_by(|a, b| a.uri == b.uri);
    sources
}
