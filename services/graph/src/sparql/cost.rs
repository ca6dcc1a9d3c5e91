//! A bound on work that no quad pays for.
//!
//! A running query notices its cancellation whenever it reads a quad. Rows that a query brings
//! itself (`VALUES`, `UNION` of constants) and multiplies with each other read none, so their
//! product is bounded before the query starts.

use crate::error::Error;
use spargebra::Query;
use spargebra::algebra::GraphPattern;

/// The most rows a query may make out of itself.
const MAX_ROWS: u64 = 10_000_000;

pub(crate) fn check(query: &Query) -> Result<(), Error> {
    let (Query::Select { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }
    | Query::Ask { pattern, .. }) = query;
    let rows = rows(pattern);
    if rows > MAX_ROWS {
        return Err(Error::QueryTooLarge {
            what: "rows it multiplies out of its own values:",
            found: usize::try_from(rows).unwrap_or(usize::MAX),
            most: MAX_ROWS as usize,
        });
    }
    Ok(())
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
        assert!(!refused(&format!("SELECT * {{ {} ?s ?p ?a }}", values("a", 20_000))));
        let product: String = ["a", "b", "c"].map(|name| values(name, 1000)).concat();
        assert!(refused(&format!("SELECT (COUNT(*) AS ?n) {{ {product} }}")));
        assert!(refused(&format!("SELECT (COUNT(*) AS ?n) {{ ?s ?p ?o . {product} }}")));
    }

    #[test]
    fn doubling_unions_are_refused() {
        let doubled = "{ {} UNION {} }".repeat(30);
        assert!(refused(&format!("ASK {{ {doubled} FILTER(false) }}")));
    }
}
