//! Real servers (Pulsar, PostgreSQL, SPARQL) and a fleet of single roles on them, for tests of what happens
//! when parts of it come and go.

use crate::load::{Process, binary, output, said};
use agentfleet_documents::{Documents, PostgresDocuments};
use agentfleet_graph::{RemoteGraph, RemoteOptions};
use agentfleet_servers::Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What a fleet on servers consists of. `up` has them all.
pub const ROLES: [&str; 3] = ["orchestrator", "aggregator", "graph-writer"];

/// The fleet's surroundings, and what it runs on.
#[derive(Debug)]
pub struct Place {
    pub directory: tempfile::TempDir,
    pub pulsar: Server,
    pub postgres: Server,
    pub fuseki: Server,
    /// Settings as they come, instead of limits that are far away.
    pub as_it_comes: bool,
}

impl Place {
    #[allow(clippy::new_without_default)] // starting servers is no default
    pub fn new() -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        Self {
            directory: tempfile::tempdir().unwrap(),
            pulsar: Server::pulsar(),
            postgres: Server::postgres(""),
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
            .env("AGENTFLEET_RECORDS", self.postgres.address())
            .env("AGENTFLEET_GRAPH", self.fuseki.address())
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_LOG", "error");
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

    /// Approves every call that waits for a person, and returns how many did.
    pub fn approve_all(&self) -> usize {
        let open = self.cli(&["approvals", "list", "--json"]);
        let open = open.as_array().unwrap();
        for one in open {
            let id = one["id"].as_str().unwrap();
            self.cli(&["approvals", "approve", id, "--as", "ada", "--json"]);
        }
        open.len()
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
        let documents = PostgresDocuments::connect(self.postgres.address()).await;
        Arc::new(documents.unwrap())
    }

    pub async fn graph(&self) -> RemoteGraph {
        let options = RemoteOptions {
            max_answer_bytes: 4 << 30,
            ..RemoteOptions::new(self.fuseki.address())
        };
        RemoteGraph::connect(options).await.unwrap()
    }
}
