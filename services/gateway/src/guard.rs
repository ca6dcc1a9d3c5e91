//! What every request passes: whose name it was sent to, a panic, the clock. Who sent it is found out
//! in `identity`.
//!
//! A gateway on the loopback interface can be reached by every web page the person opens, in two
//! ways. A page can make its own host name point to 127.0.0.1 and then read answers as if they were
//! its own (DNS rebinding): so the name in `Host` must be one of ours. And a page can send simple
//! requests to other origins without reading the answer: so a request that a browser marks as
//! coming from elsewhere is refused. No CORS headers are ever sent.

use crate::problem::{Code, Problem};
use crate::state::App;
use agentfleet_schema::Digest;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::{FutureExt, stream};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the queue and the documents may take before they are asked whether they answer at all.
const SOON: Duration = Duration::from_secs(3);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The names a gateway answers to: an address always, because rebinding is a matter of names, and
/// those of the loopback interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Added by a person, so pages of these names are trusted too, but for `*`, which is any name.
    /// Lower case.
    added: Arc<[String]>,
}

impl Hosts {
    pub(crate) fn new(added: &[String]) -> Self {
        Self {
            added: added.iter().map(|name| name.to_ascii_lowercase()).collect(),
        }
    }

    /// Whether a name was added. One without a port is ours at every port: forwarded ports are
    /// common.
    fn is_added(&self, authority: &str) -> bool {
        let authority = authority.to_ascii_lowercase();
        let bare = without_port(&authority);
        let is = |name: &String| *name == authority || *name == bare;
        self.added.iter().any(is)
    }

    fn allow(&self, authority: &str) -> bool {
        let bare = without_port(authority);
        let inner = bare.strip_prefix('[').and_then(|v6| v6.strip_suffix(']'));
        let is_address = bare.parse::<Ipv4Addr>().is_ok()
            || inner.is_some_and(|v6| v6.parse::<Ipv6Addr>().is_ok());
        let any = || self.added.iter().any(|name| name == "*");
        is_address || bare.eq_ignore_ascii_case("localhost") || self.is_added(authority) || any()
    }

    fn listed(&self) -> String {
        let mut names = vec!["`localhost`".to_owned(), "addresses".to_owned()];
        names.extend(self.added.iter().map(|name| format!("`{name}`")));
        names.join(", ")
    }

    /// Refuses what was sent to another name, or by another origin.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = uri
            .authority()
            .map(axum::http::uri::Authority::as_str)
            .or(text(header::HOST));
        let host = host.unwrap_or_default();
        // Which of two counts would depend on who reads them.
        for (name, shown) in [
            (header::HOST, "Host"),
            (header::AUTHORIZATION, "Authorization"),
        ] {
            if headers.get_all(name).iter().count() > 1 {
                let says = format!("there is more than one header `{shown}`");
                return Err(Problem::new(Code::InvalidRequest, says).hint("send one"));
            }
        }
        if !self.allow(host) {
            return Err(Problem::new(
                Code::HostNotAllowed,
                format!(
                    "this gateway does not answer for host `{host}` (answers for: {})",
                    self.listed()
                ),
            )
            .hint("address it by one of these names, or add the name with `--allowed-hosts`"));
        }
        let refused = || {
            Problem::new(
                Code::OriginNotAllowed,
                "a web page of another origin sent this request",
            )
            .hint("call the API from a program, type the address, or allow the page's host with `--allowed-hosts`")
        };
        if let Some(origin) = text(header::ORIGIN) {
            let authority = origin
                .split_once("://")
                .map_or("", |(_, authority)| authority);
            let same = !authority.is_empty() && authority.eq_ignore_ascii_case(host);
            if !same && !self.is_added(authority) {
                return Err(refused());
            }
        }
        // A page that leads the browser here does not see the answer, but the question is asked.
        if matches!(text(SEC_FETCH_SITE), Some("cross-site" | "same-site")) {
            return Err(refused());
        }
        Ok(())
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => authority,
    }
}

/// The outermost layer: nothing a handler does reaches the client unguarded.
pub(crate) async fn guard(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = match hosts.check(request.uri(), request.headers()) {
        Ok(()) => match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            // The panic itself, with its place, went to the log by the panic hook.
            Err(_) => Problem::internal("the request", &"a handler panicked").into_response(),
        },
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    let defaults = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in defaults {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    tracing::debug!(%method, path, status = response.status().as_u16(), "http");
    response
}

/// Whether a request holds a token, compared by hashes: how long that takes says nothing of it.
pub(crate) fn holds(token: &Digest, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.as_bytes().split_at_checked(7));
    given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case(b"bearer ") && Digest::of(given) == *token
    })
}

/// Ends a request that takes too long to arrive or to be answered. A stream has been answered when
/// its head was.
pub(crate) async fn within(
    State(limit): State<Duration>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let arrived = Arc::new(AtomicBool::new(request.body().is_end_stream()));
    let request = request.map(|body| watched(body, Arc::clone(&arrived)));
    if let Ok(response) = tokio::time::timeout(limit, next.run(request)).await {
        return response;
    }
    // Who sent all of it in time is not to blame.
    let (code, what) = if arrived.load(Ordering::Relaxed) {
        (Code::Unavailable, "had no answer")
    } else {
        (Code::RequestTimeout, "had not arrived")
    };
    let seconds = limit.as_secs_f64();
    Problem::new(code, format!("the request {what} within {seconds} s"))
        .hint("repeat it; the same key or session id is safe to repeat")
        .into_response()
}

