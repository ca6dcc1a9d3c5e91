//! Bounds on work that cannot be cancelled.
//!
//! A running query notices its cancellation whenever it reads a quad; [`super::products`] sees to it
//! that it goes on reading. Rows that a query brings
//! itself (`VALUES`, `UNION` of constants) and multiplies with each other read none, and planning
//! reads none either: its time grows with the third power of the triple patterns. Both are bounded
//! before the query starts.

use crate::error::Error;
use spargebra::Query;
use spargebra::algebra::{GraphPattern, PropertyPathExpression};

/// The most rows a query may make out of itself.
const MAX_ROWS: u64 = 10_000_000;
/// The most triple patterns, which are planned in a fraction of a second.
const MAX_PATTERNS: u64 = 100;

pub(crate) fn check(query: &Query) -> Result<(), Error> {
    let (Query::Select { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }
    | Query::Ask { pattern, .. }) = query;
    let table = [
        (
            "rows it multiplies out of its own values:",
            rows(pattern),
            MAX_ROWS,
        ),
        ("triple patterns:", patterns(pattern), MAX_PATTERNS),
    ];
    for (what, found, most) in table {
        if found > most {
            let whole = |number| usize::try_from(number).unwrap_or(usize::MAX);
            return Err(Error::QueryTooLarge {
                what,
                found: whole(found),
                most: whole(most),
            });
        }
    }
    Ok(())
}

/// Triple patterns, and steps of paths, which become such.
fn patterns(pattern: &GraphPattern) -> u64 {
    match pattern {
        GraphPattern::Bgp { patterns } => patterns.len() as u64,
        GraphPattern::Path { path, .. } => steps(path),
        GraphPattern::Values { .. } => 0,
        GraphPattern::Join { left, right }
        | GraphPattern::LeftJoin { left, right, .. }
        | GraphPattern::Lateral { left, right }
        | GraphPattern::Union { left, right }
        | GraphPattern::Minus { left, right } => patterns(left) + patterns(right),
        GraphPattern::Filter { inner, .. }
        | GraphPattern::Graph { inner, .. }
        | GraphPattern::Service { inner, .. }
        | GraphPattern::Extend { inner, .. }
        | GraphPattern::OrderBy { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Group { inner, .. }
        | GraphPattern::Slice { inner, .. } => patterns(inner),
    }
}

fn steps(path: &PropertyPathExpression) -> u64 {
    match path {
        PropertyPathExpression::NamedNode(_) | PropertyPathExpression::NegatedPropertySet(_) => 1,
        PropertyPathExpression::Reverse(inner)
        | PropertyPathExpression::ZeroOrMore(inner)
        | PropertyPathExpression::OneOrMore(inner)
        | PropertyPathExpression::ZeroOrOne(inner) => steps(inner),
        PropertyPathExpression::Sequence(left, right)
        | PropertyPathExpression::Alternative(left, right) => steps(left) + steps(right),
    }
}

/// Rows of a pattern if every part that reads quads gave one.
fn rows(pattern: &GraphPattern) -> u64 {
    match pattern {
        GraphPattern::Bgp { .. } | GraphPattern::Path { .. } | GraphPattern::Service { .. } => 1,
        GraphPattern::Values { bindings, .. } => bindings.len() as u64,
        GraphPattern::Join { left, right }
        | GraphPattern::LeftJoin { left, right, .. }
        | GraphPattern::Lateral { left, right } => {
            rows(left).max(1).saturating_mul(rows(right).max(1))
        }
        GraphPattern::Union { left, right } => rows(left).saturating_add(rows(right)),
        // The right side only removes rows, but is looked through for each of the left.
        GraphPattern::Minus { left, right } => rows(left).max(rows(right)),
        GraphPattern::Filter { inner, .. }
        | GraphPattern::Graph { inner, .. }
        | GraphPattern::Extend { inner, .. }
        | GraphPattern::OrderBy { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        // Groups and slices give fewer rows, but only after all were made.
        | GraphPattern::Group { inner, .. }
        | GraphPattern::Slice { inner, .. } => rows(inner),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use spargebra::SparqlParser;

    fn refused(sparql: &str) -> bool {
        check(&SparqlParser::new().parse_query(sparql).unwrap()).is_err()
    }

    fn values(name: &str, count: usize) -> String {
        format!("VALUES ?{name} {{ {} }}", "1 ".repeat(count))
    }

    #[test]
    fn many_values_are_fine_and_their_product_is_not() {
        assert!(!refused(&format!(
            "SELECT * {{ {} ?s ?p ?a }}",
            values("a", 20_000)
        )));
        let product: String = ["a", "b", "c"].map(|name| values(name, 1000)).concat();
        assert!(refused(&format!("SELECT (COUNT(*) AS ?n) {{ {product} }}")));
        assert!(refused(&format!(
            "SELECT (COUNT(*) AS ?n) {{ ?s ?p ?o . {product} }}"
        )));
    }

    #[test]
    fn doubling_unions_are_refused() {
        let doubled = "{ {} UNION {} }".repeat(30);
        assert!(refused(&format!("ASK {{ {doubled} FILTER(false) }}")));
    }

    #[test]
    fn more_patterns_than_can_be_planned_are_refused() {
        let joined = |n: usize| format!("ASK {{ {} }}", "?s ?p ?o . ".repeat(n));
        let optional = |n: usize| format!("ASK {{ {} }}", "OPTIONAL { ?s ?p ?o } ".repeat(n));
        let path = |n: usize| format!("ASK {{ ?s {}<urn:p> ?o }}", "<urn:p>/".repeat(n));
        let table: [&dyn Fn(usize) -> String; 3] = [&joined, &optional, &path];
        for query in table {
            assert!(!refused(&query(90)));
            assert!(refused(&query(200)));
        }
    }
}
