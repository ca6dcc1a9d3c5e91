//! Running one query on the store in memory, to its last row.

use crate::error::Error;
use crate::{Answer, Solutions, terms};
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
        prepared.dataset_mut().set_default_graph_as_union();
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

fn failed(error: QueryEvaluationError) -> Error {
    match error {
        QueryEvaluationError::Cancelled => Error::Stopped,
        other => Error::Evaluation(Box::new(other)),
    }
}
