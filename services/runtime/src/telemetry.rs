//! Traces for OpenTelemetry: one for each root request, across processes, subagents and synthesis.
//!
//! Spans are made from what was committed, by whoever won the commit. So an attempt that came to
//! nothing leaves none, and none is there twice. Every id follows from the ids of the run: a process
//! that knows only its own step names the spans above it rightly, whoever sends those.
//!
//! The names are those of the GenAI semantic conventions, version 1.41.0
//! (<https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai>). What people and
//! models said is sent only if that was asked for. Spans are told by best effort: what is lost here
//! is still in the graph.

mod ids;

pub use ids::trace_id;

use crate::metrics;
use crate::records::Records;
use agentfleet_documents::Documents;
use agentfleet_schema::records::{Call, FanInRecord, FanOutRecord, StepRecord};
use agentfleet_schema::{Millis, SessionId};
use async_trait::async_trait;
use ids::{Ids, session_span, span_id, step_span};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanProcessor as _};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Of the semantic conventions that the names are from.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";
/// How long a collector may take for one batch.
const PATIENCE: Duration = Duration::from_secs(10);

static TELEMETRY: OnceLock<Telemetry> = OnceLock::new();

/// Where spans go.
#[derive(Clone, Debug)]
pub struct Options {
    /// URL of a collector that speaks OTLP over HTTP, such as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Role of this process, as `service.name` tells it.
    pub role: &'static str,
    pub version: &'static str,
    /// Whether prompts, answers, arguments and results are sent too.
    pub content: bool,
}

#[derive(Debug)]
struct Telemetry {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    content: bool,
}

/// Sends the spans of this process from now on. Within a runtime; a second time changes nothing.
pub fn install(options: &Options) -> Result<(), String> {
    if is_on() {
        return Ok(());
    }
    let client = reqwest::Client::builder()
        .timeout(PATIENCE)
        .build()
        .map_err(|error| error.to_string())?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Poster {
            client,
            runtime: tokio::runtime::Handle::current(),
        })
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!(
            "{}/v1/traces",
            options.endpoint.trim_end_matches('/')
        ))
        .with_timeout(PATIENCE)
        .build()
        .map_err(|error| error.to_string())?;
    let mut processor = BatchSpanProcessor::builder(exporter).build();
    let resource = Resource::builder()
        .with_service_name(format!("agentfleet-{}", options.role))
        .with_attribute(KeyValue::new("service.version", options.version))
        .with_attribute(KeyValue::new(
            "service.instance.id",
            Uuid::new_v4().to_string(),
        ))
        .build();
    processor.set_resource(&resource);
    let scope = InstrumentationScope::builder("agentfleet")
        .with_version(options.version)
        .with_schema_url(SCHEMA_URL)
        .build();
    let telemetry = Telemetry {
        processor,
        scope,
        content: options.content,
    };
    // Somebody else may have been faster.
    TELEMETRY.set(telemetry).ok();
    Ok(())
}

/// Sends what is not sent yet; for the end of a process.
pub async fn flush() {
    if TELEMETRY.get().is_none() {
        return;
    }
    let flushed =
        tokio::task::spawn_blocking(|| TELEMETRY.get().map(|t| t.processor.force_flush()));
    if let Ok(Some(Err(error))) = flushed.await {
        tracing::warn!(%error, "the last spans were not sent");
    }
}

/// Whether anybody wants spans.
fn is_on() -> bool {
    TELEMETRY.get().is_some()
}

/// Posts on the runtime: the processor's own thread has none.
#[derive(Clone, Debug)]
struct Poster {
    client: reqwest::Client,
    runtime: tokio::runtime::Handle,
}

#[async_trait]
impl HttpClient for Poster {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let (parts, body) = request.into_parts();
            let answer = client
                .request(parts.method, parts.uri.to_string())
                .headers(parts.headers)
                .body(body)
                .send()
                .await?;
            let status = answer.status();
            Ok::<_, reqwest::Error>((status, answer.bytes().await?))
        });
        let (status, body) = sent.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}

fn at(time: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(time.max(0).unsigned_abs())
}

/// Tells of a committed step: its calls, itself, and its session if that ended with it.
pub async fn step(
    documents: &dyn Documents,
    record: &StepRecord,
    pattern: &str,
    properties: &BTreeMap<String, String>,
) {
    let Some(telemetry) = TELEMETRY.get() else {
        return;
    };
    let mut session_began = record.began();
    if record.outcome.is_terminal()
        && record.step > 0
        && let Some(first) = outcome(documents, &record.session, 0).await
    {
        session_began = first.began();
    }
    let spans = Spans {
        telemetry,
        ids: Ids::of(&record.root, properties),
    };
    spans.step(record, metrics::pattern_of(pattern), session_began);
}

