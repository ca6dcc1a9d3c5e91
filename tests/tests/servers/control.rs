//! Bounds and control of runs through the program itself, with a model that follows a script: budgets,
//! joins, loops, task types, cancelling. On the embedded parts, and on servers with single roles.

use agentfleet_tests::load::{Process, binary, output, refused, said, session_of};
use agentfleet_tests::place::{Place, ROLES};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longer than any test waits: a call that is not dropped keeps its worker for ever.
const FOR_EVER: u64 = 36_000_000;

fn script(directory: &Path) -> PathBuf {
    let says = |operation: &str, contains: &str, text: Value| {
        let text = text
            .as_str()
            .map_or_else(|| text.to_string(), str::to_owned);
        let mut rule = json!({"operation": operation, "text": text,
                              "usage": {"input_tokens": 2_900, "output_tokens": 100}});
        if !contains.is_empty() {
            rule["contains"] = contains.into();
        }
        rule
    };
    let search = |what: &str| {
        format!("Thought: look\nAction: document-search\nArgs: {{\"query\": \"{what}\"}}")
    };
    let at = |steps: u32, mut rule: Value| {
        rule["steps"] = steps.into();
        rule
    };
    let slow = |mut rule: Value| {
        rule["pause-ms"] = FOR_EVER.into();
        rule["words"] = true.into();
        rule
    };
    let goals = |of: &str| {
        let goals = ["north", "south", "west"].map(|side| json!({"goal": format!("{of} {side}")}));
        json!({"thought": "each side", "goals": goals})
    };
    let mut rules = vec![
        says(
            "task-type-classify",
            "",
            json!({"choice": "survey", "signal": "s", "rationale": "r"}),
        ),
        says("supervisor-decompose", "slow survey", goals("slow")),
        says("supervisor-decompose", "", goals("quick")),
        says(
            "supervisor-review",
            "",
            json!({"decision": "answer", "signal": "s", "rationale": "r"}),
        ),
        says("supervisor-synthesise", "", "All sides are known.".into()),
        slow(says(
            "agent-react",
            "slow west",
            "Final Answer: never".into(),
        )),
        says("agent-react", "slow ", "Final Answer: it is dry".into()),
        says("agent-react", "round in circles", search("pump").into()),
        says(
            "agent-react",
            "When done, say so",
            "Final Answer: by the other prompt".into(),
        ),
        says(
            "agent-react",
            "no tool can be used any more",
            "Final Answer: what there is".into(),
        ),
    ];
    // One search after the other, each for something else.
    for step in 0..8 {
        rules.push(at(
            step,
            says("agent-react", "", search(&format!("pump {step}")).into()),
        ));
    }
    let path = directory.join("script.json");
    std::fs::write(&path, json!({"rules": rules}).to_string()).unwrap();
    path
}

/// Asks, and returns the answer with the session.
fn asked(command: &impl Fn(&[&str]) -> Command, arguments: &[&str]) -> (String, String) {
    let mut all = vec!["ask"];
    all.extend(arguments);
    let text = String::from_utf8(output(&mut command(&all))).unwrap();
    let list = || said(&mut command(&["sessions", "list", "--json"]));
    let session = session_of(arguments.last().unwrap(), list);
    (text, session)
}

/// The graph may be a moment behind.
fn traced(command: &impl Fn(&[&str]) -> Command, session: &str) -> Value {
    loop {
        let trace = said(&mut command(&["trace", session, "--format", "json"]));
        if trace["running"] == false {
            return trace;
        }
    }
}

/// The same of a tree of so many sessions, each with its end: one that nobody waits for ends after its root.
fn ended(command: &impl Fn(&[&str]) -> Command, session: &str, sessions: usize) -> Value {
    loop {
        let trace = traced(command, session);
        let all = trace["sessions"].as_array().unwrap();
        assert!(all.len() <= sessions, "{trace}");
        if all.len() == sessions && all.iter().all(|one| !one["conclusion"].is_null()) {
            return trace;
        }
    }
}

/// Worked again it comes to the same, and nothing of it was changed.
fn holds(command: &impl Fn(&[&str]) -> Command, session: &str) {
    traced(command, session);
    output(&mut command(&["replay", session]));
    output(&mut command(&["verify", session]));
}

