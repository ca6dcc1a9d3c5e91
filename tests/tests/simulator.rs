//! Seeded runs of the whole fleet against its invariants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use agentfleet_tests::explore;

#[test]
fn try_out() {
    let from: u64 = std::env::var("AGENTFLEET_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let runs: u64 =
        std::env::var("AGENTFLEET_SIM_RUNS").ok().and_then(|s| s.parse().ok()).unwrap_or(200);
    std::panic::set_hook(Box::new(|_| {}));
    let started = std::time::Instant::now();
    let mut kinds: std::collections::BTreeMap<String, Vec<u64>> = Default::default();
    let mut counts: std::collections::BTreeMap<String, u64> = Default::default();
    let mut steps = 0;
    for seed in from..from + runs {
        let report = explore::run(seed, runs == 1);
        steps += report.steps;
        for (k, n) in report.counts { *counts.entry(k).or_default() += n; }
        if let Some(v) = report.violation {
            let brief: String = v.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
            kinds.entry(brief).or_default().push(seed);
            if runs == 1 { println!("{}\n{v}", report.story); }
        } else if runs == 1 { println!("{}", report.story); }
    }
    let t = started.elapsed();
    println!("{runs} runs, {steps} steps in {t:?}");
    for (k, n) in counts { println!("{n:>8} {k}"); }
    for (k, seeds) in kinds { println!("{:>5} {k}: {:?}", seeds.len(), &seeds[..seeds.len().min(6)]); }
}
