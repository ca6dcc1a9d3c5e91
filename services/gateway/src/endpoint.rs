//! Every endpoint, in one closed list: routes, the index, the OpenAPI document and the tests are
//! made from it, so that none of them can forget one.

use crate::guard::{self, Hosts};
use crate::identity;
use crate::options::{Doors, Options};
use crate::problem::{Code, Problem};
use crate::state::App;
use crate::{
    accept, approvals, conversation, document, events, health, index, session, sessions, sparql,
    trace, update,
};
use agentfleet_schema::config::action;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use std::time::Duration;

macro_rules! endpoints {
    ($($name:ident = $verb:ident $path:expr, $handler:path, $summary:literal;)+) => {
        /// One method at one path.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Endpoint {
            $($name,)+
        }

        impl Endpoint {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            pub(crate) fn path(self) -> &'static str {
                match self {
                    $(Self::$name => $path,)+
                }
            }

            /// In small letters, as OpenAPI has it.
            pub(crate) fn method(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($verb),)+
                }
            }

            pub(crate) fn summary(self) -> &'static str {
                match self {
                    $(Self::$name => $summary,)+
                }
            }

            fn handler(self) -> MethodRouter<App> {
                match self {
                    $(Self::$name => $verb($handler),)+
                }
            }
        }
    };
}

endpoints! {
    Index = get "/", index::index, "What there is";
    OpenApi = get "/openapi.json", index::openapi, "This API, as OpenAPI 3.1";
    Live = get "/health/live", health::live, "Whether the gateway runs";
    Ready = get "/health/ready", health::ready, "Whether a request would be answered";
    Metrics = get "/metrics", health::metrics, "Numbers for Prometheus";
    Ask = post "/requests", accept::ask,
        "Ask: at once with the session id, or as a stream of events";
    Sessions = get "/sessions", sessions::list, "Root sessions, newest first";
    Session = get "/sessions/{id}", session::show, "What became of a session";
    CancelSession = delete "/sessions/{id}", session::cancel, "End a run";
    Events = get "/sessions/{id}/events", events::follow,
        "The events of a run, from the start or from where a reader left";
    Trace = get "/sessions/{id}/trace", trace::show,
        "Why: the provenance of a session and all below it";
    Conversation = get "/conversations/{id}", conversation::show,
        "What was asked and answered in a conversation, newest first";
    Approvals = get "/approvals", approvals::list,
        "Calls that wait for a person, the oldest first";
    Answer = post "/approvals/{id}", approvals::answer, "Approve, deny or edit a call that waits";
    Document = get "/documents", document::show,
        "A text of the librarian: an answer, an observation, a rationale";
    SparqlGet = get "/sparql", sparql::get, "Query the graph (SPARQL 1.1 protocol, read-only)";
    SparqlPost = post "/sparql", sparql::post, "Query the graph, with the query in the body";
    GraphUpdate = post update::PATH, update::update,
        "Add to the graph, with the token of the data directory";
}

impl Endpoint {
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

    /// What a role of who is not the owner has to allow; with nothing here it is the owner's only.
    pub(crate) fn needs(self) -> Option<&'static str> {
        match self {
            Self::Ask => Some(action::ASK),
            Self::Session => Some(action::SESSION_READ),
            Self::Events => Some(action::SESSION_EVENTS),
            Self::Sessions => Some(action::SESSION_LIST),
            Self::CancelSession => Some(action::SESSION_CANCEL),
            Self::Conversation => Some(action::CONVERSATION_READ),
            Self::Trace => Some(action::TRACE_READ),
            Self::Document => Some(action::DOCUMENT_READ),
            Self::Approvals => Some(action::APPROVAL_LIST),
            Self::Answer => Some(action::APPROVAL_ANSWER),
            Self::SparqlGet | Self::SparqlPost => Some(action::GRAPH_QUERY),
            // Asked of nobody, or of the owner.
            Self::Index
            | Self::OpenApi
            | Self::Live
            | Self::Ready
            | Self::Metrics
            | Self::GraphUpdate => None,
        }
    }

    /// What the audit log calls it.
    pub(crate) fn action(self) -> String {
        format!("{} {}", self.method().to_uppercase(), self.path())
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
            | Self::Conversation
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
    let served = Endpoint::ALL.iter().copied();
    for endpoint in served.filter(|endpoint| endpoint.is_served(&app.options)) {
        let patience = endpoint.patience(&app.options);
        let mut handler = endpoint.handler();
        if endpoint == Endpoint::GraphUpdate {
            // Its own limit stands before the one of all others.
            handler = handler.layer(DefaultBodyLimit::max(update::MAX_BODY));
        }
        if endpoint.takes_in() {
            handler = handler.layer(from_fn_with_state(app.clone(), guard::soon));
        }
        let handler = handler.layer(from_fn_with_state(patience, guard::within));
        let handler = if endpoint.is_public() {
            handler
        } else {
            let door = (app.clone(), endpoint);
            handler.layer(from_fn_with_state(door, identity::enter))
        };
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
