//! The text of a query, from its algebra.
//!
//! The parser's own `Display` leaves out brackets where expressions of different rank meet, and merges
//! the modifiers of nested selects, so that another engine would read another query. Here every
//! operand has its brackets, and every part that a neighbour could be taken for a part of has braces.
//! Blank nodes must have been replaced by variables: their labels cannot be shared by groups.

use oxigraph::model::Variable;
use spargebra::Query;
use spargebra::algebra::{
    AggregateExpression, AggregateFunction, Expression, GraphPattern, OrderExpression, QueryDataset,
};
use std::collections::BTreeSet;

/// Writes a SELECT or ASK down; the other forms are told by their patterns.
pub(crate) fn text(query: &Query) -> String {
    let mut out = String::new();
    if let Some(base) = query.base_iri() {
        out.push_str(&format!("BASE <{base}> "));
    }
    match query {
        Query::Ask { pattern, .. } => {
            out.push_str("ASK");
            from(query.dataset(), &mut out);
            out.push_str(" WHERE { ");
            // Whether there is a row does not depend on its columns.
            match pattern {
                GraphPattern::Project { inner, .. } => group(inner, &mut out),
                other => group(other, &mut out),
            }
            out.push_str(" }");
        }
        Query::Select { pattern, .. }
        | Query::Construct { pattern, .. }
        | Query::Describe { pattern, .. } => select(pattern, query.dataset(), &mut out),
    }
    out
}

/// The variables that the answer has, in their order.
pub(crate) fn columns(pattern: &GraphPattern) -> Vec<Variable> {
    match pattern {
        GraphPattern::Project { variables, .. } => variables.clone(),
        GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Slice { inner, .. }
        | GraphPattern::OrderBy { inner, .. } => columns(inner),
        other => {
            let mut found = BTreeSet::new();
            other.on_in_scope_variable(|variable| {
                found.insert(variable.clone());
            });
            found.into_iter().collect()
        }
    }
}

fn from(dataset: Option<&QueryDataset>, out: &mut String) {
    if let Some(dataset) = dataset {
        out.push_str(&dataset.to_string());
    }
}

/// A SELECT; its modifiers are taken off in the one order in which the grammar has them.
fn select(pattern: &GraphPattern, dataset: Option<&QueryDataset>, out: &mut String) {
    let mut rest = pattern;
    let (mut limits, mut order) = (String::new(), None);
    if let GraphPattern::Slice {
        inner,
        start,
        length,
    } = rest
    {
        if *start > 0 {
            limits.push_str(&format!(" OFFSET {start}"));
        }
        if let Some(length) = length {
            limits.push_str(&format!(" LIMIT {length}"));
        }
        rest = inner;
    }
    out.push_str("SELECT");
    match rest {
        GraphPattern::Distinct { inner } => {
            out.push_str(" DISTINCT");
            rest = inner;
        }
        GraphPattern::Reduced { inner } => {
            out.push_str(" REDUCED");
            rest = inner;
        }
        _ => (),
    }
    let selected = columns(rest);
    if let GraphPattern::Project { inner, .. } = rest {
        rest = inner;
    }
    if let GraphPattern::OrderBy { inner, expression } = rest {
        order = Some(expression);
        rest = inner;
    }
    if selected.is_empty() {
        // Rows without columns cannot be written; they are counted all the same.
        out.push_str(" (1 AS ?agentfleet_row)");
    }
    for variable in &selected {
        out.push_str(&format!(" {variable}"));
    }
    from(dataset, out);
    out.push_str(" WHERE { ");
    group(rest, out);
    out.push_str(" }");
    if let Some(order) = order {
        out.push_str(" ORDER BY");
        for by in order {
            let (word, by) = match by {
                OrderExpression::Asc(by) => ("ASC", by),
                OrderExpression::Desc(by) => ("DESC", by),
            };
            out.push_str(&format!(" {word}("));
            expression(by, out);
            out.push(')');
        }
    }
    out.push_str(&limits);
}

/// What stands between the braces of a group. A filter holds for all of its group.
fn group(pattern: &GraphPattern, out: &mut String) {
    if let GraphPattern::Filter { expr, inner } = pattern {
        group(inner, out);
        out.push_str(" FILTER(");
        expression(expr, out);
        out.push(')');
    } else {
        sequence(pattern, out);
    }
}

fn braced(pattern: &GraphPattern, out: &mut String) {
    out.push_str("{ ");
    group(pattern, out);
    out.push_str(" }");
}

