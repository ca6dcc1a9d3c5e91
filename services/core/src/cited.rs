//! Which of the sources that were read an answer names.
//!
//! Prompts ask for a source right behind its claim, by URI or title as the result gave it. So a source
//! is cited if the text names it so, white space and Markdown escapes aside. Pure text: what an answer
//! rests on without saying so counts as read only.

use agentfleet_schema::Source;
use agentfleet_schema::records::Grounds;

/// Shortest title that is taken for a citation: a shorter one is a word like any other.
const SHORTEST_TITLE: usize = 4;

/// Sources of an answer, those it names apart from those that were only read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cited<'a, S> {
    /// In the order in which the text first names them.
    pub cited: Vec<&'a S>,
    /// In the order they were given.
    pub only_read: Vec<&'a S>,
}

/// Divides `sources` by what `answer` says; `names` are the URI and the title of one.
pub fn divide<'a, S>(
    answer: &str,
    sources: impl IntoIterator<Item = &'a S>,
    names: impl Fn(&S) -> (&str, &str),
) -> Cited<'a, S> {
    let answer = plain(answer);
    let mut cited: Vec<(usize, &S)> = Vec::new();
    let mut only_read = Vec::new();
    for source in sources {
        let (uri, title) = names(source);
        match named_at(&answer, uri, title) {
            Some(at) => cited.push((at, source)),
            None => only_read.push(source),
        }
    }
    cited.sort_by_key(|(at, _)| *at);
    Cited {
        cited: cited.into_iter().map(|(_, source)| source).collect(),
        only_read,
    }
}

/// What an answer rests on, of what was read.
pub fn grounds(answer: &str, read: &[Source]) -> Grounds {
    let divided = divide(answer, read, |source| (&source.uri, &source.title));
    Grounds {
        cited: divided.cited.into_iter().cloned().collect(),
        consulted: divided.only_read.into_iter().cloned().collect(),
    }
}

/// Where plain text names a source first.
fn named_at(answer: &str, uri: &str, title: &str) -> Option<usize> {
    let uri = find_whole(answer, &plain(uri), |next| {
        next.is_alphanumeric() || "/-_~%=&".contains(next)
    });
    let title = Some(plain(title))
        .filter(|title| title.chars().count() >= SHORTEST_TITLE)
        .and_then(|title| find_whole(answer, &title, char::is_alphanumeric));
    uri.into_iter().chain(title).min()
}

/// Finds `name` where neither side goes on with what `goes_on` takes for a part of it.
fn find_whole(text: &str, name: &str, goes_on: impl Fn(char) -> bool) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let mut places = text.match_indices(name).map(|(at, _)| at);
    places.find(|at| {
        let before = text[..*at].chars().next_back();
        let mut after = text[at + name.len()..].chars();
        // A full stop ends a sentence more often than it goes on.
        let next = match after.next() {
            Some('.') => after.next().filter(|_| !name.ends_with('/')),
            next => next,
        };
        !before.is_some_and(char::is_alphanumeric) && !next.is_some_and(&goes_on)
    })
}

/// Text on one line, without the marks that Markdown adds inside a name.
fn plain(text: &str) -> String {
    let unescaped: String = text.chars().filter(|c| !matches!(c, '\\' | '>')).collect();
    unescaped.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(uri: &str, title: &str) -> Source {
        Source {
            uri: uri.to_owned(),
            title: title.to_owned(),
        }
    }

    #[test]
    fn what_the_text_names_is_cited_in_its_order() {
        let report = source("doc:default/report.md", "Annual report");
        let old = source("doc:default/report", "");
        let site = source("https://example.org/a", "A");
        let all = [&report, &old, &site];
        for (answer, expected) in [
            ("nothing", vec![]),
            ("It grew (doc:default/report.md).", vec![&report]),
            ("It grew, as doc:default/report.", vec![&old]),
            ("> It grew.\n>\n> Source: Annual\n> report", vec![&report]),
            ("Annual reports were read.", vec![]),
            ("Plan A of https://example.org/ab", vec![]),
            (
                "See https://example.org/a, and the Annual report.",
                vec![&site, &report],
            ),
            ("`doc:default/report\\.md`", vec![&report]),
        ] {
            let divided = divide(answer, all, |source| (&source.uri, &source.title));
            assert_eq!(divided.cited, expected, "{answer}");
            assert_eq!(divided.cited.len() + divided.only_read.len(), all.len());
        }
    }
}