/// A body that tells when all of it has been read.
fn watched(body: Body, arrived: Arc<AtomicBool>) -> Body {
    use futures::StreamExt as _;
    let end = stream::once(async move {
        arrived.store(true, Ordering::Relaxed);
        Ok(Bytes::new())
    });
    Body::from_stream(body.into_data_stream().chain(end))
}

/// Ends a request to do something soon where what takes it in does not answer, and says why: those who
/// work are more patient, and would let it wait.
pub(crate) async fn soon(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut answer = pin!(next.run(request));
    loop {
        if let Ok(response) = tokio::time::timeout(SOON, &mut answer).await {
            return response;
        }
        // What is slow, and well, may take its time.
        tokio::select! {
            response = &mut answer => return response,
            trouble = app.parts.trouble() => if let Some(problem) = trouble {
                return problem.into_response();
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &Hosts, uri: &str, headers: &[(&'static str, &str)]) -> Option<Code> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_str(value);
            map.insert(*name, value.unwrap_or(HeaderValue::from_static("")));
        }
        let uri = uri.parse().unwrap_or_default();
        hosts.check(&uri, &map).err().map(|problem| problem.code)
    }

    #[test]
    fn only_addresses_and_names_of_its_own_are_answered() {
        let hosts = Hosts::default();
        for host in [
            "localhost:8700",
            "LOCALHOST",
            "127.0.0.1:8700",
            "[::1]:8700",
            "localhost:9",
            "10.1.2.3:8700",
        ] {
            assert_eq!(check(&hosts, "/", &[("host", host)]), None, "{host}");
        }
        let refused = Some(Code::HostNotAllowed);
        for host in [
            "evil.example",
            "evil.example:8700",
            "127.0.0.1.evil.example",
            "[evil.example]",
            "",
            "localhost.",
        ] {
            assert_eq!(check(&hosts, "/", &[("host", host)]), refused, "{host}");
        }
        assert_eq!(check(&hosts, "/", &[]), refused);
        let absolute = "http://evil.example/sparql";
        assert_eq!(
            check(&hosts, absolute, &[("host", "localhost:8700")]),
            refused
        );
        for name in [header::HOST, header::AUTHORIZATION] {
            let mut twice = HeaderMap::new();
            twice.insert(header::HOST, HeaderValue::from_static("localhost:8700"));
            for _ in twice.get_all(&name).iter().count()..2 {
                twice.append(&name, HeaderValue::from_static("localhost:8700"));
            }
            let refused = hosts.check(&Uri::default(), &twice).err();
            let code = refused.map(|problem| problem.code);
            assert_eq!(code, Some(Code::InvalidRequest), "{name}");
        }
    }

    #[test]
    fn names_can_be_added() {
        let hosts = Hosts::new(&["Fleet.example".into(), "other:99".into()]);
        let refused = Some(Code::HostNotAllowed);
        for (host, answer) in [
            ("fleet.example:1", None),
            ("other:99", None),
            ("other:98", refused),
            ("localhost", None),
            ("evil.example", refused),
        ] {
            assert_eq!(check(&hosts, "/", &[("host", host)]), answer, "{host}");
        }
        let proxied = [("host", "other:99"), ("origin", "https://fleet.example")];
        assert_eq!(check(&hosts, "/", &proxied), None);
        let local = [("host", "other:99"), ("origin", "http://localhost:3000")];
        assert_eq!(check(&hosts, "/", &local), Some(Code::OriginNotAllowed));
        let any = Hosts::new(&["*".into()]);
        let host = ("host", "any.example");
        assert_eq!(check(&any, "/", &[host]), None);
        let page = [host, ("origin", "https://evil.example")];
        assert_eq!(check(&any, "/", &page), Some(Code::OriginNotAllowed));
    }

    #[test]
    fn a_web_page_of_another_origin_is_refused() {
        let hosts = Hosts::default();
        let host = ("host", "localhost:8700");
        let refused = Some(Code::OriginNotAllowed);
        let table: [(&[(&'static str, &str)], Option<Code>); 8] = [
            (&[("origin", "http://localhost:8700")], None),
            (&[("origin", "http://localhost:3000")], refused),
            (&[("origin", "https://evil.example")], refused),
            (&[("origin", "null")], refused),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "no-cors"),
                ],
                refused,
            ),
            (
                &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")],
                refused,
            ),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                ],
                refused,
            ),
            (
                &[
                    ("sec-fetch-site", "same-origin"),
                    ("sec-fetch-mode", "cors"),
                ],
                None,
            ),
        ];
        for (headers, expected) in table {
            let mut all = vec![host];
            all.extend(headers);
            assert_eq!(check(&hosts, "/", &all), expected, "{headers:?}");
        }
    }
}
