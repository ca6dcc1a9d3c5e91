//! Calls that wait for a person, through the program itself: everything is killed and started again
//! between the question and the answer. On the embedded parts, and on servers with single roles.

use agentfleet_tests::load::{
    Process, Starts, binary, output, refused, said, service, started_once,
};
use agentfleet_tests::place::{Place, ROLES};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn script(directory: &Path) -> PathBuf {
    let pay = "Thought: it is due\nAction: pay\nArgs: {\"amount\": \"5\"}";
    let rules = json!({"rules": [
        {"operation": "agent-react", "steps": 0, "text": pay},
        {"operation": "agent-react", "contains": "denied by", "text": "Final Answer: Not paid."},
        {"operation": "agent-react", "text": "Thought: done\nFinal Answer: Paid."},
    ]});
    let path = directory.join("script.json");
    std::fs::write(&path, rules.to_string()).unwrap();
    path
}

/// A tool with side effects that a person must approve.
fn tool(directory: &Path, port: u16) -> PathBuf {
    let tool = json!({
        "name": "pay", "type": "http", "description": "pays a bill",
        "url": format!("http://127.0.0.1:{port}/pay"), "method": "POST", "side-effects": true,
        "arguments": [{"name": "amount", "description": "how much"}],
        "approval": {"timeout-ms": 3_600_000, "reason": "it cannot be taken back"},
    });
    let path = directory.join("pay.json");
    std::fs::write(&path, tool.to_string()).unwrap();
    path
}

/// Asks, and waits until a person is asked.
fn asked(command: &impl Fn(&[&str]) -> Command) -> (String, String) {
    let question = [
        "ask",
        "--detach",
        "--json",
        "--pattern",
        "react",
        "Pay the bill",
    ];
    let taken = said(&mut command(&question));
    let session = taken["session_id"].as_str().unwrap().to_owned();
    loop {
        let list = ["approvals", "list", "--session", &session, "--json"];
        let open = said(&mut command(&list));
        if let Some(one) = open.as_array().and_then(|open| open.first()) {
            assert_eq!(one["tool"], "pay");
            assert_eq!(one["arguments"], json!({"amount": "5"}));
            assert_eq!(one["reason"], "it cannot be taken back");
            return (session, one["id"].as_str().unwrap().to_owned());
        }
    }
}

fn answer(command: &impl Fn(&[&str]) -> Command, session: &str) -> String {
    let told = output(&mut command(&["attach", session]));
    String::from_utf8(told).unwrap()
}

/// The decision about the call, as the graph tells it.
fn decision(command: &impl Fn(&[&str]) -> Command, session: &str) -> Value {
    let trace = loop {
        let trace = said(&mut command(&["trace", session, "--format", "json"]));
        if trace["running"] == false {
            break trace;
        }
    };
    let steps = trace["sessions"][0]["steps"].as_array().unwrap().clone();
    let asked = steps.iter().find(|step| step["note"] == "approval");
    assert!(asked.is_some(), "{steps:?}");
    let found = steps.into_iter().find(|step| step["subject"] == "approval");
    found.expect("a decision")
}

