//! Composition: the stores of one data directory, and the roles that run on them.
//!
//! One process at a time runs all roles of a data directory (`ask`, `up`): it holds the fleet lock,
//! and another takes over when it goes. Single roles (`orchestrator`, ...) run beside it.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use agentfleet_aggregator::{self as aggregator, Deadlines, Endings, FanIn, Sweep, Undertaker};
use agentfleet_broker::{Broker, EmbeddedBroker, Options as BrokerOptions, Subscription};
use agentfleet_config::{ConfigStore, EmbeddedConfig};
use agentfleet_core::FleetLimits;
use agentfleet_documents::{Documents, EmbeddedDocuments};
use agentfleet_gateway::Intake;
use agentfleet_graph::{EmbeddedGraph, Graph, GraphOptions};
use agentfleet_graph_writer::{self as graph_writer, GraphWriter};
use agentfleet_models::{Choice, ModelOptions};
use agentfleet_orchestrator::{Options as OrchestratorOptions, Orchestrator, Parts};
use agentfleet_runtime::{
    BatchHandler, Committer, Drain, EmbeddedCommitter, Handler, Host, SystemHost, serve,
    serve_batches,
};
use agentfleet_schema::{RunLimits, topics};
use agentfleet_storage::Database;
use agentfleet_tools::library::Library;
use agentfleet_tools::{Toolbox, Tools};
use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the graph is waited for.
const LAG: Duration = Duration::from_secs(5);

/// The queue and the librarian of a data directory: enough to ask and to read answers.
#[derive(Clone, Debug)]
pub struct Store {
    pub database: Database,
    pub broker: EmbeddedBroker,
    pub documents: EmbeddedDocuments,
    pub config: EmbeddedConfig,
}

impl Store {
    pub fn open(settings: &Settings) -> Result<Self, Failure> {
        let database = Database::open(&settings.data)?;
        let retain = [(topics::AGENT_RESPONSE, settings.retention)]
            .into_iter()
            .collect();
        let broker = EmbeddedBroker::open(&database, BrokerOptions { retain })?;
        let documents = EmbeddedDocuments::open(&database)?;
        let config = EmbeddedConfig::open(&database)?;
        Ok(Self {
            database,
            broker,
            documents,
            config,
        })
    }

    /// Creates every subscription, so that nothing published early is missed, and seeds the config.
    pub async fn prepare(&self, settings: &Settings) -> Result<(), Failure> {
        self.config
            .seed(agentfleet_config::seed::embedded()?)
            .await?;
        for subscription in subscriptions(settings) {
            drop(self.broker.subscribe(subscription).await?);
        }
        Ok(())
    }
}

impl Store {
    pub fn committer(&self) -> Arc<dyn Committer> {
        Arc::new(EmbeddedCommitter::new(
            self.database.clone(),
            self.broker.clone(),
            self.documents.clone(),
        ))
    }

    /// The door that commands bring requests through.
    pub fn intake(&self) -> Intake {
        Intake {
            documents: Arc::new(self.documents.clone()),
            committer: self.committer(),
            config: Arc::new(self.config.clone()),
            host: Arc::new(SystemHost),
        }
    }
}

fn subscriptions(settings: &Settings) -> [Subscription; 5] {
    let mut orchestrator = OrchestratorOptions::new(Arc::default()).subscription();
    orchestrator.lease = settings.lease;
    orchestrator.max_deliveries = Some(settings.max_attempts + 3);
    [
        orchestrator,
        aggregator::completions(),
        aggregator::deadlines(),
        aggregator::dead_letters(),
        graph_writer::explainability(),
    ]
}

/// Everything of a data directory, the graph and the tools included.
#[derive(Clone)]
pub struct Engine {
    pub store: Store,
    pub graph: EmbeddedGraph,
    pub library: Library,
    pub model: Choice,
    pub tools: Arc<dyn Tools>,
    pub limits: FleetLimits,
    pub host: Arc<dyn Host>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the graph beside the store. `progress` sees the quads read so far and those there are.
    pub async fn open(
        store: Store,
        settings: &Settings,
        progress: &(dyn Fn(u64, u64) + Send + Sync),
    ) -> Result<Self, Failure> {
        let graph = open_graph(&store, settings, progress).await?;
        let library = Library::open(store.database.clone(), Arc::new(graph.clone()))?;
        let model = choose_model(settings).await?;
        let tools = Toolbox::new(
            library.clone(),
            Arc::new(graph.clone()),
            Arc::clone(&model.model),
        )?;
        Ok(Self {
            store,
            graph,
            library,
            model,
            tools: Arc::new(tools),
            limits: fleet_limits(settings),
            host: Arc::new(SystemHost),
        })
    }

