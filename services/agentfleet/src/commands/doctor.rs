//! `doctor`: what is configured, what can be reached, and what is wrong.

use super::servers::Server;
use super::tools;
use crate::cli::Output;
use crate::engine::{Engine, choose_model, fleet_limits, open_coordination, open_graph};
use crate::error::{Exit, Failure};
use crate::issuer;
use crate::lock::{FleetLock, Holder};
use crate::settings::Settings;
use crate::store::{
    Store, open_broker, open_documents, open_to_others, reply_patterns, reply_topics, subscriptions,
};
use crate::tls;
use crate::ui;
use agentfleet_broker::{Broker, EmbeddedBroker};
use agentfleet_console::text;
use agentfleet_core::prices::missing;
use agentfleet_documents::{Archive, Documents};
use agentfleet_models::{Discard, Message, ModelRequest, Operation};
use agentfleet_runtime::{Host as _, SystemHost};
use agentfleet_schema::{AgentRequest, keys, redacted, topics};
use agentfleet_storage::Database;
use futures::future::join_all;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the model may take to say a word.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long stores are opened of which a server did not answer as it should.
const NO_USE: Duration = Duration::from_secs(2);

/// How long a part of the stores is opened by itself, where others are away.
const APART: Duration = Duration::from_secs(5);

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    says: String,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, what: &'static str, found: Result<String, Failure>) {
        let (ok, says) = match found {
            Ok(says) => (true, says),
            Err(failure) => (false, failure.to_string()),
        };
        let says = redacted(&says).into_owned();
        self.0.push(Finding { what, ok, says });
    }
}

pub(crate) async fn doctor(output: Output, settings: &Settings) -> Result<(), Failure> {
    let mut findings = Findings::default();
    findings.add("settings", Ok(given(settings)));
    findings.add("reply topics", replies(settings));
    let servers = Server::of(settings);
    let looks = join_all(servers.iter().map(Server::look)).await;
    let mut away = Vec::new();
    for (server, found) in servers.iter().zip(looks) {
        away.extend(found.is_err().then_some(server.name));
        findings.add(server.name, found);
    }
    if let Some(address) = &settings.archive {
        findings.add("archive", Box::pin(bucket(address)).await);
    }
    if let Some(found) = Box::pin(issuer::look(settings)).await {
        findings.add("issuer", found);
    }
    if let Some(found) = tls::look(settings, SystemHost.now()) {
        findings.add("certificate", found);
    }
    // Opening tries again for a while, which is of no use where a server is known to be away.
    let patience = if away.is_empty() {
        Duration::MAX
    } else {
        NO_USE
    };
    let opened = tokio::time::timeout(patience, Store::open(settings)).await;
    let are_asked = match opened.unwrap_or_else(|_| Err(not_looked_at(&[]))) {
        // It is told already, and by its name.
        Err(_) if !away.is_empty() => Box::pin(look_apart(settings, &away, &mut findings)).await,
        Err(failure) => {
            findings.add("stores", Err(failure));
            false
        }
        Ok(store) => {
            look_at(&store, settings, &mut findings).await;
            true
        }
    };
    let fleet = FleetLock::holder(settings);
    let other = matches!(fleet, Ok(Some(_)));
    let is_alone = servers.is_empty();
    findings.add(
        "fleet",
        fleet.map(|holder| works(holder, is_alone, are_asked)),
    );
    let whose = if other { "model here" } else { "model" };
    findings.add(whose, model(settings).await);
    let bad = findings.0.iter().filter(|finding| !finding.ok).count();
    if output.json {
        ui::json(&findings.0)?;
    } else {
        for Finding { what, ok, says } in &findings.0 {
            let mark = if *ok { "ok " } else { "BAD" };
            for (at, says) in says.lines().enumerate() {
                let what = if at == 0 { *what } else { "" };
                let mark = if at == 0 { mark } else { "   " };
                outln!("{mark}  {what:<15} {}", text::line(says.trim()));
            }
        }
    }
    match bad {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Unavailable, "one thing needs attention")),
        bad => Err(Failure::new(
            Exit::Unavailable,
            format!("{bad} things need attention"),
        )),
    }
}

