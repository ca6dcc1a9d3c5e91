//! `up`: every role in one process, and the HTTP door, until told to stop. Single roles beside it.

use super::{archive, purge};
use crate::cli::Output;
use crate::clock;
use crate::engine::Engine;
use crate::error::{Exit, Failure};
use crate::fleet::{Fleet, Roles};
use crate::issuer;
use crate::lock::FleetLock;
use crate::settings::{Place, Settings};
use crate::signals::Signals;
use crate::standby::{self, Standby, Worker};
use crate::store::Store;
use crate::tls;
use crate::token;
use agentfleet_broker::Waiting;
use agentfleet_gateway::{
    Check, Collections, Doors, Error as NotServed, Failure as Lent, Gateway, Intake, Options,
    Parts, Status,
};
use agentfleet_library::Library;
use agentfleet_runs::{Approvals, Usage};
use agentfleet_runtime::metrics;
use agentfleet_schema::Digest;
use async_trait::async_trait;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How long a scrape waits for the broker to say what waits.
const BACKLOG: Duration = Duration::from_secs(2);
/// How old what it said may be before it is asked again, however many scrape.
const FRESH: Duration = Duration::from_secs(5);
/// How often what is too old is looked for.
const UPKEEP: Duration = Duration::from_secs(600);

pub(crate) async fn up(output: Output, settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let numbers = Numbers::install()?;
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let engine = Engine::open(store.clone(), settings, &|read, total| {
        if total > 100_000 && read % 100_000 < 1_000 {
            errln!("Reading the provenance log: {read} of {total} quads");
        }
    })
    .await?;
    let stop = CancellationToken::new();
    let mut options = options(settings)?;
    let token = Digest::of(token::ensure(settings)?.as_bytes());
    options.issuer = issuer::of(settings)?;
    options.token = (!settings.open).then(|| token.clone());
    options.tls = tls::of(settings);
    options.graph_token = engine.embedded.is_some().then_some(token);
    let gateway = Gateway::serve(parts(&engine, numbers), options, stop.clone())
        .await
        .map_err(|error| match &error {
            NotServed::Listen { .. } => Failure::new(Exit::Unavailable, error.to_string())
                .hint("choose another address with `--listen`, such as `127.0.0.1:0`"),
            NotServed::Tls { .. } | NotServed::Versions(_) => Failure::usage(error.to_string())
                .hint("the settings `tls_certificate` and `tls_key` name both files"),
        })?;
    let url = format!("{}://{}", tls::scheme(settings), gateway.address());
    let serving = tokio::spawn(gateway.run());
    let standby = Standby::start(&store, settings, Some(engine.clone())).await?;
    // Only what changes from here on is news.
    let mut worker = standby.receiver();
    let works = worker.borrow_and_update().clone();
    if output.json {
        outln!("{}", serde_json::json!({"url": url}));
    } else {
        let (program, data) = (settings.program(), settings.data.display());
        outln!("Serving on {url} with data in {data}");
        match works {
            Worker::Other => outln!("{}", standing_by(settings)?),
            Worker::Own { model } | Worker::Failed(model) => outln!("{model}"),
        }
        if !settings.open {
            let place = match &settings.http_token {
                Some(_) => "the setting `http-token`".to_owned(),
                None => format!("`{}`", token::path(settings).display()),
            };
            outln!("Callers of HTTP send the token in {place}; `--open yes` asks nobody");
        }
        outln!("Ask with `{program} ask \"...\"`, or POST to /requests. Ctrl-C drains and stops.");
    }
    let broker = engine.broker();
    let upkeep = tokio::spawn(upkeep(
        engine,
        settings.clone(),
        standby.receiver(),
        stop.clone(),
    ));
    let failed = told_to_stop(worker, &mut signals).await;
    errln!("Stopping: finishing what is in flight. Ctrl-C again leaves at once.");
    stop.cancel();
    let drained = async {
        standby.stop().await;
        for task in [serving, upkeep] {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task was lost");
            }
        }
        // Now, not when it notices: what is left is for others.
        broker.close().await;
    };
    signals.drained_or_left(drained).await;
    failed
}

