//! Event streams: live, late, resumed, slow, and gone.

use crate::client::Event;
use crate::fleet::{Fleet, options};
use agentfleet_gateway::Options;
use agentfleet_schema::{AgentResponse, MessageType, SessionId, keys};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// The text of a session's answer, put together as a reader would.
fn collated(events: &[Event]) -> String {
    let end = events
        .iter()
        .find(|event| event.data["end_of_dialog"] == true)
        .unwrap();
    let chunks = events.iter().filter(|event| {
        event.data["message_id"] == end.data["message_id"] && event.name == end.name
    });
    chunks
        .map(|event| event.data["content"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn asking_with_accept_event_stream_streams_until_the_dialog_ends() {
    let fleet = Fleet::start().await;
    let mut events = fleet
        .client
        .listen(&json!({ "question": "hold on?" }))
        .await;
    let session = events.session();
    assert_eq!(events.headers["cache-control"], "no-cache");
    let greeting = events.any().await.unwrap();
    assert!(
        greeting
            .comment
            .contains(&format!("GET /sessions/{session}/events"))
    );

    let chunk = events.named("answer").await;
    assert_eq!(chunk.data["content"], "You asked:");
    assert_eq!(chunk.data["end_of_message"], false);
    assert_eq!(
        fleet.client.json(&format!("/sessions/{session}")).await["state"],
        "running"
    );
    fleet.gate.send_replace(true);

    let mut rest = events.rest().await;
    let last = rest.last().unwrap().clone();
    assert_eq!(
        (last.name.as_str(), &last.data["end_of_dialog"]),
        ("answer", &json!(true))
    );
    let whole = "You asked: hold on?\nThat is all.";
    assert_eq!(last.data["text"], whole, "the end carries the whole text");
    assert_eq!(last.data["session_id"], session);
    rest.insert(0, chunk);
    assert_eq!(collated(&rest), whole, "and so do the chunks together");
    let mut ids: Vec<i64> = rest.iter().map(|event| event.id.parse().unwrap()).collect();
    assert!(ids.iter().all(|id| *id > 0));
    ids.dedup();
    assert!(ids.is_sorted() && ids.len() == rest.len(), "{ids:?}");
    let names: Vec<&str> = rest.iter().map(|event| event.name.as_str()).collect();
    assert!(
        names.contains(&"explain") && names.contains(&"thought"),
        "{names:?}"
    );
}

#[tokio::test]
async fn without_streaming_the_messages_come_whole() {
    let fleet = Fleet::start().await;
    let mut events = fleet
        .client
        .listen(&json!({ "question": "whole?", "streaming": false }))
        .await;
    let answers: Vec<Event> = events
        .rest()
        .await
        .into_iter()
        .filter(|event| event.name == "answer")
        .collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].data["content"], answers[0].data["text"]);
}

#[tokio::test]
async fn a_reader_that_was_cut_off_resumes_after_the_last_event_it_saw() {
    let fleet = Fleet::start().await;
    let mut events = fleet
        .client
        .listen(&json!({ "question": "hold the line?" }))
        .await;
    let session = events.session();
    let seen = events.named("answer").await;
    drop(events);
    fleet.gate.send_replace(true);
    fleet.client.ended(&session).await;

    let path = format!("/sessions/{session}/events");
    let all = fleet.client.events(&path, &[]).await.rest().await;
    let at = all.iter().position(|event| event.id == seen.id).unwrap();
    let last_id = [("last-event-id", seen.id.as_str())];
    let resumed = fleet.client.events(&path, &last_id).await.rest().await;
    assert_eq!(resumed.len(), all.len() - at - 1);
    for (resumed, first) in resumed.iter().zip(&all[at + 1..]) {
        assert_eq!((&resumed.id, &resumed.name), (&first.id, &first.name));
        assert_eq!(
            resumed.data["text"], first.data["text"],
            "texts are whole all the same"
        );
    }
    let by_parameter = format!("{path}?after={}", seen.id);
    assert_eq!(
        fleet.client.events(&by_parameter, &[]).await.rest().await,
        resumed
    );

    // Nothing is left after the end: an `EventSource` must not come back for ever.
    let last = all.last().unwrap();
    let over = fleet
        .client
        .send("GET", &path, &[("last-event-id", &last.id)], b"")
        .await;
    assert_eq!((over.status, over.body.len()), (204, 0));
    let wrong = fleet
        .client
        .send("GET", &path, &[("last-event-id", "x")], b"")
        .await;
    assert_eq!(
        (wrong.status, wrong.code().as_str()),
        (400, "invalid-request")
    );
}

#[tokio::test]
async fn repeats_and_what_a_dead_attempt_said_are_not_told_twice() {
    let fleet = Fleet::start().await;
    let mut events = fleet
        .client
        .listen(&json!({ "question": "hold twice?" }))
        .await;
    let chunk = events.named("answer").await;
    let again: AgentResponse = serde_json::from_value(chunk.data.clone()).unwrap();
    fleet.say(again).await;
    fleet.gate.send_replace(true);
    let rest = events.rest().await;
    let same = rest.iter().filter(|event| {
        event.data["message_id"] == chunk.data["message_id"] && event.data["seq"] == 0
    });
    assert_eq!(same.count(), 0);
}

#[tokio::test]
async fn subagents_are_heard_in_the_stream_of_their_root_only() {
    let fleet = Fleet::start().await;
    let ask = json!({ "question": "compare tea and coffee", "pattern": "supervisor" });
    let mut events = fleet.client.listen(&ask).await;
    let root = events.session();
    let all = events.rest().await;
    let speakers: std::collections::BTreeSet<&str> = all
        .iter()
        .map(|event| event.data["session_id"].as_str().unwrap())
        .collect();
    assert_eq!(speakers.len(), 3, "the root and its two subagents");
    let child = speakers.iter().find(|speaker| **speaker != root).unwrap();
    let path = format!("/sessions/{child}/events");
    let refused = fleet.client.get(&path).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (400, "not-a-root-session")
    );
    let hint = refused.json()["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains(&format!("/sessions/{root}/events")), "{hint}");
}

#[tokio::test]
async fn the_end_is_told_from_its_record_when_the_events_are_gone() {
    let fleet = Fleet::start().await;
    let session = fleet
        .client
        .start(&json!({ "question": "long ago?" }))
        .await;
    fleet.client.ended(&session).await;
    let erased = fleet.broker.forget(&session).await.unwrap();
    assert!(erased > 0, "{erased}");
    let all = fleet
        .client
        .events(&format!("/sessions/{session}/events"), &[])
        .await
        .rest()
        .await;
    let last = all.last().unwrap();
    assert_eq!(last.data["end_of_dialog"], true);
    assert_eq!(last.data["text"], "You asked: long ago?\nThat is all.");
    assert_eq!(last.id, "", "there is no position to resume from");
    let body = json!({ "question": "long ago?", "session_id": "old-1" });
    let again = fleet.client.listen(&body).await.rest().await;
    assert_eq!(
        again.last().unwrap().data["text"],
        last.data["text"],
        "and who asks again hears it"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_no_more_than_a_page_and_is_cut_off() {
    let limits = Options {
        // Longer than a busy machine keeps the client below from reading.
        stall_timeout: Duration::from_secs(3),
        ..options()
    };
    let fleet = Fleet::with(limits).await;
    let client = fleet.client;
    // 64 MiB, many times what the buffers of a connection hold.
    let ask = json!({ "question": "flood 1024 now", "session_id": "flood-1" });
    client
        .start(&json!({ "streaming": true, "question": ask["question"], "session_id": "flood-1" }))
        .await;
    let mut open = fleet.open_streams.clone();
    let mut deaf = client
        .open("GET", "/sessions/flood-1/events", &[], b"")
        .await;
    open.wait_for(|open| *open == 1).await.unwrap();
    // Others are served meanwhile.
    client.ended("flood-1").await;
    assert_eq!(client.get("/health/live").await.status, 200);
    open.wait_for(|open| *open == 0).await.unwrap();
    let mut taken = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = deaf.reader.read(&mut buffer).await {
        taken += read;
    }
    assert!(
        taken < 32 << 20,
        "{taken} bytes were waiting for a client that read nothing"
    );
    // Nothing is lost for a reader that reads.
    let all = client
        .events("/sessions/flood-1/events", &[])
        .await
        .rest()
        .await;
    let chunks = all
        .iter()
        .filter(|event| event.data["content"].as_str() != Some(""));
    let bytes: usize = chunks
        .map(|event| event.data["content"].as_str().unwrap().len())
        .sum();
    assert!(bytes > 64 << 20, "{bytes}");
}

#[tokio::test]
async fn a_client_that_is_gone_frees_its_stream_and_a_quiet_one_hears_signs_of_life() {
    let limits = Options {
        max_streams: 1,
        keep_alive: Duration::from_millis(50),
        ..options()
    };
    let fleet = Fleet::with(limits).await;
    let client = fleet.client;
    let mut events = client.listen(&json!({ "question": "hold still?" })).await;
    let session = events.session();
    let mut open = fleet.open_streams.clone();
    open.wait_for(|open| *open == 1).await.unwrap();
    while events.any().await.unwrap().comment != "still here" {}

    let path = format!("/sessions/{session}/events");
    let full = client.get(&path).await;
    assert_eq!((full.status, full.code().as_str()), (503, "too-busy"));
    assert_eq!(full.header("retry-after"), "1");
    // Who is refused a stream has not asked.
    let body = json!({ "question": "no room?", "session_id": "no-room" });
    let headers = [("accept", "text/event-stream")];
    assert_eq!(client.ask(&body, &headers).await.code(), "too-busy");
    assert_eq!(
        client.get("/sessions/no-room").await.code(),
        "unknown-session"
    );

    drop(events);
    open.wait_for(|open| *open == 0).await.unwrap();
    fleet.gate.send_replace(true);
    assert!(!client.events(&path, &[]).await.rest().await.is_empty());
}

#[tokio::test]
async fn a_response_of_a_newer_fleet_passes_as_unknown() {
    let fleet = Fleet::start().await;
    let mut events = fleet
        .client
        .listen(&json!({ "question": "hold new?" }))
        .await;
    let session = events.session();
    events.named("answer").await;
    fleet
        .say(AgentResponse {
            message_type: MessageType::Unknown,
            message_id: "new-1".into(),
            content: "?".into(),
            end_of_message: true,
            session_id: session.as_str().into(),
            root_session_id: session.as_str().into(),
            ..AgentResponse::default()
        })
        .await;
    assert_eq!(events.named("unknown").await.data["content"], "?");
}

#[tokio::test]
async fn an_erased_or_unknown_session_has_no_stream() {
    let fleet = Fleet::start().await;
    let unknown = fleet.client.get("/sessions/nobody/events").await;
    assert_eq!(
        (unknown.status, unknown.code().as_str()),
        (404, "unknown-session")
    );
    let tombstone = keys::tombstone(&SessionId::new("gone"));
    fleet
        .parts
        .intake
        .documents
        .create(&tombstone, Vec::new())
        .await
        .unwrap();
    for path in ["/sessions/gone", "/sessions/gone/events"] {
        let gone = fleet.client.get(path).await;
        assert_eq!((gone.status, gone.code().as_str()), (410, "session-erased"));
    }
    let again: Value = json!({ "question": "q", "session_id": "gone" });
    assert_eq!(fleet.client.ask(&again, &[]).await.code(), "session-erased");
}
