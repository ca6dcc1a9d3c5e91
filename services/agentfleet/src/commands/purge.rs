//! `purge`: deleting what runs left behind, by age, session, conversation or collection.
//!
//! The tombstone of a run comes first and stays: late messages of the run are dropped by it. The
//! graph comes last, because it is what an interrupted purge finds its runs by when it is repeated.

use super::records::{self, Run};
use crate::cli::Purge;
use crate::error::{Exit, Failure};
use crate::fleet::{Store, settled_graph};
use crate::settings::Settings;
use agentfleet_console::text;
use agentfleet_documents::Documents as _;
use agentfleet_graph::{Answer, EmbeddedGraph, EraseBy, Graph as _, QueryOptions};
use agentfleet_schema::uris::RETRIEVAL_GRAPH;
use agentfleet_schema::{CollectionName, SessionId, Term, keys, uris};
use agentfleet_tools::library::Library;
use std::sync::Arc;

pub(crate) async fn purge(purge: Purge, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    // Settled, so that nothing of an erased run comes after.
    let graph = settled_graph(&store, settings).await?;
    let (running, ended) = apart(&store, wanted(&store, &graph, &purge).await?).await?;
    let verb = if purge.dry_run {
        "would be deleted"
    } else {
        for root in &ended {
            erase(&store, root).await?;
        }
        let by = ended.iter().map(|root| EraseBy::Root(root.to_string()));
        graph.erase_all(by.collect()).await?;
        "deleted"
    };
    outln!("{} {verb}.", text::counted(ended.len() as u64, "run"));
    if !running.is_empty() {
        let names: Vec<String> = running.iter().map(|root| format!("`{root}`")).collect();
        let failure = Failure::new(
            Exit::Failed,
            format!(
                "{} not ended: {}",
                if running.len() == 1 {
                    "1 run has".to_owned()
                } else {
                    format!("{} runs have", running.len())
                },
                names.join(", ")
            ),
        );
        return Err(failure.hint(format!("agentfleet cancel {}", running[0])));
    }
    if let Some(collection) = &purge.collection {
        let name = CollectionName::from(collection.as_str());
        let library = Library::open(store.database.clone(), Arc::new(graph.clone()))?;
        let documents = if purge.dry_run {
            library.documents(&name, usize::MAX >> 1).await?.len()
        } else {
            let removed = library.remove_collection(&name).await?;
            graph.erase(EraseBy::Collection(collection.clone())).await?;
            removed
        };
        let documents = text::counted(documents as u64, "document");
        outln!("{documents} of collection `{collection}` {verb}.");
    }
    Ok(())
}

/// Those of the runs that have not ended, and those that have.
async fn apart(
    store: &Store,
    roots: Vec<SessionId>,
) -> Result<(Vec<SessionId>, Vec<SessionId>), Failure> {
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    for root in roots {
        let run = Run::read(&store.documents, &root).await?;
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
    graph: &EmbeddedGraph,
    purge: &Purge,
) -> Result<Vec<SessionId>, Failure> {
    if let Some(session) = &purge.session {
        let session = SessionId::from(session.as_str());
        let run = Run::read(&store.documents, &session).await?;
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
    let (condition, bindings) = if let Some(conversation) = &purge.conversation {
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
        let before = store.database.clock().now() - age.as_millis() as i64;
        let instant = agentfleet_core::provenance::date_time(before);
        let term = Term::typed(instant, agentfleet_schema::vocabulary::xsd::DATE_TIME);
        (
            "?session prov:endedAtTime ?ended . FILTER(?ended < ?wanted)",
            vec![("wanted", term)],
        )
    };
    let sparql = format!(
        "SELECT DISTINCT ?id FROM <{RETRIEVAL_GRAPH}> WHERE {{ ?session a tg:AgentQuestion ; tg:rootSessionId ?id . \
         FILTER NOT EXISTS {{ ?session tg:parentSessionId ?parent }} {condition} }}"
    );
    let answer = graph
        .query(&sparql, &bindings, QueryOptions::default())
        .await?;
    let Answer::Solutions(found) = answer else {
        return Ok(Vec::new());
    };
    Ok((0..found.rows.len())
        .filter_map(|row| found.text(row, "id"))
        .map(SessionId::from)
        .collect())
}

/// Erases a run, but for its triples.
async fn erase(store: &Store, root: &SessionId) -> Result<(), Failure> {
    let documents = &store.documents;
    let tree = records::tree(documents, root).await?;
    documents.create(&keys::tombstone(root), Vec::new()).await?;
    // The root last: an interrupted purge finds the rest through it.
    for (session, _) in tree.iter().rev() {
        documents
            .delete_prefix(&format!("sessions/{session}/"))
            .await?;
        documents
            .delete_prefix(&keys::document(&format!("{}/", uris::session(session))))
            .await?;
    }
    documents.delete(&[keys::closed(root)]).await?;
    documents
        .delete_prefix(&format!("trees/{root}/unknown/"))
        .await?;
    store.broker.forget(root.as_str()).await?;
    Ok(())
}
