//! Stopping: streams say how to resume, requests finish, nothing is lost.

use crate::fleet::{Fleet, options};
use agentfleet_gateway::{Error, Gateway, Options};
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_stream_ends_with_how_to_resume_and_another_gateway_takes_it_up() {
    let fleet = Fleet::start().await;
    let mut events = fleet
        .client
        .listen(&json!({ "question": "hold over?" }))
        .await;
    let session = events.session();
    let seen = events.named("answer").await;
    fleet.stop.cancel();
    let bye = events.any().await.unwrap().comment;
    assert!(bye.contains("the run goes on"), "{bye}");
    assert!(
        bye.contains(&format!("GET /sessions/{session}/events")),
        "{bye}"
    );
    assert!(
        bye.ends_with(&format!("Last-Event-ID: {}", seen.id)),
        "{bye}"
    );
    assert!(events.any().await.is_none(), "the stream has ended");

    let second = Gateway::serve(fleet.parts.clone(), options(), CancellationToken::new()).await;
    let second = second.unwrap();
    let client = crate::client::Client {
        address: second.address(),
    };
    let serving = tokio::spawn(second.run());
    fleet.gate.send_replace(true);
    let path = format!("/sessions/{session}/events");
    let rest = client
        .events(&path, &[("last-event-id", &seen.id)])
        .await
        .rest()
        .await;
    assert_eq!(
        rest.last().unwrap().data["text"],
        "You asked: hold over?\nThat is all."
    );
    serving.abort();
}

#[tokio::test]
async fn a_wait_in_flight_is_answered_and_then_the_gateway_is_gone() {
    let mut fleet = Fleet::start().await;
    let client = fleet.client;
    let session = client
        .start(&json!({ "question": "hold up?", "streaming": true }))
        .await;
    let events = format!("/sessions/{session}/events");
    client.events(&events, &[]).await.named("answer").await;
    let mut waiting = client
        .open("GET", &format!("/sessions/{session}?wait=60"), &[], b"")
        .await;
    // Served before it, on another connection: so the wait has been accepted too.
    assert_eq!(client.get("/health/live").await.status, 200);
    fleet.stop.cancel();
    assert_eq!(waiting.head().await.0, 200);
    (&mut fleet.gateway).await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(client.address)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn what_does_not_finish_within_the_grace_period_is_cut_off() {
    let limits = Options {
        grace: Duration::from_millis(100),
        ..options()
    };
    let mut fleet = Fleet::with(limits).await;
    let head = [
        ("content-type", "application/sparql-query"),
        ("content-length", "100"),
    ];
    // Its body never comes, so it never finishes.
    let mut stuck = fleet.client.open("POST", "/sparql", &head, b"").await;
    drop(fleet.client.get("/health/live").await);
    fleet.stop.cancel();
    (&mut fleet.gateway).await.unwrap();
    let mut answer = Vec::new();
    // The connection ends, by a reset or without; there was no answer.
    let _ = stuck.reader.read_to_end(&mut answer).await;
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn queries_that_take_long_end_when_the_gateway_does() {
    let limits = Options {
        // What waited for it would be cut off by the test's own end.
        grace: Duration::from_hours(1),
        max_queries: 2,
        ..options()
    };
    let mut fleet = Fleet::with(limits).await;
    let values: String = (0..200).map(|n| format!("\"{n}\" ")).collect();
    let product: String = ["a", "b", "c"]
        .map(|name| format!("VALUES ?{name} {{ {values} }} "))
        .concat();
    let query = format!("SELECT (MAX(SHA512(CONCAT(?a, ?b, ?c))) AS ?m) {{ {product} }}");
    let length = query.len().to_string();
    let head = [
        ("content-type", "application/sparql-query"),
        ("content-length", length.as_str()),
    ];
    let mut running = fleet.graph.running();
    let mut asked = Vec::new();
    for _ in 0..2 {
        let path = "/sparql?timeout=60";
        asked.push(
            fleet
                .client
                .open("POST", path, &head, query.as_bytes())
                .await,
        );
    }
    running.wait_for(|count| *count == 2).await.unwrap();
    fleet.stop.cancel();
    (&mut fleet.gateway).await.unwrap();
    for mut query in asked {
        assert_eq!(query.head().await.0, 503);
    }
    running.wait_for(|count| *count == 0).await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_that_names_it() {
    let fleet = Fleet::start().await;
    let taken = Options {
        listen: fleet.client.address,
        ..options()
    };
    let second = Gateway::serve(fleet.parts.clone(), taken, CancellationToken::new()).await;
    let Err(Error::Listen { address, .. }) = second else {
        panic!("{second:?}")
    };
    assert_eq!(address, fleet.client.address);
}
