//! The query part of the SPARQL 1.1 protocol, read-only (<https://www.w3.org/TR/sparql11-protocol/>).
//!
//! The default graph is the union of all graphs, for a key of those that are open to it. What the graph refuses (updates, `SERVICE`, what
//! could exhaust the machine) it refuses by itself; here are the three ways to send a query, the
//! timeout, the number of queries at once, and the form of the answer.

use crate::accept::refused_body;
use crate::identity::Caller;
use crate::negotiate::{self, Offer};
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::rdf;
use crate::state::{App, most_queries};
use crate::update;
use agentfleet_graph::{Answer, Error as GraphError, QueryOptions};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::time::Duration;
use tokio::time::Instant;

const FORM: &str = "application/x-www-form-urlencoded";
const QUERY: &str = "application/sparql-query";
const UPDATE: &str = "application/sparql-update";

/// `GET /sparql`.
pub(crate) async fn get(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = Params::of(query.unwrap_or_default().as_bytes());
    let query = query_of(&params)?;
    answer(&app, &caller, &query, &params, &headers).await
}

/// `POST /sparql`.
pub(crate) async fn post(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    RawQuery(url): RawQuery,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let body = body.map_err(|rejection| refused_body(&rejection, app.options.max_body))?;
    let mut params = Params::of(url.unwrap_or_default().as_bytes());
    let query = match negotiate::body_type(&headers).as_str() {
        FORM => {
            params.extend(Params::of(&body));
            query_of(&params)?
        }
        QUERY => {
            if params.all("query").next().is_some() {
                return Err(Problem::new(
                    Code::MissingQuery,
                    "there is a query in the body and another in the URL",
                )
                .hint("send one of them"));
            }
            String::from_utf8(body.to_vec())
                .map_err(|_| Problem::new(Code::QuerySyntax, "the query is not UTF-8"))?
        }
        UPDATE => return Err(read_only()),
        other => {
            let given = if other.is_empty() { "no type" } else { other };
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                format!("a query cannot be read from a body of {given}"),
            )
            .hint(format!(
                "send `{QUERY}` with the query as it is, or `{FORM}` with `query=`"
            )));
        }
    };
    answer(&app, &caller, &query, &params, &headers).await
}

fn read_only() -> Problem {
    Problem::new(Code::ReadOnly, "this endpoint only reads")
        .hint("the graph is written by the fleet, and by `agentfleet load`")
}

fn query_of(params: &Params) -> Result<String, Problem> {
    if params.all("update").next().is_some() {
        return Err(read_only());
    }
    let mut queries = params.all("query");
    match (queries.next(), queries.next()) {
        (Some(query), None) => Ok(query.to_owned()),
        (None, _) => Err(Problem::new(Code::MissingQuery, "there is no query")
            .hint("send it as `?query=`, or in the body of a POST")),
        (Some(_), Some(_)) => Err(Problem::new(
            Code::MissingQuery,
            "there is more than one `query`",
        )),
    }
}

async fn answer(
    app: &App,
    caller: &Caller,
    query: &str,
    params: &Params,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    for name in ["default-graph-uri", "named-graph-uri"] {
        if params.all(name).next().is_some() {
            return Err(
                Problem::new(Code::DatasetParameter, format!("`{name}` is not supported"))
                    .hint("say it in the query, with `FROM` and `FROM NAMED`"),
            );
        }
    }
    let timeout = timeout(app, params)?;
    let until = Instant::now() + timeout;
    let of_tenant = caller.key().is_some();
    let turn = app.query_turn(of_tenant);
    let acquired = tokio::select! {
        acquired = tokio::time::timeout_at(until, turn) => acquired,
        () = app.stop.cancelled() => return Err(Problem::stopping()),
    };
    let Ok(Ok(running)) = acquired else {
        let most = most_queries(&app.options, of_tenant);
        return Err(Problem::new(
            Code::TooBusy,
            format!(
                "{most} queries were running for all of {} s, which is the most",
                timeout.as_secs_f64()
            ),
        )
        .hint("try again soon"));
    };
    let options = QueryOptions {
        timeout: until.saturating_duration_since(Instant::now()),
        max_rows: app.options.max_rows,
        apart: true,
        graphs: caller.graphs(),
    };
    let answer = tokio::select! {
        answer = app.parts.graph.query(query, &[], options) => answer,
        // It may take minutes more, and nothing is lost with it: what is dropped ends.
        () = app.stop.cancelled() => return Err(Problem::stopping()),
    };
    if let Err(error @ GraphError::ClosedGraph(graph, _)) = &answer {
        let problem = Problem::new(Code::QueryRefused, error.to_string());
        app.overstepped(caller, graph, &problem);
        return Err(problem);
    }
    let answer = answer.map_err(|error| match error {
        // What was waited for a turn counts, too.
        GraphError::Timeout(_) => GraphError::Timeout(timeout),
        other => other,
    })?;
    let mut response = match &answer {
        Answer::Boolean(_) | Answer::Solutions(_) => {
            let offer = choose(params, headers, rdf::RESULTS)?;
            let format = offer.form;
            let body = rdf::write(answer, move |answer| rdf::results(answer, format)).await?;
            typed(body, offer.content_type)
        }
        Answer::Triples(_) => {
            let offer = choose(params, headers, rdf::GRAPHS)?;
            let format = offer.form;
            let body = rdf::write(answer, move |answer| rdf::graph(answer, format)).await?;
            typed(body, offer.content_type)
        }
    };
    drop(running);
    update::announce(app, &mut response);
    Ok(response)
}

fn timeout(app: &App, params: &Params) -> Result<Duration, Problem> {
    let most = app.options.max_query_timeout;
    let Some(seconds) = params.number::<f64>("timeout", "a number of seconds")? else {
        return Ok(app.options.query_timeout.min(most));
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) if timeout > Duration::ZERO && timeout <= most => Ok(timeout),
        _ => Err(Problem::parameter(
            "timeout",
            format!("must be above 0 and at most {} seconds", most.as_secs_f64()),
        )),
    }
}

/// `format` or `output`, as many clients send it, goes before `Accept`, where it fits the answer.
fn choose<'a, T>(
    params: &Params,
    headers: &HeaderMap,
    offers: &'a [Offer<T>],
) -> Result<&'a Offer<T>, Problem> {
    let named = params
        .all("format")
        .chain(params.all("output"))
        .find_map(|name| {
            let name = name.to_ascii_lowercase();
            offers.iter().find(|offer| {
                offer.names.contains(&name.as_str()) || offer.media_types.contains(&name.as_str())
            })
        });
    named.map_or_else(|| negotiate::choose(headers, offers), Ok)
}

/// A body with its type.
pub(crate) fn typed(body: Vec<u8>, content_type: &str) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    response
}
