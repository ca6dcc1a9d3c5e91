//! Real models: OpenAI and compatible servers, Anthropic, Gemini, Ollama.
//!
//! The protocols are the provider crate's business; this module decides where a call goes, what it
//! carries, how long it may take, and what its failure means.
//!
//! Invariants:
//! - Every call names endpoint, key, protocol and model. A bare model name would be guessed at.
//! - Dropping the call closes the connection; nothing runs on in the background.
//! - A provider's quirk is learned once per process (no tools, no schema) and then respected.

use crate::error::{Error, Phase};
use crate::{Capabilities, ChatModel, ModelReply, ModelRequest, TextSink};
use async_trait::async_trait;
use genai::chat::{ChatOptions, JsonSpec, ReasoningEffort, StopReason};
use genai::resolver::{AuthData, Endpoint};
use genai::{Headers, ModelIden, ServiceTarget};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

mod failure;
mod key;
mod kind;
mod listen;
mod messages;
mod options;

pub use key::ApiKey;
pub use kind::{ProviderKind, default_model};
pub use options::{ProviderOptions, Timeouts, http_client};

/// A model behind a provider.
#[derive(Debug)]
pub struct Provider {
    options: ProviderOptions,
    base_url: String,
    client: genai::Client,
    refused: Refused,
}

/// What this server has refused before.
#[derive(Debug, Default)]
struct Refused {
    tools: AtomicBool,
    schema: AtomicBool,
}

/// One call's destination, for requests and for error messages.
pub(crate) struct Target<'a> {
    kind: ProviderKind,
    /// The protocol spoken, which for Ollama may be OpenAI's.
    protocol: ProviderKind,
    model: &'a str,
    base_url: &'a str,
    key: Option<&'a ApiKey>,
    timeouts: Timeouts,
    sends_tools: bool,
}

