//! What goes over the wire to each provider and what comes back.
//!
//! The traffic here is CONSTRUCTED from the providers' published formats; none of it was recorded.
//! Every test asserts the request as well as the reply.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anthropic;
mod contract;
mod faults;
mod gemini;
mod hostile;
mod independent;
mod ollama;
mod openai;
mod quirks;
mod select;
mod server;

use agentfleet_models::{
    ApiKey, ChatModel, Error, Message, ModelReply, ModelRequest, Provider, ProviderKind,
    ProviderOptions, TextSink, Timeouts, ToolSpec, http_client,
};
use agentfleet_schema::Operation;
use serde_json::{Value, json};
use server::Server;
use std::sync::Mutex;
use std::time::Duration;

/// A client that talks to this machine directly, whatever proxy the environment names.
fn client() -> reqwest::Client {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    assert!(http_client(&Timeouts::default()).is_ok());
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn options(kind: ProviderKind, server: &Server) -> ProviderOptions {
    let mut options = ProviderOptions::new(kind, "model-1");
    options.base_url = Some(server.url());
    options.key = match kind {
        ProviderKind::Ollama => None,
        _ => Some(ApiKey::new("secret-key", "TEST_API_KEY")),
    };
    options.timeouts = Timeouts {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(20),
        between_chunks: Duration::from_secs(20),
        whole: Duration::from_secs(40),
    };
    options
}

fn provider(kind: ProviderKind, server: &Server) -> Provider {
    Provider::new(options(kind, server), client()).unwrap()
}

fn request() -> ModelRequest {
    ModelRequest {
        operation: Operation::Decompose,
        messages: vec![
            Message::System("Be brief.".into()),
            Message::User("How deep is it?".into()),
        ],
        tools: Vec::new(),
        schema: None,
        inputs: Value::Null,
        model: String::new(),
        fallbacks: Vec::new(),
        temperature: Some(0.25),
        max_tokens: Some(300),
        timeout: Duration::ZERO,
    }
}

fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["choice"],
        "properties": {"choice": {"type": "string", "enum": ["a", "b"]}},
    })
}

fn search_tool() -> ToolSpec {
    ToolSpec {
        name: "search".into(),
        description: "Searches".into(),
        parameters: json!({
            "type": "object", "required": ["query"],
            "properties": {"query": {"type": "string"}},
        }),
    }
}

/// A request in the middle of a tool conversation: two calls in one turn, both answered.
fn tool_request() -> ModelRequest {
    let call = |id: &str, query: &str, thought: &str| Message::ToolCall {
        id: id.into(),
        name: "search".into(),
        arguments: json!({"query": query}),
        thought: thought.into(),
    };
    let result = |id: &str, content: &str| Message::ToolResult {
        id: id.into(),
        name: "search".into(),
        content: content.into(),
    };
    let mut request = request();
    request.operation = Operation::React;
    request.tools = vec![search_tool()];
    request.messages.extend([
        call("call#1", "depth", "I look it up."),
        call("call#2", "width", ""),
        result("call#1", "12 m"),
        result("call#2", "not run"),
    ]);
    request
}

/// Pieces in the order they came.
#[derive(Default)]
struct Pieces(Mutex<Vec<String>>);

impl TextSink for Pieces {
    fn text(&self, piece: &str) {
        self.0.lock().unwrap().push(piece.to_owned());
    }
}

impl Pieces {
    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn ask(
    provider: &Provider,
    request: ModelRequest,
) -> (Vec<String>, Result<ModelReply, Error>) {
    let pieces = Pieces::default();
    let reply = provider.chat(request, &pieces).await;
    (pieces.all(), reply)
}

/// Server-sent events: each item is one event's lines.
fn sse(events: &[String]) -> String {
    events.join("\n\n") + "\n\n"
}
