//! `docs/protocol.md` against the code: its tables have what the code has, and its messages are read.

use agentfleet::settings::{Flags, Settings};
use agentfleet_broker::{MAX_PAYLOAD, MAX_PROPERTIES};
use agentfleet_core::bounds::{MAX_NAME, MAX_QUESTION};
use agentfleet_core::error::Code;
use agentfleet_core::limits::FleetLimits;
use agentfleet_orchestrator::LONGEST_WAIT;
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, AgentResponse, Digest, SessionId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/protocol.md")).unwrap()
}

/// The text below a heading, up to the next of its level or above.
fn section(page: &str, heading: &str) -> String {
    let level = heading.split(' ').next().unwrap().len();
    let mut lines = page.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "no section `{heading}`");
    let ends = |line: &&str| {
        let marks = line.split(' ').next().unwrap_or_default();
        !marks.is_empty() && marks.len() <= level && marks.bytes().all(|b| b == b'#')
    };
    let body: Vec<&str> = lines.take_while(|line| !ends(line)).collect();
    body.join("\n")
}

/// Cells of the rows of every table in a text, without the heads.
fn rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &str| line.starts_with('|') && !line.starts_with("|-");
    lines
        .iter()
        .enumerate()
        .filter(|(at, line)| {
            let next = lines.get(at + 1).copied().unwrap_or_default();
            is_row(line) && !next.starts_with("|-")
        })
        .map(|(_, line)| cells(line))
        .collect()
}

/// The words in backticks that rows begin with.
fn named(text: &str) -> BTreeSet<String> {
    let first = rows(text)
        .into_iter()
        .filter_map(|row| row.into_iter().next());
    first
        .flat_map(|cell| {
            let parts: Vec<String> = cell
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
            parts
        })
        .collect()
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_error_code_is_listed_with_what_to_do() {
    let table = section(&page(), "## Errors");
    assert_eq!(
        named(&table),
        set(Code::ALL.iter().map(|code| code.as_str()))
    );
    for row in rows(&table) {
        assert_eq!(row.len(), 4, "{row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
}

#[test]
fn topics_and_properties_are_those_of_the_code() {
    let page = page();
    let all = topics::ALL;
    assert_eq!(
        named(&section(&page, "## Topics")),
        set(all.iter().map(topics::Topic::as_str))
    );
    let mut read = set(property::CARRIED);
    read.extend(set([property::CLAIM]));
    assert_eq!(named(&section(&page, "### Properties of a request")), read);
    let known = [
        property::ID,
        property::REPLY_TO,
        property::TRACEPARENT,
        property::SESSION,
        property::ROOT,
    ];
    assert_eq!(
        named(&section(&page, "### Properties of a response")),
        set(known)
    );
}

#[test]
fn every_field_of_a_message_is_described() {
    let page = page();
    for (file, headings) in [
        (
            "agent-request",
            &["### Fields of a request", "### What only workers set"][..],
        ),
        ("agent-response", &["### Fields of a response"]),
    ] {
        let path = root().join(format!("schema/json-schema/{file}.json"));
        let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let fields = schema["properties"].as_object().unwrap().keys();
        let fields: BTreeSet<String> = fields.cloned().collect();
        let mut described = BTreeSet::new();
        for heading in headings {
            described.append(&mut named(&section(&page, heading)));
        }
        assert_eq!(described, fields, "{file}");
    }
}

#[test]
fn limits_are_those_in_force() {
    let page = page();
    let table = rows(&section(&page, "## Limits"));
    let settings = Settings::load(&Flags {
        data: Some("unused".into()),
        ..Flags::default()
    })
    .unwrap();
    let fleet = FleetLimits::default();
    let bytes = |bytes: usize| format!("{} bytes", grouped(bytes));
    let time = |time: Duration| humane(time.as_secs());
    let expected = [
        ("payload of a message", bytes(MAX_PAYLOAD)),
        (
            "properties of a message, names and values",
            bytes(MAX_PROPERTIES),
        ),
        ("`question`", bytes(MAX_QUESTION)),
        ("`session_id`", bytes(SessionId::MAX)),
        (
            "each of `user`, `collection`, `conversation_id`, `model`, `pattern` and `task_type`",
            bytes(MAX_NAME),
        ),
        (
            "each of `id`, `traceparent` and `reply-to`",
            bytes(property::MAX_CARRIED),
        ),
        ("time of a run", time(settings.run_timeout)),
        ("wait of a fan-out", time(settings.subagent_timeout)),
        ("work on one message", time(settings.wall_limit)),
        ("tries at a step", settings.max_attempts.to_string()),
        (
            "wait for a model that is away",
            format!(
                "until the time of the run is up, and {} hours at most",
                LONGEST_WAIT / 3_600_000
            ),
        ),
        ("responses are kept for", time(settings.retention)),
        (
            "iterations of one session",
            fleet.max_iterations.to_string(),
        ),
        ("subagents of one fan-out", fleet.max_subagents.to_string()),
        ("levels of fan-out", fleet.max_depth.to_string()),
        ("sessions of one run", grouped(fleet.max_sessions as usize)),
    ];
    for (what, value) in &expected {
        let row = table.iter().find(|row| row[0] == *what);
        assert_eq!(row.expect(what)[1], *value, "{what}");
    }
    assert_eq!(table.len(), expected.len());
}

#[test]
fn what_the_page_computes_is_right() {
    let page = page();
    let session = SessionId::unnamed(Some("order-7"), "ada", "", "");
    assert!(section(&page, "### Asking once").contains(session.as_str()));
    assert!(page.contains(Digest::of(b"Within 30 days.").as_str()));
}

fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn humane(seconds: u64) -> String {
    match seconds {
        s if s % 86_400 == 0 => format!("{} days", s / 86_400),
        s => format!("{} minutes", s / 60),
    }
}

#[test]
fn every_message_on_the_page_is_read_and_has_no_field_that_is_not() {
    let page = page();
    let blocks = |tag: &str| -> Vec<Value> {
        let fence = format!("```json {tag}\n");
        let found = page.split(&fence).skip(1);
        found
            .map(|rest| serde_json::from_str(rest.split("```").next().unwrap()).unwrap())
            .collect()
    };
    let known = |given: &Value, read: Value| {
        for field in given.as_object().unwrap().keys() {
            assert!(read.get(field).is_some(), "`{field}` is not known");
        }
    };
    let (requests, responses) = (blocks("request"), blocks("response"));
    assert!(requests.len() >= 2 && responses.len() >= 4);
    for given in requests {
        let read: AgentRequest = serde_json::from_value(given.clone()).unwrap();
        known(&given, serde_json::to_value(read).unwrap());
    }
    for given in responses {
        let read: AgentResponse = serde_json::from_value(given.clone()).unwrap();
        known(&given, serde_json::to_value(read).unwrap());
    }
}
