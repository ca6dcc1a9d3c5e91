//! What the roles work with beside the stores: the graph, the tools, the model.

use crate::error::Failure;
use crate::issuer;
use crate::lock::FleetLock;
use crate::settings::{Place, Settings};
use crate::store::{Store, reply_topics, settle};
use crate::token;
use agentfleet_aggregator as aggregator;
use agentfleet_broker::{Broker, Subscription};
use agentfleet_console::text;
use agentfleet_core::{FleetLimits, ReplyTopics};
use agentfleet_documents::Documents;
use agentfleet_graph::{
    Credentials, EmbeddedGraph, Graph, GraphOptions, RemoteGraph, RemoteOptions,
};
use agentfleet_graph_writer::{self as graph_writer, GraphWriter};
use agentfleet_library::Library;
use agentfleet_models::{Chain, Choice, ModelOptions, ProviderKind};
use agentfleet_orchestrator::{Options as OrchestratorOptions, Orchestrator, Parts, Trust};
use agentfleet_runs::Endings;
use agentfleet_runtime::{Drain, Host, serve_batches};
use agentfleet_schema::RunLimits;
use agentfleet_tools::{Secrets, Toolbox, Tools, mcp};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long it may take to count what is to be written into the graph.
const COUNTING: Duration = Duration::from_secs(1);

/// Everything of a data directory, the graph and the tools included.
#[derive(Clone)]
pub struct Engine {
    pub store: Store,
    pub graph: Arc<dyn Graph>,
    /// The graph, if it is the data directory's own.
    pub embedded: Option<EmbeddedGraph>,
    pub library: Library,
    pub model: Choice,
    pub tools: Arc<dyn Tools>,
    /// The same, for who looks at the tools and calls none.
    pub toolbox: Arc<Toolbox>,
    pub limits: FleetLimits,
    pub reply_topics: ReplyTopics,
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
        let (graph, embedded) = open_graph(&store, settings, progress).await?;
        let library = store.library(Arc::clone(&graph), settings).await?;
        let model = choose_model(settings).await?;
        let secrets = secrets(settings);
        let toolbox = Toolbox::new(
            library.clone(),
            Arc::clone(&store.documents),
            Arc::clone(&graph),
            Arc::clone(&model.model),
            settings.tool_timeout,
            secrets.clone(),
            mcp::Servers::new(secrets, mcp_commands(settings))?,
        )?;
        let toolbox = Arc::new(toolbox.with_services(Arc::clone(&store.broker)));
        let host = Arc::clone(&store.host);
        Ok(Self {
            store,
            graph,
            embedded,
            library,
            model,
            tools: Arc::clone(&toolbox) as Arc<dyn Tools>,
            toolbox,
            limits: fleet_limits(settings),
            reply_topics: reply_topics(settings)?,
            host,
        })
    }

    pub fn broker(&self) -> Arc<dyn Broker> {
        Arc::clone(&self.store.broker)
    }

    pub fn documents(&self) -> Arc<dyn Documents> {
        Arc::clone(&self.store.documents)
    }

    pub fn aggregator_parts(&self) -> aggregator::Parts {
        aggregator::Parts {
            broker: self.broker(),
            documents: self.documents(),
            committer: Arc::clone(&self.store.committer),
            graph: Arc::clone(&self.graph),
            // Only who counts siblings needs it: see `Fleet::start`.
            coordination: None,
            host: Arc::clone(&self.host),
            reply_topics: self.reply_topics.clone(),
        }
    }

    /// The limits of the fleet, where its model costs something.
    pub fn metered(&self) -> Option<FleetLimits> {
        let is_metered = self.model.model.capabilities().metered;
        is_metered.then(|| self.limits.clone())
    }

    pub fn endings(&self) -> Endings {
        Endings::new(self.aggregator_parts())
    }

    pub(crate) fn orchestrator(
        &self,
        settings: &Settings,
    ) -> Result<(Orchestrator, Subscription), Failure> {
        let options = OrchestratorOptions {
            limits: self.limits.clone(),
            max_attempts: settings.max_attempts,
            model_timeout: settings.model_timeout,
            model_wait: settings.model_wait,
            trust: Trust {
                secret: self.store.secret.clone(),
                issuer: issuer::of(settings)?,
                requires_claims: settings.require_claims,
                grace: settings.claim_grace,
            },
            lease: settings.lease,
            look: match settings.records {
                // Costs next to nothing.
                Place::Embedded => Duration::from_secs(1),
                // Requests are paid for.
                Place::At(_) => settings.lease / 3,
            },
            reply_topics: self.reply_topics.clone(),
            default_prompts: agentfleet_config::seed::embedded_snapshot()?,
        };
        let subscription = options.subscription();
        let parts = Parts {
            broker: self.broker(),
            documents: self.documents(),
            committer: Arc::clone(&self.store.committer),
            config: Arc::clone(&self.store.config),
            model: Arc::clone(&self.model.model),
            tools: Arc::clone(&self.tools),
            host: Arc::clone(&self.host),
        };
        Ok((Orchestrator::new(parts, options), subscription))
    }
}

