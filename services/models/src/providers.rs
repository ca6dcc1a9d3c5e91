//! Real models: OpenAI and compatible servers, Anthropic, Gemini, Ollama.
//!
//! This module decides where a call goes, what it carries, how long it may take, and what its failure
//! means; `protocol` and a file for each protocol have the formats.
//!
//! Invariants:
//! - Nothing is read from a server beyond `bounds`.
//! - Dropping the call closes the connection; nothing runs on in the background.
//! - What a server does not take is learned once per process (`refused`) and then respected.

use crate::error::{Error, Kind};
use crate::{Capabilities, ChatModel, ModelReply, ModelRequest, TextSink};
use agentfleet_schema::config::portable_name;
use agentfleet_schema::records::Usage;
use async_trait::async_trait;
use failure::{Failed, Fault};
use protocol::Outgoing;
use read::{Body, Events};
use refused::{Field, Refusal, Refused};
use reply::Reply;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use std::borrow::Cow;
use std::time::Duration;

mod anthropic;
mod bounds;
mod failure;
mod gemini;
mod key;
mod kind;
mod messages;
mod openai;
mod options;
mod protocol;
mod read;
mod refused;
mod reply;
mod schema;

pub use bounds::Bound;
pub(crate) use failure::Fault as ReadFault;
pub use failure::root_cause;
pub use key::ApiKey;
pub use kind::ProviderKind;
pub use options::{ProviderOptions, Timeouts, http_client};
pub(crate) use read::Body as BoundedBody;

/// How long the rest of a reply is waited for once the model has stopped: its usage, mostly at once.
const AFTER_THE_END: Duration = Duration::from_secs(5);

/// A model behind a provider.
#[derive(Debug)]
pub struct Provider {
    options: ProviderOptions,
    base_url: String,
    http: reqwest::Client,
    refused: Refused,
}

/// One call's destination, for requests and for error messages.
pub(crate) struct Target<'a> {
    kind: ProviderKind,
    model: &'a str,
    base_url: &'a str,
    key: Option<&'a ApiKey>,
    timeouts: Timeouts,
    /// What the call carries of that which servers may refuse.
    sent: &'a [Field],
    /// Whether the call carries the schema of its reply.
    with_schema: bool,
}

impl Target<'_> {
    /// The address without its path, for messages.
    fn shown_url(&self) -> &str {
        self.base_url.trim_end_matches('/')
    }

    /// The variable that holds the key, or should.
    fn key_variable(&self) -> &str {
        match (self.key, self.kind.key_variables()) {
            (Some(key), _) => key.source(),
            (None, [first, ..]) => first,
            (None, []) => "a key",
        }
    }
}

impl Provider {
    /// `http` is the process's shared client ([`http_client`]).
    pub fn new(options: ProviderOptions, http: reqwest::Client) -> Result<Self, Error> {
        let base_url = match &options.base_url {
            Some(given) => options.kind.normal_base_url(given)?,
            None => options.kind.default_base_url().to_owned(),
        };
        if options.key.is_none()
            && !options.kind.key_variables().is_empty()
            && base_url == options.kind.default_base_url()
        {
            let provider = options.kind.as_str();
            let variables = options.kind.key_variables().join("` or `");
            let message = format!("`{provider}` needs a key: set `{variables}`");
            return Err(Error::new(Kind::Misconfigured, message));
        }
        Ok(Self {
            options,
            base_url,
            http,
            refused: Refused::default(),
        })
    }

    fn native_tools(&self) -> bool {
        self.options.native_tools && !self.refused.has(Field::Tools)
    }

