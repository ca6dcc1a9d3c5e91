//! Reading a query: declared prefixes, a size that cannot exhaust the stack, clear refusals.

use super::{bind, cost, walk};
use crate::error::Error;
use agentfleet_schema::Term;
use agentfleet_schema::vocabulary::{prov, tg};
use spargebra::{Query, SparqlParser};

/// Prefixes people need not declare; a declaration in the query wins.
const PREFIXES: &[(&str, &str)] = &[
    ("prov", prov::NS),
    ("tg", tg::NS),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

/// The longest query text, in bytes.
const MAX_TEXT: usize = 256 * 1024;
/// The deepest nesting of brackets: parsing and evaluation recurse, and a stack that runs out
/// cannot be caught.
const MAX_DEPTH: usize = 64;
/// The most operators outside brackets that may follow each other; each nests like a bracket.
const MAX_CHAIN: usize = 2_000;

/// Parses a query, refuses what is not allowed, and puts the bindings in.
pub(crate) fn parse(sparql: &str, bindings: &[(&str, Term)]) -> Result<Query, Error> {
    check_size(sparql)?;
    let mut query = parser().parse_query(sparql).map_err(|error| refusal(sparql, &error))?;
    walk::no_service(&mut query)?;
    bind::bind(&mut query, bindings)?;
    cost::check(&query)?;
    Ok(query)
}

fn parser() -> SparqlParser {
    let mut parser = SparqlParser::new();
    for (name, iri) in PREFIXES {
        // Constant IRIs; one that did not parse would leave its prefix undeclared.
        if let Ok(with) = parser.clone().with_prefix(*name, *iri) {
            parser = with;
        }
    }
    parser
}

/// Brackets and operators are counted in the text, strings and comments included: a generous limit
/// makes that no harm.
fn check_size(sparql: &str) -> Result<(), Error> {
    let too_large = |what, found, most| Err(Error::QueryTooLarge { what, found, most });
    if sparql.len() > MAX_TEXT {
        return too_large("bytes of text:", sparql.len(), MAX_TEXT);
    }
    let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0);
    for byte in sparql.bytes() {
        match byte {
            b'(' | b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b'!' | b'|' | b'&' | b'+' | b'^' | b'*' => operators += 1,
            _ => (),
        }
    }
    if deepest > MAX_DEPTH {
        return too_large("levels of brackets:", deepest, MAX_DEPTH);
    }
    if operators > MAX_CHAIN {
        return too_large("operators:", operators, MAX_CHAIN);
    }
    Ok(())
}

/// Turns the parser's message, `error at LINE:COLUMN: expected ...`, into ours.
fn refusal(sparql: &str, error: &spargebra::SparqlSyntaxError) -> Error {
    if parser().parse_update(sparql).is_ok() && !sparql.trim().is_empty() {
        return Error::Update;
    }
    let message = error.to_string();
    let position = message.strip_prefix("error at ").and_then(|rest| {
        let (position, reason) = rest.split_once(": ")?;
        let (line, column) = position.split_once(':')?;
        Some((line.parse().ok()?, column.parse().ok()?, reason))
    });
    let (line, column, reason) = position.unwrap_or((1, 1, &message));
    Error::Syntax {
        line,
        column,
        near: excerpt(sparql, line, column),
        reason: crate::terms::lower_first(reason),
    }
}

/// The text at a position, for people to find it by.
fn excerpt(sparql: &str, line: usize, column: usize) -> String {
    let line = sparql.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let rest: String = line.chars().skip(column.saturating_sub(1)).take(40).collect();
    let rest = rest.trim();
    if rest.is_empty() { "the end of the line".to_owned() } else { rest.to_owned() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn refuse(sparql: &str) -> Error {
        parse(sparql, &[]).unwrap_err()
    }

    #[test]
    fn a_syntax_error_names_its_position_and_the_text_there() {
        let Error::Syntax { line, column, near, reason } =
            refuse("SELECT ?s WHERE {\n  ?s tg:query ?o ;;; FILTR(?o)\n}")
        else {
            panic!("not a syntax error")
        };
        assert_eq!(line, 2);
        assert!(column > 10, "{column}");
        assert!(near.contains("FILTR"), "{near}");
        assert!(reason.starts_with("expected"), "{reason}");
    }

    #[test]
    fn an_update_is_called_one() {
        for update in ["INSERT DATA { <urn:a> <urn:b> 1 }", "CLEAR ALL", "DROP GRAPH <urn:g>"] {
            assert!(matches!(refuse(update), Error::Update), "{update}");
        }
        assert!(matches!(refuse(""), Error::Syntax { .. }));
    }

    #[test]
    fn known_prefixes_need_no_declaration_and_may_be_overridden() {
        let text = |sparql: &str| parse(sparql, &[]).unwrap().to_string();
        assert!(text("ASK { ?s prov:used ?o }").contains("<http://www.w3.org/ns/prov#used>"));
        assert!(text("ASK { ?s a tg:Question }").contains("<https://trustgraph.ai/ns/Question>"));
        assert!(text("PREFIX tg: <urn:x:> ASK { ?s a tg:Question }").contains("<urn:x:Question>"));
        assert!(matches!(refuse("ASK { ?s a unknown:Thing }"), Error::Syntax { .. }));
    }

    #[test]
    fn service_is_refused_wherever_it_stands() {
        for sparql in [
            "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }",
            "SELECT * { ?s ?p ?o OPTIONAL { SERVICE SILENT <http://x/> { ?s ?q ?r } } }",
            "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE ?s { ?s ?q ?r } } }",
            "ASK { { SELECT ?s { SERVICE <http://x/> { ?s ?p ?o } } } }",
        ] {
            assert!(matches!(refuse(sparql), Error::Service(_)), "{sparql}");
        }
    }

    #[test]
    fn what_could_exhaust_the_stack_is_refused() {
        let deep = format!("SELECT * {{ FILTER({}1{}) }}", "(".repeat(20_000), ")".repeat(20_000));
        let braces = format!("SELECT * {}{}", "{".repeat(20_000), "}".repeat(20_000));
        let long = format!("SELECT * {{ FILTER({}1) }}", "1||".repeat(20_000));
        let not = format!("SELECT * {{ FILTER({}1) }}", "!".repeat(20_000));
        let huge = format!("SELECT * {{ }} #{}", "x".repeat(MAX_TEXT));
        for sparql in [deep, braces, long, not, huge] {
            assert!(matches!(refuse(&sparql), Error::QueryTooLarge { .. }));
        }
    }
}
