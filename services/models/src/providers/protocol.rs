//! The protocols that providers speak, one file each: where a call goes, what it carries, and what comes
//! back. OpenAI's chat completions are what llama.cpp, vLLM, Ollama and most other servers speak too.

use super::failure::Fault;
use super::messages::Turn;
use super::reply::Reply;
use super::{ApiKey, ProviderKind, anthropic, gemini, openai};
use crate::ToolSpec;
use reqwest::RequestBuilder;
use serde_json::Value;

/// All that a call carries.
pub(super) struct Outgoing<'a> {
    pub model: &'a str,
    pub turns: &'a [Turn],
    /// Empty: none are offered.
    pub tools: &'a [ToolSpec],
    /// Its name, and the JSON Schema of the reply.
    pub schema: Option<(&'a str, &'a Value)>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub streaming: bool,
    /// Asks for one tool call at a time.
    pub one_call: bool,
    /// Asks a stream to end with its usage.
    pub usage: bool,
    /// Names the limit of tokens by the field that is not the usual one of this model.
    pub other_limit: bool,
}

impl ProviderKind {
    /// `Err` says why the call has no address.
    pub(super) fn url(self, base_url: &str, call: &Outgoing<'_>) -> Result<String, String> {
        match self {
            Self::OpenAi | Self::Ollama => Ok(format!("{base_url}chat/completions")),
            Self::Anthropic => Ok(format!("{base_url}messages")),
            Self::Gemini => gemini::url(base_url, call),
        }
    }

    pub(super) fn sign(self, request: RequestBuilder, key: Option<&ApiKey>) -> RequestBuilder {
        let request = match self {
            Self::Anthropic => request.header("anthropic-version", anthropic::VERSION),
            Self::OpenAi | Self::Gemini | Self::Ollama => request,
        };
        match (self, key) {
            (_, None) => request,
            (Self::OpenAi | Self::Ollama, Some(key)) => request.bearer_auth(key.secret()),
            (Self::Anthropic, Some(key)) => request.header("x-api-key", key.secret()),
            (Self::Gemini, Some(key)) => request.header("x-goog-api-key", key.secret()),
        }
    }

    pub(super) fn body(self, call: &Outgoing<'_>) -> Value {
        match self {
            Self::OpenAi | Self::Ollama => openai::body(call),
            Self::Anthropic => anthropic::body(call),
            Self::Gemini => gemini::body(call),
        }
    }

    /// Takes an event of a stream, or a whole reply, into the reply.
    pub(super) fn take(self, told: &Value, reply: &mut Reply<'_>) -> Result<(), Fault> {
        match self {
            Self::OpenAi | Self::Ollama => openai::take(told, reply),
            Self::Anthropic => anthropic::take(told, reply),
            Self::Gemini => gemini::take(told, reply),
        }
    }
}
