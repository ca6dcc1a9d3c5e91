//! What is erased is gone, is said to be erased, and is erased because somebody meant it.

use crate::place::Place;
use serde_json::json;
use std::path::Path;

/// Whether a file of the data directory holds the text.
fn is_found(place: &Place, text: &str) -> bool {
    fn within(folder: &Path, text: &str) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() {
                return within(&path, text);
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            let mut places = bytes.windows(text.len());
            places.any(|some| some.eq_ignore_ascii_case(text.as_bytes()))
        })
    }
    within(&place.path("data"), text)
}

#[test]
fn a_purge_is_shown_and_meant_before_anything_is_deleted() {
    let place = Place::new();
    place.run(&["ask", "What is X?"]).well();
    let session = place.sessions(&[])[0].clone();
    for (age, code) in [
        // In milliseconds beyond 64 bits: cut off, it was an instant of the future, and before that all
        // runs had ended.
        ("18446744073709551s", 2),
        ("9223372036854776s", 2),
        ("36500d", 0),
    ] {
        let ran = place.run(&["purge", "--older-than", age, "--yes"]);
        assert_eq!(ran.code, code, "{ran:?}");
        let ran = place.run(&["sessions", "list", "--keep-runs", age]);
        assert_eq!(ran.code, code, "{ran:?}");
    }
    let purge = ["purge", "--older-than", "0s"];
    for answer in ["", "no\n", "\n"] {
        let ran = place.fed(&purge, answer);
        assert_eq!(ran.code, 2, "{ran:?}");
        for part in [
            session.as_str(),
            "What is X?",
            "nothing was deleted",
            "--yes",
        ] {
            assert!(ran.err.contains(part), "{part}: {ran:?}");
        }
    }
    assert_eq!(place.sessions(&[]), [session]);
    let ran = place.fed(&purge, "yes\n").well();
    assert_eq!(ran.out, "1 run deleted.\n");
    assert!(place.sessions(&[]).is_empty());
}

#[test]
fn an_erased_run_is_said_to_be_erased_and_is_in_no_file() {
    let place = Place::new();
    let secret = "qzx7194kvw3058jhp";
    let question = format!("Compare cost and safety of {secret} and X");
    place.run(&["ask", "What is X?"]).well();
    let script = json!({"rules": [
        {"operation": "supervisor-decompose",
         "text": json!({"thought": "t", "goals": [&question, "safety"]}).to_string()},
        {"operation": "agent-react", "text": format!("Thought: t\nFinal Answer: {secret}")},
        {"text": format!("It is {secret}.")},
    ]});
    let script = place.write("script.json", &script.to_string());
    let model = format!("scripted:{script}");
    let ask = [
        "ask",
        &question,
        "--pattern",
        "supervisor",
        "--model",
        &model,
    ];
    let session = place.run(&[&ask[..], &["--detach"]].concat()).well().out;
    let session = session.trim().to_owned();
    place.run(&["attach", &session, "--model", &model]).well();
    let shown = place.run(&["sessions", "show", &session, "--json"]).well();
    let subagent = shown.json()["subagents"][0]["session"].clone();
    let subagent = subagent.as_str().unwrap();
    assert!(is_found(&place, secret));
    place.run(&["purge", "--session", &session, "--yes"]).well();
    assert!(!is_found(&place, secret));

    for command in [
        &["sessions", "show"][..],
        &["trace"],
        &["explain"],
        &["attach"],
        &["verify"],
        &["replay"],
        &["retry"],
        &["cancel"],
        &["cost", "--session"],
    ] {
        for id in [session.as_str(), &session[..8], subagent] {
            let ran = place.run(&[command, &[id]].concat());
            assert_eq!(ran.code, 3, "{command:?} {ran:?}");
            assert!(ran.err.contains("was erased"), "{command:?} {ran:?}");
        }
    }
    let told = place.run(&["trace", &session]).err;
    assert!(told.contains("was erased at 20"), "{told}");
    assert_eq!(place.sessions(&[]).len(), 1);
}

#[test]
fn a_document_that_is_taken_out_is_in_no_file() {
    let place = Place::new();
    let secret = "qzx7194kvw3058jhp";
    place.write(
        "folder/a.md",
        &format!("# Ferries\n\nThe code is {secret}."),
    );
    place.write("folder/b.md", "# Trains\n\nThe train leaves at ten.");
    place.run(&["load", "folder"]).well();
    assert!(is_found(&place, secret));
    let uri = "urn:agentfleet:document:default:a.md";
    assert_eq!(place.run(&["purge", "--document", uri]).code, 2);
    place.run(&["purge", "--document", uri, "--yes"]).well();
    assert!(!is_found(&place, secret));
    let other = "urn:agentfleet:document:default:b.md";
    let other = place.run(&["document", other]).well().out;
    assert!(other.contains("at ten"), "{other}");
}
