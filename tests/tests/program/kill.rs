//! `up` under load is killed with SIGKILL and started again, from a printed seed: every pattern, nested
//! trees, waits for people, small budgets, and runs that are cancelled. Afterwards every request has one
//! end, every fan-out one synthesis, no side-effecting call was started twice, and what is stored of each
//! run replays and verifies.
//!
//! `AGENTFLEET_KILL_SECONDS` sets how long (default 15), `AGENTFLEET_SEED` repeats a run.

use agentfleet_tests::load::{
    Process, Random, Starts, binary, ends_once, notify, number, said, script, service, started_once,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .env("AGENTFLEET_DATA", data)
        .env_remove("AGENTFLEET_MODEL");
    command
}

fn start(data: &Path, script: &Path) -> Process {
    let mut command = command(data, &["up", "--json"]);
    command
        .env("AGENTFLEET_MODEL", format!("scripted:{}", script.display()))
        .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
        .env("AGENTFLEET_LOG", "error");
    Process::start("up", &mut command, "url")
}

fn cli(data: &Path, arguments: &[&str]) -> Value {
    said(&mut command(data, arguments))
}

/// Looks at a run until it must have come to rest.
const LOOKS: u32 = 1_000;

/// What kills must interrupt, each at least once. Recording, publishing and acknowledging are one
/// transaction here, so there is nothing between them to interrupt: that is checked after each kill.
const WINDOWS: [&str; 5] = [
    "a step being worked",
    "a call between its intent and its result",
    "a fan-out with no subagent done",
    "a fan-out with some subagents done",
    "all subagents done, and no verdict",
];

/// What is asked, and with which flags.
const REQUESTS: [(&str, &[&str]); 10] = [
    ("send number", &[]),
    ("send the parcels of number", &[]),
    ("send the parcels of number", &[]),
    ("send the convoy of number", &[]),
    ("send by plan number", &["--pattern", "plan-then-execute"]),
    ("send with care number", &["--pattern", "reflexion"]),
    ("whether to send number", &["--pattern", "debate"]),
    ("send to whom it concerns number", &["--pattern", "router"]),
    ("send with a permit number", &[]),
    ("send a few parcels of number", &["--max-model-calls", "9"]),
];

/// Answers all calls that wait for a person: most of them are approved. One whose time is over, or whose
/// run ended, between the list and the answer says so. How many were answered.
fn answer_people(data: &Path, random: &mut Random) -> usize {
    let waiting = cli(data, &["approvals", "list", "--json"]);
    let mut answered = 0;
    for approval in waiting.as_array().unwrap() {
        let answer = ["deny", "approve", "approve"][random.below(3) as usize];
        let id = approval["id"].as_str().unwrap();
        let output = command(data, &["approvals", answer, id, "--as", "ada", "--json"]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let over = [
            format!("error: approval `{id}` is "),
            format!("error: it is too late to answer approval `{id}`"),
        ];
        let late = output.status.code() == Some(1) && over.iter().any(|over| said.contains(over));
        assert!(output.status.success() || late, "{answer} {id}: {said}");
        answered += usize::from(!late);
    }
    answered
}

/// What the kill interrupted, read from the database it left.
fn interrupted(data: &Path) -> Vec<&'static str> {
    let left = Left::read(data);
    let mut found = Vec::new();
    if left.held > 0 {
        found.push(WINDOWS[0]);
    }
    let step_of = |key: &str| key.split("/calls/").next().unwrap().to_owned();
    let calling = left.bodies.iter().any(|(key, body)| {
        let fenced = body["fence"] == json!(true);
        key.ends_with("/intent")
            && !fenced
            && !left.bodies.contains_key(&key.replace("/intent", "/result"))
            && !left
                .bodies
                .contains_key(&format!("{}/outcome", step_of(key)))
    });
    if calling {
        found.push(WINDOWS[1]);
    }
    for (key, fan_out) in &left.bodies {
        let verdict = key.replace("/fanout", "/fanin");
        if !key.ends_with("/fanout") || left.bodies.contains_key(&verdict) {
            continue;
        }
        let children = fan_out["children"].as_array().unwrap();
        let done = children
            .iter()
            .filter(|child| left.is_over(child["session"].as_str().unwrap()))
            .count();
        found.push(match done {
            0 => WINDOWS[2],
            some if some < children.len() => WINDOWS[3],
            _ => WINDOWS[4],
        });
    }
    let keys = |ending: &str| {
        left.bodies
            .keys()
            .filter(|key| key.ends_with(ending))
            .count()
    };
    assert_eq!(
        keys("/outcome"),
        keys("/published"),
        "a step was recorded and not published, or the other way round"
    );
    found.sort_unstable();
    found.dedup();
    found
}

