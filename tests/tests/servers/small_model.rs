//! Every pattern with a real language model, on a server that knows nothing of this project: llama.cpp's, with a model
//! so small that most of what it says is wrong. What it proves is that requests, streams, counts of tokens and JSON
//! Schemas as grammars work, and that bad replies in abundance bring no run off its way. It proves no wisdom.

use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_models::Operation;
use agentfleet_schema::records::{Call, DecidedBy, StepRecord};
use agentfleet_schema::{SessionId, keys};
use agentfleet_tests::load::{Process, binary, ends_once, output, said};
use reqwest::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use wire::{Exchange, Wire};

mod wire;

/// Longest that one run may take.
const LONGEST: Duration = Duration::from_secs(240);
/// What may be looked up.
const PLANT: &str = "# Pumps\n\nThe circulation pump Orkan-7 delivers 340 litres per minute.\n\n\
                     # Valves\n\nThe valve Taifun-2 closes in three seconds.\n";
/// The words by which a task is divided: the model follows an example, and little else.
const DIVIDE: &str = "---\nresponse-type: json\n---\nDivide a task into two goals, as a JSON object.\n\n\
    Task: Compare the tower and the bridge.\n\
    {\"thought\": \"two things\", \"goals\": [{\"goal\": \"Describe the tower.\", \"pattern\": \"react\", \
    \"rationale\": \"r\", \"context\": \"\"}, {\"goal\": \"Describe the bridge.\", \"pattern\": \"react\", \
    \"rationale\": \"r\", \"context\": \"\"}]}\n\nTask: {{ question }}\n";

/// The words by which a plan is made.
const PLAN: &str = "---\nresponse-type: json\n---\nMake a plan of one step for a task, as a JSON object.\n\n\
    Task: How tall is the tower of Arnsfeld?\n\
    {\"thought\": \"one thing\", \"steps\": [{\"goal\": \"Look up the tower of Arnsfeld.\", \
    \"tool_hint\": \"document-search\", \"depends_on\": []}]}\n\nTask: {{ question }}\n";

/// The server of the model, on a free port of loopback. It ends with the test, at the latest with its standard input.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    /// `template` is how the model is shown a conversation.
    fn start(template: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("llm");
        let python = Command::new(folder.join("venv.sh")).output().unwrap();
        let python = String::from_utf8(python.stdout).unwrap();
        let mut child = Command::new(python.trim())
            .arg(folder.join("server.py"))
            .arg(template)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server of the model: `tests/llm/venv.sh` installs it");
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().unwrap());
        told.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://");
        let address = address.unwrap_or_else(|| panic!("no server: {line}"));
        Self {
            child,
            address: address.to_owned(),
        }
    }
}

/// A fleet on the embedded parts, whose model is behind a wire that keeps what was said.
struct Fleet {
    up: Process,
    url: String,
    wire: Wire,
    _server: Server,
    directory: tempfile::TempDir,
}

/// A run that has ended: what its caller was told, in order.
struct Run {
    root: String,
    told: Vec<Value>,
}

