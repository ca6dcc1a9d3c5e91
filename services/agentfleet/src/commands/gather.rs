//! A copy of a fleet that works on servers, as the data directory of one that needs none.
//!
//! Nobody has to stop. Objects never change, and the store itself says when each was created: those
//! from before one instant are a state the fleet was in. What that state still had to hear follows
//! from its records alone, because a step's record holds all that it publishes: so the messages of
//! every run that was not settled are made anew, and its provenance with them. Messages that nobody
//! had begun to work are the broker's own, and are not in the copy.

use super::migrate::{bar, copy_documents, copy_messages};
use crate::engine::open_graph;
use crate::error::{Exit, Failure};
use crate::settings::{Place, Settings};
use crate::store::{Store, embedded_broker, subscriptions};
use agentfleet_broker::{Broker as _, EmbeddedBroker};
use agentfleet_documents::{Documents, EmbeddedDocuments, Entry};
use agentfleet_graph::export;
use agentfleet_runtime::{outgoing, staged};
use agentfleet_schema::records::{AcceptedRecord, FanOutRecord, OutcomeKind, StepRecord};
use agentfleet_schema::{Millis, SessionId, keys};
use agentfleet_storage::{Database, FILE};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Objects or batches asked for at once.
const PAGE: usize = 200;
/// A run that ended so shortly before may not be told in the graph yet: it is told again.
const RECENT: Millis = 3_600_000;
/// Between two looks at the clock of a store.
const LOOK: Duration = Duration::from_millis(100);

/// Where every session lies.
const SESSIONS: &str = "sessions/";

/// Copies the fleet of the settings into a new data directory.
pub(crate) async fn gather(settings: &Settings, into: &Path) -> Result<Database, Failure> {
    let store = Store::open(settings).await?;
    let home = if settings.documents == Place::Embedded {
        // What is here is copied as it is; what is not is added below.
        store.database.backup(&into.join(FILE), |_| {})?;
        Database::open(into)?
    } else {
        let (graph, _) = open_graph(&store, settings, &|_, _| {}).await?;
        let library = store.library(graph, settings).await?;
        library.bring_home(&into.join(FILE)).await?;
        let home = Database::open(into)?;
        copy_objects(&store, &home).await?;
        home
    };
    let objects = EmbeddedDocuments::open(&home)?;
    let unsettled = unsettled(&objects, store.now() - RECENT).await?;
    if settings.graph != Place::Embedded || settings.documents != Place::Embedded {
        let statements = copy_graph(&store, settings, &home, &unsettled).await?;
        outln!("graph      {statements} statements");
    }
    let broker = embedded_broker(&home, settings)?;
    for subscription in subscriptions(settings) {
        drop(broker.subscribe(subscription).await?);
    }
    if let Some(own) = &store.embedded {
        if settings.documents != Place::Embedded {
            copy_messages(own, &broker).await?;
        }
    } else {
        let messages = tell_again(&objects, &broker, &unsettled).await?;
        outln!("broker     {messages} messages of runs in progress");
    }
    Ok(home)
}