/// What a kill left behind.
struct Left {
    bodies: BTreeMap<String, Value>,
    /// Requests that were given to a worker and not acknowledged.
    held: i64,
}

impl Left {
    fn read(data: &Path) -> Self {
        let database = Connection::open(data.join("agentfleet.db")).unwrap();
        let mut statement = database
            .prepare("SELECT key, body FROM objects WHERE key LIKE 'sessions/%'")
            .unwrap();
        let bodies = statement
            .query_map([], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))
            .unwrap()
            .map(|row| {
                let (key, stored): (String, Vec<u8>) = row.unwrap();
                let body = agentfleet_storage::unpack(&stored).unwrap();
                (key, serde_json::from_slice(&body).unwrap_or(Value::Null))
            })
            .collect();
        let held =
            "SELECT count(*) FROM deliveries JOIN subscriptions ON subscriptions.id = subscription
                    WHERE subscriptions.name = 'orchestrator' AND count > 0";
        let held = database.query_row(held, [], |row| row.get(0)).unwrap();
        Self { bodies, held }
    }

    fn is_over(&self, session: &str) -> bool {
        self.ends_as(session).is_some()
    }

    /// The outcome that a session ended with.
    fn ends_as(&self, session: &str) -> Option<&str> {
        let folder = format!("sessions/{session}/steps/");
        self.bodies.iter().find_map(|(key, record)| {
            let outcome = record["outcome"].as_str()?;
            let is_end = key.starts_with(&folder)
                && key.ends_with("/outcome")
                && ["answer", "cancelled", "fail"].contains(&outcome);
            is_end.then_some(outcome)
        })
    }
}

