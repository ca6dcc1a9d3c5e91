//! Keeping a data directory in order.

use crate::place::Place;

const QUADS: [&str; 4] = [
    "query",
    "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }",
    "--format",
    "csv",
];

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
    assert_eq!(place.sessions(&["--conversation", "c1"]), [session.clone()]);
    place.run(&["purge", "--session", &session]).well();
    assert_eq!(place.run(&["trace", &session]).code, 3);
    assert_eq!(place.run(&["sessions", "show", &session]).code, 3);

    place.run(&["purge", "--conversation", "c2"]).well();
    let left = place.run(&["purge", "--collection", "people"]).well();
    assert_eq!(
        left.out,
        "1 run deleted.\n1 document of collection `people` deleted.\n"
    );
    assert_eq!(place.sessions(&[]).len(), 1);
    place.run(&["purge", "--older-than", "0s"]).well();
    assert_eq!(place.run(&QUADS).well().out, "n\n0\n");
}

#[test]
fn a_run_that_has_not_ended_is_not_purged() {
    let place = Place::new();
    let session = place.run(&["ask", "What is X?", "--detach"]).well().out;
    let purged = place.run(&["purge", "--session", session.trim()]);
    assert_eq!(purged.code, 1, "{purged:?}");
    assert!(purged.err.contains("has not ended"), "{}", purged.err);
    place.run(&["attach", session.trim()]).well();
    place.run(&["purge", "--session", session.trim()]).well();
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