    /// The address of the protocol that is spoken there. Ollama's own protocol cannot say all that its
    /// OpenAI one can.
    fn protocol_url(&self) -> String {
        match self.options.kind {
            ProviderKind::Ollama => format!("{}v1/", self.base_url),
            ProviderKind::OpenAi | ProviderKind::Anthropic | ProviderKind::Gemini => {
                self.base_url.clone()
            }
        }
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        sink: &dyn TextSink,
    ) -> Result<ModelReply, Failed> {
        let model = match request.model.as_str() {
            "" => &self.options.model,
            named => named,
        };
        let base_url = self.protocol_url();
        let sent = self.refused.others();
        let schema = request.schema.as_ref();
        let schema = schema.filter(|_| sent.contains(&Field::Schema));
        let target = Target {
            kind: self.options.kind,
            model,
            base_url: &base_url,
            key: self.options.key.as_ref(),
            timeouts: self.options.timeouts,
            sent: &sent,
            with_schema: schema.is_some(),
        };
        let call = Outgoing {
            model,
            turns: &messages::turns(&request.messages, !request.tools.is_empty()),
            tools: &request.tools,
            schema: schema.map(|schema| (request.operation.as_str(), schema)),
            temperature: request
                .temperature
                .filter(|_| sent.contains(&Field::Temperature)),
            max_tokens: request.max_tokens,
            streaming: self.options.streaming,
            one_call: sent.contains(&Field::OneCall),
            usage: sent.contains(&Field::Usage),
            other_limit: !sent.contains(&Field::Limit),
        };
        let response = self.send(&call, &target).await?;
        let mut reply = Reply::new(sink);
        let heard = if call.streaming && !is_json(&response) {
            listen(response, &mut reply, &target).await
        } else {
            take_whole(target.kind, response, &mut reply).await
        };
        heard.map_err(|fault| failure::of_fault(fault, &target))?;
        Ok(finish(reply, request, &target)?)
    }

    /// Sends the call; what is no success is an error.
    async fn send(&self, call: &Outgoing<'_>, target: &Target<'_>) -> Result<Response, Failed> {
        let url = target.kind.url(target.base_url, call);
        let url = url.map_err(|detail| failure::unsupported(target, &detail))?;
        let request = self.http.post(url).json(&target.kind.body(call));
        let sending = target.kind.sign(request, target.key).send();
        // A reply that comes in one piece has no first byte before its last.
        let sent = if call.streaming {
            let limit = target.timeouts.first_byte;
            tokio::time::timeout(limit, sending).await.map_err(|_| {
                let (kind, url) = (target.kind, target.base_url);
                failure::timed_out(kind, url, "no response headers", limit)
            })?
        } else {
            sending.await
        };
        let response = sent.map_err(|error| failure::of_transport(&error, target))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read::error_body(response).await;
        Err(failure::of_status(status, &headers, &body, target))
    }

    /// Calls, and again without what the server turns out not to take. A refusal comes before any text,
    /// so the sink has heard nothing yet; and what was refused is not sent, and so not refused, again.
    async fn call(&self, request: &ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        let mut request = Cow::Borrowed(request);
        loop {
            let failed = match self.attempt(&request, sink).await {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let Some(refusal) = failed.refuses else {
                return Err(failed.error);
            };
            tracing::warn!(model = %self.options.model, ?refusal, "the server does not take this");
            match refusal {
                Refusal::ThisSchema => request.to_mut().schema = None,
                Refusal::Field(field) => self.refused.learn(field),
            }
            if refusal == Refusal::Field(Field::Tools) {
                return Err(failed.error);
            }
        }
    }
}

fn is_json(response: &Response) -> bool {
    let told = response.headers().get(CONTENT_TYPE);
    told.and_then(|told| told.to_str().ok())
        .is_some_and(|told| told.starts_with("application/json"))
}

/// Takes in a reply that comes in one piece.
async fn take_whole(
    kind: ProviderKind,
    response: Response,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let told = Body::new(response, Bound::Call, None).json().await?;
    take(kind, told, reply)?;
    if reply.finished || !reply.is_empty() {
        Ok(())
    } else {
        Err(Fault::Malformed("fields of the format are missing".into()))
    }
}

/// Takes in a reply that comes as a stream. One that broke off is an error, never a short reply.
async fn listen(
    response: Response,
    reply: &mut Reply<'_>,
    target: &Target<'_>,
) -> Result<(), Fault> {
    let pause = target.timeouts.between_chunks;
    let mut events = Events::new(Body::new(response, Bound::Call, Some(pause)));
    while !reply.ended {
        let data = match events.next().await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            // The model has stopped: the reply is whole, however the connection ends.
            Err(Fault::Transport(_) | Fault::TooSlow(_)) if reply.finished => break,
            Err(fault) => return Err(fault),
        };
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        take(target.kind, read::json(data.as_bytes())?, reply)?;
        if reply.finished {
            events.hurry(AFTER_THE_END);
        }
    }
    if reply.finished {
        Ok(())
    } else {
        Err(Fault::Unfinished)
    }
}