/// Who works instead of this process.
fn standing_by(settings: &Settings) -> Result<String, Failure> {
    let holder = FleetLock::holder(settings)?.unwrap_or_default();
    let with = match holder.model.as_str() {
        "" => String::new(),
        model => format!(" with {model}"),
    };
    Ok(format!(
        "Another process ({}) works the queue{with}; this one serves HTTP, and takes over when it goes.",
        holder.pid
    ))
}

/// Waits for a signal, and says when the work of another process is taken over.
async fn told_to_stop(
    mut worker: watch::Receiver<Worker>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            _ = signals.next() => return Ok(()),
            Ok(()) = worker.changed() => match &*worker.borrow_and_update() {
                Worker::Other => {}
                Worker::Own { model } => errln!("{}", standby::has_taken_over(model)),
                Worker::Failed(reason) => {
                    let says = format!("the work of the other process cannot be taken over: {reason}");
                    return Err(Failure::new(Exit::Unavailable, says));
                }
            },
        }
    }
}

/// Runs one role until told to stop.
pub(crate) async fn role(roles: Roles, settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let numbers = Numbers::install()?;
    clock::watch(settings).await?;
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let engine = Engine::open(store, settings, &|_, _| {}).await?;
    let broker = engine.broker();
    let fleet = Fleet::start(&engine, settings, roles).await?;
    outln!("Working on {}", works_on(settings));
    let stop = CancellationToken::new();
    let serving = match &settings.health {
        None => None,
        Some(address) => {
            let options = Options {
                listen: address_of("health", address)?,
                doors: Doors::Health,
                ..options(settings)?
            };
            let gateway = Gateway::serve(parts(&engine, numbers), options, stop.clone());
            let gateway = gateway.await.map_err(|error| {
                Failure::new(Exit::Unavailable, error.to_string())
                    .hint("choose another address with `--health`, such as `127.0.0.1:0`")
            })?;
            outln!("Health and metrics on http://{}", gateway.address());
            Some(tokio::spawn(gateway.run()))
        }
    };
    signals.next().await;
    errln!("Stopping: finishing what is in flight. Ctrl-C again leaves at once.");
    let drained = async {
        // Not ready any more, but alive until the last of it is done.
        fleet.drain().await;
        stop.cancel();
        if let Some(serving) = serving
            && let Err(error) = serving.await
        {
            tracing::error!(%error, "the health door was lost");
        }
        // Now, not when it notices: what is left is for others.
        broker.close().await;
    };
    signals.drained_or_left(drained).await;
    Ok(())
}

/// Where the queue is that is worked.
fn works_on(settings: &Settings) -> String {
    match &settings.broker {
        Place::Embedded => settings.data.display().to_string(),
        Place::At(address) => address.clone(),
    }
}

fn address_of(setting: &str, text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| {
        Failure::usage(format!(
            "setting `{setting}` is `{text}`, expected an address such as `127.0.0.1:8700`"
        ))
    })
}

/// Deletes what is too old, while this process is the one that works.
async fn upkeep(
    engine: Engine,
    settings: Settings,
    worker: watch::Receiver<Worker>,
    stop: CancellationToken,
) {
    let mut due = tokio::time::interval(UPKEEP);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut archived = HashSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = due.tick() => {}
        }
        if !matches!(&*worker.borrow(), Worker::Own { .. }) {
            continue;
        }
        let (store, graph) = (&engine.store, &*engine.graph);
        match purge::by_age(store, graph, &settings).await {
            Ok(0) => {}
            Ok(runs) => tracing::info!(runs, "old runs were deleted"),
            Err(failure) => tracing::warn!(%failure, "old runs could not be deleted"),
        }
        match archive::by_age(store, graph, &settings, &mut archived).await {
            Ok(0) => {}
            Ok(runs) => tracing::info!(runs, "finished runs were archived"),
            Err(failure) => tracing::warn!(%failure, "finished runs could not be archived"),
        }
        match engine.library.sweep().await {
            Ok(0) => {}
            Ok(versions) => {
                tracing::info!(versions, "left-over versions of documents were deleted");
            }
            Err(error) => tracing::warn!(%error, "left-over versions of documents stay for now"),
        }
    }
}

