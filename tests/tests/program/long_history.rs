//! A run of a hundred calls that each return 200 KB: what travels, what a model is shown and what is
//! recorded of a step stay as large as they were, and nothing is lost. Through the program itself.

use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_schema::records::{Activity, Call, StepRecord};
use agentfleet_schema::topics::AGENT_REQUEST;
use agentfleet_schema::{AgentRequest, SessionId, keys};
use agentfleet_tests::load::{binary, output, said};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGES: usize = 100;
const PAGE: usize = 200_000;
/// Tokens. Half of them are for the history: 28,000 bytes.
const WINDOW: usize = 16_000;
/// The iteration that reads back.
const BACK: usize = 60;

/// Serves pages of which the end of each says which it is.
fn serve() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/page", listener.local_addr().unwrap());
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let n = first.split("n=").nth(1).unwrap();
            let n = n.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            let mut body = "A line of what the page says.\n".repeat(PAGE / 30);
            body.push_str(&format!("\nThe needle of page {n}.\n"));
            count.fetch_add(1, Ordering::SeqCst);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
            write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    (address, served)
}

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new(address: &str) -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let act = |thought: &str, tool: &str, arguments: Value| {
            format!("Thought: {thought}\nAction: {tool}\nArgs: {arguments}")
        };
        let at = |steps: usize, contains: &str, text: String| {
            let mut rule = json!({"operation": "agent-react", "steps": steps, "text": text,
                                  "usage": {"input_tokens": 10, "output_tokens": 2}});
            if !contains.is_empty() {
                rule["contains"] = contains.into();
            }
            rule
        };
        let back = |which: &str| json!({"which": which, "words": "needle"});
        // A fork reads what the other session had read.
        let mut rules = vec![at(90, "Another question", act("b", "read-back", back("3")))];
        for n in 1..=PAGES {
            let text = if n == BACK {
                act("what was it?", "read-back", back("3"))
            } else {
                act(&format!("page {n} comes next"), "page", json!({"n": n}))
            };
            rules.push(at(n - 1, "", text));
        }
        rules.push(at(
            PAGES,
            "",
            "Thought: t\nFinal Answer: It is done.".into(),
        ));
        place.write("script.json", &json!({"rules": rules}));
        let tool = json!({"name": "page", "type": "http", "url": address, "description": "a page",
            "arguments": [{"name": "n", "type": "integer", "description": "which"}]});
        let tool = place.write("tool.json", &tool);
        output(&mut place.command(&["config", "put", "tool", "page", &tool]));
        place
    }

    fn write(&self, name: &str, value: &Value) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    }

    fn data(&self) -> String {
        self.directory.path().join("data").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        let script = self.directory.path().join("script.json");
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("HOME", self.directory.path())
            .env("AGENTFLEET_DATA", self.data())
            .env("AGENTFLEET_LOG", "error")
            .env("AGENTFLEET_CONTEXT_WINDOW", WINDOW.to_string())
            .env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()));
        command
    }

    fn sessions(&self) -> Vec<(String, String)> {
        let listed = said(&mut self.command(&["sessions", "list", "--json"]));
        let text = |run: &Value, name: &str| run[name].as_str().unwrap().to_owned();
        let runs = listed.as_array().unwrap().iter();
        runs.map(|run| (text(run, "question"), text(run, "session")))
            .collect()
    }
}

/// What a session committed, with the sizes of its records.
async fn records(data: &str, session: &str) -> Vec<(StepRecord, usize)> {
    let flags = Flags {
        data: Some(Path::new(data).display().to_string()),
        model: Some("offline".into()),
        ..Flags::default()
    };
    let store = Store::open(&Settings::load(&flags).unwrap()).await.unwrap();
    let session = SessionId::new(session);
    let mut found = Vec::new();
    while let Some(body) = {
        let key = keys::outcome(&session, found.len() as u32);
        store.documents.get(&key).await.unwrap()
    } {
        found.push((serde_json::from_slice(&body).unwrap(), body.len()));
    }
    found
}

fn observed(record: &StepRecord) -> &str {
    let found = record.calls.iter().find_map(|call| match call {
        Call::Tool { result, .. } => Some(result.as_str()),
        _ => None,
    });
    found.unwrap_or_default()
}

