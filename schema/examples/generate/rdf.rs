//! A Turtle file as something to look things up in: just enough for the ontology and the shapes.

use oxrdf::{NamedOrBlankNode, Term};
use oxrdfio::{RdfFormat, RdfParser};
use std::collections::BTreeMap;
use std::error::Error;

pub(crate) const RDF: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#";
pub(crate) const RDFS: &str = "http://www.w3.org/2000/01/rdf-schema#";
pub(crate) const OWL: &str = "http://www.w3.org/2002/07/owl#";
pub(crate) const SH: &str = "http://www.w3.org/ns/shacl#";
pub(crate) const SKOS: &str = "http://www.w3.org/2004/02/skos/core#";

/// Nodes by name: IRIs as they are, blank nodes with `_:`; literals by their text.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    statements: Vec<(String, String, String)>,
    /// Statements by subject, in the order of the file.
    by_subject: BTreeMap<String, Vec<usize>>,
}

impl Graph {
    pub(crate) fn parse(turtle: &str) -> Result<Self, Box<dyn Error>> {
        let mut graph = Self::default();
        for quad in RdfParser::from_format(RdfFormat::Turtle).for_slice(turtle.as_bytes()) {
            let quad = quad?;
            let subject = match quad.subject {
                NamedOrBlankNode::NamedNode(node) => node.into_string(),
                NamedOrBlankNode::BlankNode(node) => format!("_:{}", node.as_str()),
            };
            let object = match quad.object {
                Term::NamedNode(node) => node.into_string(),
                Term::BlankNode(node) => format!("_:{}", node.as_str()),
                Term::Literal(literal) => literal.value().to_owned(),
                Term::Triple(_) => return Err("no statement here is about a statement".into()),
            };
            graph
                .by_subject
                .entry(subject.clone())
                .or_default()
                .push(graph.statements.len());
            graph
                .statements
                .push((subject, quad.predicate.into_string(), object));
        }
        Ok(graph)
    }

    /// Values of a property, in the order of the file.
    pub(crate) fn all(&self, subject: &str, property: &str) -> Vec<&str> {
        let places = self
            .by_subject
            .get(subject)
            .map(Vec::as_slice)
            .unwrap_or_default();
        places
            .iter()
            .filter_map(|place| self.statements.get(*place))
            .filter(|(_, predicate, _)| predicate == property)
            .map(|(.., object)| object.as_str())
            .collect()
    }

    pub(crate) fn one(&self, subject: &str, property: &str) -> Option<&str> {
        self.all(subject, property).first().copied()
    }

    /// Subjects with this value of a property, each once, sorted.
    pub(crate) fn subjects(&self, property: &str, object: &str) -> Vec<&str> {
        let mut found: Vec<&str> = self
            .statements
            .iter()
            .filter(|(_, p, o)| p == property && o == object)
            .map(|(subject, ..)| subject.as_str())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The members of an RDF list.
    pub(crate) fn list(&self, head: &str) -> Vec<&str> {
        let mut members = Vec::new();
        let mut at = head;
        while let Some(first) = self.one(at, &format!("{RDF}first")) {
            members.push(first);
            let Some(rest) = self.one(at, &format!("{RDF}rest")) else {
                break;
            };
            at = rest;
        }
        members
    }
}

/// An IRI with its usual prefix.
pub(crate) fn short(iri: &str) -> String {
    for (prefix, namespace) in [
        ("tg", agentfleet_schema::vocabulary::tg::NS),
        ("prov", agentfleet_schema::vocabulary::prov::NS),
        ("xsd", "http://www.w3.org/2001/XMLSchema#"),
        ("rdfs", RDFS),
        ("rdf", RDF),
    ] {
        if let Some(local) = iri.strip_prefix(namespace) {
            return format!("{prefix}:{local}");
        }
    }
    iri.to_owned()
}