impl Fleet {
    fn start(template: &str) -> Self {
        let tls = rustls::crypto::ring::default_provider();
        tls.install_default().ok();
        let server = Server::start(template);
        let wire = Wire::to(&server.address);
        let directory = tempfile::tempdir().unwrap();
        equip(directory.path());
        let mut command = command(directory.path(), &["up", "--json"]);
        command
            .env("AGENTFLEET_MODEL", "openai")
            .env("AGENTFLEET_BASE_URL", &wire.url)
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_OPEN", "yes");
        let up = Process::start("up", &mut command, "url");
        Self {
            url: up.url(),
            up,
            wire,
            _server: server,
            directory,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        command(self.directory.path(), arguments)
    }

    /// Asks, and listens until the run has ended.
    async fn ask(&self, pattern: &str, question: &str) -> Run {
        let mut asked = json!({"question": question, "collection": "plant", "streaming": true});
        if !pattern.is_empty() {
            asked["pattern"] = pattern.into();
        }
        let asked = Client::new()
            .post(format!("{}/requests", self.url))
            .header("accept", "text/event-stream")
            .timeout(LONGEST)
            .json(&asked);
        let told = asked.send().await.unwrap().text().await;
        let told = told.unwrap_or_else(|error| panic!("`{question}` has no end: {error}"));
        let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
        let told: Vec<Value> = data
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let last = told
            .last()
            .unwrap_or_else(|| panic!("`{question}` is told nothing"));
        Run {
            root: last["root_session_id"].as_str().unwrap().to_owned(),
            told,
        }
    }

    /// Every record of a run, once its processes have ended, by session.
    async fn records(&self, run: &Run) -> Vec<StepRecord> {
        let flags = Flags {
            data: Some(self.directory.path().join("data").display().to_string()),
            ..Flags::default()
        };
        let settings = Settings::load(&flags).unwrap();
        let store = Store::open(&settings).await.unwrap();
        let mut records = Vec::new();
        for session in run.sessions() {
            for step in 0.. {
                let key = keys::outcome(&SessionId::from(&*session), step);
                let Some(body) = store.documents.get(&key).await.unwrap() else {
                    break;
                };
                records.push(serde_json::from_slice(&body).unwrap());
            }
        }
        records
    }
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .current_dir(directory)
        .env("HOME", directory)
        .env("AGENTFLEET_DATA", directory.join("data"))
        .env("AGENTFLEET_LOG", "error");
    command
}

/// What is looked up, and bounds that keep the model's time short.
fn equip(directory: &Path) {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let run = |arguments: &[&str]| output(&mut command(directory, arguments));
    run(&["load", &file("plant.md", PLANT), "--collection", "plant"]);
    let put = |kind: &str, key: &str, path: &str| run(&["config", "put", kind, key, path]);
    let profile = json!({"max-tokens": 120, "temperature": 0, "context-window": 6000});
    put(
        "model-profile",
        "default",
        &file("profile.json", &profile.to_string()),
    );
    put("prompt", "supervisor-decompose", &file("divide.md", DIVIDE));
    put("prompt", "plan-create", &file("plan.md", PLAN));
    let debate = json!({"name": "debate", "description": "d", "when_to_use": "w", "max_iterations": 1, "reasoners": [
        {"name": "advocate", "stance": "You speak for it.", "pattern": "react"},
        {"name": "sceptic", "stance": "You speak against it.", "pattern": "react"},
    ]});
    put(
        "agent-pattern",
        "debate",
        &file("debate.json", &debate.to_string()),
    );
    let tools = said(&mut command(
        directory,
        &["config", "list", "tool", "--json"],
    ));
    for tool in tools.as_array().unwrap() {
        let key = tool["key"].as_str().unwrap();
        if key != "document-search" {
            run(&["config", "delete", "tool", key]);
        }
    }
}

impl Run {
    fn sessions(&self) -> BTreeSet<String> {
        let sessions = self.told.iter();
        let sessions = sessions.filter_map(|one| one["session_id"].as_str());
        sessions.map(str::to_owned).collect()
    }

    /// One end, and nothing behind it: an answer, or what failed.
    fn ends_once(&self) {
        let ends = self.told.iter();
        let ends = ends.filter(|one| one["end_of_dialog"] == true).count();
        assert_eq!(ends, 1, "OR-3: {:#?}", self.told);
        let last = self.told.last().unwrap();
        assert_eq!(last["end_of_dialog"], true, "{last}");
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        if last["message_type"] == "error" {
            let error = &last["error"];
            let told = ["type", "message"].map(|name| text(&error[name]));
            assert!(!told.contains(&String::new()), "{last}");
        } else {
            assert_eq!(last["message_type"], "answer", "{last}");
            let whole = [text(&last["text"]), text(&last["content"])].concat();
            assert!(!whole.is_empty(), "{last}");
        }
    }

