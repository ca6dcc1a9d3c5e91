//! A data directory moves to real servers with a run that is over and runs that are not: all of them
//! end there, once, and no call with an effect is started twice.

use agentfleet_servers::Server;
use agentfleet_tests::load::{
    Process, Starts, binary, ends_once, notify, output, refused, said, script, service,
    started_once,
};
use agentfleet_tests::place::ROLES;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

struct Place {
    directory: tempfile::TempDir,
    servers: Option<[Server; 3]>,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", self.path("data"))
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
            .env("AGENTFLEET_LOG", "error")
            .env("AGENTFLEET_LEASE", "5s")
            .env_remove("AGENTFLEET_MODEL");
        if let Some([pulsar, postgres, fuseki]) = &self.servers {
            command
                .env("AGENTFLEET_BROKER", pulsar.address())
                .env("AGENTFLEET_BROKER_ADMIN", pulsar.admin())
                .env("AGENTFLEET_RECORDS", postgres.address())
                .env("AGENTFLEET_GRAPH", fuseki.address());
        }
        command
    }

    fn cli(&self, arguments: &[&str]) -> Value {
        said(&mut self.command(arguments))
    }

    fn start(&self, name: &'static str, arguments: &[&str], says: &str) -> Process {
        let model = format!("scripted:{}", self.path("script.json").display());
        let mut command = self.command(arguments);
        Process::start(name, command.env("AGENTFLEET_MODEL", model), says)
    }

    fn up(&self) -> Process {
        self.start("up", &["up", "--json"], "url")
    }

    fn ask(&self, question: &str) -> String {
        let answer = self.cli(&["ask", "--detach", "--json", question]);
        answer["session_id"].as_str().unwrap().to_owned()
    }

    fn ends(&self, session: &str) {
        ends_once(&mut self.command(&["attach", "--json", session]));
    }

    /// Requests that wait or were being worked.
    fn unworked(&self) -> usize {
        let database = rusqlite::Connection::open(self.path("data/agentfleet.db")).unwrap();
        let count = "SELECT count(*) FROM deliveries
             JOIN messages ON messages.id = deliveries.id >> 16
             JOIN topics ON topics.id = messages.topic WHERE topics.name = 'agent-request'";
        let found: u32 = database.query_row(count, [], |row| row.get(0)).unwrap();
        found as usize
    }

    fn trace(&self, session: &str) -> Vec<String> {
        let told = output(&mut self.command(&["trace", session, "--format", "turtle"]));
        let mut lines: Vec<String> = String::from_utf8_lossy(&told)
            .lines()
            .map(|line| line.trim_end_matches(['.', ';', ',', ' ']).to_owned())
            .collect();
        lines.sort();
        lines
    }
}

#[test]
fn runs_in_progress_move_and_end_once() {
    let mut place = Place {
        directory: tempfile::tempdir().unwrap(),
        servers: None,
    };
    assert!(refused(&mut place.command(&["migrate"])).contains("every part is embedded"));
    let starts: Starts = Arc::default();
    let port = service(Arc::clone(&starts));
    script(place.directory.path());
    let tool = place.path("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(&["config", "put", "tool", "notify", tool.to_str().unwrap()]);
    let note = place.path("note.md");
    std::fs::write(&note, "# A note\n\nThe parcels go by rail.\n").unwrap();
    place.cli(&["load", note.to_str().unwrap(), "--collection", "notes"]);

    let servers = [Server::pulsar(), Server::postgres(""), Server::fuseki(None)];
    let third = format!("{}?schema=third", servers[1].address());
    let mut up = place.up();
    let over = place.ask("send the parcels of one that is over");
    place.ends(&over);
    let told = place.trace(&over);
    place.servers = Some(servers);
    assert!(refused(&mut place.command(&["migrate"])).contains("stop it first"));
    let servers = place.servers.take();
    let mut going: Vec<String> = Vec::new();
    loop {
        let questions = (0..6).map(|number| format!("send the parcels of number {number}"));
        going.extend(questions.map(|question| place.ask(&question)));
        up.kill();
        if place.unworked() > 0 {
            break;
        }
        // The fleet was faster than the kill.
        up = place.up();
    }
    // Nobody works: these wait as they were asked.
    let waiting: Vec<String> = (0..2)
        .map(|number| place.ask(&format!("send waiting {number}")))
        .collect();
    let version = place.cli(&["config", "list", "--json"]);

    place.servers = servers;
    place.cli(&["migrate"]);
    // Again is harmless: a migration that was cut off is started anew.
    place.cli(&["migrate"]);
    assert_eq!(place.cli(&["config", "list", "--json"]), version);

    let fleet = ROLES.map(|role| place.start(role, &[role], "Working on"));
    for session in [&over].into_iter().chain(&going).chain(&waiting) {
        place.ends(session);
    }
    assert_eq!(place.trace(&over), told);
    started_once(&starts);
    drop(fleet);
    // What was loaded is there for other machines too.
    let mut elsewhere = place.command(&["document", "urn:agentfleet:document:notes:note.md"]);
    let text = output(elsewhere.env("AGENTFLEET_DATA", place.path("elsewhere")));
    assert!(String::from_utf8_lossy(&text).contains("by rail"));

    // Another fleet is not moved onto this one, nor this one elsewhere; both go on as they are.
    let servers = place.servers.take();
    let mut other = place.command(&["config", "list", "--json"]);
    said(other.env("AGENTFLEET_DATA", place.path("other")));
    place.servers = servers;
    let mut onto = place.command(&["migrate"]);
    let told = refused(onto.env("AGENTFLEET_DATA", place.path("other")));
    assert!(told.contains("holds a fleet already"), "{told}");
    let mut on = place.command(&["migrate"]);
    let told = refused(on.env("AGENTFLEET_RECORDS", third));
    assert!(told.contains("was moved to postgres://"), "{told}");
    assert_eq!(place.cli(&["config", "list", "--json"]), version);

    // The old place is not worked any more.
    place.servers = None;
    let told = refused(&mut place.command(&["ask", "What now?"]));
    assert!(told.contains("was moved to pulsar://"), "{told}");
}
