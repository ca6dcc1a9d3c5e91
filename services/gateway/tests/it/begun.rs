//! Subagents that are in their first step, and so have no record of their own yet.

use crate::fleet::Fleet;
use crate::identity::{ROLES, fleet, get, key, log_with, send};
use agentfleet_schema::SessionId;

use serde_json::{Value, json};
use std::time::{Duration, Instant};

const QUESTION: &str = "compare kept back tea and kept back coffee";

/// The subagents of a run, once it has started them.
async fn subagents(fleet: &Fleet, key: &str, root: &str) -> Vec<Value> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let view = get(fleet, key, &format!("/sessions/{root}")).await.json();
        if let Some(subagents) = view["subagents"].as_array() {
            return subagents.clone();
        }
        assert!(Instant::now() < until, "{view}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

async fn asked(fleet: &Fleet, key: &str, session: &str) {
    let body = json!({ "question": QUESTION, "pattern": "supervisor", "session_id": session });
    let reply = send(fleet, key, "POST", "/requests", &body).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
}

#[tokio::test]
async fn a_subagent_is_shown_and_ended_before_its_first_record() {
    let fleet = fleet().await;
    let owner = "owner";
    asked(&fleet, owner, "root").await;
    let subagents = subagents(&fleet, owner, "root").await;
    assert_eq!(subagents.len(), 2);
    for subagent in &subagents {
        let location = subagent["location"].as_str().unwrap();
        let reply = get(&fleet, owner, location).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let view = reply.json();
        assert_eq!(view["session_id"], subagent["session_id"]);
        assert_eq!(view["question"], subagent["goal"]);
        assert_eq!(
            (&view["state"], &view["finished"], &view["steps"]),
            (&json!("queued"), &json!(false), &json!(0))
        );
        assert_eq!(
            (&view["root_session_id"], &view["parent_session_id"]),
            (&json!("root"), &json!("root"))
        );
        let events = get(&fleet, owner, &format!("{location}/events")).await;
        assert_eq!(
            (events.status, events.code().as_str()),
            (400, "not-a-root-session")
        );
        assert!(events.text().contains("root session `root`"));
    }
    let ended = subagents[0]["location"].as_str().unwrap();
    let reply = send(&fleet, owner, "DELETE", ended, &Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let told = reply.json();
    assert_eq!(
        (&told["cancel"], &told["state"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    let again = send(&fleet, owner, "DELETE", ended, &Value::Null).await;
    assert_eq!(again.json()["cancel"], "already-ended");
    // Its sibling goes on, and so does the run.
    fleet.gate.send_replace(true);
    let view = get(&fleet, owner, "/sessions/root?wait=60").await.json();
    assert_eq!(view["finished"], true, "{view}");
    let statuses: Vec<&Value> = view["subagents"].as_array().unwrap().iter().collect();
    let of = |session: &Value| {
        let mut all = statuses.iter();
        let one = all.find(|one| one["session_id"] == *session).unwrap();
        one["status"].clone()
    };
    assert_eq!(of(&subagents[0]["session_id"]), "cancelled");
    assert_eq!(of(&subagents[1]["session_id"]), "answered");
}

#[tokio::test]
async fn a_subagent_of_another_tenant_stays_unseen_before_its_first_record() {
    let fleet = fleet().await;
    let ann = key(&fleet, "ann", "acme", &ROLES).await;
    let bob = key(&fleet, "bob", "bond", &ROLES).await;
    asked(&fleet, &ann, "s-ann").await;
    let subagents = subagents(&fleet, &ann, "s-ann").await;
    let location = subagents[0]["location"].as_str().unwrap();
    assert_eq!(get(&fleet, &ann, location).await.status, 200);
    let unknown = SessionId::child(&SessionId::new("nobody"), 0, 0, "nonce");
    let unknown = format!("/sessions/{unknown}");
    for path in [location, &unknown] {
        for method in ["GET", "DELETE"] {
            let reply = send(&fleet, &bob, method, path, &Value::Null).await;
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (404, "unknown-session"),
                "{method} {path}"
            );
        }
    }
    let session = subagents[0]["session_id"].as_str().unwrap();
    log_with(&fleet, |one| {
        one.principal == "bob" && one.subject == session && one.reason.contains("another-tenant")
    })
    .await;
    // Nothing came of it.
    let view = get(&fleet, &ann, location).await.json();
    assert_eq!(view["state"], "queued", "{view}");
}
