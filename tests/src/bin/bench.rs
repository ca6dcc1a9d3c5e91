//! `make bench`: what the fleet costs beside the work, as ratios to the physical floor of the same
//! run. Model and tools are instant; provenance, records and streaming are on.

use agentfleet::engine::Engine;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet::settings::{Flags, Settings};
use agentfleet::store::Store;
use agentfleet_graph::Batch;
use agentfleet_models::{
    Capabilities, ChatModel, Error as ModelError, ModelReply, ModelRequest, Operation, TextSink,
};
use agentfleet_runtime::client::{Event, Follow, submit};
use agentfleet_schema::config::{ToolItem, item_type};
use agentfleet_schema::{AgentRequest, RunLimits, Term, Triple};
use agentfleet_storage::{Database, Durability};
use agentfleet_tools::{Error as ToolError, ToolCall, ToolResult, Tools};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The binary's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Answers at once. A question `steps=N` takes N iterations; `children=N` fans out to N subagents of
/// `of` steps each.
#[derive(Debug)]
struct Instantly;

fn number(text: &str, name: &str) -> Option<usize> {
    let rest = text.split(name).nth(1)?;
    rest.chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .ok()
}

#[async_trait]
impl ChatModel for Instantly {
    fn describe(&self) -> String {
        "instant".into()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            native_tools: false,
            reasons: true,
        }
    }

    async fn chat(
        &self,
        request: ModelRequest,
        sink: &dyn TextSink,
    ) -> std::result::Result<ModelReply, ModelError> {
        let inputs = &request.inputs;
        let question = inputs["question"].as_str().unwrap_or_default();
        let text = match request.operation {
            Operation::ClassifyTaskType => r#"{"choice":"general","signal":"s"}"#.to_owned(),
            Operation::SelectPattern => r#"{"choice":"react","signal":"s"}"#.to_owned(),
            Operation::React => {
                let done = inputs["history"].as_array().map_or(0, Vec::len);
                if done + 1 < number(question, "steps=").unwrap_or(1) {
                    "Thought: go on\nAction: noop\nArgs: {\"query\": \"x\"}".to_owned()
                } else {
                    "Thought: done\nFinal Answer: it is done".to_owned()
                }
            }
            Operation::Decompose => {
                let of = number(question, "of=").unwrap_or(1);
                let goals: Vec<String> = (0..number(question, "children=").unwrap_or(2))
                    .map(|n| format!("goal {n} steps={of}"))
                    .collect();
                json!({"thought": "parts", "goals": goals}).to_string()
            }
            Operation::Review => r#"{"decision":"answer","signal":"s"}"#.to_owned(),
            Operation::Synthesise | Operation::Complete | Operation::Prompt => {
                "## All\nConfidence: 0.9\ndone".to_owned()
            }
        };
        sink.text(&text);
        Ok(ModelReply {
            text,
            model: "instant".into(),
            ..ModelReply::default()
        })
    }
}

/// Returns at once.
#[derive(Debug)]
struct Noop;

#[async_trait]
impl Tools for Noop {
    fn parameters(&self, _tool: &ToolItem) -> Value {
        json!({"type": "object"})
    }

    async fn call(&self, _call: ToolCall) -> std::result::Result<ToolResult, ToolError> {
        Ok(ToolResult {
            content: "ok".into(),
            ..ToolResult::default()
        })
    }
}

fn main() -> Result<()> {
    agentfleet::install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(bench())
}

async fn engine(dir: &Path) -> Result<(Engine, Settings)> {
    let flags = Flags {
        data: Some(dir.display().to_string()),
        model: Some("offline".into()),
        concurrency: Some("64".into()),
        ..Flags::default()
    };
    let settings = Settings::load(&flags)?;
    let store = Store::open(&settings).await?;
    store.prepare(&settings).await?;
    let noop = json!({"name": "noop", "type": "document-search", "description": "nothing"});
    let item = |item_type: &str, key: &str, value: Value| agentfleet_config::Item {
        item_type: item_type.into(),
        key: key.into(),
        value,
    };
    let wide = json!({"name": "supervisor", "description": "d", "max_subagents": 1000});
    let long = json!({"name": "react", "description": "d", "max_iterations": 100_000});
    agentfleet_config::ConfigStore::put(
        &*store.config,
        vec![
            item(item_type::TOOL, "noop", noop),
            item(item_type::AGENT_PATTERN, "supervisor", wide),
            item(item_type::AGENT_PATTERN, "react", long),
        ],
        "bench",
    )
    .await?;
    let mut engine = Engine::open(store, &settings, &|_, _| {}).await?;
    engine.model.model = Arc::new(Instantly);
    engine.tools = Arc::new(Noop);
    Ok((engine, settings))
}

