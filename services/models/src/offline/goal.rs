//! What is asked, and the words to search for.

use agentfleet_schema::words::is_stop_word;

/// Most words before a colon that name a part of a task.
const TITLE_WORDS: usize = 12;
/// How the title of a part ends that is a side of the whole matter.
const SIDE: &str = " dimension";

/// A goal taken apart.
#[derive(Clone, Debug)]
pub(super) struct Goal<'g> {
    /// How an answer calls it.
    pub title: &'g str,
    /// What to search for.
    pub query: String,
}

impl<'g> Goal<'g> {
    /// `Financial dimension: Assess the risk of Company X` is searched for as `Financial Company X`: the
    /// other words of the question are common to all sides and would find the same for each.
    pub(super) fn of(text: &'g str) -> Self {
        let text = text.trim();
        // As `decompose` writes them. What a person writes before a colon is part of the question.
        let part = text.split_once(": ").filter(|(title, question)| {
            title.split_whitespace().count() <= TITLE_WORDS
                && !question.trim().is_empty()
                && (title.ends_with(SIDE)
                    || question.to_lowercase().contains(&title.to_lowercase()))
        });
        let whole = |title| Self {
            title,
            query: text.to_owned(),
        };
        let Some((title, question)) = part else {
            return whole(text);
        };
        let Some(side) = title.strip_suffix(SIDE) else {
            return whole(title);
        };
        let names = names(question);
        let rest = if names.is_empty() {
            question.to_owned()
        } else {
            names.join(" ")
        };
        Self {
            title: side,
            query: format!("{side} {rest}"),
        }
    }
}

/// Words written like names; the first word of a question is written so anyway.
fn names(question: &str) -> Vec<&str> {
    let words = question.split_whitespace().skip(1);
    let bare = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    bare.filter(|word| {
        word.starts_with(|c: char| c.is_uppercase() || c.is_numeric())
            && !is_stop_word(&word.to_lowercase())
    })
    .collect()
}
