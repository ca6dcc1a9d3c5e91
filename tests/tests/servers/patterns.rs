//! Every pattern through the program itself, with a model that follows a script: a plan that is
//! revised, an answer that is sent back, a disagreement, a message for two specialists. On the embedded
//! parts, and on servers with single roles.

use agentfleet_tests::load::{Process, binary, output, said};
use agentfleet_tests::place::{Place, ROLES};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn script(directory: &Path) -> PathBuf {
    let says = |operation: &str, contains: &str, text: Value| {
        let text = text
            .as_str()
            .map_or_else(|| text.to_string(), str::to_owned);
        let mut rule = json!({"operation": operation, "text": text,
                              "usage": {"input_tokens": 10, "output_tokens": 2}});
        if !contains.is_empty() {
            rule["contains"] = contains.into();
        }
        rule
    };
    let once = |mut rule: Value| {
        rule["times"] = 1.into();
        rule
    };
    let first = |mut rule: Value| {
        rule["steps"] = 0.into();
        rule
    };
    let search = "Thought: look\nAction: document-search\nArgs: {\"query\": \"pump\"}";
    let compared = |agreement: &str, points: &[&str]| {
        json!({"agreement": agreement, "reason": "the lease", "disagreements": points,
               "positions": [{"reasoner": "sceptic", "position": "wait"}]})
    };
    let rules = json!({"rules": [
        says("plan-create", "", json!({"thought": "in order", "steps": [
            {"goal": "find the owner", "tool_hint": "document-search", "depends_on": []},
            {"goal": "read the lost register", "depends_on": [0]},
            {"goal": "compare both", "depends_on": [0, 1]},
        ]})),
        says("plan-step-execute", "compare again", "Final Answer: It fits.".into()),
        says("plan-step-execute", "", search.into()),
        says("plan-step-assess", "Goal of the step:\nread the lost register",
             json!({"status": "failed", "reason": "it is lost", "result": ""})),
        says("plan-step-assess", "", json!({"status": "complete", "reason": "r", "result": "Ada."})),
        says("plan-revise", "", json!({"thought": "without it", "steps": [
            {"goal": "compare again", "depends_on": [0]},
        ]})),
        says("plan-synthesise", "Recipes do best", "Recipes every week.".into()),
        says("plan-synthesise", "", "Ada owns it.".into()),
        once(says("reflexion-critique", "<answer>",
             json!({"decision": "go-back", "wrong": "no source", "next": "name it"}))),
        says("reflexion-critique", "", json!({"decision": "go-on", "wrong": "", "next": "on"})),
        says("agent-react", "part in a debate as sceptic", "Final Answer: Wait.".into()),
        says("agent-react", "part in a debate", "Final Answer: Go.".into()),
        once(says("debate-compare", "", compared("disagree", &["the lease"]))),
        says("debate-compare", "", compared("agree", &[])),
        says("debate-judge", "", "Go, with a clause.".into()),
        says("intent-classify", "", json!({
            "intent": "content_creation", "confidence": 0.9, "specialist": "blog", "services": [],
            "entities": [], "time_scope": "future", "action_required": false, "multi_step": true,
            "steps": [
                {"specialist": "analytics", "task": "find what does best", "depends_on": []},
                {"specialist": "blog", "task": "make a calendar", "depends_on": ["step_1"]},
            ],
        })),
        says("agent-react", "make a calendar", "Final Answer: A calendar of recipes.".into()),
        says("agent-react", "find what does best", "Final Answer: Recipes do best.".into()),
        first(says("agent-react", "", search.into())),
        says("agent-react", "", "Thought: enough\nFinal Answer: It is Ada's.".into()),
    ]});
    let path = directory.join("script.json");
    std::fs::write(&path, rules.to_string()).unwrap();
    path
}

/// What a session's steps are, by kind of what they show.
fn kinds(trace: &Value, session: usize) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for step in trace["sessions"][session]["steps"].as_array().unwrap() {
        let kind = step["note"].as_str().or(step["kind"].as_str()).unwrap();
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}

fn every_pattern_works(command: impl Fn(&[&str]) -> Command) {
    for (pattern, answer, sessions, expected) in [
        (
            "plan-then-execute",
            "Ada owns it.",
            1,
            json!({"plan": 2, "step-result": 3, "iteration": 2, "decision": 3}),
        ),
        (
            "reflexion",
            "It is Ada's.",
            1,
            json!({"iteration": 2, "critique": 3, "decision": 3}),
        ),
        (
            "debate",
            "Go, with a clause.",
            7,
            json!({"fan-out": 2, "synthesis": 2, "comparison": 2, "decision": 2}),
        ),
        (
            "router",
            "Recipes every week.",
            3,
            json!({"decision": 2, "plan": 1, "fan-out": 2, "synthesis": 2, "step-result": 2}),
        ),
    ] {
        let told = output(&mut command(&[
            "ask",
            "--pattern",
            pattern,
            "What of the mill?",
        ]));
        let told = String::from_utf8(told).unwrap();
        assert!(told.starts_with(answer), "{pattern}: {told}");
        // The graph may be a moment behind.
        let session = loop {
            let runs = said(&mut command(&[
                "sessions",
                "list",
                "--pattern",
                pattern,
                "--json",
            ]));
            if let Some(session) = runs[0]["session"].as_str() {
                break session.to_owned();
            }
        };
        let trace = loop {
            let trace = said(&mut command(&["trace", &session, "--format", "json"]));
            if trace["running"] == false {
                break trace;
            }
        };
        assert_eq!(
            trace["sessions"].as_array().unwrap().len(),
            sessions,
            "{pattern}"
        );
        assert_eq!(json!(kinds(&trace, 0)), expected, "{pattern}");
        output(&mut command(&["replay", &session]));
        output(&mut command(&["verify", &session]));
    }
}

#[test]
fn every_pattern_works_on_the_embedded_parts() {
    let directory = tempfile::tempdir().unwrap();
    let model = format!("scripted:{}", script(directory.path()).display());
    every_pattern_works(|arguments| {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", directory.path().join("data"))
            .env("AGENTFLEET_MODEL", &model)
            .env("AGENTFLEET_LOG", "error");
        command
    });
}

#[test]
fn every_pattern_works_on_servers() {
    let place = Place::new();
    let script = script(place.directory.path());
    let _fleet: Vec<Process> = ROLES.map(|role| place.start(role, &script)).into();
    every_pattern_works(|arguments| place.command(arguments));
}