    pub fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.store.broker.clone())
    }

    pub fn documents(&self) -> Arc<dyn Documents> {
        Arc::new(self.store.documents.clone())
    }

    pub fn aggregator_parts(&self) -> aggregator::Parts {
        aggregator::Parts {
            broker: self.broker(),
            documents: self.documents(),
            committer: self.store.committer(),
            graph: Arc::new(self.graph.clone()) as Arc<dyn Graph>,
            host: Arc::clone(&self.host),
        }
    }

    pub fn endings(&self) -> Endings {
        Endings::new(self.aggregator_parts())
    }

    fn orchestrator(&self, settings: &Settings) -> Result<(Orchestrator, Subscription), Failure> {
        let options = OrchestratorOptions {
            limits: self.limits.clone(),
            max_attempts: settings.max_attempts,
            model_timeout: settings.model_timeout,
            tool_timeout: settings.tool_timeout,
            lease: settings.lease,
            default_prompts: agentfleet_config::seed::embedded_snapshot()?,
        };
        let subscription = options.subscription();
        let parts = Parts {
            broker: self.broker(),
            documents: self.documents(),
            committer: self.store.committer(),
            graph: Arc::new(self.graph.clone()),
            config: Arc::new(self.store.config.clone()) as Arc<dyn ConfigStore>,
            model: Arc::clone(&self.model.model),
            tools: Arc::clone(&self.tools),
            host: Arc::clone(&self.host),
        };
        Ok((Orchestrator::new(parts, options), subscription))
    }
}

fn fleet_limits(settings: &Settings) -> FleetLimits {
    let millis = |time: Duration| time.as_millis() as u64;
    FleetLimits {
        most: RunLimits {
            max_iterations: settings.max_iterations,
            max_subagents: settings.max_subagents,
            max_depth: settings.max_depth,
            max_sessions: settings.max_sessions,
            ..RunLimits::default()
        },
        subagent_timeout_ms: millis(settings.subagent_timeout),
        run_timeout_ms: millis(settings.run_timeout),
        ..FleetLimits::default()
    }
}

