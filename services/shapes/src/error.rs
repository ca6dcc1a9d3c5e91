//! Why shapes cannot be read, or a graph cannot be validated.

use agentfleet_graph::TermFault;
use oxigraph::sparql::QueryEvaluationError;

/// A fault of the shapes, of the triples, or of the engine that answers queries.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the {what} are no Turtle: {reason}")]
    Turtle { what: &'static str, reason: String },
    #[error(
        "shape `{shape}` uses `sh:{term}`, which is not evaluated here: use another constraint, or add it to `services/shapes`"
    )]
    Unknown { shape: String, term: String },
    #[error(
        "`{node}` has `sh:{term}`, and is part of no shape: give it the class `sh:NodeShape`, or refer to it from one"
    )]
    Stray { node: String, term: String },
    #[error("shape `{shape}`: the value of `sh:{term}` must be {wanted}, not `{found}`")]
    Value {
        shape: String,
        term: String,
        wanted: &'static str,
        found: String,
    },
    #[error("shape `{shape}` has `sh:{term}` {count} times, and {wanted} is right")]
    Count {
        shape: String,
        term: String,
        count: usize,
        wanted: &'static str,
    },
    #[error("shape `{0}` refers to itself, so that it would be evaluated without end")]
    Recursive(String),
    #[error("shape `{shape}` has a pattern that is no regular expression: {reason}")]
    Pattern { shape: String, reason: String },
    #[error("shape `{shape}` has a query that cannot be used: {reason}")]
    Query { shape: String, reason: String },
    #[error("a triple cannot be validated: {0}")]
    Term(#[from] TermFault),
    #[error("the graph in memory failed: {0}")]
    Engine(#[from] oxigraph::store::StorageError),
    #[error("a query of shape `{shape}` failed: {source}")]
    Evaluation {
        shape: String,
        source: Box<QueryEvaluationError>,
    },
}
