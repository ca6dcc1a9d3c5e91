//! Asking, watching, leaving, coming back.

use crate::place::{Place, Running};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

#[test]
fn the_answer_goes_to_standard_output_and_progress_names_subagents_by_their_goals() {
    let place = Place::new();
    let ran = place.run(&["demo"]).well();
    assert!(
        ran.out.starts_with("# Assess the risk profile"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains('\u{1b}'), "no escapes in a pipe");
    for part in ["Financial", "Reputational", "Legal", "Operational"] {
        let named = format!("] {part} dimension");
        assert!(
            ran.err
                .lines()
                .any(|line| line.contains(&named) && line.contains("answers: ")),
            "{part}: {}",
            ran.err
        );
    }
    for closing in [
        "── confidence ",
        "── sources ",
        "5 sessions",
        "--format svg",
    ] {
        assert!(ran.err.contains(closing), "{closing}: {}", ran.err);
    }
    let session = &place.sessions(&["--collection", "dossier"])[0];
    assert!(ran.err.contains(&format!("agentfleet trace {session}")));
    let tree = place.run(&["trace", session]).well().out;
    for goal in ["● Financial dimension", "● Operational dimension"] {
        assert!(tree.contains(goal), "{tree}");
    }
    // A source named in the answer can be read.
    let source = "urn:agentfleet:document:dossier:press-review.md";
    assert!(ran.out.contains(source));
    assert!(
        place
            .run(&["document", source])
            .well()
            .out
            .contains("reputation")
    );
}

#[test]
fn json_is_one_event_per_line_and_ends_with_the_answer() {
    let place = Place::new();
    let ran = place
        .fed(&["ask", "-", "--json"], "What is known of X?\n")
        .well();
    let events: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = events
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"explain"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "end").count(), 1);
    let end = events.last().unwrap();
    assert_eq!(end["event"], "end");
    assert!(end["text"].as_str().unwrap().contains('X'));
    assert_eq!(end["error"], Value::Null);
}

#[test]
fn the_same_id_asks_once_and_another_question_under_it_is_refused() {
    let place = Place::new();
    let ask = |question| place.run(&["ask", question, "--id", "one"]);
    let first = ask("What is X?").well();
    let again = ask("What is X?").well();
    assert_eq!(first.out, again.out);
    assert!(again.err.contains("asked before"), "{}", again.err);
    let other = ask("What is Y?");
    assert_eq!(other.code, 2);
    assert!(
        other.err.contains("used for another request"),
        "{}",
        other.err
    );
    assert_eq!(place.sessions(&[]).len(), 1);
}

#[test]
fn two_may_ask_at_once_and_beside_a_fleet() {
    let place = Place::new();
    let mut up = place.command(&["up", "--json", "--listen", "127.0.0.1:0"]);
    let mut up = Running(up.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(up.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url: Value = serde_json::from_str(&line).unwrap();
    let address = url["url"]
        .as_str()
        .unwrap()
        .strip_prefix("http://")
        .unwrap()
        .to_owned();

    let asks: Vec<Running> = ["What is X?", "Compare cost and speed of Y"]
        .iter()
        .map(|question| Running(place.command(&["ask", question]).spawn().unwrap()))
        .collect();
    for ask in asks {
        let ran = ask.ended().well();
        // The fleet has the model, and said so itself.
        assert!(!ran.err.contains("Using the offline model"), "{}", ran.err);
        assert!(!ran.out.is_empty());
    }
    let session = place.sessions(&[])[0].clone();
    for (format, begin) in [
        ("tree", "Run "),
        ("mermaid", "flowchart"),
        ("svg", "<svg"),
        ("prov-json", "{"),
        ("json", "{"),
        ("turtle", "@prefix"),
    ] {
        let body = get(
            &address,
            &format!("/sessions/{session}/trace?format={format}"),
        );
        assert!(body.contains(begin), "{format}: {body}");
    }
    up.signal("TERM");
    let ended = up.ended();
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// The body of a 200.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{path}: {head}\n{body}");
    body.to_owned()
}

#[test]
fn who_leaves_is_told_how_to_come_back_and_the_run_is_still_there() {
    let place = Place::new();
    // Routed at once; then a model that would talk for minutes.
    let script = place.write(
        "slow.json",
        r#"{"rules": [
            {"operation": "agent-react", "text": "Thought: a b c d e f g h i j k l m n o p",
             "words": true, "pause-ms": 20000},
            {"text": "{\"choice\": \"react\", \"signal\": \"s\", \"rationale\": \"r\"}"}
        ]}"#,
    );
    for signal in ["INT", "TERM"] {
        let model = format!("scripted:{script}");
        let args = [
            "ask",
            "What is X?",
            "--pattern",
            "react",
            "--model",
            &model,
            "--grace",
            "0s",
        ];
        let mut ask = Running(place.command(&args).spawn().unwrap());
        ask.says("Using the script");
        let left = {
            ask.signal(signal);
            ask.ended()
        };
        assert_eq!(left.code, 5, "{left:?}");
        assert!(left.err.contains("Left before the end"), "{}", left.err);
        let attach = left
            .err
            .lines()
            .find_map(|line| line.trim().strip_prefix("agentfleet attach "));
        let ran = place.run(&["attach", attach.unwrap()]).well();
        assert!(ran.out.contains("Nothing was found"), "{}", ran.out);
    }
}

#[test]
fn a_request_without_a_fleet_waits_and_can_be_shown_cancelled_and_read() {
    let place = Place::new();
    let session = place.run(&["ask", "What is X?", "--detach"]).well().out;
    let session = session.trim();
    let shown = place
        .run(&["sessions", "show", session, "--json"])
        .well()
        .json();
    assert_eq!(shown["state"], "queued");
    assert_eq!(shown["question"], "What is X?");
    place.run(&["cancel", session]).well();
    let attached = place.run(&["attach", session]);
    assert_eq!(attached.code, 1, "{attached:?}");
    assert!(attached.err.contains("cancelled"), "{}", attached.err);
    let again = place.run(&["cancel", session]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.out.contains("had ended already"));
}
