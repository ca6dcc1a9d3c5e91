//! Asking, watching, leaving, coming back.

use crate::place::{Place, Running};
use serde_json::Value;
use std::io::{Read as _, Write as _};
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
    for closing in ["── sources ", "5 sessions", "--format svg"] {
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
fn a_run_is_found_by_its_words_weighed_counted_and_read_word_for_word() {
    let place = Place::new();
    place.run(&["ask", "What is known of X?"]).well();
    let asked = place.run(&["ask", "Name every Valve", "--json"]).well();
    let end: Value = serde_json::from_str(asked.out.lines().last().unwrap()).unwrap();
    assert_eq!(end["unsourced"], true, "{end}");
    assert_eq!(end["sources"], serde_json::json!([]), "{end}");
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&place.run(arguments).well().out).unwrap()
    };
    let found = json(&["sessions", "list", "vALVE", "--sort", "steps", "--json"]);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    let both = json(&["sessions", "list", "--sort", "time", "--json"]);
    let took = |at: usize| both[at]["ms"].as_u64().unwrap();
    assert!(took(0) >= took(1), "{both}");
    let session = found[0]["session"].as_str().unwrap();
    let cost = json(&["cost", &session[..8], "--json"]);
    assert_eq!(cost["total"]["steps"], found[0]["steps"], "{cost}");
    let raw = |more: &[&str]| place.run(&[&["trace", &session[..8]], more].concat());
    let told = raw(&["--step", "0", "--raw"]).well().out;
    for part in [
        "== call 1: model `offline`",
        "-- prompt",
        "-- reply",
        "Name every Valve",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(raw(&["--step", "99", "--raw"]).code, 3);
    assert_eq!(raw(&["--step", "0"]).code, 2);
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
    let (up, address) = place.up(&[]);
    let asks: Vec<Running> = ["What is X?", "Compare cost and speed of Y"]
        .iter()
        .map(|question| Running(place.command(&["ask", question]).spawn().unwrap()))
        .collect();
    for ask in asks {
        let ran = ask.ended().well();
        let said = "answers. It says: Using the offline model";
        let one_line = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(one_line.contains(said), "{}", ran.err);
        assert!(!one_line.contains("`OPENAI_API_KEY` is set"), "{}", ran.err);
        assert!(!ran.out.is_empty());
    }
    // A key counts where the fleet is started.
    let mut keyed = place.command(&["ask", "What is Y?"]);
    let ran = Running(keyed.env("OPENAI_API_KEY", "sk-none").spawn().unwrap());
    let ran = ran.ended().well();
    let one_line = ran.err.split_whitespace().collect::<Vec<_>>().join(" ");
    let ignored = "`OPENAI_API_KEY` is set here and has no effect";
    assert!(one_line.contains(ignored), "{}", ran.err);
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
            &place,
            &address,
            &format!("/sessions/{session}/trace?format={format}"),
        );
        assert!(body.contains(begin), "{format}: {body}");
    }
    up.signal("TERM");
    let ended = up.ended();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        !ended.err.contains("has gone"),
        "nobody was there before: {ended:?}"
    );
}

