//! The embedded engine beside its floor: one process, one data directory.

use crate::instant::{Noop, ask, make_instant};
use crate::roles::Usage;
use crate::work::{Done, Work, until_idle};
use crate::{Result, quantile};
use agentfleet::engine::Engine;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_graph::Batch;
use agentfleet_schema::{Term, Triple};
use agentfleet_storage::{Database, Durability};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) async fn engine(dir: &Path) -> Result<(Engine, Settings)> {
    let flags = Flags {
        data: Some(dir.display().to_string()),
        model: Some("offline".into()),
        concurrency: Some("64".into()),
        ..Flags::default()
    };
    let settings = Settings::load(&flags)?;
    let store = Store::open(&settings).await?;
    store.prepare(&settings).await?;
    Noop::allow(&*store.config).await?;
    let mut engine = Engine::open(store, &settings, &|_, _| {}).await?;
    make_instant(&mut engine);
    Ok((engine, settings))
}

/// Group-committed, fsynced inserts of `bytes` through the same writer: the floor of a step.
async fn floor(dir: &Path, tasks: usize, each: usize, bytes: usize) -> Result<f64> {
    let database = Database::open(dir)?;
    database.migrate(
        "floor",
        &["CREATE TABLE floor(id INTEGER PRIMARY KEY, body BLOB)"],
    )?;
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let database = database.clone();
        running.spawn(async move {
            for _ in 0..each {
                let body = vec![7u8; bytes];
                database
                    .write(Durability::Durable, move |unit| {
                        unit.tx()
                            .prepare_cached("INSERT INTO floor(body) VALUES (?1)")?
                            .execute([body])?;
                        Ok(())
                    })
                    .await?;
            }
            Ok::<_, agentfleet_storage::Error>(())
        });
    }
    while let Some(done) = running.join_next().await {
        done??;
    }
    Ok((tasks * each) as f64 / began.elapsed().as_secs_f64())
}

/// A run of the load: many short ones measure the step, where a long one would measure its history.
pub(crate) const STEPS_A_RUN: usize = 20;
pub(crate) const RUN: Work = Work {
    sessions: 1,
    steps: STEPS_A_RUN,
};
/// Steps worked before anything is measured.
pub(crate) const WARM_UP: usize = 2_000;

/// Asks for runs at so many sessions at once, for as long as `lasts`; the last ones are waited for.
/// Returns how many there were, and how long they took.
pub(crate) async fn load(
    engine: &Engine,
    sessions: usize,
    lasts: Duration,
) -> Result<(usize, Duration)> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..sessions {
        let engine = engine.clone();
        running.spawn(async move {
            let mut runs = 0;
            while began.elapsed() < lasts {
                ask(&engine, format!("steps={STEPS_A_RUN}"), "react").await?;
                runs += 1;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(runs)
        });
    }
    let mut runs = 0;
    while let Some(done) = running.join_next().await {
        runs += done??;
    }
    Ok((runs, began.elapsed()))
}

/// Works so many steps before something is measured.
pub(crate) async fn warm_up(engine: &Engine, steps: usize) -> Result<()> {
    crate::parallel(16, |_| async {
        for _ in 0..steps.div_ceil(16 * STEPS_A_RUN) {
            ask(engine, format!("steps={STEPS_A_RUN}"), "react").await?;
        }
        Ok(())
    })
    .await
}

pub(crate) async fn steps(root: &Path) -> Result<()> {
    println!("Overhead per step (instant model and tool; provenance, records, streaming on)");
    println!(
        "{:>9} {:>8} {:>9} {:>10} {:>13} {:>13} {:>14} {:>7}",
        "sessions",
        "steps",
        "steps/s",
        "sustained",
        "processor ms",
        "triples/step",
        "floor txn/s",
        "ratio"
    );
    for sessions in [1usize, 16, 64] {
        let dir = root.join(format!("steps-{sessions}"));
        let (engine, settings) = engine(&dir).await?;
        let fleet = Fleet::start(&engine, &settings, Roles::All).await?;
        warm_up(&engine, WARM_UP).await?;
        let before = Done::count(&engine).await?;
        let used = Usage::of(std::process::id())?;
        let (runs, took) = load(&engine, sessions, Duration::from_secs(10)).await?;
        let answered = used.since()?;
        let began = Instant::now();
        until_idle(&engine).await?;
        let settled = took + began.elapsed();
        let triples = Done::count(&engine).await?.check(before, RUN.times(runs))?;
        fleet.drain().await;
        let steps = (runs * STEPS_A_RUN) as f64;
        let rate = steps / took.as_secs_f64();
        let floor_dir = root.join(format!("floor-{sessions}"));
        let floor = floor(&floor_dir, sessions, 6_000 / sessions, 8 * 1024).await?;
        println!(
            "{sessions:>9} {steps:>8.0} {rate:>9.0} {:>10.0} {:>13.2} {triples:>13.1} {floor:>14.0} {:>7.2}",
            steps / settled.as_secs_f64(),
            answered as f64 / steps,
            rate / floor
        );
    }
    Ok(())
}

