//! Processes that share a machine: a replica without a graph of its own joins by the token of the
//! data directory, and what all of them do is one trace at the collector.

use agentfleet_tests::load::{
    Process, Starts, binary, ends_once, notify, output, refused, said, script, service,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost_otlp::Message as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("AGENTFLEET_DATA", self.path("data"))
            .env_remove("AGENTFLEET_MODEL")
            .env("AGENTFLEET_LOG", "error")
            .env("AGENTFLEET_LISTEN", "127.0.0.1:0");
        command
    }

    fn cli(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
        said(self.command(arguments).envs(variables.iter().copied()))
    }

    fn up(&self, variables: &[(&str, &str)]) -> Process {
        let mut command = self.command(&["up", "--json"]);
        Process::start("up", command.envs(variables.iter().copied()), "url")
    }

    fn replica(&self, role: &'static str, variables: &[(&str, &str)]) -> Process {
        let mut command = self.command(&[role]);
        Process::start(role, command.envs(variables.iter().copied()), "Working on")
    }
}

#[test]
fn a_replica_without_a_graph_joins_by_the_token() {
    let place = Place::new();
    let mut up = place.up(&[]);
    let url = up.url();
    let token = place.path("data/http-token");
    let mode = std::fs::metadata(&token).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    std::fs::write(
        place.path("facts.ttl"),
        "<urn:mill> <urn:feeds> <urn:town> .",
    )
    .unwrap();
    let facts = place.path("facts.ttl");
    let remote = [("AGENTFLEET_GRAPH", url.as_str())];
    let load = ["load", facts.to_str().unwrap(), "--collection", "c"];
    place.cli(&load, &remote);
    let ask = [
        "query",
        "--format",
        "json",
        "ASK { <urn:mill> <urn:feeds> <urn:town> }",
    ];
    for variables in [&remote[..], &[]] {
        assert_eq!(place.cli(&ask, variables)["boolean"], true, "{variables:?}");
    }

    // Its work is written through the door of the other.
    let mut replica = place.replica("graph-writer", &remote);
    let answer = place.cli(&["ask", "--detach", "--json", "What feeds the town?"], &[]);
    let session = answer["session_id"].as_str().unwrap();
    ends_once(&mut place.command(&["attach", "--json", session]));
    replica.stop();

    // A stranger on the same machine may neither read nor write.
    std::fs::write(&token, "another\n").unwrap();
    std::fs::write(&facts, "<urn:mill> <urn:feeds> <urn:city> .").unwrap();
    let told = refused(place.command(&load).envs(remote));
    assert!(told.contains("401"), "{told}");
    let told = refused(place.command(&ask).envs(remote));
    assert!(told.contains("401"), "{told}");
    up.stop();
}

/// So many that each of two processes gets some steps of them.
const QUESTIONS: usize = 6;

/// Spans by service.
type Told = Arc<Mutex<Vec<(String, Span)>>>;

/// A collector that keeps what it is sent.
fn collector(told: Told) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let told = Arc::clone(&told);
            std::thread::spawn(move || while take(stream.as_ref().unwrap(), &told).is_some() {});
        }
    });
    format!("http://{address}")
}

fn take(stream: &TcpStream, told: &Told) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap();
            }
            Some(_) => {}
            None => path = line,
        }
    }
    assert!(path.starts_with("POST /v1/traces "), "{path}");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    for resource in request.resource_spans {
        let attributes = resource.resource.unwrap().attributes;
        let service = attributes.iter().find(|a| a.key == "service.name").unwrap();
        let Some(Any::StringValue(service)) = service.value.clone().unwrap().value else {
            panic!("no service name")
        };
        let spans = resource.scope_spans.into_iter().flat_map(|s| s.spans);
        let mut told = told.lock().unwrap();
        told.extend(spans.map(|span| (service.clone(), span)));
    }
    let mut stream = stream;
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n",
        )
        .ok()
}

fn text(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|a| a.key == name)?;
    match found.value.clone()?.value? {
        Any::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Asks a supervisor's question of two processes, and returns what the collector was told.
fn traced(content: &str) -> Vec<(String, Span)> {
    let place = Place::new();
    let told = Told::default();
    let endpoint = collector(Arc::clone(&told));
    let port = service(Starts::default());
    let script = script(place.directory.path());
    let tool = place.path("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(
        &["config", "put", "tool", "notify", tool.to_str().unwrap()],
        &[],
    );
    let model = format!("scripted:{}", script.display());
    let variables = |more| {
        let mut all = vec![
            ("AGENTFLEET_OTLP", endpoint.as_str()),
            ("AGENTFLEET_OTLP_CONTENT", content),
            ("AGENTFLEET_MODEL", model.as_str()),
            ("AGENTFLEET_CONCURRENCY", "1"),
        ];
        all.extend(more);
        all
    };
    let mut up = place.up(&variables(Vec::new()));
    let url = up.url();
    let graph = ("AGENTFLEET_GRAPH", url.as_str());
    let mut replica = place.replica("orchestrator", &variables(vec![graph]));
    for number in 0..QUESTIONS {
        let question = format!("send the parcels of number {number}");
        output(&mut place.command(&["ask", "--json", &question]));
    }
    replica.stop();
    up.stop();
    let told = told.lock().unwrap();
    told.clone()
}

#[test]
fn a_run_is_one_trace_across_processes() {
    let told = traced("no");
    let services: BTreeSet<&str> = told.iter().map(|(service, _)| service.as_str()).collect();
    assert_eq!(
        services,
        BTreeSet::from(["agentfleet-fleet", "agentfleet-orchestrator"])
    );
    let mut traces: BTreeMap<&[u8], Vec<&Span>> = BTreeMap::new();
    for (_, span) in &told {
        traces.entry(&span.trace_id).or_default().push(span);
    }
    assert_eq!(traces.len(), QUESTIONS);
    for spans in traces.values() {
        let ids: BTreeSet<&[u8]> = spans.iter().map(|span| &span.span_id[..]).collect();
        assert_eq!(ids.len(), spans.len(), "a span was sent twice");
        let roots: Vec<&&Span> = spans
            .iter()
            .filter(|span| span.parent_span_id.is_empty())
            .collect();
        assert_eq!(roots.len(), 1);
        assert_eq!(roots[0].name, "invoke_agent supervisor");
        for span in spans {
            assert!(
                span.parent_span_id.is_empty() || ids.contains(&span.parent_span_id[..]),
                "`{}` hangs on nothing",
                span.name
            );
            assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
            assert!(
                text(span, "gen_ai.conversation.id").is_some(),
                "{}",
                span.name
            );
            let told = ["gen_ai.input.messages", "gen_ai.tool.call.arguments"];
            assert!(told.iter().all(|name| text(span, name).is_none()));
        }
        let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
        assert_eq!(count("invoke_agent react"), 3, "subagents");
        assert_eq!(count("execute_tool notify"), 6);
        assert_eq!(count("fan-in"), 1);
        assert!(spans.iter().any(|span| span.name.starts_with("chat ")));
    }
}

#[test]
fn what_was_said_is_told_only_where_that_is_asked_for() {
    let told = traced("yes");
    let said = |name: &str| told.iter().filter_map(|(_, span)| text(span, name)).count();
    assert!(said("gen_ai.input.messages") > 0);
    assert!(said("gen_ai.output.messages") > 0);
    assert!(said("gen_ai.tool.call.arguments") > 0);
}
