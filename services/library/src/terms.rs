//! Search terms: what a person or a model wrote, made into a full-text query that cannot fail.
//!
//! Terms hold letters and digits only and are quoted, so no text can be taken for an operator. Any
//! of them may match; ranking prefers passages with more of them.

use super::rdf::in_words;
use agentfleet_schema::words::{MAX_TERMS, spelled_otherwise};

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

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::words::terms;

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
}
