//! What is wrong is said with what would be right, and by the exit code.

use crate::place::Place;

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let place = Place::new();
    let misspelt = place.write("misspelt.toml", "concurency = 3");
    let newer = place.write("newer.json", r#"{"name": "tree-of-thoughts"}"#);
    place
        .run(&["config", "put", "agent-pattern", "tree-of-thoughts", &newer])
        .well();
    let no_tool = place.write("tool.json", r#"{"name": "x", "type": "document-serch"}"#);
    let table: &[(&[&str], i32, &str)] = &[
        (&["ask", ""], 2, "the question is empty"),
        (
            &["ask", "q", "--pattern", "reakt"],
            2,
            "`--pattern`: pattern `reakt` is not known (available: `debate`, `plan-then-execute`, `react`, `reflexion`, `router`, `supervisor`)",
        ),
        (
            &["ask", "q", "--pattern", "tree-of-thoughts"],
            2,
            "this version cannot run it",
        ),
        (&["ask", "q", "--task-type", "x"], 2, "`risk-assessment`"),
        (&["ask", "q", "--group", "x"], 2, "no tool is in group `x`"),
        (
            &["ask", "q", "--model", "x:y"],
            2,
            "unknown model `x:y` (write `PROVIDER:MODEL`",
        ),
        (
            &["ask", "q", "--concurrency", "many"],
            2,
            "flag `--concurrency` is `many`, expected a whole number",
        ),
        (
            &["doctor", "--settings", &misspelt],
            2,
            "unknown key `concurency`: did you mean `concurrency`?",
        ),
        (
            &["ask", "q", "--concurrency", "0"],
            2,
            "expected at least 1",
        ),
        (
            &["ask", "q", "--run-timeout", "0s"],
            2,
            "flag `--run-timeout` is `0s`, expected a time that is longer than nothing",
        ),
        (&["up", "--keep-runs", "0s"], 2, "longer than nothing"),
        (&["up", "--listen", "x"], 2, "such as `127.0.0.1:8700`"),
        (&["attach", "x"], 3, "there is no session `x`"),
        (&["cancel", "x"], 3, "agentfleet sessions list"),
        (&["sessions", "show", "x"], 3, "there is no session `x`"),
        (&["trace", "x"], 3, "no session or correlation `x`"),
        (&["document", "x"], 3, "there is no document `x`"),
        (&["query", "SELEC"], 2, "bad query at line 1, column 6"),
        (
            &["query", "DELETE WHERE { ?s ?p ?o }"],
            2,
            "queries only read",
        ),
        (&["query", "--file", "none.rq"], 2, "cannot read `none.rq`"),
        (&["config", "get", "x", "y"], 3, "types are agent-pattern"),
        (&["config", "get", "tool", "y"], 3, "`document-search`"),
        (
            &["config", "put", "tool", "x", &no_tool],
            2,
            "(available: `knowledge-query`, `document-search`",
        ),
        (
            &["approvals", "approve", "f", "--as", "ada"],
            2,
            "`f` is too short to name an approval: give at least 6 characters",
        ),
        (
            &["approvals", "show", "no-such-id"],
            3,
            "there is no approval `no-such-id`",
        ),
        (
            &["discover", "approve", "x", "--as", " "],
            2,
            "`--as` needs a name",
        ),
        (&["dlq", "show", "x"], 3, "agentfleet dlq list"),
        (&["purge"], 2, "--older-than"),
        (
            &["purge", "--older-than", "soon"],
            2,
            "such as `2h` or `30d`",
        ),
        (&["purge", "--session", "x"], 3, "there is no session `x`"),
        (&["load", "none"], 4, "cannot load `none`"),
        (&["restore", "none"], 4, "cannot open the copy `none`"),
        (&["completions", "nosh"], 2, "zsh"),
    ];
    for (args, code, text) in table {
        let ran = place.run(args);
        assert_eq!(ran.code, *code, "{args:?}: {ran:?}");
        assert!(ran.err.contains(text), "{args:?}: {}", ran.err);
    }
    // Nothing of all this was asked.
    let doctor = place.run(&["doctor"]).well();
    assert!(doctor.out.contains("nothing waits"), "{}", doctor.out);
}

#[test]
fn an_unknown_variable_is_named_with_the_nearest() {
    let place = Place::new();
    let mut command = place.command(&["doctor"]);
    let output = command.env("AGENTFLEET_MODLE", "x").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(says.contains("did you mean `AGENTFLEET_MODEL`?"), "{says}");
}

#[test]
fn doctor_says_which_model_and_why_and_what_is_wrong() {
    let place = Place::new();
    let well = place.run(&["doctor"]).well();
    assert!(well.out.contains("model = offline (environment)"));
    assert!(
        well.out.contains("cannot reason: it was asked for."),
        "{}",
        well.out
    );
    let alone = "reply topics    agent-response alone";
    assert!(well.out.contains(alone), "{}", well.out);
    let named = ["doctor", "--reply-to", "replies-*, partners"];
    let named = place.run(&named).well().out;
    let told = "agent-response, and what callers name of replies-*, partners";
    assert!(named.contains(told), "{named}");
    let no_name = place.run(&["doctor", "--reply-to", "my replies"]);
    assert_eq!(no_name.code, 4, "{no_name:?}");
    assert!(
        no_name
            .out
            .contains("BAD  reply topics    setting `reply_to` has `my replies`"),
        "{}",
        no_name.out
    );
    // Nobody listens on port 1.
    let args = [
        "doctor",
        "--model",
        "openai:x",
        "--base-url",
        "http://127.0.0.1:1/v1",
    ];
    let ill = place.run(&args);
    assert_eq!(ill.code, 4, "{ill:?}");
    assert!(ill.out.contains("BAD  model"), "{}", ill.out);
    assert!(ill.err.contains("one thing needs attention"), "{}", ill.err);
}

#[test]
fn output_that_cannot_be_written_is_told_and_no_success() {
    let place = Place::new();
    for args in [
        &["config", "list"] as &[&str],
        &["ask", "What is there?", "--pattern", "react"],
        &["query", "SELECT * { ?s ?p ?o }", "--format", "csv"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = place.command(args);
        let ran = command.stdout(full.unwrap()).output().unwrap();
        let says = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(4), "{args:?}: {says}");
        assert_eq!(says.matches("error: cannot write the").count(), 1, "{says}");
    }
}
