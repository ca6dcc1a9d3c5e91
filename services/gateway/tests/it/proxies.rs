//! Headers in which proxies say what was asked of them: the gateway reads none, so whoever sends them gains
//! nothing.

use crate::fleet::{Fleet, options};
use crate::identity::{key_of, log_with};
use agentfleet_gateway::{NewKey, Options};
use agentfleet_schema::Digest;

/// A sender that says it is somebody else, at another place, every time.
fn said(n: usize) -> [(&'static str, String); 6] {
    [
        ("x-forwarded-for", format!("203.0.113.{n}, 127.0.0.1")),
        (
            "forwarded",
            format!("for=203.0.113.{n};host=localhost;proto=https"),
        ),
        ("x-forwarded-host", "localhost".to_owned()),
        ("x-forwarded-proto", "https".to_owned()),
        ("x-real-ip", format!("203.0.113.{n}")),
        ("x-forwarded-prefix", "/elsewhere".to_owned()),
    ]
}

#[tokio::test]
async fn headers_of_proxies_change_nothing() {
    let fleet = Fleet::with(Options {
        token: Some(Digest::of(b"owner")),
        ..options()
    })
    .await;
    let new = NewKey {
        name: "ann".into(),
        tenant: "acme".into(),
        roles: vec!["operator".to_owned()],
        per_minute: Some(3),
        ..NewKey::default()
    };
    let bearer = format!("Bearer {}", key_of(&fleet, new).await);
    let send = async |n: usize, more: &[(&str, &str)], path: &str| {
        let said = said(n);
        let mut headers: Vec<(&str, &str)> = Vec::from(more);
        headers.extend(said.iter().map(|(name, value)| (*name, value.as_str())));
        fleet.client.send("GET", path, &headers, b"").await
    };
    let known = [("authorization", bearer.as_str())];
    // Counted by who it is, from wherever it comes.
    for (n, status) in [200, 200, 200, 429].into_iter().enumerate() {
        let reply = send(n, &known, "/sessions").await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    let log = log_with(&fleet, |one| one.reason.starts_with("too-many")).await;
    let log = serde_json::to_string(&log).unwrap();
    assert!(!log.contains("203.0.113."), "{log}");
    // Nobody is let in for coming from this machine, nor under a name that is not the gateway's.
    let reply = send(0, &[], "/sessions").await;
    assert_eq!(reply.status, 401, "{}", reply.text());
    let reply = send(0, &[("host", "evil.example")], "/").await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (421, "host-not-allowed")
    );
    let reply = send(0, &[("origin", "https://localhost")], "/").await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (403, "origin-not-allowed")
    );
    // What is answered is the same to the byte.
    let plain = fleet.client.get("/").await;
    let told = send(0, &[], "/").await;
    assert_eq!((told.status, told.text()), (plain.status, plain.text()));
}