/// Waits for people are answered after everything was started again. `fleet` starts it.
fn people_are_waited_for(
    command: impl Fn(&[&str]) -> Command,
    fleet: impl Fn() -> Vec<Process>,
    starts: &Starts,
) {
    let mut processes = fleet();
    let (session, id) = asked(&command);
    let (denied, no) = asked(&command);
    let (cancelled, gone) = asked(&command);
    for process in &mut processes {
        process.kill();
    }
    drop(processes);

    // Nothing runs, and what waits is there.
    let shown = said(&mut command(&["approvals", "show", &id, "--json"]));
    assert_eq!(
        (&shown["state"], &shown["session"]),
        (&json!("open"), &json!(session))
    );
    let shown = said(&mut command(&["sessions", "show", &session, "--json"]));
    assert_eq!(shown["state"], "waiting");
    assert_eq!(started_once(starts), 0);

    // One letter of an id is a slip of the finger.
    let says = refused(&mut command(&[
        "approvals",
        "approve",
        &id[..1],
        "--as",
        "ada",
    ]));
    assert!(says.contains("give at least 6 characters"), "{says}");

    let edited = ["approvals", "edit", &id, "--set", "sum=4", "--as", "ada"];
    let says = refused(&mut command(&edited));
    assert!(says.contains("unknown argument `sum`"), "{says}");
    let edited = [
        "approvals",
        "edit",
        &id,
        "--set",
        "amount=4",
        "--as",
        "ada",
        "--reason",
        "enough",
    ];
    output(&mut command(&edited));
    let says = refused(&mut command(&["approvals", "deny", &id, "--as", "ben"]));
    assert!(
        says.contains("approved with other arguments by ada at 20"),
        "{says}"
    );
    let says = refused(&mut command(&[
        "approvals",
        "approve",
        "no-such-id",
        "--as",
        "ben",
    ]));
    assert!(says.contains("there is no approval `no-such-id`"), "{says}");
    let deny = [
        "approvals",
        "deny",
        &no,
        "--as",
        "ben",
        "--reason",
        "not ours",
        "--json",
    ];
    let decided = said(&mut command(&deny));
    assert_eq!(
        (&decided["answer"], &decided["by"]),
        (&json!("deny"), &json!("ben"))
    );
    assert!(
        decided["at"].as_str().unwrap().starts_with("20"),
        "{decided}"
    );
    assert!(decided["iteration"].is_u64(), "{decided}");
    output(&mut command(&["cancel", &cancelled]));
    let says = refused(&mut command(&[
        "approvals",
        "approve",
        &gone,
        "--as",
        "ben",
    ]));
    assert!(says.contains("its session ended (cancelled)"), "{says}");

    let _processes = fleet();
    assert!(answer(&command, &session).starts_with("Paid."));
    assert!(answer(&command, &denied).starts_with("Not paid."));
    assert_eq!(started_once(starts), 1);
    let waits = said(&mut command(&["approvals", "list", "--json"]));
    assert_eq!(waits, json!([]));

    let told = decision(&command, &session);
    assert_eq!(
        (&told["selected"], &told["person"]),
        (&json!("edit"), &json!("ada"))
    );
    let told = decision(&command, &denied);
    assert_eq!(
        (&told["selected"], &told["signal"]),
        (&json!("deny"), &json!("not ours"))
    );
    let explained = output(&mut command(&["explain", &session]));
    let explained = String::from_utf8(explained).unwrap();
    assert!(
        explained.contains("approved with other arguments by ada"),
        "{explained}"
    );
    // The call that was made is the person's, not the model's.
    let made = explained
        .lines()
        .filter(|line| line.contains("(decided by a person)"));
    assert_eq!(made.count(), 2, "{explained}");
    for run in [&session, &denied, &cancelled] {
        output(&mut command(&["replay", run]));
        output(&mut command(&["verify", run]));
    }

    // What was approved was approved for that session: a fork asks again.
    let fork = ["fork", &session, "--at", "2", "--detach", "--json"];
    let forked = said(&mut command(&fork));
    let forked = forked["session_id"].as_str().unwrap();
    let id = loop {
        let open = said(&mut command(&[
            "approvals",
            "list",
            "--session",
            forked,
            "--json",
        ]));
        if let Some(one) = open.as_array().and_then(|open| open.first()) {
            break one["id"].as_str().unwrap().to_owned();
        }
    };
    assert_eq!(started_once(starts), 1);
    let listed = loop {
        // The graph may be a moment behind.
        let listed = said(&mut command(&[
            "sessions", "list", "--state", "waiting", "--json",
        ]));
        if listed.as_array().is_some_and(|listed| !listed.is_empty()) {
            break listed;
        }
    };
    assert_eq!(
        (&listed[0]["session"], &listed[0]["state"]),
        (&json!(forked), &json!("waiting"))
    );
    output(&mut command(&[
        "approvals",
        "approve",
        &id[..8],
        "--as",
        "ada",
    ]));
    assert!(answer(&command, forked).starts_with("Paid."));
    assert_eq!(started_once(starts), 2);
}

#[test]
fn people_are_waited_for_on_the_embedded_parts() {
    let directory = tempfile::tempdir().unwrap();
    let starts = Starts::default();
    let tool = tool(directory.path(), service(starts.clone()));
    let model = format!("scripted:{}", script(directory.path()).display());
    let command = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", directory.path().join("data"))
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_MODEL", &model)
            .env("AGENTFLEET_LOG", "error");
        command
    };
    output(&mut command(&[
        "config",
        "put",
        "tool",
        "pay",
        tool.to_str().unwrap(),
    ]));
    let fleet = || vec![Process::start("up", &mut command(&["up", "--json"]), "url")];
    people_are_waited_for(command, fleet, &starts);
}

#[test]
fn people_are_waited_for_on_servers() {
    let place = Place::new();
    let starts = Starts::default();
    let tool = tool(place.directory.path(), service(starts.clone()));
    let script = script(place.directory.path());
    output(&mut place.command(&["config", "put", "tool", "pay", tool.to_str().unwrap()]));
    let fleet = || ROLES.map(|role| place.start(role, &script)).into();
    people_are_waited_for(|arguments| place.command(arguments), fleet, &starts);
}
