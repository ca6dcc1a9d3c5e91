//! Real servers for tests: started by the scripts in `deploy/`, each in a folder and at a port of its
//! own. A server ends with the test process that started it, however that ends.

#![allow(clippy::panic, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    directory: TempDir,
    settings: Vec<(&'static str, String)>,
    address: String,
    admin: String,
    pid: u32,
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    script: &'static str,
    /// What the names of its variables begin with.
    prefix: &'static str,
}

const S3: Kind = Kind {
    script: "s3.sh",
    prefix: "S3",
};
const FUSEKI: Kind = Kind {
    script: "fuseki.sh",
    prefix: "FUSEKI",
};
const POSTGRES: Kind = Kind {
    script: "postgres.sh",
    prefix: "POSTGRES",
};
const PULSAR: Kind = Kind {
    script: "pulsar.sh",
    prefix: "PULSAR",
};

/// Access key and secret of [`Server::s3`].
pub const S3_CREDENTIALS: (&str, &str) = ("fleet", "fleetsecret");

impl Server {
    /// An S3 server with a bucket `fleet`.
    pub fn s3() -> Self {
        Self::start_new(S3, Vec::new())
    }

    /// A PostgreSQL server with a database `fleet`, with these options beside its own.
    pub fn postgres(options: &str) -> Self {
        Self::start_new(POSTGRES, vec![("POSTGRES_OPTIONS", options.to_owned())])
    }

    /// A SPARQL server that keeps its triples on disk, behind a password if one is given.
    pub fn fuseki(password: Option<&str>) -> Self {
        let password = password.map(|word| ("FUSEKI_PASSWORD", word.to_owned()));
        Self::start_new(FUSEKI, password.into_iter().collect())
    }

    /// A SPARQL server that keeps its triples in memory.
    pub fn fuseki_in_memory() -> Self {
        Self::start_new(FUSEKI, vec![("FUSEKI_STORE", "mem".to_owned())])
    }

    /// A Pulsar broker; its admin API answers at [`Server::admin`].
    pub fn pulsar() -> Self {
        Self::start_new(PULSAR, vec![("PULSAR_HTTP_PORT", "0".to_owned())])
    }

    fn start_new(kind: Kind, settings: Vec<(&'static str, String)>) -> Self {
        let directory = tempfile::tempdir().expect("a folder for the server");
        let mut server = Self {
            kind,
            directory,
            settings,
            address: String::new(),
            admin: String::new(),
            pid: 0,
        };
        server.start();
        server
    }

    /// The address it answers at.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where its admin API answers, if it has one.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts it again where it was, with what it had stored.
    pub fn start(&mut self) {
        let said = self.run("start");
        let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
        let address = line("service_url: ")
            .or_else(|| line("running: pid ")?.split(", ").nth(1))
            .unwrap_or_else(|| panic!("{} did not say its address: {said}", self.kind.script));
        self.pid = line("pid: ")
            .or_else(|| line("running: pid ")?.split(',').next())
            .and_then(|pid| pid.trim().parse().ok())
            .unwrap_or_else(|| panic!("{} did not say its process: {said}", self.kind.script));
        if let Some(admin) = line("admin_url: ") {
            admin.clone_into(&mut self.admin);
        }
        address.clone_into(&mut self.address);
    }

    /// Ends it as a crash would.
    pub fn kill(&self) {
        self.run("kill");
    }

    fn run(&self, verb: &str) -> String {
        let script = deploy().join(self.kind.script);
        let variable = |name: &str| format!("{}_{name}", self.kind.prefix);
        let output = Command::new(&script)
            .arg(verb)
            .env(
                variable("DATA_DIR"),
                // The watcher of the script deletes this folder; the one above is ours.
                self.directory.path().join("data"),
            )
            .env(variable("PORT"), "0")
            .env("WITH_PID", std::process::id().to_string())
            .envs(self.settings.iter().cloned())
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{} {verb} failed: {said}{}",
            self.kind.script,
            String::from_utf8_lossy(&output.stderr)
        );
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}