fn options(settings: &Settings) -> Result<Options, Failure> {
    let listen = address_of("listen", &settings.listen)?;
    Ok(Options {
        listen,
        per_minute: settings.requests_per_minute,
        allowed_hosts: settings
            .allowed_hosts
            .as_deref()
            .map_or_else(Vec::new, |hosts| {
                let hosts = hosts.split(',').map(str::trim);
                hosts
                    .filter(|host| !host.is_empty())
                    .map(str::to_owned)
                    .collect()
            }),
        query_timeout: settings.query_timeout,
        max_query_timeout: settings
            .query_timeout
            .max(Options::default().max_query_timeout),
        grace: settings.grace,
        ..Options::default()
    })
}

fn parts(engine: &Engine, numbers: Numbers) -> Parts {
    Parts {
        intake: Intake {
            collections: Some(Arc::new(Loaded(engine.library.clone()))),
            metered: engine.metered().map(Arc::new),
            usage: Some(Arc::new(Usage::new(Arc::clone(&engine.store.documents)))),
            ..engine.store.intake()
        },
        graph: Arc::clone(&engine.graph),
        endings: engine.endings(),
        approvals: Approvals::new(engine.aggregator_parts()),
        status: Arc::new(FleetStatus {
            engine: engine.clone(),
            numbers,
            counted: tokio::sync::Mutex::new(Counted {
                told: Instant::now(),
                asked: None,
            }),
        }),
    }
}

struct Loaded(Library);

#[async_trait]
impl Collections for Loaded {
    async fn loaded(&self) -> Result<Vec<String>, Lent> {
        let held = self.0.holdings().await?;
        Ok(held.into_iter().map(|(name, _)| name).collect())
    }
}

struct FleetStatus {
    engine: Engine,
    numbers: Numbers,
    /// Locked while the broker is asked: who comes meanwhile gets the same numbers.
    counted: tokio::sync::Mutex<Counted>,
}

/// The numbers of the backlog.
struct Counted {
    /// When the broker last told them; when this began, if it never did.
    told: Instant,
    asked: Option<Instant>,
}

impl FleetStatus {
    /// Asks what waits, unless that was done just now. A broker that cannot tell leaves the last it
    /// told, and their age.
    async fn count(&self) {
        let mut counted = self.counted.lock().await;
        if counted.asked.is_none_or(|asked| asked.elapsed() >= FRESH) {
            let asked = Instant::now();
            counted.asked = Some(asked);
            let waiting = self.engine.store.broker.waiting();
            match tokio::time::timeout(BACKLOG, waiting).await {
                Ok(Ok(waiting)) => {
                    counted.told = asked;
                    for Waiting {
                        queue,
                        ready,
                        delayed,
                    } in waiting
                    {
                        metrics::backlog(&queue, ready, delayed);
                    }
                }
                Ok(Err(error)) => tracing::warn!(%error, "the queue does not tell its backlog"),
                Err(_) => tracing::warn!("the queue does not tell its backlog in time"),
            }
        }
        metrics::backlog_age(counted.told.elapsed());
    }
}

#[async_trait]
impl Status for FleetStatus {
    async fn checks(&self) -> Vec<Check> {
        let mut checks = vec![Check {
            name: "model".to_owned(),
            ok: true,
            detail: self.engine.model.model.describe(),
        }];
        if let Some(graph) = &self.engine.embedded {
            let health = graph.health();
            checks.push(Check {
                name: "graph-size".to_owned(),
                ok: health.level != agentfleet_graph::Level::Full,
                detail: health.advice,
            });
        }
        checks
    }
    async fn metrics(&self) -> String {
        self.count().await;
        self.numbers.render()
    }
}

/// Collects the metrics of this process.
#[derive(Clone)]
struct Numbers(PrometheusHandle);

impl Numbers {
    fn install() -> Result<Self, Failure> {
        let failed = |error: BuildError| Failure::new(Exit::Unavailable, error.to_string());
        let recorder = PrometheusBuilder::new()
            .set_buckets(&metrics::BUCKETS)
            .map_err(failed)?;
        let handle = recorder.install_recorder().map_err(failed)?;
        metrics::describe();
        Ok(Self(handle))
    }

    fn render(&self) -> String {
        self.0.run_upkeep();
        self.0.render()
    }
}
