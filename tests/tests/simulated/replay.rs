//! Replay finds what was changed. That it finds nothing where nothing was changed is checked at the
//! end of every simulated run.

use agentfleet_schema::keys;
use agentfleet_schema::records::{Activity, Call, OutcomeKind, StepRecord};
use agentfleet_tests::directed::Stage;
use agentfleet_tests::replayed::Archive;
use agentfleet_tests::scenario::{Scenario, Use};
use agentfleet_tests::sim::Engine;

/// A run that is over: `r0` calls tools, `r1` fans out.
fn ended(engine: Engine) -> (Stage, Archive) {
    let scenario = Scenario::new()
        .react("r0", &[Use::Read, Use::Write, Use::Garbage])
        .supervisor("r1", 2);
    let mut stage = Stage::asked(scenario, engine);
    stage.end();
    let archive = stage.sim.with(|world| Archive::of(world));
    (stage, archive)
}

type Change = fn(&mut StepRecord);

/// What is changed in a step, and how the place of the divergence begins.
const CHANGES: &[(&str, u32, Change, &str)] = &[
    ("r0", 0, reply, ""),
    ("r0", 0, |r| tool(r, |call| call.push('s')), "calls[1]"),
    ("r0", 0, |r| drop(r.calls.pop()), "calls[1]"),
    ("r0", 0, |r| r.calls.push(r.calls[0].clone()), "calls[2]"),
    ("r0", 0, prompt, "calls[0].prompt"),
    ("r0", 0, |r| r.outcome = OutcomeKind::Answer, "outcome"),
    ("r0", 0, |r| r.total.tokens += 1, "tokens_total"),
    (
        "r0",
        0,
        |r| r.request = agentfleet_schema::Digest::of(b"x"),
        "request",
    ),
    (
        "r0",
        0,
        |r| r.publications[0].body.push(' '),
        "publications",
    ),
    ("r0", 1, |r| r.derives_from.push('x'), "derives_from"),
    ("r1", 0, goal, "activity.children[0].goal"),
    ("r1", 1, |r| r.calls.swap(1, 2), "calls["),
    ("r1", 1, |r| r.decisions.clear(), "decisions"),
    ("r1", 1, |r| r.documents[0].bytes += 1, "documents[0].bytes"),
];

fn reply(record: &mut StepRecord) {
    for call in &mut record.calls {
        if let Call::Model { reply, .. } = call {
            "Final Answer: something else".clone_into(reply);
        }
    }
}

fn prompt(record: &mut StepRecord) {
    if let Some(Call::Model { prompt, .. }) = record.calls.first_mut() {
        prompt.push('!');
    }
}

fn goal(record: &mut StepRecord) {
    if let Activity::FannedOut(fan_out) = &mut record.activity {
        fan_out.children[0].goal.push('!');
    }
}

fn tool(record: &mut StepRecord, change: impl Fn(&mut String)) {
    for call in &mut record.calls {
        if let Call::Tool { name, .. } = call {
            change(name);
        }
    }
}

#[test]
fn a_changed_record_is_named_with_the_place() {
    for engine in [Engine::EMBEDDED, Engine::DISTRIBUTED] {
        let (stage, whole) = ended(engine);
        for (at, (name, step, change, place)) in CHANGES.iter().enumerate() {
            let mut archive = whole.clone();
            let mut record = archive.record(&stage.session(name), *step);
            assert_eq!(archive.replay(&record).unwrap().divergences, []);
            change(&mut record);
            archive.tamper(&record);
            let found = archive.replay(&record).unwrap().divergences;
            let first = found.first().map(|divergence| divergence.at.clone());
            assert!(
                first.as_ref().is_some_and(|at| at.starts_with(place)),
                "change {at} of {name} {step}: {found:#?}"
            );
        }
    }
}

#[test]
fn a_text_that_was_changed_or_is_gone_is_named() {
    let (stage, mut archive) = ended(Engine::EMBEDDED);
    let synthesis = archive.record(&stage.session("r1"), 1);
    let read = synthesis.calls.iter().find_map(|call| match call {
        Call::Document { uri, .. } => Some(uri.clone()),
        _ => None,
    });
    let uri = read.expect("a synthesis reads its subagents' answers");
    let body = (*b"another answer").into();
    archive.documents.insert(keys::document(&uri), body);
    let found = archive.replay(&synthesis).unwrap().divergences;
    assert!(found[0].at.contains(&uri), "{found:?}");
    archive.documents.remove(&keys::document(&uri));
    let found = archive.replay(&synthesis).unwrap().divergences;
    assert_eq!(found[0].derived, "no such text", "{found:?}");
}
