//! A query as another server can answer it.
//!
//! - Every query goes out as a SELECT or an ASK. What CONSTRUCT and DESCRIBE make of the rows is made
//!   here, so that there is one form of answer, and it shows when it is cut short.
//! - The default graph is the union of all graphs. No standard says how to ask for that, so a query
//!   without a dataset is asked of Jena's union graph, or names every graph there is.
//! - What the store holds for its own purposes stays out of sight.

use super::skolem::{BLANK, NO_GRAPH};
use crate::sparql::{text, walk};
use oxigraph::model::{Literal, NamedNode, Variable};
use spargebra::Query;
use spargebra::algebra::{AggregateExpression, Expression, Function, GraphPattern, QueryDataset};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};
use std::collections::{BTreeSet, HashMap};

/// The graph that is the union of all named graphs, in Jena.
pub(super) const JENA_UNION: &str = "urn:x-arq:UnionGraph";

/// How a server is asked for the union of all graphs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Union {
    /// Its default graph is the union, and holds blank nodes as they are.
    Native,
    Jena,
    /// By these names, which are all.
    Listed(Vec<NamedNode>),
}

/// A query to send, and what its rows become.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) text: String,
    pub(super) form: Form,
}

#[derive(Debug)]
pub(super) enum Form {
    Boolean,
    Rows(Vec<Variable>),
    Triples(Vec<TriplePattern>),
}

/// Whether a query says which graphs it is about.
pub(super) fn names_graphs(query: &Query) -> bool {
    query
        .dataset()
        .is_some_and(|dataset| !dataset.default.is_empty() || dataset.named.is_some())
}

/// Makes the text to send.
pub(super) fn plan(query: Query, union: &Union) -> Plan {
    let mut names = Names::default();
    let (mut query, form) = as_rows(query);
    let pattern = walk::pattern_of(&mut query);
    names.in_pattern(pattern);
    if *union != Union::Native {
        hide(pattern);
        ask_for_union(&mut query, union);
    }
    Plan {
        text: text::text(&query),
        form,
    }
}

fn as_rows(query: Query) -> (Query, Form) {
    match query {
        Query::Ask { .. } => (query, Form::Boolean),
        Query::Select { ref pattern, .. } => {
            let columns = text::columns(pattern);
            (query, Form::Rows(columns))
        }
        Query::Construct {
            template,
            dataset,
            pattern,
            base_iri,
        } => {
            let mut wanted = BTreeSet::new();
            for triple in &template {
                variables(triple, &mut wanted);
            }
            let query = Query::Select {
                dataset,
                pattern: narrowed(pattern, wanted.into_iter().collect()),
                base_iri,
            };
            (query, Form::Triples(template))
        }
        Query::Describe {
            dataset,
            pattern,
            base_iri,
        } => {
            let [s, p, o] =
                ["s", "p", "o"].map(|name| Variable::new_unchecked(format!("agentfleet_{name}")));
            let described = text::columns(&pattern).into_iter().map(|variable| {
                let nodes = GraphPattern::Distinct {
                    inner: Box::new(narrowed(pattern.clone(), vec![variable.clone()])),
                };
                let statements = GraphPattern::Bgp {
                    patterns: vec![statement(&variable, &p, &o)],
                };
                GraphPattern::Extend {
                    inner: Box::new(GraphPattern::Join {
                        left: Box::new(nodes),
                        right: Box::new(statements),
                    }),
                    variable: s.clone(),
                    expression: variable.into(),
                }
            });
            let nothing = || GraphPattern::Values {
                variables: Vec::new(),
                bindings: Vec::new(),
            };
            let all = described
                .reduce(|left, right| GraphPattern::Union {
                    left: Box::new(left),
                    right: Box::new(right),
                })
                .unwrap_or_else(nothing);
            let query = Query::Select {
                dataset,
                pattern: GraphPattern::Project {
                    inner: Box::new(all),
                    variables: vec![s.clone(), p.clone(), o.clone()],
                },
                base_iri,
            };
            (query, Form::Triples(vec![statement(&s, &p, &o)]))
        }
    }
}

fn statement(subject: &Variable, predicate: &Variable, object: &Variable) -> TriplePattern {
    TriplePattern {
        subject: subject.clone().into(),
        predicate: predicate.clone().into(),
        object: object.clone().into(),
    }
}

