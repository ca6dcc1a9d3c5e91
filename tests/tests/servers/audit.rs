//! What people ask of runs that are over: why, whether it is all still true, and what it cost.
//! Through the program itself, on one fleet whose model follows a script.

use agentfleet::engine::open_graph;
use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_core::audit::identity;
use agentfleet_core::provenance::tell_as;
use agentfleet_graph::{Batch, EraseBy, QueryOptions};
use agentfleet_schema::records::StepRecord;
use agentfleet_schema::vocabulary::{prov, tg};
use agentfleet_schema::{SessionId, Term, Triple, keys, uris};
use agentfleet_tests::load::{Process, binary, output, refused, said, session_of};
use agentfleet_tests::place::{Place, ROLES};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const PUMPS: &str = "urn:agentfleet:document:plant:pumps.md";

/// A supervisor with three subagents, of which one reads a document, one fails and one calls a tool
/// that is not there; a question that the router cannot place; one whose first try fails.
fn script(directory: &Path) -> PathBuf {
    let usage = json!({"input_tokens": 100, "output_tokens": 10});
    let says = |operation: &str, contains: &str, text: &str| {
        let mut rule = json!({"operation": operation, "text": text, "usage": usage});
        if !contains.is_empty() {
            rule["contains"] = contains.into();
        }
        rule
    };
    let first = |contains: &str, text: &str| {
        let mut rule = says("agent-react", contains, text);
        rule["steps"] = 0.into();
        rule
    };
    let rules = json!({"rules": [
        // By the task itself: the conversation of a run has the words of others.
        says("task-type-classify", "Task:\nnonsense", "I cannot say."),
        says("task-type-classify", "", "{\"choice\":\"general\",\"signal\":\"no domain\",\"rationale\":\"nothing special\"}"),
        says("pattern-select", "Juxtapose", "{\"choice\":\"supervisor\",\"signal\":\"three parts\",\"rationale\":\"they are apart\"}"),
        says("pattern-select", "", "{\"choice\":\"react\",\"signal\":\"one thing\"}"),
        says("supervisor-decompose", "", "{\"thought\":\"by part\",\"goals\":[\"read about pumps\",\"fail at valves\",\"guess at pipes\"]}"),
        says("supervisor-review", "", "{\"decision\":\"answer\",\"signal\":\"enough\"}"),
        says("supervisor-synthesise", "", "## All\nConfidence: 0.9\ndone"),
        {"operation": "agent-react", "contains": "valves", "fail": "no such model"},
        {"operation": "agent-react", "contains": "Task:\nthe busy", "times": 1, "garbled": "<html>"},
        {"operation": "agent-react", "contains": "mute at first", "times": 1, "usage": usage},
        {"operation": "agent-react", "contains": "mute for ever", "cut": true, "usage": usage},
        first("pumps", "Thought: look it up\nAction: document-search\nArgs: {\"query\": \"circulation pump\"}"),
        first("pipes", "Thought: guess\nAction: divine\nArgs: {}"),
        says("agent-react", "", "Thought: done\nFinal Answer: so it is")
    ]});
    let path = directory.join("script.json");
    std::fs::write(&path, rules.to_string()).unwrap();
    path
}

/// A data directory, worked by whatever command is run on it.
struct Fleet {
    directory: TempDir,
    /// By what was asked.
    asked: BTreeMap<&'static str, String>,
}

const QUESTIONS: [(&str, &str); 3] = [
    ("Juxtapose the plants", "c1"),
    ("nonsense words", "c2"),
    ("the busy line", "c2"),
];

impl Fleet {
    /// Of which nobody has asked anything.
    fn unasked() -> Self {
        let fleet = Self {
            directory: tempfile::tempdir().unwrap(),
            asked: BTreeMap::new(),
        };
        let path = fleet.directory.path();
        script(path);
        let prices = path.join("prices.json");
        std::fs::write(&prices, r#"{"input-price": 2.0, "output-price": 10.0}"#).unwrap();
        let prices = prices.display().to_string();
        output(&mut fleet.command(&["config", "put", "model-profile", "default", &prices]));
        fleet
    }

    fn new() -> Self {
        let mut fleet = Self::unasked();
        let path = fleet.directory.path().to_owned();
        std::fs::create_dir(path.join("files")).unwrap();
        let text = "# Pumps\n\nThe circulation pump Orkan-7 delivers 340 litres per minute.\n";
        std::fs::write(path.join("files/pumps.md"), text).unwrap();
        let files = path.join("files").display().to_string();
        output(&mut fleet.command(&["load", &files, "--collection", "plant"]));
        for (question, conversation) in QUESTIONS {
            let mut ask = fleet.command(&[
                "ask",
                question,
                "--collection",
                "plant",
                "--conversation",
                conversation,
                "--max-model-calls",
                "200",
                "--json",
            ]);
            let told = output(&mut ask);
            let end = String::from_utf8(told).unwrap();
            let end: Value = serde_json::from_str(end.lines().last().unwrap()).unwrap();
            assert_eq!(end["error"], Value::Null, "{question}: {end}");
            let list = || said(&mut fleet.command(&["sessions", "list", "--json"]));
            let session = session_of(question, list);
            fleet.asked.insert(question, session);
        }
        fleet
    }

    fn compared(&self) -> &str {
        &self.asked["Juxtapose the plants"]
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_on(&self.data(), arguments)
    }

    fn command_on(&self, data: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        let script = self.directory.path().join("script.json");
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("HOME", self.directory.path())
            .env("AGENTFLEET_DATA", data)
            .env("AGENTFLEET_LOG", "error")
            .env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()));
        command
    }

    /// Rows of a saved query, each by variable.
    fn rows(&self, arguments: &[&str]) -> Vec<BTreeMap<String, String>> {
        let arguments = [&["query"], arguments, &["--format", "json"]].concat();
        rows(&said(&mut self.command(&arguments)))
    }

    fn cost(&self, arguments: &[&str]) -> Value {
        said(&mut self.command(&[&["cost", "--json"], arguments].concat()))
    }

    /// What failed, and its exit code.
    fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), said)
    }
}

