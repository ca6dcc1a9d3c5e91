//! Small SPARQL servers in the test itself: one of ours over an embedded graph, and a plain one over
//! the bare engine, which knows nothing but the standard.

use crate::contract::Fixture;
use agentfleet_graph::{
    EmbeddedGraph, Graph, GraphOptions, QueryOptions, RemoteGraph, RemoteOptions, Solutions, serve,
};
use agentfleet_storage::Database;
use async_trait::async_trait;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use oxigraph::sparql::results::{QueryResultsFormat, QueryResultsSerializer};
use oxigraph::sparql::{QueryResults, SparqlEvaluator};
use oxigraph::store::Store;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

pub(crate) const TOKEN: &str = "the token of the data directory";

/// Serves until the test's runtime ends.
pub(crate) async fn serve(router: Router) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}")
}

pub(crate) async fn connect(options: RemoteOptions) -> Arc<dyn Graph> {
    Arc::new(RemoteGraph::connect(options).await.unwrap())
}

/// Two connections to one address.
pub(crate) async fn pair(options: RemoteOptions) -> (Arc<dyn Graph>, Arc<dyn Graph>) {
    (connect(options.clone()).await, connect(options).await)
}

/// An endpoint of our own, over an embedded graph.
#[derive(Default)]
pub(crate) struct Own(Mutex<Vec<TempDir>>);

#[async_trait]
impl Fixture for Own {
    async fn pair(&self) -> (Arc<dyn Graph>, Arc<dyn Graph>) {
        let directory = TempDir::new().unwrap();
        let url = serve(own(embedded(&directory).await)).await;
        self.0.lock().unwrap().push(directory);
        let mut options = RemoteOptions::new(url);
        options.credentials = Some(agentfleet_graph::Credentials::Bearer(TOKEN.to_owned()));
        pair(options).await
    }
}

pub(crate) async fn embedded(directory: &TempDir) -> EmbeddedGraph {
    let database = Database::open(directory.path()).unwrap();
    EmbeddedGraph::open(database, GraphOptions::default(), &|_, _| ())
        .await
        .unwrap()
}

pub(crate) fn own(graph: EmbeddedGraph) -> Router {
    Router::new()
        .route("/sparql", post(own_query))
        .route("/update", post(own_update))
        .with_state(graph)
}

