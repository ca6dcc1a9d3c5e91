//! What `docs/protocol.md` promises producers, on the embedded engine: raw messages in, responses out.

use agentfleet::engine::Engine;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_broker::{Broker, Consumer, Durability, Outgoing, Properties, Subscription};
use agentfleet_models::{Gate, Operation, Rule, Script, Scripted};
use agentfleet_schema::records::{OutcomeKind, ParkedRecord, StepRecord};
use agentfleet_schema::topics::{self, Topic, property};
use agentfleet_schema::{AgentResponse, SessionId, keys};
use agentfleet_tools::Toolbox;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A fleet that answers everything, by two subagents where the supervisor is asked for.
struct Running {
    engine: Engine,
    /// Holds whoever is asked to `wait`.
    gate: Gate,
    fleet: Fleet,
    _directory: TempDir,
}

async fn running(reply_to: &str) -> Running {
    let directory = TempDir::new().unwrap();
    let flags = Flags {
        data: Some(directory.path().display().to_string()),
        model: Some("offline".into()),
        reply_to: Some(reply_to.into()),
        ..Flags::default()
    };
    let settings = Settings::load(&flags).unwrap();
    let store = Store::open(&settings).await.unwrap();
    store.prepare(&settings).await.unwrap();
    let mut engine = Engine::open(store, &settings, &|_, _| {}).await.unwrap();
    let gate = Gate::new();
    let script = Script::new()
        .rule(
            Rule::on(Operation::React)
                .containing("wait")
                .text("Thought: hm\nFinal Answer: at last")
                .held_at(&gate, 0),
        )
        .rule(Rule::on(Operation::Decompose).text(r#"{"thought": "t", "goals": ["one", "two"]}"#))
        .rule(Rule::on(Operation::Review).text(r#"{"decision": "answer", "signal": "s"}"#))
        .rule(
            Rule::on(Operation::Synthesise)
                .text("All of it.")
                .word_by_word(),
        )
        .rule(
            Rule::on(Operation::React)
                .text("Thought: hm\nFinal Answer: a part")
                .word_by_word(),
        );
    engine.model.model = Arc::new(Scripted::new(script));
    let tools = Toolbox::new(
        engine.library.clone(),
        Arc::clone(&engine.store.documents),
        Arc::clone(&engine.graph),
        Arc::clone(&engine.model.model),
        settings.tool_timeout,
        agentfleet_tools::Secrets::default(),
        agentfleet_tools::mcp::Servers::new(agentfleet_tools::Secrets::default(), Vec::new())
            .unwrap(),
    );
    engine.tools = Arc::new(tools.unwrap());
    let fleet = Fleet::start(&engine, &settings, Roles::All).await.unwrap();
    Running {
        engine,
        gate,
        fleet,
        _directory: directory,
    }
}

/// A caller's own subscription, made before it asks.
struct Listener {
    broker: Arc<dyn Broker>,
    consumer: Box<dyn Consumer>,
}

impl Listener {
    /// The next response to what `id` asked.
    async fn next(&mut self, id: &str) -> (Properties, AgentResponse) {
        loop {
            let delivery = self.consumer.receive(1).await.unwrap().remove(0);
            self.broker.ack(&delivery).await.unwrap();
            if delivery.properties.get(property::ID).map(String::as_str) == Some(id) {
                let response = serde_json::from_slice(&delivery.payload).unwrap();
                return (delivery.properties, response);
            }
        }
    }

    /// Responses up to the end of the run that `id` asked for, with their properties.
    async fn until_end(&mut self, id: &str) -> Vec<(Properties, AgentResponse)> {
        let mut seen = Vec::new();
        loop {
            let (properties, response) = self.next(id).await;
            let last = response.end_of_dialog;
            seen.push((properties, response));
            if last {
                return seen;
            }
        }
    }
}

impl Running {
    async fn listen(&self, topic: &str) -> Listener {
        let broker = self.engine.broker();
        let subscription = Subscription {
            topic: Topic::named(topic.to_owned()),
            name: "caller".into(),
            only: None,
            lease: Duration::from_secs(30),
            max_deliveries: None,
        };
        Listener {
            consumer: broker.subscribe(subscription).await.unwrap(),
            broker,
        }
    }

    async fn publish(&self, payload: &[u8], properties: &[(&str, &str)]) {
        let properties = properties.iter();
        let message = Outgoing {
            topic: topics::AGENT_REQUEST,
            payload: payload.to_vec(),
            properties: properties
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            deliver_at: None,
            durability: Durability::Durable,
        };
        let broker = self.engine.broker();
        broker.publish(vec![message]).await.unwrap();
    }

    async fn record(&self, session: &SessionId, step: u32) -> StepRecord {
        let key = keys::outcome(session, step);
        let body = self.engine.documents().get(&key).await.unwrap().unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// What is parked, once there are so many.
    async fn parked(&self, count: usize) -> Vec<ParkedRecord> {
        let documents = self.engine.documents();
        let mut changes = self.engine.store.database.changes();
        loop {
            changes.mark_unchanged();
            let keys = documents.list(&keys::parked("")).await.unwrap();
            if keys.len() >= count {
                let bodies = documents.get_many(&keys).await.unwrap();
                let read = |body: Arc<[u8]>| serde_json::from_slice(&body).unwrap();
                return bodies.into_iter().flatten().map(read).collect();
            }
            changes.changed().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_callers_properties_travel_every_hop_and_its_topic_gets_every_response() {
    let running = running("elsewhere,replies-*").await;
    let mut default = running.listen("agent-response").await;
    let mut own = running.listen("replies-7").await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let carried = [
        ("id", "mine-1"),
        ("traceparent", trace),
        ("reply-to", "persistent://public/default/replies-7"),
    ];
    let question = br#"{"question": "why?", "pattern": "supervisor", "streaming": true}"#;
    let others = [&carried[..], &[("colour", "blue")]].concat();
    running.publish(question, &others).await;
    let seen = own.until_end("mine-1").await;
    let sessions: BTreeSet<SessionId> = seen.iter().map(|(_, r)| r.session_id.clone()).collect();
    assert_eq!(sessions.len(), 3, "the root and two subagents");
    let root = &seen.last().unwrap().1.session_id;
    for (properties, response) in &seen {
        for (name, value) in carried {
            assert_eq!(properties.get(name).map(String::as_str), Some(value));
        }
        assert!(!properties.contains_key("colour"));
        assert_eq!(properties["root"], root.as_str());
        assert_eq!(properties["session"], response.session_id.as_str());
        assert_eq!(
            response.end_of_dialog,
            response.session_id == *root && response.content.ends_with("it.")
        );
    }
    assert!(
        seen.iter().filter(|(_, r)| !r.end_of_message).count() > 3,
        "chunks came there too"
    );
    // Whatever a record publishes carries them: what is redelivered is published from it.
    for session in &sessions {
        let record = running.record(session, 0).await;
        for publication in &record.publications {
            for (name, value) in carried {
                assert_eq!(
                    publication.properties.get(name).map(String::as_str),
                    Some(value)
                );
            }
            assert_ne!(publication.topic, "agent-response");
        }
    }
    // The default topic has had nothing of it: what comes next there is somebody else's.
    running
        .publish(
            br#"{"question": "and?", "pattern": "react"}"#,
            &[("id", "mine-2")],
        )
        .await;
    let first = default.consumer.receive(1).await.unwrap().remove(0);
    assert_eq!(first.properties["id"], "mine-2");
    running.fleet.drain().await;
}

#[tokio::test]
async fn a_topic_that_is_not_allowed_is_refused_on_the_default_one_and_disturbs_nothing() {
    let running = running("replies-*").await;
    let mut default = running.listen("agent-response").await;
    let mut forbidden = running.listen("secrets").await;
    let mut allowed = running.listen("replies-1").await;
    let question = br#"{"question": "why?", "pattern": "react"}"#;
    for (id, topic) in [("bad", "secrets"), ("loop", "agent-request")] {
        running
            .publish(question, &[("id", id), ("reply-to", topic)])
            .await;
        let seen = default.until_end(id).await;
        let (_, end) = seen.last().unwrap();
        let error = end.error.as_ref().unwrap();
        assert_eq!(error.code, "reply-to-not-allowed");
        assert!(error.message.contains(topic), "{}", error.message);
        let record = running.record(&end.session_id, 0).await;
        assert_eq!(record.outcome, OutcomeKind::Fail);
    }
    running
        .publish(question, &[("id", "good"), ("reply-to", "replies-1")])
        .await;
    let seen = allowed.until_end("good").await;
    assert_eq!(seen.last().unwrap().1.content, "a part");
    let parked = running.parked(2).await;
    assert_eq!(parked.len(), 2);
    assert!(
        parked
            .iter()
            .all(|p| p.reason.starts_with("reply-to-not-allowed: "))
    );
    // The first that comes there is ours.
    let marker = Outgoing {
        topic: Topic::named("secrets"),
        payload: b"{}".to_vec(),
        properties: Properties::new(),
        deliver_at: None,
        durability: Durability::Durable,
    };
    forbidden.broker.publish(vec![marker]).await.unwrap();
    let first = forbidden.consumer.receive(1).await.unwrap().remove(0);
    assert_eq!(&*first.payload, b"{}");
    running.fleet.drain().await;
}

#[tokio::test]
async fn a_bad_message_is_answered_recorded_and_parked_and_the_worker_goes_on() {
    let running = running("replies-*").await;
    let mut default = running.listen("agent-response").await;
    let mut own = running.listen("replies-1").await;
    let long = format!(r#"{{"question": "{}"}}"#, "x".repeat(256 * 1024 + 1));
    let table: [(&str, &[u8], &str); 7] = [
        ("not-json", b"why?", "invalid-json"),
        ("not-text", b"{\"question\": \"\xff\xfe\"}", "invalid-json"),
        (
            "wrong-type",
            br#"{"question": ["why?"]}"#,
            "invalid-request",
        ),
        (
            "bad-session",
            br#"{"question": "why?", "session_id": "../x"}"#,
            "invalid-request",
        ),
        ("empty", br#"{"question": " "}"#, "empty-question"),
        ("long", long.as_bytes(), "question-too-long"),
        (
            "unknown",
            br#"{"question": "why?", "pattern": "oracle"}"#,
            "unknown-pattern",
        ),
    ];
    for (id, payload, code) in table {
        running.publish(payload, &[("id", id)]).await;
        let seen = default.until_end(id).await;
        let (properties, end) = seen.last().unwrap();
        assert_eq!(end.error.as_ref().unwrap().code, code, "{id}");
        assert_eq!(properties["root"], end.session_id.as_str());
        let record = running.record(&end.session_id, 0).await;
        assert_eq!(record.outcome, OutcomeKind::Fail, "{id}");
    }
    let parked = running.parked(table.len()).await;
    assert_eq!(parked.len(), table.len());
    for (id, _, code) in table {
        let one = parked.iter().find(|p| p.properties[property::ID] == id);
        let one = one.unwrap();
        assert!(
            one.reason.starts_with(&format!("{code}: ")),
            "{}",
            one.reason
        );
        assert_eq!(one.topic, "agent-request");
    }
    // Who asked and where the answer goes is known although the rest cannot be read.
    running
        .publish(b"?", &[("id", "there"), ("reply-to", "replies-1")])
        .await;
    let seen = own.until_end("there").await;
    assert_eq!(seen.len(), 2, "where the trace is, and the error");
    running
        .publish(
            br#"{"question": "why?", "pattern": "react"}"#,
            &[("id", "good")],
        )
        .await;
    let seen = default.until_end("good").await;
    assert_eq!(seen.last().unwrap().1.content, "a part");
    running.fleet.drain().await;
}

#[tokio::test]
async fn a_message_cancels_a_run_by_its_session_or_by_who_asked_and_once() {
    let question = br#"{"question": "wait", "pattern": "react", "user": "ada"}"#;
    let session = SessionId::derive(&["", "ada", "one"]);
    let by_session = format!(r#"{{"session_id": "{session}", "user": "grace"}}"#);
    for (id, cancel, by) in [
        ("one", by_session.as_bytes(), "grace"),
        ("two", br#"{"user": "ada"}"#, "ada"),
    ] {
        let running = running("").await;
        let mut default = running.listen("agent-response").await;
        running.publish(question, &[("id", id)]).await;
        running.gate.arrived(1).await;
        let kind = [("kind", "cancel"), ("id", id)];
        // Said twice it does no more.
        running.publish(cancel, &kind).await;
        running.publish(cancel, &kind).await;
        let seen = default.until_end(id).await;
        let (_, end) = seen.last().unwrap();
        let error = end.error.as_ref().unwrap();
        assert_eq!(error.code, "cancelled", "{id}");
        assert!(
            error.message.contains(&format!("by {by}")),
            "{}",
            error.message
        );
        let session = SessionId::derive(&["", "ada", id]);
        let record = running.record(&session, 0).await;
        assert_eq!(record.outcome, OutcomeKind::Cancelled, "{id}");
        let next = keys::outcome(&session, 1);
        let there = running.engine.documents().get(&next).await.unwrap();
        assert!(there.is_none(), "{id}: one end");
        running.gate.release();
        running.fleet.drain().await;
    }
}

#[tokio::test]
async fn a_message_that_cancels_leaves_alone_what_has_ended_and_what_was_never_asked() {
    let running = running("").await;
    let mut default = running.listen("agent-response").await;
    running
        .publish(
            br#"{"question": "why?", "pattern": "react", "user": "ada"}"#,
            &[("id", "done")],
        )
        .await;
    default.until_end("done").await;
    running
        .publish(br#"{"user": "ada"}"#, &[("kind", "cancel"), ("id", "done")])
        .await;
    running
        .publish(br#"{"session_id": "never-asked"}"#, &[("kind", "cancel")])
        .await;
    running
        .publish(
            br#"{"question": "and?", "pattern": "react"}"#,
            &[("id", "next")],
        )
        .await;
    let seen = default.until_end("next").await;
    assert_eq!(seen.last().unwrap().1.content, "a part");
    let done = SessionId::derive(&["", "ada", "done"]);
    assert_eq!(running.record(&done, 0).await.outcome, OutcomeKind::Answer);
    running.fleet.drain().await;
}

#[tokio::test]
async fn the_same_id_asks_once_however_often_it_is_published() {
    let running = running("").await;
    let mut default = running.listen("agent-response").await;
    let question = br#"{"question": "why?", "pattern": "react", "user": "ada"}"#;
    for _ in 0..3 {
        running.publish(question, &[("id", "one")]).await;
    }
    let seen = default.until_end("one").await;
    let session = &seen.last().unwrap().1.session_id;
    assert_eq!(*session, SessionId::derive(&["", "ada", "one"]));
    running.publish(question, &[("id", "two")]).await;
    let after = default.consumer.receive(1).await.unwrap().remove(0);
    assert_eq!(after.properties["id"], "two", "no repeat of the first");
    running.fleet.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_names_the_session_of_another_request_is_told_and_changes_nothing() {
    let running = running("").await;
    let mut listener = running.listen("agent-response").await;
    let session = "5d1c0000-0000-4000-8000-000000000001";
    let ask = |question: &str| {
        let asked = json!({"question": question, "session_id": session, "pattern": "react"});
        asked.to_string().into_bytes()
    };
    running.publish(&ask("first"), &[("id", "a")]).await;
    let answered = listener.until_end("a").await;
    assert_eq!(answered.last().unwrap().1.error, None);
    running.publish(&ask("second"), &[("id", "b")]).await;
    let (properties, refused) = listener.next("b").await;
    let error = refused.error.unwrap();
    assert_eq!(error.code, "session-taken");
    assert!(!refused.end_of_dialog && !properties.contains_key(property::ROOT));
}