fn rows(answer: &Value) -> Vec<BTreeMap<String, String>> {
    let bindings = answer["results"]["bindings"].as_array().unwrap();
    let cells = |row: &Value| {
        let cells = row.as_object().unwrap().iter();
        cells
            .map(|(name, cell)| (name.clone(), cell["value"].as_str().unwrap().to_owned()))
            .collect()
    };
    bindings.iter().map(cells).collect()
}

fn has(rows: &[BTreeMap<String, String>], wanted: &[(&str, &str)]) -> bool {
    rows.iter().any(|row| {
        wanted
            .iter()
            .all(|(name, value)| row.get(*name).is_some_and(|cell| cell == value))
    })
}

/// A model that sends nothing is paid for it, whether it is asked again or not.
#[test]
fn a_reply_without_a_word_is_on_the_account_and_the_run_began_before_it() {
    let fleet = Fleet::unasked();
    let of = |question: &str| {
        let list = || said(&mut fleet.command(&["sessions", "list", "--json"]));
        let session = &session_of(question, list);
        for checks in ["verify", "replay"] {
            output(&mut fleet.command(&[checks, session]));
        }
        let shown = said(&mut fleet.command(&["sessions", "show", session, "--json"]));
        let traced = said(&mut fleet.command(&["trace", session, "--format", "json"]));
        (shown, traced)
    };
    let question = "mute at first";
    output(&mut fleet.command(&["ask", question, "--pattern", "react"]));
    let (shown, traced) = of(question);
    // The same step asks once more, in other words: both replies are its own.
    assert_eq!(shown["wasted_tokens"], 0, "{shown}");
    assert_eq!(shown["tokens"], 220, "{shown}");
    let totals = &traced["totals"];
    assert_eq!(totals["wasted_tokens"], 0, "{totals}");
    assert_eq!(totals["input_tokens"], 200, "{totals}");
    // 100 tokens at 2, 10 at 10, of a million, twice.
    assert_eq!(totals["cost"], 0.0006, "{totals}");

    let question = "mute for ever";
    let (code, why) = fleet.fails(&["ask", question, "--pattern", "react"]);
    assert_eq!(code, 1, "{why}");
    let (shown, traced) = of(question);
    assert_eq!(shown["tokens"], 110, "{shown}");
    assert_eq!(traced["totals"]["output_tokens"], 10, "{traced}");
}

