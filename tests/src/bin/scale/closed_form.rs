//! The simulation against what queueing theory knows exactly, so that it can be wrong.
//! Erlang's formula for M/M/c, Pollaczek and Khinchine's for M/G/1.
#![allow(clippy::panic)]

use crate::simulate::{Fleet, Load, Outcome, Time, simulate};

/// The chance that all of `servers` are busy, offered `erlangs` (arrivals times mean service time).
fn erlang_c(servers: usize, erlangs: f64) -> f64 {
    // Erlang B by its recurrence, which does not overflow.
    let blocked = (1..=servers).fold(1.0, |blocked, n| {
        erlangs * blocked / (n as f64 + erlangs * blocked)
    });
    let busy = erlangs / servers as f64;
    blocked / (1.0 - busy * (1.0 - blocked))
}

/// A fleet in which nothing takes time but the model.
fn only_model(servers: usize, model: Time) -> Fleet {
    Fleet {
        partitions: 1,
        partition: Time::Fixed(0.0),
        orchestrators: 1,
        concurrency: servers,
        processors: 1,
        processor: Time::Fixed(0.0),
        rounds: 0,
        round: Time::Fixed(0.0),
        publishes: 0,
        publish: Time::Fixed(0.0),
        model,
    }
}

fn load(runs_a_second: f64, seconds: f64) -> Load {
    Load {
        runs_a_second,
        steps_a_run: 1,
        seconds,
        seed: 7,
    }
}

fn close(what: &str, simulated: f64, exact: f64, within: f64) {
    assert!(
        (simulated - exact).abs() <= within * exact,
        "{what}: simulated {simulated:.4}, exact {exact:.4}"
    );
}

#[test]
fn erlangs_formula_gives_the_values_of_its_tables() {
    close("1 server at 0.5", erlang_c(1, 0.5), 0.5, 1e-9);
    close("2 servers at 1.5", erlang_c(2, 1.5), 9.0 / 14.0, 1e-9);
}

#[test]
fn waiting_for_a_slot_is_as_erlang_says_for_many_servers() {
    for (servers, busy) in [(1, 0.5), (1, 0.8), (2, 0.7), (8, 0.8), (32, 0.9), (64, 0.9)] {
        let erlangs = servers as f64 * busy;
        let fleet = only_model(servers, Time::Exponential { mean: 1.0 });
        let outcome = simulate(&fleet, &load(erlangs, 1_000_000.0 / erlangs));
        let chance = erlang_c(servers, erlangs);
        let wait = chance / (servers as f64 * (1.0 - busy));
        let what = format!("{servers} servers, {busy} busy");
        close(&format!("{what}: wait"), outcome.wait_mean, wait, 0.08);
        close(&format!("{what}: chance"), outcome.waited, chance, 0.04);
        close(&format!("{what}: held"), outcome.held, busy, 0.01);
        close(
            &format!("{what}: rate"),
            outcome.steps_a_second,
            erlangs,
            0.01,
        );
    }
}

#[test]
fn one_partition_waits_as_pollaczek_and_khinchine_say() {
    // Service times of the same mean, and the square of their coefficient of variation.
    let lognormal = Time::LogNormal {
        median: 1.0,
        p95: 3.0,
    };
    let scale = lognormal.mean();
    let variation = scale.powi(2) - 1.0;
    for (service, variation) in [
        (Time::Fixed(scale), 0.0),
        (Time::Exponential { mean: scale }, 1.0),
        (lognormal, variation),
    ] {
        let fleet = Fleet {
            partition: service,
            ..only_model(1_000, Time::Fixed(0.0))
        };
        let busy = 0.7;
        let Outcome { partition_wait, .. } = simulate(&fleet, &load(busy / scale, 2_000_000.0));
        let exact = busy * scale / (1.0 - busy) * (1.0 + variation) / 2.0;
        close(&format!("{service:?}"), partition_wait, exact, 0.04);
    }
}

#[test]
fn processors_that_are_shared_hold_throughput_to_what_they_can_do() {
    let fleet = Fleet {
        orchestrators: 2,
        processor: Time::Fixed(0.010),
        ..only_model(16, Time::Fixed(0.1))
    };
    // Two processors of 100 steps a second each, and more work than that.
    let outcome = simulate(&fleet, &load(400.0, 100.0));
    close("rate", outcome.steps_a_second, 200.0, 0.01);
    close("processors", outcome.processors, 1.0, 0.01);
}
