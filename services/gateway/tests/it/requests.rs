//! `POST /requests`: taken in once, whatever is repeated.

use crate::fleet::{Fleet, options};
use agentfleet_broker::Broker;
use agentfleet_gateway::Options;
use agentfleet_schema::{AgentRequest, RunControl, SessionId, topics};
use serde_json::json;
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_request_is_taken_in_at_once_and_answered_later() {
    let fleet = Fleet::start().await;
    let reply = fleet
        .client
        .ask(&json!({ "question": "what is 2+2?" }), &[])
        .await;
    assert_eq!(reply.status, 202);
    let body = reply.json();
    let session = body["session_id"].as_str().unwrap();
    assert_eq!(body["location"], format!("/sessions/{session}"));
    assert_eq!(reply.header("location"), format!("/sessions/{session}"));
    assert_eq!(body["events"], format!("/sessions/{session}/events"));
    assert_eq!(body["repeated"], false);
    let view = fleet.client.ended(session).await;
    assert_eq!(view["answer"], "You asked: what is 2+2?\nThat is all.");
}

#[tokio::test]
async fn the_same_key_and_user_ask_once_however_often_and_however_close() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let key = [("idempotency-key", "order-7")];
    let body = json!({ "question": "once?", "user": "ada" });
    let asked = (0..16).map(|_| client.ask(&body, &key));
    let replies = futures::future::join_all(asked).await;
    let session = replies[0].json()["session_id"].clone();
    let mut first = 0;
    for reply in &replies {
        assert_eq!(reply.status, 202, "{}", reply.text());
        assert_eq!(reply.json()["session_id"], session);
        first += usize::from(reply.json()["repeated"] == false);
    }
    assert_eq!(first, 1, "one of them is the first");
    client.ended(session.as_str().unwrap()).await;
    // Routing and the answer: two steps, each worked once.
    assert_eq!(fleet.worked.load(Ordering::SeqCst), 2);

    // The order of fields, white space and `streaming` make no difference; another user's key does.
    let same = json!({ "user": "ada", "question": "once?", "streaming": true });
    assert_eq!(client.ask(&same, &key).await.json()["session_id"], session);
    let other = client
        .ask(&json!({ "question": "once?", "user": "bob" }), &key)
        .await;
    assert_ne!(other.json()["session_id"], session);
}

#[tokio::test]
async fn the_same_key_or_session_with_another_request_is_a_conflict_that_names_both_digests() {
    let fleet = Fleet::start().await;
    let client = fleet.client;
    let key = [("idempotency-key", "order-7")];
    client.ask(&json!({ "question": "a?" }), &key).await;
    let conflict = client.ask(&json!({ "question": "b?" }), &key).await;
    assert_eq!(
        (conflict.status, conflict.code().as_str()),
        (409, "request-conflict")
    );
    let message = conflict.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    let digests: Vec<&str> = message
        .split('`')
        .filter(|part| part.len() == 64 && part.bytes().all(|b| b.is_ascii_hexdigit()))
        .collect();
    assert_eq!(digests.len(), 2, "{message}");
    assert_ne!(digests[0], digests[1]);

    let own = json!({ "question": "a?", "session_id": "mine-1" });
    assert_eq!(client.ask(&own, &[]).await.json()["session_id"], "mine-1");
    assert_eq!(client.ask(&own, &[]).await.json()["repeated"], true);
    let conflict = client
        .ask(&json!({ "question": "b?", "session_id": "mine-1" }), &[])
        .await;
    assert_eq!(conflict.code(), "request-conflict");
    let both = client.ask(&own, &key).await;
    assert_eq!(
        (both.status, both.code().as_str()),
        (400, "invalid-request")
    );
}

#[tokio::test]
async fn a_request_published_through_another_door_is_not_asked_again() {
    let fleet = Fleet::start().await;
    let request = AgentRequest {
        question: "elsewhere?".into(),
        session_id: "elsewhere-1".into(),
        ..AgentRequest::default()
    };
    agentfleet_runtime::client::submit(&fleet.broker, request, "elsewhere-1", &[])
        .await
        .unwrap();
    let mut events = agentfleet_runtime::client::Follow::new(
        fleet.parts.intake.broker.clone(),
        fleet.parts.intake.documents.clone(),
        SessionId::new("elsewhere-1"),
        0,
    );
    while !events.next().await.unwrap().response.end_of_dialog {}
    let worked = fleet.worked.load(Ordering::SeqCst);

    let same = json!({ "question": "elsewhere?", "session_id": "elsewhere-1" });
    let reply = fleet.client.ask(&same, &[]).await;
    assert_eq!(
        (reply.status, &reply.json()["repeated"]),
        (202, &json!(true))
    );
    let other = json!({ "question": "other?", "session_id": "elsewhere-1" });
    assert_eq!(
        fleet.client.ask(&other, &[]).await.code(),
        "request-conflict"
    );
    assert_eq!(fleet.worked.load(Ordering::SeqCst), worked);
}