    /// The chunks of every message, put together as the protocol has it, are its whole text. Returns how many
    /// messages came in more than one piece.
    fn is_put_together(&self) -> usize {
        let mut chunks: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
        let mut streamed = 0;
        for one in &self.told {
            let (Some(id), Some(content)) = (one["message_id"].as_str(), one["content"].as_str())
            else {
                continue;
            };
            let seq = one["seq"].as_u64().unwrap_or_default();
            let before = chunks.entry(id).or_default();
            if one["end_of_message"] != true {
                before.entry(seq).or_insert(content);
                continue;
            }
            if seq == 0 {
                continue;
            }
            let places: Vec<u64> = before.keys().copied().take_while(|n| *n < seq).collect();
            assert_eq!(places, (0..seq).collect::<Vec<_>>(), "{one}");
            before.insert(seq, content);
            let joined: String = before.range(..=seq).map(|(_, text)| *text).collect();
            assert_eq!(one["text"], joined, "{one}");
            streamed += 1;
        }
        streamed
    }
}

/// What the model says of itself is compared with what the records say: each call of a record is one that went over
/// the wire, with its text and its tokens. Returns the operations that were asked for.
fn are_what_was_said(records: &[StepRecord], exchanges: &[Exchange]) -> BTreeSet<Operation> {
    let mut said: Vec<&Exchange> = exchanges.iter().filter(|one| one.status == 200).collect();
    let mut operations = BTreeSet::new();
    for call in records.iter().flat_map(|record| &record.calls) {
        let Call::Model {
            operation,
            model,
            prompt,
            reply,
            usage,
            calls_tools,
            cut,
            ..
        } = call
        else {
            continue;
        };
        let tokens = (usage.input_tokens, usage.output_tokens);
        let found = said.iter().position(|one| {
            one.usage() == tokens
                && one.calls_tools() == *calls_tools
                && (one.text() == *reply || *calls_tools)
        });
        let found = found
            .unwrap_or_else(|| panic!("nobody said {operation}: {reply} {tokens:?}: {said:#?}"));
        let one = said.swap_remove(found);
        assert!(one.whole && tokens.0 > 0 && tokens.1 > 0, "{one:?}");
        assert_eq!(*cut, one.stop() == "length", "{one:?}");
        assert_eq!(model, "smollm2-135m");
        assert!(!prompt.is_empty());
        let known = Operation::ALL;
        let known = known.into_iter().find(|one| one.as_str() == operation);
        let known = known.unwrap_or_else(|| panic!("there is no operation {operation}"));
        operations.insert(known);
        // Whatever is decided by a reply is sent as a schema, and what is written freely is not.
        assert_eq!(one.operation().is_some(), is_choice(known), "{operation}");
        if one.schema().is_some() {
            assert_eq!(one.operation(), Some(&**operation));
        }
    }
    // What is in no record is a reply without a word, after which the model was asked again.
    for one in said {
        assert!(
            one.text().trim().is_empty() && !one.calls_tools(),
            "{one:?}"
        );
    }
    operations
}

/// Whether something is decided by the reply.
fn is_choice(operation: Operation) -> bool {
    match operation {
        Operation::ClassifyTaskType
        | Operation::SelectPattern
        | Operation::Decompose
        | Operation::Review
        | Operation::PlanCreate
        | Operation::PlanRevise
        | Operation::PlanAssess
        | Operation::Critique
        | Operation::Compare
        | Operation::ClassifyIntent
        | Operation::Gate => true,
        Operation::React
        | Operation::Synthesise
        | Operation::PlanStep
        | Operation::PlanSynthesise
        | Operation::Judge
        | Operation::Complete
        | Operation::Prompt => false,
    }
}

/// Every reply that is whole matches the schema that went with its request, so what it chooses is an option.
/// Returns how many there were.
fn keep_to_their_schemas(exchanges: &[Exchange]) -> usize {
    let mut whole = 0;
    for one in exchanges {
        let Some(schema) = one.schema() else { continue };
        assert_eq!(one.status, 200, "the server takes the schema: {one:?}");
        assert!(schema.to_string().contains("\"enum\":[\""), "{schema}");
        if one.stop() != "stop" {
            continue;
        }
        let reply: Value = serde_json::from_str(&one.text()).unwrap();
        let valid = jsonschema::validate(schema, &reply);
        assert!(valid.is_ok(), "{valid:?}: {reply}");
        whole += 1;
    }
    whole
}

/// Whoever decides, what is chosen is one of the options. Returns how often it was the model.
fn choose_among_the_options(records: &[StepRecord]) -> usize {
    let mut by_the_model = 0;
    for record in records {
        let routed = record.routed.iter().flat_map(|routed| &routed.decisions);
        for decision in routed.chain(&record.decisions) {
            let of = &decision.options;
            assert!(of.contains(&decision.chosen), "PV-2: {decision:?}");
            by_the_model += usize::from(decision.decided_by == DecidedBy::Model);
        }
    }
    by_the_model
}

fn calls_a_tool(run: &Run) -> bool {
    run.told.iter().any(|one| {
        let text = one["text"].as_str().unwrap_or_default();
        one["message_type"] == "action" && text.starts_with("document-search(")
    })
}

/// A step came after the one that made the plan.
fn goes_by_a_plan(run: &Run) -> bool {
    run.told.iter().any(|one| one["step"].as_u64() > Some(0))
}

const QUESTIONS: [&str; 5] = [
    "How much does the circulation pump Orkan-7 deliver?",
    "What does the valve Taifun-2 do?",
    "Compare the pump Orkan-7 and the valve Taifun-2.",
    "Who owns the company?",
    "Compare the tower and the bridge.",
];

/// What a pattern is asked until the model does it.
type Wanted = fn(&Run) -> bool;

impl Fleet {
    /// Asks one thing after the other, until the model does what is wanted. Returns the runs, and how many messages came
    /// in more than one piece.
    async fn asked(&self, pattern: &str, wanted: Wanted) -> (Vec<Run>, usize) {
        let (mut runs, mut streamed) = (Vec::new(), 0);
        for question in QUESTIONS {
            let run = self.ask(pattern, question).await;
            run.ends_once();
            streamed += run.is_put_together();
            let done = wanted(&run);
            runs.push(run);
            if done {
                return (runs, streamed);
            }
        }
        panic!("`{pattern}` was asked {} things in vain", QUESTIONS.len());
    }

