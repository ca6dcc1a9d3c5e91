//! Siblings that are counted in a dataset of their own: fan-in goes on while provenance lags, and nothing stays there.

use agentfleet_graph::{Graph, QueryOptions, RemoteGraph, RemoteOptions};
use agentfleet_servers::Server;
use agentfleet_tests::load::{Process, output, refused, said};
use agentfleet_tests::place::Place;
use serde_json::{Value, json};

#[test]
fn fan_in_goes_on_while_nobody_writes_the_graph() {
    let place = Place::new();
    let coordination = Server::fuseki(None);
    let goals = ["north", "south", "west"].map(|side| json!({"goal": format!("look {side}")}));
    let rules = json!({"rules": [
        {"operation": "supervisor-decompose", "text": json!({"thought": "each", "goals": goals}).to_string()},
        {"operation": "supervisor-review",
         "text": json!({"decision": "answer", "signal": "s", "rationale": "r"}).to_string()},
        {"operation": "supervisor-synthesise", "text": "All sides are dry."},
        {"operation": "agent-react", "text": "Final Answer: dry"},
    ]});
    let script = place.path("script.json");
    std::fs::write(&script, rules.to_string()).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command
            .env("AGENTFLEET_COORDINATION", coordination.address())
            .env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()));
        command
    };
    let work = |role: &'static str| Process::start(role, &mut command(&[role]), "Working on");
    let _working = ["orchestrator", "aggregator"].map(work);

    let asked = &["ask", "--pattern", "supervisor", "--json", "Survey it"];
    let answer = last(&output(&mut command(asked)));
    assert_eq!(answer["state"], "answered", "{answer}");
    let session = answer["session"].as_str().unwrap();
    // The graph was told of nothing, so who counted the three was the other dataset.
    assert_eq!(triples(place.fuseki.address()), 0);
    let told = refused(&mut command(&["trace", session]));
    assert!(told.contains("the graph is behind"), "{told}");

    let writer = work("graph-writer");
    let trace = loop {
        let trace = said(&mut command(&["trace", session, "--format", "json"]));
        if trace["running"] == false {
            break trace;
        }
    };
    assert_eq!(trace["sessions"].as_array().unwrap().len(), 4, "{trace}");
    output(&mut command(&["verify", session]));
    // What is concluded is forgotten, once whoever concluded it has come to that.
    while triples(coordination.address()) > 0 {}
    let findings = said(&mut command(&["doctor", "--json"]));
    let finding = |what: &str| {
        let all = findings
            .as_array()
            .or_else(|| findings["findings"].as_array());
        let found = all.unwrap().iter().find(|one| one["what"] == what);
        found
            .unwrap_or_else(|| panic!("no {what} in {findings}"))
            .clone()
    };
    assert_eq!(finding("coordination server")["ok"], true, "{findings}");
    let says = finding("coordination");
    assert_eq!(says["ok"], true, "{says}");
    assert!(
        says["says"]
            .as_str()
            .unwrap()
            .contains("holds 0 completions"),
        "{says}"
    );
    drop(writer);
}

/// The last of the lines of JSON.
fn last(said: &[u8]) -> Value {
    let text = String::from_utf8_lossy(said);
    serde_json::from_str(text.trim().lines().last().unwrap()).unwrap()
}

/// How many triples of completions and fan-outs a dataset has.
fn triples(address: &str) -> u64 {
    let count = async {
        let graph = RemoteGraph::connect_to_read(RemoteOptions::new(address))
            .await
            .unwrap();
        let sparql = "SELECT (COUNT(*) AS ?n) WHERE { GRAPH ?g { ?s ?p ?o } }";
        let found = graph
            .select(sparql, &[], QueryOptions::default())
            .await
            .unwrap();
        found.text(0, "n").unwrap().parse().unwrap()
    };
    tokio::runtime::Runtime::new().unwrap().block_on(count)
}
