//! The RDF seam: insert quads, ask SPARQL.
//!
//! # Contract
//! - `insert` returns after the quads are durable and visible to every later query (linearizable:
//!   the fan-in counts on it). Inserting a quad twice is the same as once.
//! - A call of `insert` stores all its batches or none: one bad triple refuses the call with
//!   [`Error::Invalid`], which names the batch, the triple and the reason. [`validate`] finds out
//!   beforehand which batch it would be. A remote store takes more than some megabytes in parts, each
//!   of whole batches: after a failure some may be stored, and inserting the call again completes it.
//! - Queries are read-only and see the union of all graphs, or of those that [`QueryOptions::graphs`] names, as the
//!   default graph. A statement that
//!   lies in two graphs may give two rows: count `DISTINCT`.
//! - `prov:`, `tg:`, `rdf:`, `rdfs:` and `xsd:` need not be declared.
//! - A query that runs past its timeout ends with [`Error::Timeout`], and stops using a core. One of
//!   somebody else's must be run [`apart`](QueryOptions::apart): only so is it bounded whatever it does.
//! - What comes back is equal in value to what was stored, not always in spelling: language tags
//!   come in lower case, numbers and dates in their canonical form.

use agentfleet_schema::{Term, Triple, uris};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
extern crate self as agentfleet_graph;
#[cfg(test)]
#[macro_use]
#[path = "../tests/it/contract.rs"]
mod contract;
mod embedded;
mod error;
mod remote;
pub mod serve;
mod sparql;
mod terms;

pub use embedded::export;
pub use embedded::{EmbeddedGraph, EraseBy, Erased, GraphOptions, Health, Level, QUERIES_APART};
pub use error::{BindingFault, Error, TermFault};
pub use remote::{Credentials, RemoteFault, RemoteGraph, RemoteOptions};
pub use terms::{renamed, term as term_to_rdf, triple as to_rdf, validate, wire_triple};

/// Quads that belong together: one explainability message, or one piece of loaded knowledge.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Batch {
    /// What the batch describes; two batches with the same key and content are one.
    pub key: String,
    /// Root session, for erasure; empty for loaded knowledge.
    pub root: String,
    pub collection: String,
    pub conversation: String,
    /// Each with its graph in `g`; without one it goes to the default graph.
    pub triples: Vec<Triple>,
}

impl Batch {
    /// The batch of one explainability message. Everyone who writes the message makes the same
    /// batch of it, so writing it twice is writing it once.
    pub fn of_message(
        message: agentfleet_schema::Triples,
        properties: &std::collections::BTreeMap<String, String>,
    ) -> Self {
        let property = |name: &str| properties.get(name).cloned().unwrap_or_default();
        let tenant = property(agentfleet_schema::topics::property::TENANT);
        let mut triples = message.triples;
        if !tenant.is_empty() {
            // Said again in a graph that holds nothing of anybody else.
            let graph = Some(uris::tenant_graph(&tenant));
            let again = triples.iter().map(|triple| Triple {
                g: graph.clone(),
                ..triple.clone()
            });
            let again: Vec<Triple> = again.collect();
            triples.extend(again);
        }
        Self {
            root: match property(agentfleet_schema::topics::property::ROOT) {
                // Not of this fleet.
                root if root.is_empty() => uris::session_of(&message.metadata.root)
                    .map(|root| root.to_string())
                    .unwrap_or_default(),
                root => root,
            },
            key: message.metadata.id,
            collection: message.metadata.collection,
            conversation: property("conversation"),
            triples,
        }
    }
}

/// Rows of a SELECT.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Solutions {
    pub variables: Vec<String>,
    pub rows: Vec<Vec<Option<Term>>>,
}

/// What a query came to.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Answer {
    Solutions(Solutions),
    Boolean(bool),
    /// CONSTRUCT and DESCRIBE.
    Triples(Vec<Triple>),
}

/// Reads a query as it would be run with these bindings, and runs nothing.
pub fn check_query(sparql: &str, bindings: &[(&str, Term)]) -> Result<(), Error> {
    sparql::parse(sparql, bindings, None).map(drop)
}

/// How a query may run.
#[derive(Clone, Debug)]
pub struct QueryOptions {
    pub timeout: Duration,
    /// Rows or triples after which the query fails with [`Error::TooManyRows`].
    pub max_rows: usize,
    /// Whether somebody else wrote the query: it may take all the time and memory there is, and so
    /// runs where it can be ended whatever it does.
    pub apart: bool,
    /// The graphs that it sees, as if there were no others; `None` means all.
    pub graphs: Option<Arc<[String]>>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            max_rows: 1_000_000,
            apart: false,
            graphs: None,
        }
    }
}

/// A store of quads.
#[async_trait]
pub trait Graph: Send + Sync + 'static {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error>;

    /// Runs a SPARQL query; `bindings` are substituted for variables of the same name, so that no
    /// text is ever pasted into a query.
    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, Error>;

    /// As [`Graph::query`], for a SELECT: its rows.
    async fn select(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Solutions, Error> {
        match self.query(sparql, bindings, options).await? {
            Answer::Solutions(found) => Ok(found),
            Answer::Boolean(_) | Answer::Triples(_) => Err(Error::NotSelect),
        }
    }

    /// URIs of sessions in the order in which they began, the newest first, each with the instant:
    /// those before an instant, or at it with a lesser URI. `None` where that would read them all.
    async fn begun(
        &self,
        before: Option<(&str, &str)>,
        max: usize,
    ) -> Result<Option<Vec<(String, String)>>, Error> {
        let _ = (before, max);
        Ok(None)
    }

    /// Erases batches, and returns when queries no longer answer with what only they stated.
    /// Repeating an erasure that was interrupted completes it.
    async fn erase_all(&self, by: Vec<EraseBy>) -> Result<Erased, Error> {
        let _ = by;
        Err(Error::Unsupported("erase"))
    }

    /// Erases batches of one kind.
    async fn erase(&self, by: EraseBy) -> Result<Erased, Error> {
        self.erase_all(vec![by]).await
    }

    /// How many batches are stored. Reads all of them: for `doctor`, not for every request.
    async fn batches(&self) -> Result<u64, Error> {
        Err(Error::Unsupported("count what it holds"))
    }

    /// Whether inserts and queries can be expected to succeed now; an error says why not.
    async fn ready(&self) -> Result<(), Error> {
        let options = QueryOptions {
            timeout: Duration::from_secs(5),
            max_rows: 1,
            ..QueryOptions::default()
        };
        self.query("ASK {}", &[], options).await.map(drop)
    }
}

impl Solutions {
    pub fn column(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|variable| variable == name)
    }

    /// The text of a cell: an IRI, a blank node label or a literal's value.
    pub fn text(&self, row: usize, name: &str) -> Option<&str> {
        let term = self.rows.get(row)?.get(self.column(name)?)?.as_ref()?;
        Some(match term.kind {
            agentfleet_schema::triples::TermType::Iri => &term.iri,
            agentfleet_schema::triples::TermType::Blank => &term.id,
            _ => &term.value,
        })
    }
}