#[test]
fn saved_queries_answer_what_they_say_and_values_never_become_sparql() {
    let fleet = Fleet::new();
    check_queries(
        &|arguments| fleet.rows(arguments),
        &fleet.asked["Juxtapose the plants"],
        &fleet.asked["nonsense words"],
        &fleet.asked["the busy line"],
    );
    let spent = fleet.rows(&["conversation-spend"]);
    let account = fleet.cost(&["--by", "conversation"]);
    for group in account["groups"].as_array().unwrap() {
        let text = |name: &str| group[name].to_string();
        let conversation = group["conversation"].as_str().unwrap();
        let (read, calls) = (text("tokens_in"), text("model_calls"));
        let wanted = [
            ("conversation", conversation),
            ("tokens_in", &read),
            ("model_calls", &calls),
        ];
        assert!(has(&spent, &wanted), "{group} {spent:?}");
    }

    let listed = String::from_utf8(output(&mut fleet.command(&["query", "--list"]))).unwrap();
    for part in [
        "slowest-steps",
        "--param document=...  iri, must be given",
        "--param since=...  date-time, may be left out",
        "--param least=...  integer, 0 unless given",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let none = fleet.rows(&[
        "answers-from-document",
        "--param",
        "document=urn:x> ?p ?o } #",
    ]);
    assert_eq!(none, []);
    let later = fleet.rows(&["failed-runs", "--param", "since=2999-01-01"]);
    assert_eq!(later, []);
    for (arguments, code, part) in [
        (
            &["query", "answers-from-document"][..],
            2,
            "`--param document=...`",
        ),
        (
            &["query", "slowest-steps", "--param", "since=soon"],
            2,
            "`soon`",
        ),
        (
            &["query", "slowest-steps", "--param", "sinse=1d"],
            2,
            "no parameter `sinse`",
        ),
        (
            &["query", "slowest-steps", "--param", "since"],
            2,
            "NAME=VALUE",
        ),
        (&["query", "slow-steps"], 3, "did you mean `slowest-steps`"),
        (&["query", "ASK {}", "--param", "a=b"], 2, "saved queries"),
        (&["cost", "--since", "soon"], 2, "`--since soon`"),
    ] {
        let (found, said) = fleet.fails(arguments);
        assert_eq!(found, code, "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }

    // One of their own, checked when it is put.
    let file = fleet.directory.path().join("mine.rq");
    let put = ["config", "put", "query", "mine", "mine.rq"];
    for (text, part) in [
        ("# All.\nSELECT ?s WHERE { ?s ?p ?o", "/sparql"),
        ("# All.\nDELETE WHERE { ?s ?p ?o }", "update"),
        ("SELECT ?s WHERE { ?s ?p ?o }", "/description"),
        (
            "# All.\n# @param a date\nSELECT ?s WHERE { ?s ?p ?a }",
            "/parameters/0/type",
        ),
        (
            "# All.\n# @param b text\nSELECT ?s WHERE { ?s ?p ?o }",
            "cannot bind `b`",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, said) = fleet.fails(&put);
        assert_eq!(code, 2, "{text}: {said}");
        assert!(said.contains(part), "{text}: {said}");
    }
    std::fs::write(
        &file,
        "# Sessions of a question.\n# @param question text\n\
         SELECT ?s FROM <urn:graph:retrieval> WHERE { ?s tg:query ?question }\n",
    )
    .unwrap();
    output(&mut fleet.command(&put));
    let found = fleet.rows(&["mine", "--param", "question=nonsense words"]);
    let session = SessionId::from(fleet.asked["nonsense words"].as_str());
    assert!(
        has(&found, &[("s", &uris::session(&session))]) && found.len() == 1,
        "{found:?}"
    );
}

type Rows<'a> = &'a dyn Fn(&[&str]) -> Vec<BTreeMap<String, String>>;

/// Every query that comes with the program, on the runs of the script.
fn check_queries(rows: Rows<'_>, compared: &str, nonsense: &str, busy: &str) {
    let found = rows(&["task-type-patterns"]);
    for (pattern, by, runs) in [
        ("supervisor", "model", "1"),
        ("react", "model", "2"),
        ("react", "fallback", "3"),
    ] {
        let wanted = [
            ("task_type", "general"),
            ("pattern", pattern),
            ("decided_by", by),
            ("runs", runs),
        ];
        assert!(has(&found, &wanted), "{wanted:?}: {found:?}");
    }
    let found = rows(&["failed-fan-outs"]);
    let wanted = [
        ("session", compared),
        ("started", "3"),
        ("failed", "1"),
        ("missing", "0"),
    ];
    assert!(has(&found, &wanted) && found.len() == 1, "{found:?}");
    let found = rows(&["slowest-steps"]);
    assert!(
        has(&found, &[("session", compared), ("step", "0")]),
        "{found:?}"
    );
    let found = rows(&["slowest-steps", "--param", "least=100000000"]);
    assert_eq!(found, []);
    let found = rows(&["conversation-spend"]);
    for (conversation, runs) in [("c1", "1"), ("c2", "2")] {
        let wanted = [("conversation", conversation), ("runs", runs)];
        assert!(has(&found, &wanted), "{found:?}");
    }
    let document = format!("document={PUMPS}");
    let found = rows(&["answers-from-document", "--param", &document]);
    assert!(has(&found, &[("session", compared)]), "{found:?}");
    let hows = |row: &BTreeMap<String, String>| {
        row.get("how")
            .is_some_and(|how| how == "cited" || how == "read")
    };
    assert!(found.iter().all(hows), "{found:?}");
    assert!(
        has(&found, &[("question", "read about pumps")]) && found.len() == 2,
        "{found:?}"
    );
    let found = rows(&["router-fallbacks"]);
    // The goals of the fan-out named no pattern.
    for (session, subject) in [
        (nonsense, "task-type"),
        (compared, "subagent-pattern-1"),
        (compared, "subagent-pattern-3"),
    ] {
        let wanted = [("session", session), ("subject", subject)];
        assert!(has(&found, &wanted), "{found:?}");
    }
    let subjects = found.iter().filter(|row| row["subject"] != "pattern");
    assert_eq!(subjects.count(), 4, "{found:?}");
    let found = rows(&["tool-use"]);
    let wanted = [("tool", "document-search"), ("calls", "1"), ("errors", "0")];
    assert!(has(&found, &wanted), "{found:?}");
    let found = rows(&["tool-errors"]);
    assert!(
        has(&found, &[("tool", "divine"), ("times", "1")]),
        "{found:?}"
    );
    let found = rows(&["failed-runs"]);
    let wanted = [("question", "fail at valves"), ("code", "model-failed")];
    assert!(has(&found, &wanted) && found.len() == 2, "{found:?}");
    let wanted = [("session", compared), ("partial", "true")];
    assert!(has(&found, &wanted), "{found:?}");
    let found = rows(&["retried-steps"]);
    let wanted = [("session", busy), ("wasted", "1")];
    assert!(has(&found, &wanted) && found.len() == 1, "{found:?}");
    assert_eq!(rows(&["waiting-fan-outs"]), []);
    let session = format!("session={compared}");
    let found = rows(&["decisions-of-session", "--param", &session]);
    let wanted = [
        ("subject", "pattern"),
        ("selected", "supervisor"),
        ("decided_by", "model"),
    ];
    assert!(has(&found, &wanted), "{found:?}");
}

#[test]
fn however_costs_are_grouped_they_add_up_to_what_the_records_say() {
    let fleet = Fleet::new();
    let compared = fleet.compared();
    let shown = said(&mut fleet.command(&["sessions", "show", compared, "--json"]));
    let total = fleet.cost(&["--session", compared])["total"].clone();
    let tokens =
        |row: &Value| row["tokens_in"].as_u64().unwrap() + row["tokens_out"].as_u64().unwrap();
    assert_eq!(tokens(&total), shown["tokens"].as_u64().unwrap());
    // 2 of a million in, 10 of a million out.
    let price =
        total["tokens_in"].as_u64().unwrap() * 2 + total["tokens_out"].as_u64().unwrap() * 10;
    assert_eq!(total["cost"], price as f64 / 1_000_000.0);
    for by in [
        "step",
        "agent",
        "tree",
        "conversation",
        "task-type",
        "pattern",
        "model",
    ] {
        let account = fleet.cost(&["--session", compared, "--by", by]);
        assert_eq!(account["total"], total, "{by}");
        let groups = account["groups"].as_array().unwrap();
        let sum = |name: &str| -> u64 {
            let all = groups.iter().map(|group| group[name].as_u64().unwrap());
            all.sum()
        };
        for name in [
            "steps",
            "tokens_in",
            "tokens_out",
            "model_calls",
            "tool_calls",
        ] {
            assert_eq!(sum(name), total[name].as_u64().unwrap(), "{by} {name}");
        }
    }
    assert_eq!(total["tool_calls"], 1);
    // A subagent's account is its own.
    let agents = fleet.cost(&["--session", compared, "--by", "agent"]);
    let agents = agents["groups"].as_array().unwrap();
    assert_eq!(agents.len(), 4);
    let child = agents.iter().find(|one| one["session"] != compared);
    let child = child.unwrap()["session"].as_str().unwrap();
    let own = fleet.cost(&["--session", child]);
    assert!(own["total"]["steps"].as_u64() < total["steps"].as_u64());
    // The try that failed is told apart; a call without a reply cost nothing.
    let busy = fleet.cost(&["--session", &fleet.asked["the busy line"]]);
    assert_eq!(
        busy["total"]["wasted"],
        json!({"attempts": 1, "tokens": 0, "cost": 0.0})
    );
    let none = json!({"attempts": 0, "tokens": 0, "cost": 0.0});
    assert_eq!(total["wasted"], none);
    let all = fleet.cost(&[]);
    assert_eq!(all["groups"].as_array().unwrap().len(), 3);
    let narrowed = fleet.cost(&["--conversation", "c1"]);
    assert_eq!(narrowed["total"], total);
    let elsewhere = fleet.cost(&["--collection", "elsewhere"]);
    assert_eq!(elsewhere["total"]["steps"], 0);
    let later = fleet.cost(&["--since", "2999-01-01"]);
    assert_eq!(later["total"]["steps"], 0);
    let recent = fleet.cost(&["--since", "1h"]);
    assert_eq!(recent["total"], all["total"]);
    let table = String::from_utf8(output(&mut fleet.command(&["cost"]))).unwrap();
    assert!(
        table.contains("1 attempt") && table.contains("total"),
        "{table}"
    );
}

#[test]
fn each_decision_is_explained_with_what_else_was_open() {
    let fleet = Fleet::new();
    let explained = said(&mut fleet.command(&["explain", fleet.compared(), "--json"]));
    let sessions = explained["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 4);
    assert_eq!(sessions[0]["depth"], 0);
    let decisions = sessions[0]["decisions"].as_array().unwrap();
    let subjects: Vec<&str> = decisions
        .iter()
        .map(|one| one["subject"].as_str().unwrap())
        .collect();
    assert_eq!(subjects[..3], ["task-type", "pattern", "fan-out"]);
    let pattern = &decisions[1];
    assert_eq!(pattern["chosen"], "supervisor");
    assert_eq!(pattern["decided_by"], "model");
    assert_eq!(pattern["signal"], "three parts");
    assert_eq!(pattern["rationale"], "they are apart");
    assert_eq!(pattern["tokens_in"], 100);
    let options = pattern["options"].as_array().unwrap();
    let react = options.iter().find(|one| one["name"] == "react").unwrap();
    assert_eq!(react["chosen"], false);
    assert!(!react["description"].as_str().unwrap().is_empty());
    let reader = sessions
        .iter()
        .find(|one| one["question"] == "read about pumps");
    let tool = &reader.unwrap()["decisions"][1];
    assert_eq!(
        (&tool["subject"], &tool["chosen"]),
        (&"tool".into(), &"document-search".into())
    );
    let options = tool["options"].as_array().unwrap();
    assert!(options.len() > 1, "{tool}");
    assert_eq!(tool["arguments"]["query"], "circulation pump");

    let told = output(&mut fleet.command(&["explain", fleet.compared()]));
    let told = String::from_utf8(told).unwrap();
    for part in [
        "pattern: supervisor  (chosen by the model)",
        "because: three parts",
        "● supervisor: ",
        "○ react: ",
        "pattern: react  (fallen back to)",
        "fan-out: fan-out  (chosen by the model)",
        "then: 1. read about pumps; 2. fail at valves; 3. guess at pipes",
        "subagent-pattern-1: react  (fallen back to)",
        "tool: document-search",
        "ended: answer (subagents-complete, in part)",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // What it means is told once, however often it is open.
    assert!(told.matches("● react: ").count() <= 1, "{told}");
    assert_eq!(told.matches("○ react: ").count(), 1, "{told}");
    let one = ["explain", fleet.compared(), "--step", "0", "--json"];
    let one = said(&mut fleet.command(&one));
    assert_eq!(one["sessions"].as_array().unwrap().len(), 1, "{one}");
    let of_one = one["sessions"][0]["decisions"].as_array().unwrap();
    assert!(of_one.iter().all(|choice| choice["step"] == 0), "{one}");
    let only = said(&mut fleet.command(&["explain", fleet.compared(), "--only", "--json"]));
    assert_eq!(only["sessions"].as_array().unwrap().len(), 1, "{only}");
    let says = refused(&mut fleet.command(&["explain", fleet.compared(), "--step", "99"]));
    assert!(says.contains("no step 99"), "{says}");
    // An option is described as it was then.
    let file = fleet.directory.path().join("react.json");
    std::fs::write(&file, r#"{"name": "react", "description": "NEW WORDS"}"#).unwrap();
    output(&mut fleet.command(&["config", "put", "agent-pattern", "react", "react.json"]));
    let again = output(&mut fleet.command(&["explain", fleet.compared()]));
    assert_eq!(String::from_utf8(again).unwrap(), told);
}

/// A copy of a fleet's data, to be changed while nothing works on it.
struct Copied<'a> {
    fleet: &'a Fleet,
    data: PathBuf,
}

impl Copied<'_> {
    fn database(&self) -> Connection {
        Connection::open(self.data.join("agentfleet.db")).unwrap()
    }

    fn settings(&self) -> Settings {
        let flags = Flags {
            data: Some(self.data.display().to_string()),
            ..Flags::default()
        };
        Settings::load(&flags).unwrap()
    }

    fn body(&self, key: &str) -> Option<Vec<u8>> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            let body = store.documents.get(key).await.unwrap();
            body.map(|body| body.to_vec())
        })
    }

    /// Changes the text of one object.
    fn edit(&self, key: &str, from: &str, to: &str) {
        let body = self
            .body(key)
            .unwrap_or_else(|| panic!("there is no {key}"));
        let text = String::from_utf8(body).unwrap();
        assert!(text.contains(from), "{key} has no {from}: {text}");
        self.put(key, text.replacen(from, to, 1).into_bytes());
    }

    /// Puts another object in the place of one, as the owner of the store can.
    fn put(&self, key: &str, body: Vec<u8>) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&self.settings()).await.unwrap();
            store.documents.delete(&[key.to_owned()]).await.unwrap();
            store.documents.create(key, body).await.unwrap();
        });
    }

    /// Changes the items of every version of the config.
    fn config(&self, change: impl Fn(&mut Vec<Value>)) {
        let versions = (1..).map(keys::config);
        let mut changed = false;
        for (key, body) in versions.map_while(|key| Some((key.clone(), self.body(&key)?))) {
            let mut book: Value = serde_json::from_slice(&body).unwrap();
            let before = book.clone();
            change(book["items"].as_array_mut().unwrap());
            changed |= book != before;
            self.put(&key, book.to_string().into_bytes());
        }
        assert!(changed, "the config is as it was");
    }

    fn run(&self, statement: &str) {
        let changed = self.database().execute(statement, []).unwrap();
        assert!(changed > 0, "{statement}");
    }

    /// Changes what the graph holds of a run.
    fn graph(&self, root: &str, change: impl Fn(&mut Vec<Triple>)) {
        let settings = self.settings();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let store = Store::open(&settings).await.unwrap();
            let (graph, _) = open_graph(&store, &settings, &|_, _| {}).await.unwrap();
            let all = "SELECT ?s ?p ?o FROM <urn:graph:retrieval> WHERE { ?s ?p ?o }";
            let found = graph.select(all, &[], QueryOptions::default()).await;
            let rows = found.unwrap().rows;
            let mut triples: Vec<Triple> = rows
                .into_iter()
                .map(|row| {
                    let mut cells = row.into_iter().map(Option::unwrap);
                    let (s, p) = (cells.next().unwrap(), cells.next().unwrap());
                    Triple::new(&s.iri, &p.iri, cells.next().unwrap())
                })
                .collect();
            let erased = graph.erase(EraseBy::Root(root.to_owned())).await.unwrap();
            assert!(erased.quads > 0);
            change(&mut triples);
            let rewritten = Batch {
                key: "rewritten".to_owned(),
                root: root.to_owned(),
                collection: "plant".to_owned(),
                conversation: String::new(),
                triples,
            };
            graph.insert(vec![rewritten]).await.unwrap();
        });
    }

    fn verify(&self, more: &[&str]) -> (i32, Value) {
        let arguments = [&["verify", self.fleet.compared(), "--json"], more].concat();
        let mut command = self.fleet.command_on(&self.data, &arguments);
        let output = command.output().unwrap();
        let report = serde_json::from_slice(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        (
            output.status.code().unwrap(),
            report.unwrap_or_else(|error| panic!("{error}: {said}")),
        )
    }

    /// Verification must name this, as one of its findings.
    fn is_found(&self, about: &str, what: &str, problem: &str) {
        let (code, report) = self.verify(&[]);
        assert_eq!(code, 7, "{report:#}");
        let findings = report["findings"].as_array().unwrap();
        let named = findings.iter().any(|one| {
            let text = |name: &str| one[name].as_str().unwrap().to_owned();
            text("about") == about
                && text("what").contains(what)
                && text("problem").contains(problem)
        });
        assert!(named, "{about} {what} {problem}: {findings:#?}");
    }
}