/// The secrets of tools.
pub(crate) fn secrets(settings: &Settings) -> Secrets {
    Secrets::new(std::env::vars(), settings.data.join("secrets"))
}

/// The programs that may be started as MCP servers.
pub(crate) fn mcp_commands(settings: &Settings) -> Vec<String> {
    let all = settings.mcp_commands.iter().flat_map(|all| all.split(','));
    let named = all.map(str::trim).filter(|name| !name.is_empty());
    named.map(str::to_owned).collect()
}

pub(crate) fn fleet_limits(settings: &Settings) -> FleetLimits {
    let millis = |time: Duration| agentfleet_schema::millis(time).unsigned_abs();
    let fleet = FleetLimits::default();
    // What an operator sets is the most, and what holds where nothing narrower says otherwise.
    let or = |set: Option<u32>, otherwise: u32| set.unwrap_or(otherwise);
    FleetLimits {
        max_iterations: or(settings.max_iterations, fleet.max_iterations),
        max_subagents: or(settings.max_subagents, fleet.max_subagents),
        max_depth: or(settings.max_depth, fleet.max_depth),
        max_sessions: or(settings.max_sessions, fleet.max_sessions),
        max_replan_depth: or(settings.replan_depth, fleet.max_replan_depth),
        max_reflections: or(settings.max_reflections, fleet.max_reflections),
        most: RunLimits {
            max_iterations: settings.max_iterations,
            max_subagents: settings.max_subagents,
            max_depth: settings.max_depth,
            max_sessions: settings.max_sessions,
            max_tokens: settings.max_tokens,
            max_cost: settings.max_cost,
            max_model_calls: settings.max_model_calls,
            max_tool_calls: settings.max_tool_calls,
            max_replan_depth: settings.replan_depth,
            max_reflections: settings.max_reflections,
            ..RunLimits::default()
        },
        subagent_timeout_ms: millis(settings.subagent_timeout),
        run_timeout_ms: millis(settings.run_timeout),
        context_window: settings.context_window,
        ..fleet
    }
}