/// What is not at its default, and where it was said.
fn given(settings: &Settings) -> String {
    let in_force = settings.in_force();
    let given = in_force
        .iter()
        .filter(|(name, _)| settings.given.contains_key(name));
    let mut parts: Vec<String> = given
        .map(|(name, value)| {
            let source = settings.source(name).as_str();
            format!("{name} = {value} ({source})")
        })
        .collect();
    if parts.is_empty() {
        parts.push("all at their defaults".to_owned());
    }
    if let Some(file) = &settings.file {
        parts.push(format!("settings file {}", file.display()));
    }
    parts.join(", ")
}

/// The topics that callers may name for their responses.
fn replies(settings: &Settings) -> Result<String, Failure> {
    // A pattern that is no name would stop every role.
    reply_topics(settings)?;
    let names = reply_patterns(settings);
    let default = topics::AGENT_RESPONSE;
    Ok(if names.is_empty() {
        format!("{default} alone; `reply_to` allows callers to name others")
    } else {
        format!("{default}, and what callers name of {}", names.join(", "))
    })
}

async fn look_at(store: &Store, settings: &Settings, findings: &mut Findings) {
    findings.add("data directory", size(&store.database, settings).await);
    findings.add("database", soundness(&store.database));
    findings.add("config", config(store, settings).await);
    let engine = Box::pin(Engine::open(store.clone(), settings, &|_, _| ())).await;
    findings.add("graph", graph(store, settings, engine.as_ref().ok()).await);
    if let Some(url) = &settings.coordination {
        findings.add("coordination", coordination(url, settings).await);
    }
    findings.add("documents", documents(store, settings).await);
    let (broker, own) = (&*store.broker, store.embedded.as_ref());
    findings.add("workers", workers(broker, own, settings).await);
    findings.add("queue", queue(broker, own).await);
    findings.add("dead letters", dead_letters(&*store.documents).await);
    findings.add("tools", Box::pin(of_tools(engine)).await);
}

/// What can be told where not all stores can be opened together: each part by itself, unless its server is
/// `away`. Says whether those who consume were asked for.
async fn look_apart(settings: &Settings, away: &[&str], findings: &mut Findings) -> bool {
    let mut missed = vec!["config", "graph", "documents"];
    let mut are_asked = false;
    match Database::open(&settings.data) {
        Err(error) => findings.add("data directory", Err(error.into())),
        Ok(database) => {
            findings.add("data directory", size(&database, settings).await);
            findings.add("database", soundness(&database));
            let opening = Box::pin(open_broker(&database, settings));
            let broker = apart("broker server", away, opening).await;
            if let Some((broker, own)) = broker {
                // What waits is told of the subscriptions that were named here.
                let known = match &own {
                    Some(_) => Ok(()),
                    None => broker.establish(&subscriptions(settings)).await,
                };
                let counted = match known {
                    Ok(()) => queue(&*broker, own.as_ref()).await,
                    Err(error) => Err(error.into()),
                };
                are_asked = true;
                findings.add("workers", workers(&*broker, own.as_ref(), settings).await);
                findings.add("queue", counted);
            } else {
                missed.extend(["workers", "queue"]);
            }
            let documents = open_documents(&database, settings);
            match apart("records server", away, documents).await {
                Some(documents) => findings.add("dead letters", dead_letters(&*documents).await),
                None => missed.push("dead letters"),
            }
        }
    }
    findings.add("stores", Err(not_looked_at(&missed)));
    are_asked
}

/// A part of the stores, if its server is not among those that are away and it can be opened soon.
async fn apart<T>(
    server: &str,
    away: &[&str],
    opening: impl Future<Output = Result<T, Failure>>,
) -> Option<T> {
    if away.contains(&server) {
        return None;
    }
    tokio::time::timeout(APART, opening).await.ok()?.ok()
}

fn not_looked_at(missed: &[&str]) -> Failure {
    let says = format!(
        "{} not looked at, because a server of the fleet is not as it should be",
        missed.join(", ")
    );
    Failure::new(Exit::Unavailable, says)
}

/// Whether archived runs can be written, read and deleted.
async fn bucket(address: &str) -> Result<String, Failure> {
    Archive::open(address)?.look().await?;
    Ok(format!("{address} takes, gives and deletes objects"))
}