/// Asks, and returns how long the answer took.
async fn ask(engine: &Engine, question: String, pattern: &str) -> Result<Duration> {
    let request = AgentRequest {
        question,
        pattern: pattern.into(),
        streaming: true,
        limits: RunLimits {
            max_iterations: None,
            ..RunLimits::default()
        },
        ..AgentRequest::default()
    };
    let began = Instant::now();
    let id = uuid::Uuid::new_v4().to_string();
    let broker = engine.broker();
    let session = submit(&*broker, request, &id, &[]).await?;
    let mut follow = Follow::new(broker, engine.documents(), session, 0);
    loop {
        for event in follow.next().await?.events {
            if let Event::End { error, .. } = event {
                return match error {
                    None => Ok(began.elapsed()),
                    Some(error) => Err(error.message.into()),
                };
            }
        }
    }
}

/// Group-committed, fsynced inserts of `bytes` through the same writer: the floor of a step.
async fn floor(dir: &Path, tasks: usize, each: usize, bytes: usize) -> Result<f64> {
    let database = Database::open(dir)?;
    database.migrate(
        "floor",
        &["CREATE TABLE floor(id INTEGER PRIMARY KEY, body BLOB)"],
    )?;
    let began = Instant::now();
    let mut running = tokio::task::JoinSet::new();
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

/// The parts of the benchmark, by the name that chooses one: `make bench ONLY=steps`.
const PARTS: [&str; 5] = ["steps", "supervisor", "fan-in", "triples", "memory"];

async fn bench() -> Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = chosen.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(format!("no part `{unknown}`: choose from {}", PARTS.join(", ")).into());
    }
    let root = tempfile::tempdir()?;
    for part in PARTS {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == part) {
            continue;
        }
        let dir = root.path().join(part);
        match part {
            "steps" => steps(&dir).await?,
            "supervisor" => supervisor(&dir).await?,
            "fan-in" => fan_in(&dir).await?,
            "triples" => triples(&dir).await?,
            _ => {
                println!("\nMemory of an idle fleet");
                println!("  {}", idle_memory(&dir)?);
            }
        }
    }
    Ok(())
}

async fn steps(root: &Path) -> Result<()> {
    println!("Overhead per step (instant model and tool; provenance, records, streaming on)");
    println!(
        "{:>9} {:>12} {:>14} {:>8}",
        "sessions", "steps/s", "floor txn/s", "ratio"
    );
    for sessions in [1usize, 16, 64] {
        let dir = root.join(format!("steps-{sessions}"));
        let (engine, settings) = engine(&dir).await?;
        let fleet = Fleet::start(&engine, &settings, Roles::All)?;
        let steps = if sessions == 1 {
            1_500
        } else {
            12_000 / sessions
        };
        // Histories would grow without end; many short runs measure the step, not the history.
        let (runs, of) = (steps.div_ceil(20), 20);
        ask(&engine, "warm steps=5".into(), "react").await?;
        let began = Instant::now();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..sessions {
            let engine = engine.clone();
            running.spawn(async move {
                for _ in 0..runs {
                    ask(&engine, format!("steps={of}"), "react").await?;
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        let rate = (sessions * runs * of) as f64 / began.elapsed().as_secs_f64();
        fleet.drain().await;
        let floor_dir = root.join(format!("floor-{sessions}"));
        let floor = floor(&floor_dir, sessions, 6_000 / sessions, 8 * 1024).await?;
        println!(
            "{sessions:>9} {rate:>12.0} {floor:>14.0} {:>8.2}",
            rate / floor
        );
    }
    Ok(())
}

async fn supervisor(dir: &Path) -> Result<()> {
    println!("\nA supervisor with 4 subagents of 2 steps, request to answer");
    let (engine, settings) = engine(dir).await?;
    let fleet = Fleet::start(&engine, &settings, Roles::All)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        times.push(ask(&engine, "children=4 of=2".into(), "supervisor").await?);
    }
    times.sort();
    println!(
        "  median {:?}, slowest {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    fleet.drain().await;
    Ok(())
}

async fn fan_in(dir: &Path) -> Result<()> {
    println!("\nFan-in: a supervisor with N subagents of 1 step");
    let (engine, settings) = engine(dir).await?;
    let fleet = Fleet::start(&engine, &settings, Roles::All)?;
    println!("{:>9} {:>12} {:>16}", "siblings", "total", "for each");
    for siblings in [2usize, 8, 64, 256, 1_000] {
        let took = ask(&engine, format!("children={siblings} of=1"), "supervisor").await?;
        println!(
            "{siblings:>9} {took:>12.1?} {:>16.1?}",
            took / siblings as u32
        );
    }
    fleet.drain().await;
    Ok(())
}

async fn triples(dir: &Path) -> Result<()> {
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
fn idle_memory(dir: &Path) -> Result<String> {
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
