//! Real servers (Pulsar, S3 or PostgreSQL, SPARQL) and a fleet of single roles on them, for tests of what happens
//! when parts of it come and go.

use crate::load::{Process, binary, output, said};
use agentfleet_documents::{Documents, PostgresDocuments, S3Documents, S3Options};
use agentfleet_graph::{RemoteGraph, RemoteOptions};
use agentfleet_servers::{S3_CREDENTIALS, Server};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What a fleet on servers consists of. `up` has them all.
pub const ROLES: [&str; 3] = ["orchestrator", "aggregator", "graph-writer"];

/// The server that has the documents.
#[derive(Debug)]
pub enum Store {
    S3(Server),
    Postgres(Server),
}

impl Store {
    /// S3 unless `AGENTFLEET_STORM_DOCUMENTS` says `postgres`.
    fn from_environment() -> Self {
        match std::env::var("AGENTFLEET_STORM_DOCUMENTS").as_deref() {
            Ok("postgres") => Self::Postgres(Server::postgres("")),
            Ok("s3") | Err(_) => Self::S3(Server::s3()),
            Ok(other) => panic!("AGENTFLEET_STORM_DOCUMENTS is `{other}`, expected s3 or postgres"),
        }
    }

    /// Ends it as a crash would, and starts it again.
    pub fn crash(&mut self) {
        let (Self::S3(server) | Self::Postgres(server)) = self;
        server.kill();
        server.start();
    }
}

/// The fleet's surroundings, and what it runs on.
#[derive(Debug)]
pub struct Place {
    pub directory: tempfile::TempDir,
    pub pulsar: Server,
    pub store: Store,
    pub fuseki: Server,
    /// Settings as they come, instead of limits that are far away.
    pub as_it_comes: bool,
}

impl Place {
    #[allow(clippy::new_without_default)] // starting servers is no default
    pub fn new() -> Self {
        Self::on(Store::from_environment())
    }

    pub fn on_postgres() -> Self {
        Self::on(Store::Postgres(Server::postgres("")))
    }

    fn on(store: Store) -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        Self {
            directory: tempfile::tempdir().unwrap(),
            pulsar: Server::pulsar(),
            store,
            fuseki: Server::fuseki(None),
            as_it_comes: false,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", self.path("data"));
        self.equip(&mut command);
        command
    }

    /// Gives a command the servers. Limits that machine and storm can reach are far away: what is
    /// late here must come all the same, and a step that is killed often is no step that kills.
    pub fn equip(&self, command: &mut Command) {
        command
            .env("AGENTFLEET_BROKER", self.pulsar.address())
            .env("AGENTFLEET_BROKER_ADMIN", self.pulsar.admin())
            .env("AGENTFLEET_GRAPH", self.fuseki.address())
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_LOG", "error");
        match &self.store {
            Store::S3(server) => command
                .env("AGENTFLEET_DOCUMENTS", "s3://fleet/storm")
                .env("AGENTFLEET_DOCUMENTS_ENDPOINT", server.address())
                .env("AWS_ACCESS_KEY_ID", S3_CREDENTIALS.0)
                .env("AWS_SECRET_ACCESS_KEY", S3_CREDENTIALS.1)
                .env("AWS_REGION", "us-east-1"),
            Store::Postgres(server) => command.env("AGENTFLEET_DOCUMENTS", server.address()),
        };
        if !self.as_it_comes {
            command
                .env("AGENTFLEET_SUBAGENT_TIMEOUT", "2h")
                .env("AGENTFLEET_RUN_TIMEOUT", "4h")
                .env("AGENTFLEET_MAX_ATTEMPTS", "100");
        }
    }

    /// Runs a command to its end, and returns what it said as JSON.
    pub fn cli(&self, arguments: &[&str]) -> Value {
        said(&mut self.command(arguments))
    }

    /// What the graph says of a run, as Turtle.
    pub fn trace(&self, root: &str) -> Vec<u8> {
        output(&mut self.command(&["trace", root, "--format", "turtle"]))
    }

    pub fn start(&self, role: &'static str, script: &Path) -> Process {
        let (arguments, says) = match role {
            "up" => (&["up", "--json"][..], "url"),
            _ => (&[role][..], "Working on"),
        };
        let mut command = self.command(arguments);
        command.env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()));
        Process::start(role, &mut command, says)
    }

    pub async fn documents(&self) -> Arc<dyn Documents> {
        let server = match &self.store {
            Store::S3(server) => server,
            Store::Postgres(server) => {
                let documents = PostgresDocuments::connect(server.address()).await;
                return Arc::new(documents.unwrap());
            }
        };
        let (key, secret) = S3_CREDENTIALS;
        let options = S3Options {
            address: "s3://fleet/storm".to_owned(),
            endpoint: Some(server.address().to_owned()),
            credentials: Some((key.to_owned(), secret.to_owned())),
            ..S3Options::default()
        };
        Arc::new(S3Documents::connect(&options).await.unwrap())
    }

    pub async fn graph(&self) -> RemoteGraph {
        let options = RemoteOptions {
            max_answer_bytes: 4 << 30,
            ..RemoteOptions::new(self.fuseki.address())
        };
        RemoteGraph::connect(options).await.unwrap()
    }
}
