//! Seeded runs of the whole fleet against its invariants: a fixed set of seeds, and fresh ones.
//!
//! `AGENTFLEET_SIM_TRACES` names a folder to leave the provenance of fresh runs in.
//! `AGENTFLEET_SIM_RUNS` sets how many fresh runs there are. `AGENTFLEET_SEED` sets the first of
//! their seeds; alone it repeats that one run and tells its story.

use agentfleet_tests::explore::{self, Report};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

/// Each takes about a twentieth of a second of processor; `make soak` has many more.
const RUNS: u64 = 1_000;

/// Seeds of runs that once broke an invariant.
const ONCE_BROKEN: &[u64] = &[
    43,
    132,
    147,
    294,
    326,
    2_414_071_283_476,
    6_061_846_988_056,
    13_318_260_147_121,
    15_549_459_559_327,
    17_049_757_070_979,
    374_380_471_944,
    7_359_996_046_701,
    7_677_143_663_675,
    9_358_674_927_930,
    9_429_842_732_327,
    12_487_842_277_225,
    13_175_022_277_497,
    16_110_370_626_699,
];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("`{name}` must be a number, not `{text}`")),
    )
}

/// Runs a seed; a broken invariant is told with everything that led to it.
fn check(seed: u64) -> Report {
    let report = explore::run(seed, false);
    if let Some(violation) = &report.violation {
        let told = explore::run(seed, true);
        panic!(
            "seed {seed}: {violation}\n\n{}\n\
             replay: AGENTFLEET_SEED={seed} cargo test -p agentfleet-tests --test simulated simulator::fresh",
            told.story
        );
    }
    report
}

#[test]
fn fresh_seeds_keep_every_invariant() {
    let seed = number("AGENTFLEET_SEED");
    let runs = number("AGENTFLEET_SIM_RUNS").unwrap_or(if seed.is_some() { 1 } else { RUNS });
    let base = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() >> 20);
    let traces = std::env::var_os("AGENTFLEET_SIM_TRACES");
    println!("base seed {base}, {runs} runs");
    if runs == 1 {
        println!("{}", explore::run(base, true).story);
    }
    let (mut steps, mut counts) = (0, BTreeMap::new());
    for seed in base..base + runs {
        let report = check(seed);
        if let Some(folder) = &traces {
            let path = Path::new(folder).join(format!("run-{seed}.nq"));
            let quads = report.quads.iter().map(|quad| format!("{quad} .\n"));
            std::fs::write(path, quads.collect::<String>()).unwrap();
        }
        steps += report.steps;
        for (what, times) in report.counts {
            *counts.entry(what).or_insert(0) += times;
        }
    }
    println!("{steps} steps");
    for (what, times) in &counts {
        println!("{times:>9} {what}");
    }
}

#[test]
fn seeds_that_once_broke_an_invariant_keep_them_all() {
    for seed in ONCE_BROKEN {
        check(*seed);
    }
}

#[test]
fn equal_seeds_make_equal_runs() {
    for seed in 1..40 {
        let (first, second) = (explore::run(seed, false), explore::run(seed, true));
        assert_eq!(
            (first.hash, first.steps),
            (second.hash, second.steps),
            "seed {seed}"
        );
    }
}

#[test]
fn everything_that_can_go_wrong_does() {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 1..800 {
        for (what, times) in check(seed).counts {
            *counts.entry(what).or_default() += times;
        }
    }
    let expected = [
        "answers",
        "cancelled",
        "failures",
        "fan-outs",
        "continued",
        "syntheses",
        "plans",
        "revised plans",
        "steps of plans",
        "steps by subagents",
        "agents asked",
        "sent back",
        "rounds of debates",
        "dispatches",
        "histories shortened",
        "histories summarised",
        "verdicts: complete",
        "verdicts: enough",
        "verdicts: deadline",
        "cancels that came through",
        "closed trees",
        "crashes",
        "drains",
        "dead letters by delivery limit",
        "parked",
        "delivered again",
        "delivered early",
        "side effects",
        "unknown calls",
        "pauses",
        "expired approvals",
        "approved",
        "denied",
        "edited",
        "answers that count",
        "fault: Refused",
        "fault: ReplyLost",
        "fault: FalseExists",
        "fault: OwnExists",
        "fault: Doubled",
        "fault: Permanent",
    ];
    for what in expected {
        assert!(
            counts.contains_key(what),
            "`{what}` never happened: {counts:?}"
        );
    }
}
