//! Saying what is wrong with a query.
//!
//! The parser names what it tried last, and where that attempt ended. For a keyword that is where
//! the keyword would have ended, so its length is taken off again to find where it was looked for.

use super::code;
use crate::error::Error;

/// Turns the parser's message, `error at LINE:COLUMN: expected ...`, into ours.
/// `known` are the prefixes that need no declaration.
pub(crate) fn syntax(sparql: &str, message: &str, known: &[&str]) -> Error {
    let Some((line, column, expected)) = parts(message) else {
        let reason = crate::terms::lower_first(message);
        return at(sparql, 0, reason);
    };
    let offset = offset(sparql, line, column);
    if let Some((start, prefix)) = undeclared(sparql, known) {
        return at(
            sparql,
            start,
            format!("the prefix `{prefix}:` is not declared"),
        );
    }
    let wanted: Vec<&str> = expected.split(", ").collect();
    let literals: Vec<String> = wanted
        .iter()
        .filter_map(|item| item.strip_prefix('"')?.strip_suffix('"'))
        .map(|item| format!("`{}`", item.replace("\\\"", "\"").replace("\\\\", "\\")))
        .take(8)
        .collect();
    if !literals.is_empty() {
        return at(
            sparql,
            offset,
            format!("expected {}", literals.join(" or ")),
        );
    }
    let keyword = |item: &&str| item.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let length = wanted
        .into_iter()
        .filter(keyword)
        .map(str::len)
        .min()
        .unwrap_or(0);
    at(
        sparql,
        offset.saturating_sub(length),
        "this cannot stand here".to_owned(),
    )
}

fn parts(message: &str) -> Option<(usize, usize, &str)> {
    let (position, rest) = message.strip_prefix("error at ")?.split_once(": ")?;
    let (line, column) = position.split_once(':')?;
    let expected = rest.strip_prefix("expected ")?;
    let expected = expected.strip_prefix("one of ").unwrap_or(expected);
    Some((line.parse().ok()?, column.parse().ok()?, expected))
}

/// Characters before a position.
fn offset(sparql: &str, line: usize, column: usize) -> usize {
    let lines = sparql.split('\n').take(line.saturating_sub(1));
    let before: usize = lines.map(|line| line.chars().count() + 1).sum();
    before + column.saturating_sub(1)
}

/// The first name whose prefix is neither known nor declared, and where it stands. The parser often
/// gives up earlier or later than there.
fn undeclared(sparql: &str, known: &[&str]) -> Option<(usize, String)> {
    let code = code::blanked(sparql);
    let mut declared: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
    let (mut at, mut declaring) = (0, false);
    while at < code.len() {
        let end = code::find(&code, at, |c| !in_name(c)).max(at + 1);
        let word: String = code.get(at..end).unwrap_or_default().iter().collect();
        if let Some((prefix, _)) = word.split_once(':') {
            if declaring {
                declared.push(prefix.to_owned());
            } else if prefix != "_" && !declared.iter().any(|name| name == prefix) {
                return Some((at, prefix.to_owned()));
            }
        }
        if !word.trim().is_empty() {
            declaring = word.eq_ignore_ascii_case("prefix");
        }
        at = end;
    }
    None
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, ':' | '_' | '-' | '.' | '?' | '$' | '%' | '@')
}

fn at(sparql: &str, offset: usize, reason: String) -> Error {
    let before: String = sparql.chars().take(offset).collect();
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |line| line.chars().count())
        + 1;
    let rest: String = sparql
        .chars()
        .skip(offset)
        .take_while(|c| *c != '\n')
        .take(40)
        .collect();
    let near = match rest.trim() {
        "" if before.chars().count() == sparql.chars().count() => "the end".to_owned(),
        "" => "the end of the line".to_owned(),
        text => text.to_owned(),
    };
    Error::Syntax {
        line,
        column,
        near,
        reason,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_syntax_error_names_its_position_the_text_there_and_the_reason() {
        let table = [
            (
                "SELECT ?s {\n  ?s <urn:p> ?o ] more\n}",
                (2, 17),
                "] more",
                "this cannot stand here",
            ),
            (
                "SELECT ?s {\n  ?s ?p ?o .\n  FILTR(?o)\n}",
                (3, 3),
                "FILTR(?o)",
                "this cannot stand here",
            ),
            (
                "SELEC ?s { ?s ?p ?o }",
                (1, 1),
                "SELEC ?s { ?s ?p ?o }",
                "this cannot stand here",
            ),
            (
                "SELECT ?s {\n  ?s x:query ?o }",
                (2, 6),
                "x:query ?o }",
                "the prefix `x:` is not declared",
            ),
            (
                "ASK { ?s (x:a/x:b) ?o }",
                (1, 11),
                "x:a/x:b) ?o }",
                "the prefix `x:` is not declared",
            ),
            (
                "ASK { ?s ?p \"abc }",
                (1, 19),
                "the end",
                "expected `\"` or `\\` or `\\U` or `\\u`",
            ),
        ];
        for (sparql, position, text, why) in table {
            let parsed = spargebra::SparqlParser::new().parse_query(sparql);
            match syntax(sparql, &parsed.unwrap_err().to_string(), &["tg"]) {
                Error::Syntax {
                    line,
                    column,
                    near,
                    reason,
                } => {
                    assert_eq!(
                        ((line, column), near.as_str(), reason.as_str()),
                        (position, text, why)
                    );
                }
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn only_names_with_an_unknown_prefix_are_called_undeclared() {
        let table = [
            ("ASK { ?s tg:a \"x:y\" }", None),
            ("ASK { ?s tg:a '''it's x:y''' }", None),
            ("ASK { ?s <http://x:y/> ?o } # x:y", None),
            ("PREFIX x: <urn:x:> ASK { ?s x:y ?o FILTER(?a < ?b) }", None),
            ("prefix : <urn:x:> ASK { _:b :y 1.5 ; tg:c ?d }", None),
            ("ASK { ?s :y ?o }", Some((9, String::new()))),
            (
                "ASK { ?s tg:a ?o FILTER(?o < 1 && x:f(?o)) }",
                Some((34, "x".to_owned())),
            ),
        ];
        for (sparql, expected) in table {
            assert_eq!(undeclared(sparql, &["tg"]), expected, "{sparql}");
        }
    }

    #[test]
    fn a_query_that_stops_early_is_said_to() {
        let sparql = "SELECT ?s {\n  ?s ?p ?o ";
        let parsed = spargebra::SparqlParser::new().parse_query(sparql);
        let error = syntax(sparql, &parsed.unwrap_err().to_string(), &["tg"]);
        let text = error.to_string();
        assert!(text.contains("line 2, column 12, near `the end`"), "{text}");
        assert!(text.contains("`}`"), "{text}");
    }
}
