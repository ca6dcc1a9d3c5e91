//! Listening to a reply: text to the sink piece by piece, tool calls and usage gathered.
//!
//! Invariant: a reply that broke off is an error, never a short reply.

use crate::error::Error;
use crate::{TextSink, ToolCall};
use agentfleet_schema::records::Usage;
use futures::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::{ProviderKind, Target, failure};

/// A whole reply in the provider's terms.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub text: String,
    pub tool_calls: Vec<ToolCall>,
    pub usage: Usage,
    pub stop: Option<StopReason>,
    /// The model that answered; empty where the reply does not say.
    pub model: String,
}

/// What the frames on the wire say and the provider crate does not pass on.
#[derive(Clone, Debug, Default)]
pub(super) struct Overheard(Arc<Mutex<Told>>);

#[derive(Debug, Default)]
struct Told {
    model: String,
    /// The reply was declared finished. Some compatible servers never send the closing `[DONE]`.
    finished: bool,
    refusal: bool,
}

impl Overheard {
    /// Looks at one frame. Frames are only parsed until the model's name is known.
    pub(super) fn frame(&self, data: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.model.is_empty()
            && let Ok(frame) = serde_json::from_str::<Value>(data)
        {
            let name = ["/model", "/message/model", "/modelVersion"]
                .iter()
                .find_map(|p| frame.pointer(p).and_then(Value::as_str));
            name.unwrap_or_default().clone_into(&mut told.model);
        }
        told.finished |= has_text_after(data, "\"finish_reason\"");
        told.refusal |= has_text_after(data, "\"refusal\"");
    }

    fn finished(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .finished
    }

    fn refused(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .refusal
    }

    fn model(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .model
            .clone()
    }
}

/// Whether `name` is followed by a JSON string that is not empty.
fn has_text_after(frame: &str, name: &str) -> bool {
    frame.split(name).skip(1).any(|rest| {
        let value = rest
            .trim_start()
            .strip_prefix(':')
            .unwrap_or_default()
            .trim_start();
        value.starts_with('"') && !value.starts_with("\"\"")
    })
}

/// Takes in a whole stream.
pub(super) async fn to(
    mut stream: ChatStream,
    sink: &dyn TextSink,
    overheard: &Overheard,
    target: &Target<'_>,
) -> Result<Heard, Error> {
    let mut heard = Heard::default();
    let mut end = None;
    // The provider crate logs error bodies, which may repeat the prompt: it is not listened to.
    while let Some(event) = stream.next().with_subscriber(NoSubscriber::new()).await {
        match event.map_err(|error| failure::read(error, target))? {
            ChatStreamEvent::Chunk(chunk) => {
                if !chunk.content.is_empty() {
                    sink.text(&chunk.content);
                    heard.text.push_str(&chunk.content);
                }
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                gather(&mut heard.tool_calls, chunk.tool_call, target.protocol);
            }
            ChatStreamEvent::End(told) => end = Some(told),
            // What a model thinks by itself is not part of its reply.
            ChatStreamEvent::Start
            | ChatStreamEvent::ReasoningChunk(_)
            | ChatStreamEvent::ThoughtSignatureChunk(_)
            | ChatStreamEvent::Heartbeat => {}
        }
    }
    if !is_complete(end.as_ref(), overheard, target) {
        return Err(Error::Interrupted {
            provider: target.kind.as_str(),
            detail: "the connection was closed before the end".to_owned(),
        });
    }
    for call in &mut heard.tool_calls {
        call.arguments = parsed(std::mem::take(&mut call.arguments));
    }
    heard.model = overheard.model();
    if let Some(end) = end {
        heard.usage = end.captured_usage.map(usage).unwrap_or_default();
        heard.stop = end.captured_stop_reason;
    }
    if heard.text.is_empty() && overheard.refused() {
        heard.stop = Some(StopReason::ContentFilter("refusal".to_owned()));
    }
    Ok(heard)
}

/// Whether the stream came to its own end. Two adapters make up an end when the line goes dead:
/// theirs counts only if it says why the model stopped.
fn is_complete(end: Option<&StreamEnd>, overheard: &Overheard, target: &Target<'_>) -> bool {
    match (target.protocol, end) {
        (ProviderKind::OpenAi, None) => overheard.finished(),
        (ProviderKind::OpenAi | ProviderKind::Anthropic, Some(_)) => true,
        (ProviderKind::Anthropic | ProviderKind::Gemini | ProviderKind::Ollama, None) => false,
        (ProviderKind::Gemini, Some(end)) => end.captured_stop_reason.is_some(),
        (ProviderKind::Ollama, Some(end)) => {
            end.captured_stop_reason.is_some() || end.captured_usage.is_some()
        }
    }
}

/// Adds a piece of a tool call. OpenAI and Anthropic send each call again as it grows; the others
/// send it once, and may use one id twice.
fn gather(calls: &mut Vec<ToolCall>, piece: genai::chat::ToolCall, protocol: ProviderKind) {
    let grows = match protocol {
        ProviderKind::OpenAi | ProviderKind::Anthropic => true,
        ProviderKind::Gemini | ProviderKind::Ollama => false,
    };
    let known = calls.iter_mut().find(|call| call.id == piece.call_id);
    match known {
        Some(call) if grows => {
            call.arguments = piece.fn_arguments;
            if !piece.fn_name.is_empty() {
                call.name = piece.fn_name;
            }
        }
        Some(_) => {
            let id = format!("{}-{}", piece.call_id, calls.len());
            calls.push(ToolCall {
                id,
                name: piece.fn_name,
                arguments: piece.fn_arguments,
            });
        }
        None => calls.push(ToolCall {
            id: piece.call_id,
            name: piece.fn_name,
            arguments: piece.fn_arguments,
        }),
    }
}

/// Arguments that arrived as text. Text that is no JSON stays text: the caller says so to the model.
pub(super) fn parsed(arguments: Value) -> Value {
    match arguments {
        Value::String(text) if text.trim().is_empty() => serde_json::json!({}),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Value::Null => serde_json::json!({}),
        other => other,
    }
}

/// Tokens in and out; what providers call cached or reasoning is inside these.
pub(super) fn usage(told: genai::chat::Usage) -> Usage {
    let count = |tokens: Option<i32>| tokens.and_then(|t| u64::try_from(t).ok());
    // Gemini may spend the whole reply on thinking, and then names that part alone.
    let reasoning = told
        .completion_tokens_details
        .and_then(|d| count(d.reasoning_tokens));
    Usage {
        input_tokens: count(told.prompt_tokens).unwrap_or_default(),
        output_tokens: count(told.completion_tokens)
            .or(reasoning)
            .unwrap_or_default(),
        cost: 0.0,
    }
}
