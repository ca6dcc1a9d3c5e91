//! Bindings: a value takes the place of a variable, in the algebra.
//!
//! The value is a term, never text, so it cannot change what the query says. Because it stands in
//! the patterns before the query is planned, the planner sees the constant, and the variable need
//! not be selected. A variable of a sub-select that does not select it is another variable with
//! the same name, and stays. Where the variable is selected, its value is in the answer.

use super::walk;
use crate::error::{BindingFault, Error};
use crate::terms;
use agentfleet_schema::Term;
use oxigraph::model::{Literal, Term as RdfTerm, Variable};
use spargebra::Query;
use spargebra::algebra::{Expression, Function, GraphPattern};
use spargebra::term::{GroundTerm, NamedNodePattern, TermPattern, TriplePattern};

/// Puts all bindings into a query.
pub(crate) fn bind(query: &mut Query, bindings: &[(&str, Term)]) -> Result<(), Error> {
    for (name, value) in bindings {
        Binding::new(name, value)
            .and_then(|mut binding| binding.query(query))
            .map_err(|fault| Error::Binding {
                name: (*name).to_owned(),
                fault,
            })?;
    }
    Ok(())
}

struct Binding {
    variable: Variable,
    value: GroundTerm,
    used: bool,
}

impl Binding {
    fn new(name: &str, value: &Term) -> Result<Self, BindingFault> {
        let variable = Variable::new(name).map_err(|_| BindingFault::Name)?;
        let value = GroundTerm::try_from(terms::term(value, "the value")?)
            .map_err(|()| BindingFault::Blank)?;
        Ok(Self {
            variable,
            value,
            used: false,
        })
    }

    fn query(&mut self, query: &mut Query) -> Result<(), BindingFault> {
        if let Query::Construct { template, .. } = query {
            for triple in template {
                self.triple(triple)?;
            }
        }
        self.pattern(walk::pattern_of(query), true)?;
        if self.used {
            Ok(())
        } else {
            Err(BindingFault::Unused)
        }
    }

    /// `outermost`: no projection was passed yet, so the variable is in scope whatever is selected.
    fn pattern(&mut self, pattern: &mut GraphPattern, outermost: bool) -> Result<(), BindingFault> {
        match pattern {
            GraphPattern::Bgp { patterns } => {
                for triple in patterns {
                    self.triple(triple)?;
                }
            }
            GraphPattern::Path {
                subject, object, ..
            } => {
                self.term(subject)?;
                self.term(object)?;
            }
            GraphPattern::Minus { left, right } => {
                // MINUS removes only where the sides share a variable: keep the shared one.
                let shared = self.in_scope(left) && self.in_scope(right);
                self.pattern(left, false)?;
                self.pattern(right, false)?;
                if shared {
                    self.extend(left);
                    self.extend(right);
                }
            }
            GraphPattern::Graph { name, inner } => {
                self.name(name)?;
                self.pattern(inner, false)?;
            }
            GraphPattern::Extend { variable, .. } if *variable == self.variable => {
                return Err(BindingFault::Assigned);
            }
            GraphPattern::Values {
                variables,
                bindings,
            } => self.values(variables, bindings),
            GraphPattern::Project { inner, variables } => {
                let selected = variables.contains(&self.variable);
                if selected || outermost {
                    self.pattern(inner, false)?;
                }
                if selected {
                    self.used = true;
                    self.extend(inner);
                }
            }
            GraphPattern::Group { variables, .. } => {
                let is_key = variables.contains(&self.variable);
                self.parts(pattern, false)?;
                if let GraphPattern::Group { inner, .. } = pattern
                    && is_key
                {
                    self.used = true;
                    self.extend(inner);
                }
            }
            // Modifiers of a select, and what may stand between it and its projection.
            GraphPattern::Filter { .. }
            | GraphPattern::Extend { .. }
            | GraphPattern::OrderBy { .. }
            | GraphPattern::Distinct { .. }
            | GraphPattern::Reduced { .. }
            | GraphPattern::Slice { .. } => self.parts(pattern, outermost)?,
            GraphPattern::Join { .. }
            | GraphPattern::LeftJoin { .. }
            | GraphPattern::Lateral { .. }
            | GraphPattern::Union { .. }
            | GraphPattern::Service { .. } => self.parts(pattern, false)?,
        }
        Ok(())
    }

