//! Writing the graph, for whoever holds the data directory's token: roles in other processes that
//! have no graph of their own. What a request may hold is decided below, in [`serve::update`].

use crate::accept::refused_body;
use crate::guard;
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::state::App;
use agentfleet_graph::serve;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// Where updates are taken; every answer to a query says so.
pub(crate) const PATH: &str = "/graph/update";
/// Largest update, in bytes: a batch of the graph-writer may hold many messages.
pub(crate) const MAX_BODY: usize = 64 * 1024 * 1024;

/// `POST /graph/update`.
pub(crate) async fn update(
    State(app): State<App>,
    RawQuery(url): RawQuery,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let Some(token) = &app.options.graph_token else {
        return Err(Problem::new(
            Code::ReadOnly,
            "the graph of this process is not written from outside",
        ));
    };
    if !guard::holds(token, &headers) {
        return Err(Problem::not_authorized());
    }
    let body = body.map_err(|rejection| refused_body(&rejection, MAX_BODY))?;
    let params = Params::of(url.unwrap_or_default().as_bytes());
    let collection = params.all("collection").next().unwrap_or_default();
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match serve::update(&*app.parts.graph, content_type, &body, collection).await {
        Ok(reply) => Ok(Json(reply).into_response()),
        Err(error) => Err(match serve::status(&error) {
            400 => Problem::new(Code::InvalidUpdate, error.to_string()),
            403 => Problem::new(Code::ReadOnly, error.to_string())
                .hint("statements are only added; `agentfleet purge` takes runs away"),
            415 => Problem::new(Code::UnsupportedMediaType, error.to_string()).hint(
                "send `application/sparql-update` with `INSERT DATA`, or `application/n-quads`",
            ),
            _ => error.into(),
        }),
    }
}

/// Says in an answer to a query where updates are taken, if they are.
pub(crate) fn announce(app: &App, response: &mut Response) {
    if app.options.graph_token.is_some() {
        let headers = response.headers_mut();
        headers.insert(serve::PEER_HEADER, HeaderValue::from_static(PATH));
    }
}
