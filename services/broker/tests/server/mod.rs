//! A real Pulsar broker, started by the tests themselves on free ports, through `deploy/pulsar.sh`.
//!
//! It ends with the test process, however that ends: a guard process waits on a pipe that closes
//! with us, and then stops the broker by its process id and removes its files. A broker that cannot
//! start fails the test: nothing is skipped.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use agentfleet_broker::PulsarOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) admin_url: String,
    directory: PathBuf,
    environment: Vec<(String, String)>,
    _guard: Child,
}

fn script() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap().join("deploy/pulsar.sh")
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts with further variables for the script.
    pub(crate) fn start_with(more: &[(&str, &str)]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("agentfleet-pulsar-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut environment = vec![
            (
                "PULSAR_DATA_DIR".to_owned(),
                directory.display().to_string(),
            ),
            ("PULSAR_PORT".to_owned(), "0".to_owned()),
            ("PULSAR_HTTP_PORT".to_owned(), "0".to_owned()),
        ];
        let more = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        environment.extend(more);
        // In a process group of its own, so that an interrupt of the tests does not end it too.
        let guard = Command::new("bash")
            .arg("-c")
            .arg(r#"cat >/dev/null; "$0" stop; rm -rf "$PULSAR_DATA_DIR""#)
            .arg(script())
            .envs(environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut server = Self {
            url: String::new(),
            admin_url: String::new(),
            directory,
            environment,
            _guard: guard,
        };
        let told = server.run("start");
        let value = |name: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {told}"))
                .trim()
                .to_owned()
        };
        (server.url, server.admin_url) = (value("service_url:"), value("admin_url:"));
        server
    }

    /// Runs a command of the script, and fails if it fails.
    pub(crate) fn run(&self, command: &str) -> String {
        // Into a file: the broker that it starts would keep a pipe open.
        let log = self.directory.join(format!("{command}.log"));
        let output = std::fs::File::create(&log).unwrap();
        let status = Command::new(script())
            .arg(command)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .status()
            .unwrap();
        let told = std::fs::read_to_string(log).unwrap();
        assert!(status.success(), "deploy/pulsar.sh {command}: {told}");
        told
    }

    pub(crate) fn options(&self) -> PulsarOptions {
        let mut options = PulsarOptions::new(&self.url);
        options.admin_url = Some(self.admin_url.clone());
        options
    }

    /// Where the admin API has something.
    pub(crate) fn admin(&self, path: &str) -> String {
        format!("{}/admin/v2/{path}", self.admin_url)
    }
}

pub(crate) fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
