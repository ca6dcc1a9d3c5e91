//! Ranks options by the words they share with a text.
//!
//! A word that few options use says more than one that all use; an option's name says more than its
//! description.

use super::goal::subjects;
use super::inputs::Choosable;
use super::terms::{Term, distinct, terms};

/// How much a word counts by where the option has it.
const IN_NAME: f64 = 2.0;
const IN_WHEN_TO_USE: f64 = 1.5;
const IN_DESCRIPTION: f64 = 1.0;

/// An option's standing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranked {
    /// Position among the options.
    pub at: usize,
    pub score: f64,
    /// Shared words as the text writes them, the heaviest first.
    pub matched: Vec<String>,
    /// A word of the option's name or description is among them, or there are several: one word of
    /// its fine print may be there by chance.
    pub is_telling: bool,
}

/// Scores every option, in the order given. Names in the text say what it is about, not what kind
/// of task it is, so their words do not count.
pub(super) fn score(text: &str, options: &[Choosable]) -> Vec<Ranked> {
    let names = subjects(text);
    let is_name = |term: &Term| names.iter().any(|name| name.has_word(&term.word));
    let asked: Vec<Term> = distinct(terms(text))
        .into_iter()
        .filter(|term| !is_name(term))
        .collect();
    let weights: Vec<Vec<(String, f64)>> = options.iter().map(stems_of).collect();
    let using = |stem: &str| {
        weights
            .iter()
            .filter(|stems| find(stems, stem).is_some())
            .count()
    };
    weights
        .iter()
        .enumerate()
        .map(|(at, stems)| {
            let mut shared: Vec<(&Term, f64)> = asked
                .iter()
                .filter_map(|term| {
                    let place = find(stems, &term.stem)?;
                    let rarity = (1.0 + options.len() as f64 / using(&term.stem) as f64).ln();
                    Some((term, place * rarity))
                })
                .collect();
            shared.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            let own: Vec<String> =
                terms(&format!("{} {}", options[at].name, options[at].description))
                    .into_iter()
                    .map(|term| term.stem)
                    .collect();
            Ranked {
                at,
                is_telling: shared.len() > 1
                    || shared.iter().any(|(term, _)| own.contains(&term.stem)),
                // An empty sum of floats is minus zero.
                score: shared.iter().fold(0.0, |sum, (_, weight)| sum + weight),
                matched: shared
                    .iter()
                    .map(|(term, _)| term.word.to_lowercase())
                    .collect(),
            }
        })
        .collect()
}

fn stems_of(option: &Choosable) -> Vec<(String, f64)> {
    let fields = [
        (&option.name, IN_NAME),
        (&option.when_to_use, IN_WHEN_TO_USE),
        (&option.description, IN_DESCRIPTION),
    ];
    let mut stems: Vec<(String, f64)> = Vec::new();
    for (text, weight) in fields {
        for term in terms(text) {
            if find(&stems, &term.stem).is_none() {
                stems.push((term.stem, weight));
            }
        }
    }
    stems
}

fn find(stems: &[(String, f64)], stem: &str) -> Option<f64> {
    stems
        .iter()
        .find(|(known, _)| known == stem)
        .map(|(_, weight)| *weight)
}

/// The best of these; among equals the first.
pub(super) fn best(ranked: &[Ranked]) -> Option<&Ranked> {
    ranked
        .iter()
        .fold(None, |best: Option<&Ranked>, next| match best {
            Some(best) if next.score <= best.score => Some(best),
            _ => Some(next),
        })
}

/// Words in backticks, at most `most` of them.
pub(super) fn quoted(words: &[String], most: usize) -> String {
    words
        .iter()
        .take(most)
        .map(|w| format!("`{w}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
