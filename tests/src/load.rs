//! A load for real processes: scripted agents that call a service with effects, which counts how often
//! each call is started; and the chance that decides what is killed when.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
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

/// A service whose every call has an effect. It takes its time, so that kills find it at work.
pub fn service(starts: Starts) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let starts = Arc::clone(&starts);
            std::thread::spawn(move || drop(serve(stream.unwrap(), &starts)));
        }
    });
    port
}

fn serve(mut stream: TcpStream, starts: &Starts) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
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
    std::thread::sleep(WORK);
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nsent")
}

pub fn script(dir: &Path) -> PathBuf {
    let path = dir.join("script.json");
    let react = |steps: usize, text: &str| json!({"operation": "agent-react", "steps": steps, "text": text, "pause-ms": 3});
    let rules = json!({"rules": [
        {"operation": "task-type-classify", "text": "{\"choice\":\"general\",\"signal\":\"s\"}"},
        {"operation": "pattern-select", "contains": "parcels",
         "text": "{\"choice\":\"supervisor\",\"signal\":\"s\"}"},
        {"operation": "pattern-select", "text": "{\"choice\":\"react\",\"signal\":\"s\"}"},
        {"operation": "supervisor-decompose", "pause-ms": 3,
         "text": "{\"thought\":\"t\",\"goals\":[\"send one\",\"send two\",\"send three\"]}"},
        {"operation": "supervisor-review", "text": "{\"decision\":\"answer\",\"signal\":\"s\"}"},
        {"operation": "supervisor-synthesise", "text": "## All\nConfidence: 0.9\ndone", "pause-ms": 3},
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
