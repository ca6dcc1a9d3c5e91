//! What every request passes, and the form of every refusal.

use crate::client::Client;
use crate::fleet::{Fleet, options};
use agentfleet_documents::{Created, Documents, Entry};
use agentfleet_gateway::{Gateway, Intake, Options, Parts};
use agentfleet_schema::Digest;
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn every_error_is_json_with_a_code_a_sentence_and_the_usual_headers() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    for (method, path, status, code) in [
        ("GET", "/nowhere", 404, "no-such-endpoint"),
        ("GET", "/sessions/nobody", 404, "unknown-session"),
        ("PUT", "/requests", 405, "method-not-allowed"),
        ("GET", "/requests", 405, "method-not-allowed"),
        ("OPTIONS", "/sparql", 405, "method-not-allowed"),
        ("GET", "/sessions/%FF", 400, "invalid-request"),
        ("GET", "/documents?uri=a&uri=b", 400, "invalid-parameter"),
    ] {
        let reply = client.send(method, path, &[], b"").await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{method} {path}"
        );
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("access-control-allow-origin"), "");
        assert!(reply.json()["error"]["message"].as_str().unwrap().len() > 10);
    }
    let allowed = client.send("PUT", "/sessions/x", &[], b"").await;
    let mut methods: Vec<&str> = allowed.header("allow").split(',').collect();
    methods.sort_unstable();
    assert_eq!(methods, ["DELETE", "GET", "HEAD"]);
}

#[tokio::test]
async fn a_web_page_cannot_drive_it() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let port = client.address.port();
    for host in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
    ] {
        assert_eq!(
            client
                .send("GET", "/", &[("host", &host)], b"")
                .await
                .status,
            200,
            "{host}"
        );
    }
    let rebound = client
        .send("GET", "/", &[("host", "evil.example")], b"")
        .await;
    assert_eq!(
        (rebound.status, rebound.code().as_str()),
        (421, "host-not-allowed")
    );
    let own = format!("localhost:{port}");
    let two = [("host", own.as_str()), ("host", "evil.example")];
    let twice = client.send("GET", "/", &two, b"").await;
    assert_eq!(
        (twice.status, twice.code().as_str()),
        (400, "invalid-request")
    );
    let json = ("content-type", "application/json");
    let body = br#"{"question": "spend?"}"#;
    for headers in [
        vec![json, ("origin", "https://evil.example")],
        vec![json, ("origin", "null")],
        vec![
            json,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ],
        vec![
            json,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "no-cors"),
        ],
    ] {
        let reply = client.send("POST", "/requests", &headers, body).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (403, "origin-not-allowed")
        );
    }
    // What a page can send without asking first is not JSON.
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let reply = client
            .send("POST", "/requests", &[("content-type", kind)], body)
            .await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (415, "unsupported-media-type")
        );
    }
    assert_eq!(fleet.worked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_panic_is_an_error_without_details_and_the_server_goes_on() {
    let fleet = Fleet::start().await;
    fleet.healthy.store(false, Ordering::SeqCst);
    let reply = fleet.client.get("/metrics").await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (500, "internal-error")
    );
    assert!(!reply.text().contains("secret"), "{}", reply.text());
    assert_eq!(fleet.client.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn a_request_that_does_not_arrive_is_given_up() {
    let limits = Options {
        request_timeout: Duration::from_millis(200),
        header_timeout: Duration::from_millis(200),
        ..options()
    };
    let fleet = Fleet::with(limits).await;
    let client = fleet.client;
    let headers = [
        ("content-type", "application/json"),
        ("content-length", "100"),
    ];
    let mut stream = tokio::net::TcpStream::connect(client.address)
        .await
        .unwrap();
    let mut head = format!("POST /requests HTTP/1.0\r\nhost: {}\r\n", client.address);
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream
        .write_all(format!("{head}\r\n{{\"question\":").as_bytes())
        .await
        .unwrap();
    let mut reply = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut reply)
        .await
        .unwrap();
    assert!(
        reply.contains(" 408 ") && reply.contains("request-timeout"),
        "{reply}"
    );

    let mut stream = tokio::net::TcpStream::connect(client.address)
        .await
        .unwrap();
    stream.write_all(b"GET / HTT").await.unwrap();
    let mut rest = Vec::new();
    // The head never ends: the connection does.
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest)
        .await
        .unwrap();
}

