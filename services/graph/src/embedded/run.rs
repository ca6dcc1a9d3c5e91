//! Running one query on the store in memory, to its last row.

use crate::error::Error;
use crate::{Answer, Solutions, terms};
use agentfleet_schema::uris::is_tenant_graph;
use oxigraph::model::{GraphName, NamedOrBlankNode};
use oxigraph::sparql::{CancellationToken, QueryEvaluationError, QueryResults, SparqlEvaluator};
use oxigraph::store::Store;
use spargebra::Query;

/// Runs a query and collects its answer. Blocks; ends soon after `token` is cancelled.
///
/// Nothing of the engine outlives this call: an open cursor would hold up the writer.
pub(crate) fn run(
    query: Query,
    store: &Store,
    token: CancellationToken,
    max_rows: usize,
) -> Result<Answer, Error> {
    let mut prepared = SparqlEvaluator::new()
        .with_cancellation_token(token)
        .for_query(query);
    if prepared.dataset().is_default_dataset() {
        match union(store)? {
            None => prepared.dataset_mut().set_default_graph_as_union(),
            Some(graphs) => prepared.dataset_mut().set_default_graph(graphs),
        }
    }
    match prepared.on_store(store).execute().map_err(failed)? {
        QueryResults::Boolean(value) => Ok(Answer::Boolean(value)),
        QueryResults::Solutions(found) => {
            let variables: Vec<String> = found
                .variables()
                .iter()
                .map(|variable| variable.as_str().to_owned())
                .collect();
            let mut rows = Vec::new();
            for solution in found {
                let solution = solution.map_err(failed)?;
                if rows.len() == max_rows {
                    return Err(Error::TooManyRows(max_rows));
                }
                let row = solution
                    .values()
                    .iter()
                    .map(|term| term.clone().map(terms::wire));
                rows.push(row.collect());
            }
            Ok(Answer::Solutions(Solutions { variables, rows }))
        }
        QueryResults::Graph(found) => {
            let mut triples = Vec::new();
            for triple in found {
                let triple = triple.map_err(failed)?;
                if triples.len() == max_rows {
                    return Err(Error::TooManyRows(max_rows));
                }
                triples.push(terms::wire_triple(triple));
            }
            Ok(Answer::Triples(triples))
        }
    }
}

/// The graphs that the default graph is the union of, where those are not all: what is said again for a tenant
/// would give every row twice.
fn union(store: &Store) -> Result<Option<Vec<GraphName>>, Error> {
    let mut is_said_again = false;
    let mut graphs = vec![GraphName::DefaultGraph];
    for graph in store.named_graphs() {
        match graph.map_err(Error::engine)? {
            NamedOrBlankNode::NamedNode(name) if is_tenant_graph(name.as_str()) => {
                is_said_again = true;
            }
            other => graphs.push(other.into()),
        }
    }
    Ok(is_said_again.then_some(graphs))
}

fn failed(error: QueryEvaluationError) -> Error {
    match error {
        QueryEvaluationError::Cancelled => Error::Stopped,
        other => Error::Evaluation(Box::new(other)),
    }
}