fn variables(triple: &TriplePattern, found: &mut BTreeSet<Variable>) {
    for term in [&triple.subject, &triple.object] {
        match term {
            TermPattern::Variable(variable) => {
                found.insert(variable.clone());
            }
            TermPattern::Triple(inner) => variables(inner, found),
            TermPattern::NamedNode(_) | TermPattern::BlankNode(_) | TermPattern::Literal(_) => (),
        }
    }
    if let NamedNodePattern::Variable(variable) = &triple.predicate {
        found.insert(variable.clone());
    }
}

/// The same rows, with these columns only.
fn narrowed(pattern: GraphPattern, variables: Vec<Variable>) -> GraphPattern {
    match pattern {
        GraphPattern::Slice {
            inner,
            start,
            length,
        } => GraphPattern::Slice {
            inner: Box::new(narrowed(*inner, variables)),
            start,
            length,
        },
        GraphPattern::Project { inner, .. } => GraphPattern::Project { inner, variables },
        other => GraphPattern::Project {
            inner: Box::new(other),
            variables,
        },
    }
}

/// Blank nodes of a query are variables without a name, and get one: their labels cannot be shared
/// by the groups that a query is written down in.
#[derive(Default)]
struct Names(HashMap<String, Variable>);

impl Names {
    fn in_pattern(&mut self, pattern: &mut GraphPattern) {
        match pattern {
            GraphPattern::Bgp { patterns } => {
                for triple in patterns {
                    self.in_triple(triple);
                }
            }
            GraphPattern::Path {
                subject, object, ..
            } => {
                self.in_term(subject);
                self.in_term(object);
            }
            GraphPattern::Group {
                inner, aggregates, ..
            } => {
                let distinct = AggregateExpression::CountSolutions { distinct: true };
                if aggregates.iter().any(|(_, value)| *value == distinct) {
                    // The new names must not make rows differ.
                    let variables = text::columns(&GraphPattern::Distinct {
                        inner: inner.clone(),
                    });
                    **inner = narrowed(std::mem::take(inner), variables);
                }
            }
            _ => (),
        }
        walk::inside(pattern, &mut |inner| self.in_pattern(inner));
    }

    fn in_triple(&mut self, triple: &mut TriplePattern) {
        self.in_term(&mut triple.subject);
        self.in_term(&mut triple.object);
    }

    fn in_term(&mut self, term: &mut TermPattern) {
        match term {
            TermPattern::BlankNode(node) => {
                let next = self.0.len();
                let name = || Variable::new_unchecked(format!("agentfleet_b{next}"));
                let label = node.as_str().to_owned();
                *term = self.0.entry(label).or_insert_with(name).clone().into();
            }
            TermPattern::Triple(triple) => self.in_triple(triple),
            TermPattern::NamedNode(_) | TermPattern::Literal(_) | TermPattern::Variable(_) => (),
        }
    }
}

/// Keeps graphs and names that are the store's own from being seen for something else.
fn hide(pattern: &mut GraphPattern) {
    for expression in walk::parts(pattern).1 {
        blank_as_blank(expression);
    }
    walk::inside(pattern, &mut hide);
    if let GraphPattern::Graph {
        name: NamedNodePattern::Variable(variable),
        ..
    } = pattern
    {
        let same = Expression::SameTerm(
            Box::new(variable.clone().into()),
            Box::new(NamedNode::new_unchecked(NO_GRAPH).into()),
        );
        let graph = Box::new(std::mem::take(pattern));
        *pattern = GraphPattern::Filter {
            expr: Expression::Not(Box::new(same)),
            inner: graph,
        };
    }
}

/// A stored blank node is an IRI, and says that it is not.
fn blank_as_blank(expression: &mut Expression) {
    for operand in walk::operands(expression) {
        blank_as_blank(operand);
    }
    let Expression::FunctionCall(function @ (Function::IsBlank | Function::IsIri), operands) =
        expression
    else {
        return;
    };
    let Some(operand) = operands.first().cloned() else {
        return;
    };
    let call = |function, list| Box::new(Expression::FunctionCall(function, list));
    let is_iri = call(Function::IsIri, vec![operand.clone()]);
    let text = *call(Function::Str, vec![operand.clone()]);
    let prefix = Literal::new_simple_literal(BLANK).into();
    let starts = call(Function::StrStarts, vec![text, prefix]);
    *expression = if *function == Function::IsIri {
        Expression::And(is_iri, Box::new(Expression::Not(starts)))
    } else {
        let stored = Box::new(Expression::And(is_iri, starts));
        Expression::Or(call(Function::IsBlank, vec![operand]), stored)
    };
}

