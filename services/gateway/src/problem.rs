//! Every error a caller can meet, with its stable code and its HTTP status. The one place that says
//! which failure below is whose fault.

use agentfleet_core::provenance::date_time;
use agentfleet_schema::records::Tombstone;
use agentfleet_schema::redacted;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $status:ident;)+) => {
        /// The stable code of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// The HTTP status it comes with.
            pub fn status(self) -> u16 {
                self.status_code().as_u16()
            }

            fn status_code(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)+
                }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    InvalidJson = "invalid-json", BAD_REQUEST;
    /// A field of the body, or a header, has a wrong type or value; the message names it.
    InvalidRequest = "invalid-request", BAD_REQUEST;
    /// The request has no question.
    EmptyQuestion = "empty-question", BAD_REQUEST;
    /// The question is longer than a question may be.
    QuestionTooLong = "question-too-long", BAD_REQUEST;
    /// The request names a pattern that is not configured, or that this version cannot run.
    UnknownPattern = "unknown-pattern", BAD_REQUEST;
    /// The request names a task type that is not configured.
    UnknownTaskType = "unknown-task-type", BAD_REQUEST;
    /// The request names a tool group that no tool is in.
    UnknownGroup = "unknown-group", BAD_REQUEST;
    /// The run is bounded in money, and its model has no prices.
    NoPrices = "no-prices", BAD_REQUEST;
    /// Nothing was loaded as the collection, but as one with nearly the same name.
    UnknownCollection = "unknown-collection", BAD_REQUEST;
    /// A parameter of the URL is missing or has a wrong value.
    InvalidParameter = "invalid-parameter", BAD_REQUEST;
    /// The session is a subagent's; this works on the root session only.
    NotARoot = "not-a-root-session", BAD_REQUEST;
    /// The SPARQL request holds no query, or more than one.
    MissingQuery = "missing-query", BAD_REQUEST;
    /// The SPARQL query cannot be parsed.
    QuerySyntax = "query-syntax", BAD_REQUEST;
    /// The SPARQL query asks for what is not allowed here, such as `SERVICE`.
    QueryRefused = "query-refused", BAD_REQUEST;
    /// `default-graph-uri` and `named-graph-uri` are not supported: the query says it itself.
    DatasetParameter = "dataset-parameter", BAD_REQUEST;
    /// An update of the graph cannot be read; the message says what is wrong.
    InvalidUpdate = "invalid-update", BAD_REQUEST;
    /// The request holds neither the token of the gateway, nor an API key or a token of the issuer that is in force.
    NotAuthorized = "not-authorized", UNAUTHORIZED;
    /// None of the roles of the caller may do this.
    NotPermitted = "not-permitted", FORBIDDEN;
    /// The SPARQL request is an update, and this endpoint only reads.
    ReadOnly = "read-only", FORBIDDEN;
    /// A web page of another origin sent the request.
    OriginNotAllowed = "origin-not-allowed", FORBIDDEN;
    /// Nothing is known of the session.
    UnknownSession = "unknown-session", NOT_FOUND;
    /// Nothing was asked in the conversation.
    UnknownConversation = "unknown-conversation", NOT_FOUND;
    /// Nothing is known of the approval.
    UnknownApproval = "unknown-approval", NOT_FOUND;
    /// There is no such document.
    UnknownDocument = "unknown-document", NOT_FOUND;
    /// There is nothing at this path.
    NoSuchEndpoint = "no-such-endpoint", NOT_FOUND;
    /// The path exists, the method does not.
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED;
    /// None of the media types in `Accept` can be produced.
    NotAcceptable = "not-acceptable", NOT_ACCEPTABLE;
    /// The request took too long to arrive.
    RequestTimeout = "request-timeout", REQUEST_TIMEOUT;
    /// The idempotency key or session id was used for another request.
    RequestConflict = "request-conflict", CONFLICT;
    /// The idempotency key or session id is in use elsewhere.
    SessionTaken = "session-taken", CONFLICT;
    /// The call does not wait any more: somebody answered, or its run ended.
    ApprovalOver = "approval-over", CONFLICT;
    /// The session was erased.
    SessionErased = "session-erased", GONE;
    /// The body is larger than a body may be.
    RequestTooLarge = "request-too-large", PAYLOAD_TOO_LARGE;
    /// The body is not of a media type that is read here.
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE;
    /// The request is addressed to a host this gateway does not answer for.
    HostNotAllowed = "host-not-allowed", MISDIRECTED_REQUEST;
    /// The principal sent as many requests as it may within a minute.
    TooManyRequests = "too-many-requests", TOO_MANY_REQUESTS;
    /// The query has more rows, or takes more memory, than it may.
    QueryTooExpensive = "query-too-expensive", UNPROCESSABLE_ENTITY;
    /// The tenant used up what it may use in a month.
    QuotaUsedUp = "quota-used-up", TOO_MANY_REQUESTS;
    /// Something broke inside; the log of the gateway says what.
    Internal = "internal-error", INTERNAL_SERVER_ERROR;
    /// The query did not end within its timeout.
    QueryTimeout = "query-timeout", SERVICE_UNAVAILABLE;
    /// Too much is going on at once.
    TooBusy = "too-busy", SERVICE_UNAVAILABLE;
    /// A part of the fleet cannot be reached, is full, or did not answer in time.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE;
    /// The gateway is stopping.
    Stopping = "stopping", SERVICE_UNAVAILABLE;
}

