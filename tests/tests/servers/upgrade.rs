//! A rolling upgrade under load on real Pulsar, PostgreSQL and SPARQL servers: a new process starts beside
//! every replica, and the old one is stopped by SIGTERM. Each drains and exits with 0, and no caller
//! notices: every request has one end, which is an answer.

use agentfleet_tests::callers::Callers;
use agentfleet_tests::evidence::Evidence;
use agentfleet_tests::load::{Process, Random, Starts, notify, script, service};
use agentfleet_tests::place::{Place, ROLES};
use agentfleet_tests::report::Report;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many requests are open all the time.
const OPEN: usize = 5;

#[test]
fn every_replica_is_replaced_under_load_and_no_caller_notices() {
    let mut random = Random::from_environment();
    println!("{random}");
    let place = Place::new();
    let starts: Starts = Arc::default();
    let port = service(Arc::clone(&starts));
    let script = script(place.directory.path());
    let tool = place.path("tool.json");
    std::fs::write(&tool, notify(port).to_string()).unwrap();
    place.cli(&["config", "put", "tool", "notify", tool.to_str().unwrap()]);
    let roles = ROLES.iter().flat_map(|role| [*role, *role]).chain(["up"]);
    let mut replicas: Vec<Process> = roles.map(|role| place.start(role, &script)).collect();
    let callers = Callers::listen(place.pulsar.address());

    let over = AtomicBool::new(false);
    let questions = ["send a number", "send the parcels", "send a wave"];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            callers.keep_open(OPEN, &over, || {
                questions[random.below(questions.len() as u64) as usize].to_owned()
            });
        });
        // Ends the load however this ends.
        let _over = Over(&over);
        for replica in &mut replicas {
            let new = place.start(replica.name(), &script);
            let mut old = std::mem::replace(replica, new);
            old.stop();
        }
    });
    callers.until_all_ended();
    let evidence = Evidence::gather(&place, &callers);
    callers.until_all_heard();
    // The new ones drain as well, with nothing in flight.
    for replica in &mut replicas {
        replica.stop();
    }
    let report = Report::new(random.to_string(), &[], &callers, &starts, evidence);
    println!("{report}");
    report.check();
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
