//! The words of a text that tell what it is about, and whether another text has them.
//!
//! Search and the offline model count by these, so that what the one ranks the other finds.

use std::collections::HashSet;

/// Most terms of a text: bounds the work that a question can cause.
pub const MAX_TERMS: usize = 32;

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
pub fn terms(text: &str) -> Vec<String> {
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

/// How many of the terms a text has, give or take endings.
pub fn covered(terms: &[String], text: &str) -> usize {
    let words = Words::of(text);
    terms.iter().filter(|term| words.have(term)).count()
}

/// The words of a text.
#[derive(Clone, Debug, Default)]
pub struct Words(HashSet<String>);

impl Words {
    pub fn of(text: &str) -> Self {
        let words = text.split(|c: char| !c.is_alphanumeric());
        Self(words.map(str::to_lowercase).collect())
    }

    /// Whether a term is among them in any of its forms.
    pub fn have(&self, term: &str) -> bool {
        let otherwise = spelled_otherwise(term);
        let stem = stem(term);
        self.0.contains(term)
            || otherwise.is_some_and(|other| self.0.contains(&other))
            || !stem.is_empty() && self.0.iter().any(|word| word.starts_with(stem))
    }
}

/// The part of a word that its forms share, roughly; empty for a word too short to have any.
fn stem(word: &str) -> &str {
    let length = word.chars().count();
    // A plural's own ending is none of the word: `indexes` is told by `index`, `copies` by `cop`.
    let ending = ["ies", "es", "s"]
        .iter()
        .find(|ending| word.ends_with(**ending));
    let bare = length - ending.map_or(0, |ending| ending.len());
    let kept = match length {
        0..=3 => 0,
        4..=5 => length - 1,
        _ => (length * 3).div_ceil(4).min(bare),
    };
    word.char_indices()
        .nth(kept)
        .map_or(word, |(end, _)| &word[..end])
}

/// The other spelling of an English word: British for American and the other way round. A spelling
/// that nobody uses finds nothing.
pub fn spelled_otherwise(term: &str) -> Option<String> {
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

/// Whether a word, in lower case, says nothing of what a text is about.
pub fn is_stop_word(word: &str) -> bool {
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
    fn a_plural_is_told_by_its_singular() {
        for (term, text) in [
            ("indexes", "an index"),
            ("advisories", "the advisory"),
            ("full", "VACUUM FULL"),
            ("addresses", "Address"),
        ] {
            assert_eq!(covered(&[term.to_owned()], text), 1, "{term}");
        }
    }

    #[test]
    fn stop_words_are_sorted_for_the_search_in_them() {
        assert!(STOP_WORDS.is_sorted());
    }
}
