//! How fast batches of provenance go into a SPARQL server, against a raw bulk insert of the same
//! statements into the same store: as N-Quads through its graph store protocol, without records,
//! checks or restraint.
//!
//! Run with `cargo run --release -p agentfleet-graph --example remote_insert [batches] [url]`. Without
//! an address it starts a Fuseki that keeps its triples on disk.

mod steps;

use agentfleet_graph::{Batch, Graph as _, RemoteGraph, RemoteOptions};
use agentfleet_schema::{Term, TermType, uris};
use agentfleet_servers::Server;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Batches that wait for one commit.
const TOGETHER: [usize; 3] = [1, 32, 256];
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Outcome<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = std::env::args().skip(1);
    let batches: usize = arguments.next().map_or(Ok(2_000), |text| text.parse())?;
    let (server, url) = match arguments.next() {
        Some(url) => (None, url),
        None => {
            let server = Server::fuseki(None);
            let url = server.address().to_owned();
            (Some(server), url)
        }
    };
    let graph = RemoteGraph::connect(RemoteOptions::new(&url)).await?;
    println!("{graph:?}");
    let raw = reqwest::Client::builder().no_proxy().build()?;
    // Nothing is inserted twice, and the server is warm before it counts.
    let mut next = 0;
    let mut fresh = |count: usize| -> Vec<Batch> {
        next += count;
        let provenance = |n| {
            let mut batch = steps::step(n);
            for triple in &mut batch.triples {
                triple.g = Some(uris::RETRIEVAL_GRAPH.to_owned());
            }
            batch
        };
        (next - count..next).map(provenance).collect()
    };
    bulk(&raw, &url, &fresh(batches), 32).await?;
    insert(&graph, fresh(batches), 32).await?;
    for together in TOGETHER {
        let count = batches.min(together * 200);
        let (mut fleet, mut bare) = (Duration::ZERO, Duration::ZERO);
        let mut triples = 0;
        for _ in 0..ROUNDS {
            let batches = fresh(count);
            triples += batches
                .iter()
                .map(|batch| batch.triples.len())
                .sum::<usize>();
            bare += bulk(&raw, &url, &batches, together).await?;
            fleet += insert(&graph, fresh(count), together).await?;
        }
        let rate = |took: Duration| triples as f64 / took.as_secs_f64();
        println!(
            "{together:>3} batches a commit: {:>6.0} triples/s, raw {:>6.0} triples/s, ratio {:.2}",
            rate(fleet),
            rate(bare),
            rate(fleet) / rate(bare)
        );
    }
    let statistics = graph.statistics().await?;
    println!("{} batches in the store's records", statistics.batches);
    drop(server);
    Ok(())
}

async fn insert(graph: &RemoteGraph, batches: Vec<Batch>, together: usize) -> Outcome<Duration> {
    let mut waiting = batches.into_iter();
    let started = Instant::now();
    loop {
        let group: Vec<Batch> = waiting.by_ref().take(together).collect();
        if group.is_empty() {
            return Ok(started.elapsed());
        }
        graph.insert(group).await?;
    }
}

/// The same in as many commits.
async fn bulk(
    client: &reqwest::Client,
    url: &str,
    batches: &[Batch],
    together: usize,
) -> Outcome<Duration> {
    let bodies: Vec<String> = batches.chunks(together).map(n_quads).collect();
    let started = Instant::now();
    for body in bodies {
        let request = client
            .post(format!("{url}/data"))
            .header("content-type", "application/n-quads")
            .body(body);
        request.send().await?.error_for_status()?;
    }
    Ok(started.elapsed())
}

fn n_quads(batches: &[Batch]) -> String {
    let text = |term: &Term| match term.kind {
        TermType::Iri => format!("<{}>", term.iri),
        _ if term.datatype.is_empty() => format!("{:?}", term.value),
        _ => format!("{:?}^^<{}>", term.value, term.datatype),
    };
    let triples = batches.iter().flat_map(|batch| &batch.triples);
    let lines = triples.map(|triple| {
        let graph = triple
            .g
            .as_ref()
            .map_or_else(String::new, |g| format!("<{g}> "));
        let (s, p, o) = (text(&triple.s), text(&triple.p), text(&triple.o));
        format!("{s} {p} {o} {graph}.\n")
    });
    lines.collect()
}
