//! Tools of MCP servers, from their import to the graph of a run that called them.

use crate::diary::{Http, python, script};
use crate::place::{Place, Ran, finished};
use serde_json::json;

const SECRET: &str = "s3cret-of-the-diary";

fn run(place: &Place, args: &[&str]) -> Ran {
    let mut command = place.command(args);
    command
        .env("AGENTFLEET_MCP_COMMANDS", python())
        .env("AGENTFLEET_SECRET_DIARY_KEY", SECRET);
    finished(command.spawn().unwrap(), args)
}

#[test]
fn an_import_tells_what_is_new_changed_and_gone() {
    let place = Place::new();
    let (python, script) = (python(), script());
    let import = |options: &[&str], program: &[&str]| {
        let first = ["tools", "import", "mcp", "diary"];
        run(&place, &[&first[..], options, program].concat())
    };
    let program = ["--", &python, &script];
    let unknown = import(&[], &[]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(unknown.err.contains("--server-url URL"), "{unknown:?}");
    let refused = place.run(&[&["tools", "import", "mcp", "diary"], &program[..]].concat());
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("`mcp_commands`"), "{refused:?}");

    let dry = import(&["--dry-run"], &program).well();
    assert!(dry.json().as_array().unwrap().len() > 3, "{dry:?}");
    let tools = || run(&place, &["tools", "list"]).well().out;
    assert!(!tools().contains("diary."), "{dry:?}");
    let first = import(&[], &program).well().out;
    for told in [
        "new      diary.add (read-only)",
        "new      diary.burn (destructive)",
        "new      diary.hang (not-idempotent)",
        "new      diary.read_resource (read-only)",
    ] {
        assert!(first.contains(told), "{told}: {first}");
    }
    let called = ["tools", "call", "diary.add", "--set", "a=1", "--set", "b=2"];
    let sum = run(&place, &called).well();
    assert_eq!(sum.json(), json!({"sum": 3}));

    // What the operator has set stays, and what is the same is no new version.
    let get = ["config", "get", "tool", "diary.add"];
    let mut item = place.run(&get).well().json();
    item["permission"] = json!("diary.add");
    let file = place.write("add.json", &item.to_string());
    place
        .run(&["config", "put", "tool", "diary.add", &file])
        .well();
    let history = ["config", "history", "tool", "diary.add", "--json"];
    let versions = || {
        let listed = place.run(&history).well().json();
        listed.as_array().unwrap().len()
    };
    let before = versions();
    let again = import(&[], &[]).well().out;
    assert!(again.contains("same     diary.add"), "{again}");
    assert!(!again.contains("new ") && !again.contains("changed "));
    assert_eq!(versions(), before);

    let program = ["--", &python, &script, "changed"];
    let changed = import(&[], &program).well();
    assert!(changed.out.contains("changed  diary.add"), "{changed:?}");
    assert!(changed.out.contains("gone     diary.burn"), "{changed:?}");
    assert!(changed.err.contains("`--prune` deletes"), "{changed:?}");
    assert_eq!(versions(), before + 1);
    let item = place.run(&get).well().json();
    assert_eq!(item["permission"], "diary.add");
    assert_eq!(
        item["parameters"]["required"],
        json!(["a", "b", "c"]),
        "{item}"
    );
    assert!(tools().contains("diary.burn"));
    let tested = run(&place, &["tools", "test", "diary.*"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    assert!(
        tested.out.contains("has no tool `burn`") && tested.err.contains("1 tool cannot"),
        "{tested:?}"
    );
    import(&["--prune"], &[]).well();
    assert!(!tools().contains("diary.burn"));
    run(&place, &["tools", "test", "diary.*"]).well();
}

/// Adds, asks for the secret that the server was sent, and answers.
const ADDS: &str = r#"{"rules": [
    {"operation": "agent-react", "steps": 0,
     "text": "Thought: add\nAction: diary.add\nArgs: {\"a\": 40, \"b\": 2}"},
    {"operation": "agent-react", "steps": 1,
     "text": "Thought: ask\nAction: diary.told\nArgs: {\"name\": \"KEY_NAME\"}"},
    {"operation": "agent-react", "contains": "[secret DIARY_KEY]",
     "text": "Thought: t\nFinal Answer: It was added."},
    {"operation": "agent-react", "text": "Thought: t\nFinal Answer: Something else came."}
]}"#;

