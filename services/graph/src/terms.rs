//! Terms on the wire to terms of the engine, and back.
//!
//! Going in, everything is checked: nothing that is no RDF reaches the log. Coming out, a plain
//! string has no datatype, and a base direction (RDF 1.2) follows the language as in `ar--rtl`.

use crate::Batch;
use crate::error::{Error, TermFault};
use agentfleet_schema::{Term, TermType, Triple};
use oxigraph::model::{
    BaseDirection, BlankNode, GraphName, Literal, NamedNode, NamedOrBlankNode, Quad,
    Term as RdfTerm, Triple as RdfTriple,
};

const RDF_LANG_STRING: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString";
const RDF_DIR_LANG_STRING: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#dirLangString";
const XSD_STRING: &str = "http://www.w3.org/2001/XMLSchema#string";

/// Checks that a batch can be stored, without storing it.
pub fn validate(batch: &Batch) -> Result<(), Error> {
    quads(batch).map(drop)
}

/// The quads of a batch.
pub(crate) fn quads(batch: &Batch) -> Result<Vec<Quad>, Error> {
    batch
        .triples
        .iter()
        .enumerate()
        .map(|(index, triple)| {
            quad(triple).map_err(|fault| Error::Invalid {
                batch: batch.key.clone(),
                index,
                triple: describe(triple),
                fault,
            })
        })
        .collect()
}

fn quad(triple: &Triple) -> Result<Quad, TermFault> {
    let graph = match triple.g.as_deref() {
        None | Some("") => GraphName::DefaultGraph,
        Some(iri) => named(iri, "the graph")?.into(),
    };
    Ok(self::triple(triple)?.in_graph(graph))
}

/// A triple in the terms of the engine; the graph it lies in is left out.
pub fn triple(triple: &Triple) -> Result<RdfTriple, TermFault> {
    let subject = match term(&triple.s, "the subject")? {
        RdfTerm::NamedNode(node) => NamedOrBlankNode::from(node),
        RdfTerm::BlankNode(node) => node.into(),
        RdfTerm::Literal(_) | RdfTerm::Triple(_) => return Err(TermFault::Subject),
    };
    let RdfTerm::NamedNode(predicate) = term(&triple.p, "the predicate")? else {
        return Err(TermFault::Predicate);
    };
    Ok(RdfTriple::new(
        subject,
        predicate,
        term(&triple.o, "the object")?,
    ))
}

/// A term that stands at `position`, which is how a fault names it.
pub fn term(term: &Term, position: &'static str) -> Result<RdfTerm, TermFault> {
    Ok(match term.kind {
        TermType::Iri => named(&term.iri, position)?.into(),
        TermType::Blank => BlankNode::new(term.id.as_str())
            .map_err(|_| TermFault::BlankLabel(term.id.clone(), position))?
            .into(),
        TermType::Literal => literal(term, position)?.into(),
        TermType::Triple => {
            let inner = term
                .triple
                .as_deref()
                .ok_or(TermFault::TripleMissing(position))?;
            RdfTerm::Triple(Box::new(triple(inner)?))
        }
    })
}

fn named(iri: &str, position: &'static str) -> Result<NamedNode, TermFault> {
    if is_plain(iri) {
        return Ok(NamedNode::new_unchecked(iri));
    }
    NamedNode::new(iri).map_err(|error| TermFault::Iri {
        position,
        iri: iri.to_owned(),
        reason: lower_first(&error.to_string()),
    })
}