/// Elements of a group, where each later one applies to all before it.
fn sequence(pattern: &GraphPattern, out: &mut String) {
    match pattern {
        GraphPattern::Join { left, right } => {
            sequence(left, out);
            out.push(' ');
            element(right, out);
        }
        GraphPattern::Lateral { left, right } => {
            sequence(left, out);
            out.push_str(" LATERAL ");
            braced(right, out);
        }
        GraphPattern::LeftJoin {
            left,
            right,
            expression: condition,
        } => {
            sequence(left, out);
            out.push_str(" OPTIONAL { ");
            if matches!(**right, GraphPattern::Filter { .. }) {
                // A filter directly in it would be the condition, which sees the left side.
                braced(right, out);
            } else {
                sequence(right, out);
            }
            if let Some(condition) = condition {
                out.push_str(" FILTER(");
                expression(condition, out);
                out.push(')');
            }
            out.push_str(" }");
        }
        GraphPattern::Minus { left, right } => {
            sequence(left, out);
            out.push_str(" MINUS ");
            braced(right, out);
        }
        GraphPattern::Extend {
            inner,
            variable,
            expression: value,
        } => {
            sequence(inner, out);
            out.push_str(" BIND(");
            expression(value, out);
            out.push_str(&format!(" AS {variable})"));
        }
        other => element(other, out),
    }
}

/// One element that applies to nothing around it.
fn element(pattern: &GraphPattern, out: &mut String) {
    match pattern {
        GraphPattern::Bgp { patterns } => {
            for triple in patterns {
                out.push_str(&format!("{triple} . "));
            }
        }
        GraphPattern::Path {
            subject,
            path,
            object,
        } => out.push_str(&format!("{subject} {path} {object} . ")),
        GraphPattern::Union { left, right } => {
            braced(left, out);
            out.push_str(" UNION ");
            braced(right, out);
        }
        GraphPattern::Graph { name, inner } => {
            out.push_str(&format!("GRAPH {name} "));
            braced(inner, out);
        }
        GraphPattern::Service {
            name,
            inner,
            silent,
        } => {
            let silent = if *silent { "SILENT " } else { "" };
            out.push_str(&format!("SERVICE {silent}{name} "));
            braced(inner, out);
        }
        GraphPattern::Values { .. } => out.push_str(&pattern.to_string()),
        GraphPattern::Group {
            inner,
            variables,
            aggregates,
        } => {
            out.push_str("{ SELECT");
            for variable in variables {
                out.push_str(&format!(" {variable}"));
            }
            for (variable, value) in aggregates {
                out.push_str(" (");
                aggregate(value, out);
                out.push_str(&format!(" AS {variable})"));
            }
            if variables.is_empty() && aggregates.is_empty() {
                out.push_str(" (1 AS ?agentfleet_row)");
            }
            out.push_str(" WHERE ");
            braced(inner, out);
            if !variables.is_empty() {
                out.push_str(" GROUP BY");
                for variable in variables {
                    out.push_str(&format!(" {variable}"));
                }
            }
            out.push_str(" }");
        }
        GraphPattern::Project { .. }
        | GraphPattern::Distinct { .. }
        | GraphPattern::Reduced { .. }
        | GraphPattern::Slice { .. }
        | GraphPattern::OrderBy { .. } => {
            out.push_str("{ ");
            select(pattern, None, out);
            out.push_str(" }");
        }
        GraphPattern::Join { .. }
        | GraphPattern::Lateral { .. }
        | GraphPattern::LeftJoin { .. }
        | GraphPattern::Minus { .. }
        | GraphPattern::Extend { .. }
        | GraphPattern::Filter { .. } => braced(pattern, out),
    }
}

fn aggregate(value: &AggregateExpression, out: &mut String) {
    let word = |distinct: &bool| if *distinct { "DISTINCT " } else { "" };
    match value {
        AggregateExpression::CountSolutions { distinct } => {
            out.push_str(&format!("COUNT({}*)", word(distinct)));
        }
        AggregateExpression::FunctionCall {
            name,
            expr,
            distinct,
        } => {
            out.push_str(&format!("{name}({}", word(distinct)));
            expression(expr, out);
            if let AggregateFunction::GroupConcat {
                separator: Some(separator),
            } = name
            {
                let literal = oxigraph::model::Literal::new_simple_literal(separator);
                out.push_str(&format!("; SEPARATOR={literal}"));
            }
            out.push(')');
        }
    }
}

fn expression(value: &Expression, out: &mut String) {
    match value {
        Expression::NamedNode(_)
        | Expression::Literal(_)
        | Expression::Variable(_)
        | Expression::Bound(_) => out.push_str(&value.to_string()),
        Expression::Or(left, right) => infix(left, "||", right, out),
        Expression::And(left, right) => infix(left, "&&", right, out),
        Expression::Equal(left, right) => infix(left, "=", right, out),
        Expression::Greater(left, right) => infix(left, ">", right, out),
        Expression::GreaterOrEqual(left, right) => infix(left, ">=", right, out),
        Expression::Less(left, right) => infix(left, "<", right, out),
        Expression::LessOrEqual(left, right) => infix(left, "<=", right, out),
        Expression::Add(left, right) => infix(left, "+", right, out),
        Expression::Subtract(left, right) => infix(left, "-", right, out),
        Expression::Multiply(left, right) => infix(left, "*", right, out),
        Expression::Divide(left, right) => infix(left, "/", right, out),
        Expression::SameTerm(left, right) => call("sameTerm", [&**left, &**right], out),
        Expression::UnaryPlus(inner) => prefix("+", inner, out),
        Expression::UnaryMinus(inner) => prefix("-", inner, out),
        Expression::Not(inner) => prefix("!", inner, out),
        Expression::In(inner, list) => {
            out.push('(');
            expression(inner, out);
            call(" IN ", list, out);
            out.push(')');
        }
        Expression::Exists(pattern) => {
            out.push_str("EXISTS ");
            braced(pattern, out);
        }
        Expression::If(condition, yes, no) => call("IF", [&**condition, &**yes, &**no], out),
        Expression::Coalesce(list) => call("COALESCE", list, out),
        Expression::FunctionCall(function, list) => call(&function.to_string(), list, out),
    }
}