/// What every error is answered with.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorDocument {
    error: ErrorView,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ErrorDetail")]
struct ErrorView {
    /// Stable; `docs/http-api.md` lists them.
    code: &'static str,
    /// One sentence that says what was wrong.
    message: String,
    /// What would be right, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

/// An error as a caller meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let retry_after = match code {
            Code::TooBusy | Code::Unavailable | Code::Stopping => Some(1),
            _ => None,
        };
        Self {
            code,
            // What fails below may quote an address.
            message: redacted(&message.into()).into_owned(),
            hint: None,
            retry_after,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// When to come again, in seconds.
    pub(crate) fn after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// A wrong parameter of the URL.
    pub(crate) fn parameter(name: &str, message: impl std::fmt::Display) -> Self {
        Self::new(
            Code::InvalidParameter,
            format!("parameter `{name}`: {message}"),
        )
    }

    pub(crate) fn unknown_session(session: &str) -> Self {
        Self::new(
            Code::UnknownSession,
            format!("nothing is known of session `{session}`"),
        )
        .hint(
            "`GET /sessions` lists the sessions; one that no worker has taken up is not listed yet",
        )
    }

    /// `tombstone` is what was left of it.
    pub(crate) fn erased(session: &str, tombstone: &[u8]) -> Self {
        let when = match Tombstone::read(tombstone).erased_at {
            0 => String::new(),
            at => format!(" at {}", date_time(at)),
        };
        Self::new(
            Code::SessionErased,
            format!("session `{session}` was erased{when}"),
        )
        .hint("ask again under another idempotency key or session id")
    }

    pub(crate) fn not_authorized() -> Self {
        Self::new(Code::NotAuthorized, "this needs the token of the gateway, or an API key").hint(
            "send `Authorization: Bearer TOKEN`; `agentfleet keys create` makes a key, and the token is in `http-token` in the data directory, unless the setting `http-token` says it",
        )
    }

    pub(crate) fn stopping() -> Self {
        Self::new(Code::Stopping, "the gateway is stopping").hint(
            "nothing is lost: runs are durable, and the same request can be repeated with its key",
        )
    }

    /// Something below failed in a way that no caller can help.
    pub(crate) fn internal(what: &str, error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, what, "a request failed");
        Self::new(Code::Internal, format!("{what} failed"))
            .hint("the log of the gateway says what broke")
    }

    /// Something below failed; where it says after which time to try again, it may be back then.
    fn below(
        what: &str,
        error: &dyn std::fmt::Display,
        retry: Option<std::time::Duration>,
    ) -> Self {
        let Some(after) = retry else {
            return Self::internal(what, error);
        };
        tracing::warn!(%error, what, "a request could not be served");
        let mut problem = Self::new(
            Code::Unavailable,
            format!("{what} cannot be reached: {error}"),
        )
        .hint("try again; the same key or session id is safe to repeat");
        problem.retry_after = Some(after.as_secs().max(1));
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self {
            code,
            message,
            hint,
            retry_after,
        } = self;
        let error = ErrorView {
            code: code.as_str(),
            message,
            hint,
        };
        let mut response = (code.status_code(), Json(ErrorDocument { error })).into_response();
        if let Some(after) = retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(after));
        }
        if code == Code::NotAuthorized {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<agentfleet_broker::Error> for Problem {
    fn from(error: agentfleet_broker::Error) -> Self {
        Self::below("the queue", &error, error.retry())
    }
}

impl From<agentfleet_documents::Error> for Problem {
    fn from(error: agentfleet_documents::Error) -> Self {
        Self::below("the database of the records", &error, error.retry())
    }
}

impl From<agentfleet_config::Error> for Problem {
    fn from(error: agentfleet_config::Error) -> Self {
        Self::below("the config store", &error, error.retry())
    }
}

impl From<agentfleet_runtime::Error> for Problem {
    fn from(error: agentfleet_runtime::Error) -> Self {
        use agentfleet_runtime::Error;
        match error {
            Error::Broker(error) => error.into(),
            Error::Documents(error) => error.into(),
            Error::Storage(error) => Self::below("the storage", &error, error.retry()),
            Error::Unreadable { .. } | Error::Missing { .. } => {
                Self::below("the records", &error, None)
            }
        }
    }
}

impl From<agentfleet_runs::Error> for Problem {
    fn from(error: agentfleet_runs::Error) -> Self {
        use agentfleet_runs::Error;
        match error {
            Error::Broker(error) => error.into(),
            Error::Documents(error) => error.into(),
            Error::Graph(error) => error.into(),
            Error::Commit(error) => error.into(),
        }
    }
}

impl From<agentfleet_graph::Error> for Problem {
    fn from(error: agentfleet_graph::Error) -> Self {
        use agentfleet_graph::Error;
        let message = error.to_string();
        match error {
            Error::Syntax { .. } => Self::new(Code::QuerySyntax, message)
                .hint("`prov:`, `tg:`, `rdf:`, `rdfs:` and `xsd:` need not be declared"),
            Error::Update => Self::new(Code::ReadOnly, message)
                .hint("send a SELECT, ASK, CONSTRUCT or DESCRIBE query"),
            Error::Service(_)
            | Error::ClosedGraph(..)
            | Error::QueryTooLarge { .. }
            | Error::Binding { .. } => Self::new(Code::QueryRefused, message),
            Error::Timeout(_) => Self::new(Code::QueryTimeout, message)
                .hint("narrow the query, or raise it with `?timeout=SECONDS`"),
            Error::TooManyRows(_) | Error::TooMuchMemory(_) => {
                Self::new(Code::QueryTooExpensive, message)
                    .hint("add a `LIMIT`, and read on with `OFFSET`")
            }
            Error::Full { .. }
            | Error::Engine(_)
            | Error::Stopped
            | Error::Remote(_)
            | Error::Storage(_) => Self::below("the graph", &error, error.retry()),
            Error::NotInsertData => Self::new(Code::ReadOnly, message),
            Error::Evaluation(_)
            | Error::NotSelect
            | Error::Unsupported(_)
            | Error::Invalid { .. }
            | Error::Damaged { .. }
            | Error::UnknownFormat(_)
            | Error::Parse { .. } => Self::internal("the query", &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_code_is_its_own_and_says_what_it_means() {
        let codes: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.status() >= 400, "{}", code.as_str());
            assert!(code.meaning().ends_with('.'), "{}", code.as_str());
        }
    }
}
