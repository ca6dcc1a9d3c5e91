//! How a gateway serves.

use crate::tls::TlsFiles;
use agentfleet_graph::QUERIES_APART;
use agentfleet_issuer::Issuer;
use agentfleet_schema::Digest;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// What a gateway serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doors {
    #[default]
    All,
    /// Health and metrics only: for a process that works and takes no requests.
    Health,
}

/// Limits and addresses; the defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port 0 takes a free one.
    pub listen: SocketAddr,
    pub doors: Doors,
    /// With them nothing but HTTPS is spoken.
    pub tls: Option<TlsFiles>,
    /// Names by which clients may address the gateway beside `localhost` and addresses, with or
    /// without a port; `*` is any.
    pub allowed_hosts: Vec<String>,
    /// SHA-256 of the token that all but health, metrics and what describes the API need; without
    /// one nobody is asked.
    pub token: Option<Digest>,
    /// SHA-256 of the token with which the graph may be written; without one nobody may.
    pub graph_token: Option<Digest>,
    /// Whose signed tokens count beside API keys; without one nobody's do.
    pub issuer: Option<Arc<Issuer>>,
    /// Requests a minute of one principal whose API key says nothing of its own.
    pub per_minute: u32,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// How long a request may take to arrive and be answered; streams and queries have their own.
    pub request_timeout: Duration,
    /// How long the start of TLS may take.
    pub handshake_timeout: Duration,
    /// How often the files of the certificate are looked at.
    pub tls_look: Duration,
    /// How long the head of a request may take to arrive, and an idle connection is kept.
    pub header_timeout: Duration,
    /// How long a connection is kept whose client takes nothing of what is sent.
    pub stall_timeout: Duration,
    /// How long a SPARQL query runs, where its caller says nothing.
    pub query_timeout: Duration,
    /// The longest a caller may allow a query.
    pub max_query_timeout: Duration,
    /// Rows or triples of one query.
    pub max_rows: usize,
    /// Queries that run at once; more wait, up to their timeout.
    pub max_queries: usize,
    /// Event streams at once.
    pub max_streams: usize,
    /// Connections at once; for one more, the one that was idle for longest is closed.
    pub max_connections: usize,
    /// The longest a caller may wait for the end of a run in one request.
    pub max_wait: Duration,
    /// Between two signs of life on a quiet event stream.
    pub keep_alive: Duration,
    /// How long requests in flight may take after the gateway was told to stop.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8700)),
            doors: Doors::All,
            tls: None,
            allowed_hosts: Vec::new(),
            token: None,
            graph_token: None,
            issuer: None,
            per_minute: 600,
            max_body: 1024 * 1024,
            request_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            tls_look: Duration::from_secs(5),
            header_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            query_timeout: Duration::from_secs(30),
            max_query_timeout: Duration::from_secs(300),
            max_rows: 200_000,
            max_queries: QUERIES_APART,
            max_streams: 256,
            max_connections: 1024,
            max_wait: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            grace: Duration::from_secs(10),
        }
    }
}
