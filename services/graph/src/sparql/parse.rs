//! Reading a query: declared prefixes, a size that cannot exhaust the stack, clear refusals.

use super::{bind, closed, code, refusal, walk};
use crate::error::Error;
use agentfleet_schema::Term;
use agentfleet_schema::vocabulary::{prov, tg};
use spargebra::{GraphUpdateOperation, Query, SparqlParser};
use std::fmt::Display;

/// Prefixes people need not declare; a declaration in the query wins.
const PREFIXES: [(&str, &str); 5] = [
    ("prov", prov::NS),
    ("tg", tg::NS),
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs", "http://www.w3.org/2000/01/rdf-schema#"),
    ("xsd", "http://www.w3.org/2001/XMLSchema#"),
];

/// The longest query text, in bytes.
const MAX_TEXT: usize = 256 * 1024;
/// What nests in the algebra, and so recurses in parsing, planning and evaluation; a stack that runs
/// out cannot be caught.
const MAX_DEPTH: usize = 50;
const MAX_GROUPS: usize = 500;
const MAX_OPERATORS: usize = 1000;
const MAX_CLAUSES: usize = 500;
/// Characters that may begin another level. So few nest on any stack.
const FEW_MARKS: usize = 200;
const MAX_MARKS: usize = 20_000;
/// What one level takes of the stack at most, much more than was measured.
const STACK_OF_MARK: usize = 16 * 1024;
/// Levels of what was parsed, where every operator has brackets.
const MAX_NESTED: usize = MAX_DEPTH + MAX_OPERATORS + MAX_CLAUSES;

/// Parses a query, refuses what is not allowed, and puts the bindings in. `open` names the graphs that it may see,
/// where those are not all.
pub(crate) fn parse(
    sparql: &str,
    bindings: &[(&str, Term)],
    open: Option<&[String]>,
) -> Result<Query, Error> {
    check_size(sparql)?;
    let mut query = bounded(sparql, || {
        let parsed = parser().parse_query(sparql);
        parsed.map_err(|error| refuse(sparql, &error))
    })?;
    walk::no_service(&mut query)?;
    bind::bind(&mut query, bindings)?;
    if let Some(open) = open {
        closed::close(&mut query, open)?;
    }
    Ok(query)
}

/// Parses an update; what it may hold is decided by whoever carries it out.
pub(crate) fn parse_update(text: &str) -> Result<Vec<GraphUpdateOperation>, Error> {
    let known = PREFIXES.map(|(name, _)| name);
    let update = bounded(text, || {
        let parsed = parser().parse_update(text);
        parsed.map_err(|error| refusal::syntax(text, &error.to_string(), &known))
    })?;
    Ok(update.operations)
}

/// Parses where the stack holds whatever the text nests, and gives back only what nests as much as other
/// code may meet. What nests in a text cannot be told without parsing: `<` begins an IRI or compares.
fn bounded<T: Display + Send>(
    text: &str,
    parse: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let marks = text.bytes().filter(|byte| b"([{!^+-|&".contains(byte));
    let marks = marks.count();
    if marks <= FEW_MARKS {
        return parse();
    }
    if marks > MAX_MARKS {
        return Err(Error::QueryTooLarge {
            what: "brackets and signs:",
            found: marks,
            most: MAX_MARKS,
        });
    }
    let parse = || {
        let parsed = parse()?;
        // As it was understood: one way to write everything, and no comments.
        let understood = parsed.to_string();
        let signs = code::blanked(&understood).into_iter();
        let signs = signs.filter(|c| matches!(c, '!' | '+' | '-')).count();
        let table = [
            ("levels of brackets:", depth(&understood), MAX_NESTED),
            ("operators:", signs, MAX_OPERATORS),
        ];
        within(&table)?;
        Ok(parsed)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(marks * STACK_OF_MARK);
        let started = thread.spawn_scoped(scope, parse);
        let thread = started.map_err(|error| Error::Evaluation(Box::new(error)))?;
        let parsed = thread.join();
        parsed.map_err(|_| Error::Evaluation("the parser gave up".into()))?
    })
}

