//! Where messages, records, texts and config lie: in the data directory, or on the servers that the
//! settings name. Every command opens this, and most need no more.

use crate::agreed;
use crate::error::Failure;
use crate::relocation::{self, Relocation};
use crate::settings::{Place, Settings};
use agentfleet_aggregator as aggregator;
use agentfleet_broker::{
    Broker, EmbeddedBroker, FleetSecret, LEAST_SECRET, Options as BrokerOptions, PulsarBroker,
    PulsarOptions, Subscription, Token,
};
use agentfleet_config::{ConfigStore, DocumentsConfig, seed};
use agentfleet_core::ReplyTopics;
use agentfleet_documents::{Archive, Archived, Documents, EmbeddedDocuments, PostgresDocuments};
use agentfleet_gateway::Intake;
use agentfleet_graph::Graph;
use agentfleet_graph_writer as graph_writer;
use agentfleet_library::Library;
use agentfleet_orchestrator::Options as OrchestratorOptions;
use agentfleet_runtime::{
    Committer, EmbeddedCommitter, Host, InstanceHost, SequentialCommitter, SystemHost,
};
use agentfleet_schema::topics::{self, Topic};
use agentfleet_schema::{Millis, keys};
use agentfleet_storage::Database;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the graph is waited for.
const LAG: Duration = Duration::from_secs(5);

/// The queue, the librarian and the config: enough to ask and to read answers.
#[derive(Clone)]
pub struct Store {
    /// Of this machine: whatever is embedded lies here.
    pub database: Database,
    pub broker: Arc<dyn Broker>,
    pub documents: Arc<dyn Documents>,
    /// The same as the documents, where runs are archived.
    pub archived: Option<Arc<Archived>>,
    pub config: Arc<dyn ConfigStore>,
    pub committer: Arc<dyn Committer>,
    /// The broker, if it is the data directory's own.
    pub embedded: Option<EmbeddedBroker>,
    /// Clock and nonces.
    pub host: Arc<dyn Host>,
    /// What the fleet signs its requests with, on servers.
    pub secret: Option<FleetSecret>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("database", &self.database)
            .field("embedded", &self.embedded.is_some())
            .finish_non_exhaustive()
    }
}

impl Store {
    pub async fn open(settings: &Settings) -> Result<Self, Failure> {
        Relocation::check(settings)?;
        let store = Self::connect(settings).await?;
        agreed::on_secret(&store).await?;
        Ok(store)
    }

    /// The same for a move, which goes on where one was cut off.
    pub async fn connect(settings: &Settings) -> Result<Self, Failure> {
        let database = Database::open(&settings.data)?;
        if let Some(says) = open_to_others(&database) {
            tracing::warn!("{says}");
        }
        match (&settings.broker, &settings.records) {
            (Place::At(broker), Place::At(documents)) => {
                Self::on_servers(database, broker, documents, settings).await
            }
            // The settings know no mixture.
            _ => Self::embedded(database, settings),
        }
    }

    fn embedded(database: Database, settings: &Settings) -> Result<Self, Failure> {
        let broker = embedded_broker(&database, settings)?;
        let own = EmbeddedDocuments::open(&database)?;
        let documents: Arc<dyn Documents> = Arc::new(own.clone());
        let host = InstanceHost(database.instances().clone());
        let now = || SystemHost.now();
        let notices = Arc::new(database.clone());
        let config = DocumentsConfig::new(Arc::clone(&documents), notices, now);
        let committer = EmbeddedCommitter::new(database.clone(), broker.clone(), own);
        Ok(Self {
            database,
            broker: Arc::new(broker.clone()),
            documents,
            archived: None,
            config: Arc::new(config),
            committer: Arc::new(committer),
            embedded: Some(broker),
            // Who works a queue of this directory works in it.
            host: Arc::new(host),
            secret: None,
        })
    }

    async fn on_servers(
        database: Database,
        broker: &str,
        documents: &str,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let secret = fleet_secret(settings)?;
        let broker = pulsar(broker, settings, secret.clone()).await?;
        let rows: Arc<dyn Documents> = Arc::new(PostgresDocuments::connect(documents).await?);
        let archived = archived(&rows, settings).await?;
        let documents = match &archived {
            Some(archived) => Arc::clone(archived) as Arc<dyn Documents>,
            None => rows,
        };
        let notices = Arc::new(crate::notices::ByBroker::start(Arc::clone(&broker)));
        let now = || SystemHost.now();
        let config = DocumentsConfig::new(Arc::clone(&documents), notices, now);
        let committer = SequentialCommitter::settling(Arc::clone(&broker), Arc::clone(&documents));
        Ok(Self {
            database,
            broker,
            documents,
            archived,
            config: Arc::new(config),
            committer: Arc::new(committer),
            embedded: None,
            host: Arc::new(SystemHost),
            secret,
        })
    }

