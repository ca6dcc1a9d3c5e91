//! What kind of question it is: what it ends on, what it asks for of that, and whether it asks what
//! a thing is. Told from the first and last words, as far as that can be told.

use super::terms::{Term, is_stop_word, subject_terms};

/// The words after the last "of", "in", "for" or "about", if the question ends with them.
pub(super) fn focus(question: &str) -> Vec<Term> {
    const LEADS: &[&str] = &["of", "in", "for", "about"];
    const ARTICLES: &[&str] = &["the", "a", "an", "this", "that", "our", "its", "their"];
    /// Words that stand after such a lead without being about anything.
    const PHRASES: &[&str] = &[
        "general",
        "particular",
        "detail",
        "practice",
        "total",
        "short",
    ];
    const MOST: usize = 4;
    let question = question.trim().trim_end_matches(['?', '.', '!', ' ']);
    if question.contains(['?', '\n', ';']) {
        return Vec::new();
    }
    let all: Vec<&str> = question.split_whitespace().collect();
    let Some(at) = all.iter().rposition(|word| LEADS.contains(word)) else {
        return Vec::new();
    };
    let tail: Vec<&str> = all[at + 1..]
        .iter()
        .copied()
        .skip_while(|word| ARTICLES.contains(word))
        .collect();
    let is_one_phrase = tail.iter().all(|word| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        !is_stop_word(word) || matches!(word, "and" | "or")
    });
    if tail.is_empty() || tail.len() > MOST || !is_one_phrase || PHRASES.contains(&tail[0]) {
        return Vec::new();
    }
    subject_terms(&tail.join(" "))
}

/// The noun after "which", or of "what is the ... of".
pub(super) fn asked(question: &str) -> Option<Term> {
    let lower = question.trim().to_lowercase();
    let word = |text: &str| text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    if let Some(rest) = lower.strip_prefix("which ") {
        let first = word(rest.split_whitespace().next()?);
        return subject_terms(&first).pop();
    }
    let rest = [
        "what is the ",
        "what are the ",
        "what was the ",
        "what were the ",
    ]
    .iter()
    .find_map(|opening| lower.strip_prefix(opening))?;
    let end = [" of ", " for ", " in "]
        .iter()
        .filter_map(|lead| rest.find(lead))
        .min()?;
    subject_terms(&word(rest[..end].split_whitespace().last()?)).pop()
}

/// "What is X?", "Define X.", "Who is X?": few words, and one of them names the thing.
pub(super) fn asks_what(question: &str, terms: usize) -> bool {
    const OPENINGS: &[&str] = &[
        "what is ",
        "what are ",
        "what's ",
        "what does ",
        "who is ",
        "who are ",
        "define ",
        "describe ",
        "explain ",
    ];
    const MOST_TERMS: usize = 3;
    let lower = question.trim().to_lowercase();
    let opening = OPENINGS.iter().find(|opening| lower.starts_with(**opening));
    let rest = opening.map(|opening| &lower[opening.len()..]);
    // "What does X mean?" asks it too; "What does X cost?" does not.
    let end = lower.trim_end_matches('?').trim_end();
    let asks_meaning = end.ends_with(" mean") || end.ends_with(" stand for");
    let means = opening != Some(&"what does ") || asks_meaning;
    let further = [
        " of ",
        " in ",
        " for ",
        " with ",
        " from ",
        " by ",
        " on ",
        " between ",
    ];
    rest.is_some_and(|rest| {
        means && terms <= MOST_TERMS && !further.iter().any(|word| rest.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::super::goal::Goal;
    use super::*;

    #[test]
    fn what_a_question_ends_on_is_its_focus() {
        for (question, expected) in [
            (
                "What is the minimum supported Rust version of clap?",
                vec!["clap"],
            ),
            ("Which advisories were fixed in ring?", vec!["ring"]),
            (
                "the licence of the ahash and foldhash crates",
                vec!["ahash", "foldhash", "crates"],
            ),
            ("What is the capital of France?", vec!["France"]),
            ("How tall is the tower?", vec![]),
            ("Is it safe in general?", vec![]),
            ("What does the port of call that we use charge?", vec![]),
        ] {
            let words: Vec<String> = focus(question).into_iter().map(|t| t.word).collect();
            assert_eq!(words, expected, "{question}");
        }
        for (question, expected) in [
            ("Which licence do both crates have?", Some("licence")),
            (
                "What is the minimum supported version of clap?",
                Some("version"),
            ),
            ("What is the tower?", None),
            ("Which of them is older?", None),
            ("Who owns it?", None),
        ] {
            let asked = asked(question).map(|t| t.word);
            assert_eq!(asked.as_deref(), expected, "{question}");
        }
    }

    #[test]
    fn asking_what_a_thing_is_is_told_from_asking_about_it() {
        for (question, expected) in [
            ("What is a chiller?", true),
            ("Define air handling unit", true),
            ("What does duty of care mean?", false),
            ("What does entropy mean?", true),
            ("What does HVAC stand for?", true),
            ("What is the price of oil?", false),
            ("What does a ticket cost?", false),
            ("How is it made?", false),
        ] {
            assert_eq!(Goal::parse(question).asks_what, expected, "{question}");
        }
    }
}
