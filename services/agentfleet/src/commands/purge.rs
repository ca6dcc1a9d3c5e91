//! `purge`: deleting what runs left behind, by age, session, conversation or collection.
//!
//! The tombstone of a run comes first and stays as long again as runs are kept: late messages of the
//! run are dropped by it. The
//! graph comes last, because it is what an interrupted purge finds its runs by when it is repeated.

use super::records;
use crate::cli::Purge;
use crate::engine::{open_coordination, settled_graph};
use crate::error::{Exit, Failure};
use crate::settings::{self, Settings};
use crate::store::Store;
use agentfleet_console::text;
use agentfleet_core::conversation;
use agentfleet_documents::Entry;
use agentfleet_gateway::check_collection;
use agentfleet_graph::{EraseBy, Graph, QueryOptions};
use agentfleet_library::Library;
use agentfleet_runtime::Records;
use agentfleet_schema::records::Tombstone;
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::{CollectionName, Millis, SessionId, Term, keys, millis, topics, uris};
use agentfleet_storage::Database;
use std::sync::Arc;

/// Most runs named before they are deleted.
const NAMED: usize = 20;

pub(crate) async fn purge(purge: Purge, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    // Settled, so that nothing of an erased run comes after.
    let graph = settled_graph(&store, settings).await?;
    if let Some(uri) = &purge.document {
        let library = store.library(graph, settings).await?;
        return forget(&store, &library, uri, &purge).await;
    }
    let (running, ended) = apart(&store, wanted(&store, &*graph, &purge).await?).await?;
    let collection = match &purge.collection {
        Some(name) if running.is_empty() => {
            let library = store.library(Arc::clone(&graph), settings).await?;
            let name = CollectionName::from(name.as_str());
            let count = library.count(&name).await?;
            if count == 0 && ended.is_empty() {
                let loaded = library.holdings().await?.into_iter();
                let loaded: Vec<String> = loaded.map(|(name, _)| name).collect();
                check_collection(&name, &loaded)?;
            }
            let documents = text::counted(count, "document");
            Some((library, name, documents))
        }
        _ => None,
    };
    let mut told = named(&store, &ended).await?;
    if let Some((_, name, documents)) = &collection {
        told.push(format!("{documents} of collection `{name}`"));
    }
    agreed(&told, &purge)?;
    let verb = if purge.dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    let left = purge.dry_run || erase_all(&store, settings, &*graph, &ended).await?;
    if left {
        outln!("{} {verb}.", text::counted(ended.len() as u64, "run"));
    } else {
        outln!("Nothing was left: it had been deleted before.");
    }
    if !purge.dry_run {
        forget_tombstones(&store, settings).await?;
    }
    if !running.is_empty() {
        let names: Vec<String> = running.iter().map(|root| format!("`{root}`")).collect();
        let (count, names) = (running.len() as u64, names.join(", "));
        let have = if count == 1 { "has" } else { "have" };
        let says = format!("{} {have} not ended: {names}", text::counted(count, "run"));
        return Err(Failure::new(Exit::Failed, says).hint(format!(
            "{} cancel {}",
            settings.program(),
            running[0]
        )));
    }
    if let Some((library, name, mut documents)) = collection {
        if !purge.dry_run {
            // First: what is loaded into the collection from when it is empty is not erased.
            graph.erase(EraseBy::Collection(name.to_string())).await?;
            let removed = library.remove_collection(&name).await?;
            library.sweep().await?;
            library.scrub().await?;
            documents = text::counted(removed as u64, "document");
        }
        outln!("{documents} of collection `{name}` {verb}.");
    }
    if !purge.dry_run && !scrub(&store.database).await? {
        errln!("{STAYS}");
    }
    Ok(())
}

const STAYS: &str = "The write-ahead log was in use all the time: what was deleted stays in it until it is overwritten, or the next `purge`.";

/// Takes one loaded document out of its collection.
async fn forget(store: &Store, library: &Library, uri: &str, purge: &Purge) -> Result<(), Failure> {
    let found = library.holder(uri).await?;
    if let Some(collection) = &found {
        agreed(&[format!("`{uri}` of collection `{collection}`")], purge)?;
    }
    if !purge.dry_run {
        library.forget_document(uri).await?;
        // Also what an earlier try left, if it was cut off.
        library.sweep().await?;
        library.scrub().await?;
        if !scrub(&store.database).await? {
            errln!("{STAYS}");
        }
    }
    let Some(collection) = found else {
        return Err(Failure::not_found(format!(
            "there is no loaded document `{uri}`"
        )));
    };
    let verb = if purge.dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    outln!("`{uri}` of collection `{collection}` {verb}.");
    Ok(())
}

