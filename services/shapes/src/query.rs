//! Constraints in SPARQL: a query whose rows are what is wrong.
//!
//! SHACL asks each query once for each node, with `$this` bound to it. Where that comes to the same,
//! it is asked once with `$this` open, and the rows of other nodes are left out. It comes to the same
//! where [`open`] can prove it from the query's algebra; its cases are the proof. Other queries are
//! asked node by node.

use crate::Violation;
use crate::data::Data;
use crate::error::Error;
use crate::shape::Shape;
use crate::terms::text;
use oxigraph::model::{Term, Variable};
use oxigraph::sparql::{QueryEvaluationError, QueryResults, QuerySolution, SparqlEvaluator};
use spargebra::algebra::{Expression, GraphPattern, PropertyPathExpression};
use spargebra::term::{NamedNodePattern, TermPattern};
use spargebra::{Query, SparqlParser};
use std::collections::HashSet;

const THIS: &str = "this";

#[derive(Debug)]
pub(crate) struct SparqlConstraint {
    query: Query,
    message: Option<String>,
    /// Whether it may be asked once for all nodes.
    at_once: bool,
}

impl SparqlConstraint {
    /// Reads a SELECT; `prefixes` are those that the shapes declare for it. An error is the reason.
    pub(crate) fn new(
        select: &str,
        prefixes: &[(String, String)],
        message: Option<String>,
    ) -> Result<Self, String> {
        let mut parser = SparqlParser::new();
        for (prefix, namespace) in prefixes {
            parser = parser
                .with_prefix(prefix, namespace)
                .map_err(|error| format!("the prefix `{prefix}` has no IRI: {error}"))?;
        }
        let query = parser
            .parse_query(select)
            .map_err(|error| error.to_string())?;
        let Query::Select { pattern, .. } = &query else {
            return Err("it is no SELECT".to_owned());
        };
        // SHACL, section 5.2.1: with a bound variable these would mean something else, or leave the graph.
        let written = query.to_string();
        if let Some(word) = [" MINUS ", "VALUES ", "SERVICE ", "GRAPH ", "FROM "]
            .iter()
            .find(|word| written.contains(**word))
        {
            return Err(format!("`{}` has no place in it", word.trim()));
        }
        let mut selected = false;
        pattern.on_in_scope_variable(|variable| selected |= variable.as_str() == THIS);
        if !selected {
            return Err("it does not select `$this`".to_owned());
        }
        let open = open(pattern);
        Ok(Self {
            at_once: open.binds && open.same,
            query,
            message,
        })
    }

    /// What is wrong with nodes; the constraint is one of this shape.
    pub(crate) fn violations(
        &self,
        shape: &Shape,
        nodes: &[Term],
        data: &Data,
    ) -> Result<Vec<Violation>, Error> {
        let rows = self.rows(nodes, data, self.at_once);
        let rows = rows.map_err(|failure| failure.of(shape))?;
        let violations = rows.into_iter().map(|(node, row)| {
            let value = row.get("value").unwrap_or(&node);
            let message = self.message.as_ref().or(shape.message.as_ref());
            Violation {
                node: text(node.as_ref()),
                shape: shape.label.clone(),
                path: row.get("path").map(|path| text(path.as_ref())),
                constraint: "sparql",
                value: Some(text(value.as_ref())),
                message: message.map_or_else(
                    || "a query of the shape finds this node".to_owned(),
                    |message| filled(message, value, &row),
                ),
            }
        });
        Ok(violations.collect())
    }

    /// Each row with the node it is about.
    fn rows(
        &self,
        nodes: &[Term],
        data: &Data,
        at_once: bool,
    ) -> Result<Vec<(Term, QuerySolution)>, Failure> {
        // The engine may spell a literal otherwise than it came, so only names are recognised in rows.
        let (together, alone): (Vec<&Term>, Vec<&Term>) = nodes
            .iter()
            .partition(|node| at_once && matches!(node, Term::NamedNode(_)));
        let mut found = Vec::new();
        if !together.is_empty() {
            let wanted: HashSet<&Term> = together.into_iter().collect();
            for row in self.ask(data, None)? {
                if let Some(node) = row.get(THIS).filter(|node| wanted.contains(node)) {
                    found.push((node.clone(), row));
                }
            }
        }
        for node in alone {
            let rows = self.ask(data, Some(node))?;
            found.extend(rows.into_iter().map(|row| (node.clone(), row)));
        }
        Ok(found)
    }

