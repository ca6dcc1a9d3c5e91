//! What is printed is what there is, and no more than may be seen.

use crate::place::{Place, Ran};
use serde_json::json;

/// Moves the cursor, forges a line, turns the reading direction and hides.
const EVIL: &str = "a\u{1b}[2Kb\rc\u{9b}1Ad\u{202e}e\u{200b}f\u{feff}g\u{7f}h\nFORGED";

fn assert_visible(args: &[&str], ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        let hidden =
            |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{200b}\u{feff}".contains(c);
        assert!(!text.contains(hidden), "{args:?}: {text:?}");
    }
}

#[test]
fn no_command_prints_what_moves_the_cursor_or_hides() {
    let place = Place::new();
    place.write("folder/evil.md", &format!("# Evil\n\nThe word is {EVIL}."));
    let name = format!("folder/{}.xyz", EVIL.replace('\u{9b}', ""));
    place.write(&name, "skipped");
    let load = place.run(&["load", "folder"]);
    assert_visible(&["load"], &load);
    assert!(!load.well().out.contains("\nFORGED"));
    let pay = json!({
        "name": "pay", "type": "http", "description": "pays", "side-effects": true,
        "url": "http://127.0.0.1:9/pay", "method": "POST",
        "arguments": [{"name": "amount", "description": "how much"}],
        "approval": {"timeout-ms": 3_600_000, "reason": EVIL},
    });
    place
        .fed(
            &["config", "put", "tool", "pay", "-", "--as", EVIL],
            &pay.to_string(),
        )
        .well();
    let action = json!({"amount": format!("5{EVIL}")});
    let script = json!({"rules": [
        {"operation": "agent-react", "contains": "Pay",
         "text": format!("Thought: {EVIL}\nAction: pay\nArgs: {action}")},
        {"operation": "agent-react", "text": format!("Final Answer: It is {EVIL}")},
    ]});
    let script = format!(
        "scripted:{}",
        place.write("script.json", &script.to_string())
    );
    let model = ["--model", script.as_str(), "--pattern", "react"];
    let ran = place.run(&[&["ask", EVIL], &model[..]].concat());
    assert_visible(&["ask"], &ran);
    let ran = place.run(&[&["ask", EVIL, "--json"], &model[..]].concat());
    assert_visible(&["ask", "--json"], &ran);
    let session = place.sessions(&[])[0].clone();
    let session = session.as_str();
    let waiting = [&["ask", "Pay it"], &model[..]].concat();
    let mut child = crate::place::Running(place.command(&waiting).spawn().unwrap());
    child.says("approvals deny");
    let open = place.run(&["approvals", "list", "--json"]).well().json();
    let id = open[0]["id"].as_str().unwrap().to_owned();
    drop(child);
    place.park(EVIL, EVIL);

    let answer = format!("urn:trustgraph:agent:{session}/answer");
    let loaded = "urn:agentfleet:document:default:evil.md";
    for args in [
        &["approvals", "list"][..],
        &["approvals", "show", &id],
        &["approvals", "show", &id, "--json"],
        &["approvals", "approve", EVIL, "--as", EVIL],
        &["approvals", "deny", &id, "--as", EVIL, "--reason", EVIL],
        &["sessions", "list"],
        &["sessions", "list", "--json"],
        &["sessions", "show", session],
        &["sessions", "show", session, "--json"],
        &["sessions", "show", EVIL],
        &["trace", session],
        &["trace", session, "--format", "json"],
        &["trace", session, "--format", "mermaid"],
        &["trace", session, "--format", "svg"],
        &["trace", session, "--format", "prov-json"],
        &["trace", EVIL],
        &["explain", session],
        &["explain", session, "--json"],
        &["attach", session],
        &["verify", session],
        &["replay", session],
        &["cost", "--by", "step"],
        &["document", &answer],
        &["document", loaded],
        &["document", EVIL],
        &["query", "SELECT ?o { ?s ?p ?o }"],
        &["dlq", "list"],
        &["dlq", "show", EVIL],
        &["config", "list", "tool"],
        &["config", "get", "tool", "pay"],
        &["config", "history", "tool", "pay"],
        &["config", "get", EVIL, EVIL],
        &["doctor", "--graph-user", EVIL],
        &["doctor", "--json", "--graph-user", EVIL],
        &["settings", "--graph-user", EVIL],
        &["purge", "--session", session, "--dry-run"],
    ] {
        assert_visible(args, &place.run(args));
    }

    // What is approved is shown exactly, in one line.
    let shown = place.run(&["approvals", "show", &id]).well().out;
    let amount = r#"amount = "5a\u001b[2Kb\rc\u009b1Ad\u202ee\u200bf\ufeffg\u007fh\nFORGED""#;
    assert!(shown.contains(amount), "{shown}");
    assert!(!shown.contains("\nFORGED"), "{shown}");
    let json = place
        .run(&["approvals", "show", &id, "--json"])
        .well()
        .json();
    assert_eq!(
        json["arguments"]["amount"],
        format!("5{EVIL}"),
        "the same value"
    );
    for args in [&["sessions", "show", EVIL][..], &["document", EVIL]] {
        let told = place.run(args).err;
        assert!(!told.contains("\nFORGED"), "{told}");
    }
}

