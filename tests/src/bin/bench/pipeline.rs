//! What the stages before a call cost, and how long it takes from a request to the model and back to the caller.

use crate::embedded::{STEPS_A_RUN, engine, warm_up};
use crate::instant::{Noop, first_asked};
use crate::roles::Usage;
use crate::work::{Done, Work, until_idle};
use crate::{Result, quantile};
use agentfleet::engine::Engine;
use agentfleet::error::Failure;
use agentfleet::fleet::{Fleet, Roles};
use agentfleet_config::Item;
use agentfleet_core::{FleetLimits, history, pipeline};
use agentfleet_runtime::client::{Event, Follow};
use agentfleet_schema::config::{Snapshot, ToolItem, item_type};
use agentfleet_schema::records::{Call, StepRecord};
use agentfleet_schema::{AgentRequest, AgentStep, Principal, SessionId, keys};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Runs of each kind, in rounds that follow each other: what the machine does meanwhile is the same for all.
const ROUNDS: usize = 4;
const RUNS: usize = 60;
const SESSIONS: usize = 4;
/// Calls of the pure stages.
const PREPARED: u32 = 20_000;
/// Exchanges of the conversation that a run is given, and how often its beginning is measured.
const EXCHANGES: usize = 20;
const BEGUN: usize = 60;
/// Iterations of a history that is fitted to a window, and bytes that each returned.
const ITERATIONS: usize = 200;
const OBSERVED: usize = 8_000;

pub(crate) async fn pipeline(dir: &Path) -> Result<()> {
    println!("\nWhat the stages before a call add (instant model and tool)");
    let (engine, settings) = engine(dir).await?;
    let fleet = Fleet::start(&engine, &settings, Roles::All).await?;
    warm_up(&engine, 2_000).await?;
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    let kinds = ["bare", "staged", "of a tenant"];
    for _ in 0..ROUNDS {
        for kind in kinds {
            *used.entry(kind).or_default() += round(&engine, kind).await?;
        }
    }
    let steps = (ROUNDS * RUNS * STEPS_A_RUN) as f64;
    let bare = used["bare"] as f64 / steps;
    println!(
        "{:>14} {:>8} {:>13} {:>8}",
        "call", "steps", "processor ms", "added"
    );
    for kind in kinds {
        let each = used[kind] as f64 / steps;
        let added = (each / bare - 1.0) * 100.0;
        println!("{kind:>14} {steps:>8.0} {each:>13.3} {added:>7.1}%");
    }
    let prepared = prepared()?;
    println!(
        "  the pure stages of one call: {:.1} µs, {:.1} % of the processor time of a bare step",
        prepared.as_secs_f64() * 1e6,
        prepared.as_secs_f64() * 1e5 / bare
    );
    begins(&engine).await?;
    fleet.drain().await;
    compression()
}

/// A tool with every term that a stage reads.
fn staged() -> Value {
    json!({
        "name": "noop", "type": "http", "description": "nothing", "url": "http://127.0.0.1/", "effect": "idempotent",
        "arguments": [{"name": "query", "type": "string"}],
        "permission": "bench.call", "aliases": {"query": ["q", "text"]},
        "rate-limit": {"calls": 1_000_000_000, "per-ms": 1_000},
    })
}

