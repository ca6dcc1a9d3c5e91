//! `trace --format turtle`: the statements themselves, by session and node.
//!
//! What a graph store could not hold either (an IRI without a scheme, a literal as subject) is left
//! out, and a comment says how much.

use super::Trace;
use agentfleet_schema::vocabulary::{prov, tg};
use agentfleet_schema::{Term, TermType, Triple, uris};
use oxrdf::{BlankNode, Literal, NamedNode, NamedOrBlankNode};
use oxrdfio::{RdfFormat, RdfSerializer};

const PREFIXES: [(&str, &str); 6] = [
    ("prov", prov::NS),
    ("tg", tg::NS),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
    ("agent", "urn:trustgraph:agent:"),
];

pub(super) fn render(trace: &Trace) -> String {
    let mut serializer = RdfSerializer::from_format(RdfFormat::Turtle);
    for (name, iri) in PREFIXES {
        // Constant IRIs; one that did not parse would only cost its abbreviation.
        if let Ok(with) = serializer.clone().with_prefix(name, iri) {
            serializer = with;
        }
    }
    let mut writer = serializer.for_writer(Vec::new());
    let mut left_out = 0;
    for triple in &trace.triples {
        // Writing to memory cannot fail.
        let written = rdf(triple).map(|triple| writer.serialize_triple(&triple));
        if !matches!(written, Some(Ok(()))) {
            left_out += 1;
        }
    }
    let bytes = writer.finish().unwrap_or_default();
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if trace.triples.is_empty() {
        text.push_str("# The graph knows nothing of this run.\n");
    }
    if left_out > 0 {
        text.push_str(&format!(
            "# {left_out} statements are no RDF and were left out.\n"
        ));
    }
    text
}

fn rdf(triple: &Triple) -> Option<oxrdf::Triple> {
    let subject = match term(&triple.s)? {
        oxrdf::Term::NamedNode(node) => NamedOrBlankNode::from(node),
        oxrdf::Term::BlankNode(node) => node.into(),
        oxrdf::Term::Literal(_) | oxrdf::Term::Triple(_) => return None,
    };
    let oxrdf::Term::NamedNode(predicate) = term(&triple.p)? else {
        return None;
    };
    Some(oxrdf::Triple::new(subject, predicate, term(&triple.o)?))
}

fn term(term: &Term) -> Option<oxrdf::Term> {
    Some(match term.kind {
        TermType::Iri => iri(&term.iri)?.into(),
        TermType::Blank => blank(&term.id)?.into(),
        TermType::Literal => literal(term)?.into(),
        TermType::Triple => oxrdf::Term::Triple(Box::new(rdf(term.triple.as_deref()?)?)),
    })
}

fn iri(text: &str) -> Option<NamedNode> {
    NamedNode::new(text)
        .ok()
        .or_else(|| NamedNode::new(uris::as_iri(text)?).ok())
}

/// A blank node under a label that every Turtle reader takes: plain ones stay, others are encoded.
fn blank(label: &str) -> Option<BlankNode> {
    const ENCODED: &str = "enc_";
    let plain = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && label.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !label.starts_with(ENCODED);
    if plain {
        return BlankNode::new(label).ok();
    }
    let hex: String = label.bytes().map(|byte| format!("{byte:02x}")).collect();
    BlankNode::new(format!("{ENCODED}{hex}")).ok()
}

fn literal(term: &Term) -> Option<Literal> {
    if !term.language.is_empty() {
        return Literal::new_language_tagged_literal(&*term.value, &*term.language).ok();
    }
    match term.datatype.as_str() {
        "" => Some(Literal::new_simple_literal(&*term.value)),
        datatype => Some(Literal::new_typed_literal(&*term.value, iri(datatype)?)),
    }
}