#[test]
fn no_credential_is_shown() {
    let place = Place::new();
    let password = "Qs3cret!Password";
    let url = format!("http://ada:{password}@127.0.0.1:9/ds?api_key={password}");
    let given = [
        "--broker",
        "pulsar://127.0.0.1:9",
        "--records",
        "postgres://ada@127.0.0.1:9/records",
        "--graph",
        &url,
        "--graph-password",
        password,
        "--graph-token",
        password,
        "--broker-token",
        password,
        "--base-url",
        &url,
        "--otlp",
        &url,
        "--query-timeout",
        "1s",
    ];
    for command in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["settings"],
        &["settings", "--json"],
        &["trace", "x"],
        &["query", "ASK {}"],
        &["ask", "What?", "--model", "openai:x"],
    ] {
        let ran = place.run(&[command, &given].concat());
        for text in [&ran.out, &ran.err] {
            assert!(!text.contains(password), "{command:?}: {text}");
        }
    }
    let shown = place
        .run(&[&["settings", "--json"], &given[..]].concat())
        .well()
        .json();
    assert_eq!(
        shown["graph"]["value"],
        "http://***@127.0.0.1:9/ds?api_key=***"
    );
}

#[test]
fn a_settings_file_of_the_working_directory_is_not_read_and_that_is_said() {
    let place = Place::new();
    place.write("agentfleet.toml", "base_url = \"http://elsewhere.example\"");
    let shown = |args: &[&str]| place.run(&[&["settings", "--json"], args].concat()).well();
    let left = shown(&[]);
    assert_eq!(left.json()["base_url"]["value"], "");
    assert!(
        left.err.contains("`agentfleet.toml` here is not read"),
        "{left:?}"
    );
    let named = shown(&["--settings", "agentfleet.toml"]);
    assert_eq!(
        named.json()["base_url"]["value"],
        "http://elsewhere.example"
    );
    assert_eq!(named.err, "");
    place.write("data/agentfleet.toml", "concurrency = 7");
    assert_eq!(shown(&[]).json()["concurrency"]["value"], "7");
}

#[test]
fn whoever_asks_is_told_when_nobody_works() {
    let place = Place::new();
    place.run(&["sessions", "list"]).well();
    // As a process that has the fleet lock and hangs.
    let path = place.path("data/run/fleet.lock");
    let holder = json!({"pid": 1, "asked": "offline", "model": "offline", "reason": "it hangs"});
    std::fs::write(&path, holder.to_string()).unwrap();
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let asking = place.command(&["ask", "What is X?"]).spawn().unwrap();
    let mut asking = crate::place::Running(asking);
    asking.says("says who works");
    drop(lock);
    assert_eq!(asking.ended().code, 0, "it works by itself then");
}

#[test]
fn doctor_names_each_server_that_is_away() {
    let place = Place::new();
    let port = |_| {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let [broker, documents, graph] = [0, 1, 2].map(port);
    let (broker, graph) = (format!("pulsar://{broker}"), format!("http://{graph}/ds"));
    let documents = format!("postgres://fleet@{documents}/fleet");
    let servers = [
        "--broker",
        &broker,
        "--records",
        &documents,
        "--graph",
        &graph,
    ];
    let ran = place.run(&[&["doctor", "--json"][..], &servers].concat());
    assert_eq!(ran.code, 4, "{ran:?}");
    let told = ran.json();
    let finding = |what: &str| {
        let all = told.as_array().unwrap().iter();
        let mut found = all.filter(|finding| finding["what"] == what);
        found
            .next()
            .unwrap_or_else(|| panic!("{what}: {told}"))
            .clone()
    };
    for (what, address) in [("broker server", &broker), ("graph server", &graph)] {
        let says = finding(what);
        assert_eq!(says["ok"], false);
        let expected = format!("{address} does not answer");
        assert!(says["says"].as_str().unwrap().contains(&expected), "{says}");
    }
    assert_eq!(finding("records server")["ok"], false);
    // What is on this machine is told all the same, and no line points to one that is not there.
    assert_eq!(finding("database")["ok"], true);
    for (what, part) in [
        ("stores", "workers, queue, dead letters"),
        ("fleet", "could not be asked"),
    ] {
        let says = finding(what);
        assert!(says["says"].as_str().unwrap().contains(part), "{says}");
    }
}
