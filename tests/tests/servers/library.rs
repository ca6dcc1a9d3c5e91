//! Documents that one machine loads are found by all, on real servers: every process here has a data
//! directory of its own, as processes on different machines have.

use agentfleet_tests::load::{Process, output, refused, said};
use agentfleet_tests::place::{Place, ROLES};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PUMPS: &str = "urn:agentfleet:document:plant:pumps.md";

/// A fleet whose processes share servers and nothing else.
struct Machines {
    place: Place,
}

impl Machines {
    fn command(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command
            .env("AGENTFLEET_DATA", self.place.path(machine))
            .env("AGENTFLEET_MODEL", "offline");
        command
    }

    fn cli(&self, machine: &str, arguments: &[&str]) -> Value {
        said(&mut self.command(machine, arguments))
    }

    fn start(&self, machine: &str, role: &'static str) -> Process {
        Process::start(role, &mut self.command(machine, &[role]), "Working on")
    }

    /// The command that loads a folder.
    fn loading(&self, machine: &str, folder: &str, collection: &str) -> Command {
        let folder = self.place.path(folder);
        let folder = folder.to_str().unwrap();
        self.command(
            machine,
            &["load", folder, "--collection", collection, "--json"],
        )
    }

    fn load(&self, machine: &str, folder: &str) -> Value {
        said(&mut self.loading(machine, folder, "plant"))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.place.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn ask(&self, question: &str) -> String {
        self.ask_of("plant", question)
    }

    /// What the fleet answers; asked by a machine that has loaded nothing and works nothing.
    fn ask_of(&self, collection: &str, question: &str) -> String {
        let arguments = ["ask", question, "--collection", collection, "--json"];
        let told = output(&mut self.command("client", &arguments));
        String::from_utf8(told).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_machine_loads_a_worker_elsewhere_answers_from() {
    let machines = Machines {
        place: Place::new(),
    };
    machines.write(
        "files/pumps.md",
        "# Pumps of the plant\n\nThe circulation pump Orkan-7 delivers 340 litres per minute. It is \
         serviced by the Hansen workshop every March, before the cooling season begins.\n",
    );
    machines.write(
        "files/pumps.ttl",
        "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n\
         <urn:plant:orkan7> rdfs:label \"Orkan-7\" ; <urn:plant:feeds> <urn:plant:tower> .\n\
         <urn:plant:tower> rdfs:label \"Cooling tower\" .\n",
    );
    let report = machines.load("loader", "files");
    assert_eq!(
        (&report["loaded"], &report["triples"]),
        (&2.into(), &3.into())
    );
    let mut fleet = ROLES.map(|role| machines.start(role, role));

    let answer = machines.ask("Who services the circulation pump?");
    assert!(answer.contains("Hansen"), "{answer}");
    assert!(answer.contains(PUMPS), "{answer}");
    let text = output(&mut machines.command("client", &["document", PUMPS]));
    assert!(String::from_utf8_lossy(&text).contains("340 litres"));
    let told = machines.cli("orchestrator", &["doctor", "--json"]);
    let documents = told.as_array().unwrap().iter();
    let documents = documents.filter(|finding| finding["what"] == "documents");
    let says: Vec<&str> = documents
        .filter_map(|found| found["says"].as_str())
        .collect();
    assert_eq!(
        says,
        ["2 documents loaded in 1 collection; the index here is up to date"]
    );

    // Another machine loads a changed file of the same name; the worker that runs learns of it.
    machines.write(
        "changed/pumps.md",
        "# Pumps of the plant\n\nThe circulation pump Orkan-7 is serviced by the Petersen yard.\n",
    );
    std::fs::remove_file(machines.place.path("files/pumps.md")).unwrap();
    let report = machines.load("another loader", "changed");
    assert_eq!(
        (&report["loaded"], &report["replaced"]),
        (&0.into(), &1.into())
    );
    // A read sees what was loaded a second before it; one that comes earlier may see the old text.
    let loaded = Instant::now();
    let answer = loop {
        let asked = loaded.elapsed();
        let answer = machines.ask("Who services the circulation pump Orkan-7?");
        if answer.contains("Petersen") || asked > Duration::from_secs(1) {
            break answer;
        }
    };
    assert!(answer.contains("Petersen"), "{answer}");
    assert!(!answer.contains("Hansen"), "{answer}");
    assert!(answer.contains(PUMPS), "{answer}");

    // A load is killed, and done again elsewhere; the worker is replaced by one that has nothing.
    for n in 0..400 {
        let text = format!("# Valve {n}\n\nThe valve {n} closes at a pressure of {n} bar.\n");
        machines.write(&format!("valves/{n}.md"), &text);
    }
    let documents = machines.place.documents().await;
    let before = documents.list("library/log/").await.unwrap().len();
    let mut load = machines.loading("killed loader", "valves", "valves");
    let mut load = load.stdout(Stdio::null()).spawn().unwrap();
    while documents.list("library/log/").await.unwrap().len() == before {
        assert!(load.try_wait().unwrap().is_none(), "it loaded nothing");
    }
    load.kill().unwrap();
    load.wait().unwrap();
    let report = said(&mut machines.loading("loader", "valves", "valves"));
    let count = |what: &str| report[what].as_u64().unwrap();
    assert_eq!(count("loaded") + count("unchanged"), 400, "{report}");
    assert!(count("unchanged") >= 200, "{report}");
    fleet[0].kill();
    fleet[0] = machines.start("fresh", ROLES[0]);
    let answer = machines.ask_of("valves", "At which pressure does valve 317 close?");
    assert!(answer.contains("317 bar"), "{answer}");

    // Erased from anywhere, it is gone everywhere: the store, the graph and the worker.
    output(&mut machines.command("client", &["purge", "--collection", "plant", "--yes"]));
    machines.cli("client", &["purge", "--collection", "valves", "--yes"]);
    let left = documents.list("library/versions/").await.unwrap();
    assert_eq!(left, Vec::<String>::new());
    let query = "ASK { GRAPH ?g { <urn:plant:orkan7> ?p ?o } }";
    let told = output(&mut machines.command("client", &["query", query]));
    assert!(String::from_utf8_lossy(&told).contains("false"));
    assert!(refused(&mut machines.command("client", &["document", PUMPS])).contains("no document"));
    let answer = machines.ask("Who services the circulation pump of the plant?");
    assert!(!answer.contains("Petersen"), "{answer}");
    for mut process in fleet {
        process.stop();
    }
}