fn runs_are_bounded_and_steered(command: impl Fn(&[&str]) -> Command) {
    let command = &command;
    // Budgets: of calls, of tools, of tokens in a tree.
    let (text, session) = asked(
        command,
        &["--pattern", "react", "--max-model-calls", "3", "Bound one"],
    );
    // The third is kept for the answer.
    assert!(text.starts_with("what there is"), "{text}");
    holds(command, &session);
    let explained = said(&mut command(&["explain", &session, "--json"]));
    let last = explained["sessions"][0]["decisions"].as_array().unwrap();
    let last = last.last().unwrap();
    assert_eq!(last["subject"], "answer-now", "{last}");
    assert_eq!(last["signal"], "the budget of 3 model calls has one left");
    let cost = said(&mut command(&["cost", "--session", &session, "--json"]));
    assert_eq!(cost["total"]["model_calls"], 3);
    let reason = "SELECT ?r FROM <urn:graph:retrieval> WHERE { ?e tg:terminationReason ?r ; prov:wasGeneratedBy ?s \
                  FILTER(STRENDS(STR(?s), \"SESSION\")) }";
    let reason = |session: &str| {
        let query = reason.replace("SESSION", session);
        let found = output(&mut command(&["query", &query, "--format", "csv"]));
        String::from_utf8(found)
            .unwrap()
            .lines()
            .nth(1)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    assert_eq!(reason(&session), "final-answer");
    let (text, session) = asked(
        command,
        &["--pattern", "react", "--max-tool-calls", "1", "Bound two"],
    );
    assert!(text.starts_with("what there is"), "{text}");
    assert!(
        text.contains("**Incomplete:** the budget of 1 tool calls is used up"),
        "{text}"
    );
    holds(command, &session);
    let (text, session) = asked(
        command,
        &[
            "--pattern",
            "supervisor",
            "--max-tokens",
            "59625",
            "A quick survey",
        ],
    );
    assert!(text.contains("All sides are known."), "{text}");
    holds(command, &session);
    let cost = said(&mut command(&["cost", "--session", &session, "--json"]));
    let spent = cost["total"]["tokens_in"].as_u64().unwrap()
        + cost["total"]["tokens_out"].as_u64().unwrap();
    // A fifth of 56,625 stays, and 15,100 are for each: after three calls of 3,000 less than three are
    // left, so the fourth is the answer.
    assert_eq!(spent, 3_000 + 3 * 12_000 + 6_000, "{cost}");
    assert_eq!(reason(&session), "subagents-complete");
    // Loops.
    let (text, session) = asked(command, &["--pattern", "react", "Go round in circles"]);
    assert!(text.contains("again, after it was told"), "{text}");
    holds(command, &session);
    assert_eq!(reason(&session), "repeated-action");
    // A quorum does not wait for the third, and ends it.
    let (text, session) = asked(
        command,
        &[
            "--pattern",
            "supervisor",
            "--join",
            "quorum",
            "A slow survey",
        ],
    );
    assert!(text.starts_with("All sides are known."), "{text}");
    assert!(!text.contains("Incomplete"), "{text}");
    let trace = ended(command, &session, 4);
    let states: Vec<&str> = trace["sessions"].as_array().unwrap()[1..]
        .iter()
        .map(|one| one["conclusion"]["termination"].as_str().unwrap_or("-"))
        .collect();
    assert_eq!(
        states,
        ["final-answer", "final-answer", "cancelled"],
        "{trace}"
    );
    holds(command, &session);
    // What a task type settles, and what it leaves to callers.
    let put = |kind: &str, key: &str, item: Value| {
        let file =
            std::env::temp_dir().join(format!("agentfleet-{}-{key}.json", std::process::id()));
        std::fs::write(&file, item.to_string()).unwrap();
        output(&mut command(&[
            "config",
            "put",
            kind,
            key,
            &file.display().to_string(),
        ]));
        std::fs::remove_file(file).unwrap();
    };
    put(
        "prompt",
        "react-of-surveys",
        json!({"prompt": "When done, say so. {{ question }} {{ framing }}"}),
    );
    put(
        "agent-task-type",
        "survey",
        json!({
            "name": "survey", "valid_patterns": ["react"], "prompts": {"agent-react": "react-of-surveys"},
            "termination": {"done_when": "every side was looked at"}, "fixed": ["framing"],
            "most": {"max_tokens": 50_000},
        }),
    );
    let refusal = refused(&mut command(&[
        "ask",
        "--task-type",
        "survey",
        "--framing",
        "Mine.",
        "Survey",
    ]));
    assert!(
        refusal.contains("does not let callers choose `framing`"),
        "{refusal}"
    );
    let (text, session) = asked(command, &["--task-type", "survey", "Survey it"]);
    assert!(text.starts_with("by the other prompt"), "{text}");
    holds(command, &session);
    // Cancelling a tree with a call at work.
    let run = said(&mut command(&[
        "ask",
        "--pattern",
        "supervisor",
        "--detach",
        "--json",
        "Another slow survey",
    ]));
    let root = run["session_id"].as_str().unwrap();
    loop {
        // Refused while nothing is committed of it.
        let traced = command(&["trace", root, "--format", "json"]).output();
        let trace: Value = serde_json::from_slice(&traced.unwrap().stdout).unwrap_or_default();
        let sessions = trace["sessions"].as_array().cloned().unwrap_or_default();
        // The third leaves nothing: it stays in the middle of its first call.
        assert!(sessions.len() <= 3, "{trace}");
        let answered = |one: &&Value| one["conclusion"]["termination"] == "final-answer";
        // What the root left may reach the graph after what its subagents left.
        if sessions.len() == 3 && sessions.iter().filter(answered).count() == 2 {
            break;
        }
    }
    output(&mut command(&["cancel", root]));
    ended(command, root, 4);
    holds(command, root);
}

#[test]
fn runs_are_bounded_and_steered_on_the_embedded_parts() {
    let directory = tempfile::tempdir().unwrap();
    let model = format!("scripted:{}", script(directory.path()).display());
    let command = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", directory.path().join("data"))
            .env("AGENTFLEET_MODEL", &model)
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_LEASE", "3s")
            .env("AGENTFLEET_GRACE", "1h")
            .env("AGENTFLEET_LOG", "error");
        command
    };
    let mut up = Process::start("up", &mut command(&["up", "--json"]), "url");
    runs_are_bounded_and_steered(command);
    // It waits for what is in flight: what nobody waits for any more was dropped.
    up.stop();
}

#[test]
fn runs_are_bounded_and_steered_on_servers() {
    let place = Place::new();
    let script = script(place.directory.path());
    let mut fleet: Vec<Process> = ROLES.map(|role| place.start(role, &script)).into();
    runs_are_bounded_and_steered(|arguments| place.command(arguments));
    for process in &mut fleet {
        process.stop();
    }
}
