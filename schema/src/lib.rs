//! What travels between processes and what lies in stores: messages, ids, topics, URIs, the `tg:`
//! vocabulary, step records and config items. No behaviour beyond encoding, decoding and naming.
//!
//! Wire structs are tolerant: missing, `null` and unknown fields never fail a decode. Strictness
//! begins in the core, which parses a request once into a turn.

pub mod arguments;
pub mod carried;
pub mod config;
pub mod history;
pub mod id;
pub mod json_schema;
pub mod keys;
pub mod names;
pub mod operation;
pub mod records;
pub mod redact;
pub mod request;
pub mod response;
pub mod spent;
pub mod tolerant;
pub mod tool_service;
pub mod topics;
pub mod triples;
pub mod uris;
pub mod vocabulary;
pub mod words;
pub mod worked;

pub use carried::{Brief, Carried, Exchange, Known, Memory, PolicyPosition};
pub use history::{AgentStep, PlanStep, StepKind};
pub use id::{
    ApprovalId, CollectionName, ConversationId, CorrelationId, Digest, MessageId, SessionId, hex,
};
pub use operation::Operation;
pub use redact::{HIDDEN, redacted};
pub use request::{
    AgentRequest, Ancestor, HeldCall, Lineage, PatternState, PlanState, Principal, ReactState,
    RoutingContext, RunControl, RunLimits, Source,
};
pub use response::{AgentResponse, ErrorBody, MessageType};
pub use spent::{Cost, Money, Spent};
pub use tool_service::{ToolServiceRequest, ToolServiceResponse};
pub use triples::{Metadata, Term, TermType, Triple, Triples};
pub use worked::QuotaLeft;

/// Milliseconds since the Unix epoch, as every record and message states instants.
pub type Millis = i64;

/// The longest span of time that anybody may name, a hundred years: whatever is added to it or taken off
/// it, an instant stays one.
pub const LONGEST_MS: u64 = 100 * 365 * 24 * 3_600 * 1_000;

/// The furthest instant anything is planned for, in the year 2200. What a message names beyond it is
/// taken for it, so that no sum of an instant and a wait leaves the range of its type.
pub const FAR: Millis = 7_258_118_400_000;

/// The instant `ms` milliseconds after another.
pub fn later(at: Millis, ms: u64) -> Millis {
    at.saturating_add(Millis::try_from(ms).unwrap_or(FAR))
        .min(FAR)
}

/// A length of time in the unit of instants.
pub fn millis(time: std::time::Duration) -> Millis {
    Millis::try_from(time.as_millis()).map_or(FAR, |ms| ms.min(FAR))
}