#[tokio::test]
async fn a_hundred_long_observations_cost_no_more_for_each_than_ten() {
    let (address, served) = serve();
    let place = Place::new(&address);
    let told = output(&mut place.command(&[
        "ask",
        "--pattern",
        "react",
        "--max-iterations",
        "200",
        "Read all the pages",
    ]));
    assert!(String::from_utf8(told).unwrap().starts_with("It is done."));
    assert_eq!(served.load(Ordering::SeqCst), PAGES - 1);
    let (_, session) = place.sessions().remove(0);
    let steps = records(&place.data(), &session).await;
    assert_eq!(steps.len(), PAGES + 1);

    // The message, the prompt and the record: bounded, and flat.
    let room = WINDOW / 2 * 7 / 2;
    let (mut prompts, mut sizes, mut decisions) = (Vec::new(), Vec::new(), Vec::new());
    for (n, (record, size)) in steps.iter().enumerate() {
        let next = record.publications.iter();
        let next = next.filter(|sent| sent.topic == AGENT_REQUEST.as_str());
        for message in next {
            let bytes = message.body.len();
            assert!(
                bytes < room + room / 8 + 4_000,
                "message {n} has {bytes} bytes"
            );
            let request: AgentRequest = serde_json::from_str(&message.body).unwrap();
            assert!(request.history.len() < PAGES, "it is not only cut");
        }
        let Some(Call::Model { prompt, .. }) = record.calls.first() else {
            panic!("step {n} asked no model");
        };
        assert!(
            prompt.len() < room + 6_000,
            "prompt {n} has {} bytes",
            prompt.len()
        );
        prompts.push(prompt.len());
        sizes.push(*size);
        decisions.extend(record.decisions.iter().map(|d| (n, d.clone())));
    }
    let mean = |sizes: &[usize]| sizes.iter().sum::<usize>() / sizes.len();
    assert!(
        mean(&prompts[80..100]) < mean(&prompts[10..30]) * 5 / 4,
        "{prompts:?}"
    );
    assert!(
        mean(&sizes[80..100]) < mean(&sizes[10..30]) * 5 / 4,
        "{sizes:?}"
    );

    // That is decided, and not at every step.
    assert!(
        (5..PAGES / 3).contains(&decisions.len()),
        "{}",
        decisions.len()
    );
    for (n, decision) in &decisions {
        assert_eq!(decision.subject, "context", "{n}");
        assert!(decision.signal.contains("tokens before"), "{decision:?}");
        assert!(!decision.rationale.is_empty());
    }
    assert!(
        decisions
            .iter()
            .any(|(_, decision)| decision.chosen == "summary")
    );
    let why = String::from_utf8(output(&mut place.command(&["explain", &session]))).unwrap();
    assert!(
        why.contains("context") && why.contains("a window of 16000 leaves 8000"),
        "{why}"
    );

    // What was left out is there, in whole, and one tool reads it back.
    let read = observed(&steps[BACK - 1].0);
    assert!(read.contains("The needle of page 3."), "{read}");
    assert!(
        read.contains(&format!("{session}/i3/observation/document")),
        "{read}"
    );
    assert!(read.len() < 2_000);
    let Activity::Iterated(first) = &steps[0].0.activity else {
        panic!()
    };
    assert!(!first.candidates.contains(&"read-back".to_owned()));

    // Working it again and checking it find nothing.
    let again = String::from_utf8(output(&mut place.command(&["replay", &session]))).unwrap();
    assert!(again.contains("101"), "{again}");
    output(&mut place.command(&["verify", &session]));

    // It can be gone on from after its history was compressed, and still read back.
    let told = output(&mut place.command(&[
        "fork",
        &session,
        "--at",
        "85",
        "--question",
        "Another question",
    ]));
    assert!(String::from_utf8(told).unwrap().starts_with("It is done."));
    let fork = place.sessions();
    let (_, fork) = fork
        .iter()
        .find(|(asked, _)| asked == "Another question")
        .unwrap();
    let forked = records(&place.data(), fork).await;
    assert_eq!(forked.len(), PAGES + 1 - 85);
    let read = observed(&forked[5].0);
    assert!(
        read.contains("The needle of page 3.") && read.contains(&session),
        "{read}"
    );
    output(&mut place.command(&["replay", fork]));
    output(&mut place.command(&["verify", fork]));
}
