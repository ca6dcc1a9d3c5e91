//! Names of RDF that this crate speaks of, and terms as people read them.

use oxigraph::model::{NamedNodeRef, NamedOrBlankNodeRef, Term, TermRef};

pub(crate) const SH: &str = "http://www.w3.org/ns/shacl#";
pub(crate) const XSD: &str = "http://www.w3.org/2001/XMLSchema#";

pub(crate) mod rdf {
    use oxigraph::model::NamedNodeRef;
    pub(crate) use oxigraph::model::vocab::rdf::{FIRST, NIL, REST, TYPE};
    pub(crate) const LABEL: NamedNodeRef<'_> =
        NamedNodeRef::new_unchecked("http://www.w3.org/2000/01/rdf-schema#label");
    pub(crate) const SUBCLASS: NamedNodeRef<'_> =
        NamedNodeRef::new_unchecked("http://www.w3.org/2000/01/rdf-schema#subClassOf");
}

/// Prefixes for messages.
const PREFIXES: [(&str, &str); 5] = [
    ("prov", "http://www.w3.org/ns/prov#"),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("tg", "https://trustgraph.ai/ns/"),
    ("xsd", XSD),
];

/// A term in full: an IRI, a blank node with its label, or the text of a literal.
pub(crate) fn text(term: TermRef<'_>) -> String {
    match term {
        TermRef::NamedNode(node) => node.as_str().to_owned(),
        TermRef::Literal(literal) => literal.value().to_owned(),
        TermRef::BlankNode(_) | TermRef::Triple(_) => term.to_string(),
    }
}

/// An IRI with its usual prefix, if it has one.
pub(crate) fn short_name(name: NamedNodeRef<'_>) -> String {
    let name = name.as_str();
    let prefixed = PREFIXES.iter().find_map(|(prefix, namespace)| {
        let local = name.strip_prefix(namespace)?;
        Some(format!("{prefix}:{local}"))
    });
    prefixed.unwrap_or_else(|| name.to_owned())
}

/// A term for a message.
pub(crate) fn short(term: TermRef<'_>) -> String {
    match term {
        TermRef::NamedNode(node) => short_name(node),
        TermRef::Literal(_) | TermRef::BlankNode(_) | TermRef::Triple(_) => text(term),
    }
}

/// The node that a term names, if it can be the subject of a statement.
pub(crate) fn subject(term: &Term) -> Option<NamedOrBlankNodeRef<'_>> {
    match term {
        Term::NamedNode(node) => Some(node.as_ref().into()),
        Term::BlankNode(node) => Some(node.as_ref().into()),
        Term::Literal(_) | Term::Triple(_) => None,
    }
}
