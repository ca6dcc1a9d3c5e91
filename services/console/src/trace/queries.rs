//! The SPARQL that fetches a run from the provenance graph.
//!
//! Every pattern begins at a constant and walks along links, so that an engine looks things up and
//! never scans: sessions of a tree share the literal of `tg:rootSessionId`, their nodes point to them
//! with `prov:wasGeneratedBy`, and the rest hangs on those nodes. The values are bindings, never
//! pasted in. They read the provenance graph and no other, so that nothing people loaded can pass for
//! a trace. The prefixes `prov:`, `tg:`, `rdf:` and `rdfs:` are the graph's own.

use agentfleet_schema::uris::{self, RETRIEVAL_GRAPH};
use agentfleet_schema::{SessionId, Term};

/// A query and its constants, as the graph takes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub sparql: String,
    /// Values of variables by name.
    pub bindings: Vec<(&'static str, Term)>,
}

/// The root sessions of whatever `id` names: a root, a subagent's session, the correlation of a
/// fan-out, or the URI of any node of a run. A SELECT of `?root`; no row where the graph knows no such
/// id.
pub fn roots_of(id: &str) -> Query {
    let select = "\
WHERE {
  { ?session tg:rootSessionId ?id . ?session tg:rootSessionId ?root }
  UNION
  { ?sessionUri tg:rootSessionId ?root }
  UNION
  { ?child tg:parentCorrelationId ?id . ?child tg:rootSessionId ?root }
  UNION
  { ?node tg:correlationId ?id . ?node prov:wasGeneratedBy ?session .
    ?session tg:rootSessionId ?root }
}";
    let id = id.trim();
    let session = uris::session_of(id).unwrap_or_else(|| SessionId::new(id));
    let id = session.as_str();
    let session = uris::session(&session);
    Query {
        sparql: format!("SELECT DISTINCT ?root FROM <{RETRIEVAL_GRAPH}> {select}"),
        bindings: vec![("id", Term::text(id)), ("sessionUri", Term::iri(session))],
    }
}

/// Everything about the tree of a root session. A CONSTRUCT; [`super::Trace::from_triples`] reads it.
pub fn tree(root: &SessionId) -> Query {
    Query {
        sparql: construct(),
        bindings: vec![("root", Term::text(root.as_str()))],
    }
}

/// What to look at from each session of a tree: how a node hangs on it, and whether all of the node
/// is wanted. Of a source, what it is and its name will do.
const PARTS: [(&str, bool); 8] = [
    ("", true),
    ("?session prov:used ?node .", true),
    ("?session prov:wasAssociatedWith ?node .", true),
    ("?node prov:wasGeneratedBy ?session .", true),
    (
        "?part prov:wasGeneratedBy ?session . ?part tg:thought ?node .",
        true,
    ),
    (
        "?part prov:wasGeneratedBy ?session . ?part tg:subagentGoals ?node .",
        true,
    ),
    (
        "?part prov:wasGeneratedBy ?session . ?part prov:wasAttributedTo ?node .",
        false,
    ),
    (
        "?part prov:wasGeneratedBy ?session . ?part tg:source|tg:cites|tg:consulted ?node .",
        false,
    ),
];

fn construct() -> String {
    let start = "?session tg:rootSessionId ?root .";
    let mut branches = Vec::new();
    for (link, whole) in PARTS {
        let node = if link.is_empty() { "?session" } else { "?node" };
        if whole {
            branches.push(format!(
                "  {{ {start}\n    {link}\n    {node} ?predicate ?object .\n    \
                 BIND({node} AS ?subject) }}"
            ));
            continue;
        }
        for predicate in ["rdf:type", "rdfs:label"] {
            branches.push(format!(
                "  {{ {start}\n    {link}\n    {node} {predicate} ?object .\n    \
                 BIND({predicate} AS ?predicate) BIND({node} AS ?subject) }}"
            ));
        }
    }
    // What a fork went on from belongs to another tree: of that, no more than that it is there.
    branches.push(format!(
        "  {{ {start}\n    ?session prov:wasInformedBy ?other .\n    \
         FILTER NOT EXISTS {{ ?session tg:parentSessionId ?id }}\n    \
         {{ ?session prov:used ?asked . ?asked prov:wasDerivedFrom ?subject }} UNION\n    \
         {{ ?part prov:wasGeneratedBy ?session . ?part prov:wasDerivedFrom ?subject }}\n    \
         BIND(rdf:type AS ?predicate) BIND(prov:Entity AS ?object) }}"
    ));
    format!(
        "CONSTRUCT {{ ?subject ?predicate ?object }} FROM <{RETRIEVAL_GRAPH}> WHERE {{\n{}\n}}",
        branches.join("\n  UNION\n")
    )
}
