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
            match rng.between(0, 5) {
                0 => JoinPolicy::Quorum,
                1 => JoinPolicy::Deadline,
                _ => JoinPolicy::AtLeast(rng.between(1, 4) as u32),
            }
        } else {
            JoinPolicy::All
        },
        parallel: rng.per_mille(500),
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
        match rng.below(20) {
            0..=8 => supervisor(rng, &mut scenario, &name, depth),
            9..=11 => react(rng, &mut scenario, &name, 4),
            12..=14 => plan(rng, &mut scenario, &name),
            15 | 16 => {
                let kind = Kind::Reflexion(uses(rng, 3));
                insert(rng, &mut scenario, &name, kind);
            }
            17 | 18 => {
                let kind = Kind::Debate(rng.between(1, 3) as u32);
                insert(rng, &mut scenario, &name, kind);
            }
            _ => router(rng, &mut scenario, &name),
        }
        let pattern = if rng.per_mille(300) {
            ""
        } else {
            scenario.works[&name].kind.pattern()
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
                max_model_calls: rng.per_mille(100).then(|| rng.between(1, 40) as u64),
                max_tool_calls: rng.per_mille(100).then(|| rng.between(1, 20) as u64),
                max_sessions: rng.per_mille(100).then(|| rng.between(2, 9) as u32),
                ..RunLimits::default()
            },
            cancel_after: rng.per_mille(200).then(|| rng.between(1, 600) as u64),
        });
    }
    scenario
}

/// Lets some calls need a person, in one scenario of four.
pub fn with_people(mut scenario: Scenario, rng: &mut Rng) -> Scenario {
    scenario.approval_ms = *rng.pick(&[2_000, 60_000, 60_000, 86_400_000]);
    if !rng.per_mille(250) {
        return scenario;
    }
    for work in scenario.works.values_mut() {
        let (Kind::React(uses) | Kind::Reflexion(uses)) = &mut work.kind else {
            continue;
        };
        for one in uses {
            if rng.per_mille(500) {
                *one = match *one {
                    Use::Read => Use::Peek,
                    Use::Write => Use::Pay,
                    other => other,
                };
            }
        }
    }
    scenario
}

/// Makes a quarter of all runs such that their histories have no room. It draws from numbers of its
/// own, so that all else is as it was.
pub fn lengthen(seed: u64, scenario: &mut Scenario) {
    if !matches!(seed % 8, 2 | 5) {
        return;
    }
    let mut rng = Rng::new(seed ^ 0x6c6f_6e67);
    scenario.context_window = *rng.pick(&[400, 700, 1_200, 3_000]);
    scenario.result_bytes = *rng.pick(&[0, 150, 600, 3_000]);
    scenario.max_iterations = rng.between(6, 16) as u32;
    for work in scenario.works.values_mut() {
        if let Kind::React(uses) | Kind::Reflexion(uses) = &mut work.kind {
            uses.extend(self::uses(&mut rng, 8));
        }
    }
}

/// Lets a quarter of all runs ask other agents instead of reading. It draws from numbers of its own, too.
pub fn hand_on(seed: u64, scenario: &mut Scenario) {
    if !matches!(seed % 8, 3 | 6) {
        return;
    }
    let mut rng = Rng::new(seed ^ 0x6167_656e);
    for work in scenario.works.values_mut() {
        if let Kind::React(uses) | Kind::Reflexion(uses) = &mut work.kind {
            for one in uses.iter_mut().filter(|one| **one == Use::Read) {
                if rng.per_mille(500) {
                    *one = Use::Agent;
                }
            }
        }
    }
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
    let kind = Kind::React(uses(rng, most));
    insert(rng, scenario, name, kind);
}

fn uses(rng: &mut Rng, most: i64) -> Vec<Use> {
    let count = rng.between(0, most);
    let uses = (0..count).map(|_| match rng.below(12) {
        0..=4 => Use::Read,
        5..=9 => Use::Write,
        10 => Use::Unknown,
        _ => Use::Garbage,
    });
    uses.collect()
}

fn insert(rng: &mut Rng, scenario: &mut Scenario, name: &str, kind: Kind) {
    let trouble = trouble(rng);
    let work = Work { kind, trouble };
    scenario.works.insert(name.to_owned(), work);
}

/// Steps of which each may need some of those before it.
fn plan(rng: &mut Rng, scenario: &mut Scenario, name: &str) {
    let count = rng.between(1, 5) as u32;
    let mut steps = Vec::new();
    for at in 0..count {
        let step = format!("{name}.{at}");
        let after = (0..at).filter(|_| rng.per_mille(350)).collect();
        react(rng, scenario, &step, 1);
        steps.push((step, after));
    }
    insert(rng, scenario, name, Kind::Plan(steps));
}

fn router(rng: &mut Rng, scenario: &mut Scenario, name: &str) {
    let count = if rng.per_mille(500) {
        0
    } else {
        rng.between(2, 3)
    };
    let names: Vec<String> = (0..count).map(|at| format!("{name}.{at}")).collect();
    for step in &names {
        react(rng, scenario, step, 2);
    }
    insert(rng, scenario, name, Kind::Router(names));
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
            } else if scenario.works.len() + 6 < MOST && rng.per_mille(120) {
                // Any pattern may be below another.
                match rng.below(3) {
                    0 => plan(rng, scenario, &child),
                    1 => router(rng, scenario, &child),
                    _ => {
                        let kind = Kind::Reflexion(uses(rng, 2));
                        insert(rng, scenario, &child, kind);
                    }
                }
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
