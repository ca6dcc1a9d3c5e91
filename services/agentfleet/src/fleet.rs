//! The roles, composed on the stores and the engine.
//!
//! On an embedded data directory one process at a time runs all roles (`ask`, `up`): it holds the
//! fleet lock, and another takes over when it goes. Single roles (`orchestrator`, ...) run beside it.
//! On servers any number of processes run any roles.

use crate::agreed;
use crate::engine::{Engine, open_coordination};
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::{Store, worked};
use agentfleet_aggregator::{self as aggregator, Deadlines, FanIn, PATIENCE, Sweep, Undertaker};
use agentfleet_broker::{Broker, Subscription};
use agentfleet_graph_writer::{self as graph_writer, GraphWriter};
use agentfleet_runtime::{
    BatchHandler, Drain, Handler, Watchdog, metrics, serve, serve_batches, telemetry,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

/// How often open fan-outs are counted for the metrics.
const COUNT: Duration = Duration::from_secs(30);

/// Which roles a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    All,
    Orchestrator,
    Aggregator,
    GraphWriter,
}

impl Roles {
    fn as_str(self) -> &'static str {
        match self {
            Self::All => "fleet",
            Self::Orchestrator => "orchestrator",
            Self::Aggregator => "aggregator",
            Self::GraphWriter => "graph-writer",
        }
    }

    fn includes(self, role: Self) -> bool {
        self == Self::All || self == role
    }
}

/// Roles at work in this process.
#[derive(Debug)]
pub struct Fleet {
    store: Store,
    grace: Duration,
    /// Each feeds the next, so that they are stopped in this order.
    stages: Vec<Stage>,
}

/// One role: its queues, and the tasks that work them.
#[derive(Debug)]
struct Stage {
    drain: Drain,
    queues: Vec<Subscription>,
    tasks: JoinSet<Result<(), agentfleet_runtime::Error>>,
}

impl Stage {
    fn new(settings: &Settings, watchdog: &Watchdog) -> Self {
        Self {
            drain: Drain {
                stop: watchdog.stop.child_token(),
                grace: settings.grace,
                watchdog: Some(watchdog.clone()),
            },
            queues: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    fn one(
        &mut self,
        broker: Arc<dyn Broker>,
        queue: Subscription,
        handler: Arc<dyn Handler>,
        concurrency: usize,
    ) {
        self.queues.push(queue.clone());
        let drain = self.drain.clone();
        self.tasks
            .spawn(serve(broker, queue, handler, concurrency, drain));
    }

    fn many(
        &mut self,
        broker: Arc<dyn Broker>,
        queue: Subscription,
        handler: Arc<dyn BatchHandler>,
        linger: Duration,
    ) {
        self.queues.push(queue.clone());
        let (max, drain) = (graph_writer::MAX_BATCH, self.drain.clone());
        self.tasks
            .spawn(serve_batches(broker, queue, handler, max, linger, drain));
    }

    fn sweep(&mut self, sweep: Sweep) {
        let stop = self.drain.stop.clone();
        self.tasks.spawn(async move {
            let mut sweep_due = tokio::time::interval_at(Instant::now() + PATIENCE, PATIENCE);
            let mut count_due = tokio::time::interval_at(Instant::now() + COUNT, COUNT);
            count_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    _ = sweep_due.tick() => {}
                    _ = count_due.tick() => {
                        match sweep.open().await {
                            Ok(open) => metrics::fan_outs_open(open.count, open.oldest),
                            Err(error) => tracing::debug!(%error, "open fan-outs were not counted"),
                        }
                        match sweep.waiting().await {
                            Ok(open) => metrics::approvals_open(open.count, open.oldest),
                            Err(error) => tracing::debug!(%error, "waits for people were not counted"),
                        }
                        continue;
                    }
                }
                match sweep.once().await {
                    Ok(0) => {}
                    Ok(overdue) => tracing::info!(overdue, "swept over open fan-outs"),
                    Err(error) => tracing::warn!(%error, "open fan-outs could not be looked at"),
                }
            }
        });
    }

