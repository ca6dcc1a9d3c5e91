//! A data directory of its own, and the program run on it.

use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_broker::Subscription;
use agentfleet_config::{Item, Release, Seeder};
use agentfleet_core::error::Code;
use agentfleet_runtime::{Records, outgoing};
use agentfleet_schema::keys;
use agentfleet_schema::records::{ParkedRecord, StepRecord};
use agentfleet_schema::topics::{AGENT_REQUEST, subscription};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct Place {
    dir: TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The same, if all went well.
    pub(crate) fn well(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentfleet"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AGENTFLEET_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("AGENTFLEET_DATA", self.path("data"))
            .env("AGENTFLEET_MODEL", "offline")
            .env_remove("COLUMNS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        finished(self.command(args).spawn().unwrap(), args)
    }

    /// Runs with `input` on standard input.
    pub(crate) fn fed(&self, args: &[&str], input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        finished(child, args)
    }

    pub(crate) fn settings(&self) -> Settings {
        let flags = Flags {
            data: Some(self.path("data").display().to_string()),
            ..Flags::default()
        };
        Settings::load(&flags).unwrap()
    }

    /// Seeds an item of the config as another version of the program.
    pub(crate) fn seed_as(&self, version: &str, item_type: &str, key: &str, value: &Value) {
        let item = Item {
            item_type: item_type.to_owned(),
            key: key.to_owned(),
            value: value.clone(),
        };
        let release = Release::parse(version).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let report = store
                .config
                .seed(vec![item], &Seeder::Product(release))
                .await
                .unwrap();
            assert!(report.changed(), "{report}");
        });
    }

    /// Puts a request among the messages that nobody could work.
    pub(crate) fn park(&self, id: &str, body: &str) {
        let parked = ParkedRecord {
            id: id.to_owned(),
            topic: AGENT_REQUEST.as_str().to_owned(),
            body: body.to_owned(),
            ..ParkedRecord::default()
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let body = serde_json::to_vec(&parked).unwrap();
            let documents = &*store.documents;
            documents.create(&keys::parked(id), body).await.unwrap();
        });
    }

    /// Refuses the request that waits first, as a worker does where nothing shows who sent it.
    pub(crate) fn refuse_next(&self) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let queue = Subscription {
                topic: AGENT_REQUEST,
                name: subscription::ORCHESTRATOR.to_owned(),
                only: None,
                lease: Duration::from_secs(30),
                max_deliveries: None,
            };
            let mut consumer = store.broker.subscribe(queue).await.unwrap();
            let delivery = consumer.receive(1).await.unwrap().remove(0);
            let reason = Code::NotAuthorized.refusal("nothing shows who sent it");
            store.broker.dead_letter(&delivery, &reason).await.unwrap();
        });
    }

    /// Publishes what a session began with once more.
    pub(crate) fn publish_again(&self, session: &str) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let records = Records::new(&*store.documents);
            let taken = records.accepted(&session.into()).await.unwrap().unwrap();
            let message = outgoing(taken.publication);
            store.broker.publish(vec![message]).await.unwrap();
        });
    }

    /// Changes the record of a step, as nobody of the fleet would.
    pub(crate) fn alter(&self, session: &str, step: u32, change: impl FnOnce(&mut StepRecord)) {
        self.replace(session, step, |body| {
            let mut record = serde_json::from_slice(body).unwrap();
            change(&mut record);
            serde_json::to_vec(&record).unwrap()
        });
    }

    /// Makes the record of a step unreadable.
    pub(crate) fn spoil(&self, session: &str, step: u32) {
        self.replace(session, step, |_| b"{".to_vec());
    }

    fn replace(&self, session: &str, step: u32, change: impl FnOnce(&[u8]) -> Vec<u8>) {
        let key = keys::outcome(&session.into(), step);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let documents = &*store.documents;
            let body = documents.get(&key).await.unwrap().unwrap();
            documents.delete(std::slice::from_ref(&key)).await.unwrap();
            documents.create(&key, change(&body)).await.unwrap();
        });
    }

    /// Whether any record or text holds some words.
    pub(crate) fn holds(&self, words: &str) -> bool {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let keys = store.documents.list("").await.unwrap();
            let bodies = store.documents.get_many(&keys).await.unwrap();
            let mut texts = bodies
                .iter()
                .flatten()
                .map(|body| String::from_utf8_lossy(body));
            texts.any(|text| text.contains(words))
        })
    }

    /// A fleet that serves HTTP, and its address.
    pub(crate) fn up(&self, args: &[&str]) -> (Running, String) {
        let args = [&["up", "--json", "--listen", "127.0.0.1:0"], args].concat();
        let mut up = Running(self.command(&args).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(up.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let url = told["url"].as_str().unwrap();
        (up, url.strip_prefix("http://").unwrap().to_owned())
    }

    /// Sessions, newest first.
    pub(crate) fn sessions(&self, narrowed: &[&str]) -> Vec<String> {
        let args = [&["sessions", "list", "--json"], narrowed].concat();
        let listed = self.run(&args).well().json();
        let id = |run: &Value| run["session"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(id).collect()
    }
}

/// Longer than any command of a test takes on a busy machine.
const HANGS: Duration = Duration::from_secs(300);

/// What a process came to. One that hangs is ended and named, with where each of its threads waits.
pub(crate) fn finished(child: Child, args: &[&str]) -> Ran {
    let id = child.id();
    let (done, ended) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        done.send(()).ok();
        output
    });
    let hangs = matches!(ended.recv_timeout(HANGS), Err(RecvTimeoutError::Timeout));
    let waits = if hangs { waits(id) } else { String::new() };
    if hangs {
        let id = id.to_string();
        Command::new("kill").args(["-s", "KILL", &id]).status().ok();
    }
    let ran = Ran::of(reader.join().unwrap());
    assert!(!hangs, "`{args:?}` hangs: {ran:?}\n{waits}");
    ran
}

/// A line for each thread of a process: its name, and the system call that it waits in.
fn waits(id: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task"));
    let threads = tasks.into_iter().flatten().flatten();
    let told = threads.map(|thread| {
        let read = |name: &str| std::fs::read_to_string(thread.path().join(name));
        let (name, waits) = (read("comm"), read("wchan"));
        let call = read("syscall");
        format!("{name:?} {waits:?} {call:?}")
    });
    told.collect::<Vec<_>>().join("\n")
}

/// A process that is told to stop when the test is over, whatever came of it.
pub(crate) struct Running(pub Child);

impl Running {
    /// Reads lines of standard error up to one with `part` in it.
    pub(crate) fn says(&mut self, part: &str) -> String {
        let mut lines = BufReader::new(self.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            let read = lines.read_line(&mut line).unwrap();
            assert!(read > 0, "it ended without a word of `{part}`");
        }
        self.0.stderr = Some(lines.into_inner());
        line
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end; the rest of what it said.
    pub(crate) fn ended(mut self) -> Ran {
        let mut out = String::new();
        let mut err = String::new();
        let child = &mut self.0;
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut out).unwrap();
        }
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut err).unwrap();
        }
        let code = child.wait().unwrap().code().unwrap_or(-1);
        Ran { code, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