    /// Creates every subscription, so that nothing published early is missed, and seeds the config.
    pub async fn prepare(&self, settings: &Settings) -> Result<(), Failure> {
        if settings.on_servers() {
            relocation::check_filled(&*self.documents).await?;
        }
        self.establish(settings).await
    }

    /// The same for a move, which fills what it prepares.
    pub async fn establish(&self, settings: &Settings) -> Result<(), Failure> {
        self.seed().await?;
        Ok(self.broker.establish(&subscriptions(settings)).await?)
    }

    /// Seeds the config: enough for what publishes no work.
    pub async fn seed(&self) -> Result<(), Failure> {
        let items = seed::embedded()?;
        let report = seed::seed(&*self.config, items).await?;
        if let Some(newest) = &report.newest {
            tracing::warn!(
                newest,
                this = env!("CARGO_PKG_VERSION"),
                items = report.newer,
                "config items that come with this program were written by a newer version of it, and stay"
            );
        }
        Ok(())
    }

    /// The loaded documents: in the data directory, or in the documents store where other machines see
    /// them too, with an index of them in a folder of the data directory that can be thrown away.
    pub async fn library(
        &self,
        graph: Arc<dyn Graph>,
        settings: &Settings,
    ) -> Result<Library, Failure> {
        match &settings.records {
            Place::Embedded => Ok(Library::open(self.database.clone(), graph)?),
            Place::At(_) => {
                let index = Database::open(&settings.data.join("library"))?;
                Ok(Library::shared(index, graph, Arc::clone(&self.documents)).await?)
            }
        }
    }

    /// The door that commands bring requests through.
    pub fn intake(&self) -> Intake {
        Intake {
            documents: Arc::clone(&self.documents),
            committer: Arc::clone(&self.committer),
            broker: Arc::clone(&self.broker),
            config: Arc::clone(&self.config),
            host: Arc::clone(&self.host),
            collections: None,
            // The process that works the run knows its model, and says so.
            metered: None,
            // Who holds the data directory has no tenant.
            usage: None,
        }
    }

    pub fn now(&self) -> Millis {
        self.database.clock().now()
    }

    /// Whether anything is ready or in flight in these subscriptions. Of a queue that other machines
    /// work too, this is theirs to say.
    pub async fn has_work(&self, queues: &[Subscription]) -> Result<bool, Failure> {
        let Some(broker) = &self.embedded else {
            return Ok(false);
        };
        let stats = broker.stats().await?;
        Ok(stats.iter().any(|queue| {
            let ours = |known: &Subscription| {
                known.name == queue.subscription && known.topic.as_str() == queue.topic
            };
            queue.waiting + queue.in_flight > 0 && queues.iter().any(ours)
        }))
    }
}

/// Says so where other users of the machine may read what lies in the data directory.
pub(crate) fn open_to_others(database: &Database) -> Option<String> {
    let (mode, data) = (database.open_to_others()?, database.data_dir().display());
    Some(format!(
        "other users of this machine may look into `{data}` or write there (mode {mode:o}): `chmod -R go= {data}` closes it"
    ))
}

/// How long notices of a new config are kept: longer than any gap between two looks.
const NOTICES: Duration = Duration::from_secs(3_600);

/// Topics whose messages are kept for readers that come late.
fn retained(settings: &Settings) -> BTreeMap<Topic, Duration> {
    [
        (topics::AGENT_RESPONSE, settings.retention),
        (topics::CONFIG_CHANGES, NOTICES),
    ]
    .into()
}

pub(crate) fn embedded_broker(
    database: &Database,
    settings: &Settings,
) -> Result<EmbeddedBroker, Failure> {
    let retain = retained(settings);
    Ok(EmbeddedBroker::open(database, BrokerOptions { retain })?)
}

/// The queue alone; also as what it is, if it is the data directory's own.
pub(crate) async fn open_broker(
    database: &Database,
    settings: &Settings,
) -> Result<(Arc<dyn Broker>, Option<EmbeddedBroker>), Failure> {
    let opened: (Arc<dyn Broker>, _) = match &settings.broker {
        Place::Embedded => {
            let broker = embedded_broker(database, settings)?;
            (Arc::new(broker.clone()), Some(broker))
        }
        Place::At(url) => (pulsar(url, settings, fleet_secret(settings)?).await?, None),
    };
    Ok(opened)
}

/// The same rows with what was archived of them. A process that did not know of it would work archived runs anew.
async fn archived(
    rows: &Arc<dyn Documents>,
    settings: &Settings,
) -> Result<Option<Arc<Archived>>, Failure> {
    if let Some(address) = &settings.archive {
        let archived = Archived::new(Arc::clone(rows), Archive::open(address)?);
        return Ok(Some(Arc::new(archived)));
    }
    if rows.entries(keys::ARCHIVED, "", 1).await?.is_empty() {
        return Ok(None);
    }
    Err(Failure::usage(
        "runs of this fleet were archived, and setting `archive` does not say where",
    )
    .hint("set `archive` as the other processes of the fleet have it"))
}

