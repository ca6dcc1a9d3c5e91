//! A load for real processes: scripted agents that call a service with effects, which counts how often
//! each call is started; the processes themselves; and the chance that decides what is killed when.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// How long a call takes.
const WORK: Duration = Duration::from_millis(15);

/// Starts of side-effecting calls, by idempotency key.
pub type Starts = Arc<Mutex<HashMap<String, u32>>>;

/// The binary, built beside the tests: `make test` builds it first.
pub fn binary() -> PathBuf {
    let target = std::env::current_exe().unwrap();
    let binary = target
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("agentfleet");
    assert!(
        binary.exists(),
        "build the binary first: cargo build --workspace --bin agentfleet"
    );
    binary
}

/// A number that whoever runs the test may set.
pub fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().expect(variable))
}

/// The session of a question, as `sessions list --json` tells it: the graph may be a moment behind the answer.
pub fn session_of(question: &str, mut list: impl FnMut() -> Value) -> String {
    loop {
        let listed = list();
        let mut runs = listed.as_array().expect("a list").iter();
        if let Some(run) = runs.find(|run| run["question"] == question) {
            return run["session"].as_str().expect("a session").to_owned();
        }
    }
}

/// Runs a command to its end, and returns what it said as JSON.
pub fn said(command: &mut Command) -> Value {
    serde_json::from_slice(&output(command)).unwrap_or(Value::Null)
}

/// Runs a command to its end, and returns what it said.
pub fn output(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    // What `verify` and `replay` find stands in what they print.
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    output.stdout
}

/// Runs a command that must fail, and returns what it said of that.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Watches a run as people do, by `attach --json`: it must end, and once.
pub fn ends_once(command: &mut Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let ends = text
        .lines()
        .filter(|line| line.contains("\"event\":\"end\""))
        .count();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(ends, 1, "OR-3: {command:?} saw {ends} ends\n{text}\n{said}");
}

/// Fails if a side-effecting call was started twice; returns how many there were.
pub fn started_once(starts: &Starts) -> usize {
    let starts = starts.lock().unwrap();
    for (key, count) in starts.iter() {
        assert!(!key.is_empty(), "TL-1: a call without its idempotency key");
        assert_eq!(*count, 1, "TL-1: call {key} was started {count} times");
    }
    starts.len()
}

/// A process of the fleet. It ends with the test.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    /// The first line that it wrote.
    first: String,
}

impl Process {
    /// Starts it, and returns once it says on its first line that it works.
    pub fn start(name: &'static str, command: &mut Command, says: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut first = BufReader::new(child.stdout.take().unwrap());
        first.read_line(&mut line).unwrap();
        assert!(line.contains(says), "{name} did not start: {line}");
        Self {
            name,
            child,
            first: line,
        }
    }

    /// What `up --json` said of itself.
    pub fn url(&self) -> String {
        let said: Value = serde_json::from_str(&self.first).unwrap();
        said["url"].as_str().unwrap().to_owned()
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// SIGKILL. One that ended by itself has a fault.
    pub fn kill(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended by itself: {ended:?}", self.name);
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: it must drain and succeed.
    pub fn stop(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "{} ended by itself: {ended:?}", self.name);
        let mut kill = Command::new("kill");
        let told = kill.args(["-TERM", &self.child.id().to_string()]).status();
        assert!(told.unwrap().success());
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{} did not drain: {ended}", self.name);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A service whose every call has an effect. It takes its time, so that kills find it at work.
pub fn service(starts: Starts) -> u16 {
    service_taking(starts, WORK)
}

/// The same, where a call takes as long as it says.
pub fn service_taking(starts: Starts, work: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let starts = Arc::clone(&starts);
            std::thread::spawn(move || drop(serve(stream.unwrap(), &starts, work)));
        }
    });
    port
}

fn serve(mut stream: TcpStream, starts: &Starts, work: Duration) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            // Killed after it connected and before it asked: nothing was started.
            return Ok(());
        }
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => value.trim().clone_into(&mut key),
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    *starts.lock().unwrap().entry(key).or_default() += 1;
    std::thread::sleep(work);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nsent")
}

