//! The order in which nodes of a session came about.
//!
//! Derivation decides; where it leaves a choice, the time of commitment does, then the number in the
//! name. Nodes that derive from each other in a circle come last, by time and name.

use super::facts::Facts;
use agentfleet_schema::Millis;
use agentfleet_schema::vocabulary::prov;
use std::collections::{BTreeMap, BTreeSet, HashMap};

type Rank<'a> = (bool, Option<Millis>, u64, &'a str);

/// Sorts `nodes`. `through` maps a node in between to the one of `nodes` it stands for.
pub(super) fn in_order<'a>(
    facts: &Facts<'_>,
    nodes: impl Iterator<Item = &'a str>,
    through: &[(&'a str, &'a str)],
) -> Vec<&'a str> {
    let ranks: BTreeMap<&str, Rank<'_>> = nodes.map(|uri| (uri, rank(facts, uri))).collect();
    let stands_for: HashMap<&str, &str> = through.iter().copied().collect();
    let mut waits_for: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    let mut frees: HashMap<&str, Vec<&str>> = HashMap::new();
    for uri in ranks.keys().copied() {
        for from in facts.links(uri, prov::WAS_DERIVED_FROM) {
            let from = stands_for.get(from).copied().unwrap_or(from);
            let Some((from, _)) = ranks.get_key_value(from) else {
                continue;
            };
            if *from != uri && waits_for.entry(uri).or_default().insert(from) {
                frees.entry(from).or_default().push(uri);
            }
        }
    }
    let mut ready: BTreeSet<Rank<'_>> = ranks
        .iter()
        .filter(|(uri, _)| !waits_for.contains_key(*uri))
        .map(|(_, rank)| *rank)
        .collect();
    let mut sorted = Vec::with_capacity(ranks.len());
    while let Some(first) = ready.pop_first() {
        let uri = first.3;
        sorted.push(uri);
        for freed in frees.get(uri).into_iter().flatten() {
            if let Some(waiting) = waits_for.get_mut(freed) {
                waiting.remove(uri);
                if waiting.is_empty() {
                    ready.extend(ranks.get(freed));
                }
            }
        }
    }
    if sorted.len() < ranks.len() {
        let done: BTreeSet<&str> = sorted.iter().copied().collect();
        let mut circular: Vec<&Rank<'_>> = ranks
            .values()
            .filter(|rank| !done.contains(rank.3))
            .collect();
        circular.sort();
        sorted.extend(circular.into_iter().map(|rank| rank.3));
    }
    sorted
}

fn rank<'a>(facts: &Facts<'_>, uri: &'a str) -> Rank<'a> {
    let at = facts.instant(uri, prov::GENERATED_AT_TIME);
    let digits = uri.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (
        at.is_none(),
        at,
        uri[digits..].parse().unwrap_or(u64::MAX),
        uri,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::vocabulary::xsd;
    use agentfleet_schema::{Term, Triple};

    fn at(uri: &str, second: u32) -> Triple {
        let instant = format!("1970-01-01T00:00:{second:02}Z");
        Triple::new(
            uri,
            prov::GENERATED_AT_TIME,
            Term::typed(instant, xsd::DATE_TIME),
        )
    }

    fn from(uri: &str, of: &str) -> Triple {
        Triple::new(uri, prov::WAS_DERIVED_FROM, Term::iri(of))
    }

    fn sorted(
        triples: &[Triple],
        nodes: &[&'static str],
        through: &[(&'static str, &'static str)],
    ) -> Vec<&'static str> {
        in_order(&Facts::new(triples), nodes.iter().copied(), through)
    }

    #[test]
    fn derivation_comes_before_time_and_time_before_names() {
        let nodes = ["urn:b", "urn:a", "urn:i10", "urn:i9"];
        assert_eq!(
            sorted(&[], &nodes, &[]),
            ["urn:i9", "urn:i10", "urn:a", "urn:b"]
        );
        let timed = [
            at("urn:b", 1),
            at("urn:a", 2),
            at("urn:i10", 3),
            at("urn:i9", 4),
        ];
        assert_eq!(
            sorted(&timed, &nodes, &[]),
            ["urn:b", "urn:a", "urn:i10", "urn:i9"]
        );
        let mut derived = timed.to_vec();
        derived.push(from("urn:b", "urn:seen"));
        let through = [("urn:seen", "urn:i9")];
        assert_eq!(
            sorted(&derived, &nodes, &through),
            ["urn:a", "urn:i10", "urn:i9", "urn:b"]
        );
    }

    #[test]
    fn a_circle_does_not_hang_and_loses_nothing() {
        let circle = [
            from("urn:a", "urn:b"),
            from("urn:b", "urn:a"),
            from("urn:c", "urn:c"),
        ];
        assert_eq!(
            sorted(&circle, &["urn:a", "urn:b", "urn:c"], &[]),
            ["urn:c", "urn:a", "urn:b"]
        );
    }
}