fn ask_for_union(query: &mut Query, union: &Union) {
    let named = names_graphs(query);
    let (Query::Select {
        dataset, pattern, ..
    }
    | Query::Construct {
        dataset, pattern, ..
    }
    | Query::Describe {
        dataset, pattern, ..
    }
    | Query::Ask {
        dataset, pattern, ..
    }) = query;
    if named {
        // One graph is the same as `GRAPH`, which stores answer from an index. What is named makes no
        // difference where no `GRAPH` asks for it.
        let only = dataset
            .as_ref()
            .and_then(|dataset| match &*dataset.default {
                [one] => Some(one.clone()),
                _ => None,
            });
        if let Some(graph) = only
            && !has_graph(pattern)
        {
            inside(pattern, &graph);
            *dataset = None;
        }
        return;
    }
    match union {
        Union::Native => (),
        Union::Jena => inside(pattern, &NamedNode::new_unchecked(JENA_UNION)),
        Union::Listed(graphs) => {
            let visible = graphs.iter().filter(|graph| graph.as_str() != NO_GRAPH);
            *dataset = Some(QueryDataset {
                default: graphs.clone(),
                named: Some(visible.cloned().collect()),
            });
        }
    }
}

fn has_graph(pattern: &mut GraphPattern) -> bool {
    if matches!(pattern, GraphPattern::Graph { .. }) {
        return true;
    }
    let mut found = false;
    walk::inside(pattern, &mut |inner| found |= has_graph(inner));
    found
}

/// Evaluates a pattern in one graph: what is below its modifiers, and every `EXISTS` among them.
/// The pattern of nothing is left outside, because some servers find no row of it in a graph.
fn inside(pattern: &mut GraphPattern, graph: &NamedNode) {
    match pattern {
        GraphPattern::Graph { .. } => (),
        GraphPattern::Bgp { patterns } if patterns.is_empty() => (),
        GraphPattern::Values { .. } => (),
        GraphPattern::Project { .. }
        | GraphPattern::Distinct { .. }
        | GraphPattern::Reduced { .. }
        | GraphPattern::Slice { .. }
        | GraphPattern::OrderBy { .. }
        | GraphPattern::Group { .. }
        | GraphPattern::Extend { .. } => inside_parts(pattern, graph),
        GraphPattern::Bgp { .. }
        | GraphPattern::Path { .. }
        | GraphPattern::Join { .. }
        | GraphPattern::LeftJoin { .. }
        | GraphPattern::Lateral { .. }
        | GraphPattern::Filter { .. }
        | GraphPattern::Union { .. }
        | GraphPattern::Minus { .. }
        | GraphPattern::Service { .. } => {
            if has_nothing(pattern) {
                inside_parts(pattern, graph);
            } else {
                let inner = Box::new(std::mem::take(pattern));
                *pattern = GraphPattern::Graph {
                    name: graph.clone().into(),
                    inner,
                };
            }
        }
    }
}

fn inside_parts(pattern: &mut GraphPattern, graph: &NamedNode) {
    walk::inside(pattern, &mut |inner| inside(inner, graph));
}