async fn own_query(State(graph): State<EmbeddedGraph>, body: String) -> Response {
    let options = QueryOptions::default();
    match graph.query(&body, &[], options).await {
        Ok(answer) => {
            let headers = [
                (
                    header::CONTENT_TYPE.as_str(),
                    "application/sparql-results+json",
                ),
                (serve::PEER_HEADER, "/update"),
            ];
            (headers, results(answer)).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

fn results(answer: agentfleet_graph::Answer) -> Vec<u8> {
    use agentfleet_graph::Answer;
    match answer {
        Answer::Boolean(value) => {
            serde_json::to_vec(&serde_json::json!({ "head": {}, "boolean": value })).unwrap()
        }
        Answer::Solutions(found) => written(&found),
        Answer::Triples(_) => unreachable!("a remote graph asks for rows"),
    }
}

fn written(found: &Solutions) -> Vec<u8> {
    use agentfleet_schema::{Term, TermType};
    use serde_json::{Value, json};
    fn value(term: &Term) -> Value {
        match term.kind {
            TermType::Iri => json!({ "type": "uri", "value": term.iri }),
            TermType::Blank => json!({ "type": "bnode", "value": term.id }),
            TermType::Literal => {
                let mut value = json!({ "type": "literal", "value": term.value });
                if let Some((language, direction)) = term.language.split_once("--") {
                    value["xml:lang"] = json!(language);
                    value["its:dir"] = json!(direction);
                } else if !term.language.is_empty() {
                    value["xml:lang"] = json!(term.language);
                }
                if !term.datatype.is_empty() {
                    value["datatype"] = json!(term.datatype);
                }
                value
            }
            TermType::Triple => {
                let inner = term.triple.as_deref().unwrap();
                json!({ "type": "triple", "value": {
                    "subject": value(&inner.s), "predicate": value(&inner.p), "object": value(&inner.o),
                } })
            }
        }
    }
    let rows = found.rows.iter().map(|row| {
        let cells = found.variables.iter().zip(row);
        let cells = cells.filter_map(|(name, term)| Some((name.clone(), value(term.as_ref()?))));
        Value::Object(cells.collect())
    });
    let rows: Vec<Value> = rows.collect();
    let body = json!({ "head": { "vars": found.variables }, "results": { "bindings": rows } });
    serde_json::to_vec(&body).unwrap()
}

async fn own_update(
    State(graph): State<EmbeddedGraph>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let given = headers.get(header::AUTHORIZATION);
    if given.is_none_or(|given| *given != format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let content_type = headers.get(header::CONTENT_TYPE).unwrap().to_str().unwrap();
    match serve::update(&graph, content_type, &body, "served").await {
        Ok(reply) => Json(reply).into_response(),
        Err(error) => {
            let status = StatusCode::from_u16(serve::status(&error)).unwrap();
            (status, error.to_string()).into_response()
        }
    }
}

/// A server that knows the standard and no more.
#[derive(Default)]
pub(crate) struct Plain;

#[async_trait]
impl Fixture for Plain {
    async fn pair(&self) -> (Arc<dyn Graph>, Arc<dyn Graph>) {
        pair(RemoteOptions::new(
            serve(plain(Store::new().unwrap())).await,
        ))
        .await
    }
}

pub(crate) fn plain(store: Store) -> Router {
    Router::new()
        .route("/query", post(plain_query))
        .route("/update", post(plain_update))
        .with_state(store)
}

async fn plain_query(State(store): State<Store>, body: String) -> Response {
    let run = move || {
        let query = SparqlEvaluator::new()
            .parse_query(&body)
            .map_err(|error| error.to_string())?;
        let results = query
            .on_store(&store)
            .execute()
            .map_err(|error| error.to_string())?;
        let serializer = QueryResultsSerializer::from_format(QueryResultsFormat::Json);
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        match results {
            QueryResults::Boolean(value) => serializer
                .serialize_boolean_to_writer(Vec::new(), value)
                .map_err(|error| failed(&error)),
            QueryResults::Solutions(found) => {
                let mut writer = serializer
                    .serialize_solutions_to_writer(Vec::new(), found.variables().to_vec())
                    .map_err(|error| failed(&error))?;
                for row in found {
                    let row = row.map_err(|error| failed(&error))?;
                    writer.serialize(&row).map_err(|error| failed(&error))?;
                }
                writer.finish().map_err(|error| failed(&error))
            }
            QueryResults::Graph(_) => Err("a remote graph asks for rows".to_owned()),
        }
    };
    match tokio::task::spawn_blocking(run).await.unwrap() {
        Ok(body) => {
            let json = [(header::CONTENT_TYPE, "application/sparql-results+json")];
            (json, body).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error).into_response(),
    }
}

async fn plain_update(State(store): State<Store>, body: String) -> Response {
    let run = move || {
        let update = SparqlEvaluator::new()
            .parse_update(&body)
            .map_err(|error| error.to_string())?;
        update
            .on_store(&store)
            .execute()
            .map_err(|error| error.to_string())
    };
    match tokio::task::spawn_blocking(run).await.unwrap() {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error).into_response(),
    }
}

mod on_our_own {
    use super::*;
    graph_contract!(Own::default());
}

mod on_a_plain_server {
    use super::*;
    // But for the timeout: the bare engine cannot be stopped.
    graph_contract!(@each Plain,
        inserting_twice_is_the_same_as_once
        the_other_handle_sees_an_insert_at_once
        inserts_at_the_same_time_all_stand
        the_default_graph_is_the_union_of_all_graphs
        a_bound_variable_need_not_be_selected
        a_binding_cannot_change_the_query
        a_binding_that_does_not_fit_is_refused
        ask_construct_and_describe_answer
        known_prefixes_need_no_declaration
        every_kind_of_term_comes_back
        one_bad_triple_refuses_the_whole_call
        a_bad_query_says_where
        an_update_is_refused_and_changes_nothing
        a_service_is_refused
        more_rows_than_allowed_is_an_error
        only_what_was_inserted_is_seen
        paths_lead_from_graph_to_graph
        nested_parts_of_a_query_keep_their_meaning
        select_gives_rows_and_nothing_else
        erasure_takes_what_no_other_batch_states
        an_empty_name_erases_nothing
        batches_are_counted
    );
}
