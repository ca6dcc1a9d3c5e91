//! The door: API keys, roles, tenants, limits, and what is written of them.

use crate::approvals::waiting_for;
use crate::client::Reply;
use crate::fleet::{Fleet, options};
use agentfleet_gateway::{NewKey, Options, create_key, logged, verify};
use agentfleet_schema::records::AuditEntry;
use agentfleet_schema::{Digest, Principal, SessionId, uris};
use serde_json::{Value, json};
use std::time::Duration;

/// Those that are shipped.
pub(crate) const ROLES: [&str; 4] = ["producer", "operator", "analyst", "approver"];

pub(crate) async fn fleet() -> Fleet {
    Fleet::with(Options {
        token: Some(Digest::of(b"owner")),
        ..options()
    })
    .await
}

pub(crate) async fn key_of(fleet: &Fleet, new: NewKey) -> String {
    let now = fleet.parts.intake.host.now();
    let documents = &*fleet.parts.intake.documents;
    create_key(documents, new, now).await.unwrap().1
}

pub(crate) async fn key(fleet: &Fleet, name: &str, tenant: &str, roles: &[&str]) -> String {
    let new = NewKey {
        name: name.to_owned(),
        tenant: tenant.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..NewKey::default()
    };
    key_of(fleet, new).await
}

