//! This API in OpenAPI 3.1: every endpoint of the closed list, types from the code that writes and
//! reads them.

use crate::accept::AcceptedView;
use crate::approvals::{AnswerBody, ApprovalList, DecisionView};
use crate::conversation::ConversationView;
use crate::endpoint::Endpoint;
use crate::health::{Live, Readiness};
use crate::negotiate::Offer;
use crate::problem::{Code, ErrorDocument};
use crate::rdf;
use crate::session::{CancelView, View};
use crate::sessions::SessionList;
use agentfleet_schema::{AgentRequest, AgentResponse};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Fields of a request that are not for callers.
const NOT_FOR_CALLERS: [&str; 6] = [
    "control",
    "step",
    "correlation_id",
    "parent_session_id",
    "subagent_goal",
    "expected_siblings",
];

/// The whole document.
pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in Endpoint::ALL.iter().copied() {
        let methods = paths.entry(endpoint.path()).or_insert_with(|| json!({}));
        methods[endpoint.method()] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Agentfleet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Ask a fleet of agents, follow their work, and see why they answered as \
                they did. `docs/http-api.md` explains it with examples.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn schemas() -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|s| {
            s.definitions_path = "/components/schemas".into();
            s.meta_schema = None;
        })
    };
    let mut written = settings().for_serialize().into_generator();
    written.subschema_for::<AgentResponse>();
    written.subschema_for::<AcceptedView>();
    written.subschema_for::<View>();
    written.subschema_for::<SessionList>();
    written.subschema_for::<CancelView>();
    written.subschema_for::<ConversationView>();
    written.subschema_for::<ApprovalList>();
    written.subschema_for::<DecisionView>();
    written.subschema_for::<Live>();
    written.subschema_for::<Readiness>();
    written.subschema_for::<ErrorDocument>();
    let mut all = written.take_definitions(true);
    let mut read = settings().for_deserialize().into_generator();
    read.subschema_for::<AgentRequest>();
    let mut request = read.take_definitions(true);
    if let Some(properties) = request
        .get_mut("AgentRequest")
        .and_then(|schema| schema.get_mut("properties"))
        .and_then(Value::as_object_mut)
    {
        for name in NOT_FOR_CALLERS {
            properties.remove(name);
        }
    }
    if let Some(request) = request.get_mut("AgentRequest") {
        request["required"] = json!(["question"]);
    }
    let mut answers = settings().for_deserialize().into_generator();
    answers.subschema_for::<AnswerBody>();
    all.extend(answers.take_definitions(true));
    for unused in ["RunControl", "Ancestor", "Exchange", "HeldCall", "Source"] {
        request.remove(unused);
    }
    all.extend(request);
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    if let Some(code) = all
        .get_mut("ErrorDetail")
        .map(|error| &mut error["properties"]["code"])
    {
        code["enum"] = json!(codes);
    }
    Value::Object(all)
}