/// Who works the queue, and with what.
fn works(holder: Option<Holder>, is_alone: bool, are_asked: bool) -> String {
    match holder {
        None if is_alone => "none runs; `ask` starts its own".to_owned(),
        None if !are_asked => {
            "none runs in this data directory; whether one works on the servers could not be asked"
                .to_owned()
        }
        None => "none runs in this data directory; `workers` names those on the servers".to_owned(),
        Some(Holder { pid, reason, .. }) if reason.is_empty() => {
            format!("process {pid} is starting")
        }
        Some(Holder { pid, reason, .. }) => format!("process {pid} works. {reason}"),
    }
}

async fn size(database: &Database, settings: &Settings) -> Result<String, Failure> {
    if let Some(says) = open_to_others(database) {
        return Err(Failure::new(Exit::Unavailable, says));
    }
    let kib = database.size().await? / 1024;
    Ok(format!(
        "{}, {} KiB",
        settings.data.display(),
        text::count(kib)
    ))
}

fn soundness(database: &Database) -> Result<String, Failure> {
    let problems = database.problems()?;
    if problems.is_empty() {
        return Ok("every page and index is sound".to_owned());
    }
    Err(Failure::new(Exit::Unavailable, problems.join("; "))
        .hint("restore a backup into a new data directory"))
}

async fn config(store: &Store, settings: &Settings) -> Result<String, Failure> {
    store.prepare(settings).await?;
    let config = store.config.snapshot().await?;
    // A model that cannot be chosen is told elsewhere.
    if let Ok(choice) = choose_model(settings).await
        && choice.model.capabilities().metered
        && let Some(error) = missing(&AgentRequest::default(), &config, &fleet_limits(settings))
    {
        let says = format!("no run can begin: {}", error.message);
        let failure = Failure::new(Exit::Unavailable, says);
        return Err(failure.hint(error.hint.unwrap_or_default()));
    }
    Ok(format!(
        "version {}: {}, {}, {}, {}",
        config.version,
        text::counted(config.patterns.len() as u64, "pattern"),
        text::counted(config.task_types.len() as u64, "task type"),
        text::counted(config.tools.len() as u64, "tool"),
        text::counted(config.prompts.len() as u64, "prompt"),
    ))
}

/// Whether each tool could be called.
async fn of_tools(engine: Result<Engine, Failure>) -> Result<String, Failure> {
    let engine = engine?;
    let snapshot = engine.store.config.snapshot().await?;
    tools::finding(&engine, &snapshot).await
}

async fn graph(
    store: &Store,
    settings: &Settings,
    engine: Option<&Engine>,
) -> Result<String, Failure> {
    let (graph, embedded) = match engine {
        Some(engine) => (Arc::clone(&engine.graph), engine.embedded.clone()),
        None => open_graph(store, settings, &|_, _| {}).await?,
    };
    let Some(embedded) = embedded else {
        graph.ready().await?;
        return Ok(format!("{} answers", settings.graph));
    };
    let health = embedded.health();
    if health.level == agentfleet_graph::Level::Fine {
        let (quads, most) = (text::count(health.quads), text::count(health.max_quads));
        Ok(format!("{quads} quads of at most {most}"))
    } else {
        Err(Failure::new(Exit::Unavailable, health.advice))
    }
}

/// How much is counted where siblings have a dataset of their own.
async fn coordination(url: &str, settings: &Settings) -> Result<String, Failure> {
    let Some(graph) = open_coordination(settings).await? else {
        return Ok(format!("{url} is not used"));
    };
    let counted = graph.batches().await?;
    let counted = text::counted(counted, "completion");
    Ok(format!("{url} holds {counted} of open fan-outs"))
}

/// What was loaded, and how the index here stands to it where documents are shared.
async fn documents(store: &Store, settings: &Settings) -> Result<String, Failure> {
    let library = super::library::unlinked(store, settings).await?;
    let standing = library.standing().await?;
    let holdings = library.holdings().await?;
    let documents = holdings.iter().map(|(_, documents)| documents).sum();
    let mut says = format!(
        "{} loaded in {}",
        text::counted(documents, "document"),
        text::counted(holdings.len() as u64, "collection"),
    );
    let Some(standing) = standing else {
        return Ok(says);
    };
    if standing.lost > 0 {
        let lost = text::counted(standing.lost, "document");
        return Err(Failure::new(
            Exit::Unavailable,
            format!("the store has lost parts of {lost}"),
        )
        .hint("the log of a worker names the collections: purge and load them again"));
    }
    says.push_str(&match standing.missing {
        0 => "; the index here is up to date".to_owned(),
        missing => format!(
            "; the index here lacks {} of them until somebody asks",
            text::count(missing)
        ),
    });
    Ok(says)
}

