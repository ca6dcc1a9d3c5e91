//! Every endpoint, in one closed list: routes, the index, the OpenAPI document and the tests are
//! made from it, so that none of them can forget one.

use crate::guard::{self, Hosts};
use crate::options::{Doors, Options};
use crate::problem::{Code, Problem};
use crate::state::App;
use crate::{
    accept, approvals, document, events, health, index, session, sessions, sparql, trace, update,
};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::Method;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use std::time::Duration;

/// One method at one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Index,
    OpenApi,
    Live,
    Ready,
    Metrics,
    Ask,
    Sessions,
    Session,
    CancelSession,
    Events,
    Trace,
    Approvals,
    Answer,
    Document,
    SparqlGet,
    SparqlPost,
    GraphUpdate,
}

impl Endpoint {
    pub(crate) const ALL: [Self; 17] = [
        Self::Index,
        Self::OpenApi,
        Self::Live,
        Self::Ready,
        Self::Metrics,
        Self::Ask,
        Self::Sessions,
        Self::Session,
        Self::CancelSession,
        Self::Events,
        Self::Trace,
        Self::Approvals,
        Self::Answer,
        Self::Document,
        Self::SparqlGet,
        Self::SparqlPost,
        Self::GraphUpdate,
    ];

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Index => "/",
            Self::OpenApi => "/openapi.json",
            Self::Live => "/health/live",
            Self::Ready => "/health/ready",
            Self::Metrics => "/metrics",
            Self::Ask => "/requests",
            Self::Sessions => "/sessions",
            Self::Session | Self::CancelSession => "/sessions/{id}",
            Self::Events => "/sessions/{id}/events",
            Self::Trace => "/sessions/{id}/trace",
            Self::Approvals => "/approvals",
            Self::Answer => "/approvals/{id}",
            Self::Document => "/documents",
            Self::SparqlGet | Self::SparqlPost => "/sparql",
            Self::GraphUpdate => update::PATH,
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::Ask | Self::Answer | Self::SparqlPost | Self::GraphUpdate => Method::POST,
            Self::CancelSession => Method::DELETE,
            Self::Index
            | Self::OpenApi
            | Self::Live
            | Self::Ready
            | Self::Metrics
            | Self::Sessions
            | Self::Session
            | Self::Events
            | Self::Trace
            | Self::Approvals
            | Self::Document
            | Self::SparqlGet => Method::GET,
        }
    }

    pub(crate) fn summary(self) -> &'static str {
        match self {
            Self::Index => "What there is",
            Self::OpenApi => "This API, as OpenAPI 3.1",
            Self::Live => "Whether the gateway runs",
            Self::Ready => "Whether a request would be answered",
            Self::Metrics => "Numbers for Prometheus",
            Self::Ask => "Ask: at once with the session id, or as a stream of events",
            Self::Sessions => "Root sessions, newest first",
            Self::Session => "What became of a session",
            Self::CancelSession => "End a run",
            Self::Events => "The events of a run, from the start or from where a reader left",
            Self::Trace => "Why: the provenance of a session and all below it",
            Self::Approvals => "Calls that wait for a person, the oldest first",
            Self::Answer => "Approve, deny or edit a call that waits",
            Self::Document => "A text of the librarian: an answer, an observation, a rationale",
            Self::SparqlGet => "Query the graph (SPARQL 1.1 protocol, read-only)",
            Self::SparqlPost => "Query the graph, with the query in the body",
            Self::GraphUpdate => "Add to the graph, with the token of the data directory",
        }
    }

    /// Whether a gateway with these options has it.
    pub(crate) fn is_served(self, options: &Options) -> bool {
        match options.doors {
            Doors::All => self != Self::GraphUpdate || options.graph_token.is_some(),
            Doors::Health => matches!(self, Self::Live | Self::Ready | Self::Metrics),
        }
    }

    /// Whether it needs no token: what probes and scrapers read, and what says nothing of the fleet.
    pub(crate) fn is_public(self) -> bool {
        matches!(
            self,
            Self::Index | Self::OpenApi | Self::Live | Self::Ready | Self::Metrics
        )
    }

    fn handler(self) -> MethodRouter<App> {
        match self {
            Self::Index => get(index::index),
            Self::OpenApi => get(index::openapi),
            Self::Live => get(health::live),
            Self::Ready => get(health::ready),
            Self::Metrics => get(health::metrics),
            Self::Ask => post(accept::ask),
            Self::Sessions => get(sessions::list),
            Self::Session => get(session::show),
            Self::CancelSession => delete(session::cancel),
            Self::Events => get(events::follow),
            Self::Trace => get(trace::show),
            Self::Approvals => get(approvals::list),
            Self::Answer => post(approvals::answer),
            Self::Document => get(document::show),
            Self::SparqlGet => get(sparql::get),
            Self::SparqlPost => post(sparql::post),
            // Its own limit stands before the one of all others.
            Self::GraphUpdate => {
                post(update::update).layer(DefaultBodyLimit::max(update::MAX_BODY))
            }
        }
    }

    /// Whether it gives the fleet something to do, which the queue and the documents take in.
    fn takes_in(self) -> bool {
        matches!(self, Self::Ask | Self::CancelSession | Self::Answer)
    }

    /// How long it may take until its answer begins.
    fn patience(self, options: &Options) -> Duration {
        let own = match self {
            Self::Session => options.max_wait,
            Self::Trace | Self::SparqlGet | Self::SparqlPost | Self::GraphUpdate => {
                options.max_query_timeout
            }
            Self::Index
            | Self::OpenApi
            | Self::Live
            | Self::Ready
            | Self::Metrics
            | Self::Ask
            | Self::Sessions
            | Self::CancelSession
            | Self::Events
            | Self::Approvals
            | Self::Answer
            | Self::Document => Duration::ZERO,
        };
        options.request_timeout + own
    }
}

