//! The graph against the records, both ways.
//!
//! A store may spell a number or a date its own way, so both sides are compared in one spelling.

use super::{About, Finding};
use agentfleet_schema::triples::TermType;
use agentfleet_schema::vocabulary::xsd;
use agentfleet_schema::{Term, Triple};
use std::collections::{BTreeMap, BTreeSet};

/// A term in the one spelling that equal values share.
pub fn canonical(term: &Term) -> String {
    match term.kind {
        TermType::Iri => format!("<{}>", term.iri),
        TermType::Blank => format!("_:{}", term.id),
        TermType::Triple => "<< >>".to_owned(),
        TermType::Literal => {
            let value = &term.value;
            match term.datatype.as_str() {
                "" | "http://www.w3.org/2001/XMLSchema#string" if term.language.is_empty() => {
                    format!("{value:?}")
                }
                xsd::INTEGER => value
                    .parse::<i128>()
                    .map_or_else(|_| format!("{value:?}"), |number| number.to_string()),
                xsd::DECIMAL => decimal(value),
                xsd::DATE_TIME => date_time(value),
                xsd::BOOLEAN => match value.as_str() {
                    "1" => "true".to_owned(),
                    "0" => "false".to_owned(),
                    other => other.to_owned(),
                },
                datatype => format!("{value:?}^^<{datatype}>@{}", term.language),
            }
        }
    }
}

/// `0.120000` and `0.12`, `3.0` and `3` are one number.
fn decimal(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let part = part.trim_end_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    format!("{sign}{whole}.{}", if part.is_empty() { "0" } else { part })
}

/// Fractions of a second end without zeros, and UTC is `Z`.
fn date_time(text: &str) -> String {
    let text = text
        .strip_suffix('Z')
        .or_else(|| text.strip_suffix("+00:00"))
        .unwrap_or(text);
    match text.split_once('.') {
        Some((whole, part)) if part.bytes().all(|b| b.is_ascii_digit()) => {
            let part = part.trim_end_matches('0');
            let dot = if part.is_empty() { "" } else { "." };
            format!("{whole}{dot}{part}Z")
        }
        _ => format!("{text}Z"),
    }
}

type Place = (String, String);

fn sorted<'a>(triples: impl IntoIterator<Item = &'a Triple>) -> BTreeMap<Place, BTreeSet<String>> {
    let mut sorted: BTreeMap<Place, BTreeSet<String>> = BTreeMap::new();
    for triple in triples {
        let place = (triple.s.iri.clone(), triple.p.iri.clone());
        sorted
            .entry(place)
            .or_default()
            .insert(canonical(&triple.o));
    }
    sorted
}

/// What differs between the triples that the records tell and those that the graph holds. `held` are
/// all that it holds of the nodes of the run, and of others at least those that are told. Of a node
/// that is not the run's own (a model, a source) others may tell too, so only what is missing counts;
/// `own` says which nodes are the run's.
pub fn compare<'a>(
    told: impl IntoIterator<Item = &'a Triple>,
    held: impl IntoIterator<Item = &'a Triple>,
    own: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let (told, held) = (sorted(told), sorted(held));
    let places: BTreeSet<&Place> = told.keys().chain(held.keys()).collect();
    let nothing = BTreeSet::new();
    let mut findings = Vec::new();
    for place in places {
        let (told, held) = (
            told.get(place).unwrap_or(&nothing),
            held.get(place).unwrap_or(&nothing),
        );
        let missing: Vec<&String> = told.difference(held).collect();
        let extra: Vec<&String> = if own(&place.0) {
            held.difference(told).collect()
        } else {
            Vec::new()
        };
        let triple = |object: &str| format!("<{}> <{}> {object}", place.0, place.1);
        let mut found = |object: &str, problem: String| {
            findings.push(Finding::new(About::Triple, triple(object), problem));
        };
        if let ([was], [is]) = (missing.as_slice(), extra.as_slice()) {
            found(is, format!("was changed: the record tells {was}"));
            continue;
        }
        for object in missing {
            found(
                object,
                "is missing in the graph, and the record tells it".into(),
            );
        }
        for object in extra {
            found(object, "is in the graph, and no record tells it".into());
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEGER: &str = xsd::INTEGER;

    fn triple(s: &str, p: &str, o: Term) -> Triple {
        Triple::new(s, p, o)
    }

    #[test]
    fn equal_values_are_equal_however_they_are_spelt() {
        let typed = |text: &str, datatype: &str| Term::typed(text, datatype);
        for (a, b, equal) in [
            (typed("007", INTEGER), typed("7", INTEGER), true),
            (typed("7", INTEGER), Term::text("7"), false),
            (
                typed("0.120000", xsd::DECIMAL),
                typed("0.12", xsd::DECIMAL),
                true,
            ),
            (
                typed("3.000000", xsd::DECIMAL),
                typed("3", xsd::DECIMAL),
                true,
            ),
            (
                typed("0.1", xsd::DECIMAL),
                typed("0.01", xsd::DECIMAL),
                false,
            ),
            (
                typed("2026-11-21T06:30:00.100Z", xsd::DATE_TIME),
                typed("2026-11-21T06:30:00.1Z", xsd::DATE_TIME),
                true,
            ),
            (
                typed("2026-11-21T06:30:00.000Z", xsd::DATE_TIME),
                typed("2026-11-21T06:30:00+00:00", xsd::DATE_TIME),
                true,
            ),
            (
                typed("2026-11-21T06:30:01Z", xsd::DATE_TIME),
                typed("2026-11-21T06:30:00Z", xsd::DATE_TIME),
                false,
            ),
            (typed("1", xsd::BOOLEAN), typed("true", xsd::BOOLEAN), true),
            (
                Term::text("a"),
                typed("a", "http://www.w3.org/2001/XMLSchema#string"),
                true,
            ),
            (Term::text("urn:a"), Term::iri("urn:a"), false),
        ] {
            assert_eq!(canonical(&a) == canonical(&b), equal, "{a:?} {b:?}");
        }
    }

    #[test]
    fn missing_added_and_changed_triples_are_named_and_those_of_others_are_let_be() {
        let told = [
            triple("urn:own", "urn:p", Term::text("a")),
            triple("urn:own", "urn:q", Term::text("1")),
            triple("urn:own", "urn:q", Term::text("2")),
            triple("urn:model", "urn:label", Term::text("gpt")),
        ];
        let own = |node: &str| node == "urn:own";
        assert_eq!(compare(&told, &told, own), []);
        let held = [
            triple("urn:own", "urn:p", Term::text("b")),
            triple("urn:own", "urn:q", Term::text("1")),
            triple("urn:own", "urn:new", Term::text("x")),
            triple("urn:model", "urn:label", Term::text("gpt")),
            triple("urn:model", "urn:label", Term::text("others say")),
        ];
        let found: Vec<(String, String)> = compare(&told, &held, own)
            .into_iter()
            .map(|one| (one.what, one.problem))
            .collect();
        let expected = [
            (
                "<urn:own> <urn:new> \"x\"",
                "is in the graph, and no record tells it",
            ),
            (
                "<urn:own> <urn:p> \"b\"",
                "was changed: the record tells \"a\"",
            ),
            (
                "<urn:own> <urn:q> \"2\"",
                "is missing in the graph, and the record tells it",
            ),
        ];
        let expected = expected.map(|(what, problem)| (what.to_owned(), problem.to_owned()));
        assert_eq!(found, expected);
        let lost = compare(&told, &held[..3], own);
        assert!(
            lost.iter().any(|one| one.what.contains("urn:model")),
            "{lost:?}"
        );
    }
}