#[test]
fn nothing_is_lost_stuck_or_done_twice_under_sigkill() {
    let mut random = Random::from_environment();
    let seconds = number("AGENTFLEET_KILL_SECONDS", 15);
    println!("{random}, {seconds} s (AGENTFLEET_KILL_SECONDS)");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let starts: Starts = Arc::default();
    let port = service(Arc::clone(&starts));
    let script = script(dir.path());
    let tool = dir.path().join("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    cli(
        &data,
        &["config", "put", "tool", "notify", tool.to_str().unwrap()],
    );
    let mut asks = notify(port);
    asks["name"] = "notify-permitted".into();
    // Nobody has to answer: what is not denied in time is made.
    asks["approval"] =
        json!({"reason": "it cannot be taken back", "default": "approve", "timeout-ms": 1500});
    std::fs::write(&tool, asks.to_string()).unwrap();
    let put = ["config", "put", "tool", "notify-permitted"];
    cli(&data, &[&put[..], &[tool.to_str().unwrap()]].concat());

    let mut sessions = Vec::new();
    let mut kills: BTreeMap<&'static str, u32> = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let (mut asked, mut rounds) = (0, 0);
    let (mut cancelled, mut answered) = (0, 0);
    // Some windows are narrow: they are aimed at until each was hit. That takes a minute or two mostly, and
    // now and then much longer, so there is patience for ten times that.
    let patience = deadline + Duration::from_secs(60 * seconds);
    while Instant::now() < deadline
        || (WINDOWS.iter().any(|window| !kills.contains_key(window)) && Instant::now() < patience)
    {
        let mut fleet = start(&data, &script);
        for _ in 0..=random.below(3) {
            let (question, flags) = REQUESTS[(asked + random.below(2)) as usize % REQUESTS.len()];
            asked += 1;
            let question = format!("{question} {asked}");
            let ask = ["ask", "--detach", "--json", &question];
            let answer = cli(&data, &[&ask[..], flags].concat());
            sessions.push(answer["session_id"].as_str().unwrap().to_owned());
        }
        if random.below(4) == 0 {
            let one = &sessions[random.below(sessions.len() as u64) as usize];
            // It fails where the run has ended.
            let output = command(&data, &["cancel", one]).output().unwrap();
            cancelled += u32::from(output.status.success());
        }
        if random.below(4) == 0 {
            answered += answer_people(&data, &mut random);
        }
        std::thread::sleep(Duration::from_millis(random.below(120)));
        fleet.kill();
        rounds += 1;
        for window in interrupted(&data) {
            *kills.entry(window).or_default() += 1;
        }
    }
    println!(
        "{} requests, {rounds} kills, {cancelled} cancelled, {answered} answers of people; they interrupted:",
        sessions.len()
    );
    for window in WINDOWS {
        let times = kills.get(window).copied().unwrap_or_default();
        println!("  {times:>5}  {window}");
        assert!(
            times > 0,
            "no kill found {window}; try AGENTFLEET_KILL_SECONDS"
        );
    }

    // Left alone, every run ends.
    let mut fleet = start(&data, &script);
    for session in &sessions {
        ends_once(&mut command(&data, &["attach", "--json", session]));
    }
    // A subagent that nobody waited for may end after its root, and the graph hears of it later still. The
    // fleet's own graph is asked: each look would else read all of it anew.
    let served = fleet.url();
    for session in &sessions {
        let trace = ["trace", session.as_str(), "--format", "json"];
        let look = |_| said(command(&data, &trace).env("AGENTFLEET_GRAPH", &served));
        let is_settled = (0..LOOKS).map(look).any(|trace| trace["running"] == false);
        assert!(is_settled, "{session} still runs");
    }
    fleet.kill();
    // Whatever was interrupted, every step comes out of its records again, and the graph has them all.
    let all: Vec<&str> = sessions.iter().map(String::as_str).collect();
    let replayed = cli(&data, &[&["replay", "--json"], &all[..]].concat());
    assert_eq!(replayed["summary"]["diverging"], 0, "{replayed}");
    let verified = cli(&data, &[&["verify", "--json"], &all[..]].concat());
    let checked = verified["runs"].as_array().unwrap();
    assert_eq!(checked.len(), sessions.len());
    for (report, session) in checked.iter().zip(&sessions) {
        let is_well = report["session"] == session.as_str() && report["ok"] == true;
        assert!(is_well && report["ended"] == true, "{report}");
    }

    let calls = started_once(&starts);
    let database = Connection::open(data.join("agentfleet.db")).unwrap();
    let ids = |sql: &str| -> Vec<String> {
        let mut statement = database.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let fan_outs = ids("SELECT key FROM objects WHERE key LIKE '%/fanout'");
    let left = Left::read(&data);
    for key in &fan_outs {
        let session = key.split('/').nth(1).unwrap();
        if left.ends_as(session) == Some("cancelled") {
            continue;
        }
        let verdict = key.replace("/fanout", "/fanin");
        let there = ids(&format!("SELECT key FROM objects WHERE key = '{verdict}'"));
        assert_eq!(there.len(), 1, "LV-1: {key} has no verdict");
    }
    let problems: i64 = database
        .query_row(
            "SELECT count(*) FROM objects WHERE key LIKE 'parked/%'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(problems, 0, "something was dead-lettered");
    println!(
        "{calls} calls started once each, {} fan-outs with one verdict each",
        fan_outs.len()
    );
}
