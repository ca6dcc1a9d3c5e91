//! The graph on any SPARQL 1.1 server.
//!
//! # What it relies on
//! - Reads are linearizable: a store that answers stale is refused when we connect.
//! - One request that changes the store is one transaction, as all stores we know have it. A call of
//!   `insert` is one request, up to 4 MiB of text. Beyond that it is several, each of whole batches, so that a failure
//!   may leave some of them stored; inserting the call again completes it.
//! - Statements are ground when they are sent (see [`skolem`]), so that any request may be repeated.
//!
//! # What it keeps in the store
//! Statements lie in their named graphs, as other tools expect them. The store's own default graph
//! holds the records that erasure needs (see [`records`]), and no query shows it. So what others put
//! into the default graph is not seen here, and what they put into named graphs is.
//!
//! # Three dialects
//! Jena knows a name for the union of all graphs, and takes data as TriG in half the time that it needs
//! for the same as an update. Any other server is asked for the union of the graphs
//! that it lists. One of our own (see [`crate::serve`]) takes batches as they are, and keeps its log.
//!
//! # What differs from the embedded graph
//! `DESCRIBE` gives the statements of a node, and does not follow blank nodes. `STR` of a blank node
//! gives the name that it has in the store. Several erasures of one call are done one after the other.

mod answer;
mod connect;
mod erase;
mod fault;
mod http;
mod options;
mod peer;
mod records;
mod rewrite;
mod skolem;

pub use fault::RemoteFault;
pub use options::{Credentials, RemoteOptions};

use crate::error::Error;
use crate::sparql;
use crate::{Answer, Batch, EraseBy, Erased, Graph, QueryOptions};
use agentfleet_schema::{Term, uris};
use async_trait::async_trait;
use http::Http;
use oxigraph::model::{NamedNode, Variable};
use reqwest::Url;
use rewrite::{Form, Plan, Union};
use std::sync::Arc;
use tokio::time::Instant;

/// Text of one request; a batch is never cut.
const MAX_UPDATE: usize = 4 << 20;
/// Graphs that can be named in a query to make their union.
const MAX_GRAPHS: usize = 1000;
/// Work on more triples than this leaves the async threads.
const INLINE: usize = 512;

/// A graph behind HTTP. Clones share its connections.
#[derive(Clone)]
pub struct RemoteGraph {
    remote: Arc<Remote>,
}

struct Remote {
    http: Http,
    query_url: Url,
    update_url: Url,
    data_url: Option<Url>,
    dialect: Dialect,
    max_answer_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Jena,
    Standard,
    Peer,
}

impl std::fmt::Debug for RemoteGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteGraph")
            .field("query_url", &options::shown(&self.remote.query_url))
            .field("update_url", &options::shown(&self.remote.update_url))
            .field(
                "data_url",
                &self.remote.data_url.as_ref().map(options::shown),
            )
            .field("dialect", &self.remote.dialect)
            .finish_non_exhaustive()
    }
}

impl RemoteGraph {
    /// Finds out how the server is to be spoken to, and that it can be relied on.
    pub async fn connect(options: RemoteOptions) -> Result<Self, Error> {
        let remote = Arc::new(Remote::connect(options).await?);
        Ok(Self { remote })
    }

    /// For who asks and does not write: nothing is written, so that nobody is waited for, and whether the
    /// server can be relied on is not tried.
    pub async fn connect_to_read(options: RemoteOptions) -> Result<Self, Error> {
        let remote = Arc::new(Remote::connect_to_read(options).await?);
        Ok(Self { remote })
    }
}

#[async_trait]
impl Graph for RemoteGraph {
    async fn insert(&self, batches: Vec<Batch>) -> Result<(), Error> {
        let batches: Vec<Batch> = batches
            .into_iter()
            .filter(|batch| !batch.triples.is_empty())
            .collect();
        if self.remote.dialect == Dialect::Peer {
            return self.remote.insert_at_peer(batches).await;
        }
        let triples: usize = batches.iter().map(|batch| batch.triples.len()).sum();
        let write = move || {
            let texts = batches.iter().map(records::written);
            texts.collect::<Result<Vec<String>, _>>()
        };
        let written = if triples <= INLINE {
            write()?
        } else {
            tokio::task::spawn_blocking(write)
                .await
                .map_err(|_| Error::Stopped)??
        };
        let mut update = String::new();
        for batch in written {
            if !update.is_empty() && update.len() + batch.len() > MAX_UPDATE {
                self.remote.insert_data(std::mem::take(&mut update)).await?;
            }
            update.push_str(&batch);
        }
        if update.is_empty() {
            return Ok(());
        }
        self.remote.insert_data(update).await
    }

    async fn query(
        &self,
        sparql: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, Error> {
        let query = sparql::parse(sparql, bindings, options.graphs.as_deref())?;
        let started = Instant::now();
        let union = match self.remote.dialect {
            Dialect::Peer => Union::Native,
            Dialect::Jena => Union::Jena,
            Dialect::Standard if rewrite::names_graphs(&query) => Union::Listed(Vec::new()),
            Dialect::Standard => Union::Listed(self.remote.graphs(&options).await?),
        };
        let left = QueryOptions {
            timeout: options.timeout.saturating_sub(started.elapsed()),
            ..options.clone()
        };
        let answer = self
            .remote
            .answer(rewrite::plan(query, &union), &left)
            .await;
        answer.map_err(|error| match error {
            Error::Timeout(_) => Error::Timeout(options.timeout),
            other => other,
        })
    }

    async fn erase_all(&self, by: Vec<EraseBy>) -> Result<Erased, Error> {
        if self.remote.dialect == Dialect::Peer {
            return self.remote.erase_at_peer(by).await;
        }
        let mut erased = Erased::default();
        for by in &by {
            let more = self.remote.erase(by).await?;
            erased.batches += more.batches;
            erased.quads += more.quads;
        }
        Ok(erased)
    }

    async fn batches(&self) -> Result<u64, Error> {
        if self.remote.dialect == Dialect::Peer {
            return self.remote.batches_of_peer().await;
        }
        self.remote.batches().await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.remote.ping().await
    }
}

impl Remote {
    /// All graphs there are.
    async fn graphs(&self, options: &QueryOptions) -> Result<Vec<NamedNode>, Error> {
        let graph = Variable::new_unchecked("g");
        let plan = Plan {
            text: format!(
                "SELECT DISTINCT ?g {{ GRAPH ?g {{ }} }} LIMIT {}",
                MAX_GRAPHS + 1
            ),
            form: Form::Rows(vec![graph]),
        };
        let all = QueryOptions {
            max_rows: usize::MAX,
            ..options.clone()
        };
        let Answer::Solutions(found) = self.answer(plan, &all).await? else {
            return Ok(Vec::new());
        };
        if found.rows.len() > MAX_GRAPHS {
            return Err(Error::QueryTooLarge {
                what: "graphs that it does not name:",
                found: found.rows.len(),
                most: MAX_GRAPHS,
            });
        }
        let names = (0..found.rows.len()).filter_map(|row| found.text(row, "g"));
        // What is said again for a tenant would give every row twice.
        let names = names.filter(|name| !uris::is_tenant_graph(name));
        let mut names: Vec<NamedNode> = names.map(NamedNode::new_unchecked).collect();
        // No graph at all would be no dataset, and show the store's own.
        names.push(NamedNode::new_unchecked(skolem::NO_GRAPH));
        names.sort();
        names.dedup();
        Ok(names)
    }
}
