//! Tools that are services over the queue, and a program that is one.

use crate::place::{Place, Ran, Running};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Puts a service with one tool, which has these fields beside its own.
fn put(place: &Place, more: &Value) {
    let service = json!({
        "request-queue": "request:tg:sums", "response-queue": "response:tg:sums",
        "config-params": [{"name": "digits", "required": true}],
    });
    let mut tool = json!({
        "name": "add", "type": "tool-service", "service": "sums", "description": "Adds",
        "digits": 2, "timeout-ms": 60_000,
        "arguments": [{"name": "a", "type": "integer"}, {"name": "b", "type": "integer"}],
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        tool[name] = value.clone();
    }
    for (item_type, key, item) in [("tool-service", "sums", service), ("tool", "add", tool)] {
        let file = place.write(&format!("{key}.json"), &item.to_string());
        place.run(&["config", "put", item_type, key, &file]).well();
    }
}

/// A service whose program is a shell script.
fn serve(place: &Place, options: &[&str], script: &str) -> Running {
    let script = place.write("sums.sh", script);
    let program = ["--", "sh", &script];
    let args = [&["tools", "serve", "sums"], options, &program].concat();
    let mut serving = Running(place.command(&args).spawn().unwrap());
    let mut line = String::new();
    let mut lines = BufReader::new(serving.0.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("Serving `sums`"), "{line}");
    serving
}

fn call(place: &Place, a: u32) -> Ran {
    let a = format!("a={a}");
    place.run(&["tools", "call", "add", "--set", &a, "--set", "b=2", "--yes"])
}

/// Lines that the script wrote, once there are so many.
fn noted(place: &Place, count: usize) -> Vec<String> {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(place.path("noted")).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{count} lines are wanted: {lines:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

const SUMS: &str = r#"
input=$(cat)
echo "$input" >> noted
case "$input" in
*'"a":40'*) echo 42 ;;
*'"a":7'*) echo "seven is not added" >&2; exit 3 ;;
*'"a":6'*) sleep 600 ;;
*) head -c 2000000 /dev/zero ;;
esac
"#;

/// A model that has two numbers added.
const ADDS: &str = r#"{"rules": [
    {"operation": "agent-react", "steps": 0,
     "text": "Thought: add\nAction: add\nArgs: {\"a\": 40, \"b\": 2}"},
    {"operation": "agent-react", "contains": "42", "text": "Thought: t\nFinal Answer: It is 42."},
    {"operation": "agent-react", "text": "Thought: t\nFinal Answer: Nobody knows."}
]}"#;

#[test]
fn a_run_calls_a_program_that_answers_over_the_queue() {
    let place = Place::new();
    put(&place, &Value::Null);
    let tested = place.run(&["tools", "test", "add"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    assert!(tested.out.contains("nobody takes requests"), "{tested:?}");

    let serving = serve(&place, &["--timeout", "1s"], SUMS);
    let tested = place.run(&["tools", "test", "add"]).well();
    assert!(tested.out.contains("has who takes requests"), "{tested:?}");
    let shown = place.run(&["tools", "show", "add"]).well().json();
    assert_eq!(shown["effect"], "not-idempotent");
    assert_eq!(shown["service-item"]["request-queue"], "request:tg:sums");
    assert_eq!(call(&place, 40).well().out.trim(), "42");
    let input = json!({"arguments": {"a": 40, "b": 2}, "config": {"digits": 2}});
    assert_eq!(noted(&place, 1), [input.to_string()]);
    for (a, says) in [
        (7, "(exit status: 3): seven is not added"),
        (6, "did not end within 1s"),
        (5, "wrote more than 1048576 bytes"),
    ] {
        let failed = call(&place, a);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(failed.err.contains(says), "{says}: {failed:?}");
    }

    let model = format!("scripted:{}", place.write("script.json", ADDS));
    let (_up, _) = place.up(&["--model", &model]);
    let asked = place.run(&["ask", "Add", "--pattern", "react", "--model", "auto"]);
    assert_eq!(asked.well().out.trim(), "It is 42.");
    let session = &place.sessions(&[])[0];
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
    serving.signal("TERM");
    let ended = serving.ended();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("Stopping"), "{ended:?}");
}

/// Notes the key of a call, and ends it when it may.
const WAITS: &str = r#"
echo "$AGENTFLEET_IDEMPOTENCY_KEY" >> noted
while [ ! -e go ]; do sleep 0.05; done
echo 42
"#;

/// The worker is killed in a call, and another takes over: the keys of the calls, and the answer.
fn killed_in_a_call(effect: &str, calls: usize) -> (Vec<String>, Ran) {
    let place = Place::new();
    put(&place, &json!({"effect": effect}));
    let _serving = serve(&place, &["--concurrency", "4"], WAITS);
    let model = format!("scripted:{}", place.write("script.json", ADDS));
    let (up, _) = place.up(&["--model", &model]);
    let ask = [
        "ask",
        "Add",
        "--pattern",
        "react",
        "--model",
        "auto",
        "--detach",
    ];
    let session = place.run(&ask).well().out;
    noted(&place, 1);
    up.signal("KILL");
    drop(up);
    let (_up, _) = place.up(&["--model", &model]);
    if calls > 1 {
        noted(&place, calls);
    }
    place.write("go", "");
    let ended = place.run(&["attach", session.trim()]);
    (noted(&place, calls), ended)
}

#[test]
fn a_call_that_may_repeat_is_made_again_under_its_key_after_a_kill() {
    let (keys, ended) = killed_in_a_call("idempotent", 2);
    assert!(
        !keys[0].is_empty() && keys.len() == 2 && keys[0] == keys[1],
        "{keys:?}"
    );
    assert!(ended.well().out.contains("It is 42."));
}

#[test]
fn a_call_that_may_not_repeat_is_made_once_whatever_is_killed() {
    let (keys, ended) = killed_in_a_call("not-idempotent", 1);
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(ended.well().out.contains("Nobody knows."));
}

#[test]
fn a_request_outlives_the_program_that_had_it() {
    let place = Place::new();
    put(&place, &Value::Null);
    let serving = serve(&place, &[], WAITS);
    let args = [
        "tools", "call", "add", "--set", "a=40", "--set", "b=2", "--yes",
    ];
    let called = Running(place.command(&args).spawn().unwrap());
    noted(&place, 1);
    serving.signal("KILL");
    drop(serving);
    place.write("go", "");
    let _serving = serve(&place, &[], WAITS);
    let called = called.ended().well();
    assert_eq!(called.out.trim(), "42");
    let keys = noted(&place, 2);
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
}

#[test]
fn a_service_that_is_not_there_is_not_served() {
    let place = Place::new();
    let unknown = place.run(&["tools", "serve", "sums", "--", "true"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(
        unknown.err.contains("there is no tool service `sums`"),
        "{unknown:?}"
    );
    let bare = place.run(&["tools", "serve", "sums"]);
    assert_eq!(bare.code, 2, "{bare:?}");
    let hurried = place.run(&["tools", "serve", "sums", "--timeout", "0s", "--", "true"]);
    assert!(
        hurried.err.contains("`0s` is no length of time"),
        "{hurried:?}"
    );
    let own = json!({"request-queue": "persistent://public/default/agent-request",
                     "response-queue": "response:tg:sums"});
    let file = place.write("own.json", &own.to_string());
    let refused = place.run(&["config", "put", "tool-service", "own", &file]);
    assert!(
        refused.err.contains("is a topic of the fleet itself"),
        "{refused:?}"
    );
}
