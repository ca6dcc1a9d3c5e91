//! The model seam: messages, tools, response schema, profile and operation in; streamed text, tool
//! calls and usage out.
//!
//! # Contract
//! - Every piece of text is sent to `sink` as it arrives, in order; the reply holds the whole.
//! - Dropping the future cancels the call.
//! - Failures say whether trying again can help ([`Error::retry`]).

pub use agentfleet_schema::Operation;
use agentfleet_schema::records::Usage;
use async_trait::async_trait;
use serde_json::Value;
use std::time::Duration;

mod chain;
mod error;
mod offline;
mod providers;
mod scripted;
mod select;

pub use chain::Chain;
pub use error::{Error, Kind};
pub use offline::Offline;
pub use providers::{
    ApiKey, Bound, Provider, ProviderKind, ProviderOptions, Timeouts, http_client, root_cause,
};
pub use scripted::{Gate, Rule, Script, Scripted};
pub use select::{Choice, ModelOptions, native_tools, select};

/// One call to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub operation: Operation,
    pub messages: Vec<Message>,
    /// Tools the model may call natively; empty where the text format is used.
    pub tools: Vec<ToolSpec>,
    /// JSON Schema the reply must match.
    pub schema: Option<Value>,
    /// The variables the prompt was rendered from; a model that needs no prose reads these.
    pub inputs: Value,
    /// Model name that overrides the fleet's; empty keeps it.
    pub model: String,
    /// Models to go to where this one is away, as `PROVIDER:MODEL`.
    pub fallbacks: Vec<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub timeout: Duration,
}

/// A message of the conversation with the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    System(String),
    User(String),
    Assistant(String),
    /// The model called a tool.
    ToolCall {
        id: String,
        name: String,
        arguments: Value,
        thought: String,
    },
    /// What the tool returned.
    ToolResult {
        id: String,
        name: String,
        content: String,
    },
}

impl Message {
    /// Bytes of what is said in it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::System(text) | Self::User(text) | Self::Assistant(text) => text.len(),
            Self::ToolCall {
                arguments, thought, ..
            } => arguments.to_string().len() + thought.len(),
            Self::ToolResult { content, .. } => content.len(),
        }
    }
}

/// Tokens that a text of so many bytes is taken for, where nobody has counted them.
pub fn tokens_in(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// A tool as the model is told about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments object.
    pub parameters: Value,
}

/// What the model said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelReply {
    pub text: String,
    pub tool_calls: Vec<ToolCall>,
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// Models that were to answer before, and why they did not.
    pub tried: Vec<Tried>,
    /// The one of the request's fallbacks that answered; empty where none had to.
    pub fallback: String,
    /// The reply ends where it reached the limit of tokens, not where the model had ended.
    pub cut: bool,
}

/// A model that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    pub of: String,
    pub kind: Kind,
    /// It was not even asked.
    pub passed_over: bool,
    pub error: String,
}

impl Tried {
    fn of(of: String, error: &Error) -> Self {
        Self {
            of,
            kind: error.kind(),
            passed_over: false,
            error: error.to_string(),
        }
    }

    fn passed_over(of: String, error: String) -> Self {
        Self {
            of,
            kind: Kind::Unavailable,
            passed_over: true,
            error,
        }
    }
}

/// A native tool call.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub arguments: Value,
}

/// Receives text while the model talks. Called from the model's task; must not block.
pub trait TextSink: Send + Sync {
    fn text(&self, piece: &str);
}

/// A sink for callers that want only the whole.
#[derive(Clone, Copy, Debug)]
pub struct Discard;

impl TextSink for Discard {
    fn text(&self, _piece: &str) {}
}

/// What a model can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub native_tools: bool,
    /// `false` for the offline model: what it says is quoted, not reasoned.
    pub reasons: bool,
    /// Whether its calls cost somebody something, so that they are accounted for even where no
    /// budget bounds them.
    pub metered: bool,
}

/// A language model.
#[async_trait]
pub trait ChatModel: Send + Sync + 'static {
    /// A short name for people: `openai gpt-5-mini`, `offline`.
    fn describe(&self) -> String;

    fn capabilities(&self) -> Capabilities;

    async fn chat(&self, request: ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error>;
}
