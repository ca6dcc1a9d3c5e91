//! The parts of patterns and expressions, and the search for what no query may hold.

use crate::error::Error;
use spargebra::Query;
use spargebra::algebra::{AggregateExpression, Expression, GraphPattern, OrderExpression};

/// Refuses `SERVICE`, wherever it stands: nobody may make this process call another.
pub(crate) fn no_service(query: &mut Query) -> Result<(), Error> {
    in_pattern(pattern_of(query))
}

pub(crate) fn pattern_of(query: &mut Query) -> &mut GraphPattern {
    let (Query::Select { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }
    | Query::Ask { pattern, .. }) = query;
    pattern
}

fn in_pattern(pattern: &mut GraphPattern) -> Result<(), Error> {
    if let GraphPattern::Service { name, .. } = pattern {
        return Err(Error::Service(name.to_string()));
    }
    let mut found = Ok(());
    inside(pattern, &mut |inner| {
        if found.is_ok() {
            found = in_pattern(inner);
        }
    });
    found
}

/// Calls `each` with every pattern directly inside a pattern, those of an `EXISTS` included.
pub(crate) fn inside(pattern: &mut GraphPattern, each: &mut dyn FnMut(&mut GraphPattern)) {
    let (patterns, expressions) = parts(pattern);
    for inner in patterns {
        each(inner);
    }
    for expression in expressions {
        in_exists(expression, each);
    }
}

fn in_exists(expression: &mut Expression, each: &mut dyn FnMut(&mut GraphPattern)) {
    if let Expression::Exists(pattern) = expression {
        each(pattern);
    }
    for operand in operands(expression) {
        in_exists(operand, each);
    }
}

/// The patterns and expressions directly inside a pattern.
pub(crate) fn parts(pattern: &mut GraphPattern) -> (Vec<&mut GraphPattern>, Vec<&mut Expression>) {
    match pattern {
        GraphPattern::Bgp { .. } | GraphPattern::Path { .. } | GraphPattern::Values { .. } => {
            (Vec::new(), Vec::new())
        }
        GraphPattern::Join { left, right }
        | GraphPattern::Lateral { left, right }
        | GraphPattern::Union { left, right }
        | GraphPattern::Minus { left, right } => (vec![left, right], Vec::new()),
        GraphPattern::LeftJoin {
            left,
            right,
            expression,
        } => (vec![left, right], expression.iter_mut().collect()),
        GraphPattern::Filter { expr, inner } => (vec![inner], vec![expr]),
        GraphPattern::Extend {
            inner, expression, ..
        } => (vec![inner], vec![expression]),
        GraphPattern::OrderBy { inner, expression } => {
            let by = |order| match order {
                &mut (OrderExpression::Asc(ref mut by) | OrderExpression::Desc(ref mut by)) => by,
            };
            (vec![inner], expression.iter_mut().map(by).collect())
        }
        GraphPattern::Group {
            inner, aggregates, ..
        } => {
            let expressions = aggregates
                .iter_mut()
                .filter_map(|(_, aggregate)| match aggregate {
                    AggregateExpression::FunctionCall { expr, .. } => Some(expr),
                    AggregateExpression::CountSolutions { .. } => None,
                });
            (vec![inner], expressions.collect())
        }
        GraphPattern::Graph { inner, .. }
        | GraphPattern::Service { inner, .. }
        | GraphPattern::Project { inner, .. }
        | GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::Slice { inner, .. } => (vec![inner], Vec::new()),
    }
}

/// The expressions directly inside an expression; the pattern of `EXISTS` is none.
pub(crate) fn operands(expression: &mut Expression) -> Vec<&mut Expression> {
    match expression {
        Expression::NamedNode(_)
        | Expression::Literal(_)
        | Expression::Variable(_)
        | Expression::Bound(_)
        | Expression::Exists(_) => Vec::new(),
        Expression::UnaryPlus(inner) | Expression::UnaryMinus(inner) | Expression::Not(inner) => {
            vec![inner]
        }
        Expression::Or(left, right)
        | Expression::And(left, right)
        | Expression::Equal(left, right)
        | Expression::SameTerm(left, right)
        | Expression::Greater(left, right)
        | Expression::GreaterOrEqual(left, right)
        | Expression::Less(left, right)
        | Expression::LessOrEqual(left, right)
        | Expression::Add(left, right)
        | Expression::Subtract(left, right)
        | Expression::Multiply(left, right)
        | Expression::Divide(left, right) => vec![left, right],
        Expression::If(condition, yes, no) => vec![condition, yes, no],
        Expression::In(inner, list) => std::iter::once(&mut **inner).chain(list).collect(),
        Expression::Coalesce(list) | Expression::FunctionCall(_, list) => list.iter_mut().collect(),
    }
}
