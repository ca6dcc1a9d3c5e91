//! Every role as processes of its own on a real Pulsar, PostgreSQL and SPARQL server, and everything is killed
//! with SIGKILL at random moments: roles and servers, first of all under a wave of requests with eight
//! subagents each. Afterwards every caller was told one end, every fan-out has all answers, one verdict
//! and in the graph one synthesis, no side-effecting call was started twice, the graph has every
//! statement of every record, and independent validators find its traces valid.
//!
//! A second test kills one worker at a time, at the settings as they come: between calls, in calls of a
//! model, and in calls with side effects. It says for how long runs were held up, and fails if one has no
//! end. `AGENTFLEET_STORM_KILLS` sets how many kills of each there are (default 2).
//!
//! `AGENTFLEET_STORM_SECONDS` sets how long (default 30), `AGENTFLEET_STORM_WAVE` how many requests the
//! wave has (12), `AGENTFLEET_STORM_TRACES` how many traces are validated (4, half of them of the
//! wave), `AGENTFLEET_SEED` repeats the choices.

use agentfleet_broker::Properties;
use agentfleet_tests::callers::Callers;
use agentfleet_tests::evidence::{Evidence, validate};
use agentfleet_tests::load::{
    Process, Random, Starts, ends_once, notify, number, script, service, service_taking,
    started_once,
};
use agentfleet_tests::place::{Place, ROLES};
use agentfleet_tests::report::{Kill, Report, kinds};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// No more is asked while so many requests beside the wave are open: what ends the storm is its time,
/// and what it leaves is not a queue of an hour.
const OPEN: usize = 20;

/// More is asked while fewer requests than this are open.
const BUSY: usize = 6;

/// So many of the runs that the command asked for are looked at by the command, too.
const ATTACHED: usize = 5;

/// Each test has servers of its own, and the machine is too small for two sets.
static ALONE: Mutex<()> = Mutex::new(());

/// What a worker is killed in, what is asked so that it is, and how long that call takes.
const KILLED_IN: [(&str, &str, Duration); 3] = [
    ("no call", "send a number", Duration::ZERO),
    ("a model call", "think for long, then send", THINKS),
    ("a call with effects", "send a number slowly", TAKES),
];

/// The words of a thought, and the time between two of them.
const WORDS: u32 = 10;
const WORD: Duration = Duration::from_millis(300);
const THINKS: Duration = WORD.saturating_mul(WORDS);
const TAKES: Duration = Duration::from_secs(3);

