//! What every request passes: whose name it was sent to, who sent it, a panic, the clock.
//!
//! A gateway on the loopback interface can be reached by every web page the person opens, in two
//! ways. A page can make its own host name point to 127.0.0.1 and then read answers as if they were
//! its own (DNS rebinding): so the name in `Host` must be one of ours. And a page can send simple
//! requests to other origins without reading the answer: so a request that a browser marks as
//! coming from elsewhere is refused. No CORS headers are ever sent.

use crate::problem::{Code, Problem};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// The names a gateway answers to.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// Lower case. `None` is any name.
    names: Option<Arc<[String]>>,
    /// Set by a person, so their pages are trusted too.
    chosen: bool,
}

impl Hosts {
    pub(crate) fn new(allowed: &[String], address: SocketAddr) -> Self {
        let lower = |name: &String| name.to_ascii_lowercase();
        if !allowed.is_empty() {
            return Self {
                names: Some(allowed.iter().map(lower).collect()),
                chosen: true,
            };
        }
        let own = match address {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        let mut loopback = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "[::1]".to_owned(),
        ];
        if !loopback.contains(&own) {
            loopback.push(own);
        }
        let names = address.ip().is_loopback().then(|| loopback.into());
        Self {
            names,
            chosen: false,
        }
    }

    /// Whether a name, with or without a port, is one of ours. A name listed without a port is ours
    /// at every port: forwarded ports are common, and rebinding is a matter of the name.
    fn allow(&self, authority: &str) -> bool {
        let Some(names) = &self.names else {
            return true;
        };
        let authority = authority.to_ascii_lowercase();
        let bare = without_port(&authority);
        names.iter().any(|name| *name == authority || *name == bare)
    }

    fn listed(&self) -> String {
        let names = self.names.as_deref().unwrap_or_default();
        names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Refuses what was sent to another name, or by another origin.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = uri
            .authority()
            .map(axum::http::uri::Authority::as_str)
            .or(text(header::HOST));
        let host = host.unwrap_or_default();
        if !self.allow(host) {
            return Err(Problem::new(
                Code::HostNotAllowed,
                format!(
                    "this gateway does not answer for host `{host}` (answers for: {})",
                    self.listed()
                ),
            )
            .hint("address it by one of these names, or add the name to its allowed hosts"));
        }
        let refused = || {
            Problem::new(
                Code::OriginNotAllowed,
                "a web page of another origin sent this request",
            )
            .hint("call the API from a program, or from a page of the same origin")
        };
        if let Some(origin) = text(header::ORIGIN) {
            let authority = origin
                .split_once("://")
                .map_or("", |(_, authority)| authority);
            let same = !authority.is_empty() && authority.eq_ignore_ascii_case(host);
            let chosen = self.chosen && !authority.is_empty() && self.allow(authority);
            if !same && !chosen {
                return Err(refused());
            }
        }
        let elsewhere = matches!(text(SEC_FETCH_SITE), Some("cross-site" | "same-site"));
        if elsewhere && text(SEC_FETCH_MODE) != Some("navigate") {
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

/// Ends a request that takes too long to arrive or to be answered. A stream has been answered when
/// its head was.
pub(crate) async fn within(
    State(limit): State<Duration>,
    request: Request<Body>,
    next: Next,
) -> Response {
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(
            Code::RequestTimeout,
            format!("the request was not done within {} s", limit.as_secs_f64()),
        )
        .hint("repeat it; the same key or session id is safe to repeat")
        .into_response(),
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
    fn on_the_loopback_interface_only_its_own_names_are_answered() {
        let hosts = Hosts::new(&[], SocketAddr::from(([127, 0, 0, 1], 8700)));
        for host in [
            "localhost:8700",
            "LOCALHOST",
            "127.0.0.1:8700",
            "[::1]:8700",
            "localhost:9",
        ] {
            assert_eq!(check(&hosts, "/", &[("host", host)]), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8700",
            "127.0.0.1.evil.example",
            "",
            "localhost.",
        ] {
            let refused = Some(Code::HostNotAllowed);
            assert_eq!(check(&hosts, "/", &[("host", host)]), refused, "{host}");
        }
        assert_eq!(check(&hosts, "/", &[]), Some(Code::HostNotAllowed));
        let absolute = "http://evil.example/sparql";
        let refused = Some(Code::HostNotAllowed);
        assert_eq!(
            check(&hosts, absolute, &[("host", "localhost:8700")]),
            refused
        );
    }

    #[test]
    fn elsewhere_any_name_is_answered_unless_some_are_chosen() {
        let open = SocketAddr::from(([0, 0, 0, 0], 8700));
        assert_eq!(
            check(&Hosts::new(&[], open), "/", &[("host", "fleet.example")]),
            None
        );
        let chosen = Hosts::new(&["Fleet.example".into(), "other:99".into()], open);
        assert_eq!(check(&chosen, "/", &[("host", "fleet.example:1")]), None);
        assert_eq!(check(&chosen, "/", &[("host", "other:99")]), None);
        assert_eq!(
            check(&chosen, "/", &[("host", "other:98")]),
            Some(Code::HostNotAllowed)
        );
        assert_eq!(
            check(&chosen, "/", &[("host", "localhost")]),
            Some(Code::HostNotAllowed)
        );
        let proxied = [("host", "other:99"), ("origin", "https://fleet.example")];
        assert_eq!(check(&chosen, "/", &proxied), None);
    }

    #[test]
    fn a_web_page_of_another_origin_is_refused() {
        let hosts = Hosts::new(&[], SocketAddr::from(([127, 0, 0, 1], 8700)));
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
                None,
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