/// Whether a pattern of nothing stands in it.
fn has_nothing(pattern: &mut GraphPattern) -> bool {
    match pattern {
        GraphPattern::Graph { .. } => return false,
        GraphPattern::Bgp { patterns } => return patterns.is_empty(),
        GraphPattern::Values { .. } => return false,
        _ => (),
    }
    let mut found = false;
    walk::inside(pattern, &mut |inner| found |= has_nothing(inner));
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use spargebra::SparqlParser;

    fn written(sparql: &str, union: &Union) -> String {
        let query = SparqlParser::new().parse_query(sparql).unwrap();
        let text = plan(query, union).text;
        assert!(SparqlParser::new().parse_query(&text).is_ok(), "{text}");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_default_graph_becomes_the_union_and_named_graphs_stay() {
        let hidden = "FILTER((!(sameTerm(?g, <urn:agentfleet:graph:none>))))";
        let table = [
            (
                "SELECT ?s { ?s <urn:p> ?o }",
                "SELECT ?s WHERE { GRAPH <urn:x-arq:UnionGraph> { ?s <urn:p> ?o . } }".to_owned(),
            ),
            (
                "SELECT ?s { ?s <urn:p> ?o } ORDER BY ?o LIMIT 1",
                "SELECT ?s WHERE { GRAPH <urn:x-arq:UnionGraph> { ?s <urn:p> ?o . } } \
                 ORDER BY ASC(?o) LIMIT 1"
                    .to_owned(),
            ),
            (
                "ASK { GRAPH ?g { ?s <urn:p> ?o } ?s <urn:q> ?r }",
                format!(
                    "ASK WHERE {{ GRAPH <urn:x-arq:UnionGraph> {{ \
                     {{ GRAPH ?g {{ ?s <urn:p> ?o . }} {hidden} }} ?s <urn:q> ?r . }} }}"
                ),
            ),
            (
                "SELECT ?s FROM <urn:g> { ?s <urn:p> ?o FILTER EXISTS { ?o ?p ?q } }",
                "SELECT ?s WHERE { GRAPH <urn:g> { ?s <urn:p> ?o . FILTER(EXISTS { ?o ?p ?q . }) } }"
                    .to_owned(),
            ),
            (
                "SELECT ?s FROM <urn:g> FROM <urn:h> { ?s <urn:p> ?o }",
                "SELECT ?s FROM <urn:g> FROM <urn:h> WHERE { ?s <urn:p> ?o . }".to_owned(),
            ),
            (
                "SELECT ?s FROM <urn:g> { GRAPH <urn:h> { ?s <urn:p> ?o } }",
                "SELECT ?s FROM <urn:g> WHERE { GRAPH <urn:h> { ?s <urn:p> ?o . } }".to_owned(),
            ),
        ];
        for (sparql, expected) in table {
            assert_eq!(written(sparql, &Union::Jena), expected);
        }
        let listed = Union::Listed(["urn:g", NO_GRAPH].map(NamedNode::new_unchecked).to_vec());
        assert_eq!(
            written("ASK { ?s <urn:p> ?o }", &listed),
            "ASK FROM <urn:g> FROM <urn:agentfleet:graph:none> FROM NAMED <urn:g> \
             WHERE { ?s <urn:p> ?o . }"
        );
    }

    #[test]
    fn blank_nodes_of_a_query_are_variables_that_nobody_selects() {
        let text = written(
            "SELECT * { [] <urn:p> ?a . ?a <urn:q>/<urn:r>+ _:x OPTIONAL { _:y <urn:p> ?b } }",
            &Union::Native,
        );
        assert!(!text.contains("_:"), "{text}");
        assert!(text.starts_with("SELECT ?a ?b WHERE"), "{text}");
        let counted = written(
            "SELECT (COUNT(DISTINCT *) AS ?n) { ?s <urn:p> [] }",
            &Union::Native,
        );
        assert!(counted.contains("{ SELECT ?s WHERE {"), "{counted}");
    }

    #[test]
    fn stored_blank_nodes_say_what_they_are() {
        let text = written(
            "ASK { ?s ?p ?o FILTER(isBlank(?o) || isIRI(?s)) }",
            &Union::Jena,
        );
        assert!(
            text.contains(
                "isBLANK(?o) || (isIRI(?o) && STRSTARTS(STR(?o), \"urn:agentfleet:blank:\"))"
            ),
            "{text}"
        );
        assert!(text.contains("(isIRI(?s) && (!(STRSTARTS("), "{text}");
    }

    #[test]
    fn graphs_are_made_from_rows() {
        let construct = written(
            "CONSTRUCT { ?s <urn:q> ?o } { ?s <urn:p> ?o ; <urn:r> ?x } ORDER BY ?x LIMIT 3",
            &Union::Native,
        );
        assert!(construct.starts_with("SELECT ?o ?s WHERE {"), "{construct}");
        assert!(
            construct.ends_with("ORDER BY ASC(?x) LIMIT 3"),
            "{construct}"
        );
        let describe = written(
            "DESCRIBE ?a <urn:x> { ?a <urn:p> 1 } LIMIT 1",
            &Union::Native,
        );
        assert_eq!(describe.matches(" UNION ").count(), 1, "{describe}");
        assert_eq!(describe.matches("LIMIT 1").count(), 2, "{describe}");
    }
}