impl Target<'_> {
    /// The address without its path, for messages.
    fn shown_url(&self) -> String {
        self.base_url.trim_end_matches('/').to_owned()
    }

    /// The variable that holds the key, or should.
    fn key_variable(&self) -> String {
        match self.key {
            Some(key) => key.source().to_owned(),
            None => self
                .kind
                .key_variables()
                .first()
                .copied()
                .unwrap_or("a key")
                .to_owned(),
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
            return Err(Error::MissingKey {
                provider: options.kind.as_str(),
                variables: options.kind.key_variables().join("` or `"),
            });
        }
        let client = genai::Client::builder()
            .with_reqwest(http)
            .build()
            .map_err(|_| Error::HttpClient {
                detail: "the provider crate refused it".into(),
            })?;
        Ok(Self {
            options,
            base_url,
            client,
            refused: Refused::default(),
        })
    }

    fn native_tools(&self) -> bool {
        self.options.native_tools && !self.refused.tools.load(Ordering::Relaxed)
    }

    async fn attempt(
        &self,
        request: &ModelRequest,
        sink: &dyn TextSink,
        with_schema: bool,
    ) -> Result<ModelReply, Error> {
        let kind = self.options.kind;
        let model = if request.model.is_empty() {
            &self.options.model
        } else {
            &request.model
        };
        let schema = request.schema.as_ref().filter(|_| with_schema);
        // Ollama's own protocol takes a schema too, but the adapter cannot send it; the server's
        // OpenAI protocol can carry it.
        let (protocol, base_url) = match kind {
            ProviderKind::Ollama if schema.is_some() => {
                (ProviderKind::OpenAi, format!("{}v1/", self.base_url))
            }
            ProviderKind::OpenAi
            | ProviderKind::Anthropic
            | ProviderKind::Gemini
            | ProviderKind::Ollama => (kind, self.base_url.clone()),
        };
        let target = Target {
            kind,
            protocol,
            model,
            base_url: &base_url,
            key: self.options.key.as_ref(),
            timeouts: self.options.timeouts,
            sends_tools: !request.tools.is_empty(),
        };
        let overheard = listen::Overheard::default();
        let options = self.chat_options(request, schema, protocol, &overheard);
        let service = self.service(&target);
        let chat = messages::chat_request(protocol, &request.messages, &request.tools);
        let heard = if self.options.streaming {
            let response = self
                .client
                .exec_chat_stream(service, chat, Some(&options))
                .with_subscriber(NoSubscriber::new())
                .await
                .map_err(|error| failure::read(error, &target))?;
            listen::to(response.stream, sink, &overheard, &target).await?
        } else {
            let response = self
                .client
                .exec_chat(service, chat, Some(&options))
                .with_subscriber(NoSubscriber::new())
                .await
                .map_err(|error| failure::read(error, &target))?;
            whole(&response, sink)
        };
        self.reply(heard, request, &target)
    }

    fn chat_options(
        &self,
        request: &ModelRequest,
        schema: Option<&serde_json::Value>,
        protocol: ProviderKind,
        overheard: &listen::Overheard,
    ) -> ChatOptions {
        let overheard = overheard.clone();
        let mut options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_tool_calls(true)
            .with_stream_header_timeout(self.options.timeouts.first_byte)
            .with_stream_read_timeout(self.options.timeouts.between_chunks)
            .with_raw_frame_fn(move |_, frame| overheard.frame(frame.data));
        if let Some(schema) = schema {
            let name = request.operation.as_str();
            options = options.with_response_format(JsonSpec::new(name, schema.clone()));
        }
        match protocol {
            // Sends no effort, and keeps a model name that ends in `-max` or `-high` as it is.
            ProviderKind::OpenAi => {
                options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
            }
            // A transcript of tool calls must repeat the model's signed thinking, which no step
            // carries: with tools, models that think by default are asked not to.
            ProviderKind::Anthropic if !request.tools.is_empty() => {
                options = options.with_reasoning_effort(ReasoningEffort::Zero);
            }
            ProviderKind::Anthropic | ProviderKind::Gemini | ProviderKind::Ollama => {}
        }
        if let Some(temperature) = request.temperature {
            options = options.with_temperature(temperature);
        }
        if let Some(max) = request.max_tokens {
            options = options.with_max_tokens(max);
        }
        options
    }

    fn service(&self, target: &Target<'_>) -> ServiceTarget {
        let auth = match (&self.options.key, target.protocol) {
            (Some(key), _) => AuthData::from_single(key.secret()),
            (None, ProviderKind::Ollama) => AuthData::None,
            // No key at all: the request goes out without the header.
            (None, ProviderKind::OpenAi) => AuthData::RequestOverride {
                url: format!("{}chat/completions", target.base_url),
                headers: Headers::default(),
            },
            (None, ProviderKind::Anthropic | ProviderKind::Gemini) => AuthData::from_single(""),
        };
        ServiceTarget {
            endpoint: Endpoint::from_owned(target.base_url.to_owned()),
            auth,
            model: ModelIden::new(target.protocol.adapter(), target.model.to_owned()),
        }
    }

    fn reply(
        &self,
        heard: listen::Heard,
        request: &ModelRequest,
        target: &Target<'_>,
    ) -> Result<ModelReply, Error> {
        let provider = self.options.kind.as_str();
        if heard.text.trim().is_empty() && heard.tool_calls.is_empty() {
            let model = target.model.to_owned();
            return Err(match heard.stop {
                Some(StopReason::ContentFilter(reason)) => Error::Declined {
                    provider,
                    model,
                    reason,
                },
                _ => Error::Empty { provider, model },
            });
        }
        let cut = heard.stop.as_ref().is_some_and(StopReason::is_max_tokens);
        if cut {
            tracing::warn!(
                operation = request.operation.as_str(),
                model = target.model,
                "the reply was cut at the token limit"
            );
        }
        let model = if heard.model.is_empty() {
            target.model.to_owned()
        } else {
            heard.model
        };
        Ok(ModelReply {
            text: heard.text,
            tool_calls: heard.tool_calls,
            usage: heard.usage,
            model,
            cut,
        })
    }

    /// Calls, and once more without the schema if the server takes none.
    async fn call(&self, request: &ModelRequest, sink: &dyn TextSink) -> Result<ModelReply, Error> {
        let with_schema = request.schema.is_some() && !self.refused.schema.load(Ordering::Relaxed);
        match self.attempt(request, sink, with_schema).await {
            // The prompt asks for JSON as well, and whoever reads the reply checks it. A refusal
            // comes before any text, so the sink has heard nothing yet.
            Err(error) if with_schema && failure::is_about_the_schema(&error) => {
                self.refused.schema.store(true, Ordering::Relaxed);
                tracing::warn!(model = %self.options.model, "the server takes no response schema");
                self.attempt(request, sink, false).await
            }
            Err(error @ Error::ToolsRefused { .. }) => {
                self.refused.tools.store(true, Ordering::Relaxed);
                Err(error)
            }
            other => other,
        }
    }
}

/// A reply that came in one piece.
fn whole(response: &genai::chat::ChatResponse, sink: &dyn TextSink) -> listen::Heard {
    let text = response.content.texts().concat();
    if !text.is_empty() {
        sink.text(&text);
    }
    let tool_calls = response
        .content
        .tool_calls()
        .into_iter()
        .map(|call| crate::ToolCall {
            id: call.call_id.clone(),
            name: call.fn_name.clone(),
            arguments: listen::parsed(call.fn_arguments.clone()),
        });
    listen::Heard {
        tool_calls: tool_calls.collect(),
        usage: listen::usage(response.usage.clone()),
        stop: response.stop_reason.clone(),
        model: response.provider_model_iden.model_name.to_string(),
        text,
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
            Err(_) => Err(Error::Timeout {
                provider: self.options.kind.as_str(),
                url: self.base_url.trim_end_matches('/').to_owned(),
                phase: Phase::WholeCall,
                limit,
            }),
        }
    }
}