#[tokio::test]
async fn health_tells_live_from_ready() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    assert_eq!(client.json("/health/live").await["status"], "live");
    let ready = client.json("/health/ready").await;
    assert_eq!(ready["status"], "ready");
    let names: Vec<&str> = ready["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["queue", "records", "writes", "graph", "config", "model"]
    );
    fleet.healthy.store(false, Ordering::SeqCst);
    let reply = client.get("/health/ready").await;
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (503, &json!("not-ready"))
    );
    assert_eq!(
        reply.json()["checks"][5]["detail"],
        "the model does not answer"
    );
    assert_eq!(client.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_is_not_ready() {
    let fleet = Fleet::start().await;
    let intake = Intake {
        documents: Arc::new(ReadOnly(Arc::clone(&fleet.parts.intake.documents))),
        ..fleet.parts.intake.clone()
    };
    let parts = Parts {
        intake,
        ..fleet.parts.clone()
    };
    let second = Gateway::serve(parts, options(), CancellationToken::new()).await;
    let second = second.unwrap();
    let client = Client {
        address: second.address(),
    };
    let serving = tokio::spawn(second.run());
    let reply = client.get("/health/ready").await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let failed: Vec<_> = reply.json()["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["ok"] == false)
        .cloned()
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["name"], "writes");
    // The one that can be written is ready each time it is looked at.
    for _ in 0..3 {
        assert_eq!(fleet.client.get("/health/ready").await.status, 200);
    }
    serving.abort();
}

#[tokio::test]
async fn a_store_that_is_away_is_named_soon_and_nobody_else_is_blamed() {
    let fleet = Fleet::start().await;
    let intake = Intake {
        documents: Arc::new(Away),
        ..fleet.parts.intake.clone()
    };
    let parts = Parts {
        intake,
        ..fleet.parts.clone()
    };
    let second = Gateway::serve(parts, options(), CancellationToken::new()).await;
    let second = second.unwrap();
    let client = Client {
        address: second.address(),
    };
    let serving = tokio::spawn(second.run());
    let began = std::time::Instant::now();
    let reply = client.ask(&json!({ "question": "why?" }), &[]).await;
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"));
    assert!(reply.text().contains("no route"), "{}", reply.text());
    assert!(!reply.header("retry-after").is_empty());
    let ready = client.get("/health/ready").await.json();
    for at in [1, 2, 4] {
        let told = ready["checks"][at]["detail"].as_str().unwrap();
        assert!(told.contains("no route"), "{ready}");
    }
    serving.abort();
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_not_the_callers_fault() {
    let fleet = Fleet::start().await;
    let intake = Intake {
        documents: Arc::new(Away),
        ..fleet.parts.intake.clone()
    };
    let parts = Parts {
        intake,
        ..fleet.parts.clone()
    };
    let limits = Options {
        request_timeout: Duration::from_millis(200),
        ..options()
    };
    let second = Gateway::serve(parts, limits, CancellationToken::new()).await;
    let second = second.unwrap();
    let client = Client {
        address: second.address(),
    };
    let serving = tokio::spawn(second.run());
    let reply = client.ask(&json!({ "question": "why?" }), &[]).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"));
    serving.abort();
}

/// A store that is tried for ever, and says why when it is asked how it is.
struct Away;

#[async_trait]
impl Documents for Away {
    async fn ready(&self) -> Result<(), agentfleet_documents::Error> {
        Err(agentfleet_documents::Error::Unreachable {
            address: "postgres://db/fleet".to_owned(),
            reason: "no route to host".to_owned(),
        })
    }
    async fn create(&self, _: &str, _: Vec<u8>) -> Result<Created, agentfleet_documents::Error> {
        std::future::pending().await
    }
    async fn get(&self, _: &str) -> Result<Option<Arc<[u8]>>, agentfleet_documents::Error> {
        std::future::pending().await
    }
    async fn get_many(
        &self,
        _: &[String],
    ) -> Result<Vec<Option<Arc<[u8]>>>, agentfleet_documents::Error> {
        std::future::pending().await
    }
    async fn list(&self, _: &str) -> Result<Vec<String>, agentfleet_documents::Error> {
        std::future::pending().await
    }
    async fn entries(
        &self,
        _: &str,
        _: &str,
        _: usize,
    ) -> Result<Vec<Entry>, agentfleet_documents::Error> {
        std::future::pending().await
    }
    async fn delete(&self, _: &[String]) -> Result<(), agentfleet_documents::Error> {
        std::future::pending().await
    }
}

/// A store whose disk is full.
struct ReadOnly(Arc<dyn Documents>);

fn full<T>() -> Result<T, agentfleet_documents::Error> {
    Err(agentfleet_documents::Error::EmptyKey)
}

#[async_trait]
impl Documents for ReadOnly {
    async fn create(&self, _: &str, _: Vec<u8>) -> Result<Created, agentfleet_documents::Error> {
        full()
    }
    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, agentfleet_documents::Error> {
        self.0.get(key).await
    }
    async fn get_many(
        &self,
        keys: &[String],
    ) -> Result<Vec<Option<Arc<[u8]>>>, agentfleet_documents::Error> {
        self.0.get_many(keys).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<String>, agentfleet_documents::Error> {
        self.0.list(prefix).await
    }
    async fn entries(
        &self,
        prefix: &str,
        after: &str,
        max: usize,
    ) -> Result<Vec<Entry>, agentfleet_documents::Error> {
        self.0.entries(prefix, after, max).await
    }
    async fn delete(&self, _: &[String]) -> Result<(), agentfleet_documents::Error> {
        full()
    }
}

#[tokio::test]
async fn all_but_health_and_metrics_needs_the_token() {
    let held = Options {
        token: Some(Digest::of(b"s3cret")),
        ..options()
    };
    let fleet = Fleet::with(held).await;
    let client = fleet.client;
    let endpoints = client.json("/").await["endpoints"].clone();
    let mut asked = 0;
    for endpoint in endpoints.as_array().unwrap() {
        let method = endpoint["method"].as_str().unwrap();
        let path = endpoint["path"].as_str().unwrap().replace("{id}", "x");
        let open = ["/", "/openapi.json", "/metrics"].contains(&path.as_str())
            || path.starts_with("/health/");
        for wrong in [
            &[][..],
            &[("authorization", "Bearer s3cret2")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Basic s3cret")],
        ] {
            let reply = client.send(method, &path, wrong, b"").await;
            assert_eq!(reply.status == 401, !open, "{method} {path} {wrong:?}");
            if !open {
                assert_eq!(reply.code(), "not-authorized");
                assert_eq!(reply.header("www-authenticate"), "Bearer");
            }
        }
        let right = [("authorization", "bearer s3cret")];
        let reply = client.send(method, &path, &right, b"").await;
        assert_ne!(reply.status, 401, "{method} {path}");
        asked += usize::from(!open);
    }
    assert!(asked > 8, "{asked}");
}

/// Connections that say nothing.
const SILENT: usize = 1_024;

/// Raises what the system lets this process open, as far as it may be raised.
#[allow(unsafe_code)] // The system's calls have no safe form.
fn may_open(files: libc::rlim_t) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    assert_eq!(
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) },
        0
    );
    limit.rlim_cur = limit.rlim_cur.max(files.min(limit.rlim_max));
    assert_eq!(
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) },
        0
    );
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    // Both ends of each, and those of the tests beside this one.
    may_open(8 * SILENT as libc::rlim_t);
    let many = Options {
        max_connections: SILENT,
        header_timeout: Duration::from_hours(1),
        ..options()
    };
    let fleet = Fleet::with(many).await;
    let client = fleet.client;
    let mut events = client.listen(&json!({ "question": "hold on?" })).await;
    events.named("answer").await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let stream = tokio::net::TcpStream::connect(client.address).await;
        silent.push(stream.unwrap());
    }
    assert_eq!(client.get("/health/live").await.status, 200);
    // Those that were idle for longest made room, and what is at work did not.
    let mut rest = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut silent[0], &mut rest)
        .await
        .unwrap();
    fleet.gate.send_replace(true);
    let last = events.rest().await.pop().unwrap();
    assert_eq!(last.data["end_of_dialog"], true);
}