/// Tells of a fan-out that was concluded `now`: how long its parent waited.
pub async fn fan_in(
    documents: &dyn Documents,
    fan_out: &FanOutRecord,
    verdict: &FanInRecord,
    now: Millis,
) {
    let Some(telemetry) = TELEMETRY.get() else {
        return;
    };
    let step = outcome(documents, &fan_out.session, fan_out.step).await;
    let spans = Spans {
        telemetry,
        ids: Ids::of(&fan_out.root, &fan_out.synthesis.properties),
    };
    let began = step.map_or(now, |step| step.committed_at);
    spans.fan_in(fan_out, verdict, began, now);
}

/// A step's record, where it can be had.
async fn outcome(documents: &dyn Documents, session: &SessionId, step: u32) -> Option<StepRecord> {
    let record = Records::new(documents).step(session, step).await;
    record.ok().flatten()
}

struct Spans<'a> {
    telemetry: &'a Telemetry,
    ids: Ids,
}

/// A span before it has what all have.
struct Told {
    id: SpanId,
    parent: SpanId,
    name: String,
    kind: SpanKind,
    began: SystemTime,
    ended: SystemTime,
    attributes: Vec<KeyValue>,
    failed: Option<String>,
}

impl Spans<'_> {
    fn step(&self, record: &StepRecord, pattern: &str, session_began: Millis) {
        let session = &record.session;
        let step = step_span(session, record.step);
        let mut began = at(record.started_at);
        for (number, call) in record.calls.iter().enumerate() {
            let id = span_id(&format!("call:{step}:{number}"));
            began = self.call(call, id, step, began, record);
        }
        let mut attributes = common(record, pattern);
        attributes.extend([
            KeyValue::new("agentfleet.step", i64::from(record.step)),
            KeyValue::new("agentfleet.outcome", record.outcome.as_str()),
            KeyValue::new("agentfleet.attempt", i64::from(record.attempt)),
        ]);
        for decision in record.routed.iter().flat_map(|routed| &routed.decisions) {
            let name = format!("agentfleet.decision.{}", decision.subject);
            attributes.push(KeyValue::new(name, decision.chosen.clone()));
        }
        let ended = record.concluded().and_then(|end| end.error.as_ref());
        let failed = ended.map(|error| error.code.clone());
        self.tell(Told {
            id: step,
            parent: session_span(session),
            name: format!("step {pattern}"),
            kind: SpanKind::Consumer,
            began: at(record.started_at),
            ended: at(record.committed_at).max(began),
            attributes,
            failed: failed.clone(),
        });
        if record.outcome.is_terminal() {
            let parent = match (&record.parent, self.ids.caller) {
                (Some(parent), _) => step_span(&parent.session, parent.step),
                (None, Some(caller)) => caller,
                (None, None) => SpanId::INVALID,
            };
            let mut attributes = common(record, pattern);
            attributes.extend([
                KeyValue::new("gen_ai.operation.name", "invoke_agent"),
                KeyValue::new("agentfleet.tokens.total", whole(record.total.tokens)),
            ]);
            self.tell(Told {
                id: session_span(session),
                parent,
                name: format!("invoke_agent {pattern}"),
                kind: SpanKind::Internal,
                began: at(session_began.min(record.started_at)),
                ended: at(record.committed_at).max(began),
                attributes,
                failed,
            });
        }
    }

    /// Calls follow one another; when the next began is not recorded, but how long each took.
    fn call(
        &self,
        call: &Call,
        id: SpanId,
        parent: SpanId,
        began: SystemTime,
        record: &StepRecord,
    ) -> SystemTime {
        let told = |name, kind, ms: u64, attributes, failed| Told {
            id,
            parent,
            name,
            kind,
            began,
            ended: began + Duration::from_millis(ms),
            attributes,
            failed,
        };
        let told = match call {
            Call::Model {
                operation,
                model,
                prompt,
                reply,
                usage,
                ms,
                calls_tools: _,
                cut,
                ignored: _,
                tried: _,
            } => {
                let provider = model.split_once(':').map_or("agentfleet", |(name, _)| name);
                let mut attributes = vec![
                    KeyValue::new("gen_ai.operation.name", "chat"),
                    KeyValue::new("gen_ai.provider.name", provider.to_owned()),
                    KeyValue::new("gen_ai.request.model", model.clone()),
                    KeyValue::new("gen_ai.usage.input_tokens", whole(usage.input_tokens)),
                    KeyValue::new("gen_ai.usage.output_tokens", whole(usage.output_tokens)),
                    KeyValue::new("agentfleet.operation", operation.clone()),
                ];
                if *cut {
                    attributes.push(KeyValue::new("gen_ai.response.finish_reasons", "length"));
                }
                if usage.unpriced_calls == 0 {
                    attributes.push(KeyValue::new("agentfleet.cost", usage.cost));
                }
                if self.telemetry.content {
                    attributes.extend([
                        KeyValue::new("gen_ai.input.messages", prompt.clone()),
                        KeyValue::new("gen_ai.output.messages", reply.clone()),
                    ]);
                }
                told(
                    format!("chat {model}"),
                    SpanKind::Client,
                    *ms,
                    attributes,
                    None,
                )
            }
            Call::Tool {
                name,
                arguments,
                result,
                is_error,
                ms,
                sources: _,
                tried: _,
                adopted: _,
            } => {
                let mut attributes = vec![
                    KeyValue::new("gen_ai.operation.name", "execute_tool"),
                    KeyValue::new("gen_ai.tool.name", name.clone()),
                ];
                if self.telemetry.content {
                    let arguments = serde_json::to_string(arguments).unwrap_or_default();
                    attributes.extend([
                        KeyValue::new("gen_ai.tool.call.arguments", arguments),
                        KeyValue::new("gen_ai.tool.call.result", result.clone()),
                    ]);
                }
                let failed = is_error.then(|| "tool-error".to_owned());
                let name = format!("execute_tool {name}");
                told(name, SpanKind::Internal, *ms, attributes, failed)
            }
            // No time of their own.
            Call::Document { .. } => return began,
        };
        let ended = told.ended;
        let mut told = told;
        let conversation = conversation(record);
        told.attributes
            .push(KeyValue::new("gen_ai.conversation.id", conversation));
        self.tell(told);
        ended
    }

    fn fan_in(&self, fan_out: &FanOutRecord, verdict: &FanInRecord, began: Millis, now: Millis) {
        self.tell(Told {
            id: span_id(&format!("fan-in:{}", fan_out.correlation)),
            parent: step_span(&fan_out.session, fan_out.step),
            name: "fan-in".to_owned(),
            kind: SpanKind::Internal,
            began: at(began.min(now)),
            ended: at(now),
            attributes: vec![
                KeyValue::new("agentfleet.correlation", fan_out.correlation.to_string()),
                KeyValue::new("agentfleet.cause", verdict.cause.as_str()),
                KeyValue::new("agentfleet.members", whole(verdict.members.len() as u64)),
                KeyValue::new("agentfleet.missing", whole(verdict.missing.len() as u64)),
                KeyValue::new("gen_ai.conversation.id", fan_out.root.to_string()),
            ],
            failed: None,
        });
    }

    fn tell(&self, told: Told) {
        let mut attributes = told.attributes;
        let status = match told.failed {
            Some(kind) => {
                attributes.push(KeyValue::new("error.type", kind.clone()));
                Status::error(kind)
            }
            None => Status::Unset,
        };
        let context = SpanContext::new(
            self.ids.trace,
            told.id,
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        );
        self.telemetry.processor.on_end(SpanData {
            span_context: context,
            parent_span_id: told.parent,
            parent_span_is_remote: true,
            span_kind: told.kind,
            name: told.name.into(),
            start_time: told.began,
            end_time: told.ended,
            attributes,
            dropped_attributes_count: 0,
            events: opentelemetry_sdk::trace::SpanEvents::default(),
            links: opentelemetry_sdk::trace::SpanLinks::default(),
            status,
            instrumentation_scope: self.telemetry.scope.clone(),
        });
    }
}