/// What of a text, how much there is of it, and how much there may be.
fn within(table: &[(&'static str, usize, usize)]) -> Result<(), Error> {
    match table.iter().find(|(_, found, most)| found > most) {
        None => Ok(()),
        Some(&(what, found, most)) => Err(Error::QueryTooLarge { what, found, most }),
    }
}

/// How deep brackets nest.
pub(crate) fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for character in code::blanked(text) {
        match character {
            '(' | '{' | '[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    deepest
}

fn parser() -> SparqlParser {
    let mut parser = SparqlParser::new();
    for (name, iri) in PREFIXES {
        // Constant IRIs; one that did not parse would leave its prefix undeclared.
        if let Ok(with) = parser.clone().with_prefix(name, iri) {
            parser = with;
        }
    }
    parser
}

fn check_size(sparql: &str) -> Result<(), Error> {
    if sparql.len() > MAX_TEXT {
        let what = "bytes of text:";
        return Err(Error::QueryTooLarge {
            what,
            found: sparql.len(),
            most: MAX_TEXT,
        });
    }
    let code = code::blanked(sparql);
    let (mut depth, mut deepest, mut groups, mut operators) = (0_usize, 0, 0, 0);
    for (at, character) in code.iter().enumerate() {
        match character {
            '(' | '{' | '[' => {
                depth += 1;
                deepest = deepest.max(depth);
                groups += usize::from(*character == '{');
            }
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            '!' | '|' | '&' | '+' | '*' | '/' | '^' | '=' => operators += 1,
            // In names a minus stands before a letter.
            '-' if !code.get(at + 1).is_some_and(char::is_ascii_alphabetic) => operators += 1,
            _ => (),
        }
    }
    let words: String = code.iter().collect();
    let clauses = words.split(|c: char| !c.is_alphanumeric()).filter(|word| {
        ["BIND", "FILTER", "AS"]
            .iter()
            .any(|one| word.eq_ignore_ascii_case(one))
    });
    within(&[
        ("levels of brackets:", deepest, MAX_DEPTH),
        ("groups:", groups, MAX_GROUPS),
        ("operators:", operators, MAX_OPERATORS),
        ("clauses:", clauses.count(), MAX_CLAUSES),
    ])
}

fn refuse(sparql: &str, error: &spargebra::SparqlSyntaxError) -> Error {
    if !sparql.trim().is_empty() && parser().parse_update(sparql).is_ok() {
        return Error::Update;
    }
    let known = PREFIXES.map(|(name, _)| name);
    refusal::syntax(sparql, &error.to_string(), &known)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn refused(sparql: &str) -> Error {
        parse(sparql, &[], None).unwrap_err()
    }

    #[test]
    fn an_update_is_called_one() {
        for update in [
            "INSERT DATA { <urn:a> <urn:b> 1 }",
            "CLEAR ALL",
            "DROP GRAPH <urn:g>",
        ] {
            assert!(matches!(refused(update), Error::Update), "{update}");
        }
        assert!(matches!(refused(""), Error::Syntax { .. }));
    }

    #[test]
    fn known_prefixes_need_no_declaration_and_may_be_overridden() {
        let text = |sparql: &str| parse(sparql, &[], None).unwrap().to_string();
        assert!(text("ASK { ?s prov:used ?o }").contains("<http://www.w3.org/ns/prov#used>"));
        assert!(text("ASK { ?s a tg:Question }").contains("<https://trustgraph.ai/ns/Question>"));
        assert!(text("PREFIX tg: <urn:x:> ASK { ?s a tg:Question }").contains("<urn:x:Question>"));
        assert!(matches!(
            refused("ASK { ?s a unknown:Thing }"),
            Error::Syntax { .. }
        ));
    }

    #[test]
    fn service_is_refused_wherever_it_stands() {
        for sparql in [
            "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }",
            "SELECT * { ?s ?p ?o OPTIONAL { SERVICE SILENT <http://x/> { ?s ?q ?r } } }",
            "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE ?s { ?s ?q ?r } } }",
            "ASK { { SELECT ?s { SERVICE <http://x/> { ?s ?p ?o } } } }",
        ] {
            assert!(matches!(refused(sparql), Error::Service(_)), "{sparql}");
        }
    }

    /// Queries that nest `n` levels, each in another way.
    pub(crate) fn nested(n: usize) -> Vec<String> {
        let many = |text: &str| text.repeat(n);
        let each = |text: fn(usize) -> String| (0..n).map(text).collect::<Vec<_>>().concat();
        vec![
            format!("SELECT * {{ FILTER({}1{}) }}", many("("), many(")")),
            format!("SELECT * {}{}", many("{"), many("}")),
            format!("SELECT * {{ ?s ?p {}{} }}", many("[ ?p "), many("]")),
            format!(
                "SELECT * {{ {} {} }}",
                many("?s ?p ?o OPTIONAL {"),
                many("}")
            ),
            format!("SELECT * {{ {} }}", many("?s ?p ?o OPTIONAL { ?s ?q ?r } ")),
            format!("SELECT * {{ {{}} {} }}", many(" UNION { ?s ?p ?o }")),
            format!("SELECT * {{ {} }}", many(" MINUS { ?s ?p ?o }")),
            format!("SELECT * {{ {} }}", many(" { ?s ?p ?o } ")),
            format!("SELECT * {{ ?s ?p ?o {} }}", many(" FILTER(?s != ?o) ")),
            format!("SELECT * {{ FILTER({}1) }}", many("1||")),
            format!("SELECT * {{ FILTER({}1) }}", many("1&&")),
            format!("SELECT * {{ FILTER({}1) }}", many("!")),
            format!("SELECT * {{ FILTER({}1) }}", many("1 + ")),
            format!("SELECT * {{ FILTER(?s{}) }}", many("-1")),
            format!("SELECT * {{ ?s {}tg:a ?o }}", many("tg:a/")),
            format!("SELECT * {{ ?s {}tg:a ?o }}", many("^")),
            format!("SELECT * {{ {} }}", each(|i| format!("BIND(1 AS ?v{i}) "))),
            format!("SELECT {} {{ }}", each(|i| format!("(1 AS ?v{i}) "))),
            format!(
                "SELECT * {{ ?s ?p {}1{} }}",
                many("<<( ?s ?p "),
                many(" )>>")
            ),
        ]
    }

    #[test]
    fn what_could_exhaust_the_stack_is_refused() {
        for sparql in nested(5_000) {
            assert!(
                matches!(refused(&sparql), Error::QueryTooLarge { .. }),
                "{sparql:.80}"
            );
        }
        // Where a reader of the text takes for a comment, an IRI or a string what the parser does not. Brackets
        // that mean nothing are gone when they are parsed.
        for n in [3_000, 9_000] {
            let (open, close, signs) = ("(".repeat(n), ")".repeat(n), "!".repeat(n));
            for (sparql, deep) in [
                (format!("SELECT*{{#\rFILTER({open}1{close})}}"), true),
                (format!("SELECT*{{FILTER(1<{open}1{close}||2>1)}}"), true),
                (format!("SELECT*{{FILTER(1<{open}1{close}&&2>1)}}"), false),
                (format!("SELECT*{{FILTER(1<'>'&&{open}1{close})}}"), false),
                (format!("SELECT*{{FILTER(1<'>'&&{signs}1)}}"), true),
            ] {
                match parse(&sparql, &[], None) {
                    Err(Error::QueryTooLarge { .. }) => {}
                    Ok(query) if !deep => assert!(query.to_string().len() < 500),
                    other => panic!("{sparql:.80}: {other:?}"),
                }
            }
        }
        let table = "(1 2) ".repeat(3_000);
        parse(
            &format!("SELECT * {{ VALUES (?a ?b) {{ {table} }} }}"),
            &[],
            None,
        )
        .unwrap();
        let huge = format!("SELECT * {{ }} #{}", "x".repeat(MAX_TEXT));
        assert!(matches!(refused(&huge), Error::QueryTooLarge { .. }));
    }
}
