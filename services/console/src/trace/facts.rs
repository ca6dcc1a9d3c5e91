//! Triples by subject: the few ways a trace reads them.
//!
//! The same statements in another order, or twice, or in two graphs, read the same.

use agentfleet_schema::vocabulary::RDF_TYPE;
use agentfleet_schema::{Millis, Term, TermType, Triple};
use std::collections::{BTreeMap, HashSet};

/// Distinct triples, sorted, with the graph they came from left out of the comparison.
pub(super) fn distinct(triples: &[Triple]) -> Vec<Triple> {
    let mut seen = HashSet::new();
    let mut kept: Vec<Triple> = triples
        .iter()
        .filter(|t| seen.insert((&t.s, &t.p, &t.o)))
        .cloned()
        .collect();
    kept.sort_by_cached_key(|t| (key(&t.s), key(&t.p), key(&t.o)));
    kept
}

fn key(term: &Term) -> (u8, String, String) {
    let kind = match term.kind {
        TermType::Iri => 0,
        TermType::Blank => 1,
        TermType::Literal => 2,
        TermType::Triple => 3,
    };
    // Quoted triples take no part in a trace; any stable order of them will do.
    let quoted = term
        .triple
        .as_ref()
        .map(|t| serde_json::to_string(t).unwrap_or_default());
    let text = quoted.unwrap_or_else(|| text_of(term).to_owned());
    (kind, text, format!("{}@{}", term.datatype, term.language))
}

/// What a term says, whatever its kind.
pub(super) fn text_of(term: &Term) -> &str {
    match term.kind {
        TermType::Iri => &term.iri,
        TermType::Blank => &term.id,
        TermType::Literal | TermType::Triple => &term.value,
    }
}

/// The statements about IRIs, by subject.
pub(super) struct Facts<'a> {
    by_subject: BTreeMap<&'a str, Vec<(&'a str, &'a Term)>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(triples: &'a [Triple]) -> Self {
        let mut by_subject: BTreeMap<&str, Vec<(&str, &Term)>> = BTreeMap::new();
        for triple in triples.iter().filter(|t| t.s.kind == TermType::Iri) {
            by_subject
                .entry(&triple.s.iri)
                .or_default()
                .push((&triple.p.iri, &triple.o));
        }
        Self { by_subject }
    }

    pub(super) fn subjects(&self) -> impl Iterator<Item = &'a str> {
        self.by_subject.keys().copied()
    }

    /// All statements about a subject, as predicate and object.
    pub(super) fn about(&self, subject: &str) -> impl Iterator<Item = (&'a str, &'a Term)> {
        self.by_subject.get(subject).into_iter().flatten().copied()
    }

    pub(super) fn objects(&self, subject: &str, predicate: &str) -> impl Iterator<Item = &'a Term> {
        self.by_subject
            .get(subject)
            .into_iter()
            .flatten()
            .filter(move |(p, _)| *p == predicate)
            .map(|(_, object)| *object)
    }

    pub(super) fn has(&self, subject: &str, predicate: &str) -> bool {
        self.objects(subject, predicate).next().is_some()
    }

    pub(super) fn is_a(&self, subject: &str, class: &str) -> bool {
        self.objects(subject, RDF_TYPE).any(|o| o.iri == class)
    }

    /// IRIs a subject points to.
    pub(super) fn links(&self, subject: &str, predicate: &str) -> impl Iterator<Item = &'a str> {
        self.objects(subject, predicate)
            .filter(|o| o.kind == TermType::Iri)
            .map(|o| o.iri.as_str())
    }

    pub(super) fn link(&self, subject: &str, predicate: &str) -> Option<String> {
        self.links(subject, predicate).next().map(str::to_owned)
    }

    /// The text of a literal, or of an IRI where a peer wrote one instead.
    pub(super) fn text(&self, subject: &str, predicate: &str) -> Option<String> {
        self.objects(subject, predicate)
            .map(text_of)
            .find(|t| !t.is_empty())
            .map(str::to_owned)
    }

    pub(super) fn texts(&self, subject: &str, predicate: &str) -> Vec<String> {
        self.objects(subject, predicate)
            .map(text_of)
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn number(&self, subject: &str, predicate: &str) -> Option<u64> {
        self.objects(subject, predicate)
            .find_map(|o| o.value.trim().parse().ok())
    }

    pub(super) fn decimal(&self, subject: &str, predicate: &str) -> Option<f64> {
        let number = |o: &Term| o.value.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        self.objects(subject, predicate).find_map(number)
    }

    pub(super) fn flag(&self, subject: &str, predicate: &str) -> bool {
        self.objects(subject, predicate)
            .any(|o| matches!(o.value.trim(), "true" | "1"))
    }

    pub(super) fn instant(&self, subject: &str, predicate: &str) -> Option<Millis> {
        self.objects(subject, predicate)
            .find_map(|o| millis(&o.value))
    }
}

/// An `xsd:dateTime`; one without a zone is taken as UTC.
fn millis(text: &str) -> Option<Millis> {
    let text = text.trim();
    chrono::DateTime::parse_from_rfc3339(text)
        .or_else(|_| chrono::DateTime::parse_from_rfc3339(&format!("{text}Z")))
        .ok()
        .map(|at| at.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_back_from_what_the_graph_says() {
        for (text, expected) in [
            ("1970-01-01T00:00:01.500Z", Some(1_500)),
            ("1970-01-01T00:00:01Z", Some(1_000)),
            ("1970-01-01T01:00:00+01:00", Some(0)),
            ("1970-01-01T00:00:02", Some(2_000)),
            ("yesterday", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }

    #[test]
    fn the_same_statement_in_two_graphs_counts_once_and_order_does_not_matter() {
        let a = Triple::new("urn:a", "urn:p", Term::text("1"));
        let b = Triple::new("urn:b", "urn:p", Term::text("2"));
        let elsewhere = Triple {
            g: None,
            ..a.clone()
        };
        let one = distinct(&[a.clone(), b.clone(), elsewhere.clone()]);
        assert_eq!(one.len(), 2);
        let subjects = |list: &[Triple]| list.iter().map(|t| t.s.iri.clone()).collect::<Vec<_>>();
        assert_eq!(subjects(&one), subjects(&distinct(&[b, elsewhere, a])));
    }
}