/// The instant before which objects belong to the copy, by the clock of their store. What was there
/// when this was called was created before it.
async fn cut(documents: &dyn Documents) -> Result<Millis, Failure> {
    let first = time_of(documents).await?;
    loop {
        // Some stores tell whole seconds only.
        let now = time_of(documents).await?;
        if now > first {
            return Ok(now);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn time_of(documents: &dyn Documents) -> Result<Millis, Failure> {
    let probe = format!("backups/{}", uuid::Uuid::new_v4());
    documents.create(&probe, Vec::new()).await?;
    let found = documents.entries(&probe, "", 1).await;
    documents.delete(std::slice::from_ref(&probe)).await?;
    let created = found?.first().map(|entry| entry.created_at);
    created.ok_or_else(|| Failure::new(Exit::Unavailable, "an object just created is not listed"))
}

async fn copy_objects(store: &Store, home: &Database) -> Result<(), Failure> {
    let documents = &*store.documents;
    let own = EmbeddedDocuments::open(home)?;
    let cut = cut(documents).await?;
    let belongs = |entry: &Entry| entry.created_at < cut;
    let count = copy_documents(documents, &own, belongs).await?;
    outln!("documents  {count} records, texts and versions of the config");
    Ok(())
}

/// Copies what is told of settled runs, and what was loaded. The others are told again.
async fn copy_graph(
    store: &Store,
    settings: &Settings,
    home: &Database,
    unsettled: &HashSet<SessionId>,
) -> Result<u64, Failure> {
    let bar = bar("statements");
    let mut count = 0;
    let mut append = async |mut batches: Vec<agentfleet_graph::Batch>| {
        batches.retain(|batch| !unsettled.contains(&SessionId::new(batch.root.as_str())));
        count += batches
            .iter()
            .map(|it| it.triples.len() as u64)
            .sum::<u64>();
        bar.set_position(count);
        export::append(home, &batches).await
    };
    if settings.graph == Place::Embedded {
        let mut after = 0;
        while let Some((last, batches)) = export::batches(&store.database, after).await? {
            after = last;
            append(batches).await?;
        }
    } else {
        let (graph, _) = open_graph(store, settings, &|_, _| {}).await?;
        for names in graph.batches().await?.chunks(PAGE) {
            append(graph.export(names).await?).await?;
        }
    }
    bar.finish_and_clear();
    Ok(count)
}

/// Calls `each` for every session, with the keys of its objects.
async fn sessions(
    documents: &dyn Documents,
    mut each: impl AsyncFnMut(SessionId, Vec<String>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut after, mut of, mut known) = (String::new(), String::new(), Vec::new());
    loop {
        let page = documents.entries(SESSIONS, &after, PAGE).await?;
        let Some(last) = page.last() else {
            break;
        };
        after.clone_from(&last.key);
        for entry in page {
            let session = entry.key[SESSIONS.len()..].split('/').next();
            let session = session.unwrap_or_default();
            if session != of && !known.is_empty() {
                each(SessionId::new(of.as_str()), std::mem::take(&mut known)).await?;
            }
            session.clone_into(&mut of);
            known.push(entry.key);
        }
    }
    if known.is_empty() {
        return Ok(());
    }
    each(SessionId::new(of), known).await
}

/// The steps of a session that were committed, in order.
fn steps(session: &SessionId, known: &[String]) -> Vec<u32> {
    let folder = format!("{SESSIONS}{session}/steps/");
    let number = |key: &String| {
        key.strip_prefix(&folder)?
            .strip_suffix("/outcome")?
            .parse()
            .ok()
    };
    let mut steps: Vec<u32> = known.iter().filter_map(number).collect();
    steps.sort_unstable();
    steps
}

/// The roots whose runs are not settled: a session of theirs has not ended, or nobody above knows of
/// its end, or it ended after `since`.
async fn unsettled(
    documents: &dyn Documents,
    since: Millis,
) -> Result<HashSet<SessionId>, Failure> {
    let mut roots = HashSet::new();
    sessions(documents, async |session, known| {
        let newest = steps(&session, &known).pop();
        let Some(newest) = newest else {
            roots.insert(session);
            return Ok(());
        };
        let record: StepRecord = read(documents, &keys::outcome(&session, newest)).await?;
        let concluded = match &record.parent {
            Some(parent) => {
                let verdict = keys::fan_in(&parent.session, parent.step);
                documents.get(&verdict).await?.is_some()
            }
            None => true,
        };
        if !record.outcome.is_terminal() || !concluded || record.committed_at >= since {
            roots.insert(record.root);
        }
        Ok(())
    })
    .await?;
    Ok(roots)
}

/// Publishes all that the runs of these roots ever published; whoever heard it before takes no notice.
async fn tell_again(
    documents: &dyn Documents,
    broker: &EmbeddedBroker,
    roots: &HashSet<SessionId>,
) -> Result<u64, Failure> {
    let mut count = 0;
    sessions(documents, async |session, known| {
        let steps = steps(&session, &known);
        let mut publications = Vec::new();
        if steps.is_empty() && known.contains(&keys::accepted(&session)) {
            let accepted: AcceptedRecord = read(documents, &keys::accepted(&session)).await?;
            publications.push(accepted.publication);
        }
        for step in steps {
            let key = keys::outcome(&session, step);
            let Some(body) = documents.get(&key).await? else {
                continue;
            };
            let record: StepRecord = decoded(&key, &body)?;
            if !roots.contains(&record.root) {
                return Ok(());
            }
            for (key, body) in staged(&key, &body)? {
                documents.create(&key, body).await?;
            }
            publications.extend(record.publications);
            if record.outcome == OutcomeKind::FanOut
                && known.contains(&keys::fan_in(&session, step))
            {
                let fan_out: FanOutRecord = read(documents, &keys::fan_out(&session, step)).await?;
                publications.push(fan_out.synthesis);
            }
        }
        count += publications.len() as u64;
        Ok(broker
            .publish(publications.into_iter().map(outgoing).collect())
            .await?)
    })
    .await?;
    Ok(count)
}

async fn read<T: DeserializeOwned>(documents: &dyn Documents, key: &str) -> Result<T, Failure> {
    let body = documents.get(key).await?.unwrap_or_default();
    decoded(key, &body)
}

fn decoded<T: DeserializeOwned>(key: &str, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::new(Exit::Failed, format!("`{key}` cannot be read: {error}")))
}
