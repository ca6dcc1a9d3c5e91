//! What roles of the config allow, what a tenant may use in a month, and which part of the graph it sees.

use crate::approvals::waiting_for;
use crate::fleet::Fleet;
use crate::identity::{ended, fleet, get, key, key_of, log_with, send};
use agentfleet_config::Item;
use agentfleet_gateway::NewKey;
use agentfleet_graph::{Batch, Graph as _};
use agentfleet_schema::topics::property;
use agentfleet_schema::{Metadata, Principal, Term, Triple, Triples, uris};
use serde_json::{Value, json};

async fn put(fleet: &Fleet, item_type: &str, key: &str, value: Value) {
    let item = Item {
        item_type: item_type.to_owned(),
        key: key.to_owned(),
        value,
    };
    let config = &fleet.parts.intake.config;
    config.put(vec![item], "test").await.unwrap();
}

#[tokio::test]
async fn a_role_of_the_config_says_who_may_answer_which_call() {
    let fleet = fleet().await;
    put(
        &fleet,
        "role",
        "mailer",
        json!({"name": "mailer", "may": ["approval.*"], "approves": ["mail.*"], "tenants": ["bond"]}),
    )
    .await;
    let meg = key(&fleet, "meg", "acme", &["mailer"]).await;
    let principal = |tenant: &str| Principal {
        name: "ann".into(),
        tenant: tenant.into(),
        ..Principal::default()
    };
    waiting_for(&fleet, "a-1", Some(principal("acme"))).await;
    waiting_for(&fleet, "a-2", Some(principal("bond"))).await;
    waiting_for(&fleet, "a-3", Some(principal("else"))).await;
    waiting_for(&fleet, "a-4", None).await;
    let listed = async || {
        let listed = get(&fleet, &meg, "/approvals").await.json();
        let all = listed["approvals"].as_array().unwrap().iter();
        let one = |one: &Value| {
            let id = one["id"].as_str().unwrap().to_owned();
            (id, one["may_answer"].as_bool().unwrap())
        };
        all.map(one).collect::<Vec<_>>()
    };
    let seen = [("a-1".to_owned(), false), ("a-2".to_owned(), false)];
    assert_eq!(listed().await, seen);
    let approve = json!({"answer": "approve"});
    let refused = send(&fleet, &meg, "POST", "/approvals/a-1", &approve).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "not-permitted")
    );
    assert!(refused.text().contains("`pay`"), "{}", refused.text());
    log_with(&fleet, |one| {
        one.principal == "meg" && one.subject == "approval a-1" && one.outcome == "refused"
    })
    .await;
    // What may be seen and answered is read from the config that is in force.
    put(
        &fleet,
        "role",
        "mailer",
        json!({"name": "mailer", "may": ["approval.*"], "approves": ["mail.*", "pay"]}),
    )
    .await;
    assert_eq!(listed().await, [("a-1".to_owned(), true)]);
    let decided = send(&fleet, &meg, "POST", "/approvals/a-1", &approve).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    let gone = send(&fleet, &meg, "POST", "/approvals/a-2", &approve).await;
    assert_eq!(gone.status, 404);
    // A refusal names the roles that would do, also those of the config.
    let asked = send(
        &fleet,
        &meg,
        "POST",
        "/requests",
        &json!({"question": "hello"}),
    )
    .await;
    assert_eq!(asked.status, 403);
    for part in [
        "`ask`",
        "`operator`, `producer`",
        "the caller has: `mailer`",
    ] {
        assert!(asked.text().contains(part), "{part}: {}", asked.text());
    }
}

#[tokio::test]
async fn runs_have_the_permissions_of_the_roles_of_who_asks() {
    let fleet = fleet().await;
    let role = json!({"name": "writer", "may": ["ask", "session.read"], "permissions": ["blog.*"]});
    put(&fleet, "role", "writer", role).await;
    let secret = key_of(
        &fleet,
        NewKey {
            name: "wim".into(),
            tenant: "acme".into(),
            roles: vec!["writer".into()],
            permissions: vec!["mail.send".into()],
            ..NewKey::default()
        },
    )
    .await;
    let view = ended(
        &fleet,
        &secret,
        &json!({"question": "hello", "session_id": "s-w"}),
    )
    .await;
    assert_eq!(view["state"], "answered");
    let accepted = agentfleet_schema::keys::accepted(&"s-w".into());
    let body = fleet
        .parts
        .intake
        .documents
        .get(&accepted)
        .await
        .unwrap()
        .unwrap();
    let record: agentfleet_schema::records::AcceptedRecord = serde_json::from_slice(&body).unwrap();
    let principal = record.asked().unwrap().control.principal.unwrap();
    assert_eq!(principal.permissions, ["mail.send", "blog.*"]);
}