/// Works some runs, and returns the processor time that they took, in milliseconds. Fails unless all of them were
/// worked as they were meant to be.
async fn round(engine: &Engine, kind: &'static str) -> Result<u64> {
    match kind {
        "bare" => Noop::allow(&*engine.store.config).await?,
        _ => {
            let item = Item {
                item_type: item_type::TOOL.into(),
                key: "noop".into(),
                value: staged(),
            };
            engine.store.config.put(vec![item], "bench").await?;
        }
    }
    let before = Done::count(engine).await?;
    let used = Usage::of(std::process::id())?;
    let mut running = JoinSet::new();
    for _ in 0..SESSIONS {
        let engine = engine.clone();
        running.spawn(async move {
            let mut last = SessionId::default();
            for _ in 0..RUNS / SESSIONS {
                last = ask(&engine, request(kind)).await?.session;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(last)
        });
    }
    let mut session = SessionId::default();
    while let Some(done) = running.join_next().await {
        session = done??;
    }
    until_idle(engine).await?;
    let took = used.since()?;
    let work = Work {
        sessions: 1,
        steps: STEPS_A_RUN,
    };
    Done::count(engine).await?.check(before, work.times(RUNS))?;
    was_meant(engine, &session, kind).await?;
    Ok(took)
}

fn request(kind: &str) -> AgentRequest {
    let alias = if kind == "bare" { "" } else { " alias" };
    let mut request = AgentRequest {
        question: format!("steps={STEPS_A_RUN}{alias}"),
        pattern: "react".into(),
        ..AgentRequest::default()
    };
    if kind == "of a tenant" {
        request.collection = "acme".into();
        request.control.principal = Some(Principal {
            name: "ada".into(),
            tenant: "acme".into(),
            permissions: vec!["bench.*".into()],
        });
    }
    request
}

/// Fails unless a call of the run was healed, where the model names its argument otherwise.
async fn was_meant(engine: &Engine, session: &SessionId, kind: &str) -> Result<()> {
    let body = engine.documents().get(&keys::outcome(session, 1)).await?;
    let record: StepRecord = serde_json::from_slice(&body.ok_or("a step left no record")?)?;
    let called = record.calls.iter().find_map(|call| match call {
        Call::Tool {
            arguments,
            is_error,
            ..
        } => Some((arguments.contains_key("query"), *is_error)),
        Call::Model { .. } | Call::Document { .. } => None,
    });
    let healed = record
        .decisions
        .iter()
        .any(|one| one.subject == "tool-arguments");
    if called != Some((true, false)) || healed == (kind == "bare") {
        let (calls, decisions) = (&record.calls, &record.decisions);
        return Err(format!("the measurement is void: {kind}: {calls:?}, {decisions:?}").into());
    }
    Ok(())
}

/// The pure stages of one call among sixteen tools: found by a dotted name, permitted, healed, validated.
fn prepared() -> Result<Duration> {
    let schema = json!({
        "type": "object", "required": ["title", "status"],
        "properties": {
            "title": {"type": "string", "maxLength": 200},
            "status": {"enum": ["draft", "published"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        },
    });
    let tool = |n: usize| ToolItem {
        name: format!("blog.tool_{n}"),
        kind: "http".into(),
        url: Some("http://127.0.0.1/".into()),
        parameters: Some(schema.clone()),
        aliases: BTreeMap::from([("title".into(), vec!["name".into()])]),
        permission: Some("blog.write".into()),
        ..ToolItem::default()
    };
    let tools: Vec<ToolItem> = (0..16).map(tool).collect();
    let mut snapshot = Snapshot::default();
    for tool in &tools {
        snapshot.tools.insert(tool.name.clone(), tool.clone());
    }
    let request = request("of a tenant");
    let mut request = request;
    if let Some(principal) = &mut request.control.principal {
        principal.permissions = vec!["blog.*".into()];
    }
    let given = [
        ("name", "A post"),
        ("status", "draft"),
        ("tags", "[\"a\"]"),
        ("limit", "20"),
    ];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let given = BTreeMap::from(given);
    let began = Instant::now();
    for _ in 0..PREPARED {
        let mut decided = Vec::new();
        let call = pipeline::prepare(
            &request,
            &snapshot,
            &tools,
            "blog_tool_9",
            &given,
            &mut decided,
        )
        .map_err(|stopped| stopped.text)?;
        if !call.1.contains_key("title") {
            return Err("the measurement is void: a call was not healed".into());
        }
        black_box((call, decided));
    }
    Ok(began.elapsed() / PREPARED)
}

/// What a caller saw of a run.
struct Seen {
    session: SessionId,
    /// From the request until the model was first asked, and until the caller read the first words.
    asked: Duration,
    words: Duration,
}

async fn ask(engine: &Engine, request: AgentRequest) -> Result<Seen> {
    let question = request.question.clone();
    let began = Instant::now();
    let taken = engine.store.intake().take_in(request, None).await;
    let session = taken.map_err(Failure::from)?.session;
    let mut follow = Follow::new(engine.broker(), engine.documents(), session.clone(), 0);
    let mut words = None;
    loop {
        for event in follow.next().await?.events {
            match event {
                // Where the model is done at once, its words come whole.
                Event::Chunk { .. } | Event::Message { .. } => {
                    words.get_or_insert_with(|| began.elapsed());
                }
                Event::End {
                    error: Some(error), ..
                } => return Err(error.message.into()),
                Event::End { .. } => {
                    let asked =
                        first_asked(&question).map(|at| at.saturating_duration_since(began));
                    return Ok(Seen {
                        session,
                        asked: asked.unwrap_or_default(),
                        words: words.unwrap_or_default(),
                    });
                }
                Event::Note(_) => {}
            }
        }
    }
}

/// How long a run takes to begin: alone, and with a conversation before it.
async fn begins(engine: &Engine) -> Result<()> {
    println!(
        "\nFrom a request to the first call of the model, and to the first words that its caller reads"
    );
    println!(
        "{:>26} {:>6} {:>12} {:>12} {:>12} {:>12}",
        "run", "runs", "model p50", "p95", "words p50", "p95"
    );
    for n in 0..EXCHANGES {
        let exchange = AgentRequest {
            question: format!("steps=1 before={n} {}", "a word ".repeat(100)),
            pattern: "react".into(),
            conversation_id: "bench".into(),
            ..AgentRequest::default()
        };
        ask(engine, exchange).await?;
    }
    let mut medians = Vec::new();
    for (name, conversation) in [("alone", ""), ("after 20 exchanges", "bench")] {
        let mut asked = Vec::new();
        let mut words = Vec::new();
        for n in 0..BEGUN {
            let request = AgentRequest {
                question: format!("steps=1 noted={name}-{n}"),
                pattern: "react".into(),
                streaming: true,
                conversation_id: conversation.into(),
                ..AgentRequest::default()
            };
            let seen = ask(engine, request).await?;
            let body = engine
                .documents()
                .get(&keys::outcome(&seen.session, 0))
                .await?;
            let record: StepRecord = serde_json::from_slice(&body.ok_or("a step left no record")?)?;
            let shown = record.worked.conversation.len();
            let is_meant = if conversation.is_empty() {
                shown == 0
            } else {
                shown > 0
            };
            if !is_meant || seen.words.is_zero() || seen.asked.is_zero() {
                let says = format!(
                    "the measurement is void: {name}: {shown} exchanges were shown, the model was asked after {:?}, \
                     words came after {:?}",
                    seen.asked, seen.words
                );
                return Err(says.into());
            }
            asked.push(seen.asked);
            words.push(seen.words);
        }
        asked.sort_unstable();
        words.sort_unstable();
        let ms = |times: &[Duration], share| quantile(times, share).as_secs_f64() * 1e3;
        println!(
            "{name:>26} {BEGUN:>6} {:>9.2} ms {:>9.2} ms {:>9.2} ms {:>9.2} ms",
            ms(&asked, 0.5),
            ms(&asked, 0.95),
            ms(&words, 0.5),
            ms(&words, 0.95)
        );
        medians.push(ms(&asked, 0.5));
    }
    println!(
        "  what the conversation adds: {:.2} ms",
        medians[1] - medians[0]
    );
    Ok(())
}

/// A history that is far above the window of its model.
fn compression() -> Result<()> {
    let history = (0..ITERATIONS).map(|n| AgentStep {
        thought: format!("look at page {n}"),
        action: "noop".into(),
        arguments: BTreeMap::from([("query".to_owned(), format!("page {n}"))]),
        observation: format!("{n} ").repeat(OBSERVED / 4),
        ..AgentStep::default()
    });
    let request = AgentRequest {
        question: "What do they say?".into(),
        pattern: "react".into(),
        step: ITERATIONS as u32,
        history: history.collect(),
        ..AgentRequest::default()
    };
    let (snapshot, fleet) = (
        Snapshot::default(),
        FleetLimits {
            context_window: 32_000,
            ..FleetLimits::default()
        },
    );
    let bytes = |request: &AgentRequest| -> usize {
        request
            .history
            .iter()
            .map(|step| step.observation.len())
            .sum()
    };
    let before = bytes(&request);
    let mut times = Vec::new();
    let mut after = 0;
    for _ in 0..50 {
        let began = Instant::now();
        let fitted = history::fitted(black_box(&request), &snapshot, &fleet);
        times.push(began.elapsed());
        after = bytes(
            &fitted
                .ok_or("the measurement is void: the history was not fitted")?
                .0,
        );
    }
    if after == 0 || after * 2 > before {
        return Err(format!("the measurement is void: {before} bytes became {after}").into());
    }
    times.sort_unstable();
    println!(
        "\nA history of {ITERATIONS} iterations, {before} bytes, fitted to a window of 32,000 tokens ({after} bytes): \
         median {:.2} ms, longest of 50 {:.2} ms",
        quantile(&times, 0.5).as_secs_f64() * 1e3,
        quantile(&times, 1.0).as_secs_f64() * 1e3
    );
    Ok(())
}
