//! `make bench`: what the fleet costs beside the work, as ratios to the physical floor of the same
//! run. Model and tools are instant; provenance, records and streaming are on.
//!
//! `embedded` measures the parts that need no server, `servers` the one that starts some.

mod counted;
mod embedded;
mod instant;
mod long;
mod pipeline;
mod roles;
mod servers;
mod work;

use std::error::Error;
use std::time::Duration;

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The parts of the benchmark, by the name that chooses some: `make bench ONLY="steps memory"`.
/// The last starts servers, and is not run unless it is named.
const PARTS: [&str; 8] = [
    "steps",
    "supervisor",
    "fan-in",
    "triples",
    "long",
    "pipeline",
    "memory",
    SERVERS,
];
const SERVERS: &str = "servers";
/// What this program is when it starts itself again.
pub(crate) const AS_ROLE: &str = "as-role";
pub(crate) const ON_SERVERS: &str = "on-servers";

fn main() -> Result<()> {
    agentfleet::install_tls();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !matches!(
        arguments.first().map(String::as_str),
        Some(AS_ROLE | ON_SERVERS)
    ) {
        known(&arguments)?;
    }
    // Starting servers blocks, and so does waiting for this program again: no runtime is needed.
    if chosen(&arguments, SERVERS) {
        servers::start()?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(bench(&arguments))
}

fn chosen(arguments: &[String], part: &str) -> bool {
    arguments.iter().any(|name| name == part)
}

fn known(arguments: &[String]) -> Result<()> {
    let unknown = |name: &&String| !PARTS.contains(&name.as_str());
    match arguments.iter().find(unknown) {
        None => Ok(()),
        Some(name) => Err(format!("no part `{name}`: choose from {}", PARTS.join(", ")).into()),
    }
}

async fn bench(arguments: &[String]) -> Result<()> {
    match arguments {
        [kind, name] if kind == AS_ROLE => return roles::be(name).await,
        [kind] if kind == ON_SERVERS => return servers::run().await,
        _ => {}
    }
    let root = tempfile::tempdir()?;
    for part in PARTS {
        if part == SERVERS || !(arguments.is_empty() || chosen(arguments, part)) {
            continue;
        }
        let dir = root.path().join(part);
        match part {
            "steps" => Box::pin(embedded::steps(&dir)).await?,
            "supervisor" => Box::pin(embedded::supervisor(&dir)).await?,
            "fan-in" => Box::pin(embedded::fan_in(&dir)).await?,
            "triples" => embedded::triples(&dir).await?,
            "long" => Box::pin(long::history(&dir)).await?,
            "pipeline" => Box::pin(pipeline::pipeline(&dir)).await?,
            _ => {
                println!("\nMemory of an idle fleet");
                println!("  {}", embedded::idle_memory(&dir)?);
            }
        }
    }
    Ok(())
}

/// Does something so many times at once, and returns when the last has ended.
pub(crate) async fn parallel<T, F>(many: usize, act: impl Fn(usize) -> F) -> Result<()>
where
    F: Future<Output = Result<T>>,
{
    let acts: Vec<F> = (0..many).map(act).collect();
    futures::future::try_join_all(acts).await?;
    Ok(())
}

/// Of sorted times: the one that this share of them does not exceed.
pub(crate) fn quantile(times: &[Duration], share: f64) -> Duration {
    let rank = (times.len() as f64 * share).ceil() as usize;
    times[rank.clamp(1, times.len()) - 1]
}
