//! From shapes and a graph to violations: the nodes a shape is about, their values, its constraints.

use crate::constraint::breaches;
use crate::data::Data;
use crate::error::Error;
use crate::shape::{Constraint, Shape};
use crate::terms::text;
use crate::{Report, Violation, wording};
use oxigraph::model::Term;

/// Everything that the shapes forbid and the graph has.
pub(crate) fn all(shapes: &[Shape], data: &Data) -> Result<Report, Error> {
    let mut report = Report::default();
    for shape in shapes {
        let nodes = data.targeted(&shape.targets);
        report.checked += nodes.len() as u64;
        report.violations.extend(violations(shape, &nodes, data)?);
    }
    report.violations.sort();
    report.violations.dedup();
    Ok(report)
}

/// What a shape finds wrong with nodes.
pub(crate) fn violations(
    shape: &Shape,
    nodes: &[Term],
    data: &Data,
) -> Result<Vec<Violation>, Error> {
    let mut found = Vec::new();
    let values: Vec<(&Term, Vec<Term>)> = nodes
        .iter()
        .map(|node| match &shape.path {
            None => (node, vec![node.clone()]),
            Some(path) => (node, data.values(node, path)),
        })
        .collect();
    for constraint in &shape.constraints {
        match constraint {
            Constraint::Core(core) => {
                for (node, values) in &values {
                    for value in breaches(core, node, values, data)? {
                        let message = shape.message.clone().unwrap_or_else(|| {
                            wording::sentence(core, shape.path.as_ref(), values, value.as_ref())
                        });
                        found.push(Violation {
                            node: text(node.as_ref()),
                            shape: shape.label.clone(),
                            path: shape
                                .path
                                .as_ref()
                                .map(|path| path.text(&|predicate| predicate.as_str().to_owned())),
                            constraint: core.as_str(),
                            value: value.as_ref().map(|value| text(value.as_ref())),
                            message,
                        });
                    }
                }
            }
            Constraint::Property(property) => {
                for (_, values) in &values {
                    found.extend(violations(property, values, data)?);
                }
            }
            Constraint::Sparql(sparql) => found.extend(sparql.violations(shape, nodes, data)?),
        }
    }
    Ok(found)
}
