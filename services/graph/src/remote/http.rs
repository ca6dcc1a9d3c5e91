//! Requests: who we are, how long they may take, which are sent again, and what a status means.
//!
//! Every request here may be repeated: queries read, and updates hold ground statements only.

use super::fault::RemoteFault;
use super::options::{Credentials, RemoteOptions, shown};
use crate::Error;
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, header};
use std::io::Write as _;
use std::time::Duration;

pub(super) const RESULTS: &str = "application/sparql-results+json";
pub(super) const QUERY: &str = "application/sparql-query";

/// For questions of our own about the server.
const QUESTION: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Of what the server says about a failure.
const MAX_REASON: usize = 300;
/// Of a body that is read to find out what the server says.
const MAX_FAILURE: usize = 64 * 1024;

/// What is sent to change the store.
pub(super) struct Body {
    content_type: &'static str,
    zipped: bool,
    content: Vec<u8>,
}

impl Body {
    pub(super) fn update(text: String) -> Self {
        Self::plain("application/sparql-update", text.into_bytes())
    }

    pub(super) fn plain(content_type: &'static str, content: Vec<u8>) -> Self {
        Self {
            content_type,
            zipped: false,
            content,
        }
    }

    /// Data is compressed because a compressed body that is cut cannot be read. Jena takes a plain one
    /// that breaks off between two statements for a whole one, and stores what has come.
    pub(super) fn trig(text: &str) -> Self {
        let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
        // Writing into memory does not fail; what is not finished would be refused by the server.
        let written = encoder.write_all(text.as_bytes());
        let content = written.and_then(|()| encoder.finish()).unwrap_or_default();
        Self {
            content_type: "application/trig",
            zipped: true,
            content,
        }
    }
}

/// One pool of connections.
#[derive(Clone)]
pub(super) struct Http {
    client: Client,
    credentials: Option<Credentials>,
    update_timeout: Duration,
    attempts: u32,
}

impl Http {
    pub(super) fn new(
        options: &RemoteOptions,
        credentials: Option<Credentials>,
    ) -> Result<Self, RemoteFault> {
        let client = Client::builder()
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(30))
            // Credentials go where they were meant to go, and nowhere else.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("agentfleet/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| RemoteFault::Address {
                url: String::new(),
                reason: chain(&error),
            })?;
        Ok(Self {
            client,
            credentials,
            update_timeout: options.update_timeout,
            attempts: options.attempts.max(1),
        })
    }

    /// Sends a query; the answer is still to be read. `limit` is told to the server, as far as it
    /// listens; whoever gives one must stop waiting by himself.
    pub(super) async fn query(
        &self,
        url: &Url,
        sparql: &str,
        limit: Option<Duration>,
    ) -> Result<Response, Error> {
        let request = || {
            let request = self
                .client
                .post(url.clone())
                .header(header::CONTENT_TYPE, QUERY)
                .header(header::ACCEPT, RESULTS)
                .body(sparql.to_owned());
            match limit {
                // As Jena has it: seconds.
                Some(limit) => request.header("timeout", format!("{:.3}", limit.as_secs_f64())),
                None => request.timeout(QUESTION),
            }
        };
        let response = self.send(url, request, |_| false).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let (url, reason) = (shown(url), reason(response).await);
        let code = status.as_u16();
        Err(match status {
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                RemoteFault::Credentials { url, status: code }.into()
            }
            StatusCode::BAD_REQUEST
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::NOT_IMPLEMENTED => Error::Evaluation(reason.into()),
            StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                let reason = format!("status {code}, {reason}");
                RemoteFault::NoQueries { url, reason }.into()
            }
            _ => RemoteFault::Failed {
                url,
                status: code,
                reason,
            }
            .into(),
        })
    }

    /// Sends what changes the store, and returns the answer's body once the server has done it.
    pub(super) async fn post(&self, url: &Url, body: Body) -> Result<Vec<u8>, RemoteFault> {
        let request = || {
            let request = self
                .client
                .post(url.clone())
                .header(header::CONTENT_TYPE, body.content_type)
                .timeout(self.update_timeout)
                .body(body.content.clone());
            if body.zipped {
                request.header(header::CONTENT_ENCODING, "gzip")
            } else {
                request
            }
        };
        let again = |status: StatusCode| {
            matches!(
                status,
                StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
                    | StatusCode::TOO_MANY_REQUESTS
            )
        };
        let response = self.send(url, request, again).await?;
        let status = response.status();
        if status.is_success() {
            let unread = |error: reqwest::Error| unreachable(url, &error);
            // Some servers begin to answer before they have committed.
            return Ok(response.bytes().await.map_err(unread)?.to_vec());
        }
        let (url, reason, code) = (shown(url), reason(response).await, status.as_u16());
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                RemoteFault::Credentials { url, status: code }
            }
            StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::UNSUPPORTED_MEDIA_TYPE => RemoteFault::UpdateRefused {
                url,
                status: code,
                reason,
            },
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => RemoteFault::Rejected {
                url,
                status: code,
                reason,
            },
            _ => RemoteFault::Failed {
                url,
                status: code,
                reason,
            },
        })
    }

    async fn send(
        &self,
        url: &Url,
        request: impl Fn() -> RequestBuilder,
        again: impl Fn(StatusCode) -> bool,
    ) -> Result<Response, RemoteFault> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let request = match &self.credentials {
                None => request(),
                Some(Credentials::Basic { user, password }) => {
                    request().basic_auth(user, Some(password))
                }
                Some(Credentials::Bearer(token)) => request().bearer_auth(token),
            };
            let last = attempt >= self.attempts;
            match request.send().await {
                Ok(response) if last || !again(response.status()) => return Ok(response),
                Ok(_) => (),
                // Who was silent for that long is not asked again at once.
                Err(error) if last || error.is_builder() || error.is_timeout() => {
                    return Err(unreachable(url, &error));
                }
                Err(_) => (),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(RemoteFault::Unreachable {
            url: shown(url),
            reason: "no attempt was made".to_owned(),
        })
    }
}

pub(super) fn unreachable(url: &Url, error: &reqwest::Error) -> RemoteFault {
    RemoteFault::Unreachable {
        url: shown(url),
        reason: chain(error),
    }
}

/// An error with its causes, without the address, which may hold secrets.
fn chain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut parts = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = cause {
        parts.push(inner.to_string());
        cause = inner.source();
    }
    // The innermost says what happened; the outer ones say that something did.
    parts
        .pop()
        .unwrap_or_else(|| "the request failed".to_owned())
}

/// What the server says about a failure, in one line.
async fn reason(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() >= MAX_FAILURE {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() {
        return "it does not say why".to_owned();
    }
    words.chars().take(MAX_REASON).collect()
}
