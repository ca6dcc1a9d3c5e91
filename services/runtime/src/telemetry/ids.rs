//! Ids of traces and spans, derived from what they are of: the same whoever tells it, however often.

use agentfleet_schema::SessionId;
use agentfleet_schema::topics::property;
use opentelemetry::trace::{SpanId, TraceId};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The ids that a run's spans have.
pub(super) struct Ids {
    pub(super) trace: TraceId,
    /// The caller's span, if the request came with one.
    pub(super) caller: Option<SpanId>,
}

impl Ids {
    pub(super) fn of(root: &SessionId, properties: &BTreeMap<String, String>) -> Self {
        let given = properties.get(property::TRACEPARENT);
        match given.and_then(|text| traceparent(text)) {
            Some((trace, caller)) => Self {
                trace,
                caller: Some(caller),
            },
            None => Self {
                trace: TraceId::from_bytes(derived(&format!("trace:{root}"))),
                caller: None,
            },
        }
    }
}

/// The trace that a run belongs to, as log lines name it.
pub fn trace_id(root: &SessionId, properties: &BTreeMap<String, String>) -> String {
    Ids::of(root, properties).trace.to_string()
}

/// Trace and span of a W3C `traceparent`.
pub(super) fn traceparent(text: &str) -> Option<(TraceId, SpanId)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let well_formed =
        version.len() == 2 && version != "ff" && trace.len() == 32 && span.len() == 16;
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    let named = trace != TraceId::INVALID && span != SpanId::INVALID;
    (well_formed && named).then_some((trace, span))
}

/// Sixteen bytes that follow from a name, and from nothing else.
fn derived(name: &str) -> [u8; 16] {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).into_bytes()
}

pub(super) fn span_id(name: &str) -> SpanId {
    let id = u128::from_be_bytes(derived(name)) >> 64;
    SpanId::from_bytes((id as u64).to_be_bytes())
}

pub(super) fn session_span(session: &SessionId) -> SpanId {
    span_id(&format!("session:{session}"))
}

pub(super) fn step_span(session: &SessionId, step: u32) -> SpanId {
    span_id(&format!("step:{session}:{step}"))
}