/// Who consumes each subscription, where servers have the queue.
async fn workers(
    broker: &dyn Broker,
    own: Option<&EmbeddedBroker>,
    settings: &Settings,
) -> Result<String, Failure> {
    if own.is_some() {
        return Ok("those of the process that works the data directory".to_owned());
    }
    let Some(consumers) = broker.consumers(&subscriptions(settings)).await? else {
        return Ok("not known: `broker_admin` names who is asked".to_owned());
    };
    let told = consumers.iter().map(|(queue, who)| match who.len() {
        0 => format!("{queue}: nobody"),
        n => {
            let who: BTreeSet<&str> = who.iter().map(String::as_str).collect();
            let who: Vec<&str> = who.into_iter().collect();
            format!(
                "{queue}: {} ({})",
                text::counted(n as u64, "consumer"),
                who.join(", ")
            )
        }
    });
    let idle = consumers.iter().filter(|(_, who)| who.is_empty());
    let idle: Vec<&str> = idle.map(|(queue, _)| queue.as_str()).collect();
    if idle.is_empty() {
        return Ok(told.collect::<Vec<_>>().join("\n"));
    }
    let says = format!("nobody works {}", idle.join(", "));
    Err(Failure::new(Exit::Unavailable, says).hint("`agentfleet up` works all of them"))
}

async fn queue(broker: &dyn Broker, own: Option<&EmbeddedBroker>) -> Result<String, Failure> {
    let mut says = Vec::new();
    let Some(own) = own else {
        for queue in broker.waiting().await? {
            let counts = [(queue.ready, "waiting"), (queue.delayed, "put off")];
            says.extend(counted(&counts).map(|counts| format!("{}: {counts}", queue.queue)));
        }
        return Ok(nothing_or(says));
    };
    for queue in own.stats().await? {
        let counts = [
            (queue.waiting, "waiting"),
            (queue.in_flight, "in work"),
            (queue.delayed, "due later"),
        ];
        let Some(counts) = counted(&counts) else {
            continue;
        };
        let mut line = format!("{}: {counts}", queue.topic);
        if queue.topic == topics::DEADLINE.as_str() {
            line.push_str(" (time limits; those of runs that have ended do nothing)");
        }
        says.push(line);
    }
    Ok(nothing_or(says))
}

/// Those that are not 0.
fn counted(counts: &[(u64, &str)]) -> Option<String> {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = some
        .map(|(count, what)| format!("{} {what}", text::count(*count)))
        .collect();
    (!told.is_empty()).then(|| told.join(", "))
}

fn nothing_or(says: Vec<String>) -> String {
    if says.is_empty() {
        "nothing waits".to_owned()
    } else {
        says.join("; ")
    }
}

async fn dead_letters(documents: &dyn Documents) -> Result<String, Failure> {
    match documents.list(&keys::parked("")).await?.len() {
        0 => Ok("none".to_owned()),
        parked => {
            let parked = text::counted(parked as u64, "message");
            Err(Failure::new(Exit::Unavailable, format!("{parked} parked"))
                .hint("agentfleet dlq list"))
        }
    }
}

/// Which model, and whether it answers: a real one is asked for a word.
async fn model(settings: &Settings) -> Result<String, Failure> {
    let chosen = choose_model(settings).await?;
    let reason = chosen.reason;
    if matches!(chosen.provider, "offline" | "scripted") {
        return Ok(reason);
    }
    let question = "Answer with the word OK.".to_owned();
    let request = ModelRequest {
        operation: Operation::Complete,
        inputs: serde_json::json!({ "question": question }),
        messages: vec![Message::User(question)],
        tools: Vec::new(),
        schema: None,
        model: String::new(),
        fallbacks: Vec::new(),
        temperature: None,
        max_tokens: None,
        timeout: PATIENCE,
    };
    let began = Instant::now();
    match chosen.model.chat(request, &Discard).await {
        Ok(_) => {
            let took = text::duration(began.elapsed().as_millis() as u64);
            Ok(format!("{reason} It answers (in {took})."))
        }
        Err(error) => Err(Failure::new(
            Exit::Unavailable,
            format!("{reason} It does not answer: {error}"),
        )),
    }
}
