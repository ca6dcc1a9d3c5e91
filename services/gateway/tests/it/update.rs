//! Writing the graph with the token of the data directory.

use crate::fleet::{Fleet, options};
use agentfleet_gateway::Options;
use agentfleet_graph::{Batch, Credentials, Graph as _, QueryOptions, RemoteGraph, RemoteOptions};
use agentfleet_schema::{Digest, Term, Triple};

const TOKEN: &str = "s3cret";
const UPDATE: (&str, &str) = ("content-type", "application/sparql-update");
const HELD: (&str, &str) = ("authorization", "Bearer s3cret");
const INSERT: &[u8] = b"INSERT DATA { <urn:s> <urn:p> 'added' }";
const ASK: &str = "/sparql?query=ASK%20%7B%20%3Curn:s%3E%20%3Curn:p%3E%20%22added%22%20%7D";

fn writable() -> Options {
    Options {
        graph_token: Some(Digest::of(TOKEN.as_bytes())),
        ..options()
    }
}

#[tokio::test]
async fn only_who_holds_the_token_adds_to_the_graph() {
    let fleet = Fleet::with(writable()).await;
    let client = &fleet.client;
    for headers in [
        &[UPDATE][..],
        &[UPDATE, ("authorization", "Bearer another")],
        &[UPDATE, ("authorization", "Basic s3cret")],
    ] {
        let refused = client.send("POST", "/graph/update", headers, INSERT).await;
        assert_eq!(
            (refused.status, refused.code()),
            (401, "not-authorized".to_owned())
        );
        assert!(!refused.text().contains(TOKEN));
    }
    assert_eq!(client.json(ASK).await["boolean"], false);
    let taken = client
        .send("POST", "/graph/update", &[UPDATE, HELD], INSERT)
        .await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    assert_eq!(client.json(ASK).await["boolean"], true);
}

#[tokio::test]
async fn what_cannot_be_added_is_named() {
    let fleet = Fleet::with(writable()).await;
    for (content_type, body, status, code) in [
        (
            "application/sparql-update",
            "INSERT DATA { <urn:s>",
            400,
            "invalid-update",
        ),
        (
            "application/sparql-update",
            "DELETE WHERE { ?s ?p ?o }",
            403,
            "read-only",
        ),
        (
            "application/n-quads",
            "<urn:s> <urn:p>",
            400,
            "invalid-update",
        ),
        ("text/plain", "x", 415, "unsupported-media-type"),
    ] {
        let headers = [("content-type", content_type), HELD];
        let refused = fleet
            .client
            .send("POST", "/graph/update", &headers, body.as_bytes())
            .await;
        assert_eq!(
            (refused.status, refused.code()),
            (status, code.to_owned()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn without_a_token_the_graph_is_not_written_from_outside() {
    let fleet = Fleet::with(options()).await;
    let refused = fleet
        .client
        .send("POST", "/graph/update", &[UPDATE, HELD], INSERT)
        .await;
    assert_eq!(refused.code(), "no-such-endpoint");
    let answer = fleet.client.get(ASK).await;
    assert!(answer.header("agentfleet-graph").is_empty());
}

/// More than a request may hold elsewhere, and with its owners.
#[tokio::test]
async fn another_process_writes_whole_batches() {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let fleet = Fleet::with(writable()).await;
    let mut options = RemoteOptions::new(format!("http://{}", fleet.client.address));
    options.credentials = Some(Credentials::Bearer(TOKEN.to_owned()));
    let remote = RemoteGraph::connect(options).await.unwrap();
    let text = "x".repeat(100_000);
    let batch = |n: usize| Batch {
        key: format!("batch {n}"),
        root: "run".into(),
        collection: String::new(),
        conversation: String::new(),
        triples: vec![Triple {
            s: Term::iri(format!("urn:s{n}")),
            p: Term::iri("urn:p"),
            o: Term::text(text.clone()),
            g: None,
        }],
    };
    remote.insert((0..30).map(batch).collect()).await.unwrap();
    // The same again adds nothing.
    remote.insert((0..30).map(batch).collect()).await.unwrap();
    let count = "SELECT (COUNT(*) AS ?n) WHERE { ?s <urn:p> ?o }";
    let found = fleet
        .graph
        .select(count, &[], QueryOptions::default())
        .await
        .unwrap();
    assert_eq!(found.text(0, "n"), Some("30"));
}