    fn ask(&self, data: &Data, this: Option<&Term>) -> Result<Vec<QuerySolution>, Failure> {
        let mut prepared = SparqlEvaluator::new().for_query(self.query.clone());
        if let Some(this) = this {
            let name = Variable::new_unchecked(THIS);
            prepared = prepared.substitute_variable(name, this.clone());
        }
        match prepared.on_store(data.store()?).execute()? {
            QueryResults::Solutions(rows) => Ok(rows.collect::<Result<_, _>>()?),
            // `new` takes SELECT only.
            QueryResults::Boolean(_) | QueryResults::Graph(_) => Ok(Vec::new()),
        }
    }
}

/// What the engine can fail at.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Evaluation(#[from] QueryEvaluationError),
}

impl Failure {
    fn of(self, shape: &Shape) -> Error {
        match self {
            Self::Store(error) => error,
            Self::Evaluation(source) => Error::Evaluation {
                shape: shape.label.clone(),
                source: Box::new(source),
            },
        }
    }
}

/// A message with the values of a row in the places of `{?name}` and `{$name}`.
fn filled(message: &str, value: &Term, row: &QuerySolution) -> String {
    let mut message = message.to_owned();
    let mut fill = |name: &str, term: &Term| {
        for sign in ['?', '$'] {
            message = message.replace(&format!("{{{sign}{name}}}"), &text(term.as_ref()));
        }
    };
    for (variable, term) in row {
        fill(variable.as_str(), term);
    }
    fill("value", value);
    message
}

/// What holds of a part of a query if `$this` is left open in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// Every row has a value for `$this`.
    binds: bool,
    /// For every node, its rows that agree with `$this` being that node are those that the part has when
    /// `$this` is bound to the node.
    same: bool,
}

impl Open {
    const UNKNOWN: Self = Self {
        binds: false,
        same: false,
    };
}

/// The proof that a pattern may be asked once: by induction over the algebra, `same` holds for it if it
/// holds for its parts. Whoever reads an open `$this` (a filter, a group, an optional part) must be
/// given it in every row, which is what `binds` is for.
fn open(pattern: &GraphPattern) -> Open {
    match pattern {
        GraphPattern::Bgp { patterns } => Open {
            binds: patterns.iter().any(|triple| {
                is_this(&triple.subject)
                    || is_this(&triple.object)
                    || matches!(&triple.predicate, NamedNodePattern::Variable(it) if it.as_str() == THIS)
            }),
            same: true,
        },
        // A path of no length leads from every node to itself, from one that is in no statement only
        // where it is bound.
        GraphPattern::Path {
            subject,
            path,
            object,
        } => {
            let binds = is_this(subject) || is_this(object);
            Open {
                binds,
                same: !binds || has_length(path),
            }
        }
        GraphPattern::Join { left, right } => {
            let (left, right) = (open(left), open(right));
            Open {
                binds: left.binds || right.binds,
                same: left.same && right.same,
            }
        }
        GraphPattern::Union { left, right } => {
            let (left, right) = (open(left), open(right));
            Open {
                binds: left.binds && right.binds,
                same: left.same && right.same,
            }
        }
        // Which rows of the right are joined is decided row by row of the left, which says what `$this` is.
        GraphPattern::LeftJoin { left, right, .. } => {
            let (left, right) = (open(left), open(right));
            Open {
                binds: left.binds,
                same: left.same && left.binds && right.same,
            }
        }
        GraphPattern::Filter { expr, inner } => reads(expr, open(inner)),
        GraphPattern::Extend {
            inner,
            variable,
            expression,
        } if variable.as_str() != THIS => reads(expression, open(inner)),
        // Groups by `$this` are of one node each; without rows there is no group either way.
        GraphPattern::Group {
            inner, variables, ..
        } => {
            let inner = open(inner);
            let by_node = variables.iter().any(|it| it.as_str() == THIS);
            Open {
                binds: inner.binds && by_node,
                same: inner.same && inner.binds && by_node,
            }
        }
        GraphPattern::Project { inner, variables }
            if variables.iter().any(|it| it.as_str() == THIS) =>
        {
            open(inner)
        }
        GraphPattern::Distinct { inner }
        | GraphPattern::Reduced { inner }
        | GraphPattern::OrderBy { inner, .. } => open(inner),
        // The engine may have more kinds of pattern than are known here: nothing is claimed of them.
        _ => Open::UNKNOWN,
    }
}