/// What an operator sees: all settings as they come, few runs, and one worker killed at a time.
#[test]
fn a_killed_worker_holds_up_its_runs_for_seconds() {
    let _alone = ALONE.lock();
    let mut random = Random::from_environment();
    let count = number("AGENTFLEET_STORM_KILLS", 2) as usize;
    println!("{random}, {count} kills of each kind (AGENTFLEET_STORM_KILLS)");
    let mut place = Place::new();
    place.as_it_comes = true;
    let starts: Starts = Arc::default();
    for (name, takes) in [("notify", Duration::ZERO), ("notify-slowly", TAKES)] {
        let mut tool = notify(service_taking(Arc::clone(&starts), takes));
        tool["name"] = name.into();
        tool.as_object_mut().unwrap().remove("timeout-ms");
        let file = place.path("tool.json");
        std::fs::write(&file, tool.to_string()).unwrap();
        place.cli(&["config", "put", "tool", name, file.to_str().unwrap()]);
    }
    let script = slow_script(&place);
    let others = ROLES[1..].iter();
    let _others: Vec<Process> = others.map(|role| place.start(role, &script)).collect();
    let role = ROLES[0];
    let mut workers = [place.start(role, &script), place.start(role, &script)];
    let callers = Callers::listen(place.pulsar.address());
    ends_what_is_too_large(&place, &callers);
    let mut kills: Vec<Kill> = Vec::new();
    for at in 0..count * KILLED_IN.len() {
        let (what, question, _) = KILLED_IN[at % KILLED_IN.len()];
        let started = starts.lock().unwrap().len();
        callers.ask(&vec![question.to_owned(); BUSY]);
        match what {
            "no call" => {
                // At the latest when the first has ended: then others are at work.
                let until = Instant::now() + Duration::from_millis(random.below(500));
                while Instant::now() < until && callers.open() == BUSY {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            "a model call" => {
                callers.until_talking(BUSY);
                std::thread::sleep(Duration::from_millis(random.below(1_500)));
            }
            _ => {
                let all = started + BUSY;
                while starts.lock().unwrap().len() < all && callers.open() > 0 {
                    std::thread::sleep(Duration::from_millis(20));
                }
                std::thread::sleep(Duration::from_millis(random.below(2_000)));
            }
        }
        kills.push(Kill::and_start(what, || {
            workers[at % 2].kill();
            workers[at % 2] = place.start(role, &script);
        }));
        callers.until_all_ended();
    }
    let (asked, heard) = (callers.asked(), callers.heard());
    let kinds = kinds(&kills, &asked, &heard);
    println!("from a kill until every run had gone on, ms:");
    for (what, _, takes) in KILLED_IN {
        let Some(kind) = kinds.get(what) else {
            panic!("no kill found a run open: {what}");
        };
        let (median, longest) = kind.recovery();
        println!(
            "  in {what:<20} median {:>6}, longest {:>6}, each {:?}; an undisturbed call takes {}",
            median.unwrap(),
            longest.unwrap(),
            kind.recoveries,
            takes.as_millis()
        );
    }
    let unfinished = asked
        .iter()
        .filter(|one| heard.distinct_ends(one).len() != 1);
    assert_eq!(unfinished.count(), 0, "runs have no end, or several");
    started_once(&starts);
}

/// Straight on the queue, past every door: each has one end and is parked, and nothing is tried for ever.
fn ends_what_is_too_large(place: &Place, callers: &Callers) {
    let question = |question: String| json!({ "question": question }).to_string();
    let many = (0..500).map(|n| (format!("property-{n}"), "p".repeat(1_000)));
    let large = [
        (question("x".repeat(2_200_000)), Properties::new()),
        (question("\"".repeat(1_200_000)), Properties::new()),
        (
            json!({"question": "send", "conversation_id": "c".repeat(800_000)}).to_string(),
            Properties::new(),
        ),
        (question(String::new()), many.collect()),
    ];
    let count = large.len();
    for (payload, properties) in large {
        callers.publish(payload.into_bytes(), properties);
    }
    callers.until_all_ended();
    let parked = || {
        place
            .cli(&["dlq", "list", "--json"])
            .as_array()
            .unwrap()
            .len()
    };
    // The end of a run and the parked message are published at once, so one may come before the other.
    assert!((0..20).any(|_| parked() == count), "{} parked", parked());
    // What is tried again would be told again, while others are worked.
    callers.until_all_heard();
    let before = callers.heard().responses;
    callers.ask(&["send a number".to_owned()]);
    callers.until_all_ended();
    callers.until_all_heard();
    let (asked, heard) = (callers.asked(), callers.heard());
    for one in &asked[..count] {
        assert_eq!(heard.distinct_ends(one).len(), 1, "{one:?}");
        let error = heard.end(one).unwrap().error.as_ref();
        println!("too large: {}", error.expect("it cannot be worked"));
    }
    let last = heard.root(&asked[count]).unwrap();
    let own = heard.progress.iter().filter(|step| step.root == last);
    println!(
        "{before} responses to those, and {} parts of the next",
        own.count()
    );
    // On a busy machine Pulsar may confirm so late that a response is sent anew, once.
    assert!(heard.repeats <= count, "{} repeats", heard.repeats);
    drop(heard);
    assert_eq!(parked(), count);
}

/// Agents that take their time, where the question says so.
fn slow_script(place: &Place) -> std::path::PathBuf {
    let path = script(place.directory.path());
    let mut rules: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let thought = vec!["word"; WORDS as usize].join(" ");
    let slow = [
        json!({"operation": "agent-react", "contains": "think for long", "steps": 0,
               "words": true, "pause-ms": WORD.as_millis() as u64,
               "text": format!("Thought: {thought}\nAction: notify\nArgs: {{\"text\": \"a\"}}")}),
        json!({"operation": "agent-react", "contains": "slowly", "steps": 0, "pause-ms": 3,
               "text": "Thought: t\nAction: notify-slowly\nArgs: {\"text\": \"a\"}"}),
    ];
    rules["rules"].as_array_mut().unwrap().splice(0..0, slow);
    std::fs::write(&path, rules.to_string()).unwrap();
    path
}

#[test]
fn nothing_is_lost_stuck_or_done_twice_in_a_storm() {
    let _alone = ALONE.lock();
    let mut random = Random::from_environment();
    let seconds = number("AGENTFLEET_STORM_SECONDS", 30);
    let wave = number("AGENTFLEET_STORM_WAVE", 12) as usize;
    let traces = number("AGENTFLEET_STORM_TRACES", 4) as usize;
    println!("{random}, {seconds} s (AGENTFLEET_STORM_SECONDS)");
    let mut place = Place::new();
    let starts: Starts = Arc::default();
    let port = service(Arc::clone(&starts));
    let script = script(place.directory.path());
    let tool = place.path("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(&["config", "put", "tool", "notify", tool.to_str().unwrap()]);
    let mut replicas: Vec<Process> = ROLES
        .iter()
        .flat_map(|role| [*role, *role])
        .map(|role| place.start(role, &script))
        .collect();
    let callers = Callers::listen(place.pulsar.address());

    let questions: Vec<String> = (0..wave).map(|n| format!("send wave {n}")).collect();
    callers.ask(&questions);
    let mut detached = Vec::new();
    let mut kills: Vec<Kill> = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let spared = |kills: &[Kill]| {
        let all = ROLES.into_iter().chain(["pulsar", "documents", "fuseki"]);
        let mut spared = all.filter(|what| kills.iter().all(|kill| kill.what != *what));
        spared.next()
    };
    while Instant::now() < deadline || spared(&kills).is_some() {
        // Enough that kills find the fleet at work.
        let count = random.below(3) as usize + 1 + BUSY.saturating_sub(callers.open());
        if callers.open() < wave + OPEN {
            let question = |n: u64| match n {
                0 => "send a number".to_owned(),
                _ => "send the parcels".to_owned(),
            };
            let questions: Vec<String> = (0..count).map(|_| question(random.below(2))).collect();
            // By the command, too.
            if random.below(4) == 0 {
                for question in &questions {
                    let said = place.cli(&["ask", "--detach", "--json", question]);
                    let session = said["session_id"].as_str().unwrap();
                    callers.also_asked(session);
                    detached.push(session.to_owned());
                }
            } else {
                callers.ask(&questions);
            }
        }
        std::thread::sleep(Duration::from_millis(random.below(300)));
        let (chance, at) = (random.below(20), random.below(2) as usize);
        // When the time is over, whatever was spared so far.
        let over = Instant::now() >= deadline;
        let what = match (over.then(|| spared(&kills)).flatten(), chance) {
            (Some(what), _) => what,
            (None, 0) => "pulsar",
            (None, 1..=2) => "documents",
            (None, 3..=4) => "fuseki",
            (None, chance) => ROLES[chance as usize % ROLES.len()],
        };
        kills.push(Kill::and_start(what, || match what {
            "pulsar" => {
                place.pulsar.kill();
                place.pulsar.start();
            }
            "documents" => {
                place.postgres.kill();
                place.postgres.start();
            }
            "fuseki" => {
                place.fuseki.kill();
                place.fuseki.start();
            }
            role => {
                let ours = replicas.iter_mut().filter(|one| one.name() == role);
                let replica = ours.into_iter().nth(at).unwrap();
                replica.kill();
                *replica = place.start(role, &script);
            }
        }));
    }

    // Left alone, every run ends.
    let calm = Instant::now();
    let open = callers.open();
    println!(
        "{} kills; {open} of {} requests are open",
        kills.len(),
        callers.asked().len()
    );
    // A worker may have died in a call that a sibling wants to make too.
    let mut answered = 0;
    callers.until_all_ended_with(|| {
        let now = place.approve_all();
        answered += now;
        now
    });
    println!(
        "the last run ended {:.1?} after the storm; {answered} calls were asked of a person",
        calm.elapsed()
    );
    let evidence = Evidence::gather(&place, &callers);
    println!(
        "graph and marks were complete {:.1?} after the storm",
        calm.elapsed()
    );
    // Whatever is published from now on would be a repeat that nothing had caused.
    callers.until_all_heard();
    for replica in &mut replicas {
        replica.kill();
    }
    let mut report = Report::new(random.to_string(), &kills, &callers, &starts, evidence);
    report.write();
    println!("{report}");
    report.check();
    for session in detached.iter().take(ATTACHED) {
        ends_once(&mut place.command(&["attach", "--json", session]));
    }
    let heard = callers.heard();
    let asked = callers.asked();
    let root = |one| heard.root(one).unwrap();
    let of_the_wave = asked.iter().take(wave.min(traces.div_ceil(2)));
    let others = asked
        .iter()
        .skip(wave)
        .take(traces.saturating_sub(of_the_wave.len()));
    let roots: Vec<String> = of_the_wave.chain(others).map(root).collect();
    validate(&place, &roots);
    report.traces_validated = roots.len();
    let file = report.write();
    println!(
        "{} traces are valid {:.1?} after the storm; {}",
        roots.len(),
        calm.elapsed(),
        file.display()
    );
}
