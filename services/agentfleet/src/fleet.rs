//! Composition: the stores of one data directory, and the roles that run on them.
//!
//! One process at a time runs all roles of a data directory (`ask`, `up`): it holds the fleet lock,
//! and another takes over when it goes. Single roles (`orchestrator`, ...) run beside it.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use agentfleet_aggregator::{self as aggregator, Deadlines, Endings, FanIn, Undertaker};
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
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
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
    if !is_behind(store).await? {
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
    let mut changes = store.database.changes();
    let settled = async {
        loop {
            changes.mark_unchanged();
            if !is_behind(store).await? || changes.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    // Later is no harm: whoever reads sees less, and nothing that is wrong.
    tokio::time::timeout(LAG, settled).await.unwrap_or(Ok(()))
}

async fn is_behind(store: &Store) -> Result<bool, Failure> {
    let waiting = store.broker.backlog().await?;
    Ok(waiting
        .iter()
        .any(|(name, count)| name.ends_with("/graph-writer") && *count > 0))
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
    stop: CancellationToken,
    tasks: JoinSet<Result<(), agentfleet_runtime::Error>>,
}

impl Fleet {
    pub fn start(engine: &Engine, settings: &Settings, roles: Roles) -> Result<Self, Failure> {
        let stop = CancellationToken::new();
        let drain = Drain {
            stop: stop.clone(),
            grace: settings.grace,
        };
        let mut tasks = JoinSet::new();
        let broker = engine.broker();
        let mut one = |subscription, handler: Arc<dyn Handler>, concurrency: usize| {
            tasks.spawn(serve(
                Arc::clone(&broker),
                subscription,
                handler,
                concurrency,
                drain.clone(),
            ));
        };
        if roles.includes(Roles::Orchestrator) {
            let (orchestrator, subscription) = engine.orchestrator(settings)?;
            one(subscription, Arc::new(orchestrator), settings.concurrency);
        }
        if roles.includes(Roles::Aggregator) {
            let parts = engine.aggregator_parts();
            one(
                aggregator::deadlines(),
                Arc::new(Deadlines::new(parts.clone())),
                4,
            );
            one(
                aggregator::dead_letters(),
                Arc::new(Undertaker::new(parts)),
                1,
            );
        }
        let mut many = |subscription, handler: Arc<dyn BatchHandler>| {
            let max = graph_writer::MAX_BATCH;
            tasks.spawn(serve_batches(
                Arc::clone(&broker),
                subscription,
                handler,
                max,
                drain.clone(),
            ));
        };
        if roles.includes(Roles::Aggregator) {
            let fan_in = FanIn::new(engine.aggregator_parts());
            many(aggregator::completions(), Arc::new(fan_in));
        }
        if roles.includes(Roles::GraphWriter) {
            let writer = GraphWriter::new(Arc::new(engine.graph.clone()), engine.documents());
            many(graph_writer::explainability(), Arc::new(writer));
        }
        Ok(Self { stop, tasks })
    }

    /// Stops receiving, finishes what is in flight, hands back the rest.
    pub async fn drain(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a role ended with an error"),
                Err(error) => tracing::error!(%error, "a role was lost"),
            }
        }
    }
}

/// Held by the one process that runs all roles of a data directory.
#[derive(Debug)]
pub struct FleetLock {
    _file: File,
}

impl FleetLock {
    /// Takes the lock, or says that another process has it.
    pub fn try_take(settings: &Settings) -> Result<Option<Self>, Failure> {
        let path = settings.data.join("run").join("fleet.lock");
        let file = File::create(&path).map_err(|error| cannot_lock(&path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(cannot_lock(&path, &error)),
        }
    }

    /// Waits for the lock on a thread of its own: the holder may be there for days.
    pub async fn take(settings: &Settings) -> Result<Self, Failure> {
        let path = settings.data.join("run").join("fleet.lock");
        let (sender, taken) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let result = File::create(&path)
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
        Ok(Self { _file: file })
    }
}

fn cannot_lock(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Unavailable,
        format!("cannot lock `{}`: {error}", path.display()),
    )
}
