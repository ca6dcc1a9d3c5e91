//! Task types that past runs call for, through the program itself: proposed, ignored by the router,
//! approved or rejected by a person, and then in force or not proposed again.

use agentfleet_tests::load::{binary, output, refused, said};
use serde_json::{Value, json};
use std::process::Command;

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// A model that takes a question for what it is about as soon as that is on offer.
    fn new() -> Self {
        let place = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let says = |operation: &str, contains: &[&str], text: Value| {
            let text = text
                .as_str()
                .map_or_else(|| text.to_string(), str::to_owned);
            json!({"operation": operation, "contains": contains, "text": text,
                   "usage": {"input_tokens": 10, "output_tokens": 2}})
        };
        let choice = |name: &str| json!({"choice": name, "signal": "s", "rationale": "r"});
        let search = "Thought: look\nAction: document-search\nArgs: {\"query\": \"mill\"}";
        let rules = json!({"rules": [
            says("task-type-classify", &["archive"], choice("research")),
            says("task-type-classify", &["the valve"], "no idea".into()),
            says("task-type-classify", &["pump-seal", "seal of"], choice("pump-seal")),
            says("task-type-classify", &[], choice("general")),
            says("pattern-select", &[], choice("react")),
            says("agent-react", &["archive"], search.into()),
            says("agent-react", &[], "Thought: t\nFinal Answer: So it is.".into()),
        ]});
        let path = place.directory.path().join("script.json");
        std::fs::write(path, rules.to_string()).unwrap();
        place
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        let at = self.directory.path();
        command
            .args(arguments)
            .current_dir(at)
            .env("HOME", at)
            .env("AGENTFLEET_DATA", at.join("data"))
            .env("AGENTFLEET_LOG", "error")
            .env(
                "AGENTFLEET_MODEL",
                format!("scripted:{}", at.join("script.json").display()),
            );
        command
    }

    fn ask(&self, question: &str, more: &[&str]) {
        output(&mut self.command(&[&["ask", question], more].concat()));
    }

    fn json(&self, arguments: &[&str]) -> Value {
        said(&mut self.command(&[arguments, &["--json"]].concat()))
    }

    /// What the newest run was taken for.
    fn taken_for(&self, question: &str) -> String {
        let runs = self.json(&["sessions", "list"]);
        let run = runs
            .as_array()
            .unwrap()
            .iter()
            .find(|run| run["question"] == question);
        let session = run.unwrap()["session"].as_str().unwrap().to_owned();
        let trace = said(&mut self.command(&["trace", &session, "--format", "json"]));
        trace.to_string()
    }
}

#[test]
fn what_is_discovered_is_in_force_when_a_person_approves_it_and_not_before() {
    let place = Place::new();
    let nothing = output(&mut place.command(&["discover"]));
    assert_eq!(String::from_utf8(nothing).unwrap(), "Nothing to propose.\n");
    for question in [
        "Replace the seal of pump A",
        "Does the seal of a pump leak?",
        "Which seal fits the pump?",
        "Open the valve of the boiler",
        "Close the valve at the boiler",
        "Is the valve on the boiler tight?",
    ] {
        place.ask(question, &[]);
    }
    for question in [
        "What is in the archive of the mill?",
        "Ask the mill archive",
    ] {
        place.ask(question, &["--max-iterations", "1"]);
    }
    let few = place.json(&["discover", "--min-runs", "4"]);
    assert_eq!(few["proposed"], json!([]));
    assert_eq!(few["largest_group_left"], 3);
    let found = place.json(&["discover", "--min-runs", "2"]);
    let proposed = found["proposed"].as_array().unwrap();
    let item = |key: &str| {
        let of_key = |one: &&Value| one["key"] == key;
        let found = proposed
            .iter()
            .find(of_key)
            .unwrap_or_else(|| panic!("{key}: {found}"));
        found["item"].clone()
    };
    let new = item("pump-seal");
    assert_eq!(new["status"], "proposed");
    assert_eq!(new["evidence"]["runs"], 3);
    assert_eq!(new["evidence"]["ended"], json!({"final-answer": 3}));
    let named = new["evidence"]["sessions"].as_array().unwrap();
    assert!(
        named
            .iter()
            .any(|run| run["question"] == "Which seal fits the pump?")
    );
    assert_eq!(
        item("boiler-valve")["evidence"]["runs"],
        3,
        "what nobody could place counts"
    );
    let better = item("research-archive-mill");
    assert_eq!(better["improves"], "research");
    assert_eq!(better["evidence"]["ended"], json!({"max-iterations": 2}));
    assert!(
        better["framing_prompt"]
            .as_str()
            .unwrap()
            .contains("Settle first")
    );

    // The router does not know it, nor may a caller name it.
    place.ask("Replace the seal of pump B", &[]);
    assert!(
        !place
            .taken_for("Replace the seal of pump B")
            .contains("pump-seal")
    );
    let fork = place.json(&["sessions", "list"])[0]["session"].clone();
    let fork = [
        "fork",
        fork.as_str().unwrap(),
        "--at",
        "0",
        "--task-type",
        "pump-seal",
    ];
    assert!(refused(&mut place.command(&fork)).contains("unknown task type `pump-seal`"));

    let told = output(&mut place.command(&["discover", "approve", "pump-seal", "--as", "Ada"]));
    assert!(
        String::from_utf8(told)
            .unwrap()
            .starts_with("approved by Ada: pump-seal")
    );
    output(&mut place.command(&["discover", "reject", "boiler-valve", "--as", "Ben"]));
    output(&mut place.command(&[
        "discover",
        "approve",
        "research-archive-mill",
        "--as",
        "Ada",
    ]));
    place.ask("Replace the seal of pump C", &[]);
    assert!(
        place
            .taken_for("Replace the seal of pump C")
            .contains("pump-seal")
    );
    let run = place.json(&["sessions", "list"])[0]["session"].clone();
    output(&mut place.command(&["verify", run.as_str().unwrap()]));
    output(&mut place.command(&["replay", run.as_str().unwrap()]));
    let research = said(&mut place.command(&["config", "get", "agent-task-type", "research"]));
    assert!(
        research["framing_prompt"]
            .as_str()
            .unwrap()
            .contains("Settle first")
    );
    let history = place.json(&["config", "history", "agent-task-type", "pump-seal"]);
    let authors: Vec<_> = history
        .as_array()
        .unwrap()
        .iter()
        .map(|v| &v["author"])
        .collect();
    assert_eq!(authors, ["Ada", "discover"]);

    // Decided once is decided.
    place.ask("Open the valve of the boiler again", &[]);
    let again = place.json(&["discover", "--min-runs", "2"]);
    assert_eq!(again["proposed"], json!([]), "{again}");
    assert!(again["known"].to_string().contains("rejected"));
    let listed = output(&mut place.command(&["discover", "list"]));
    let listed = String::from_utf8(listed).unwrap();
    for part in [
        "pump-seal: a new task type, approved\n    by Ada",
        "boiler-valve: a new task type, rejected\n    by Ben",
        "research-archive-mill: a framing for `research`, applied\n    by Ada",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let twice = refused(&mut place.command(&["discover", "reject", "boiler-valve", "--as", "Ben"]));
    assert!(
        twice.contains("`boiler-valve` is rejected already"),
        "{twice}"
    );
}