/// The runs as people know them, the first of them.
async fn named(store: &Store, roots: &[SessionId]) -> Result<Vec<String>, Failure> {
    let mut told = Vec::new();
    for root in roots.iter().take(NAMED) {
        told.push(match super::sessions::show(store, root, None).await {
            Ok(shown) => format!("{root}  {}", text::preview(&shown.question, 80)),
            // An earlier purge was cut off.
            Err(_) => root.to_string(),
        });
    }
    if roots.len() > NAMED {
        told.push(format!(
            "and {} more",
            text::counted((roots.len() - NAMED) as u64, "run")
        ));
    }
    Ok(told)
}

/// Shows what is to be deleted, and asks whether it is meant, unless that was said.
fn agreed(told: &[String], purge: &Purge) -> Result<(), Failure> {
    if purge.yes || told.is_empty() {
        return Ok(());
    }
    errln!("With all that belongs to it:");
    for line in told {
        errln!("  {line}");
    }
    if purge.dry_run {
        return Ok(());
    }
    let question = "Nothing brings it back. Type `yes` to delete it";
    crate::ui::agreed(question, "nothing was deleted")
}

/// Takes what was deleted out of every byte of the data directory; `false` if others kept it busy.
async fn scrub(database: &Database) -> Result<bool, Failure> {
    let database = database.clone();
    let scrubbed = tokio::task::spawn_blocking(move || database.scrub());
    Ok(scrubbed.await.map_err(std::io::Error::from)??)
}

/// Deletes runs that ended longer ago than runs are kept, responses and tombstones that are too old,
/// and says how many runs it were.
pub(crate) async fn by_age(
    store: &Store,
    graph: &dyn Graph,
    settings: &Settings,
) -> Result<usize, Failure> {
    // A broker of its own keeps its messages as long as it is told to.
    if let Some(broker) = &store.embedded {
        broker.purge().await?;
    }
    forget_tombstones(store, settings).await?;
    let Some(age) = settings.keep_runs else {
        return Ok(0);
    };
    let (which, bindings) = older_than(store, millis(age));
    let (_, ended) = apart(store, runs(graph, which, &bindings).await?).await?;
    erase_all(store, settings, graph, &ended).await?;
    if !ended.is_empty() && !scrub(&store.database).await? {
        tracing::info!("{STAYS}");
    }
    Ok(ended.len())
}

/// A tombstone stays as long again as a run, and longer than anything of the run can be under way.
async fn forget_tombstones(store: &Store, settings: &Settings) -> Result<(), Failure> {
    let Some(keep) = settings.keep_runs else {
        return Ok(());
    };
    let stay = keep.max(settings.retention).max(settings.run_timeout * 2);
    let before = store.now() - millis(stay);
    let mut after = String::new();
    loop {
        let found = store.documents.entries("trees/", &after, 1_000).await?;
        let Some(last) = found.last() else {
            return Ok(());
        };
        after.clone_from(&last.key);
        let old = |entry: &Entry| entry.created_at < before && entry.key.ends_with("/tombstone");
        let old: Vec<String> = found
            .into_iter()
            .filter(old)
            .map(|entry| entry.key)
            .collect();
        store.documents.delete(&old).await?;
    }
}

/// Whether there was anything to erase.
async fn erase_all(
    store: &Store,
    settings: &Settings,
    graph: &dyn Graph,
    roots: &[SessionId],
) -> Result<bool, Failure> {
    let mut deleted = 0;
    for root in roots {
        deleted += erase(store, root).await?;
    }
    let by = roots.iter().map(|root| EraseBy::Root(root.to_string()));
    let by: Vec<EraseBy> = by.collect();
    if !by.is_empty()
        && let Some(coordination) = open_coordination(settings).await?
    {
        // Of a fan-out that was never concluded.
        coordination.erase_all(by.clone()).await?;
    }
    let triples = graph.erase_all(by).await?;
    Ok(roots.is_empty() || deleted > 0 || triples.batches > 0)
}

/// Those of the runs that have not ended, and those that have.
async fn apart(
    store: &Store,
    roots: Vec<SessionId>,
) -> Result<(Vec<SessionId>, Vec<SessionId>), Failure> {
    let records = Records::new(&*store.documents);
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    for root in roots {
        // A damaged run can be purged, too.
        let (steps, _) = records.readable(&root).await?;
        let is_over = steps.last().is_some_and(|last| last.outcome.is_terminal());
        if is_over || records.is_erased(&root).await? {
            ended.push(root);
        } else {
            running.push(root);
        }
    }
    Ok((running, ended))
}