/// Whether an IRI is of the plain form that nearly all have, which needs no parser to be seen as
/// valid: `urn:` or `http(s)://host/` and unreserved characters, with one fragment at most.
fn is_plain(iri: &str) -> bool {
    let unreserved =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let (rest, is_urn) = if let Some(rest) = iri.strip_prefix("urn:") {
        (rest, true)
    } else if let Some(rest) = iri.strip_prefix("https://") {
        (rest, false)
    } else if let Some(rest) = iri.strip_prefix("http://") {
        (rest, false)
    } else {
        return false;
    };
    let (path, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    rest.as_bytes().first().is_some_and(unreserved)
        && path
            .bytes()
            .all(|byte| unreserved(&byte) || byte == b'/' || (is_urn && byte == b':'))
        && fragment
            .bytes()
            .all(|byte| unreserved(&byte) || byte == b'/')
}

fn literal(term: &Term, position: &'static str) -> Result<Literal, TermFault> {
    if term.language.is_empty() {
        return match term.datatype.as_str() {
            "" | XSD_STRING => Ok(Literal::new_simple_literal(&term.value)),
            RDF_LANG_STRING | RDF_DIR_LANG_STRING => Err(TermFault::LanguageMissing(position)),
            datatype => Ok(Literal::new_typed_literal(
                &term.value,
                named(datatype, position)?,
            )),
        };
    }
    if !matches!(
        term.datatype.as_str(),
        "" | RDF_LANG_STRING | RDF_DIR_LANG_STRING
    ) {
        return Err(TermFault::LanguageAndDatatype(
            term.datatype.clone(),
            position,
        ));
    }
    let (language, direction) = match term.language.split_once("--") {
        None => (term.language.as_str(), None),
        Some((language, "ltr")) => (language, Some(BaseDirection::Ltr)),
        Some((language, "rtl")) => (language, Some(BaseDirection::Rtl)),
        Some(_) => return Err(TermFault::Language(term.language.clone(), position)),
    };
    let literal = match direction {
        None => Literal::new_language_tagged_literal(&term.value, language),
        Some(direction) => {
            Literal::new_directional_language_tagged_literal(&term.value, language, direction)
        }
    };
    literal.map_err(|_| TermFault::Language(term.language.clone(), position))
}

/// A term of an answer.
pub(crate) fn wire(term: RdfTerm) -> Term {
    match term {
        RdfTerm::NamedNode(node) => Term::iri(node.into_string()),
        RdfTerm::BlankNode(node) => Term {
            kind: TermType::Blank,
            id: node.into_string(),
            ..Term::default()
        },
        RdfTerm::Literal(literal) => wire_literal(&literal),
        RdfTerm::Triple(triple) => Term {
            kind: TermType::Triple,
            triple: Some(Box::new(wire_triple(*triple))),
            ..Term::default()
        },
    }
}

/// A triple as it stands on the wire; it lies in no graph.
pub fn wire_triple(triple: RdfTriple) -> Triple {
    Triple {
        s: wire(triple.subject.into()),
        p: wire(triple.predicate.into()),
        o: wire(triple.object),
        g: None,
    }
}

/// A quad as it stands in a batch, where every graph has a name.
pub(crate) fn wire_quad(quad: Quad) -> Triple {
    let graph = match &quad.graph_name {
        GraphName::DefaultGraph => None,
        GraphName::NamedNode(node) => Some(node.as_str().to_owned()),
        GraphName::BlankNode(node) => Some(format!("urn:agentfleet:graph:{}", node.as_str())),
    };
    Triple {
        g: graph,
        ..wire_triple(quad.into())
    }
}

/// A term with other names for its nodes, also for those of a triple in it.
pub fn renamed(
    term: RdfTerm,
    rename: &mut dyn FnMut(NamedOrBlankNode) -> NamedOrBlankNode,
) -> RdfTerm {
    match term {
        RdfTerm::NamedNode(node) => rename(node.into()).into(),
        RdfTerm::BlankNode(node) => rename(node.into()).into(),
        RdfTerm::Literal(_) => term,
        RdfTerm::Triple(triple) => {
            let (subject, object) = (rename(triple.subject), renamed(triple.object, rename));
            RdfTriple::new(subject, triple.predicate, object).into()
        }
    }
}

fn wire_literal(literal: &Literal) -> Term {
    let mut term = Term::text(literal.value());
    if let Some(language) = literal.language() {
        language.clone_into(&mut term.language);
        if let Some(direction) = literal.direction() {
            term.language.push_str("--");
            term.language.push_str(&direction.to_string());
        }
    } else if literal.datatype().as_str() != XSD_STRING {
        literal.datatype().as_str().clone_into(&mut term.datatype);
    }
    term
}

/// A triple as people read it, for messages.
fn describe(triple: &Triple) -> String {
    fn part(term: &Term) -> String {
        let text = match term.kind {
            TermType::Iri => format!("<{}>", term.iri),
            TermType::Blank => format!("_:{}", term.id),
            TermType::Literal => format!("{:?}", term.value),
            TermType::Triple => "<<( ... )>>".to_owned(),
        };
        if text.chars().count() <= 120 {
            return text;
        }
        text.chars().take(117).chain("...".chars()).collect()
    }
    format!(
        "{} {} {}",
        part(&triple.s),
        part(&triple.p),
        part(&triple.o)
    )
}

pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn whatever_looks_plain_is_valid() {
        const ALPHABET: &[u8] = b"a9:/#.-%[ ";
        let mut plain = 0;
        for scheme in ["urn:", "http://", "https://", "x:"] {
            for number in 0..ALPHABET.len().pow(5) {
                // All texts of five characters over the alphabet, and by trimming the shorter ones.
                let text: String = (0..5)
                    .map(|at| ALPHABET[number / ALPHABET.len().pow(at) % ALPHABET.len()] as char)
                    .collect();
                let iri = format!("{scheme}{}", text.trim_end());
                if is_plain(&iri) {
                    plain += 1;
                    assert!(NamedNode::new(&iri).is_ok(), "`{iri}` looks plain");
                }
            }
        }
        assert!(plain > 1_000, "only {plain} looked plain");
    }

    #[test]
    fn the_fleets_own_names_are_plain() {
        for iri in [
            "urn:trustgraph:agent:75c48fe9-480f-5e88-af86-825c639b89a2/i20/thought",
            "http://www.w3.org/ns/prov#wasDerivedFrom",
            "https://trustgraph.ai/ns/Question",
        ] {
            assert!(is_plain(iri), "`{iri}`");
        }
    }
}