    fn parts(&mut self, pattern: &mut GraphPattern, outermost: bool) -> Result<(), BindingFault> {
        let (patterns, expressions) = walk::parts(pattern);
        for expression in expressions {
            self.expression(expression)?;
        }
        for inner in patterns {
            self.pattern(inner, outermost)?;
        }
        Ok(())
    }

    fn in_scope(&self, pattern: &GraphPattern) -> bool {
        let mut found = false;
        pattern.on_in_scope_variable(|variable| found |= *variable == self.variable);
        found
    }

    /// Gives the variable back to what is around `inner`, with its value.
    fn extend(&self, inner: &mut Box<GraphPattern>) {
        if self.in_scope(inner) {
            return;
        }
        let pattern = std::mem::take(inner);
        **inner = GraphPattern::Extend {
            inner: pattern,
            variable: self.variable.clone(),
            expression: constant(&self.value),
        };
    }

    fn triple(&mut self, triple: &mut TriplePattern) -> Result<(), BindingFault> {
        self.term(&mut triple.subject)?;
        self.name(&mut triple.predicate)?;
        self.term(&mut triple.object)
    }

    fn term(&mut self, term: &mut TermPattern) -> Result<(), BindingFault> {
        match term {
            TermPattern::Variable(variable) if *variable == self.variable => {
                self.used = true;
                *term = RdfTerm::from(self.value.clone()).into();
            }
            TermPattern::Triple(triple) => self.triple(triple)?,
            TermPattern::Variable(_)
            | TermPattern::NamedNode(_)
            | TermPattern::BlankNode(_)
            | TermPattern::Literal(_) => (),
        }
        Ok(())
    }

    fn name(&mut self, name: &mut NamedNodePattern) -> Result<(), BindingFault> {
        if matches!(name, NamedNodePattern::Variable(variable) if *variable == self.variable) {
            let GroundTerm::NamedNode(node) = &self.value else {
                return Err(BindingFault::NotIri);
            };
            self.used = true;
            *name = node.clone().into();
        }
        Ok(())
    }

    /// Keeps the rows that agree with the value, without its column.
    fn values(&mut self, variables: &mut Vec<Variable>, rows: &mut Vec<Vec<Option<GroundTerm>>>) {
        if let Some(column) = variables
            .iter()
            .position(|variable| *variable == self.variable)
        {
            self.used = true;
            variables.remove(column);
            rows.retain_mut(|row| row.remove(column).is_none_or(|term| term == self.value));
        }
    }

    fn expression(&mut self, expression: &mut Expression) -> Result<(), BindingFault> {
        match expression {
            Expression::Variable(variable) => {
                if *variable == self.variable {
                    self.used = true;
                    *expression = constant(&self.value);
                }
            }
            Expression::Bound(variable) => {
                if *variable == self.variable {
                    self.used = true;
                    *expression = Literal::from(true).into();
                }
            }
            Expression::Exists(pattern) => self.pattern(pattern, false)?,
            other => {
                for operand in walk::operands(other) {
                    self.expression(operand)?;
                }
            }
        }
        Ok(())
    }
}

