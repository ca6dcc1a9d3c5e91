//! Taking out of the tables what is hidden or was given up.

use super::{ABANDONED, CLEAR_STEP, GONE, Index, LIVE, LOADING};
use crate::{Error, graph_key};
use agentfleet_graph::{EraseBy, Graph};
use agentfleet_storage::{Database, Durability, Error as StorageError, Unit};
use rusqlite::Connection;

/// Hides the document with this URI, or all of a collection; says how many.
pub(crate) fn hide(
    unit: &mut Unit<'_>,
    collection: i64,
    uri: Option<&str>,
) -> Result<usize, StorageError> {
    Ok(unit.tx().execute(
        "UPDATE library_sources SET state = ?3
         WHERE collection = ?1 AND state = ?4 AND (?2 IS NULL OR uri = ?2)",
        (collection, uri, GONE, LIVE),
    )?)
}

/// Something hidden that is to be cleared away.
#[derive(Clone, Debug)]
struct Hidden {
    source: i64,
    collection: i64,
    has_triples: bool,
}

/// Hidden sources: replaced, removed, or left behind by a load that was interrupted.
fn hidden(unit: &mut Unit<'_>) -> Result<Vec<Hidden>, StorageError> {
    let mut statement = unit.tx().prepare_cached(
        "SELECT id, collection, media_type FROM library_sources
         WHERE state = ?1 OR (state = ?2 AND touched_at < ?3) ORDER BY id LIMIT 1000",
    )?;
    let rows = statement.query_map((GONE, LOADING, unit.now() - ABANDONED), |row| {
        let media_type: String = row.get(2)?;
        Ok(Hidden {
            source: row.get(0)?,
            collection: row.get(1)?,
            has_triples: oxrdfio::RdfFormat::from_media_type(&media_type).is_some(),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether something was replaced or removed and is not cleared away.
pub(crate) fn has_hidden(connection: &Connection) -> Result<bool, StorageError> {
    let mut statement = connection
        .prepare_cached("SELECT 1 FROM library_sources WHERE state <> 1 AND state = ?1 LIMIT 1")?;
    Ok(statement.exists([GONE])?)
}

/// Gives up what was begun and is not finished: whoever did that is gone.
pub(crate) fn give_up(unit: &mut Unit<'_>) -> Result<(), StorageError> {
    unit.tx().execute(
        "UPDATE library_sources SET state = ?1 WHERE state <> 1 AND state = ?2",
        [GONE, LOADING],
    )?;
    Ok(())
}

/// Drops the collections that hold nothing, not even what is hidden.
pub(crate) fn drop_unused(unit: &mut Unit<'_>) -> Result<(), StorageError> {
    let unused: Vec<i64> = unit
        .tx()
        .prepare_cached(
            "SELECT id FROM library_collections
             WHERE id NOT IN (SELECT collection FROM library_sources)",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for collection in unused {
        drop_collection(unit, collection)?;
    }
    Ok(())
}

/// Clears away what is hidden, its statements in `graph` first. In small steps, so that nobody waits long
/// for the writer.
pub(crate) async fn clear_all(database: &Database, graph: Option<&dyn Graph>) -> Result<(), Error> {
    loop {
        let hidden = database.write(Durability::Process, hidden).await?;
        if hidden.is_empty() {
            return Ok(());
        }
        let with_triples = hidden.iter().filter(|hidden| hidden.has_triples);
        // Loaded files have no conversation; the field of their batches holds the load.
        let by: Vec<EraseBy> = with_triples
            .map(|hidden| EraseBy::Conversation(graph_key(hidden.source)))
            .collect();
        if let Some(graph) = graph.filter(|_| !by.is_empty()) {
            graph.erase_all(by).await?;
        }
        for source in hidden {
            loop {
                let source = source.clone();
                let step = move |unit: &mut Unit<'_>| clear(unit, &source, CLEAR_STEP);
                if database.write(Durability::Process, step).await? {
                    break;
                }
            }
        }
    }
}

/// Clears away up to `limit` passages of a hidden source, and with the last of them the source;
/// `true` when nothing of it is left.
fn clear(unit: &mut Unit<'_>, hidden: &Hidden, limit: i64) -> Result<bool, StorageError> {
    let tx = unit.tx();
    let exists: bool = tx
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM library_collections WHERE id = ?1)")?
        .query_row([hidden.collection], |row| row.get(0))?;
    let rows: Vec<(i64, bool)> = tx
        .prepare_cached(
            "SELECT id, entity IS NOT NULL FROM library_passages WHERE source = ?1 LIMIT ?2",
        )?
        .query_map((hidden.source, limit), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (id, is_entity) in &rows {
        if exists {
            let table = Index::of(*is_entity).table(hidden.collection);
            tx.prepare_cached(&format!("DELETE FROM {table} WHERE rowid = ?1"))?
                .execute([id])?;
        }
        tx.prepare_cached("DELETE FROM library_passages WHERE id = ?1")?
            .execute([id])?;
    }
    let done = (rows.len() as i64) < limit;
    if done {
        tx.execute("DELETE FROM library_sources WHERE id = ?1", [hidden.source])?;
    }
    Ok(done)
}

/// Merges the parts of every full-text index into one, without what was deleted.
pub(crate) fn merge(unit: &mut Unit<'_>) -> Result<(), StorageError> {
    let tx = unit.tx();
    let ids: Vec<i64> = tx
        .prepare("SELECT id FROM library_collections")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for id in ids {
        for table in [Index::Text, Index::Entities].map(|index| index.table(id)) {
            tx.execute_batch(&format!("INSERT INTO {table}({table}) VALUES ('optimize')"))?;
        }
    }
    Ok(())
}

/// Drops a collection that has no document any more.
pub(crate) fn drop_collection(unit: &mut Unit<'_>, collection: i64) -> Result<(), StorageError> {
    let tx = unit.tx();
    let used: bool = tx.query_row(
        "SELECT EXISTS (SELECT 1 FROM library_sources WHERE collection = ?1 AND state <> ?2)",
        (collection, GONE),
        |row| row.get(0),
    )?;
    if !used {
        for index in [Index::Text, Index::Entities] {
            tx.execute_batch(&format!("DROP TABLE IF EXISTS {}", index.table(collection)))?;
        }
        tx.execute(
            "DELETE FROM library_collections WHERE id = ?1",
            [collection],
        )?;
    }
    Ok(())
}