/// What steps and sessions both carry.
fn common(record: &StepRecord, pattern: &str) -> Vec<KeyValue> {
    vec![
        KeyValue::new("gen_ai.conversation.id", conversation(record)),
        KeyValue::new("gen_ai.agent.id", record.session.to_string()),
        KeyValue::new("gen_ai.agent.name", pattern.to_owned()),
        KeyValue::new("agentfleet.root", record.root.to_string()),
        KeyValue::new("agentfleet.collection", record.collection.to_string()),
        KeyValue::new(
            "gen_ai.usage.input_tokens",
            whole(record.usage.input_tokens),
        ),
        KeyValue::new(
            "gen_ai.usage.output_tokens",
            whole(record.usage.output_tokens),
        ),
    ]
}

/// A run that is part of no conversation is one of its own.
fn conversation(record: &StepRecord) -> String {
    match record.conversation.as_str() {
        "" => record.root.to_string(),
        name => name.to_owned(),
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::ids::traceparent;
    use super::*;

    #[test]
    fn a_callers_trace_goes_on_and_a_broken_one_is_none() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (trace, span) = traceparent(given).unwrap();
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(span.to_string(), "00f067aa0ba902b7");
        for broken in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert!(traceparent(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn ids_follow_from_the_run_alone() {
        let (root, other) = (SessionId::from("r"), SessionId::from("s"));
        let none = BTreeMap::new();
        assert_eq!(trace_id(&root, &none), trace_id(&root, &none));
        assert_ne!(trace_id(&root, &none), trace_id(&other, &none));
        let spans = [
            session_span(&root),
            session_span(&other),
            step_span(&root, 0),
            step_span(&root, 1),
        ];
        let distinct: std::collections::BTreeSet<String> =
            spans.iter().map(ToString::to_string).collect();
        assert_eq!(distinct.len(), spans.len());
    }
}