fn copied(fleet: &Fleet) -> Copied<'_> {
    let data = fleet.directory.path().join("copy");
    std::fs::remove_dir_all(&data).ok();
    copy(&fleet.data(), &data);
    Copied { fleet, data }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The last step of a session in a data directory, with its record.
fn last_step(copied: &Copied<'_>, session: &str) -> (u32, StepRecord) {
    let session = SessionId::from(session);
    let mut last = None;
    for step in 0.. {
        let Some(body) = copied.body(&keys::outcome(&session, step)) else {
            break;
        };
        last = Some((step, serde_json::from_slice(&body).unwrap()));
    }
    last.unwrap()
}

#[test]
fn whatever_is_changed_afterwards_is_found_and_named() {
    let fleet = Fleet::new();
    let root = fleet.compared();
    for session in fleet.asked.values() {
        let report = said(&mut fleet.command(&["verify", session, "--json"]));
        assert_eq!(report["ok"], true, "{report:#}");
        assert_eq!(report["ended"], true);
    }
    let head = fleet.directory.path().join("head.json");
    let head = head.display().to_string();
    let report = said(&mut fleet.command(&["verify", root, "--json", "--export", &head]));
    assert_eq!(report["checked"]["sessions"], 4);
    let exported: Value = serde_json::from_slice(&std::fs::read(&head).unwrap()).unwrap();
    assert_eq!(exported, report["head"]);
    assert_eq!(exported["subagents"].as_array().unwrap().len(), 3);
    // The graph has the same head.
    let digest = exported["digest"].as_str().unwrap();
    let ask = format!("ASK FROM <urn:graph:retrieval> {{ ?node tg:digest \"{digest}\" }}");
    let held = output(&mut fleet.command(&["query", &ask]));
    assert_eq!(String::from_utf8_lossy(&held).trim(), "true");

    let untouched = copied(&fleet);
    let (code, _) = untouched.verify(&["--against", &head]);
    assert_eq!(code, 0);
    let (last, _) = last_step(&untouched, root);
    let child = exported["subagents"][0]["session"].as_str().unwrap();
    let report = said(&mut fleet.command(&["verify", child, "--json"]));
    assert_eq!(report["ok"], true, "{report:#}");
    let step = |session: &str, n: u32| keys::outcome(&SessionId::from(session), n);

    // Records.
    let one = copied(&fleet);
    one.edit(&step(root, 0), "\"attempt\":1", "\"attempt\":2");
    one.is_found("record", &step(root, 0), "its identity is");
    let one = copied(&fleet);
    one.edit(&step(root, last), "\"attempt\":1", "\"attempt\":2");
    one.is_found(
        "triple",
        "/answer> <https://trustgraph.ai/ns/digest>",
        "was changed",
    );
    let one = copied(&fleet);
    one.edit(&step(root, 0), "\"user\\\"", "\"used\\\"");
    one.is_found("record", &step(root, 1), "answers a request");
    let one = copied(&fleet);
    one.run(&format!(
        "DELETE FROM objects WHERE key = '{}'",
        step(root, 1)
    ));
    one.is_found("record", &step(root, 2), "step 1 is missing");
    let one = copied(&fleet);
    one.run(&format!(
        "DELETE FROM objects WHERE key = '{}'",
        step(child, 1)
    ));
    one.is_found("triple", "/answer>", "no record tells it");
    one.is_found(
        "record",
        &step(child, 1),
        "is missing, and what it published",
    );

    // What cannot even be unpacked.
    let answer = uris::answer_document(&SessionId::from(child));
    for (about, key, what) in [
        ("record", step(child, 1), step(child, 1)),
        (
            "verdict",
            keys::fan_in(&SessionId::from(root), 1),
            keys::fan_in(&SessionId::from(root), 1),
        ),
        ("document", keys::document(&answer), answer.clone()),
    ] {
        let one = copied(&fleet);
        one.run(&format!(
            "UPDATE objects SET body = x'07ff' WHERE key = '{key}'"
        ));
        one.is_found(about, &what, "is damaged: it cannot be unpacked");
    }

    // Triples.
    let node = uris::answer(&SessionId::from(root));
    let one = copied(&fleet);
    one.graph(root, |triples| {
        triples.push(Triple::new(&node, tg::CONFIDENCE, Term::text("1.00")));
    });
    one.is_found("triple", "confidence> \"1.00\"", "no record tells it");
    let one = copied(&fleet);
    let strange = format!("{}/strange", uris::session(&SessionId::from(child)));
    one.graph(root, |triples| {
        triples.push(Triple::new(&strange, tg::ACTION, Term::text("x")));
    });
    one.is_found("triple", "/strange>", "no record tells it");
    let one = copied(&fleet);
    one.graph(root, |triples| {
        triples.retain(|triple| triple.p.iri != tg::SIGNAL);
    });
    one.is_found(
        "triple",
        "signal> \"three parts\"",
        "is missing in the graph",
    );
    let one = copied(&fleet);
    one.graph(root, |triples| {
        for triple in triples
            .iter_mut()
            .filter(|triple| triple.p.iri == tg::SIGNAL)
        {
            triple.o = Term::text("other reasons");
        }
    });
    one.is_found(
        "triple",
        "signal> \"other reasons\"",
        "tells \"three parts\"",
    );

    let one = copied(&fleet);
    one.graph(root, |triples| {
        let of_answer =
            |triple: &Triple| triple.s.iri == node && triple.p.iri == prov::WAS_DERIVED_FROM;
        triples.retain(|triple| !of_answer(triple));
    });
    one.is_found("triple", "#wasDerivedFrom>", "is missing in the graph");

    // Texts, and what joins the sessions.
    let document = uris::answer_document(&SessionId::from(child));
    let one = copied(&fleet);
    one.edit(&keys::document(&document), "so it is", "so be it");
    one.is_found("document", &document, "was written with the digest");
    let one = copied(&fleet);
    one.run(&format!(
        "DELETE FROM objects WHERE key = '{}'",
        keys::document(&document)
    ));
    one.is_found("document", &document, "is missing");
    let session = SessionId::from(root);
    let verdict = keys::fan_in(&session, 1);
    let one = copied(&fleet);
    one.edit(&verdict, "\"answered\"", "\"timeout\"");
    one.is_found("verdict", &verdict, "ended as `timeout`");
    one.is_found("verdict", &verdict, "not what the synthesis read");

    // What lies beside the chain, too: fan-outs, what was taken in, what the attempts at a step paid.
    let fan_out = keys::fan_out(&session, 1);
    let accepted = keys::accepted(&session);
    let debit = keys::debit(&session, 1, 1);
    for (about, key, from, to, problem) in [
        (
            "fan-out",
            &fan_out,
            "read about pumps",
            "read about pipes",
            "other subagents",
        ),
        (
            "fan-out",
            &fan_out,
            r#""topic":"agent-request""#,
            r#""topic":"elsewhere""#,
            "topic `elsewhere`",
        ),
        (
            "fan-out",
            &fan_out,
            r#""step":"2""#,
            r#""step":"1""#,
            "other properties than the step had: `step`",
        ),
        (
            "fan-out",
            &fan_out,
            r#""max_depth":"#,
            r#""max_depth":1"#,
            "allots",
        ),
        (
            "record",
            &accepted,
            r#""user":""#,
            r#""user":"eve"#,
            "has the user `eve`",
        ),
        (
            "record",
            &accepted,
            r#""root":""#,
            r#""root":"x"#,
            "has the root in its message",
        ),
        (
            "record",
            &debit,
            r#""reserved""#,
            r#""settled":{"tokens":9},"reserved""#,
            "says that the calls before it came to 9",
        ),
    ] {
        let one = copied(&fleet);
        one.edit(key, from, to);
        one.is_found(about, key, problem);
    }
    let busy = SessionId::from(fleet.asked["the busy line"].as_str());
    let gone = keys::debit(&busy, 0, 1);
    let one = copied(&fleet);
    one.run(&format!("DELETE FROM objects WHERE key = '{gone}'"));
    let report = one
        .fleet
        .command_on(&one.data, &["verify", busy.as_str(), "--json"])
        .output();
    let report: Value = serde_json::from_slice(&report.unwrap().stdout).unwrap();
    assert!(report.to_string().contains(&gone), "{report:#}");

    // The config as it was then.
    let one = copied(&fleet);
    one.config(|items| items.retain(|item| item["key"] != "research"));
    one.is_found(
        "choice",
        "decision `task-type`",
        "has the option `research`",
    );
    let one = copied(&fleet);
    one.config(|items| {
        for item in items
            .iter_mut()
            .filter(|item| item["key"] == "document-search")
        {
            let value = item["value"]
                .to_string()
                .replace("\"default\"", "\"other\"");
            item["value"] = serde_json::from_str(&value).unwrap();
        }
    });
    one.is_found(
        "choice",
        "tool of iteration 1",
        "has the option `document-search`",
    );
    let one = copied(&fleet);
    one.config(Vec::clear);
    one.is_found(
        "choice",
        "decision `pattern`",
        "has the option `supervisor`",
    );
}