async fn wanted(
    store: &Store,
    graph: &dyn Graph,
    purge: &Purge,
) -> Result<Vec<SessionId>, Failure> {
    if let Some(session) = &purge.session {
        let session = records::session(store, session).await?;
        let records = Records::new(&*store.documents);
        let (steps, _) = records.readable(&session).await?;
        let Some(record) = steps.first() else {
            let waits = records.has(&keys::accepted(&session)).await?;
            return if waits || records.is_erased(&session).await? {
                Ok(vec![session])
            } else {
                Err(records::missing(store, &session).await?)
            };
        };
        if record.root != session {
            return Err(Failure::usage(format!(
                "session `{session}` is a subagent: name its root, `{}`",
                record.root
            )));
        }
        return Ok(vec![session]);
    }
    let (which, bindings) = if let Some(conversation) = &purge.conversation {
        (
            "?session tg:conversationId ?wanted .",
            vec![("wanted", Term::text(conversation))],
        )
    } else if let Some(collection) = &purge.collection {
        (
            "?session tg:collection ?wanted .",
            vec![("wanted", Term::text(collection))],
        )
    } else {
        let text = purge.older_than.as_deref().unwrap_or_default();
        older_than(store, settings::age("--older-than", text)?)
    };
    runs(graph, which, &bindings).await
}

/// What is said of runs that ended longer ago.
pub(super) fn older_than(store: &Store, age: Millis) -> (&'static str, Vec<(&'static str, Term)>) {
    let before = store.now() - age;
    let instant = agentfleet_core::provenance::date_time(before.max(0));
    let term = Term::typed(instant, agentfleet_schema::vocabulary::xsd::DATE_TIME);
    (
        "?session prov:endedAtTime ?ended . FILTER(?ended < ?wanted)",
        vec![("wanted", term)],
    )
}

/// Root sessions of which something is so.
pub(super) async fn runs(
    graph: &dyn Graph,
    which: &str,
    bindings: &[(&str, Term)],
) -> Result<Vec<SessionId>, Failure> {
    let sparql = format!(
        "SELECT DISTINCT ?id FROM <{RETRIEVAL_GRAPH}> WHERE {{ \
         ?session a tg:AgentQuestion ; tg:rootSessionId ?id . \
         FILTER NOT EXISTS {{ ?session tg:parentSessionId ?parent }} {which} }}"
    );
    let found = graph
        .select(&sparql, bindings, QueryOptions::default())
        .await?;
    Ok((0..found.rows.len())
        .filter_map(|row| found.text(row, "id"))
        .map(SessionId::from)
        .collect())
}

/// Erases a run, but for its triples, and says how many objects it were.
async fn erase(store: &Store, root: &SessionId) -> Result<usize, Failure> {
    let documents = &*store.documents;
    let mut tree = Vec::new();
    let mut walk = Records::new(documents).walk(root);
    // What cannot be read is erased as well.
    while let Some((found, _)) = walk.next_readable().await? {
        tree.push(found.session);
    }
    let tombstone = Tombstone {
        erased_at: store.now(),
    };
    let tombstone = serde_json::to_vec(&tombstone).unwrap_or_default();
    for session in &tree {
        let key = keys::tombstone(session);
        documents.create(&key, tombstone.clone()).await?;
    }
    let mut deleted = 0;
    let (steps, _) = Records::new(documents).readable(root).await?;
    let exchange = steps.first().and_then(conversation::key);
    documents.delete(exchange.as_slice()).await?;
    // The root last: an interrupted purge finds the rest through it.
    for session in tree.iter().rev() {
        let texts = keys::document(&format!("{}/", uris::session(session)));
        for prefix in [keys::session(session), texts] {
            deleted += documents.delete_prefix(&prefix).await?;
        }
    }
    documents.delete(&[keys::closed(root)]).await?;
    deleted += documents
        .delete_prefix(&format!("trees/{root}/unknown/"))
        .await?;
    deleted += documents.delete_prefix(&keys::approvals_of(root)).await?;
    // What nobody could work has the text of the request in it.
    let parked = super::dlq::all(store).await?.into_iter().filter(|parked| {
        parked
            .properties
            .get(topics::property::ROOT)
            .map(String::as_str)
            == Some(root.as_str())
    });
    let parked: Vec<String> = parked.map(|parked| keys::parked(&parked.id)).collect();
    documents.delete(&parked).await?;
    if let Some(broker) = &store.embedded {
        broker.forget(root.as_str()).await?;
    }
    Ok(deleted + parked.len())
}
