//! Weighs the statements of a graph, `subject | predicate | object`: what relation they tell, and
//! whether that is what was asked for.

use super::goal::{Goal, Role};
use super::terms::{stem, stems};

/// A bare statement of a graph tells less than a sentence with the same words, unless its relation is
/// what was asked for.
const FACT: f64 = 0.7;
/// A statement of the very relation, or about the very thing.
const EXACT: f64 = 1.3;
/// A statement that has the matter in the name of its subject only.
const BY_NAME: f64 = 0.4;
/// A statement about something that has no name says nothing to a reader.
const NAMELESS: f64 = 0.2;

/// The middle of `subject | predicate | object`.
pub(super) fn relation_of(fact: &str) -> Option<&str> {
    fact.split(" | ").nth(1)
}

/// A relation as one word, with and without the small words at its ends: "sub class of" is asked for
/// as "subclasses".
pub(super) fn relation_stems(fact: &str) -> Vec<String> {
    let Some(relation) = relation_of(fact) else {
        return Vec::new();
    };
    let words: Vec<String> = relation.split_whitespace().map(str::to_lowercase).collect();
    let small = |word: &String| ["of", "has", "is", "by", "in", "to"].contains(&word.as_str());
    let bare: Vec<&str> = words
        .iter()
        .filter(|w| !small(w))
        .map(String::as_str)
        .collect();
    [words.concat(), bare.concat()]
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| stem(word))
        .collect()
}

/// How much a statement counts against a sentence with the same words.
pub(super) fn fact_weight(goal: &Goal, text: &str, defines: bool) -> f64 {
    let object = text.splitn(3, " | ").nth(2).unwrap_or_default();
    if object.contains("without a name") || object == "something" {
        return NAMELESS;
    }
    // A side of a matter is looked for in what is written about it.
    if goal.has_head() {
        let said = text.split_once(" | ").map_or("", |(_, said)| said);
        let said = stems(said);
        let heads = goal.terms.iter().filter(|t| t.role == Role::Head);
        let by_name_only = !heads.into_iter().any(|t| t.term.is_in(&said));
        return if by_name_only { FACT * BY_NAME } else { FACT };
    }
    let relation = [
        stems(relation_of(text).unwrap_or_default()),
        relation_stems(text),
    ]
    .concat();
    let is_asked_for = goal
        .terms
        .iter()
        .any(|t| t.role != Role::Name && t.term.is_in(&relation));
    // The relation is the very word, or a statement is about the very thing and not its relatives.
    let is_exact = goal
        .terms
        .iter()
        .any(|t| t.role != Role::Name && relation_stems(text).contains(&t.term.stem));
    let names_it = text.split(" | ").any(|part| {
        goal.subjects
            .iter()
            .any(|s| s.shown.eq_ignore_ascii_case(part.trim()))
    });
    let weight = if is_asked_for || defines { 1.0 } else { FACT };
    let weight = if is_exact { weight * EXACT } else { weight };
    if names_it { weight * EXACT } else { weight }
}