/// All routes, guarded.
pub(crate) fn routes(app: App, hosts: Hosts) -> Router {
    let mut router = Router::new();
    let served = Endpoint::ALL.into_iter();
    for endpoint in served.filter(|endpoint| endpoint.is_served(&app.options)) {
        let patience = endpoint.patience(&app.options);
        let mut handler = endpoint.handler();
        if endpoint.takes_in() {
            handler = handler.layer(from_fn_with_state(app.clone(), guard::soon));
        }
        let handler = handler.layer(from_fn_with_state(patience, guard::within));
        let token = app.options.token.clone().filter(|_| !endpoint.is_public());
        let handler = handler.layer(from_fn_with_state(token, guard::authorized));
        router = router.route(endpoint.path(), handler);
    }
    let max_body = app.options.max_body;
    router
        .fallback(no_such_endpoint)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(max_body))
        .layer(map_response(plain_rejection))
        .layer(from_fn_with_state(hosts, guard::guard))
        .with_state(app)
}

async fn no_such_endpoint(request: Request) -> Problem {
    let path = request.uri().path();
    Problem::new(
        Code::NoSuchEndpoint,
        format!("there is nothing at `{path}`"),
    )
    .hint("`GET /` lists the endpoints")
}

async fn method_not_allowed(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(
        Code::MethodNotAllowed,
        format!("`{path}` has no method `{method}`"),
    )
    .hint("the `Allow` header lists the methods it has")
}

/// The framework refuses a few things by itself, in plain text: they get the form of all errors.
async fn plain_rejection(response: Response) -> Response {
    let status = response.status();
    let plain = response
        .headers()
        .get(axum::http::header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() && plain) {
        return response;
    }
    let code = match status.as_u16() {
        413 => Code::RequestTooLarge,
        415 => Code::UnsupportedMediaType,
        _ => Code::InvalidRequest,
    };
    let reason = axum::body::to_bytes(response.into_body(), 4096)
        .await
        .unwrap_or_default();
    Problem::new(code, String::from_utf8_lossy(&reason).to_lowercase()).into_response()
}