/// An expression sees what its rows have. One that reads `$this`, also inside `EXISTS`, needs it there.
fn reads(expression: &Expression, rows: Open) -> Open {
    // Written down, so that no place where a variable can stand is forgotten. Too careful where a
    // text or a longer name begins so.
    let reads_this = expression.to_string().contains("?this");
    Open {
        same: rows.same && (rows.binds || !reads_this),
        ..rows
    }
}

fn is_this(term: &TermPattern) -> bool {
    matches!(term, TermPattern::Variable(variable) if variable.as_str() == THIS)
}

/// Whether a path goes one step at least.
fn has_length(path: &PropertyPathExpression) -> bool {
    match path {
        PropertyPathExpression::NamedNode(_) | PropertyPathExpression::NegatedPropertySet(_) => {
            true
        }
        PropertyPathExpression::Reverse(path) | PropertyPathExpression::OneOrMore(path) => {
            has_length(path)
        }
        PropertyPathExpression::Sequence(left, right) => has_length(left) || has_length(right),
        PropertyPathExpression::Alternative(left, right) => has_length(left) && has_length(right),
        PropertyPathExpression::ZeroOrMore(_) | PropertyPathExpression::ZeroOrOne(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::shape::Constraint;
    use crate::{ONTOLOGY, SHAPES, Shapes, read};
    use oxigraph::io::{RdfFormat, RdfParser};
    use oxigraph::model::Triple;

    fn constraint(select: &str) -> Result<SparqlConstraint, String> {
        let prefixes = [("p".to_owned(), "urn:p:".to_owned())];
        SparqlConstraint::new(select, &prefixes, None)
    }

    #[test]
    fn a_query_is_asked_once_only_where_that_is_proven_to_be_the_same() {
        for (pattern, expected) in [
            ("$this p:a ?x", true),
            ("?x ?y $this", true),
            ("?x $this ?y", true),
            ("$this p:a+ $this", true),
            ("$this p:a* ?x", false),
            ("$this p:a/p:b? ?x", true),
            ("?x p:a ?y", false),
            ("$this p:a ?x FILTER (?x != $this)", true),
            ("?x p:a ?y FILTER NOT EXISTS { $this p:b ?y }", false),
            ("?x p:a ?y FILTER (?x != $this)", false),
            ("{ ?x p:a ?y FILTER (?x != $this) } $this p:b ?x", false),
            ("{ ?x p:a ?y FILTER (?x != ?y) } $this p:b ?x", true),
            ("{ $this p:a ?x } UNION { ?x p:a $this }", true),
            ("{ $this p:a ?x } UNION { ?x p:a ?y }", false),
            (
                "$this p:a ?x OPTIONAL { $this p:b ?y FILTER (?y > ?x) }",
                true,
            ),
            ("?x p:a ?y OPTIONAL { $this p:b ?y }", false),
            ("$this p:a ?x BIND (EXISTS { $this p:b ?x } AS ?z)", true),
            ("?x p:a ?y BIND (EXISTS { $this p:b ?x } AS ?z)", false),
            (
                "$this p:a ?x { SELECT ?x (COUNT(?y) AS ?n) WHERE { ?x p:b ?y } GROUP BY ?x }",
                false,
            ),
            (
                "{ SELECT $this (COUNT(?y) AS ?n) WHERE { $this p:b ?y } GROUP BY $this }",
                true,
            ),
            ("{ SELECT $this WHERE { $this p:b ?y } LIMIT 1 }", false),
        ] {
            let one = constraint(&format!("SELECT $this WHERE {{ {pattern} }}")).unwrap();
            assert_eq!(one.at_once, expected, "{pattern}");
        }
    }

    #[test]
    fn queries_that_mean_something_else_with_a_bound_variable_are_refused() {
        for (select, reason) in [
            ("ASK { $this p:a ?x }", "it is no SELECT"),
            (
                "SELECT ?x WHERE { $this p:a ?x }",
                "does not select `$this`",
            ),
            (
                "SELECT $this WHERE { $this p:a ?x MINUS { ?y p:b ?x } }",
                "`MINUS`",
            ),
            (
                "SELECT $this WHERE { $this p:a ?x VALUES ?x { 1 } }",
                "`VALUES`",
            ),
            (
                "SELECT $this WHERE { SERVICE <urn:s> { $this p:a ?x } }",
                "`SERVICE`",
            ),
            (
                "SELECT $this WHERE { GRAPH ?g { $this p:a ?x } }",
                "`GRAPH`",
            ),
            ("SELECT $this FROM <urn:g> WHERE { $this p:a ?x }", "`FROM`"),
            ("SELECT $this WHERE { $this q:a ?x }", ""),
        ] {
            let refused = constraint(select).unwrap_err();
            assert!(refused.contains(reason), "{select}: {refused}");
        }
    }

    #[test]
    fn every_query_of_the_traces_is_asked_once() {
        let shapes = read::shapes(&read::graph(SHAPES, "shapes").unwrap()).unwrap();
        for (shape, query) in queries(&shapes) {
            assert!(query.at_once, "{}: {}", shape.label, query.query);
        }
    }

    /// What is proven is tried as well: on traces that were torn apart, so that there is much to find.
    #[test]
    fn asking_once_finds_what_asking_for_each_node_finds() {
        let shapes = Shapes::parse(SHAPES, ONTOLOGY).unwrap();
        let mut found = 0;
        for name in ["supervisor", "nested", "approvals", "plan"] {
            let triples = trace(name);
            for nth in [usize::MAX, 3, 7] {
                let torn = triples
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| (at + 1) % nth != 0);
                let given = torn.map(|(_, triple)| triple.clone());
                let data = Data::new(shapes.ontology.iter().cloned().chain(given)).unwrap();
                for (shape, query) in queries(&shapes.shapes) {
                    let nodes = data.targeted(&shape.targets);
                    let told = |at_once| {
                        let rows = query.rows(&nodes, &data, at_once).unwrap();
                        let mut told: Vec<String> = rows
                            .iter()
                            .map(|(node, row)| format!("{node} {row:?}"))
                            .collect();
                        told.sort();
                        told
                    };
                    let once = told(true);
                    found += once.len();
                    assert_eq!(once, told(false), "{name} {nth}: {}", query.query);
                }
            }
        }
        assert!(found > 300, "only {found} rows were compared");
    }

    fn queries(shapes: &[Shape]) -> impl Iterator<Item = (&Shape, &SparqlConstraint)> {
        shapes.iter().flat_map(|shape| {
            let queries = shape.constraints.iter().filter_map(|one| match one {
                Constraint::Sparql(query) => Some(query),
                Constraint::Core(_) | Constraint::Property(_) => None,
            });
            queries.map(move |query| (shape, query))
        })
    }

    fn trace(name: &str) -> Vec<Triple> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/fixtures/traces");
        let file = std::fs::read(format!("{folder}/{name}.nq")).unwrap();
        let quads = RdfParser::from_format(RdfFormat::NQuads).for_slice(&file);
        quads.map(|quad| Triple::from(quad.unwrap())).collect()
    }
}
