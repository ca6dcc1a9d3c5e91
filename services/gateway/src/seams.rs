//! What the binary lends the gateway: ending a run, saying how the fleet is and what was loaded, drawing a
//! trace.

use agentfleet_core::approval::Verdict;
use agentfleet_schema::SessionId;
use agentfleet_schema::records::{Decided, PauseRecord};
use async_trait::async_trait;

/// A failure of something lent; it is logged, and its text does not reach a caller.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Ends runs from outside.
#[async_trait]
pub trait Cancel: Send + Sync + 'static {
    /// Ends the run of a root session, whatever it is doing. `by` is who asked for it.
    async fn cancel(&self, session: &SessionId, by: &str) -> Result<Cancelled, Failure>;
}

/// What came of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The run ended now, by this.
    Now,
    /// It had ended already; its result stands.
    AlreadyEnded,
    /// No worker has taken it up: it ends when one does.
    WhenItStarts,
}

/// Takes the answers to calls that wait for a person.
#[async_trait]
pub trait Approvals: Send + Sync + 'static {
    /// Everything that waits, the oldest first.
    async fn open(&self) -> Result<Vec<PauseRecord>, Failure>;

    async fn answer(&self, id: &str, verdict: Verdict) -> Result<Answered, Failure>;
}

/// What came of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// It counts, and this session goes on.
    Now(SessionId, Box<Decided>),
    /// Something else was there first; what, in words.
    Over(String),
    /// Nobody waits for what would come of it; why.
    TooLate(String),
    /// It is none; why.
    Refused(String),
    Unknown,
}

/// How the rest of the fleet is, for `GET /health/ready`.
#[async_trait]
pub trait Status: Send + Sync + 'static {
    /// Everything that must be well for a request to be answered, beyond the broker, the documents,
    /// the graph and the config, which the gateway asks itself.
    async fn checks(&self) -> Vec<Check>;

    /// The numbers of this process in Prometheus' text format, for `GET /metrics`.
    async fn metrics(&self) -> String;
}

/// One thing that must be well.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// What is wrong, or what there is to know.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Says which collections something was loaded as.
#[async_trait]
pub trait Collections: Send + Sync + 'static {
    async fn loaded(&self) -> Result<Vec<String>, Failure>;
}

/// Draws traces in more forms than the gateway has itself.
#[async_trait]
pub trait TraceRenderer: Send + Sync + 'static {
    /// The formats it can draw, by the names of `?format=`. They go before the gateway's own.
    fn formats(&self) -> Vec<TraceFormat>;

    /// The trace of a session and all below it; `None` if nothing is known of it.
    async fn render(&self, session: &SessionId, format: &str) -> Result<Option<Vec<u8>>, Failure>;
}

/// A form of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFormat {
    pub name: String,
    pub media_type: String,
}
