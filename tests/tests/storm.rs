//! Every role as processes of its own on a real Pulsar, S3 and SPARQL server, and everything is killed
//! with SIGKILL at random moments: roles and servers. Afterwards every request has one end, every
//! fan-out one verdict and in the graph one synthesis, and no side-effecting call was started twice.
//!
//! `AGENTFLEET_STORM_SECONDS` sets how long (default 30), `AGENTFLEET_SEED` repeats the choices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use agentfleet_documents::{Documents, S3Documents, S3Options};
use agentfleet_servers::{S3_CREDENTIALS, Server};
use agentfleet_tests::load::{Random, Starts, binary, notify, script, service};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two of each.
const ROLES: [&str; 3] = ["orchestrator", "aggregator", "graph-writer"];

/// How long what is owed after the last answer may take: more than any lease, back-off and redelivery.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many syntheses the graph has of each fan-out.
const SYNTHESES: &str = "SELECT ?correlation (COUNT(DISTINCT ?synthesis) AS ?n) \
     FROM <urn:graph:retrieval> WHERE { \
       ?fanout a tg:FanOut ; tg:correlationId ?correlation . \
       ?synthesis a tg:Synthesis ; tg:correlationId ?correlation } GROUP BY ?correlation";

/// The fleet's surroundings, and what it runs on.
struct Place {
    directory: tempfile::TempDir,
    pulsar: Server,
    s3: Server,
    fuseki: Server,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            pulsar: Server::pulsar(),
            s3: Server::s3(),
            fuseki: Server::fuseki(None),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", self.path("data"))
            .env("AGENTFLEET_BROKER", self.pulsar.address())
            .env("AGENTFLEET_BROKER_ADMIN", self.pulsar.admin())
            .env("AGENTFLEET_DOCUMENTS", "s3://fleet/storm")
            .env("AGENTFLEET_DOCUMENTS_ENDPOINT", self.s3.address())
            .env("AGENTFLEET_GRAPH", self.fuseki.address())
            .env("AGENTFLEET_LOG", "error")
            .env("AGENTFLEET_LEASE", "5s")
            .env("AWS_ACCESS_KEY_ID", S3_CREDENTIALS.0)
            .env("AWS_SECRET_ACCESS_KEY", S3_CREDENTIALS.1)
            .env("AWS_REGION", "us-east-1");
        command
    }

    /// Runs a command to its end, and returns what it said as JSON.
    fn cli(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn start(&self, role: &'static str, script: &Path) -> Replica {
        let mut child = self
            .command(&[role])
            .env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert!(line.contains("Working on"), "{role} did not start: {line}");
        Replica { role, child }
    }

    async fn documents(&self) -> S3Documents {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let (key, secret) = S3_CREDENTIALS;
        let options = S3Options {
            address: "s3://fleet/storm".to_owned(),
            endpoint: Some(self.s3.address().to_owned()),
            credentials: Some((key.to_owned(), secret.to_owned())),
            ..S3Options::default()
        };
        S3Documents::connect(&options).await.unwrap()
    }
}

struct Replica {
    role: &'static str,
    child: Child,
}

