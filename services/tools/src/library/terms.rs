//! Search terms: what a person or a model wrote, made into a full-text query that cannot fail.
//!
//! Terms hold letters and digits only and are quoted, so no text can be taken for an operator. Any
//! of them may match; ranking prefers passages with more of them.

use super::rdf::in_words;
use std::collections::HashSet;

/// Most terms of a query: bounds the work a question can cause.
const MAX_TERMS: usize = 32;

/// Words of questions rather than of answers. Matching them costs time and adds nothing.
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be",
    "because", "been", "before", "being", "between", "both", "but", "by", "can", "could", "did",
    "do", "does", "doing", "during", "each", "few", "for", "from", "further", "had", "has", "have",
    "having", "he", "her", "here", "hers", "him", "his", "how", "i", "if", "in", "into", "is",
    "it", "its", "just", "me", "more", "most", "my", "no", "nor", "not", "of", "on", "once",
    "only", "or", "other", "our", "out", "over", "own", "please", "s", "same", "she", "should",
    "so", "some", "such", "t", "tell", "than", "that", "the", "their", "them", "then", "there",
    "these", "they", "this", "those", "through", "to", "too", "under", "until", "up", "very",
    "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why",
    "will", "with", "would", "you", "your",
];

/// The distinct terms of a text in lower case, in their order. Stop words are left out unless
/// there is nothing else.
pub(crate) fn terms(text: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut all: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| seen.insert(word.clone()))
        .take(MAX_TERMS * 8)
        .collect();
    if all.iter().any(|word| !is_stop_word(word)) {
        all.retain(|word| !is_stop_word(word));
    }
    all.truncate(MAX_TERMS);
    all
}

/// A full-text query for any of the terms of a text. A word itself counts twice: once as it is, and
/// once with all words that begin like it. A name made of several words, such as `work_mem` or
/// `hasUnit`, counts once more where they stand together.
pub(crate) fn query(text: &str, terms: &[String]) -> String {
    let mut alternatives = Vec::with_capacity(terms.len() * 2);
    for term in terms {
        alternatives.push(quoted(term));
        alternatives.extend(beginning(term));
        alternatives.extend(spelled_otherwise(term).map(|other| quoted(&other)));
    }
    alternatives.extend(names(text));
    alternatives.join(" OR ")
}

/// Words that hang together by a mark or a capital and not by a space, as phrases.
fn names(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace()
        .filter_map(|word| {
            let words = in_words(&word.replace(|c: char| !c.is_alphanumeric(), " "));
            (2..=6)
                .contains(&words.split(' ').count())
                .then(|| quoted(&words.to_lowercase()))
        })
        .take(MAX_TERMS)
}

/// How many of the terms a text has, give or take endings.
pub(crate) fn covered(terms: &[String], text: &str) -> usize {
    let text = text.to_lowercase();
    let words: HashSet<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let has = |term: &String| {
        let otherwise = spelled_otherwise(term);
        let is_spelled_otherwise = otherwise.is_some_and(|other| words.contains(other.as_str()));
        words.contains(term.as_str()) || is_spelled_otherwise || {
            let stem = stem(term);
            !stem.is_empty() && words.iter().any(|word| word.starts_with(stem))
        }
    };
    terms.iter().filter(|term| has(term)).count()
}

/// The part of a word that its forms share, roughly; empty for a word too short to have any.
fn stem(word: &str) -> &str {
    let length = word.chars().count();
    let kept = match length {
        0..=3 => 0,
        4..=5 => length - 1,
        _ => (length * 3).div_ceil(4),
    };
    word.char_indices()
        .nth(kept)
        .map_or(word, |(end, _)| &word[..end])
}

/// The other spelling of an English word: British for American and the other way round. A spelling
/// that nobody uses finds nothing.
fn spelled_otherwise(term: &str) -> Option<String> {
    const ENDINGS: &[(&str, &str)] = &[
        ("isations", "izations"),
        ("isation", "ization"),
        ("ising", "izing"),
        ("ised", "ized"),
        ("ise", "ize"),
        ("yse", "yze"),
        ("licences", "licenses"),
        ("licence", "license"),
        ("defence", "defense"),
        ("offence", "offense"),
        ("ours", "ors"),
        ("our", "or"),
        ("tres", "ters"),
        ("tre", "ter"),
        ("elling", "eling"),
        ("elled", "eled"),
    ];
    ENDINGS.iter().find_map(|(british, american)| {
        let swap = |from: &str, to: &str| {
            let rest = term.strip_suffix(from)?;
            (term.chars().count() >= 5).then(|| format!("{rest}{to}"))
        };
        swap(british, american).or_else(|| swap(american, british))
    })
}

/// Words that begin like the stem of a term: `supply` finds `supplier`, which stemming alone keeps
/// apart. Short words begin too many others, and numbers have no endings.
fn beginning(term: &str) -> Option<String> {
    let is_word = term.chars().count() >= 5 && term.chars().all(char::is_alphabetic);
    is_word.then(|| format!("{} *", quoted(term)))
}

fn quoted(term: &str) -> String {
    // Terms have no quotes; removing them here keeps this true wherever a term comes from.
    format!("\"{}\"", term.replace(['"', '\0'], " "))
}

fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_words_without_operators() {
        for (text, expected) in [
            ("Who owns Company X?", vec!["owns", "company", "x"]),
            (
                "liquidity OR (debt* NEAR \"cash\")",
                vec!["liquidity", "debt", "near", "cash"],
            ),
            ("third-party risk, risk", vec!["third", "party", "risk"]),
            ("what is it", vec!["what", "is", "it"]),
            ("Übersicht 2025", vec!["übersicht", "2025"]),
            ("\"'*^:-+()", vec![]),
        ] {
            assert_eq!(terms(text), expected, "{text}");
        }
    }

    #[test]
    fn words_are_looked_for_with_their_endings() {
        for (text, expected) in [
            (
                "supply of X in 2025",
                r#""supply" OR "supply" * OR "x" OR "2025""#,
            ),
            ("work_mem?", r#""work" OR "mem" OR "work mem""#),
            (
                "licence of colour",
                r#""licence" OR "licence" * OR "license" OR "colour" OR "colour" * OR "color""#,
            ),
            ("hasUnit", r#""hasunit" OR "hasunit" * OR "has unit""#),
            ("\"a\" \"b\"", r#""b""#),
        ] {
            assert_eq!(query(text, &terms(text)), expected, "{text}");
        }
    }

    #[test]
    fn terms_are_counted_in_any_of_their_forms() {
        let terms = ["supply", "filings", "owns", "x", "risk"].map(str::to_owned);
        for (text, count) in [
            ("The Supplier filed it.", 1),
            ("A filing by the owner of X", 3),
            ("supplies, risks", 2),
            ("xylophone", 0),
            ("", 0),
        ] {
            assert_eq!(covered(&terms, text), count, "{text}");
        }
    }

    #[test]
    fn stop_words_are_sorted_for_the_search_in_them() {
        assert!(STOP_WORDS.is_sorted());
    }
}