/// The documents alone.
pub(crate) async fn open_documents(
    database: &Database,
    settings: &Settings,
) -> Result<Arc<dyn Documents>, Failure> {
    match &settings.records {
        Place::Embedded => Ok(Arc::new(EmbeddedDocuments::open(database)?)),
        Place::At(address) => Ok(Arc::new(PostgresDocuments::connect(address).await?)),
    }
}

pub(crate) fn subscriptions(settings: &Settings) -> [Subscription; 5] {
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

/// Waits until the graph has what was published, at most [`LAG`].
pub async fn settle(store: &Store) -> Result<(), Failure> {
    let graph_writer = [graph_writer::explainability()];
    worked(store, &graph_writer, LAG).await
}

/// Waits until nothing is ready or in flight in these subscriptions, but no longer than `most`.
pub(crate) async fn worked(
    store: &Store,
    queues: &[Subscription],
    most: Duration,
) -> Result<(), Failure> {
    let mut changes = store.database.changes();
    let worked = async {
        loop {
            changes.mark_unchanged();
            if !store.has_work(queues).await? || changes.changed().await.is_err() {
                return Ok(());
            }
        }
    };
    // Later is no harm: it is in the queue, and whoever reads sees less, and nothing that is wrong.
    tokio::time::timeout(most, worked).await.unwrap_or(Ok(()))
}

async fn pulsar(
    url: &str,
    settings: &Settings,
    secret: Option<FleetSecret>,
) -> Result<Arc<dyn Broker>, Failure> {
    let options = PulsarOptions {
        admin_url: settings.broker_admin.clone(),
        tenant: settings.broker_tenant.clone(),
        namespace: settings.broker_namespace.clone(),
        names: topic_names(settings)?,
        token: settings.broker_token.as_ref().map(|token| {
            let token = token.expose();
            match token.strip_prefix("file:") {
                Some(path) => Token::File(path.into()),
                None => Token::Text(token.to_owned()),
            }
        }),
        certificates: settings.broker_certificates.clone(),
        secret,
        retain: retained(settings),
        ..PulsarOptions::new(url)
    };
    let broker = PulsarBroker::connect(options).await?;
    let kept: Vec<Topic> = retained(settings).into_keys().collect();
    broker.ensure(&kept, &[]).await?;
    Ok(Arc::new(broker))
}

/// What the processes of a fleet sign their own requests with, where the settings name it.
fn fleet_secret(settings: &Settings) -> Result<Option<FleetSecret>, Failure> {
    let Some(secret) = &settings.fleet_secret else {
        return Ok(None);
    };
    let text = match secret.expose().strip_prefix("file:") {
        Some(path) => std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!(
                "setting `fleet_secret` names the file `{path}`: {error}"
            ))
        })?,
        None => secret.expose().to_owned(),
    };
    let secret = FleetSecret::new(&text).ok_or_else(|| {
        Failure::usage(format!(
            "setting `fleet_secret` must have at least {LEAST_SECRET} characters"
        ))
        .hint("`openssl rand -hex 32` makes one")
    })?;
    Ok(Some(secret))
}

/// The patterns of topics that callers may name for their responses.
pub(crate) fn reply_patterns(settings: &Settings) -> Vec<String> {
    let all = settings.reply_to.iter().flat_map(|all| all.split(','));
    all.map(str::trim)
        .filter(|pattern| !pattern.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The topics that callers may name for the responses of their runs.
pub(crate) fn reply_topics(settings: &Settings) -> Result<ReplyTopics, Failure> {
    let patterns = reply_patterns(settings);
    let (tenant, namespace) = (&settings.broker_tenant, &settings.broker_namespace);
    ReplyTopics::new(tenant, namespace, &patterns, &topic_names(settings)?).map_err(|pattern| {
        Failure::usage(format!(
            "setting `reply_to` has `{pattern}`, expected names of topics such as `replies-*` or \
             `persistent://TENANT/NAMESPACE/NAME`"
        ))
    })
}

/// The names that topics have on the server, where they are not ours.
fn topic_names(settings: &Settings) -> Result<BTreeMap<Topic, String>, Failure> {
    let known = topics::ALL;
    let pairs = settings.broker_topics.iter().flat_map(|all| all.split(','));
    let mut names = BTreeMap::new();
    for pair in pairs.map(str::trim).filter(|pair| !pair.is_empty()) {
        let named = pair.split_once('=').and_then(|(ours, theirs)| {
            let topic = known.iter().find(|topic| topic.as_str() == ours.trim())?;
            Some((topic.clone(), theirs.trim().to_owned())).filter(|(_, name)| !name.is_empty())
        });
        let Some((topic, name)) = named else {
            let ours: Vec<&str> = known.iter().map(Topic::as_str).collect();
            return Err(Failure::usage(format!(
                "setting `broker_topics` has `{pair}`, expected `OURS=THEIRS` with ours one of {}",
                ours.join(", ")
            )));
        };
        names.insert(topic, name);
    }
    Ok(names)
}