/// Opens the graph of a store.
pub async fn open_graph(
    store: &Store,
    settings: &Settings,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<EmbeddedGraph, Failure> {
    let options = GraphOptions {
        max_quads: settings.max_quads,
        ..GraphOptions::default()
    };
    Ok(EmbeddedGraph::open(store.database.clone(), options, progress).await?)
}

/// Opens the graph to read what was done so far: what is still on its way is waited for, for a
/// moment, or written down here where no fleet does it.
pub async fn settled_graph(store: &Store, settings: &Settings) -> Result<EmbeddedGraph, Failure> {
    let graph = open_graph(store, settings, &|_, _| {}).await?;
    if !has_work(store, &[graph_writer::explainability()]).await? {
        return Ok(graph);
    }
    let lock = FleetLock::try_take(settings)?;
    let stop = CancellationToken::new();
    let writing = lock.as_ref().map(|_| {
        let broker: Arc<dyn Broker> = Arc::new(store.broker.clone());
        let writer = Arc::new(GraphWriter::new(
            Arc::new(graph.clone()),
            Arc::new(store.documents.clone()),
        ));
        let drain = Drain {
            stop: stop.clone(),
            grace: settings.grace,
        };
        let subscription = graph_writer::explainability();
        tokio::spawn(async move {
            serve_batches(broker, subscription, writer, graph_writer::MAX_BATCH, drain).await
        })
    });
    settle(store).await?;
    stop.cancel();
    if let Some(writing) = writing
        && let Err(error) = writing.await
    {
        tracing::error!(%error, "the graph-writer was lost");
    }
    Ok(graph)
}

/// Waits until the graph has what was published, at most [`LAG`].
pub async fn settle(store: &Store) -> Result<(), Failure> {
    let graph_writer = [graph_writer::explainability()];
    worked(store, &graph_writer, LAG).await
}

/// Waits until nothing is ready or in flight in these subscriptions, but no longer than `most`.
async fn worked(store: &Store, queues: &[Subscription], most: Duration) -> Result<(), Failure> {
    let mut changes = store.database.changes();
    let worked = async {
        loop {
            changes.mark_unchanged();
            if !has_work(store, queues).await? || changes.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    // Later is no harm: it is in the queue, and whoever reads sees less, and nothing that is wrong.
    tokio::time::timeout(most, worked).await.unwrap_or(Ok(()))
}

async fn has_work(store: &Store, queues: &[Subscription]) -> Result<bool, Failure> {
    let stats = store.broker.stats().await?;
    Ok(stats.iter().any(|queue| {
        let ours = |known: &Subscription| {
            known.name == queue.subscription && known.topic.as_str() == queue.topic
        };
        queue.waiting + queue.in_flight > 0 && queues.iter().any(ours)
    }))
}

/// The model the settings and the environment name.
pub async fn choose_model(settings: &Settings) -> Result<Choice, Failure> {
    let mut options = ModelOptions::from_environment();
    options.model = (settings.model != "auto").then(|| settings.model.clone());
    options.base_url.clone_from(&settings.base_url);
    Ok(agentfleet_models::select(&options).await?)
}

/// Which roles a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Roles {
    All,
    Orchestrator,
    Aggregator,
    GraphWriter,
}

impl Roles {
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
    fn new(settings: &Settings) -> Self {
        Self {
            drain: Drain {
                stop: CancellationToken::new(),
                grace: settings.grace,
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
    ) {
        self.queues.push(queue.clone());
        let (max, drain) = (graph_writer::MAX_BATCH, self.drain.clone());
        self.tasks
            .spawn(serve_batches(broker, queue, handler, max, drain));
    }

    fn sweep(&mut self, sweep: Sweep) {
        let stop = self.drain.stop.clone();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    () = tokio::time::sleep(aggregator::PATIENCE) => {}
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

impl Fleet {
    pub fn start(engine: &Engine, settings: &Settings, roles: Roles) -> Result<Self, Failure> {
        let mut stages = Vec::new();
        if roles.includes(Roles::Orchestrator) {
            let mut stage = Stage::new(settings);
            let (orchestrator, queue) = engine.orchestrator(settings)?;
            let orchestrator = Arc::new(orchestrator);
            stage.one(engine.broker(), queue, orchestrator, settings.concurrency);
            stages.push(stage);
        }
        if roles.includes(Roles::Aggregator) {
            let mut stage = Stage::new(settings);
            let parts = engine.aggregator_parts();
            let deadlines = Arc::new(Deadlines::new(parts.clone()));
            let undertaker = Arc::new(Undertaker::new(parts.clone()));
            let sweep = Sweep::new(parts.clone());
            let fan_in = Arc::new(FanIn::new(parts));
            stage.one(engine.broker(), aggregator::deadlines(), deadlines, 4);
            stage.one(engine.broker(), aggregator::dead_letters(), undertaker, 1);
            stage.many(engine.broker(), aggregator::completions(), fan_in);
            stage.sweep(sweep);
            stages.push(stage);
        }
        if roles.includes(Roles::GraphWriter) {
            let mut stage = Stage::new(settings);
            let writer = Arc::new(GraphWriter::new(
                Arc::new(engine.graph.clone()),
                engine.documents(),
            ));
            stage.many(engine.broker(), graph_writer::explainability(), writer);
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
    }
}

/// What the process that works a data directory says of itself, in the file whose lock it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// The settings `model` and `base_url` it was started with.
    pub asked: String,
    pub base_url: Option<String>,
    /// The model that came of them, and why it is that one; empty while it starts.
    pub model: String,
    pub reason: String,
}

impl Holder {
    pub fn of(settings: &Settings, choice: Option<&Choice>) -> Self {
        Self {
            pid: std::process::id(),
            asked: settings.model.clone(),
            base_url: settings.base_url.clone(),
            model: choice.map(|c| c.model.describe()).unwrap_or_default(),
            reason: choice.map(|c| c.reason.clone()).unwrap_or_default(),
        }
    }
}

/// Held by the one process that runs all roles of a data directory.
#[derive(Debug)]
pub struct FleetLock {
    file: File,
}

impl FleetLock {
    /// Takes the lock, or says that another process has it.
    pub fn try_take(settings: &Settings) -> Result<Option<Self>, Failure> {
        let path = lock_file(settings);
        let locked = open_lock(&path).and_then(|file| match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        match locked.map_err(|error| cannot_lock(&path, &error))? {
            Some(file) => Ok(Some(Self::taken(file, settings))),
            None => Ok(None),
        }
    }

    /// Waits for the lock on a thread of its own: the holder may be there for days.
    pub async fn take(settings: &Settings) -> Result<Self, Failure> {
        let path = lock_file(settings);
        let (sender, taken) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let result = open_lock(&path)
                .and_then(|file| file.lock().map(|()| file))
                .map_err(|error| cannot_lock(&path, &error));
            drop(sender.send(result));
        });
        let file = taken.await.map_err(|_| {
            Failure::new(
                Exit::Unavailable,
                "the thread that waits for the fleet lock ended",
            )
        })??;
        Ok(Self::taken(file, settings))
    }

    fn taken(file: File, settings: &Settings) -> Self {
        let lock = Self { file };
        lock.say(&Holder::of(settings, None));
        lock
    }

    /// Tells others what this process works with. It works all the same if it cannot be told.
    pub fn say(&self, holder: &Holder) {
        let written = serde_json::to_vec(holder).map_err(std::io::Error::from);
        let written = written.and_then(|text| {
            self.file.set_len(0)?;
            self.file.write_all_at(&text, 0)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "cannot tell other processes what works here");
        }
    }

    /// The other process that works the data directory, if one does.
    pub fn holder(settings: &Settings) -> Result<Option<Holder>, Failure> {
        let path = lock_file(settings);
        let failed = |error| cannot_lock(&path, &error);
        let file = open_lock(&path).map_err(failed)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            // It may be writing this very moment.
            Err(TryLockError::WouldBlock) => {
                let text = std::fs::read(&path).map_err(failed)?;
                Ok(Some(serde_json::from_slice(&text).unwrap_or_default()))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn lock_file(settings: &Settings) -> PathBuf {
    settings.data.join("run").join("fleet.lock")
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

fn cannot_lock(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Unavailable,
        format!("cannot lock `{}`: {error}", path.display()),
    )
}