    async fn stop(&mut self) {
        self.drain.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a role ended with an error"),
                Err(error) => tracing::error!(%error, "a role was lost"),
            }
        }
    }
}

/// Sends traces to the collector that the settings, or the usual variable, name.
fn install_telemetry(settings: &Settings, roles: Roles) -> Result<(), Failure> {
    let usual = || std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    let Some(endpoint) = settings.otlp.clone().or_else(usual) else {
        return Ok(());
    };
    telemetry::install(&telemetry::Options {
        endpoint: endpoint.clone(),
        role: roles.as_str(),
        version: env!("CARGO_PKG_VERSION"),
        content: settings.otlp_content,
    })
    .map_err(|reason| {
        Failure::usage(format!(
            "setting `otlp` is `{endpoint}`, which cannot be used: {reason}"
        ))
    })
}

impl Fleet {
    pub async fn start(
        engine: &Engine,
        settings: &Settings,
        roles: Roles,
    ) -> Result<Self, Failure> {
        install_telemetry(settings, roles)?;
        let mut stages = Vec::new();
        let watchdog = Watchdog::start(settings.wall_limit, settings.grace, |overdue| {
            errln!("error: {overdue}; this process ends, and others get the message");
            std::process::exit(Exit::Hung as i32);
        });
        let watchdog = watchdog.map_err(|error| {
            Failure::new(Exit::Unavailable, format!("cannot start a thread: {error}"))
        })?;
        if roles.includes(Roles::Orchestrator) {
            agreed::on_claims(&engine.store, settings).await?;
            let mut stage = Stage::new(settings, &watchdog);
            engine.library.keep_current();
            let (orchestrator, queue) = engine.orchestrator(settings)?;
            let orchestrator = Arc::new(orchestrator);
            stage.one(engine.broker(), queue, orchestrator, settings.concurrency);
            stages.push(stage);
        }
        if roles.includes(Roles::Aggregator) {
            let mut stage = Stage::new(settings, &watchdog);
            let parts = aggregator::Parts {
                coordination: open_coordination(settings).await?,
                ..engine.aggregator_parts()
            };
            let deadlines = Arc::new(Deadlines::new(parts.clone()));
            let undertaker = Arc::new(Undertaker::new(parts.clone(), engine.limits.clone()));
            let sweep = Sweep::new(parts.clone());
            let fan_in = Arc::new(FanIn::new(parts));
            stage.one(engine.broker(), aggregator::deadlines(), deadlines, 4);
            stage.one(engine.broker(), aggregator::dead_letters(), undertaker, 1);
            let completions = aggregator::completions();
            stage.many(engine.broker(), completions, fan_in, Duration::ZERO);
            stage.sweep(sweep);
            stages.push(stage);
        }
        if roles.includes(Roles::GraphWriter) {
            let mut stage = Stage::new(settings, &watchdog);
            let writer = Arc::new(GraphWriter::new(
                Arc::clone(&engine.graph),
                engine.documents(),
                Arc::clone(&engine.host),
            ));
            let provenance = graph_writer::explainability();
            stage.many(engine.broker(), provenance, writer, graph_writer::LINGER);
            stages.push(stage);
        }
        Ok(Self {
            store: engine.store.clone(),
            grace: settings.grace,
            stages,
        })
    }

    /// Stops role by role: the first stops receiving, finishes what is in flight and hands back the
    /// rest; each of the others works first what those before it have left, as long as the grace lasts.
    pub async fn drain(self) {
        let until = Instant::now() + self.grace;
        for (position, mut stage) in self.stages.into_iter().enumerate() {
            if position > 0 {
                let left = until.saturating_duration_since(Instant::now());
                if let Err(error) = worked(&self.store, &stage.queues, left).await {
                    tracing::warn!(%error, "messages may be left for the next fleet");
                }
            }
            stage.stop().await;
        }
        telemetry::flush().await;
    }
}
