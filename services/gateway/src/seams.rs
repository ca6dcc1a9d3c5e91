//! What the binary lends the gateway: saying how the fleet is and what was loaded.

use async_trait::async_trait;

/// A failure of something lent; it is logged, and its text does not reach a caller.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

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