/// Scripted agents: `parcels` in a question makes three subagents, `wave` eight, `convoy` two of which
/// one is a supervisor itself; `permit` makes a call that waits for a person. Every pattern works.
pub fn script(dir: &Path) -> PathBuf {
    let path = dir.join("script.json");
    let react = |steps: usize, text: &str| json!({"operation": "agent-react", "steps": steps, "text": text, "pause-ms": 3});
    let eight: Vec<String> = (1..=8).map(|n| format!("send item {n}")).collect();
    let rules = json!({"rules": [
        {"operation": "task-type-classify", "text": "{\"choice\":\"general\",\"signal\":\"s\"}"},
        {"operation": "pattern-select", "matches": "parcels|wave|convoy",
         "text": "{\"choice\":\"supervisor\",\"signal\":\"s\"}"},
        {"operation": "pattern-select", "text": "{\"choice\":\"react\",\"signal\":\"s\"}"},
        {"operation": "supervisor-decompose", "contains": "convoy", "pause-ms": 3,
         "text": json!({"thought": "t", "goals": [
            {"goal": "send the parcels", "pattern": "supervisor"}, {"goal": "send one"}]}).to_string()},
        {"operation": "supervisor-decompose", "contains": "wave", "pause-ms": 3,
         "text": json!({"thought": "t", "goals": eight}).to_string()},
        {"operation": "supervisor-decompose", "pause-ms": 3,
         "text": "{\"thought\":\"t\",\"goals\":[\"send one\",\"send two\",\"send three\"]}"},
        {"operation": "supervisor-review", "text": "{\"decision\":\"answer\",\"signal\":\"s\"}"},
        {"operation": "supervisor-synthesise", "text": "## All\nConfidence: 0.9\ndone", "pause-ms": 3},
        {"operation": "plan-create", "pause-ms": 3, "text": json!({"thought": "t", "steps": [
            {"goal": "send the first"}, {"goal": "send the second"},
            {"goal": "check both", "depends_on": [0, 1]}]}).to_string()},
        {"operation": "plan-step-execute", "contains": "check both", "text": "Final Answer: both went"},
        {"operation": "plan-step-execute", "contains": "send the second", "pause-ms": 3,
         "text": "Thought: b\nAction: notify\nArgs: {\"text\": \"second\"}"},
        {"operation": "plan-step-execute", "pause-ms": 3,
         "text": "Thought: a\nAction: notify\nArgs: {\"text\": \"first\"}"},
        {"operation": "plan-step-assess",
         "text": "{\"status\": \"complete\", \"reason\": \"r\", \"result\": \"it went\"}"},
        {"operation": "plan-synthesise", "text": "all of it went", "pause-ms": 3},
        {"operation": "reflexion-critique",
         "text": "{\"decision\": \"go-on\", \"wrong\": \"\", \"next\": \"on\"}"},
        {"operation": "debate-compare", "pause-ms": 3, "text": json!({"agreement": "agree",
            "reason": "r", "disagreements": [], "positions": []}).to_string()},
        {"operation": "debate-judge", "text": "they agree", "pause-ms": 3},
        {"operation": "intent-classify", "pause-ms": 3, "text": json!({
            "intent": "content_creation", "confidence": 0.9, "specialist": "blog", "services": [],
            "entities": [], "time_scope": "future", "action_required": false, "multi_step": true,
            "steps": [{"specialist": "analytics", "task": "send what is known", "depends_on": []},
                      {"specialist": "blog", "task": "send the rest", "depends_on": ["step_1"]}],
        }).to_string()},
        {"operation": "agent-react", "contains": "permit", "steps": 0, "pause-ms": 3,
         "text": "Thought: ask\nAction: notify-permitted\nArgs: {\"text\": \"p\"}"},
        react(0, "Thought: look\nAction: notify\nArgs: {\"text\": \"a\"}"),
        react(1, "Thought: again\nAction: notify\nArgs: {\"text\": \"b\"}"),
        {"operation": "agent-react", "text": "Thought: done\nFinal Answer: it is sent"}
    ]});
    std::fs::write(&path, rules.to_string()).unwrap();
    path
}

/// The service as a tool.
pub fn notify(port: u16) -> Value {
    json!({
        "name": "notify", "type": "http", "method": "POST", "side-effects": true,
        "description": "sends", "url": format!("http://127.0.0.1:{port}/notify"), "timeout-ms": 1500,
        "arguments": [{"name": "text", "type": "string", "description": "what", "required": true}]
    })
}

/// Chance that can be repeated: `AGENTFLEET_SEED`.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    pub fn from_environment() -> Self {
        let given = std::env::var("AGENTFLEET_SEED").ok();
        let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            now.as_nanos() as u64 | 1
        });
        Self { seed, state: seed }
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % limit
    }
}

impl fmt::Display for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} (AGENTFLEET_SEED)", self.seed)
    }
}