/// Who owns both stores can make them agree; the head that was kept elsewhere does not.
#[test]
fn a_rewrite_of_both_stores_is_found_by_an_exported_head() {
    let fleet = Fleet::new();
    let root = fleet.compared();
    let head = fleet.directory.path().join("head.json");
    let head = head.display().to_string();
    output(&mut fleet.command(&["verify", root, "--export", &head]));
    let one = copied(&fleet);
    let (step, mut record) = last_step(&one, root);
    record.usage.input_tokens += 1;
    record.total.tokens += 1;
    let body = serde_json::to_vec(&record).unwrap();
    let told = tell_as(&record, &identity(&body).unwrap());
    let key = keys::outcome(&SessionId::from(root), step);
    one.put(&key, serde_json::to_vec(&record).unwrap());
    one.graph(root, |triples| {
        triples.retain(|triple| triple.s.iri != told.node);
        triples.extend(told.triples.iter().cloned());
    });
    let (code, report) = one.verify(&[]);
    assert_eq!(code, 0, "{report:#}");
    let (code, report) = one.verify(&["--against", &head]);
    assert_eq!(code, 7);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0]["about"], "head");
    assert_eq!(findings[0]["what"], key.as_str());
}

/// The same on servers: nothing of it rests on the embedded parts.
#[test]
fn runs_on_servers_are_verified_explained_and_summed_alike() {
    let place = Place::new();
    let script = script(place.directory.path());
    let files = place.path("files");
    std::fs::create_dir(&files).unwrap();
    let text = "# Pumps\n\nThe circulation pump Orkan-7 delivers 340 litres per minute.\n";
    std::fs::write(files.join("pumps.md"), text).unwrap();
    let files = files.display().to_string();
    output(&mut place.command(&["load", &files, "--collection", "plant"]));
    let _fleet: Vec<Process> = ROLES
        .iter()
        .map(|role| place.start(role, &script))
        .collect();
    let mut asked = BTreeMap::new();
    for (question, conversation) in QUESTIONS {
        let ask = ["ask", question, "--collection", "plant"];
        let more = ["--conversation", conversation, "--id", question, "--json"];
        output(&mut place.command(&[&ask[..], &more].concat()));
        let list = || place.cli(&["sessions", "list", "--json"]);
        asked.insert(question, session_of(question, list));
    }
    for session in asked.values() {
        let report = place.cli(&["verify", session, "--json"]);
        assert_eq!(report["ok"], true, "{report:#}");
        assert_eq!(report["ended"], true);
    }
    check_queries(
        &|arguments| {
            let arguments = [&["query"], arguments, &["--format", "json"]].concat();
            rows(&place.cli(&arguments))
        },
        &asked["Juxtapose the plants"],
        &asked["nonsense words"],
        &asked["the busy line"],
    );
    let compared = &asked["Juxtapose the plants"];
    let shown = place.cli(&["sessions", "show", compared, "--json"]);
    let total = &place.cli(&["cost", "--session", compared, "--json"])["total"];
    let tokens = total["tokens_in"].as_u64().unwrap() + total["tokens_out"].as_u64().unwrap();
    assert_eq!(tokens, shown["tokens"].as_u64().unwrap());
    let explained = place.cli(&["explain", compared, "--json"]);
    assert_eq!(explained["sessions"].as_array().unwrap().len(), 4);
}
