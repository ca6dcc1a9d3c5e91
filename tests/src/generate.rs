//! Scenarios out of a seed.

use crate::rng::Rng;
use crate::scenario::{Identity, Kind, Root, Scenario, Trouble, Use, Work};
use agentfleet_schema::RunLimits;
use agentfleet_schema::config::JoinPolicy;

/// Most pieces of work in one run: what goes wrong shows with few.
const MOST: usize = 14;

/// Draws what the fleet is asked.
pub fn scenario(rng: &mut Rng) -> Scenario {
    let mut scenario = Scenario {
        fickle: rng.per_mille(500),
        policy: if rng.per_mille(300) {
            JoinPolicy::AtLeast(rng.between(1, 4) as u32)
        } else {
            JoinPolicy::All
        },
        max_iterations: rng.between(2, 6) as u32,
        max_depth: rng.between(1, 3) as u32,
        max_rounds: rng.between(1, 3) as u32,
        subagent_timeout_ms: *rng.pick(&[2_000, 20_000, 300_000, 300_000]),
        run_timeout_ms: *rng.pick(&[10_000, 120_000, 3_600_000, 3_600_000]),
        max_attempts: rng.between(2, 5) as u32,
        ..Scenario::default()
    };
    let roots = if rng.per_mille(200) { 2 } else { 1 };
    for n in 0..roots {
        let name = format!("r{n}");
        let depth = scenario.max_depth;
        if rng.per_mille(650) {
            supervisor(rng, &mut scenario, &name, depth);
        } else {
            react(rng, &mut scenario, &name, 4);
        }
        let pattern = match &scenario.works[&name].kind {
            _ if rng.per_mille(300) => "",
            Kind::React(_) => "react",
            Kind::Supervisor(_) => "supervisor",
        };
        scenario.roots.push(Root {
            work: name,
            identity: match rng.below(10) {
                0..=3 => Identity::Session,
                4..=7 => Identity::Id,
                _ => Identity::Nothing,
            },
            pattern: pattern.to_owned(),
            streaming: rng.per_mille(300),
            limits: RunLimits {
                max_tokens: rng.per_mille(150).then(|| rng.between(30, 600) as u64),
                max_sessions: rng.per_mille(100).then(|| rng.between(2, 9) as u32),
                ..RunLimits::default()
            },
            cancel_after: rng.per_mille(200).then(|| rng.between(1, 600) as u64),
        });
    }
    scenario
}

fn trouble(rng: &mut Rng) -> Trouble {
    match rng.below(60) {
        0 | 1 => Trouble::Stuck,
        2 | 3 => Trouble::Poison,
        4 => Trouble::Deadly,
        5 | 6 => Trouble::Refused,
        7 => Trouble::Unavailable,
        _ => Trouble::None,
    }
}

fn react(rng: &mut Rng, scenario: &mut Scenario, name: &str, most: i64) {
    let count = rng.between(0, most);
    let uses = (0..count)
        .map(|_| match rng.below(12) {
            0..=4 => Use::Read,
            5..=9 => Use::Write,
            10 => Use::Unknown,
            _ => Use::Garbage,
        })
        .collect();
    let work = Work {
        kind: Kind::React(uses),
        trouble: trouble(rng),
    };
    scenario.works.insert(name.to_owned(), work);
}

fn supervisor(rng: &mut Rng, scenario: &mut Scenario, name: &str, depth: u32) {
    let rounds = if rng.per_mille(300) { 2 } else { 1 };
    let mut all = Vec::new();
    for round in 0..rounds {
        // Mostly few, now and then the most.
        let width = if rng.per_mille(120) {
            8
        } else {
            rng.between(2, 4)
        };
        let mut children = Vec::new();
        for child in 0..width {
            let child = format!("{name}.{}", round * 10 + child);
            if depth > 1 && scenario.works.len() + 4 < MOST && rng.per_mille(200) {
                supervisor(rng, scenario, &child, depth - 1);
            } else {
                react(rng, scenario, &child, 2);
            }
            children.push(child);
        }
        all.push(children);
    }
    let trouble = if rng.per_mille(900) {
        Trouble::None
    } else {
        trouble(rng)
    };
    scenario.works.insert(
        name.to_owned(),
        Work {
            kind: Kind::Supervisor(all),
            trouble,
        },
    );
}
