//! `purge`: deleting what runs left behind, by age, session, conversation or collection.
//!
//! The tombstone of a run comes first and stays as long again as runs are kept: late messages of the
//! run are dropped by it. The
//! graph comes last, because it is what an interrupted purge finds its runs by when it is repeated.

use super::records::{self, Run};
use crate::cli::Purge;
use crate::engine::settled_graph;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use agentfleet_console::text;
use agentfleet_documents::Entry;
use agentfleet_graph::{EraseBy, Graph, QueryOptions};
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::{CollectionName, SessionId, Term, keys, topics, uris};
use agentfleet_tools::library::Library;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn purge(purge: Purge, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    // Settled, so that nothing of an erased run comes after.
    let graph = settled_graph(&store, settings).await?;
    if let Some(uri) = &purge.document {
        let library = store.library(graph, settings).await?;
        return forget(&library, uri, purge.dry_run).await;
    }
    let (running, ended) = apart(&store, wanted(&store, &*graph, &purge).await?).await?;
    let verb = if purge.dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    let left = purge.dry_run || erase_all(&store, &*graph, &ended).await?;
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
    if let Some(collection) = &purge.collection {
        let name = CollectionName::from(collection.as_str());
        let library = store.library(Arc::clone(&graph), settings).await?;
        let documents = if purge.dry_run {
            library.count(&name).await?
        } else {
            // First: what is loaded into the collection from when it is empty is not erased.
            graph.erase(EraseBy::Collection(collection.clone())).await?;
            let removed = library.remove_collection(&name).await?;
            library.sweep().await?;
            removed as u64
        };
        let documents = text::counted(documents, "document");
        outln!("{documents} of collection `{collection}` {verb}.");
    }
    Ok(())
}

/// Takes one loaded document out of its collection.
async fn forget(library: &Library, uri: &str, dry_run: bool) -> Result<(), Failure> {
    let found = if dry_run {
        library.holder(uri).await?
    } else {
        let forgotten = library.forget_document(uri).await?;
        // Also what an earlier try left, if it was cut off.
        library.sweep().await?;
        forgotten
    };
    let Some(collection) = found else {
        return Err(Failure::not_found(format!(
            "there is no loaded document `{uri}`"
        )));
    };
    let verb = if dry_run {
        "would be deleted"
    } else {
        "deleted"
    };
    outln!("`{uri}` of collection `{collection}` {verb}.");
    Ok(())
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
    let (which, bindings) = older_than(store, age);
    let (_, ended) = apart(store, runs(graph, which, &bindings).await?).await?;
    erase_all(store, graph, &ended).await?;
    Ok(ended.len())
}

/// A tombstone stays as long again as a run, and longer than anything of the run can be under way.
async fn forget_tombstones(store: &Store, settings: &Settings) -> Result<(), Failure> {
    let Some(keep) = settings.keep_runs else {
        return Ok(());
    };
    let stay = keep.max(settings.retention).max(settings.run_timeout * 2);
    let before = store.now() - stay.as_millis() as i64;
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
async fn erase_all(store: &Store, graph: &dyn Graph, roots: &[SessionId]) -> Result<bool, Failure> {
    let mut deleted = 0;
    for root in roots {
        deleted += erase(store, root).await?;
    }
    let by = roots.iter().map(|root| EraseBy::Root(root.to_string()));
    let triples = graph.erase_all(by.collect()).await?;
    Ok(roots.is_empty() || deleted > 0 || triples.batches > 0)
}

/// Those of the runs that have not ended, and those that have.
async fn apart(
    store: &Store,
    roots: Vec<SessionId>,
) -> Result<(Vec<SessionId>, Vec<SessionId>), Failure> {
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    for root in roots {
        let run = Run::read(&*store.documents, &root).await?;
        if run.end().is_some() || is_erased(store, &root).await? {
            ended.push(root);
        } else {
            running.push(root);
        }
    }
    Ok((running, ended))
}

async fn is_erased(store: &Store, root: &SessionId) -> Result<bool, Failure> {
    let tombstone = store.documents.get(&keys::tombstone(root)).await?;
    Ok(tombstone.is_some())
}

async fn wanted(
    store: &Store,
    graph: &dyn Graph,
    purge: &Purge,
) -> Result<Vec<SessionId>, Failure> {
    if let Some(session) = &purge.session {
        let session = records::session(store, session).await?;
        let run = Run::read(&*store.documents, &session).await?;
        let Some(record) = run.steps.first() else {
            let waits = store.intake().accepted(&session).await?.is_some();
            return if waits || is_erased(store, &session).await? {
                Ok(vec![session])
            } else {
                Err(super::sessions::unknown(&session))
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
        let age = humantime::parse_duration(text).map_err(|_| {
            Failure::usage(format!(
                "`--older-than` is `{text}`, expected a time such as `30d`"
            ))
        })?;
        older_than(store, age)
    };
    runs(graph, which, &bindings).await
}

/// What is said of runs that ended longer ago.
fn older_than(store: &Store, age: Duration) -> (&'static str, Vec<(&'static str, Term)>) {
    let before = store.now() - age.as_millis() as i64;
    let instant = agentfleet_core::provenance::date_time(before);
    let term = Term::typed(instant, agentfleet_schema::vocabulary::xsd::DATE_TIME);
    (
        "?session prov:endedAtTime ?ended . FILTER(?ended < ?wanted)",
        vec![("wanted", term)],
    )
}

/// Root sessions of which something is so.
async fn runs(
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
    let tree = records::tree(documents, root).await?;
    documents.create(&keys::tombstone(root), Vec::new()).await?;
    let mut deleted = 0;
    // The root last: an interrupted purge finds the rest through it.
    for (session, _) in tree.iter().rev() {
        let texts = keys::document(&format!("{}/", uris::session(session)));
        for prefix in [format!("sessions/{session}/"), texts] {
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
