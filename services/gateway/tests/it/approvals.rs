//! Calls that wait for a person, and the answers to them.

use crate::fleet::Fleet;
use agentfleet_schema::records::{ApprovalPlace, Asked, PauseRecord, Publication};
use agentfleet_schema::{AgentRequest, HeldCall, Principal, RunControl, keys};
use serde_json::json;

/// A call that waits, as a worker leaves it behind.
async fn waiting(fleet: &Fleet, id: &str) -> PauseRecord {
    waiting_for(fleet, id, None).await
}

/// The same on behalf of somebody.
pub(crate) async fn waiting_for(
    fleet: &Fleet,
    id: &str,
    principal: Option<Principal>,
) -> PauseRecord {
    let held = HeldCall {
        approval: id.into(),
        tool: "pay".into(),
        arguments: [("amount".to_owned(), "5".to_owned())].into(),
        ..HeldCall::default()
    };
    let request = AgentRequest {
        question: "Pay what is due".into(),
        session_id: format!("s-{id}").as_str().into(),
        pattern: "react".into(),
        step: 1,
        control: RunControl {
            held: Some(held.clone()),
            principal,
            ..RunControl::default()
        },
        ..AgentRequest::default()
    };
    let pause = PauseRecord {
        session: request.session_id.clone(),
        step: 0,
        root: request.session_id.clone(),
        asked: Asked {
            id: id.into(),
            n: 1,
            tool: "pay".into(),
            arguments: held.arguments,
            reason: "it costs".into(),
            asked_at: 1,
            expires_at: i64::MAX / 1_000_000,
            ..Asked::default()
        },
        resume: Publication {
            topic: "agent-request".into(),
            body: serde_json::to_string(&request).unwrap(),
            ..Publication::default()
        },
    };
    let place = ApprovalPlace {
        session: pause.session.clone(),
        step: 0,
    };
    let objects = [
        (keys::pause(&pause.session, 0), serde_json::to_vec(&pause)),
        (
            keys::approval(&pause.root, &pause.asked.id),
            serde_json::to_vec(&place),
        ),
    ];
    for (key, body) in objects {
        fleet
            .parts
            .intake
            .documents
            .create(&key, body.unwrap())
            .await
            .unwrap();
    }
    pause
}

async fn answer(fleet: &Fleet, id: &str, body: serde_json::Value) -> (u16, serde_json::Value) {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    let path = format!("/approvals/{id}");
    let reply = fleet
        .client
        .send("POST", &path, &headers, body.as_bytes())
        .await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn what_waits_is_listed_and_answered_once() {
    let fleet = Fleet::start().await;
    let empty = fleet.client.json("/approvals").await;
    assert_eq!(empty, json!({"approvals": []}));
    waiting(&fleet, "a-1").await;
    let listed = fleet.client.json("/approvals").await;
    let one = &listed["approvals"][0];
    assert_eq!(one["id"], "a-1");
    assert_eq!(one["tool"], "pay");
    assert_eq!(one["arguments"], json!({"amount": "5"}));
    assert_eq!(one["default"], "deny");
    assert_eq!(one["location"], "/approvals/a-1");
    assert_eq!(one["may_answer"], true);
    let yes = json!({"answer": "approve", "by": "ada", "reason": "it is due"});
    let (status, decision) = answer(&fleet, "a-1", yes.clone()).await;
    assert_eq!(status, 200, "{decision}");
    assert_eq!(decision["by"], "ada");
    assert_eq!(decision["session"], "/sessions/s-a-1");
    let empty = fleet.client.json("/approvals").await;
    assert_eq!(empty, json!({"approvals": []}));
}

#[tokio::test]
async fn answers_that_are_none_are_refused_with_the_reason() {
    let fleet = Fleet::start().await;
    waiting(&fleet, "a-1").await;
    for (id, body, status, code) in [
        ("a-2", json!({"answer": "deny"}), 404, "unknown-approval"),
        ("a-1", json!({"answer": "edit"}), 400, "invalid-request"),
        (
            "a-1",
            json!({"answer": "deny", "arguments": {}}),
            400,
            "invalid-request",
        ),
        ("a-1", json!({"answer": "maybe"}), 400, "invalid-request"),
        (
            "a-1",
            json!({"answer": "deny", "who": "ada"}),
            400,
            "invalid-request",
        ),
        (
            "a-1",
            json!({"answer": "deny", "by": "a\nb"}),
            400,
            "invalid-request",
        ),
    ] {
        let (got, error) = answer(&fleet, id, body.clone()).await;
        assert_eq!(
            (got, &error["error"]["code"]),
            (status, &json!(code)),
            "{body}"
        );
    }
    assert_eq!(
        answer(&fleet, "a-1", json!({"answer": "deny"})).await.0,
        200
    );
}
