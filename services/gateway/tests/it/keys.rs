//! How long an API key counts, how often it may come, and what shows in the audit log.

use crate::identity::{fleet, get, key, key_of, log_with};
use agentfleet_gateway::{Audit, Logged, NewKey, keys, logged, revoke_key, verify};
use agentfleet_schema::records::AuditEntry;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_key_counts_until_it_is_revoked_or_expires() {
    let fleet = fleet().await;
    let documents = Arc::clone(&fleet.parts.intake.documents);
    let ann = key(&fleet, "ann", "acme", &["operator"]).await;
    assert_eq!(get(&fleet, &ann, "/sessions").await.status, 200);
    let stored = keys(&*documents).await.unwrap();
    assert_eq!((stored.len(), stored[0].name.as_str()), (1, "ann"));
    assert!(!serde_json::to_string(&stored).unwrap().contains(&ann));
    let expired = NewKey {
        name: "old".into(),
        tenant: "acme".into(),
        roles: vec!["operator".to_owned()],
        expires_at: 1,
        ..NewKey::default()
    };
    let expired = key_of(&fleet, expired).await;
    let gone = key(&fleet, "gone", "acme", &["operator"]).await;
    let id = |key: &str| key.split('_').nth(1).unwrap().to_owned();
    let revoked = revoke_key(&*documents, &id(&gone), "ada", 7).await.unwrap();
    assert_eq!(revoked.map(|key| key.revoked_at), Some(7));
    assert_eq!(
        revoke_key(&*documents, "none", "ada", 7).await.unwrap(),
        None
    );
    let other_secret = format!("{ann}x");
    for (key, says) in [
        (expired.as_str(), "expired at"),
        (&gone, "was revoked at"),
        (&other_secret, "is not known"),
        ("af_0123456789abcdef_secret", "is not known"),
        ("af_", "is not known"),
        ("wrong", "the token of the gateway"),
    ] {
        let reply = get(&fleet, key, "/sessions").await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (401, "not-authorized")
        );
        assert!(reply.text().contains(says), "{}", reply.text());
    }
    for (who, why) in [
        ("old", "expired"),
        ("gone", "revoked"),
        ("nobody", "not known"),
    ] {
        log_with(&fleet, |one| {
            one.principal == who && one.reason.contains(why)
        })
        .await;
    }
    // What was let in before is not let in for long.
    revoke_key(&*documents, &id(&ann), "ada", 9).await.unwrap();
    let mut status = 200;
    for _ in 0..24 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        status = get(&fleet, &ann, "/sessions").await.status;
        if status == 401 {
            break;
        }
    }
    assert_eq!(status, 401);
}

#[tokio::test]
async fn a_principal_that_comes_too_often_is_told_when_to_come_again() {
    let fleet = fleet().await;
    let new = NewKey {
        name: "ann".into(),
        tenant: "acme".into(),
        roles: vec!["operator".to_owned()],
        per_minute: Some(2),
        ..NewKey::default()
    };
    let ann = key_of(&fleet, new).await;
    let bob = key(&fleet, "bob", "acme", &["operator"]).await;
    for remaining in ["1", "0"] {
        let reply = get(&fleet, &ann, "/sessions").await;
        assert_eq!(
            (reply.status, reply.header("ratelimit-remaining")),
            (200, remaining)
        );
    }
    let reply = get(&fleet, &ann, "/sessions").await;
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (429, "too-many-requests")
    );
    assert_eq!(reply.header("ratelimit-remaining"), "0");
    let after: u64 = reply.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(get(&fleet, &bob, "/sessions").await.status, 200);
    log_with(&fleet, |one| {
        one.principal == "ann" && one.reason.starts_with("too-many")
    })
    .await;
}

#[tokio::test]
async fn an_entry_that_was_changed_or_lost_is_named() {
    let fleet = fleet().await;
    let documents = Arc::clone(&fleet.parts.intake.documents);
    let entry = |n: usize| AuditEntry {
        principal: "ada".into(),
        action: format!("config put {n}"),
        outcome: "allowed".into(),
        ..AuditEntry::default()
    };
    let writers = [
        Audit::new(Arc::clone(&documents)),
        Audit::new(Arc::clone(&documents)),
    ];
    for n in 0..6 {
        // Each finds what the other wrote.
        writers[n % 2].write(entry(n), 1_000).await.unwrap();
    }
    let report = verify(&*documents).await.unwrap();
    assert_eq!((report.entries, report.branches), (6, 0));
    assert_eq!(report.findings, Vec::<String>::new());
    let found: Vec<Logged> = logged(&*documents, 0).await.unwrap();
    let (changed, lost) = (&found[1], &found[3]);
    let mut other = changed.entry.clone().unwrap();
    other.principal = "eve".into();
    documents
        .delete(&[changed.key.clone(), lost.key.clone()])
        .await
        .unwrap();
    let body = serde_json::to_vec(&other).unwrap();
    documents.create(&changed.key, body).await.unwrap();
    let findings = verify(&*documents).await.unwrap().findings;
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings[0].contains(&changed.key) && findings[0].contains("was changed"));
    assert!(
        findings[1].contains(lost.digest.as_ref().unwrap().as_str())
            && findings[1].contains("missing")
    );
}
