//! `http` against a server on loopback.

use crate::place::{Place, tool};
use agentfleet_schema::config::{ToolArgument, ToolItem};
use agentfleet_schema::records::Trouble;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;

/// Answers every request with what it was.
async fn echo(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let header = |name: &str| {
        let value = parts.headers.get(name);
        value
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    };
    format!(
        "{} {} key={} type={} body={}",
        parts.method,
        parts.uri,
        header("idempotency-key"),
        header("content-type"),
        String::from_utf8_lossy(&body)
    )
    .into_response()
}

async fn serve() -> String {
    let router = Router::new()
        .route("/echo", any(echo))
        .route(
            "/page",
            any(|| async {
                (
                    [(header::CONTENT_TYPE, "text/html; charset=iso-8859-1")],
                    b"<h1>T</h1><script>x</script><p>\xfc&amp;".to_vec(),
                )
            }),
        )
        .route("/large", any(|| async { "x".repeat(3 << 20) }))
        .route(
            "/image",
            any(|| async { ([(header::CONTENT_TYPE, "image/png")], vec![0_u8, 159, 146]) }),
        )
        .route(
            "/hang",
            any(|| async { std::future::pending::<()>().await }),
        )
        .route(
            "/slow-body",
            any(|| async {
                let first = futures_once("begin ");
                Response::new(first)
            }),
        )
        .route(
            "/moved",
            any(|| async {
                let mut headers = HeaderMap::new();
                headers.insert(
                    header::LOCATION,
                    "http://169.254.169.254/secret".parse().unwrap(),
                );
                (StatusCode::FOUND, headers)
            }),
        )
        .route(
            "/refused",
            any(|| async { (StatusCode::UNPROCESSABLE_ENTITY, "amount must be positive") }),
        )
        .route(
            "/away",
            any(|| async { (StatusCode::SERVICE_UNAVAILABLE, "try later") }),
        )
        .route(
            "/told",
            any(|headers: HeaderMap| async move {
                let key = headers
                    .get("x-key")
                    .map(|key| key.to_str().unwrap().to_owned());
                format!("{{\"data\": {{\"key\": \"{}\"}}}}", key.unwrap_or_default())
            }),
        )
        .route(
            "/on",
            any(|headers: HeaderMap| async move {
                let host = headers.get(header::HOST).unwrap().to_str().unwrap();
                let port = host.rsplit_once(':').unwrap().1.to_owned();
                let to = format!("http://localhost:{port}/told");
                (StatusCode::FOUND, [(header::LOCATION, to)])
            }),
        )
        .route("/empty", any(|| async { StatusCode::NO_CONTENT }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// A body that begins and never ends.
fn futures_once(text: &'static str) -> Body {
    let (mut sender, receiver) = tokio::io::duplex(64);
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        sender.write_all(text.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    Body::from_stream(tokio_util::io::ReaderStream::new(receiver))
}

fn http(method: &str, url: &str) -> ToolItem {
    let argument = |name: &str, kind: &str| ToolArgument {
        name: name.into(),
        kind: kind.into(),
        description: String::new(),
        required: false,
    };
    ToolItem {
        method: Some(method.into()),
        url: Some(url.into()),
        arguments: vec![argument("q", "string"), argument("n", "integer")],
        ..tool("http")
    }
}

#[tokio::test]
async fn arguments_travel_as_query_or_body_with_the_idempotency_key() {
    let (place, base) = (Place::new().await, serve().await);
    let arguments = &[("q", "a b&c"), ("n", "5")];
    for (method, expected) in [
        ("GET", "GET /echo?x=1&q=a+b%26c&n=5 key=key-1 type= body="),
        (
            "delete",
            "DELETE /echo?x=1&q=a+b%26c&n=5 key=key-1 type= body=",
        ),
        (
            "POST",
            "POST /echo?x=1 key=key-1 type=application/json body={\"q\":\"a b&c\",\"n\":5}",
        ),
        (
            "PUT",
            "PUT /echo?x=1 key=key-1 type=application/json body={\"q\":\"a b&c\",\"n\":5}",
        ),
        (
            "PATCH",
            "PATCH /echo?x=1 key=key-1 type=application/json body={\"q\":\"a b&c\",\"n\":5}",
        ),
    ] {
        let result = place
            .call(&http(method, &format!("{base}/echo?x=1")), "c", arguments)
            .await;
        assert!(!result.is_error, "{}", result.content);
        let (line, body) = result.content.split_once(" body=").unwrap();
        let (expected_line, expected_body) = expected.split_once(" body=").unwrap();
        assert_eq!(line, expected_line);
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        assert_eq!(json(body), json(expected_body));
        assert_eq!(result.sources[0].uri, format!("{base}/echo?x=1"));
    }
}

#[tokio::test]
async fn answers_become_text_and_failures_are_told() {
    let (place, base) = (Place::new().await, serve().await);
    let host = "127.0.0.1";
    for (path, is_error, expected) in [
        ("/page", false, "T\nü&".to_owned()),
        ("/empty", false, String::new()),
        (
            "/image",
            true,
            format!("`{host}` answered with `image/png`, which is not text"),
        ),
        (
            "/moved",
            true,
            format!(
                "`{host}` redirects to `169.254.169.254`, which is not among the tool's `allow-hosts`"
            ),
        ),
        (
            "/refused",
            true,
            format!("`{host}` answered 422 Unprocessable Entity: amount must be positive"),
        ),
        (
            "/nowhere",
            true,
            format!("`{host}` answered 404 Not Found:"),
        ),
    ] {
        let result = place
            .call(&http("GET", &format!("{base}{path}")), "c", &[])
            .await;
        assert_eq!(
            (result.is_error, result.content),
            (is_error, expected),
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_endless_or_large_answer_is_bounded() {
    let (place, base) = (Place::new().await, serve().await);
    let result = place
        .call(&http("GET", &format!("{base}/large")), "c", &[])
        .await;
    assert!(!result.is_error);
    assert!(
        result
            .content
            .ends_with("\n\n[the answer was cut after 1048576 bytes]")
    );
    assert_eq!(result.content.matches('x').count(), 1_048_576);
    for path in ["/hang", "/slow-body"] {
        let item = ToolItem {
            timeout_ms: Some(100),
            ..http("GET", &format!("{base}{path}"))
        };
        let result = place.call(&item, "c", &[]).await;
        assert!(result.is_error, "{path}");
        let told = result.content.contains("did not end within 100ms")
            || result.content.contains("it took too long");
        assert!(told, "{path}: {}", result.content);
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error_of_the_call() {
    let place = Place::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let result = place
        .call(&http("GET", &format!("http://{address}/")), "c", &[])
        .await;
    assert!(result.is_error);
    assert!(
        result.content.starts_with("no answer from `127.0.0.1`: "),
        "{}",
        result.content
    );
    assert!(
        result.content.to_lowercase().contains("refused"),
        "{}",
        result.content
    );
}

#[tokio::test]
async fn a_secret_reaches_its_service_and_nobody_else() {
    let base = serve().await;
    let place = Place::new().await;
    let mut tool = http("GET", &format!("{base}/told"));
    tool.headers = [("x-key".to_owned(), "${KEY}".to_owned())].into();
    tool.result = Some("/data/key".into());
    // The service got it, and sent it back: what is recorded has its name.
    assert_eq!(place.call(&tool, "c", &[]).await.content, "[secret KEY]");
    // Where the service sends the call on to, it is not sent.
    tool.url = Some(format!("{base}/on"));
    let refused = place.call(&tool, "c", &[]).await;
    let expected = "redirects to `localhost`, which is not among the tool's `allow-hosts`";
    assert!(
        refused.is_error && refused.content.contains(expected),
        "{refused:?}"
    );
    tool.allow_hosts = vec!["localhost".into()];
    assert_eq!(place.call(&tool, "c", &[]).await.content, "");
    tool.headers = [("x-key".to_owned(), "${OTHER}".to_owned())].into();
    let missing = place.call(&tool, "c", &[]).await;
    assert!(
        missing.content.starts_with("secret `OTHER` is not there"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_service_is_told_the_tenant_of_the_run() {
    let base = serve().await;
    let mut place = Place::new().await;
    let mut tool = http("GET", &format!("{base}/told"));
    tool.headers = [("x-key".to_owned(), "of ${run.tenant}!".to_owned())].into();
    tool.result = Some("/data/key".into());
    // What a tenant is called is no template: the secret `KEY` stays where it is.
    for (tenant, told) in [("", "of !"), ("acme", "of acme!"), ("${KEY}", "of ${KEY}!")] {
        tenant.clone_into(&mut place.tenant);
        assert_eq!(place.call(&tool, "c", &[]).await.content, told);
    }
}

#[tokio::test]
async fn what_may_pass_is_told_apart_from_what_a_service_says() {
    let base = serve().await;
    let place = Place::new().await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    for (url, expected) in [
        (format!("{base}/away"), Some(Trouble::Unavailable)),
        (nobody, Some(Trouble::Unavailable)),
        (format!("{base}/hang"), Some(Trouble::Timeout)),
        (format!("{base}/refused"), None),
        (format!("{base}/nowhere"), None),
        ("http://169.254.169.254/latest".to_owned(), None),
    ] {
        let mut tool = http("GET", &url);
        tool.timeout_ms = Some(300);
        let result = place.call(&tool, "c", &[]).await;
        assert!(result.is_error, "{url}");
        assert_eq!(result.trouble, expected, "{url}: {}", result.content);
    }
}
