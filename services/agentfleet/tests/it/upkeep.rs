//! Keeping a data directory in order.

use crate::place::Place;
use agentfleet_schema::SessionId;
use agentfleet_schema::topics::AGENT_REQUEST;
use std::time::{Duration, Instant};

/// How long what must come may take.
const DEADLINE: Duration = Duration::from_secs(120);

const QUADS: [&str; 4] = [
    "query",
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    "--format",
    "csv",
];

#[test]
fn files_that_are_gone_are_told_and_taken_out_when_asked() {
    let place = Place::new();
    let load = |more: &[&str]| place.run(&[&["load", "folder"], more].concat());
    place.write("folder/a.md", "# Ferries\n\nThe ferry leaves at nine.");
    place.write("folder/b.md", "# Trains\n\nThe train leaves at ten.");
    place.write("folder/c.md", "# Buses\n\nThe bus leaves at eight.");
    load(&[]).well();
    std::fs::remove_file(place.path("folder/a.md")).unwrap();
    let kept = load(&[]).well();
    assert!(kept.out.contains("Kept 1 document"), "{}", kept.out);
    let pruned = load(&["--prune"]).well();
    assert!(pruned.out.contains("Removed 1 document"), "{}", pruned.out);

    let uri = "urn:agentfleet:document:default:b.md";
    place.run(&["document", uri]).well();
    let would = place.run(&["purge", "--document", uri, "--dry-run"]).well();
    assert!(would.out.contains("would be deleted"), "{}", would.out);
    place.run(&["purge", "--document", uri, "--yes"]).well();
    assert_eq!(place.run(&["document", uri]).code, 3);
    assert_eq!(place.run(&["purge", "--document", uri, "--yes"]).code, 3);
}

#[test]
fn purge_takes_runs_by_session_conversation_collection_and_age() {
    let place = Place::new();
    place.write("folder/a.ttl", "<urn:a> <http://schema.org/name> 'Anna' .");
    place
        .run(&["load", "folder", "--collection", "people"])
        .well();
    let ask = |more: &[&str]| place.run(&[&["ask", "Who is Anna?"], more].concat()).well();
    ask(&["--collection", "people"]);
    ask(&["--conversation", "c1"]);
    ask(&["--conversation", "c2"]);
    ask(&[]);
    assert_eq!(place.sessions(&[]).len(), 4);

    let session = place.sessions(&["--conversation", "c1"])[0].clone();
    let dry = place
        .run(&["purge", "--session", &session, "--dry-run"])
        .well();
    assert_eq!(dry.out, "1 run would be deleted.\n");
    assert_eq!(
        place.sessions(&["--conversation", "c1"]),
        std::slice::from_ref(&session)
    );
    place.run(&["purge", "--session", &session, "--yes"]).well();
    assert_eq!(place.run(&["trace", &session]).code, 3);
    assert_eq!(place.run(&["sessions", "show", &session]).code, 3);
    let again = place.run(&["purge", "--session", &session, "--yes"]).well();
    assert!(again.out.contains("deleted before"), "{}", again.out);
    let asked = place.run(&[
        "ask",
        "Who is Anna?",
        "--conversation",
        "c3",
        "--id",
        "gone",
    ]);
    assert_eq!(asked.code, 0);
    place
        .run(&["purge", "--conversation", "c3", "--yes"])
        .well();
    let asked = place.run(&[
        "ask",
        "Who is Anna?",
        "--conversation",
        "c3",
        "--id",
        "gone",
    ]);
    assert_eq!(asked.code, 3, "{asked:?}");

    place
        .run(&["purge", "--conversation", "c2", "--yes"])
        .well();
    let left = place
        .run(&["purge", "--collection", "people", "--yes"])
        .well();
    assert_eq!(
        left.out,
        "1 run deleted.\n1 document of collection `people` deleted.\n"
    );
    assert_eq!(place.sessions(&[]).len(), 1);
    place.run(&["purge", "--older-than", "0s", "--yes"]).well();
    assert_eq!(place.run(&QUADS).well().out, "n\r\n0\r\n");
}

#[test]
fn a_run_that_has_not_ended_is_not_purged() {
    let place = Place::new();
    let session = place.run(&["ask", "What is X?", "--detach"]).well().out;
    let purged = place.run(&["purge", "--session", session.trim(), "--yes"]);
    assert_eq!(purged.code, 1, "{purged:?}");
    assert!(purged.err.contains("has not ended"), "{}", purged.err);
    place.run(&["attach", session.trim()]).well();
    place
        .run(&["purge", "--session", session.trim(), "--yes"])
        .well();
    let again = place.run(&["attach", session.trim()]);
    assert_eq!(again.code, 3, "{again:?}");
}

