//! Services that want OAuth: a token server and a service on loopback.

use crate::place::{Place, tool};
use agentfleet_schema::config::{McpServer, OAuth, ToolItem};
use agentfleet_schema::records::Trouble;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use base64::Engine as _;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Gives out numbered tokens, and takes the one that counts.
#[derive(Default)]
struct Served {
    given: AtomicUsize,
    counts: Mutex<String>,
    expires_in: AtomicUsize,
    asked: Mutex<String>,
    is_away: AtomicUsize,
}

async fn give(State(served): State<Arc<Served>>, request: Request) -> Response {
    if served.is_away.load(Ordering::SeqCst) == 1 {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let (parts, body) = request.into_parts();
    let basic = base64::engine::general_purpose::STANDARD.encode("fleet:s3cret-value");
    let known = parts
        .headers
        .get("authorization")
        .map(|value| value.to_str().unwrap().to_owned());
    if known != Some(format!("Basic {basic}")) {
        let says = json!({"error": "invalid_client", "error_description": "you sent s3cret"});
        return (StatusCode::UNAUTHORIZED, Json(says)).into_response();
    }
    let body = axum::body::to_bytes(body, 10_000).await.unwrap();
    *served.asked.lock().unwrap() = String::from_utf8_lossy(&body).into_owned();
    let number = served.given.fetch_add(1, Ordering::SeqCst);
    let token = format!("a-token-of-the-service-{number}");
    (*served.counts.lock().unwrap()).clone_from(&token);
    let lives = served.expires_in.load(Ordering::SeqCst);
    Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": lives}))
        .into_response()
}

/// Answers with the token that it was sent, if that one counts.
async fn take(State(served): State<Arc<Served>>, request: Request) -> Response {
    let sent = request.headers().get("authorization");
    let sent = sent
        .map(|value| value.to_str().unwrap().to_owned())
        .unwrap_or_default();
    let counts = format!("Bearer {}", served.counts.lock().unwrap());
    if sent == counts {
        format!("you sent {sent}").into_response()
    } else {
        (StatusCode::UNAUTHORIZED, format!("{sent} does not count")).into_response()
    }
}

async fn serve() -> (String, Arc<Served>) {
    let served = Arc::new(Served::default());
    served.expires_in.store(3_600, Ordering::SeqCst);
    let router = Router::new()
        .route("/token", post(give))
        .route("/api", any(take))
        .with_state(Arc::clone(&served));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}"), served)
}

fn oauth(base: &str) -> OAuth {
    OAuth {
        token_url: format!("{base}/token"),
        client_id: "fleet".into(),
        client_secret: "${KEY}".into(),
        scope: "posts.read posts.write".into(),
    }
}

fn api(base: &str) -> ToolItem {
    ToolItem {
        url: Some(format!("{base}/api")),
        oauth: Some(oauth(base)),
        ..tool("http")
    }
}

#[tokio::test]
async fn a_token_is_got_once_and_got_again_where_it_does_not_count_any_more() {
    let (base, served) = serve().await;
    let place = Place::new().await;
    let tool = api(&base);
    // The service sends back what it got: what is recorded does not have it.
    let calls = (0..8).map(|n| {
        let (place, tool) = (&place, &tool);
        async move { place.call(tool, &format!("c{n}"), &[]).await }
    });
    for result in futures::future::join_all(calls).await {
        assert_eq!(
            result.content, "you sent Bearer [secret access token]",
            "{result:?}"
        );
    }
    assert_eq!(served.given.load(Ordering::SeqCst), 1);
    let asked = served.asked.lock().unwrap().clone();
    assert_eq!(
        asked,
        "grant_type=client_credentials&scope=posts.read+posts.write"
    );
    // Taken back: one call says so, and the next has another.
    "another".clone_into(&mut served.counts.lock().unwrap());
    let refused = place.call(&tool, "c", &[]).await;
    assert!(
        refused.is_error && refused.content.contains("401"),
        "{refused:?}"
    );
    assert!(!refused.content.contains("a-token-of"), "{refused:?}");
    assert!(!place.call(&tool, "c", &[]).await.is_error);
    assert_eq!(served.given.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_not_used_again() {
    let (base, served) = serve().await;
    served.expires_in.store(10, Ordering::SeqCst);
    let place = Place::new().await;
    for _ in 0..3 {
        assert!(!place.call(&api(&base), "c", &[]).await.is_error);
    }
    assert_eq!(served.given.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn who_gets_no_token_is_told_why_and_what_passes_is_told_apart() {
    let (base, served) = serve().await;
    let place = Place::new().await;
    let mut tool = api(&base);
    served.is_away.store(1, Ordering::SeqCst);
    let away = place.call(&tool, "c", &[]).await;
    assert_eq!(away.trouble, Some(Trouble::Unavailable), "{away:?}");
    served.is_away.store(0, Ordering::SeqCst);
    for (change, expected) in [
        ("stranger", "it answers 401 Unauthorized (invalid_client)"),
        ("${OTHER}", "secret `OTHER` is not there"),
    ] {
        tool.oauth.as_mut().unwrap().client_id = change.into();
        let refused = place.call(&tool, "c", &[]).await;
        assert!(refused.content.contains(expected), "{refused:?}");
        assert!(!refused.content.contains("you sent"), "{refused:?}");
        assert_eq!((refused.is_error, refused.trouble), (true, None));
    }
    for (url, expected) in [
        ("http://id.example/token", "must begin with `https://`"),
        ("http://169.254.169.254/token", "169.254.169.254"),
        ("nowhere", "bad `token-url`"),
    ] {
        tool.oauth = Some(OAuth {
            token_url: url.into(),
            ..oauth(&base)
        });
        let refused = place.call(&tool, "c", &[]).await;
        assert!(refused.content.contains(expected), "{refused:?}");
    }
}

#[tokio::test]
async fn an_mcp_server_is_called_with_a_token() {
    let (base, served) = serve().await;
    let place = Place::new().await;
    let server = McpServer {
        name: "remote".into(),
        url: Some(format!("{base}/api")),
        oauth: Some(oauth(&base)),
        ..McpServer::default()
    };
    let wanted = agentfleet_tools::mcp::Wanted {
        prefix: "",
        only: "*",
    };
    // It takes the token, and is no MCP server.
    let says = place.servers.offered(&server, wanted).await.unwrap_err();
    assert_eq!(served.given.load(Ordering::SeqCst), 1);
    assert!(
        !says.contains("authorization") && !says.contains("a-token-of"),
        "{says}"
    );
    "another".clone_into(&mut served.counts.lock().unwrap());
    let says = place.servers.offered(&server, wanted).await.unwrap_err();
    assert_eq!(served.given.load(Ordering::SeqCst), 2, "{says}");
}