#[tokio::test]
async fn a_tenant_that_used_up_its_month_is_told_so_and_others_are_not() {
    let fleet = fleet().await;
    put(
        &fleet,
        "tenant",
        "acme",
        json!({"name": "acme", "runs-per-month": 2}),
    )
    .await;
    let ann = key(&fleet, "ann", "acme", &["producer"]).await;
    let bob = key(&fleet, "bob", "bond", &["producer"]).await;
    for n in 0..2 {
        let body = json!({"question": "hello", "session_id": format!("s-{n}")});
        ended(&fleet, &ann, &body).await;
    }
    let again = json!({"question": "hello", "session_id": "s-2"});
    let refused = send(&fleet, &ann, "POST", "/requests", &again).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (429, "quota-used-up")
    );
    for part in [
        "You've hit your limit for this month",
        "quota of runs",
        "begins anew on",
    ] {
        assert!(refused.text().contains(part), "{part}: {}", refused.text());
    }
    log_with(&fleet, |one| {
        one.principal == "ann" && one.reason.starts_with("quota-used-up")
    })
    .await;
    // What was taken in before is answered as before, and nobody else is bounded.
    let repeated = json!({"question": "hello", "session_id": "s-1"});
    let repeated = send(&fleet, &ann, "POST", "/requests", &repeated).await;
    assert_eq!(repeated.json()["repeated"], true, "{}", repeated.text());
    ended(&fleet, &bob, &json!({"question": "hello"})).await;
    put(
        &fleet,
        "tenant",
        "*",
        json!({"name": "*", "runs-per-month": 1}),
    )
    .await;
    let refused = send(
        &fleet,
        &bob,
        "POST",
        "/requests",
        &json!({"question": "hello"}),
    )
    .await;
    assert_eq!(refused.code(), "quota-used-up");
    put(
        &fleet,
        "tenant",
        "acme",
        json!({"name": "acme", "runs-per-month": 3}),
    )
    .await;
    ended(&fleet, &ann, &again).await;
}

#[tokio::test]
async fn the_troubles_of_the_fleet_are_told_to_who_runs_it_only() {
    let fleet = fleet().await;
    let ann = key(&fleet, "ann", "acme", &["producer"]).await;
    let asked = json!({"question": "fail here", "session_id": "s-f"});
    let view = ended(&fleet, &ann, &asked).await;
    let says = "I'm experiencing technical difficulties. Please try again in a few minutes.";
    assert_eq!(
        view["error"],
        json!({"code": "model-failed", "message": says})
    );
    let events = get(&fleet, &ann, "/sessions/s-f/events").await.text();
    assert!(events.contains(says), "{events}");
    assert!(!events.contains("the model refuses"), "{events}");
    // The record has all of it.
    let key = agentfleet_schema::keys::outcome(&"s-f".into(), 1);
    let record = fleet
        .parts
        .intake
        .documents
        .get(&key)
        .await
        .unwrap()
        .unwrap();
    assert!(String::from_utf8_lossy(&record).contains("the model refuses"));
    let own = ended(&fleet, "owner", &json!({"question": "fail here"})).await;
    assert_eq!(own["error"]["message"], "the model refuses");
}

#[tokio::test]
async fn a_tenant_queries_what_is_told_of_its_own_runs() {
    let fleet = fleet().await;
    for tenant in ["acme", "bond", ""] {
        let triple = Triple {
            s: Term::iri("urn:test:s"),
            p: Term::iri("urn:test:p"),
            o: Term::text(format!("of `{tenant}`")),
            g: Some(uris::RETRIEVAL_GRAPH.to_owned()),
        };
        let message = Triples {
            metadata: Metadata {
                id: format!("m-{tenant}"),
                ..Metadata::default()
            },
            triples: vec![triple],
        };
        let mut properties = std::collections::BTreeMap::new();
        if !tenant.is_empty() {
            properties.insert(property::TENANT.to_owned(), tenant.to_owned());
        }
        let batch = Batch::of_message(message, &properties);
        fleet.graph.insert(vec![batch]).await.unwrap();
    }
    let ann = key(&fleet, "ann", "acme", &["analyst"]).await;
    let path = "/sparql?format=json&query=SELECT%20%3Fo%20%7B%3Fs%20%3Curn:test:p%3E%20%3Fo%7D%20ORDER%20BY%20%3Fo";
    let found = |reply: Value| -> Vec<String> {
        let rows = reply["results"]["bindings"].as_array().unwrap().clone();
        let text = |row: &Value| row["o"]["value"].as_str().unwrap().to_owned();
        rows.iter().map(text).collect()
    };
    let own = get(&fleet, &ann, path).await;
    assert_eq!(own.status, 200, "{}", own.text());
    assert_eq!(found(own.json()), ["of `acme`"]);
    let all = get(&fleet, "owner", path).await;
    assert_eq!(found(all.json()), ["of ``", "of `acme`", "of `bond`"]);
    let role = json!({"name": "auditor", "may": ["graph.query"], "tenants": ["bond", "*"]});
    put(&fleet, "role", "auditor", role).await;
    let amy = key(&fleet, "amy", "acme", &["auditor"]).await;
    let both = get(&fleet, &amy, path).await;
    assert_eq!(found(both.json()), ["of `acme`", "of `bond`"]);
}