/// A term as an expression.
fn constant(term: &GroundTerm) -> Expression {
    match term {
        GroundTerm::NamedNode(node) => node.clone().into(),
        GroundTerm::Literal(literal) => literal.clone().into(),
        GroundTerm::Triple(triple) => Expression::FunctionCall(
            Function::Triple,
            vec![
                triple.subject.clone().into(),
                triple.predicate.clone().into(),
                constant(&triple.object),
            ],
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_schema::TermType;
    use spargebra::SparqlParser;

    fn bound(sparql: &str, value: &Term) -> Result<String, BindingFault> {
        let mut query = SparqlParser::new().parse_query(sparql).unwrap();
        match bind(&mut query, &[("v", value.clone())]) {
            Ok(()) => Ok(query.to_string()),
            Err(Error::Binding { fault, .. }) => Err(fault),
            Err(other) => unreachable!("{other}"),
        }
    }

    #[test]
    fn the_value_stands_wherever_the_variable_stood() {
        let table = [
            ("?v <urn:p> ?o", "<urn:x> <urn:p> ?o ."),
            ("?s ?v ?o", "?s <urn:x> ?o ."),
            (
                "?s ?p <<( ?v ?v ?o )>>",
                "?s ?p <<( <urn:x> <urn:x> ?o )>> .",
            ),
            ("GRAPH ?v { ?s ?p ?o }", "GRAPH <urn:x> { ?s ?p ?o . }"),
            ("?v <urn:p>+ ?o", "<urn:x> (<urn:p>)+ ?o ."),
            (
                "?s ?p ?o FILTER(?o = ?v)",
                "?s ?p ?o . FILTER((?o = <urn:x>))",
            ),
            (
                "?s ?p ?o FILTER(BOUND(?v))",
                "?s ?p ?o . FILTER(\"true\"^^<http://www.w3.org/2001/XMLSchema#boolean>)",
            ),
            (
                "?s ?p ?o FILTER(IF(?o, ?v, ?s) IN (?s, ?v))",
                "?s ?p ?o . FILTER((IF(?o, <urn:x>, ?s) IN (?s, <urn:x>)))",
            ),
            (
                "?s ?p ?o FILTER EXISTS { ?s ?p ?v }",
                "?s ?p ?o . FILTER(EXISTS { ?s ?p <urn:x> . })",
            ),
            (
                "?s ?p ?o OPTIONAL { ?s ?p ?v FILTER(?v = ?o) }",
                "?s ?p ?o . OPTIONAL { ?s ?p <urn:x> . FILTER((<urn:x> = ?o)) }",
            ),
        ];
        for (before, after) in table {
            let found = bound(&format!("SELECT ?o {{ {before} }}"), &Term::iri("urn:x")).unwrap();
            let words: Vec<&str> = found.split_whitespace().collect();
            let after = format!("SELECT ?o WHERE {{ {after} }}");
            assert_eq!(words.join(" "), after);
        }
    }

    #[test]
    fn what_cannot_be_bound_is_refused_with_its_reason() {
        let iri = Term::iri("urn:x");
        let blank = Term {
            kind: TermType::Blank,
            id: "b".to_owned(),
            ..Term::default()
        };
        let table = [
            ("ASK { ?s ?p ?o }", &iri, BindingFault::Unused),
            ("SELECT * { BIND(1 AS ?v) }", &iri, BindingFault::Assigned),
            (
                "SELECT (COUNT(*) AS ?v) { ?s ?p ?o }",
                &iri,
                BindingFault::Assigned,
            ),
            ("ASK { ?s ?v ?o }", &Term::text("x"), BindingFault::NotIri),
            ("ASK { ?s ?p ?v }", &blank, BindingFault::Blank),
            // Another variable of the same name.
            (
                "SELECT ?s { ?s ?p ?o { SELECT ?s { ?s ?p ?v } } }",
                &iri,
                BindingFault::Unused,
            ),
        ];
        for (sparql, value, fault) in table {
            assert_eq!(bound(sparql, value), Err(fault), "{sparql}");
        }
        assert!(matches!(
            bound("ASK { ?s ?p ?v }", &Term::iri("no iri")),
            Err(BindingFault::Term(_))
        ));
    }
}