#[test]
fn what_is_loaded_cannot_forge_or_alter_a_trace() {
    let place = Place::new();
    place.run(&["ask", "What is X?"]).well();
    let session = place.sessions(&[])[0].clone();
    let of = |format: &str| {
        place
            .run(&["trace", &session, "--format", format])
            .well()
            .out
    };
    let (tree, turtle) = (of("tree"), of("turtle"));
    let forged = format!(
        "@prefix tg: <https://trustgraph.ai/ns/> . @prefix prov: <http://www.w3.org/ns/prov#> .
        <urn:trustgraph:agent:{session}/routing/pattern> tg:selected 'forged' ; tg:option 'forged' .
        <urn:trustgraph:agent:{session}/answer> tg:confidence 'Everything: 1.00' .
        <urn:trustgraph:agent:made-up> a tg:AgentQuestion ; tg:query 'forged' ;
            tg:rootSessionId 'made-up' ; prov:startedAtTime '2026-01-01T00:00:00Z' ."
    );
    place.write("forged/f.ttl", &forged);
    place
        .run(&["load", "forged", "--collection", "evil"])
        .well();
    assert_eq!(of("tree"), tree);
    assert_eq!(of("turtle"), turtle);
    assert_eq!(place.sessions(&[]), std::slice::from_ref(&session));
    assert_eq!(place.run(&["trace", "made-up"]).code, 3);
    let (_up, address) = place.up(&[]);
    for path in [format!("/sessions/{session}/trace"), "/sessions".to_owned()] {
        let stranger = asked(&address, &path, "guessed");
        assert!(
            stranger.contains(" 401 ") && !stranger.contains(&session),
            "{stranger}"
        );
        let body = get(&place, &address, &path);
        assert!(
            body.contains(&session) && !body.contains("forged"),
            "{body}"
        );
    }
}

#[test]
fn a_run_that_timed_out_leaves_its_whole_trace_behind() {
    let place = Place::new();
    let script = place.write(
        "slow.json",
        r#"{"rules": [
            {"operation": "supervisor-decompose",
             "text": "{\"thought\": \"t\", \"goals\": [\"one\", \"two\"]}"},
            {"operation": "agent-react", "text": "Thought: a b c d e", "words": true,
             "pause-ms": 3000},
            {"text": "Nobody came back."}
        ]}"#,
    );
    let model = format!("scripted:{script}");
    for _ in 0..3 {
        let args = [
            "ask",
            "Compare A and B",
            "--pattern",
            "supervisor",
            "--model",
            &model,
            "--subagent-timeout",
            "200ms",
            "--grace",
            "5s",
        ];
        place.run(&args);
        let session = place.sessions(&[])[0].clone();
        let listed = place.run(&["sessions", "list", "--json"]).well().json();
        assert_ne!(listed[0]["state"], "running", "{listed}");
        let tree = place.run(&["trace", &session]).well().out;
        assert!(!tree.contains("Still running"), "{tree}");
        let shown = place
            .run(&["sessions", "show", &session, "--json"])
            .well()
            .json();
        assert_eq!(shown["subagents"].as_array().unwrap().len(), 2, "{shown}");
    }
}

