//! A query that sees some graphs only, whatever it says.

use super::walk;
use crate::error::Error;
use oxigraph::model::NamedNode;
use spargebra::Query;
use spargebra::algebra::{GraphPattern, QueryDataset};
use spargebra::term::NamedNodePattern;

/// Closes all graphs but these. A query that names another is refused; one that names none sees all of these.
pub(crate) fn close(query: &mut Query, open: &[String]) -> Result<(), Error> {
    let closed = |name: &NamedNode| {
        let told: Vec<String> = open.iter().map(|name| format!("`<{name}>`")).collect();
        Error::ClosedGraph(name.as_str().to_owned(), told.join(" or "))
    };
    let mut named = Vec::new();
    constants(walk::pattern_of(query), &mut named);
    let (Query::Select { dataset, .. }
    | Query::Construct { dataset, .. }
    | Query::Describe { dataset, .. }
    | Query::Ask { dataset, .. }) = query;
    if let Some(own) = &*dataset {
        named.extend(own.default.iter().cloned());
        named.extend(own.named.iter().flatten().cloned());
    }
    let is_open = |name: &NamedNode| open.iter().any(|one| one == name.as_str());
    if let Some(name) = named.iter().find(|name| !is_open(name)) {
        return Err(closed(name));
    }
    *dataset = Some(match dataset.take() {
        Some(own) => QueryDataset {
            // Left unsaid, an engine may take all that there are.
            named: Some(own.named.unwrap_or_default()),
            ..own
        },
        None => {
            let all: Vec<NamedNode> = open.iter().map(NamedNode::new_unchecked).collect();
            QueryDataset {
                default: all.clone(),
                named: Some(all),
            }
        }
    });
    Ok(())
}

/// Graphs that `GRAPH` names.
fn constants(pattern: &mut GraphPattern, found: &mut Vec<NamedNode>) {
    if let GraphPattern::Graph {
        name: NamedNodePattern::NamedNode(name),
        ..
    } = pattern
    {
        found.push(name.clone());
    }
    walk::inside(pattern, &mut |inner| constants(inner, found));
}
