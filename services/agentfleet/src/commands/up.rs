//! `up`: every role in one process, and the HTTP door, until told to stop. Single roles beside it.

use super::trace::Renderer;
use crate::cli::Up;
use crate::error::{Exit, Failure};
use crate::fleet::{Engine, Fleet, FleetLock, Roles, Store};
use crate::settings::Settings;
use crate::signals::Signals;
use agentfleet_aggregator::{Ended, Endings};
use agentfleet_gateway::{
    Cancel, Cancelled, Check, Failure as Lent, Gateway, Options, Parts, Status,
};
use agentfleet_schema::SessionId;
use agentfleet_schema::records::Termination;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often retained responses are looked through for what is too old.
const UPKEEP: Duration = Duration::from_secs(600);

pub(crate) async fn up(up: Up, settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let lock = match FleetLock::try_take(settings)? {
        Some(lock) => lock,
        None => {
            eprintln!(
                "Another process works `{}`; this one takes over when it goes.",
                settings.data.display()
            );
            tokio::select! {
                lock = FleetLock::take(settings) => lock?,
                () = signals.next() => return Ok(()),
            }
        }
    };
    let engine = Engine::open(store, settings, &|read, total| {
        if total > 100_000 && read % 100_000 < 1_000 {
            eprintln!("Reading the provenance log: {read} of {total} quads");
        }
    })
    .await?;
    let fleet = Fleet::start(&engine, settings, Roles::All)?;
    let stop = CancellationToken::new();
    let gateway = Gateway::serve(parts(&engine), options(settings)?, stop.clone())
        .await
        .map_err(|error| {
            Failure::new(Exit::Unavailable, error.to_string())
                .hint("choose another address with `--listen`, such as `127.0.0.1:0`")
        })?;
    let address = gateway.address();
    let serving = tokio::spawn(gateway.run());
    if up.output.json {
        outln!(
            "{}",
            serde_json::json!({"url": format!("http://{address}")})
        );
    } else {
        outln!(
            "Serving on http://{address} with data in {}",
            settings.data.display()
        );
        outln!("{}", engine.model.reason);
        outln!("Ask with `agentfleet ask \"...\"`, or POST to /requests. Ctrl-C drains and stops.");
    }
    let upkeep = tokio::spawn(upkeep(engine.clone(), stop.clone()));
    signals.next().await;
    eprintln!("Stopping: finishing what is in flight. Ctrl-C again leaves at once.");
    stop.cancel();
    let drained = async {
        fleet.drain().await;
        for task in [serving, upkeep] {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task was lost");
            }
        }
    };
    drained_or_left(drained, signals).await;
    drop(lock);
    Ok(())
}

/// Drains, unless told to stop once more: whoever comes next takes up what is in flight.
async fn drained_or_left(drained: impl Future<Output = ()>, mut signals: Signals) {
    tokio::select! {
        () = drained => {}
        () = signals.next() => std::process::exit(Exit::Left as i32),
    }
}

/// Runs one role until told to stop.
pub(crate) async fn role(roles: Roles, settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let engine = Engine::open(store, settings, &|_, _| {}).await?;
    let fleet = Fleet::start(&engine, settings, roles)?;
    outln!("Working on {}", settings.data.display());
    signals.next().await;
    eprintln!("Stopping: finishing what is in flight. Ctrl-C again leaves at once.");
    drained_or_left(fleet.drain(), signals).await;
    Ok(())
}

async fn upkeep(engine: Engine, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(UPKEEP) => {}
        }
        if let Err(error) = engine.store.broker.purge().await {
            tracing::warn!(%error, "old responses could not be purged");
        }
    }
}

fn options(settings: &Settings) -> Result<Options, Failure> {
    let listen = settings.listen.parse().map_err(|_| {
        Failure::usage(format!(
            "setting `listen` is `{}`, expected an address such as `127.0.0.1:8700`",
            settings.listen
        ))
    })?;
    Ok(Options {
        listen,
        query_timeout: settings.query_timeout,
        max_query_timeout: settings
            .query_timeout
            .max(Options::default().max_query_timeout),
        grace: settings.grace,
        ..Options::default()
    })
}

fn parts(engine: &Engine) -> Parts {
    let fleet = engine.aggregator_parts();
    let traces = Renderer {
        graph: Arc::clone(&fleet.graph),
        documents: Arc::clone(&fleet.documents),
    };
    Parts {
        broker: fleet.broker,
        documents: fleet.documents,
        committer: fleet.committer,
        graph: fleet.graph,
        config: Arc::new(engine.store.config.clone()),
        host: fleet.host,
        cancel: Arc::new(Canceller(engine.endings())),
        status: Arc::new(FleetStatus(engine.clone())),
        traces: Some(Arc::new(traces)),
    }
}

struct Canceller(Endings);

#[async_trait]
impl Cancel for Canceller {
    async fn cancel(&self, session: &SessionId, by: &str) -> Result<Cancelled, Lent> {
        let ended = self
            .0
            .end(session, Termination::Cancelled, "cancelled", by)
            .await?;
        Ok(match ended {
            Ended::Now => Cancelled::Now,
            Ended::Before(_) => Cancelled::AlreadyEnded,
            Ended::Unknown => Cancelled::WhenItStarts,
        })
    }
}

struct FleetStatus(Engine);

#[async_trait]
impl Status for FleetStatus {
    async fn checks(&self) -> Vec<Check> {
        let health = self.0.graph.health();
        vec![
            Check {
                name: "graph-size".to_owned(),
                ok: health.level != agentfleet_graph::Level::Full,
                detail: health.advice,
            },
            Check {
                name: "model".to_owned(),
                ok: true,
                detail: self.0.model.model.describe(),
            },
        ]
    }
}
