//! A fleet on servers is copied while it works, and put back onto other servers and into a data
//! directory: what was over is as it was, and what was in progress goes on and ends, once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use agentfleet_servers::Server;
use agentfleet_tests::load::{
    Process, Starts, ends_once, notify, output, refused, said, script, service, started_once,
};
use agentfleet_tests::place::{Place, ROLES};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Where a copy was put back.
struct Other<'a> {
    place: &'a Place,
    /// None: into a data directory alone.
    servers: Option<[Server; 2]>,
    data: &'a str,
}

impl Other<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("AGENTFLEET_DATA", self.place.path(self.data));
        match &self.servers {
            Some([pulsar, fuseki]) => command
                .env("AGENTFLEET_BROKER", pulsar.address())
                .env("AGENTFLEET_BROKER_ADMIN", pulsar.admin())
                .env("AGENTFLEET_DOCUMENTS", "s3://fleet/restored")
                .env("AGENTFLEET_GRAPH", fuseki.address()),
            None => {
                for part in [
                    "BROKER",
                    "BROKER_ADMIN",
                    "DOCUMENTS",
                    "DOCUMENTS_ENDPOINT",
                    "GRAPH",
                ] {
                    command.env_remove(format!("AGENTFLEET_{part}"));
                }
                &mut command
            }
        };
        command
    }

    fn restore(&self, file: &str) {
        output(&mut self.command(&["restore", file]));
    }

    fn start(&self, role: &'static str, script: &Path) -> Process {
        let model = format!("scripted:{}", script.display());
        let mut command = self.command(&[role]);
        Process::start(role, command.env("AGENTFLEET_MODEL", model), "Working on")
    }
}

fn ask(place: &Place, question: &str) -> String {
    let answer = place.cli(&["ask", "--detach", "--json", question]);
    answer["session_id"].as_str().unwrap().to_owned()
}

/// What the graph itself holds of what is told of a session.
fn told(mut query: impl FnMut(&[&str]) -> Command, session: &str) -> Value {
    let sparql = format!(
        "SELECT (COUNT(*) AS ?n) FROM <urn:graph:retrieval> {{ ?s ?p ?o
         FILTER(STRSTARTS(STR(?s), \"urn:trustgraph:agent:{session}\")) }}"
    );
    said(&mut query(&["query", "--format", "json", &sparql]))["results"]["bindings"][0]["n"].clone()
}

#[test]
fn a_copy_of_a_fleet_at_work_goes_on_elsewhere() {
    let place = Place::new();
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
    let file = place.path("fleet.backup");
    let file = file.to_str().unwrap();
    let copied = output(&mut place.command(&["backup", file]));
    let copied = String::from_utf8(copied).unwrap();
    assert!(copied.contains("messages of runs in progress"), "{copied}");
    // What came later is not in it.
    let later = ask(&place, "send later");
    assert!(refused(&mut place.command(&["backup", file])).contains("is there already"));
    drop(fleet);

    let other = Other {
        place: &place,
        servers: Some([Server::pulsar(), Server::fuseki(None)]),
        data: "restored",
    };
    other.restore(file);
    let _fleet = ROLES.map(|role| other.start(role, &script));
    for session in going.iter().chain([&over, &waiting]) {
        ends_once(&mut other.command(&["attach", "--json", session]));
    }
    started_once(&starts);
    let trace =
        |session: &str| output(&mut other.command(&["trace", session, "--format", "turtle"]));
    assert_eq!(trace(&over), place.trace(&over));
    assert_eq!(
        told(|arguments| other.command(arguments), &over),
        told(|arguments| place.command(arguments), &over)
    );
    assert_eq!(
        said(&mut other.command(&["config", "list", "--json"])),
        config
    );
    refused(&mut other.command(&["sessions", "show", &later]));
    let document = ["document", "urn:agentfleet:document:c:mill.md"];
    let text = output(&mut place.command(&document));
    assert_eq!(output(&mut other.command(&document)), text);

    let home = Other {
        place: &place,
        servers: None,
        data: "home",
    };
    home.restore(file);
    ends_once(&mut home.command(&["attach", "--json", &over]));
    assert_eq!(output(&mut home.command(&document)), text);
    assert_eq!(
        said(&mut home.command(&["config", "list", "--json"])),
        config
    );
}