/// Imports a server and lets a model call it; what it was sent as `key` is a secret.
fn is_called_in_a_run(place: &Place, server: &[&str], key: &str) {
    let import = [&["tools", "import", "mcp", "diary"], server].concat();
    run(place, &import).well();
    let file = place.write("script.json", &ADDS.replace("KEY_NAME", key));
    let model = format!("scripted:{file}");
    let ask = ["ask", "Add", "--pattern", "react", "--model", &model];
    let ran = run(place, &ask).well();
    assert!(ran.out.contains("It was added."), "{ran:?}");
    let session = &place.sessions(&[])[0];
    for command in ["replay", "verify"] {
        place.run(&[command, session]).well();
    }
    let select = "SELECT ?o { GRAPH ?g { ?s ?p ?o } }";
    let graph = place.run(&["query", select, "--format", "json"]).well().out;
    let explained = place.run(&["explain", session]).well().out;
    assert!(explained.contains("diary.add"), "{explained}");
    let trace = ["trace", session, "--format", "json"];
    let traced = place.run(&trace).well().out;
    for told in [&graph, &traced] {
        assert!(told.contains("mcp:diary/add"), "{told}");
    }
    for told in [&ran.out, &ran.err, &graph, &explained, &traced] {
        assert!(!told.contains(SECRET), "{told}");
    }
    assert!(!place.holds(SECRET));
    assert!(place.holds("[secret DIARY_KEY]"));
}

#[test]
fn a_run_calls_a_program() {
    let (python, script) = (python(), script());
    let server = ["--env", "KEY=${DIARY_KEY}", "--", &python, &script];
    is_called_in_a_run(&Place::new(), &server, "KEY");
}

#[test]
fn a_run_calls_a_server_with_an_address() {
    let http = Http::start();
    let server = [
        "--server-url",
        &http.url,
        "--header",
        "x-key=Bearer ${DIARY_KEY}",
    ];
    is_called_in_a_run(&Place::new(), &server, "x-key");
}

#[test]
fn a_server_that_is_away_is_named() {
    let place = Place::new();
    let http = Http::start();
    let import = ["tools", "import", "mcp", "diary", "--server-url", &http.url];
    let header = ["--header", "x-key=${DIARY_KEY}"];
    run(&place, &[&import[..], &header].concat()).well();
    run(&place, &["tools", "test"]).well();
    let without = place.run(&["tools", "test", "diary.add"]);
    assert_eq!(without.code, 1, "{without:?}");
    assert!(
        without.out.contains("secret `DIARY_KEY` is not there"),
        "{without:?}"
    );
    drop(http);
    let tested = run(&place, &["tools", "test", "diary.add", "--json"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    let found = tested.json();
    assert_eq!(found[0]["ok"], false, "{found}");
    let doctor = run(&place, &["doctor"]);
    assert_eq!(doctor.code, 4, "{doctor:?}");
    assert!(doctor.out.contains("diary.add and 8 more: "), "{doctor:?}");
    let called = ["tools", "call", "diary.add", "--set", "a=1", "--set", "b=2"];
    let called = run(&place, &called);
    assert_eq!(called.code, 4, "{called:?}");
    for told in [&tested.out, &doctor.out, &called.err] {
        assert!(told.contains("MCP server `diary`"), "{told}");
        assert!(!told.contains(SECRET), "{told}");
    }
    let unknown = run(&place, &["tools", "test", "diary.sub"]);
    assert!(
        unknown.err.contains("there is no tool `diary.sub`"),
        "{unknown:?}"
    );
}