#[test]
fn another_process_is_not_asked_for_what_it_does_not_have() {
    let place = Place::new();
    let script = place.write("script.json", r#"{"rules": [{"text": "Scripted."}]}"#);
    let (_up, _) = place.up(&["--model", &format!("scripted:{script}")]);
    let refused = place.run(&["ask", "What is X?", "--model", "offline"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    for part in [
        "with scripted, and flag `--model` asks for offline",
        "leave it out",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    // The environment asks for offline as well.
    let refused = place.run(&["ask", "What is X?", "--detach"]);
    assert!(
        refused.err.contains("`AGENTFLEET_MODEL` asks"),
        "{refused:?}"
    );
    let refused = place.run(&["ask", "What is X?", "--model", "auto", "--concurrency", "3"]);
    assert!(
        refused
            .err
            .contains("`--concurrency` is for the process that works"),
        "{refused:?}"
    );
    assert!(place.sessions(&[]).is_empty(), "nothing was asked");
    place.run(&["ask", "What is X?", "--model", "auto"]).well();
    let doctor = place.run(&["doctor"]).well().out;
    assert!(doctor.contains("works. Using the script"), "{doctor}");
    assert!(
        doctor.contains("model here      Using the offline model"),
        "{doctor}"
    );
}

#[test]
fn limits_of_the_command_line_travel_with_the_request() {
    let place = Place::new();
    // Each time for something else: the same call again would end it.
    let rule = |step: usize| {
        let text =
            format!("Thought: more\nAction: document-search\nArgs: {{\"query\": \"x{step}\"}}");
        serde_json::json!({"steps": step, "text": text})
    };
    let rules: Vec<_> = (0..12).map(rule).collect();
    let script = place.write(
        "busy.json",
        &serde_json::json!({"rules": rules}).to_string(),
    );
    let (_up, _) = place.up(&["--model", &format!("scripted:{script}")]);
    for (given, iterations) in [(&["--max-iterations", "2"][..], 1), (&[], 9)] {
        let asked = ["ask", "What is X?", "--pattern", "react", "--model", "auto"];
        let ran = place.run(&[&asked[..], given].concat());
        assert!(ran.out.contains("Partial answer"), "{ran:?}");
        let session = place.sessions(&[])[0].clone();
        let shown = place.run(&["sessions", "show", &session]).well().out;
        assert_eq!(
            shown.matches(": document-search").count(),
            iterations,
            "{shown}"
        );
    }
    // What may be spent bounds it wherever that is set; what only counts in a fleet is told.
    let asked = ["ask", "What is X?", "--pattern", "react", "--model", "auto"];
    let bounded = place
        .command(&asked)
        .env("AGENTFLEET_MAX_TOOL_CALLS", "2")
        .env("AGENTFLEET_MAX_ITERATIONS", "1")
        .output()
        .unwrap();
    let told = String::from_utf8(bounded.stderr).unwrap();
    assert!(told.contains("AGENTFLEET_MAX_ITERATIONS"), "{told}");
    assert!(!told.contains("AGENTFLEET_MAX_TOOL_CALLS"), "{told}");
    let session = place.sessions(&[])[0].clone();
    let shown = place.run(&["sessions", "show", &session]).well().out;
    assert_eq!(shown.matches(": document-search").count(), 2, "{shown}");
}

#[test]
fn a_second_fleet_serves_and_takes_over_when_the_first_goes() {
    let place = Place::new();
    let (first, _) = place.up(&[]);
    let (mut second, address) = place.up(&[]);
    assert!(get(&place, &address, "/health/ready").contains("\"ok\":true"));
    first.signal("TERM");
    assert_eq!(first.ended().code, 0);
    second.says("this one works now");
    place.run(&["ask", "What is X?"]).well();
}

#[test]
fn a_beginning_of_an_id_will_do() {
    let place = Place::new();
    place.run(&["ask", "What is X?"]).well();
    let session = place.sessions(&[])[0].clone();
    let begin = &session[..8];
    for args in [["sessions", "show"].as_slice(), &["trace"], &["attach"]] {
        let whole = place.run(&[args, &[session.as_str()]].concat()).well();
        let ran = place.run(&[args, &[begin]].concat()).well();
        assert_eq!(ran.out, whole.out, "{args:?}");
    }
    for args in [["sessions", "show"].as_slice(), &["trace"], &["replay"]] {
        let short = place.run(&[args, &[&session[..5]]].concat());
        assert_eq!(short.code, 3, "{args:?}");
        assert!(short.err.contains("at least 6 characters"), "{short:?}");
    }
    place.run(&["ask", "A", "--id", "a", "--detach"]).well();
    let asked: Vec<String> = place.sessions(&[]);
    assert_eq!(asked.len(), 2, "those that wait are listed, too");
    let cancelled = place.run(&["cancel", begin]);
    assert!(cancelled.out.contains("had ended already"), "{cancelled:?}");
}

#[test]
fn an_empty_collection_hints_at_loading() {
    let place = Place::new();
    let ran = place
        .run(&["ask", "What is X?", "--collection", "nosuch"])
        .well();
    assert!(
        ran.err.contains("agentfleet load PATH --collection nosuch"),
        "{}",
        ran.err
    );
    place.write("folder/x.md", "# X\n\nX is a letter.\n");
    place
        .run(&["load", "folder", "--collection", "letters"])
        .well();
    let ran = place
        .run(&["ask", "What is X?", "--collection", "letters"])
        .well();
    assert!(!ran.err.contains("load PATH"), "{}", ran.err);
}

#[test]
fn without_a_language_model_nothing_is_said_to_be_judged() {
    let place = Place::new();
    place.write("folder/x.md", "# X\n\nX is a letter.\n");
    place.run(&["load", "folder"]).well();
    let ask = |pattern: &str| {
        let ran = place.run(&["ask", "What is X?", "--pattern", pattern]);
        ran.well()
    };
    let reflexion = ask("reflexion");
    let told = "no language model is at work: I cannot criticise";
    assert!(reflexion.err.contains(told), "{}", reflexion.err);
    assert!(
        !reflexion.err.contains("Nothing went wrong"),
        "{}",
        reflexion.err
    );
    let debate = ask("debate");
    assert!(
        debate.out.contains("I cannot debate or judge"),
        "{}",
        debate.out
    );
}

#[test]
fn who_stops_reading_progress_stops_nothing() {
    let place = Place::new();
    let mut ask = place.command(&["ask", "What is X?"]);
    let mut ask = ask.spawn().unwrap();
    drop(ask.stderr.take());
    let ran = ask.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    assert!(!ran.stdout.is_empty());
}

fn asked(address: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let held = format!("authorization: Bearer {token}");
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nhost: {address}\r\n{held}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The body of a 200.
fn get(place: &Place, address: &str, path: &str) -> String {
    let token = std::fs::read_to_string(place.settings().data.join("http-token")).unwrap();
    let answer = asked(address, path, token.trim());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{path}: {head}\n{body}");
    body.to_owned()
}

#[test]
fn a_query_is_ended_whatever_it_does_and_up_within_its_grace() {
    let place = Place::new();
    let values: String = (0..200).map(|n| format!("'{n}'%20")).collect();
    let product: String = ["a", "b", "c"]
        .map(|name| format!("VALUES%20?{name}%20%7B{values}%7D%20"))
        .concat();
    let endless = format!(
        "/sparql?timeout=250&query=SELECT%20(MAX(SHA512(CONCAT(?a,?b,?c)))%20AS%20?m)%20%7B{product}%7D"
    );
    let (up, address) = place.up(&["--open", "yes", "--grace", "1s"]);
    let asking = std::thread::spawn({
        let address = address.clone();
        move || asked(&address, &endless, "")
    });
    let parent = format!("PPid:\t{}\n", up.0.id());
    let copies = || -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let paths = all.map(|entry| entry.path());
        let is_one = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path.join("status")).is_ok_and(|told| told.contains(&parent))
        };
        paths.filter(is_one).collect()
    };
    let mut running = copies();
    while running.is_empty() {
        assert!(!asking.is_finished(), "{}", asking.join().unwrap());
        running = copies();
    }
    up.signal("TERM");
    assert_eq!(up.ended().code, 0);
    asking.join().unwrap();
    for copy in running {
        assert!(!copy.exists());
    }
}

#[test]
fn a_collection_that_is_spelled_wrong_is_asked_nothing() {
    let place = Place::new();
    place.write("notes/a.md", "Refunds take two weeks.");
    place
        .run(&["load", "notes", "--collection", "handbook"])
        .well();
    let ran = place.run(&["ask", "How long?", "--collection", "hanbook"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("did you mean `handbook`?"), "{ran:?}");
    assert!(place.sessions(&[]).is_empty());
}

#[test]
fn a_model_that_is_away_for_longer_than_the_run_has_ends_it_at_once() {
    let place = Place::new();
    let busy = place.write(
        "busy.json",
        r#"{"rules": [{"fail": "overloaded", "retry-after-ms": 600000}]}"#,
    );
    let model = format!("scripted:{busy}");
    let asked = ["ask", "What is X?", "--pattern", "react", "--model", &model];
    let ran = place.run(&[&asked[..], &["--run-timeout", "2m"]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    let why = "overloaded; it may be asked again in 600 s, and the wait for it ends in 1";
    assert!(ran.err.contains(why), "{ran:?}");
    let session = place.sessions(&["--state", "failed"])[0].clone();
    for checked in ["verify", "replay"] {
        place.run(&[checked, &session]).well();
    }
}

#[test]
fn metrics_tell_failed_model_calls_by_kind_and_what_waits_apart_from_what_is_delayed() {
    let place = Place::new();
    // Two tries of the only step are in vain, and a call of another operation is refused.
    let script = place.write(
        "busy.json",
        r#"{"rules": [
            {"operation": "agent-react", "fail": "overloaded", "retry-after-ms": 1, "times": 2},
            {"operation": "agent-react", "contains": "What is Y?", "fail": "no such model"},
            {"operation": "agent-react", "contains": "What is Z?", "fail": "overloaded", "retry-after-ms": 600000},
            {"text": "Thought: enough.\nFinal Answer: 42"}
        ]}"#,
    );
    let (_up, address) = place.up(&["--model", &format!("scripted:{script}")]);
    let ask = |question| place.run(&["ask", question, "--pattern", "react", "--model", "auto"]);
    let ran = ask("What is X?").well();
    assert!(ran.out.contains("42"), "{ran:?}");
    // The wait is told while it lasts.
    let told = "Trying again in 1 s, waiting until ";
    assert!(ran.err.contains(told), "{ran:?}");
    assert_ne!(ask("What is Y?").code, 0);
    let later = [
        "ask",
        "What is Z?",
        "--pattern",
        "react",
        "--model",
        "auto",
        "--detach",
    ];
    place.run(&later).well();
    // Until it was tried once and is put off.
    let mut metrics = String::new();
    let put_off =
        r#"agentfleet_backlog_by_state{queue="agent-request/orchestrator",state="delayed"} 1"#;
    while !metrics.contains(put_off) {
        metrics = get(&place, &address, "/metrics");
    }
    for line in [
        r#"agentfleet_model_errors_total{operation="agent-react",kind="unavailable"} 3"#,
        r#"agentfleet_model_errors_total{operation="agent-react",kind="refused"} 1"#,
        r#"agentfleet_backlog{queue="agent-request/orchestrator"} 1"#,
        r#"agentfleet_backlog_by_state{queue="agent-request/orchestrator",state="ready"} 0"#,
    ] {
        assert!(
            metrics.lines().any(|told| told == line),
            "{line}: {metrics}"
        );
    }
    let age = metrics
        .lines()
        .find_map(|line| line.strip_prefix("agentfleet_backlog_age_seconds "));
    let age: f64 = age.unwrap().parse().unwrap();
    assert!((0.0..60.0).contains(&age), "{age}");
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
            .find_map(|line| Some(line.split_once("agentfleet attach ")?.1));
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
    // Its end is its one step, and another run may go on from what it was asked.
    let replayed = place.run(&["replay", session]).well().out;
    assert!(replayed.contains("1 step of 1 session"), "{replayed}");
    for other in [&["retry", session][..], &["fork", session, "--at", "0"]] {
        place.run(&[other, &["--detach"]].concat()).well();
    }
    let attached = place.run(&["attach", session]);
    assert_eq!(attached.code, 1, "{attached:?}");
    place.run(&["replay", session]).well();
    assert!(attached.err.contains("cancelled"), "{}", attached.err);
    let again = place.run(&["cancel", session]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.out.contains("had ended already"));
}

#[test]
fn a_message_that_hangs_ends_its_process_and_the_try_counts() {
    let place = Place::new();
    // The first word comes, and the second does not.
    let script = place.write(
        "script.json",
        r#"{"rules": [
            {"operation": "agent-react", "contains": "for ever", "pieces": ["Thought:", " hm"],
             "pause-ms": 86400000},
            {"text": "Thought: hm\nFinal Answer: At once."}
        ]}"#,
    );
    let model = format!("scripted:{script}");
    let args = [
        "--model",
        &model,
        "--wall-limit",
        "1500ms",
        "--model-timeout",
        "1s",
        "--tool-timeout",
        "1s",
        "--max-attempts",
        "2",
    ];
    let asked = ["ask", "Is it for ever?", "--pattern", "react", "--detach"];
    let session = place.run(&asked).well().out;
    for _ in 0..2 {
        let (up, _) = place.up(&args);
        let ended = up.ended();
        assert_eq!(ended.code, 6, "{ended:?}");
        assert!(ended.err.contains("for more than 1.5s"), "{ended:?}");
    }
    // The third gives it up without another try, and goes on with the next.
    let (_up, _) = place.up(&args);
    let next = ["ask", "Is it?", "--pattern", "react", "--model", "auto"];
    let next = place.run(&next).well();
    assert_eq!(next.out.trim(), "At once.");
    let ended = place.run(&["attach", session.trim()]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("gave up after 2 tries"), "{ended:?}");
}

#[test]
fn another_model_answers_where_the_fleets_is_away() {
    let place = Place::new();
    let away = r#"{"rules": [{"fail": "the provider is overloaded", "retry-after-ms": 60000}]}"#;
    let well = r#"{"rules": [{"text": "Thought: t\nFinal Answer: from the other"}]}"#;
    let away = format!("scripted:{}", place.write("away.json", away));
    let well = format!("scripted:{}", place.write("well.json", well));
    let profile = serde_json::json!({"fallbacks": [well]}).to_string();
    let file = place.write("profile.json", &profile);
    place
        .run(&["config", "put", "model-profile", "default", &file])
        .well();
    let ask = ["ask", "q", "--pattern", "react", "--model", &away];
    let ran = place.run(&ask).well();
    assert!(ran.out.contains("from the other"), "{ran:?}");
    let session = &place.sessions(&[])[0];
    let explained = place.run(&["explain", session]).well().out;
    assert!(explained.contains("model-failover"), "{explained}");
    assert!(explained.contains("overloaded"), "{explained}");
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
    let file = place.write("wrong.json", r#"{"fallbacks": ["anthropic"]}"#);
    let ran = place.run(&["config", "put", "model-profile", "default", &file]);
    assert!(ran.err.contains("must be `PROVIDER:MODEL`"), "{ran:?}");
}

#[test]
fn a_tool_asks_another_model_where_the_fleets_is_away() {
    let place = Place::new();
    let own = r#"{"rules": [
        {"operation": "question", "fail": "the provider is overloaded", "retry-after-ms": 60000},
        {"operation": "agent-react", "steps": 0,
         "text": "Thought: t\nAction: oracle\nArgs: {\"question\": \"Why?\"}"},
        {"operation": "agent-react", "text": "Thought: t\nFinal Answer: it said so"}
    ]}"#;
    let other =
        r#"{"rules": [{"text": "because", "usage": {"input_tokens": 3, "output_tokens": 4}}]}"#;
    let own = format!("scripted:{}", place.write("own.json", own));
    let other = format!("scripted:{}", place.write("other.json", other));
    let profile = serde_json::json!({"fallbacks": [other]}).to_string();
    let oracle = r#"{"name": "oracle", "type": "text-completion", "description": "knows"}"#;
    for (kind, key, text) in [
        ("model-profile", "question", &*profile),
        ("tool", "oracle", oracle),
    ] {
        let file = place.write("item.json", text);
        place.run(&["config", "put", kind, key, &file]).well();
    }
    let ask = ["ask", "q", "--pattern", "react", "--model", &own];
    let ran = place.run(&ask).well();
    assert!(ran.out.contains("it said so"), "{ran:?}");
    let session = &place.sessions(&[])[0];
    let explained = place.run(&["explain", session]).well().out;
    for part in ["model-failover", "tool `oracle`", "overloaded"] {
        assert!(explained.contains(part), "{part}: {explained}");
    }
    let raw = place.run(&["trace", session, "--step", "0", "--raw"]);
    let raw = raw.well().out;
    for part in ["because", "model `scripted` unavailable: the provider"] {
        assert!(raw.contains(part), "{part}: {raw}");
    }
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
}