fn operation(endpoint: Endpoint) -> Value {
    let mut operation = match endpoint {
        Endpoint::Index => json!({ "operationId": "index", "responses": {
            "200": content("The endpoints", &[("application/json", json!({ "type": "object" })),
                ("text/plain", text())]) } }),
        Endpoint::OpenApi => json!({ "operationId": "openapi", "responses": {
            "200": content("This document", &[("application/json", json!({ "type": "object" }))]) } }),
        Endpoint::Live => json!({ "operationId": "live", "responses": {
            "200": content("The gateway runs", &[("application/json", named("Live"))]) } }),
        Endpoint::Ready => json!({ "operationId": "ready", "responses": {
            "200": content("All is well", &[("application/json", named("Readiness"))]),
            "503": content("Something is not", &[("application/json", named("Readiness"))]) } }),
        Endpoint::Metrics => json!({ "operationId": "metrics", "responses": {
            "200": content("Prometheus' text format", &[("text/plain", text())]) } }),
        Endpoint::Ask => ask(),
        Endpoint::Sessions => json!({
            "operationId": "sessions",
            "parameters": [
                query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 20 }), "How many"),
                query("collection", text(), "Only of this collection"),
                query("conversation", text(), "Only of this conversation"),
                query("before", text(), "From `next` of the page before"),
            ],
            "responses": { "200": content("Sessions", &[("application/json", named("SessionList"))]) },
        }),
        Endpoint::Session => json!({
            "operationId": "session",
            "parameters": [id(), query("wait", json!({ "type": "integer", "minimum": 0 }),
                "Seconds to wait for the end of the run")],
            "responses": { "200": content("The session", &[("application/json", named("Session"))]) },
        }),
        Endpoint::CancelSession => json!({
            "operationId": "cancel",
            "parameters": [id(), query("by", text(), "Who asks for it; stands in the record")],
            "responses": { "200": content("What came of it", &[("application/json", named("Cancellation"))]) },
        }),
        Endpoint::Events => json!({
            "operationId": "events",
            "parameters": [
                id(),
                header("Last-Event-ID", "Resume after this event"),
                query("after", json!({ "type": "integer" }), "The same, as a parameter"),
            ],
            "responses": {
                "200": content("The events of the run", &[("text/event-stream", events())]),
                "204": { "description": "There is nothing after this event" },
            },
        }),
        Endpoint::Trace => trace(),
        Endpoint::Conversation => json!({
            "operationId": "conversation",
            "parameters": [
                json!({ "name": "id", "in": "path", "required": true, "schema": text(),
                    "description": "Id of the conversation" }),
                query("limit", json!({ "type": "integer", "minimum": 1, "maximum": 100, "default": 20 }), "How many"),
                query("before", text(), "From `next` of the page before"),
            ],
            "responses": { "200": content("Its exchanges", &[("application/json", named("Conversation"))]) },
        }),
        Endpoint::Approvals => json!({
            "operationId": "approvals",
            "responses": { "200": content("What waits", &[("application/json", named("ApprovalList"))]) },
        }),
        Endpoint::Answer => json!({
            "operationId": "answerApproval",
            "parameters": [json!({ "name": "id", "in": "path", "required": true, "schema": text(),
                "description": "Id of the approval" })],
            "requestBody": { "required": true,
                "content": { "application/json": { "schema": named("ApprovalRequest") } } },
            "responses": { "200": content("The decision", &[("application/json", named("ApprovalDecision"))]) },
        }),
        Endpoint::Document => json!({
            "operationId": "document",
            "parameters": [json!({ "name": "uri", "in": "query", "required": true, "schema": text(),
                "description": "URI of the document" })],
            "responses": { "200": content("Its text", &[("text/plain", text())]) },
        }),
        Endpoint::SparqlGet => sparql_get(),
        Endpoint::SparqlPost => sparql_post(),
        Endpoint::GraphUpdate => json!({
            "operationId": "graphUpdate",
            "parameters": [
                header("Authorization", "`Bearer TOKEN`, with the token of the data directory"),
                query("collection", text(), "Whom the statements belong to"),
            ],
            "requestBody": { "required": true, "content": {
                "application/sparql-update": { "schema": text() },
                "application/n-quads": { "schema": text() },
            } },
            "responses": { "200": content("What was added", &[("application/json", json!({ "type": "object" }))]) },
        }),
    };
    operation["summary"] = endpoint.summary().into();
    operation["responses"]["default"] = content(
        "An error, with a stable code",
        &[("application/json", named("Error"))],
    );
    operation
}

fn ask() -> Value {
    json!({
        "operationId": "ask",
        "parameters": [
            header("Idempotency-Key", "The same key and user give the same session, once"),
            header("traceparent", "W3C trace context, carried through the run"),
        ],
        "requestBody": { "required": true,
            "content": { "application/json": { "schema": named("AgentRequest") } } },
        "responses": {
            "200": content("The events of the run, if `Accept` names `text/event-stream`",
                &[("text/event-stream", events())]),
            "202": content("Taken in", &[("application/json", named("Accepted"))]),
        },
    })
}