#[tokio::test]
async fn what_only_workers_write_is_dropped_and_the_callers_id_travels() {
    let data = tempfile::TempDir::new().unwrap();
    let fleet = Fleet::idle(data.path(), options()).await;
    let body = json!({
        "question": "who am I?",
        "control": { "root": "somebody-else", "hard_deadline": 1, "fan_in_step": 3 },
    });
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("idempotency-key", "k-1"), ("traceparent", trace)];
    let session = fleet.client.ask(&body, &headers).await.json()["session_id"].clone();
    let mut consumer = fleet
        .broker
        .subscribe(agentfleet_broker::Subscription {
            topic: topics::AGENT_REQUEST,
            name: "orchestrator".into(),
            only: None,
            lease: std::time::Duration::from_secs(30),
            max_deliveries: None,
        })
        .await
        .unwrap();
    let deliveries = consumer.receive(8).await.unwrap();
    assert_eq!(deliveries.len(), 1);
    let request: AgentRequest = serde_json::from_slice(&deliveries[0].payload).unwrap();
    assert_eq!(request.control, RunControl::default());
    assert_eq!(request.session_id.as_str(), session.as_str().unwrap());
    let properties = &deliveries[0].properties;
    assert_eq!(properties["id"], "k-1");
    assert_eq!(properties["root"], request.session_id.as_str());
    assert_eq!(properties["step"], "0");
    assert_eq!(properties["traceparent"], trace);
}

#[tokio::test]
async fn a_wrong_request_is_refused_before_it_is_published() {
    let limits = Options {
        max_body: 4096,
        ..options()
    };
    let fleet = Fleet::with(limits).await;
    let client = fleet.client;
    let table = [
        (json!({ "question": "" }), 400, "empty-question"),
        (json!({ "question": 3 }), 400, "invalid-request"),
        (
            json!({ "question": "q", "limits": { "max_depth": -1 } }),
            400,
            "invalid-request",
        ),
        (
            json!({ "question": "q", "pattern": "supervisr" }),
            400,
            "unknown-pattern",
        ),
        (
            json!({ "question": "q", "task_type": "astrology" }),
            400,
            "unknown-task-type",
        ),
        // Its model costs something, and nobody knows what.
        (
            json!({ "question": "q", "limits": { "max_cost": 0.5 } }),
            400,
            "no-prices",
        ),
        (
            json!({ "question": "q", "parent_session_id": "p" }),
            400,
            "invalid-request",
        ),
        (
            json!({ "question": "x".repeat(5000) }),
            413,
            "request-too-large",
        ),
    ];
    for (body, status, code) in table {
        let reply = client.ask(&body, &[]).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (status, code),
            "{}",
            reply.text()
        );
    }
    for (body, code, says) in [
        (
            json!({ "question": "q", "colection": "c" }),
            "invalid-request",
            "`$.colection`: unknown field: did you mean `collection`?",
        ),
        (
            json!({ "question": "q", "limits": { "max_token": 1 } }),
            "invalid-request",
            "`$.limits.max_token`: unknown field: did you mean `max_tokens`?",
        ),
        (
            json!({ "question": "q", "collection": "dosier" }),
            "unknown-collection",
            "nothing was loaded as collection `dosier`: did you mean `dossier`?",
        ),
    ] {
        let reply = client.ask(&body, &[]).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, code));
        assert_eq!(reply.json()["error"]["message"], says);
    }
    let unknown = client
        .ask(&json!({ "question": "q", "pattern": "supervisr" }), &[])
        .await;
    assert!(
        unknown.text().contains("`react`, `supervisor`"),
        "{}",
        unknown.text()
    );

    let json = ("content-type", "application/json");
    let body = br#"{"question": "q"}"#;
    let reply = client.send("POST", "/requests", &[], body).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (415, "unsupported-media-type")
    );
    let form = ("content-type", "application/x-www-form-urlencoded");
    let reply = client.send("POST", "/requests", &[form], body).await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (415, "unsupported-media-type")
    );
    let reply = client.send("POST", "/requests", &[json], b"{").await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid-json"));
    let long = "k".repeat(300);
    for key in ["", &long] {
        let headers = [json, ("idempotency-key", key)];
        let reply = client.send("POST", "/requests", &headers, body).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (400, "invalid-request"),
            "{key}"
        );
    }
    let backlog: u64 = fleet
        .broker
        .backlog()
        .await
        .unwrap()
        .iter()
        .map(|(_, count)| count)
        .sum();
    assert_eq!((backlog, fleet.worked.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn a_collection_that_is_no_slip_may_be_asked() {
    let fleet = Fleet::start().await;
    // Another of a row, another altogether, the one that everybody gets, and one that is there.
    for collection in ["tenant-2", "handbook", "tea", "default", "dossier"] {
        let body = json!({ "question": "q", "collection": collection });
        let reply = fleet.client.ask(&body, &[]).await;
        assert_eq!(reply.status, 202, "{collection}");
    }
}

#[tokio::test]
async fn what_was_taken_in_and_not_published_is_published_by_the_next_who_asks() {
    let data = tempfile::TempDir::new().unwrap();
    let mut fleet = Fleet::idle(data.path(), options()).await;
    let body = json!({ "question": "lost?", "session_id": "lost-1" });
    fleet.client.start(&body).await;
    // As a process leaves it that dies between the record and the message, where these are not one
    // transaction.
    let session = SessionId::new("lost-1");
    let marker = agentfleet_schema::keys::accepted_published(&session);
    fleet
        .parts
        .intake
        .documents
        .delete(&[marker])
        .await
        .unwrap();
    let reply = fleet.client.ask(&body, &[]).await;
    assert_eq!(reply.json()["repeated"], true);
    let waiting: u64 = fleet
        .broker
        .backlog()
        .await
        .unwrap()
        .iter()
        .filter(|(name, _)| name == "agent-request/orchestrator")
        .map(|(_, count)| count)
        .sum();
    assert_eq!(waiting, 2, "published again");
    fleet.work().await;
    assert_eq!(fleet.client.ended("lost-1").await["state"], "answered");
}