/// What a supervisor's run has: its fan-out, the steps of its subagents, its synthesis.
pub(crate) fn supervised(subagents: usize, steps_each: usize) -> Work {
    Work {
        sessions: 1 + subagents,
        steps: 2 + subagents * steps_each,
    }
}

pub(crate) async fn supervisor(dir: &Path) -> Result<()> {
    println!("\nA supervisor with 4 subagents of 2 steps, request to answer");
    let (engine, settings) = engine(dir).await?;
    let fleet = Fleet::start(&engine, &settings, Roles::All).await?;
    warm_up(&engine, WARM_UP).await?;
    let before = Done::count(&engine).await?;
    let used = Usage::of(std::process::id())?;
    let runs = 50;
    let mut times = Vec::new();
    for _ in 0..runs {
        times.push(ask(&engine, "children=4 of=2".into(), "supervisor").await?);
    }
    let used = used.since()?;
    let asked = supervised(4, 2).times(runs);
    Done::count(&engine).await?.check(before, asked)?;
    times.sort();
    println!(
        "  median {:.1?}, p95 {:.1?}, slowest of {runs} {:.1?}; {:.2} ms of processor a step",
        quantile(&times, 0.5),
        quantile(&times, 0.95),
        quantile(&times, 1.0),
        used as f64 / asked.steps as f64
    );
    fleet.drain().await;
    Ok(())
}

pub(crate) async fn fan_in(dir: &Path) -> Result<()> {
    println!("\nFan-in: a supervisor with N subagents of 1 step");
    let (engine, settings) = engine(dir).await?;
    let fleet = Fleet::start(&engine, &settings, Roles::All).await?;
    warm_up(&engine, WARM_UP).await?;
    fan_in_of(&engine, &[2, 8, 64, 256, 1_000]).await?;
    fleet.drain().await;
    Ok(())
}

pub(crate) async fn fan_in_of(engine: &Engine, sizes: &[usize]) -> Result<()> {
    println!("{:>9} {:>12} {:>16}", "siblings", "total", "for each");
    for siblings in sizes.iter().copied() {
        let before = Done::count(engine).await?;
        let took = ask(engine, format!("children={siblings} of=1"), "supervisor").await?;
        Done::count(engine)
            .await?
            .check(before, supervised(siblings, 1))?;
        println!(
            "{siblings:>9} {took:>12.1?} {:>16.1?}",
            took / siblings as u32
        );
    }
    Ok(())
}

pub(crate) async fn triples(dir: &Path) -> Result<()> {
    println!("\nTriples into the graph, against a raw insert of the same bytes");
    let (engine, _) = engine(&dir.join("graph")).await?;
    let batches: Vec<Batch> = (0..2_000)
        .map(|n| Batch {
            key: format!("urn:bench:{n}"),
            root: "bench".into(),
            collection: String::new(),
            conversation: String::new(),
            triples: (0..25)
                .map(|m| {
                    Triple::new(
                        &format!("urn:trustgraph:agent:bench/i{n}"),
                        &format!("https://trustgraph.ai/ns/p{m}"),
                        Term::text(format!("value {n} {m}")),
                    )
                })
                .collect(),
        })
        .collect();
    let triples = batches.len() * 25;
    let began = Instant::now();
    for chunk in batches.chunks(100) {
        engine.graph.insert(chunk.to_vec()).await?;
    }
    let graph_rate = triples as f64 / began.elapsed().as_secs_f64();
    let raw = floor(&dir.join("raw"), 1, 20, 100 * 25 * 150).await? * 100.0 * 25.0;
    println!(
        "  {graph_rate:.0} triples/s; raw insert {raw:.0} triples/s; ratio {:.2}",
        graph_rate / raw
    );
    Ok(())
}

/// Resident memory of `agentfleet up` with an empty data directory.
pub(crate) fn idle_memory(dir: &Path) -> Result<String> {
    let binary = std::env::current_exe()?.with_file_name("agentfleet");
    let mut child = std::process::Command::new(&binary)
        .arg("up")
        .env("AGENTFLEET_DATA", dir)
        .env("AGENTFLEET_MODEL", "offline")
        .env("AGENTFLEET_LISTEN", "127.0.0.1:0")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // It says where it serves once it is ready.
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let resident = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or("unknown");
    let says = format!(
        "{} resident after start",
        resident.trim_start_matches("VmRSS:").trim()
    );
    child.kill()?;
    child.wait()?;
    Ok(says)
}