fn trace() -> Value {
    let mut forms = vec![("application/json", json!({ "type": "object" }))];
    forms.extend(
        offered(rdf::GRAPHS)
            .into_iter()
            .filter(|(kind, _)| *kind != "application/json"),
    );
    json!({
        "operationId": "trace",
        "parameters": [id(), query("format", text(), "`json`, `turtle`, `nquads`, ...; goes before `Accept`")],
        "responses": { "200": content("The trace", &forms) },
    })
}

fn sparql_get() -> Value {
    let mut parameters = vec![json!({ "name": "query", "in": "query", "required": true,
        "schema": text(), "description": "The query" })];
    parameters.extend(sparql_parameters());
    json!({ "operationId": "sparql", "parameters": parameters, "responses": { "200": answer() } })
}

fn sparql_post() -> Value {
    json!({
        "operationId": "sparqlPost",
        "parameters": sparql_parameters(),
        "requestBody": { "required": true, "content": {
            "application/sparql-query": { "schema": text() },
            "application/x-www-form-urlencoded": { "schema": { "type": "object",
                "required": ["query"], "properties": { "query": text() } } },
        } },
        "responses": { "200": answer() },
    })
}

fn sparql_parameters() -> [Value; 2] {
    [
        query(
            "timeout",
            json!({ "type": "number" }),
            "Seconds the query may take",
        ),
        query(
            "format",
            text(),
            "`json`, `xml`, `csv`, `tsv`, `turtle`, ...; goes before `Accept`",
        ),
    ]
}

fn answer() -> Value {
    let mut forms = offered(rdf::RESULTS);
    forms.extend(offered(rdf::GRAPHS));
    content(
        "SELECT and ASK as a table, CONSTRUCT and DESCRIBE as a graph",
        &forms,
    )
}

fn offered<T>(offers: &[Offer<T>]) -> Vec<(&'static str, Value)> {
    offers
        .iter()
        .filter_map(|offer| Some((*offer.media_types.first()?, text())))
        .collect()
}

fn content(description: &str, forms: &[(&str, Value)]) -> Value {
    let forms: Map<String, Value> = forms
        .iter()
        .map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema })))
        .collect();
    json!({ "description": description, "content": forms })
}

fn named(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// Server-sent events: `data` of each is an `AgentResponse`.
fn events() -> Value {
    json!({ "type": "string", "contentMediaType": "application/json",
        "contentSchema": named("AgentResponse") })
}

fn id() -> Value {
    json!({ "name": "id", "in": "path", "required": true, "schema": text(),
        "description": "Id of the session" })
}

fn query(name: &str, schema: Value, description: &str) -> Value {
    json!({ "name": name, "in": "query", "schema": schema, "description": description })
}

fn header(name: &str, description: &str) -> Value {
    json!({ "name": name, "in": "header", "schema": text(), "description": description })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_endpoint_is_described_and_every_reference_leads_somewhere() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let described: usize = paths
            .values()
            .map(|path| path.as_object().unwrap().len())
            .sum();
        assert_eq!(described, Endpoint::ALL.len());
        for endpoint in Endpoint::ALL.iter().copied() {
            let method = endpoint.method();
            let operation = &document["paths"][endpoint.path()][method];
            assert!(
                operation["responses"]["default"].is_object(),
                "{endpoint:?}"
            );
            let in_path = operation["parameters"]
                .as_array()
                .is_some_and(|parameters| {
                    parameters.iter().any(|parameter| parameter["in"] == "path")
                });
            assert_eq!(in_path, endpoint.path().contains("{id}"), "{endpoint:?}");
        }
        let mut pending = vec![&document];
        let mut references = 0;
        while let Some(value) = pending.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                        references += 1;
                    }
                    pending.extend(fields.values());
                }
                Value::Array(items) => pending.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        assert!(references > Endpoint::ALL.len());
    }

    #[test]
    fn what_only_workers_set_is_not_offered_to_callers() {
        let document = document();
        let request = &document["components"]["schemas"]["AgentRequest"];
        assert!(request["properties"]["question"].is_object());
        for name in NOT_FOR_CALLERS {
            assert!(request["properties"][name].is_null(), "{name}");
        }
    }
}
