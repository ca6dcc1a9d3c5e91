//! The worked example on Pulsar, a SPARQL server and PostgreSQL, with single roles that share nothing else: the
//! very script that runs it on the embedded parts.

use agentfleet_tests::load::{Process, output};
use agentfleet_tests::place::{Place, ROLES};
use std::process::Command;

#[test]
fn the_worked_example_on_servers() {
    let place = Place::new();
    let _fleet = ROLES.map(|role| {
        let mut command = place.command(&[role]);
        command
            .env("AGENTFLEET_DATA", place.path(role))
            .env("AGENTFLEET_MODEL", "offline");
        Process::start(role, &mut command, "Working on")
    });
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/worked-example.sh"));
    place.equip(&mut script);
    let said = String::from_utf8(output(&mut script)).unwrap();
    assert!(said.contains("valid provenance"), "{said}");
}