#[test]
fn a_backup_is_restored_into_a_new_directory() {
    let place = Place::new();
    let asked = place.run(&["ask", "What is X?"]).well();
    let session = place.sessions(&[])[0].clone();
    place.run(&["backup", "copy.db"]).well();
    assert_eq!(place.run(&["backup", "copy.db"]).code, 4);
    assert_eq!(place.run(&["restore", "copy.db"]).code, 4, "it is in use");
    place.run(&["restore", "copy.db", "--data", "other"]).well();
    let read = place.run(&["attach", &session, "--data", "other"]).well();
    assert_eq!(read.out, asked.out);
    let hint = format!("agentfleet --data other trace {session}");
    assert!(read.err.contains(&hint), "{}", read.err);
}

#[test]
fn tables_in_a_pipe_are_whole_and_a_closed_pipe_is_no_failure() {
    let place = Place::new();
    let question = "word ".repeat(60);
    place.run(&["ask", &question]).well();
    let listed = place.run(&["sessions", "list"]).well();
    assert!(listed.out.contains(question.trim()), "{}", listed.out);
    let mut child = place.command(&["completions", "bash"]).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_running_fleet_deletes_old_runs_and_in_time_their_tombstones() {
    let place = Place::new();
    place.run(&["ask", "What is X?"]).well();
    let session = place.sessions(&[])[0].clone();
    let (up, _) = place.up(&["--keep-runs", "1ms", "--log", "info"]);
    // It looks at once, and the runs are deleted before their tombstones can be.
    while !place.sessions(&[]).is_empty() {}
    assert_eq!(place.run(&["sessions", "show", &session]).code, 3);
    up.signal("TERM");
    assert_eq!(up.ended().code, 0);
    let text = place.run(&[
        "document",
        &format!("urn:trustgraph:agent:{session}/answer"),
    ]);
    assert_eq!(text.code, 3, "{text:?}");

    let erased = |settings: &[&str]| {
        place
            .run(&[&["purge", "--older-than", "1d", "--yes"], settings].concat())
            .well();
        let purged = place.run(&["purge", "--session", &session, "--yes"]);
        purged.out.contains("deleted before")
    };
    assert!(erased(&["--keep-runs", "1d"]), "the tombstone is young");
    let short = [
        "--keep-runs",
        "1ms",
        "--retention",
        "1ms",
        "--run-timeout",
        "1ms",
    ];
    assert!(!erased(&short), "nobody knows of it any more");
}

#[test]
fn redriving_all_goes_on_past_what_cannot_be_sent() {
    let place = Place::new();
    place.park(
        "a",
        r#"{"question": "sub", "correlation_id": "c", "parent_session_id": "p"}"#,
    );
    place.park("b", "no JSON");
    place.park("c", r#"{"question": "What is X?"}"#);
    let ran = place.run(&["dlq", "redrive", "--all"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("c is asked again"), "{}", ran.out);
    for part in [
        "belongs to a subagent",
        "still no `AgentRequest`",
        "2 of 3 messages stay parked",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let left = place.run(&["dlq", "list", "--json"]).well().json();
    assert_eq!(left.as_array().unwrap().len(), 2);
    // As the undertaker names the session of a message that nobody can read.
    let session = SessionId::unnamed(None, "", AGENT_REQUEST.as_str(), "b").to_string();
    let b = left.as_array().unwrap().iter().find(|one| one["id"] == "b");
    assert_eq!(b.unwrap()["session"], session);
    let table = place.run(&["dlq", "list"]).well().out;
    assert!(table.contains(&session), "{table}");
}

#[test]
fn a_run_whose_message_was_refused_ends_by_cancel_or_in_time_and_stays_ended() {
    let place = Place::new();
    let asked = |question: &str, more: &[&str]| {
        let ask = ["ask", question, "--pattern", "react", "--detach"];
        let ran = place.run(&[&ask[..], more].concat()).well();
        let session = ran.out.trim().to_owned();
        place.refuse_next();
        session
    };
    let cancelled = asked("What is X?", &[]);
    let late = asked("What is Y?", &["--run-timeout", "3s"]);
    let (_up, _) = place.up(&[]);
    let until = Instant::now() + DEADLINE;
    let parked = || place.run(&["dlq", "list", "--json"]).well().json();
    while parked().as_array().unwrap().len() < 2 {
        assert!(Instant::now() < until, "{}", parked());
    }
    let state = |session: &str| {
        let shown = place.run(&["sessions", "show", session, "--json"]);
        shown.well().json()["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&cancelled), "queued");
    place.run(&["cancel", &cancelled]).well();
    assert_eq!(place.run(&["cancel", &cancelled]).code, 1, "it has ended");
    while state(&late) == "queued" {
        assert!(Instant::now() < until, "its deadline does not end it");
    }
    // People may try to send it again, and whoever can sends the very message.
    assert_eq!(place.run(&["dlq", "redrive", "--all"]).code, 1);
    place.publish_again(&cancelled);
    place.publish_again(&late);
    place
        .run(&["ask", "What is Z?", "--pattern", "react"])
        .well();
    for (session, expected) in [(&cancelled, "cancelled"), (&late, "timeout")] {
        let shown = place
            .run(&["sessions", "show", session, "--json"])
            .well()
            .json();
        assert_eq!(shown["state"], expected, "{shown}");
        assert_eq!(shown["steps"].as_array().unwrap().len(), 1, "{shown}");
        let listed = place.sessions(&["--state", expected]);
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(&listed[0], session);
        let trace = place.run(&["trace", session]).well().out;
        assert!(trace.contains("What is"), "{trace}");
        for command in ["replay", "verify"] {
            place.run(&[command, session]).well();
        }
    }
}

#[test]
fn answers_come_in_the_formats_that_fit_them() {
    let place = Place::new();
    place.write(
        "folder/a.ttl",
        "<urn:a> <http://schema.org/name> 'Anna'@en .",
    );
    place.run(&["load", "folder"]).well();
    let ask = |query: &str, format: &[&str]| place.run(&[&["query", query], format].concat());
    let select = "SELECT ?s ?o { ?s <http://schema.org/name> ?o }";
    let json = ask(select, &["--format", "json"]).well().json();
    let row = &json["results"]["bindings"][0];
    assert_eq!(row["s"]["type"], "uri");
    assert_eq!(row["o"]["xml:lang"], "en");
    let csv = ask(select, &["--format", "csv"]).well().out;
    assert_eq!(csv, "s,o\r\nurn:a,Anna\r\n");
    assert!(ask("ASK {}", &["--format", "json"]).well().json()["boolean"] == true);
    let construct = "CONSTRUCT WHERE { ?s <http://schema.org/name> ?o }";
    for (format, part) in [
        (&[][..], "<urn:a> <http://schema.org/name> \"Anna\"@en ."),
        (&["--format", "turtle"], "\"Anna\"@en ."),
        (
            &["--format", "n-triples"],
            "<urn:a> <http://schema.org/name> \"Anna\"@en .",
        ),
        (&["--format", "json-ld"], "\"@value\""),
    ] {
        let written = ask(construct, format).well().out;
        assert!(written.contains(part), "{format:?}: {written}");
    }
    for (query, format) in [
        (construct, "json"),
        (construct, "table"),
        (select, "turtle"),
    ] {
        let refused = ask(query, &["--format", format]);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains("does not fit"), "{}", refused.err);
    }
}

#[test]
fn an_older_version_and_what_came_with_the_program_can_be_brought_back() {
    let place = Place::new();
    let config = |args: &[&str]| place.run(&[&["config"], args].concat());
    let key = ["prompt", "question"];
    let with =
        |verb: &'static str, more: &[&'static str]| config(&[&[verb], &key[..], more].concat());
    let shipped = with("get", &[]).well().json();
    place.write(
        "own.md",
        "<system>\nBe brief.\n</system>\nAsk {{ question }}.\n",
    );
    let version = with("put", &["own.md"]).well().out;
    let again = with("put", &["own.md"]).well().out;
    assert_eq!(again.trim(), format!("{}, unchanged", version.trim()));
    let own = with("get", &[]).well().json();
    assert_eq!(own["system"], "Be brief.");
    with("restore", &["1"]).well();
    assert_eq!(with("get", &[]).well().json(), shipped);
    let number = version.trim().strip_prefix("version ").unwrap();
    let old = config(&["get", "prompt", "question", "--version", number]).well();
    assert_eq!(old.json(), own);
    let unknown = config(&["restore", "prompt", "question", "99"]);
    assert_eq!(unknown.code, 3);
    assert!(unknown.err.contains("its versions are"), "{}", unknown.err);

    let deleted = with("delete", &[]).well();
    for part in [
        "comes with the program instead",
        "config reset prompt question",
    ] {
        assert!(deleted.err.contains(part), "{}", deleted.err);
    }
    with("reset", &[]).well();
    assert_eq!(with("get", &[]).well().json(), shipped);
    let seeded = config(&["seed"]).well().out;
    assert!(
        !seeded.contains("people"),
        "it is the program's again: {seeded}"
    );
    for (item_type, text, part) in [
        ("promt", "{}", "did you mean `prompt`?"),
        (
            "prompt",
            "{\"prompt\": \"x\", \"sytem\": \"y\"}",
            "did you mean `system`?",
        ),
    ] {
        let refused = place.fed(&["config", "put", item_type, "x", "-"], text);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(part), "{}", refused.err);
    }
}

#[test]
fn every_command_has_an_example_and_settings_are_listed_once() {
    let place = Place::new();
    let help = |args: &[&str]| place.run(&[args, &["--help"]].concat()).well().out;
    let mut waiting = vec![Vec::<String>::new()];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let text = help(&words);
        assert!(text.contains("Example"), "{path:?}: {text}");
        assert!(
            !text.contains("--max-quads") || path == ["settings"],
            "{path:?}: {text}"
        );
        seen += 1;
        let commands = text.split("Commands:\n").nth(1).unwrap_or_default();
        let names = commands.lines().take_while(|line| line.starts_with("  "));
        for name in names.filter_map(|line| line.split_whitespace().next()) {
            if name != "help" {
                waiting.push([path.clone(), vec![name.to_owned()]].concat());
            }
        }
    }
    assert!(seen > 30, "{seen}");
    let settings = place.run(&["help", "settings"]).well().out;
    for part in [
        "--subagent-timeout VALUE   AGENTFLEET_SUBAGENT_TIMEOUT   subagent_timeout = ...",
        "Default: 5m",
    ] {
        assert!(settings.contains(part), "{part}: {settings}");
    }
    let shown = place
        .run(&["settings", "--json", "--concurrency", "3"])
        .well()
        .json();
    assert_eq!(shown["concurrency"]["value"], "3");
    assert_eq!(shown["concurrency"]["source"], "flag");
    assert_eq!(shown["model"]["source"], "environment");
}

#[test]
fn what_people_changed_stays_and_is_told() {
    let place = Place::new();
    let item = place
        .run(&["config", "get", "tool", "document-search"])
        .well()
        .out;
    place
        .fed(&["config", "put", "tool", "document-search", "-"], &item)
        .well();
    place
        .run(&["config", "delete", "tool", "text-completion"])
        .well();
    let seeded = place.run(&["config", "seed"]).well();
    assert!(
        seeded.out.contains("left as deleted by people"),
        "{}",
        seeded.out
    );
    let history = place
        .run(&["config", "history", "tool", "text-completion"])
        .well();
    assert!(history.out.contains("deleted"), "{}", history.out);
}

#[test]
fn an_older_program_leaves_the_config_of_a_newer_one_and_says_so() {
    let place = Place::new();
    let question = |args: &[&str]| place.run(&[&["config"], args].concat()).well();
    let shipped = question(&["get", "prompt", "question"]).json();
    let newer = serde_json::json!({ "prompt": "Be newer. {{ question }}" });
    place.seed_as("999.0.0", "prompt", "question", &newer);
    let got = question(&["get", "prompt", "question"]);
    assert_eq!(got.json(), newer);
    assert_eq!(got.err.matches("newer version").count(), 1, "{}", got.err);
    let seeded = question(&["seed"]);
    let told = "1 left as version 999.0.0 wrote them";
    assert!(seeded.out.contains(told), "{}", seeded.out);
    assert!(
        seeded.err.contains("config reset TYPE KEY"),
        "{}",
        seeded.err
    );
    assert_eq!(question(&["get", "prompt", "question"]).json(), newer);
    let history = question(&["history", "prompt", "question"]).out;
    assert!(history.contains("seed 999.0.0"), "{history}");
    // A person may put it back, and then it is this version's again.
    question(&["reset", "prompt", "question"]);
    let back = question(&["get", "prompt", "question"]);
    assert_eq!((back.json(), back.err.as_str()), (shipped, ""));
    let history = question(&["history", "prompt", "question"]).out;
    let this = format!("seed {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(history.matches(&this).count(), 2, "{history}");
}