impl Replica {
    fn kill(&mut self) {
        // SIGKILL. One that ended by itself has a fault.
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended by itself: {ended:?}", self.role);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn nothing_is_lost_stuck_or_done_twice_in_a_storm() {
    let mut random = Random::from_environment();
    let seconds = std::env::var("AGENTFLEET_STORM_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(30);
    println!("{random}, {seconds} s (AGENTFLEET_STORM_SECONDS)");
    let mut place = Place::new();
    let starts: Starts = Arc::default();
    let port = service(Arc::clone(&starts));
    let script = script(place.directory.path());
    let tool = place.path("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(&["config", "put", "tool", "notify", tool.to_str().unwrap()]);
    let mut replicas: Vec<Replica> = ROLES
        .iter()
        .flat_map(|role| [*role, *role])
        .map(|role| place.start(role, &script))
        .collect();

    let mut sessions = Vec::new();
    let mut kills: BTreeMap<&'static str, u32> = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let all = [
        "orchestrator",
        "aggregator",
        "graph-writer",
        "pulsar",
        "s3",
        "fuseki",
    ];
    while Instant::now() < deadline || all.iter().any(|what| !kills.contains_key(what)) {
        for _ in 0..=random.below(3) {
            let number = sessions.len();
            let question = if random.below(2) == 0 {
                format!("send number {number}")
            } else {
                format!("send the parcels of number {number}")
            };
            let answer = place.cli(&["ask", "--detach", "--json", &question]);
            sessions.push(answer["session_id"].as_str().unwrap().to_owned());
        }
        std::thread::sleep(Duration::from_millis(random.below(300)));
        let target = match random.below(20) {
            0 => {
                place.pulsar.kill();
                place.pulsar.start();
                "pulsar"
            }
            1..=2 => {
                place.s3.kill();
                place.s3.start();
                "s3"
            }
            3..=4 => {
                place.fuseki.kill();
                place.fuseki.start();
                "fuseki"
            }
            _ => {
                let at = random.below(replicas.len() as u64) as usize;
                let role = replicas[at].role;
                replicas[at].kill();
                replicas[at] = place.start(role, &script);
                role
            }
        };
        *kills.entry(target).or_default() += 1;
    }
    let killed: u32 = kills.values().sum();
    println!("{} requests, {killed} kills: {kills:?}", sessions.len());

    // Left alone, every run ends.
    let calm = Instant::now();
    for session in &sessions {
        let output = place
            .command(&["attach", "--json", session])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let ends = text
            .lines()
            .filter(|line| line.contains("\"event\":\"end\""))
            .count();
        assert_eq!(
            ends, 1,
            "OR-3: session {session} ended {ends} times\n{text}"
        );
    }
    println!(
        "the last run ended {:.1?} after the last kill",
        calm.elapsed()
    );
    // Provenance may still be on its way when the last answer is out.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fan_outs = runtime.block_on(async {
        let keys = place.documents().await.list("sessions/").await.unwrap();
        keys.iter().filter(|key| key.ends_with("/fanout")).count()
    });
    let patience = Instant::now() + PATIENCE;
    let found = loop {
        let found = place.cli(&["query", "--format", "json", SYNTHESES]);
        let complete = found["results"]["bindings"].as_array().unwrap().len() == fan_outs;
        if complete || Instant::now() > patience {
            break found;
        }
    };
    let rows = found["results"]["bindings"].as_array().unwrap();
    assert_eq!(rows.len(), fan_outs, "the graph lacks fan-outs");
    for row in rows {
        assert_eq!(row["n"]["value"], "1", "FI-2: {row}");
    }
    // The last answer is out before its step is marked as published, and the mark may be left to a
    // delivery that comes again.
    let patience = Instant::now() + PATIENCE;
    let keys = loop {
        let keys: BTreeSet<String> = runtime.block_on(async {
            let documents = place.documents().await;
            let sessions = documents.list("sessions/").await.unwrap();
            let parked = documents.list("parked/").await.unwrap();
            sessions.into_iter().chain(parked).collect()
        });
        let unpublished: Vec<&String> = keys
            .iter()
            .filter(|key| key.ends_with("/outcome"))
            .filter(|key| !keys.contains(&key.replace("/outcome", "/published")))
            .collect();
        if unpublished.is_empty() {
            break keys;
        }
        assert!(
            Instant::now() < patience,
            "OR-2: never published: {unpublished:?}"
        );
    };
    println!(
        "graph and marks were complete {:.1?} after the last kill",
        calm.elapsed()
    );
    for replica in &mut replicas {
        replica.kill();
    }

    for (key, count) in starts.lock().unwrap().iter() {
        assert_eq!(*count, 1, "TL-1: call {key} was started {count} times");
    }
    for key in keys.iter().filter(|key| key.ends_with("/fanout")) {
        let verdict = key.replace("/fanout", "/fanin");
        assert!(keys.contains(&verdict), "LV-1: {key} has no verdict");
    }
    let parked: Vec<&String> = keys
        .iter()
        .filter(|key| key.starts_with("parked/"))
        .collect();
    assert!(parked.is_empty(), "dead-lettered: {parked:?}");
    println!(
        "{} calls started once each, {fan_outs} fan-outs with one verdict and one synthesis each",
        starts.lock().unwrap().len(),
    );
}