pub(crate) async fn send(
    fleet: &Fleet,
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Reply {
    let bearer = format!("Bearer {key}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let body = if method == "POST" {
        body.to_string()
    } else {
        String::new()
    };
    fleet
        .client
        .send(method, path, &headers, body.as_bytes())
        .await
}

pub(crate) async fn get(fleet: &Fleet, key: &str, path: &str) -> Reply {
    send(fleet, key, "GET", path, &Value::Null).await
}

/// Asks, and waits for the end.
pub(crate) async fn ended(fleet: &Fleet, key: &str, body: &Value) -> Value {
    let reply = send(fleet, key, "POST", "/requests", body).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let session = reply.json()["session_id"].as_str().unwrap().to_owned();
    let view = get(fleet, key, &format!("/sessions/{session}?wait=60")).await;
    assert_eq!(view.status, 200, "{}", view.text());
    assert_eq!(view.json()["finished"], true);
    view.json()
}

/// The log, once something in it is as it should be.
pub(crate) async fn log_with(
    fleet: &Fleet,
    holds: impl Fn(&AuditEntry) -> bool,
) -> Vec<AuditEntry> {
    for _ in 0..200 {
        let found = logged(&*fleet.parts.intake.documents, 0).await.unwrap();
        let found: Vec<_> = found.into_iter().filter_map(|one| one.entry).collect();
        if found.iter().any(&holds) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the audit log lacks an entry");
}

#[tokio::test]
async fn the_owner_is_told_why_a_run_of_a_tenant_failed_and_the_tenant_is_not() {
    let fleet = fleet().await;
    let ann = key(&fleet, "ann", "acme", &ROLES).await;
    let asked = json!({"question": "fail now", "session_id": "s-ann"});
    let told = ended(&fleet, &ann, &asked).await["error"].clone();
    let owner = get(&fleet, "owner", "/sessions/s-ann").await.json();
    assert_eq!(owner["error"]["code"], told["code"]);
    let says = |error: &Value| error["message"].as_str().unwrap().to_owned();
    assert!(
        says(&owner["error"]).contains("the model refuses"),
        "{owner}"
    );
    assert!(!says(&told).contains("the model refuses"), "{told}");
}

#[tokio::test]
async fn a_tenant_sees_nothing_of_another() {
    let fleet = fleet().await;
    let ann = key(&fleet, "ann", "acme", &ROLES).await;
    let bob = key(&fleet, "bob", "bond", &ROLES).await;
    let asked = json!({
        "question": "compare A and B", "pattern": "supervisor", "session_id": "s-ann",
        "conversation_id": "c-1",
    });
    let view = ended(&fleet, &ann, &asked).await;
    let child = view["subagents"][0]["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let principal = Principal {
        name: "ann".into(),
        tenant: "acme".into(),
        ..Principal::default()
    };
    waiting_for(&fleet, "a-ann", Some(principal)).await;
    let owned = fleet_owner_session(&fleet).await;
    let document: String = form_urlencoded(&uris::answer_document(&SessionId::from("s-ann")));
    let deny = json!({"answer": "deny", "by": "ann"});
    let again = json!({"question": "hello", "session_id": "s-ann"});
    let child_again = json!({"question": "hello", "session_id": child});
    let sparql = "/sparql?query=ASK%20%7BGRAPH%20%3Curn:agentfleet:tenant:acme%3E%20%7B%7D%7D";
    for (method, path, body, status, code) in [
        (
            "GET",
            "/sessions/s-ann".to_owned(),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            "/sessions/s-ann?wait=1".into(),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            "/sessions/s-ann/events".into(),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            "/sessions/s-ann/trace".into(),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            "/sessions/s-ann/trace?format=svg".into(),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "DELETE",
            "/sessions/s-ann".into(),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            format!("/sessions/{child}"),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            format!("/sessions/{child}/events"),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            format!("/sessions/{child}/trace"),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "DELETE",
            format!("/sessions/{child}"),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            format!("/sessions/{owned}"),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "DELETE",
            format!("/sessions/{owned}"),
            &deny,
            404,
            "unknown-session",
        ),
        (
            "GET",
            format!("/documents?uri={document}"),
            &deny,
            404,
            "unknown-document",
        ),
        (
            "GET",
            "/conversations/c-1".into(),
            &deny,
            404,
            "unknown-conversation",
        ),
        (
            "POST",
            "/approvals/a-ann".into(),
            &deny,
            404,
            "unknown-approval",
        ),
        ("POST", "/requests".into(), &again, 409, "session-taken"),
        (
            "POST",
            "/requests".into(),
            &child_again,
            409,
            "session-taken",
        ),
        ("GET", sparql.into(), &deny, 400, "query-refused"),
    ] {
        let reply = send(&fleet, &bob, method, &path, body).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{method} {path}"
        );
        let own = reply.text().replace("urn:agentfleet:tenant:acme", "");
        assert!(!own.contains("acme"), "{}", reply.text());
    }
    // A session of another tenant is as one that never was.
    let theirs = get(&fleet, &bob, "/sessions/s-ann").await.text();
    let nobodys = get(&fleet, &bob, "/sessions/s-xyz").await.text();
    assert_eq!(theirs.replace("s-ann", "s-xyz"), nobodys);
    let listed = get(&fleet, &bob, "/approvals").await.json();
    assert_eq!(listed, json!({"approvals": []}));
    each_is_in_the_log(&fleet).await;
    let report = verify(&*fleet.parts.intake.documents).await.unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    and_it_is_there(&fleet, &ann, &document, sparql).await;
}

/// What `bob` tried is written, once for each kind.
async fn each_is_in_the_log(fleet: &Fleet) {
    for (action, reason) in [
        ("GET /sessions/{id}", "another-tenant"),
        ("GET /sessions/{id}/events", "another-tenant"),
        ("GET /sessions/{id}/trace", "another-tenant"),
        ("DELETE /sessions/{id}", "another-tenant"),
        ("GET /documents", "another-tenant"),
        ("POST /approvals/{id}", "another-tenant"),
        ("POST /requests", "another-tenant"),
        ("GET /sparql", "query-refused"),
    ] {
        let is = |one: &AuditEntry| {
            one.principal == "bob"
                && one.tenant == "bond"
                && one.action == action
                && one.outcome == "refused"
                && one.reason.starts_with(reason)
        };
        let log = log_with(fleet, is).await;
        // Equal refusals in a row are one entry.
        assert_eq!(log.iter().filter(|one| is(one)).count(), 1, "{action}");
    }
}

async fn and_it_is_there(fleet: &Fleet, ann: &str, document: &str, sparql: &str) {
    // All of it is there for who it belongs to.
    for path in [
        "/sessions/s-ann",
        "/sessions/s-ann/trace",
        "/conversations/c-1",
    ] {
        assert_eq!(get(fleet, ann, path).await.status, 200, "{path}");
    }
    let text = get(fleet, ann, &format!("/documents?uri={document}")).await;
    assert_eq!(text.status, 200);
    let approved = json!({"answer": "approve", "by": "somebody else"});
    assert_eq!(get(fleet, ann, sparql).await.status, 200);
    let decision = send(fleet, ann, "POST", "/approvals/a-ann", &approved).await;
    assert_eq!(decision.json()["by"], "ann", "{}", decision.text());
    log_with(fleet, |one| {
        one.action == "answer approve" && one.principal == "ann"
    })
    .await;
    // The owner of the data directory sees all of them.
    assert_eq!(get(fleet, "owner", "/sessions/s-ann").await.status, 200);
    assert_eq!(get(fleet, "owner", sparql).await.status, 200);
}

fn form_urlencoded(text: &str) -> String {
    text.replace(':', "%3A").replace('/', "%2F")
}

/// A session that the owner of the data directory asked for.
async fn fleet_owner_session(fleet: &Fleet) -> String {
    let view = ended(fleet, "owner", &json!({"question": "mine"})).await;
    view["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn who_asks_is_set_at_the_door() {
    let fleet = fleet().await;
    let ann = key(&fleet, "ann", "acme", &ROLES).await;
    let bob = key(&fleet, "bob", "bond", &ROLES).await;
    // The same name and key in two tenants are two requests.
    let also_bob = key(&fleet, "bob", "acme", &ROLES).await;
    let forged = json!({
        "question": "hello", "user": "ann", "session_id": "s-bob", "conversation_id": "c-1",
        "control": {"principal": {"name": "ann", "tenant": "acme"}},
    });
    let view = ended(&fleet, &bob, &forged).await;
    assert_eq!(view["user"], "bob");
    for (key, status) in [(&bob, 200), (&ann, 404)] {
        assert_eq!(get(&fleet, key, "/sessions/s-bob").await.status, status);
        assert_eq!(get(&fleet, key, "/conversations/c-1").await.status, status);
    }
    let mut sessions = Vec::new();
    for key in [&bob, &also_bob] {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", "k")];
        let reply = fleet
            .client
            .ask(&json!({"question": "hello"}), &headers)
            .await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        assert_eq!(reply.json()["repeated"], false);
        sessions.push(reply.json()["session_id"].clone());
    }
    assert_ne!(sessions[0], sessions[1]);
    // A list shows the sessions of its tenant, page by page.
    for n in 0..5 {
        let key = if n % 2 == 0 { &ann } else { &bob };
        ended(
            &fleet,
            key,
            &json!({"question": "hello", "session_id": format!("s-{n}")}),
        )
        .await;
    }
    let mut seen = Vec::new();
    let mut next = "/sessions?limit=2".to_owned();
    loop {
        let page = get(&fleet, &ann, &next).await.json();
        for one in page["sessions"].as_array().unwrap() {
            seen.push(one["session_id"].as_str().unwrap().to_owned());
        }
        match page["next"].as_str() {
            Some(more) => next = more.to_owned(),
            None => break,
        }
    }
    seen.retain(|session| session.starts_with("s-"));
    assert_eq!(seen, ["s-4", "s-2", "s-0"]);
}

#[tokio::test]
async fn each_role_may_do_what_it_is_for() {
    let fleet = fleet().await;
    let ann = key(&fleet, "ann", "acme", &ROLES).await;
    let asked = json!({"question": "hello", "session_id": "s-1", "conversation_id": "c-1"});
    ended(&fleet, &ann, &asked).await;
    let (ask, read, see) = (
        [true, true, false, false],
        [true, true, true, false],
        [false, true, true, false],
    );
    let table = [
        ("POST", "/requests", ask),
        ("GET", "/sessions", see),
        ("GET", "/sessions/s-1", read),
        ("GET", "/sessions/s-1/events", ask),
        ("GET", "/sessions/s-1/trace", [false, false, true, false]),
        ("GET", "/conversations/c-1", read),
        ("GET", "/documents?uri=x", [false, false, true, false]),
        ("DELETE", "/sessions/s-1", [false, true, false, false]),
        ("GET", "/approvals", [false, false, false, true]),
        ("POST", "/approvals/x", [false, false, false, true]),
        (
            "GET",
            "/sparql?query=ASK%20%7B%7D",
            [false, false, true, false],
        ),
        ("POST", "/sparql", [false, false, true, false]),
    ];
    for (at, role) in ROLES.into_iter().enumerate() {
        let key = key(&fleet, role, "acme", &[role]).await;
        for (method, path, may) in table {
            let body = json!({"question": "hello"});
            let reply = send(&fleet, &key, method, path, &body).await;
            let refused = reply.status == 403;
            assert_eq!(
                refused, !may[at],
                "{} {method} {path}: {}",
                role, reply.status
            );
            if refused {
                assert_eq!(reply.code(), "not-permitted");
                assert!(reply.text().contains(&format!("the caller has: `{role}`")));
            }
        }
    }
    log_with(&fleet, |one| {
        one.action == "cancel" && one.principal == "operator"
    })
    .await;
}
