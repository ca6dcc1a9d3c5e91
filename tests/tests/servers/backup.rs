//! A fleet on servers is backed up by the servers' own tools while it works, and put back onto others: what
//! was over is as it was, and what was in progress goes on and ends, once.

use agentfleet_servers::Server;
use agentfleet_tests::load::{
    Starts, ends_once, notify, output, refused, script, service, started_once,
};
use agentfleet_tests::place::{Place, ROLES};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn ask(place: &Place, question: &str) -> String {
    let answer = place.cli(&["ask", "--detach", "--json", question]);
    answer["session_id"].as_str().unwrap().to_owned()
}

/// A program of PostgreSQL, of the newest version that is here.
fn postgres(arguments: &[&str]) {
    let newest = r#"PATH="$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1):$PATH" exec "$@""#;
    output(
        Command::new("sh")
            .args(["-c", newest, "sh"])
            .args(arguments),
    );
}

/// The lines of what the graph says of a run; in which order they come is not said.
fn trace(place: &Place, session: &str) -> Vec<String> {
    let asked = place
        .command(&["trace", session, "--format", "turtle"])
        .output();
    let text = String::from_utf8(asked.unwrap().stdout).unwrap();
    let ends = ['.', ';', ',', ' '];
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end_matches(ends).into())
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_fleet_whose_database_was_dumped_at_work_goes_on_on_other_servers() {
    let mut place = Place::new();
    let starts: Starts = Arc::default();
    let script = script(place.directory.path());
    let tool = place.path("tool.json");
    let port = service(Arc::clone(&starts));
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(&["config", "put", "tool", "notify", tool.to_str().unwrap()]);
    let page = place.path("mill.md");
    std::fs::write(&page, "# The mill\n\nThe river feeds the mill.\n").unwrap();
    place.cli(&["load", page.to_str().unwrap(), "--collection", "c"]);
    let config = place.cli(&["config", "list", "--json"]);

    let mut fleet = ROLES.map(|role| place.start(role, &script));
    let over = ask(&place, "send the parcels of one that is over");
    ends_once(&mut place.command(&["attach", "--json", &over]));
    let mut going: Vec<String> = Vec::new();
    loop {
        let questions = (0..6).map(|number| format!("send the parcels of number {number}"));
        going.extend(questions.map(|question| ask(&place, &question)));
        fleet[0].kill();
        let runs = place.cli(&["sessions", "list", "--json"]);
        let runs = runs.as_array().unwrap();
        if runs.iter().any(|run| run["state"] == "running") {
            break;
        }
        // The fleet was faster than the kill.
        fleet[0] = place.start(ROLES[0], &script);
    }
    let waiting = ask(&place, "send waiting");
    let file = place.path("fleet.dump");
    let file = file.to_str().unwrap();
    let says = refused(&mut place.command(&["backup", file]));
    assert!(says.contains("pg_dump"), "{says}");
    let old = place.postgres.address().to_owned();
    postgres(&["pg_dump", "--format=custom", "--file", file, &old]);
    // What came later is not in it.
    let later = ask(&place, "send later");
    let told = trace(&place, &over);
    drop(fleet);

    // Of the graph there is no backup at all: what is younger than an hour is told again.
    place.pulsar = Server::pulsar();
    place.fuseki = Server::fuseki(None);
    place.postgres = Server::postgres("");
    let new = place.postgres.address().to_owned();
    let restore = ["pg_restore", "--no-owner", "--dbname", &new, file];
    postgres(&restore);
    let told_again = output(&mut place.command(&["restore"]));
    let told_again = String::from_utf8(told_again).unwrap();
    assert!(told_again.contains("were published again"), "{told_again}");
    let _fleet = ROLES.map(|role| place.start(role, &script));
    for session in going.iter().chain([&over, &waiting]) {
        ends_once(&mut place.command(&["attach", "--json", session]));
    }
    started_once(&starts);
    // The graph-writer may still be at it.
    let patience = Instant::now() + Duration::from_secs(60);
    while trace(&place, &over) != told {
        assert!(Instant::now() < patience, "{:?}", trace(&place, &over));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(place.cli(&["config", "list", "--json"]), config);
    refused(&mut place.command(&["sessions", "show", &later]));
    let document = output(&mut place.command(&["document", "urn:agentfleet:document:c:mill.md"]));
    let document = String::from_utf8(document).unwrap();
    assert!(document.contains("The river feeds the mill"), "{document}");
}