fn take(kind: ProviderKind, told: serde_json::Value, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let fails = told.get("error").is_some_and(|error| !error.is_null());
    // Gemini tells errors in a list; vLLM tells one as an object of that name.
    if fails || told.is_array() || told.get("object").is_some_and(|of| of == "error") {
        return Err(Fault::Told(told));
    }
    kind.take(&told, reply)
}

/// Reasons to stop that mean the limit of tokens, or of what the model can have before it.
const CUT: &[&str] = &[
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "model_length",
    "model_context_window_exceeded",
    "incomplete",
];

/// Reasons to stop that mean that the provider keeps the answer back.
const DECLINED: &[&str] = &[
    "content_filter",
    "refusal",
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "LANGUAGE",
];

/// What the reply comes to.
fn finish(
    mut reply: Reply<'_>,
    request: &ModelRequest,
    target: &Target<'_>,
) -> Result<ModelReply, Error> {
    let provider = target.kind.as_str();
    let model = target.model.to_owned();
    let stop = reply.stop.as_str();
    // What a filter breaks off is as little the whole reply as what comes to its limit.
    let cut = CUT.contains(&stop) || DECLINED.contains(&stop);
    if reply.is_empty() {
        if !reply.refused && !DECLINED.contains(&stop) {
            return Err(Error::empty(provider, &model, cut, reply.usage));
        }
        let reason = match stop {
            "" | "stop" => "refusal",
            reason => reason,
        };
        let message = format!(
            "{provider} model `{model}` declined to answer ({reason}): rephrase the question"
        );
        return Err(Error::new(Kind::Declined, message).costing(reply.usage));
    }
    if cut {
        tracing::info!(
            operation = request.operation.as_str(),
            model,
            stop,
            "the reply is not whole"
        );
    }
    let mut tool_calls = reply
        .take_calls()
        .map_err(|fault| failure::of_fault(fault, target))?;
    for call in &mut tool_calls {
        let mut offered = request.tools.iter();
        if let Some(tool) = offered.find(|tool| portable_name(&tool.name) == call.name) {
            call.name.clone_from(&tool.name);
        }
    }
    let usage = match reply.usage {
        told if told.input_tokens + told.output_tokens > 0 => told,
        _ => guessed(request, &reply.text, &tool_calls),
    };
    Ok(ModelReply {
        text: reply.text,
        tool_calls,
        usage,
        model: match reply.model.as_str() {
            "" => model,
            _ => reply.model,
        },
        cut,
        ..ModelReply::default()
    })
}

/// The tokens of a call whose server tells none, so that bounds hold all the same. What it cost is not
/// known.
fn guessed(request: &ModelRequest, text: &str, calls: &[crate::ToolCall]) -> Usage {
    let said = request.messages.iter().map(crate::Message::len);
    let called = calls.iter().map(|call| call.arguments.to_string().len());
    Usage {
        input_tokens: crate::tokens_in(said.sum()),
        output_tokens: crate::tokens_in(text.len() + called.sum::<usize>()),
        cost: 0.0,
        unpriced_calls: 1,
    }
}

#[async_trait]
impl ChatModel for Provider {
    fn describe(&self) -> String {
        format!("{} {}", self.options.kind.as_str(), self.options.model)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            native_tools: self.native_tools(),
            reasons: true,
            metered: true,
        }
    }

    async fn chat(&self, request: ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        let limit = match request.timeout {
            Duration::ZERO => self.options.timeouts.whole,
            limit => limit,
        };
        match tokio::time::timeout(limit, self.call(&request, sink)).await {
            Ok(result) => result,
            Err(_) => {
                let (kind, url) = (self.options.kind, &self.base_url);
                Err(failure::timed_out(kind, url, "no complete reply", limit))
            }
        }
    }
}
