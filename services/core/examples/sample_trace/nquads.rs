//! Triples as N-Quads, one sorted line each, so that two runs can be compared as text.

use agentfleet_schema::{Term, TermType, Triple};
use std::collections::BTreeSet;

/// The file's text. A statement said twice is one statement.
pub(crate) fn written(triples: &[Triple]) -> String {
    let lines: BTreeSet<String> = triples.iter().map(line).collect();
    lines
        .into_iter()
        .fold(String::new(), |text, line| text + &line + "\n")
}

fn line(triple: &Triple) -> String {
    let graph = triple
        .g
        .as_ref()
        .map(|g| format!(" <{g}>"))
        .unwrap_or_default();
    format!(
        "{} {} {}{graph} .",
        term(&triple.s),
        term(&triple.p),
        term(&triple.o)
    )
}

fn term(term: &Term) -> String {
    match term.kind {
        TermType::Iri => format!("<{}>", term.iri),
        TermType::Blank => format!("_:{}", term.id),
        TermType::Literal if !term.language.is_empty() => {
            format!("\"{}\"@{}", escaped(&term.value), term.language)
        }
        TermType::Literal if !term.datatype.is_empty() => {
            format!("\"{}\"^^<{}>", escaped(&term.value), term.datatype)
        }
        TermType::Literal => format!("\"{}\"", escaped(&term.value)),
        TermType::Triple => match &term.triple {
            Some(inner) => format!(
                "<<( {} {} {} )>>",
                self::term(&inner.s),
                self::term(&inner.p),
                self::term(&inner.o)
            ),
            None => "\"\"".to_owned(),
        },
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}
