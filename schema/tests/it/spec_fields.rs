//! Every field of the orchestration spec, by its exact name and default. The lists are the spec's:
//! a type that loses, renames or re-defaults a field breaks the contract with its peers.

use agentfleet_schema::{AgentRequest, AgentResponse, AgentStep, PlanStep};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Debug;

/// Field, default, and some other value it can hold.
type Field = (&'static str, Value, Value);

fn request_fields() -> Vec<Field> {
    vec![
        ("question", json!(""), json!("why?")),
        ("state", json!(""), json!("searched")),
        ("group", Value::Null, json!(["finance"])),
        ("history", json!([]), json!([step_defaults()])),
        ("user", json!(""), json!("ada")),
        ("collection", json!("default"), json!("dossiers")),
        ("streaming", json!(false), json!(true)),
        ("session_id", json!(""), json!("s-1")),
        ("conversation_id", json!(""), json!("talk-1")),
        ("pattern", json!(""), json!("plan-then-execute")),
        ("task_type", json!(""), json!("risk-assessment")),
        ("framing", json!(""), json!("by dimension")),
        ("correlation_id", json!(""), json!("corr-abc123")),
        ("parent_session_id", json!(""), json!("s-0")),
        ("subagent_goal", json!(""), json!("look at money")),
        ("expected_siblings", json!(0), json!(4)),
    ]
}

fn step_fields() -> Vec<Field> {
    vec![
        ("thought", json!(""), json!("hm")),
        ("action", json!(""), json!("search")),
        ("arguments", json!({}), json!({"query": "x"})),
        ("observation", json!(""), json!("found")),
        ("user", json!(""), json!("ada")),
        ("step_type", json!(""), json!("synthesise")),
        ("plan", Value::Null, json!([PlanStep::default()])),
        (
            "subagent_results",
            Value::Null,
            json!({"look at money": "urn:doc"}),
        ),
    ]
}

fn plan_fields() -> Vec<Field> {
    vec![
        ("goal", json!(""), json!("find it")),
        ("tool_hint", json!(""), json!("search")),
        ("depends_on", json!([]), json!([0, 1])),
        ("status", json!("pending"), json!("revised")),
        ("result", json!(""), json!("found")),
    ]
}

/// The spec gives the chunk's fields without defaults; these are the empty values.
fn chunk_fields() -> Vec<Field> {
    vec![
        (
            "message_id",
            json!(""),
            json!("0190c1de-0000-7000-8000-000000000001"),
        ),
        ("session_id", json!(""), json!("s-1")),
        ("message_type", json!("unknown"), json!("thought")),
        ("content", json!(""), json!("Look")),
        ("end_of_message", json!(false), json!(true)),
        ("end_of_dialog", json!(false), json!(true)),
    ]
}

fn step_defaults() -> Value {
    step_fields()
        .into_iter()
        .map(|(name, default, _)| (name.to_owned(), default))
        .collect()
}

fn check<T: Default + Serialize + DeserializeOwned + PartialEq + Debug>(fields: Vec<Field>) {
    let written = serde_json::to_value(T::default()).unwrap();
    assert_eq!(
        serde_json::from_value::<T>(json!({})).unwrap(),
        T::default()
    );
    for (name, default, other) in fields {
        assert_eq!(
            written.get(name),
            Some(&default),
            "`{name}` is written with its default"
        );
        // Read under its name, and written under it again.
        let read: T = serde_json::from_value(json!({ name: other })).unwrap();
        assert_eq!(
            serde_json::to_value(&read).unwrap()[name],
            other,
            "`{name}` is read"
        );
        assert_ne!(read, T::default(), "`{name}` means something");
    }
}

#[test]
fn requests_have_every_field_of_the_spec() {
    check::<AgentRequest>(request_fields());
}

#[test]
fn steps_have_every_field_of_the_spec() {
    check::<AgentStep>(step_fields());
}

#[test]
fn plan_steps_have_every_field_of_the_spec() {
    check::<PlanStep>(plan_fields());
}

#[test]
fn response_chunks_have_every_field_of_the_spec() {
    check::<AgentResponse>(chunk_fields());
}

/// What a peer sees of a default message is the spec's fields and nothing else.
#[test]
fn fields_of_ours_are_absent_when_unused() {
    fn keys<T: Default + Serialize>() -> Vec<String> {
        let written = serde_json::to_value(T::default()).unwrap();
        written
            .as_object()
            .map(Map::keys)
            .unwrap()
            .cloned()
            .collect()
    }
    fn names(fields: Vec<Field>) -> Vec<String> {
        let mut names: Vec<_> = fields
            .into_iter()
            .map(|(name, ..)| name.to_owned())
            .collect();
        names.sort();
        names
    }
    fn sorted(mut keys: Vec<String>) -> Vec<String> {
        keys.sort();
        keys
    }
    assert_eq!(sorted(keys::<AgentRequest>()), names(request_fields()));
    assert_eq!(sorted(keys::<AgentStep>()), names(step_fields()));
    assert_eq!(sorted(keys::<PlanStep>()), names(plan_fields()));
    assert_eq!(sorted(keys::<AgentResponse>()), names(chunk_fields()));
}