/// Opens the graph that the settings name; the second is set if it is the data directory's own.
pub async fn open_graph(
    store: &Store,
    settings: &Settings,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<(Arc<dyn Graph>, Option<EmbeddedGraph>), Failure> {
    if let Some(options) = graph_server(settings) {
        return Ok((Arc::new(RemoteGraph::connect(options).await?), None));
    }
    let options = GraphOptions {
        max_quads: settings.max_quads,
        ..GraphOptions::default()
    };
    let graph = EmbeddedGraph::open(store.database.clone(), options, progress).await?;
    Ok((Arc::new(graph.clone()), Some(graph)))
}

/// Opens the dataset that counts siblings, if the settings name one.
pub(crate) async fn open_coordination(
    settings: &Settings,
) -> Result<Option<Arc<dyn Graph>>, Failure> {
    let Some(url) = &settings.coordination else {
        return Ok(None);
    };
    let options = RemoteOptions {
        credentials: graph_credentials(settings),
        ..RemoteOptions::new(url)
    };
    Ok(Some(Arc::new(RemoteGraph::connect(options).await?)))
}

fn graph_credentials(settings: &Settings) -> Option<Credentials> {
    match (&settings.graph_token, &settings.graph_user) {
        (Some(token), _) => Some(Credentials::Bearer(token.expose().to_owned())),
        (None, Some(user)) => Some(Credentials::Basic {
            user: user.clone(),
            password: settings
                .graph_password
                .as_ref()
                .map_or_else(String::new, |word| word.expose().to_owned()),
        }),
        (None, None) => None,
    }
}

/// How to reach the graph's server, if it is on one.
fn graph_server(settings: &Settings) -> Option<RemoteOptions> {
    let Place::At(url) = &settings.graph else {
        return None;
    };
    let mut options = RemoteOptions {
        query_url: settings.graph_query.clone(),
        update_url: settings.graph_update.clone(),
        credentials: graph_credentials(settings),
        ..RemoteOptions::new(url)
    };
    if options.credentials.is_none() && options.is_local() {
        // The graph may be that of a process beside this one. No other host gets the token.
        options.credentials = token::found(settings).map(Credentials::Bearer);
    }
    Some(options)
}

/// Opens the graph for who only reads. At a server nothing is tried that would wait for those who write,
/// and a fleet's backlog is told, not waited for.
pub async fn graph_to_read(store: &Store, settings: &Settings) -> Result<Arc<dyn Graph>, Failure> {
    let queue = [graph_writer::explainability()];
    let graph: Arc<dyn Graph> = match graph_server(settings) {
        Some(options) if !store.has_work(&queue).await? => {
            Arc::new(RemoteGraph::connect_to_read(options).await?)
        }
        _ => settled_graph(store, settings).await?,
    };
    let counted = async {
        if store.embedded.is_none() {
            // A server counts for the subscriptions that this process knows.
            store.broker.establish(&queue).await?;
        }
        store.broker.waiting().await
    };
    let [writer] = &queue;
    let name = format!("{}/{}", writer.topic, writer.name);
    // Whoever cannot say it soon need not.
    if let Ok(Ok(counted)) = tokio::time::timeout(COUNTING, counted).await
        && let Some(behind) = counted
            .iter()
            .find(|one| one.queue == name && one.ready > 0)
    {
        let messages = text::counted(behind.ready, "message");
        errln!("The graph is behind by {messages}: what was done last may be missing here.");
    }
    Ok(graph)
}

/// Opens the graph to read what was done so far: what is still on its way is waited for, for a
/// moment, or written down here where no fleet does it.
pub async fn settled_graph(store: &Store, settings: &Settings) -> Result<Arc<dyn Graph>, Failure> {
    let (graph, _) = open_graph(store, settings, &|_, _| {}).await?;
    if !store.has_work(&[graph_writer::explainability()]).await? {
        return Ok(graph);
    }
    let lock = FleetLock::try_take(settings)?;
    let stop = CancellationToken::new();
    let writing = lock.as_ref().map(|_| {
        let broker = Arc::clone(&store.broker);
        let writer = Arc::new(GraphWriter::new(
            Arc::clone(&graph),
            Arc::clone(&store.documents),
            Arc::clone(&store.host),
        ));
        let drain = Drain {
            stop: stop.clone(),
            grace: settings.grace,
            watchdog: None,
        };
        let subscription = graph_writer::explainability();
        tokio::spawn(async move {
            let max = graph_writer::MAX_BATCH;
            serve_batches(broker, subscription, writer, max, Duration::ZERO, drain).await
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

/// The model the settings and the environment name.
/// The first key of a model that is set in this process's environment: its provider, and its variable.
pub fn key_at_hand() -> Option<(&'static str, &'static str)> {
    let is_set = |name: &&&str| std::env::var(name).is_ok_and(|key| !key.trim().is_empty());
    ProviderKind::ALL.iter().find_map(|kind| {
        let name = kind.key_variables().iter().find(is_set)?;
        Some((kind.as_str(), *name))
    })
}

/// What the settings and the environment say of the fleet's model.
pub(crate) fn model_options(settings: &Settings) -> ModelOptions {
    let mut options = ModelOptions::from_environment();
    options.model = (settings.model != "auto").then(|| settings.model.clone());
    options.base_url.clone_from(&settings.base_url);
    options
}

pub async fn choose_model(settings: &Settings) -> Result<Choice, Failure> {
    let options = model_options(settings);
    let choice = agentfleet_models::select(&options).await?;
    let (provider, reason) = (choice.provider, choice.reason.clone());
    Ok(Choice {
        model: Arc::new(Chain::new(choice, options)),
        provider,
        reason,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Flags;
    use agentfleet_core::Limits;
    use agentfleet_schema::AgentRequest;

    #[test]
    fn what_an_operator_sets_is_not_hidden_by_the_config_that_the_program_comes_with() {
        let flags = Flags {
            replan_depth: Some("4".into()),
            max_reflections: Some("5".into()),
            max_depth: Some("3".into()),
            max_subagents: Some("12".into()),
            ..Flags::default()
        };
        let settings = Settings::load(&flags).unwrap();
        let snapshot = agentfleet_config::seed::embedded_snapshot().unwrap();
        for (pattern, expected) in [
            ("plan-then-execute", (4, 5, 3, 12)),
            ("reflexion", (4, 5, 3, 12)),
        ] {
            let request = AgentRequest {
                pattern: pattern.into(),
                ..AgentRequest::default()
            };
            let limits = Limits::of(&request, &snapshot, &fleet_limits(&settings));
            let found = (
                limits.max_replan_depth,
                limits.max_reflections,
                limits.max_depth,
                limits.max_subagents,
            );
            assert_eq!(found, expected, "{pattern}");
        }
    }
}
