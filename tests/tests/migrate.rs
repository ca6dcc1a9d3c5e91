//! A data directory moves to real servers with a run that is over and runs that are not: all of them
//! end there, once, and no call with an effect is started twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use agentfleet_servers::{S3_CREDENTIALS, Server};
use agentfleet_tests::load::{Starts, binary, notify, script, service};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

struct Place {
    directory: tempfile::TempDir,
    servers: Option<[Server; 3]>,
}

struct Process(Child);

impl Process {
    /// SIGKILL: what it was at stays where it is.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", self.path("data"))
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_LOG", "error")
            .env("AGENTFLEET_LEASE", "5s")
            .env_remove("AGENTFLEET_MODEL");
        if let Some([pulsar, s3, fuseki]) = &self.servers {
            command
                .env("AGENTFLEET_BROKER", pulsar.address())
                .env("AGENTFLEET_BROKER_ADMIN", pulsar.admin())
                .env("AGENTFLEET_DOCUMENTS", "s3://fleet/moved")
                .env("AGENTFLEET_DOCUMENTS_ENDPOINT", s3.address())
                .env("AGENTFLEET_GRAPH", fuseki.address())
                .env("AWS_ACCESS_KEY_ID", S3_CREDENTIALS.0)
                .env("AWS_SECRET_ACCESS_KEY", S3_CREDENTIALS.1)
                .env("AWS_REGION", "us-east-1");
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn cli(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let model = format!("scripted:{}", self.path("script.json").display());
        let mut child = self
            .command(arguments)
            .env("AGENTFLEET_MODEL", model)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{arguments:?} did not start");
        Process(child)
    }

    fn ask(&self, question: &str) -> String {
        let answer = self.cli(&["ask", "--detach", "--json", question]);
        answer["session_id"].as_str().unwrap().to_owned()
    }

    fn ends(&self, session: &str) -> usize {
        let output = self.run(&["attach", "--json", session]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .filter(|line| line.contains("\"event\":\"end\""))
            .count()
    }

    /// Requests that wait or were being worked.
    fn unworked(&self) -> usize {
        let database = rusqlite::Connection::open(self.path("data/agentfleet.db")).unwrap();
        let count = "SELECT count(*) FROM deliveries
             JOIN messages ON messages.id = deliveries.id >> 16
             JOIN topics ON topics.id = messages.topic WHERE topics.name = 'agent-request'";
        let found: u32 = database.query_row(count, [], |row| row.get(0)).unwrap();
        found as usize
    }

    fn trace(&self, session: &str) -> Vec<String> {
        let output = self.run(&["trace", session, "--format", "turtle"]);
        assert!(output.status.success());
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|line| line.trim_end_matches(['.', ';', ',', ' ']).to_owned())
            .collect();
        lines.sort();
        lines
    }
}

fn error_of(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn runs_in_progress_move_and_end_once() {
    let mut place = Place {
        directory: tempfile::tempdir().unwrap(),
        servers: None,
    };
    assert!(error_of(&place.run(&["migrate"])).contains("every part is embedded"));
    let starts: Starts = Arc::default();
    let port = service(Arc::clone(&starts));
    script(place.directory.path());
    let tool = place.path("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(&["config", "put", "tool", "notify", tool.to_str().unwrap()]);

    let servers = [Server::pulsar(), Server::s3(), Server::fuseki(None)];
    let mut up = place.start(&["up", "--json"]);
    let over = place.ask("send the parcels of one that is over");
    assert_eq!(place.ends(&over), 1);
    let told = place.trace(&over);
    place.servers = Some(servers);
    assert!(error_of(&place.run(&["migrate"])).contains("stop it first"));
    let servers = place.servers.take();
    let mut going: Vec<String> = Vec::new();
    loop {
        let questions = (0..6).map(|number| format!("send the parcels of number {number}"));
        going.extend(questions.map(|question| place.ask(&question)));
        up.kill();
        if place.unworked() > 0 {
            break;
        }
        // The fleet was faster than the kill.
        up = place.start(&["up", "--json"]);
    }
    // Nobody works: these wait as they were asked.
    let waiting: Vec<String> = (0..2)
        .map(|number| place.ask(&format!("send waiting {number}")))
        .collect();
    let version = place.cli(&["config", "list", "--json"]);

    place.servers = servers;
    place.cli(&["migrate"]);
    // Again is harmless: a migration that was cut off is started anew.
    place.cli(&["migrate"]);
    assert_eq!(place.cli(&["config", "list", "--json"]), version);

    let roles = ["orchestrator", "aggregator", "graph-writer"];
    let fleet: Vec<Process> = roles.iter().map(|role| place.start(&[role])).collect();
    for session in [&over].into_iter().chain(&going).chain(&waiting) {
        assert_eq!(place.ends(session), 1, "{session}");
    }
    assert_eq!(place.trace(&over), told);
    for (key, count) in starts.lock().unwrap().iter() {
        assert_eq!(*count, 1, "TL-1: call {key} was started {count} times");
    }
    drop(fleet);

    // The old place is not worked any more.
    place.servers = None;
    let refused = error_of(&place.run(&["ask", "What now?"]));
    assert!(refused.contains("was moved to pulsar://"), "{refused}");
}