fn infix(left: &Expression, operator: &str, right: &Expression, out: &mut String) {
    out.push('(');
    expression(left, out);
    out.push_str(&format!(" {operator} "));
    expression(right, out);
    out.push(')');
}

fn prefix(operator: &str, inner: &Expression, out: &mut String) {
    out.push_str(&format!("({operator}("));
    expression(inner, out);
    out.push_str("))");
}

fn call<'e>(name: &str, list: impl IntoIterator<Item = &'e Expression>, out: &mut String) {
    out.push_str(&format!("{name}("));
    for (at, argument) in list.into_iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        expression(argument, out);
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use spargebra::SparqlParser;

    fn again(sparql: &str) -> (Query, Query, String) {
        let query = SparqlParser::new().parse_query(sparql).unwrap();
        let written = text(&query);
        let read = SparqlParser::new()
            .parse_query(&written)
            .unwrap_or_else(|error| unreachable!("{written}: {error}"));
        (query, read, written)
    }

    #[test]
    fn what_is_written_reads_as_the_same_algebra() {
        for sparql in [
            "SELECT ?a { ?a <urn:p> ?b }",
            "SELECT * { ?a <urn:p> ?b . ?b <urn:p>+ ?c OPTIONAL { ?c <urn:q> ?d FILTER(?d > ?a) } }",
            "SELECT ?a { ?a <urn:p> ?b FILTER((?b + 1) * 2 - (3 - 4) / -(?b - 1) > 0 && !(?b = 1 || ?b IN (2, 3))) }",
            "SELECT DISTINCT ?a FROM <urn:g> FROM NAMED <urn:h> { GRAPH ?g { ?a <urn:p> ?b } } ORDER BY DESC(?b) ?a LIMIT 5 OFFSET 2",
            "ASK { { ?a <urn:p> 1 } UNION { ?a <urn:p> 2 } UNION { ?a <urn:p> 3 } MINUS { ?a <urn:q> ?c FILTER(?c) } }",
            "SELECT ?a { ?a <urn:p> ?b FILTER NOT EXISTS { ?a <urn:q> ?c FILTER(?c = ?b) } }",
            "SELECT ?a { VALUES (?a ?b) { (<urn:x> UNDEF) (\"a\\\"b\\n\"@en 1) } ?a <urn:p>/<urn:q>|^<urn:r> ?b }",
            "SELECT ?a { ?a !(<urn:p>|^<urn:q>) ?b . ?a (<urn:p>|<urn:q>)* ?c . ?a <urn:p>? ?d }",
            "SELECT ?a { ?a <urn:p> <<( ?b <urn:q> ?c )>> BIND(TRIPLE(?b, <urn:q>, ?c) AS ?t) }",
        ] {
            let (query, read, written) = again(sparql);
            assert_eq!(query, read, "{written}");
        }
    }

    #[test]
    fn nested_modifiers_and_groups_keep_their_order() {
        // Fresh variables differ from reading to reading, so the second writing is compared.
        for sparql in [
            "SELECT ?a { { SELECT DISTINCT ?a ?b { ?a <urn:p> ?b } ORDER BY ?b LIMIT 3 } } LIMIT 2",
            "SELECT ?a { { { SELECT ?a { ?a <urn:p> ?b } LIMIT 5 } } } LIMIT 9",
            "SELECT ?a { { SELECT ?a { ?a <urn:p> ?b } ORDER BY ?b } ?a <urn:q> ?c }",
        ] {
            let (query, _, written) = again(sparql);
            for word in ["LIMIT", "DISTINCT", "ORDER BY", "SELECT"] {
                let count = |text: &str| text.matches(word).count();
                assert_eq!(count(sparql), count(&written), "{written}");
            }
            assert_eq!(columns_of(&query), ["a"]);
        }
        let (_, _, written) = again(
            "SELECT ?a (COUNT(DISTINCT ?b) + 1 AS ?n) (GROUP_CONCAT(?b; SEPARATOR=\"\\\"\") AS ?all)
             { ?a <urn:p> ?b } GROUP BY ?a HAVING (SUM(?b) > 2)",
        );
        for part in [
            "COUNT(DISTINCT ?b)",
            "SEPARATOR=\"\\\"\"",
            "GROUP BY ?a",
            "FILTER(",
        ] {
            assert!(written.contains(part), "{part}: {written}");
        }
    }

    fn columns_of(query: &Query) -> Vec<String> {
        let Query::Select { pattern, .. } = query else {
            unreachable!()
        };
        let names = columns(pattern).into_iter();
        names.map(|name| name.as_str().to_owned()).collect()
    }
}
