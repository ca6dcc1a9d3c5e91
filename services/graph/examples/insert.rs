//! How fast batches of provenance go in, against a bare SQLite insert of the same bytes.
//!
//! Run with `cargo run --release -p agentfleet-graph --example insert [batches]`.

mod steps;

use agentfleet_graph::{Batch, EmbeddedGraph, Graph, GraphOptions, QueryOptions};
use agentfleet_schema::Term;
use agentfleet_storage::{Database, Durability};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steps::step;

/// Batches that wait for one commit; a busy fleet has at least that many steps in flight.
const TOGETHER: usize = 32;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let batches: usize = std::env::args()
        .nth(1)
        .map_or(Ok(40_000), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path())?;
    let graph = EmbeddedGraph::open(database.clone(), GraphOptions::default(), &|_, _| ()).await?;
    let all: Vec<Batch> = (0..batches).map(step).collect();
    let triples: usize = all.iter().map(|batch| batch.triples.len()).sum();
    let mut bodies = Vec::with_capacity(batches);
    for batch in &all {
        bodies.push(graph.prepare(batch)?.bytes());
    }

    // The same bytes in the same groups, without graph, digest or memory.
    database.migrate(
        "bench",
        &["CREATE TABLE bench(id INTEGER PRIMARY KEY, body BLOB NOT NULL)"],
    )?;
    let (bare_started, bare_cpu) = (Instant::now(), cpu()?);
    for group in bodies.chunks(TOGETHER) {
        let rows: Vec<Vec<u8>> = group.iter().map(|size| vec![7; *size]).collect();
        let write = move |unit: &mut agentfleet_storage::Unit<'_>| {
            for row in &rows {
                let mut insert = unit
                    .tx()
                    .prepare_cached("INSERT INTO bench(body) VALUES (?1)")?;
                insert.execute([row])?;
            }
            Ok(())
        };
        database.write(Durability::Durable, write).await?;
    }
    let (bare, bare_cpu) = (bare_started.elapsed(), cpu()?.saturating_sub(bare_cpu));

    let graph = Arc::new(graph);
    let (started, started_cpu) = (Instant::now(), cpu()?);
    let mut waiting = all.into_iter();
    loop {
        let group: Vec<Batch> = waiting.by_ref().take(TOGETHER).collect();
        if group.is_empty() {
            break;
        }
        graph.insert(group).await?;
    }
    let (took, used) = (started.elapsed(), cpu()?.saturating_sub(started_cpu));

    let bytes: usize = bodies.iter().sum();
    println!(
        "{batches} batches, {triples} triples, {} bytes a triple in the log",
        bytes / triples
    );
    report("bare SQLite", bare, bare_cpu, batches, triples);
    report("graph", took, used, batches, triples);
    println!(
        "ratio: {:.2} of the time of bare SQLite",
        took.as_secs_f64() / bare.as_secs_f64()
    );

    let query = "SELECT ?next { ?next prov:wasDerivedFrom ?node }";
    let node = Term::iri("urn:trustgraph:agent:550e8400-e29b-41d4-a716-000000000001/i1");
    let asked = Instant::now();
    for _ in 0..1000 {
        graph
            .query(query, &[("node", node.clone())], QueryOptions::default())
            .await?;
    }
    println!("query: {:.0} us", asked.elapsed().as_secs_f64() * 1e3);

    drop(graph);
    let again = Instant::now();
    let graph = EmbeddedGraph::open(database, GraphOptions::default(), &|_, _| ()).await?;
    println!(
        "reread: {} quads in {:.2} s",
        graph.health().quads,
        again.elapsed().as_secs_f64()
    );
    Ok(())
}

fn report(name: &str, took: Duration, used: Duration, batches: usize, triples: usize) {
    println!(
        "{name}: {:.0} triples/s, {:.3} ms and {:.3} ms of CPU a batch",
        triples as f64 / took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / batches as f64,
        used.as_secs_f64() * 1e3 / batches as f64,
    );
}

/// CPU time of this process so far (Linux; elsewhere nothing).
fn cpu() -> Result<Duration, Box<dyn std::error::Error>> {
    let Ok(text) = fs::read_to_string("/proc/self/stat") else {
        return Ok(Duration::ZERO);
    };
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields.get(index).unwrap_or(&"0").parse::<u64>();
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}