#[test]
fn a_model_that_says_nothing_is_asked_once_more_in_other_words() {
    let place = Place::new();
    let rules = r#"{"rules": [
        {"contains": "Your last reply was empty", "text": "Thought: t\nFinal Answer: here I am"},
        {"text": "", "usage": {"input_tokens": 5, "output_tokens": 0}}
    ]}"#;
    let model = format!("scripted:{}", place.write("silent.json", rules));
    let ask = ["ask", "q", "--pattern", "react", "--model", &model];
    let ran = place.run(&ask).well();
    assert!(ran.out.contains("here I am"), "{ran:?}");
    let session = &place.sessions(&[])[0];
    let raw = place.run(&["trace", session, "--step", "0", "--raw"]);
    let raw = raw.well().out;
    assert_eq!(raw.matches("== call").count(), 2, "{raw}");
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
}

#[test]
fn a_fallback_that_takes_tools_another_way_is_refused_when_it_is_saved() {
    let place = Place::new();
    let rules = r#""rules": [{"text": "well"}]"#;
    let script = |name: &str, native: bool| {
        let text = format!(r#"{{"native-tools": {native}, {rules}}}"#);
        format!("scripted:{}", place.write(name, &text))
    };
    let (native, text) = (script("native.json", true), script("text.json", false));
    let put = |model: &str, fallbacks: &[&str]| {
        let profile = serde_json::json!({ "fallbacks": fallbacks }).to_string();
        let file = place.write("profile.json", &profile);
        let mut command = place.command(&["config", "put", "model-profile", "default", &file]);
        let provider = "http://127.0.0.1:1";
        command
            .env("AGENTFLEET_MODEL", model)
            .env_remove("OPENAI_API_KEY")
            .env_remove("OPENAI_BASE_URL")
            .env_remove("ANTHROPIC_API_KEY")
            .env_remove("GEMINI_API_KEY")
            .env_remove("GOOGLE_API_KEY")
            .env("OLLAMA_HOST", provider);
        crate::place::finished(command.spawn().unwrap(), &["config", "put"])
    };
    let claude = "anthropic:claude";
    let away = "ollama:away";
    for (model, fallbacks, refused) in [
        ("offline", vec![text.as_str(), away], None),
        ("openai:gpt", vec![claude, native.as_str(), away], None),
        // Nothing here says which model the fleet has.
        ("auto", vec![claude], None),
        ("offline", vec![&text, claude], Some("/fallbacks/1")),
        ("openai:gpt", vec![&text], Some("/fallbacks/0")),
        (&native, vec![claude, &text], Some("/fallbacks/1")),
        ("auto", vec![&text, away, claude], Some("/fallbacks/2")),
    ] {
        let ran = put(model, &fallbacks);
        let Some(field) = refused else {
            ran.well();
            continue;
        };
        assert_eq!(ran.code, 2, "{model} {fallbacks:?}: {ran:?}");
        for part in ["model-profile", field, "takes tools"] {
            assert!(ran.err.contains(part), "{model} {fallbacks:?}: {ran:?}");
        }
    }
    let ran = put("auto", &["nobody:knows"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("unknown model `nobody:knows`"), "{ran:?}");
    // What was refused is not there.
    let kept = ["config", "get", "model-profile", "default"];
    let kept = place.run(&kept).well().json();
    assert_eq!(kept["fallbacks"], serde_json::json!([claude]));
}