    /// Every record of the runs, each of which is still as it was committed and comes out the same again.
    async fn audited(&mut self, runs: &[Run]) -> Vec<StepRecord> {
        self.up.stop();
        let mut records = Vec::new();
        for run in runs {
            ends_once(&mut self.command(&["attach", &run.root, "--json"]));
            let report = said(&mut self.command(&["verify", &run.root, "--json"]));
            for holds in ["ok", "ended"] {
                assert_eq!(report[holds], true, "{report:#}");
            }
            output(&mut self.command(&["replay", &run.root]));
            records.extend(self.records(run).await);
        }
        records
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pattern_ends_once_whatever_a_small_model_says() {
    let mut fleet = Fleet::start("tools.jinja");
    let with_subagents: Wanted = |run| run.sessions().len() > 2;
    let patterns: [(&str, Wanted); 7] = [
        ("react", calls_a_tool),
        ("plan-then-execute", goes_by_a_plan),
        ("reflexion", |_| true),
        ("supervisor", with_subagents),
        ("debate", with_subagents),
        ("router", |_| true),
        // The model chooses.
        ("", |_| true),
    ];
    let (mut runs, mut streamed) = (Vec::new(), 0);
    for (pattern, wanted) in patterns {
        let (asked, pieces) = fleet.asked(pattern, wanted).await;
        runs.extend(asked);
        streamed += pieces;
    }
    assert!(streamed > 0, "nothing came in more than one piece");
    let records = fleet.audited(&runs).await;
    let exchanges = fleet.wire.exchanges();
    let operations = are_what_was_said(&records, &exchanges);
    for operation in [
        Operation::ClassifyTaskType,
        Operation::SelectPattern,
        Operation::React,
        Operation::Decompose,
        Operation::PlanCreate,
        Operation::PlanStep,
        Operation::Critique,
        Operation::Compare,
        Operation::ClassifyIntent,
    ] {
        assert!(
            operations.contains(&operation),
            "{operation:?} of {operations:?}"
        );
    }
    assert!(exchanges.iter().any(Exchange::calls_tools), "{exchanges:?}");
    assert!(keep_to_their_schemas(&exchanges) > 0, "{exchanges:?}");
    assert!(choose_among_the_options(&records) > 0, "{records:?}");
}

/// The server says that its template has no place for tools, so the fleet tells the model of them in the text.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_place_for_tools_calls_them_in_the_text() {
    let mut fleet = Fleet::start("text.jinja");
    let (runs, _) = fleet.asked("react", calls_a_tool).await;
    let records = fleet.audited(&runs).await;
    let exchanges = fleet.wire.exchanges();
    are_what_was_said(&records, &exchanges);
    for one in &exchanges {
        assert_eq!(one.request.get("tools"), None, "{one:?}");
    }
    let prompt = exchanges[0].request["messages"].to_string();
    assert!(prompt.contains("- document-search: "), "{prompt}");
}
