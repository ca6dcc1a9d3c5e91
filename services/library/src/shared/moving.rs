//! Moving the loaded documents of a data directory to the shared library.
//!
//! A version is called after its row in the data directory, so that its statements, which move with
//! the graph, are filed under the same key as before, and a move that is repeated finds what it has
//! done. A document that the shared library holds already stays as it is there.

use super::log;
use super::{Duration, Shared, Upload, catalogue};
use crate::Error;
use crate::load::Target as _;
use crate::passage::Passage;
use crate::store::NewSource;
use agentfleet_storage::{Database, Error as StorageError};
use rusqlite::Connection;
use std::sync::Arc;

/// Passages read at once.
const PAGE: i64 = 400;

/// A visible document of a data directory.
struct Local {
    id: i64,
    collection: String,
    source: NewSource,
    triples: u64,
}

impl Shared {
    /// Takes over what a data directory holds; says how many documents were new here.
    pub(crate) async fn take_over(
        self: &Arc<Self>,
        from: &Database,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<u64, Error> {
        self.refresh(Duration::ZERO).await?;
        let mut moved = 0;
        let mut upload: Option<(String, Upload)> = None;
        for local in from.read(documents).await? {
            let name = local.collection.clone();
            if self.has(&local).await? {
                continue;
            }
            let open = match upload.take() {
                Some((collection, open)) if collection == name => open,
                other => {
                    if let Some((_, mut done)) = other {
                        done.commit().await?;
                    }
                    Upload::new(Arc::clone(self), &name).await?
                }
            };
            let (_, open) = upload.insert((name, open));
            copy(from, local, open).await?;
            moved += 1;
            progress(moved);
        }
        if let Some((_, mut done)) = upload {
            done.commit().await?;
        }
        Ok(moved)
    }

    async fn has(&self, local: &Local) -> Result<bool, Error> {
        let (version, collection) = (local.id.to_string(), local.collection.clone());
        let document = vec![log::document(&local.source.uri)];
        let has = self.database.read(move |connection| {
            Ok(catalogue::is_known(connection, &version)?
                || catalogue::count_held(connection, &collection, &document)? > 0)
        });
        Ok(has.await?)
    }
}

async fn copy(from: &Database, local: Local, to: &mut Upload) -> Result<(), Error> {
    let statements = oxrdfio::RdfFormat::from_media_type(&local.source.media_type).is_some();
    let id = local.id;
    to.begin_as(local.source, id.to_string(), statements)
        .await?;
    let mut after = -1;
    loop {
        let page = from
            .read(move |connection| passages(connection, id, after))
            .await?;
        let Some((last, _)) = page.last() else {
            break;
        };
        after = *last;
        to.passages(page.into_iter().map(|(_, passage)| passage).collect())
            .await?;
    }
    to.finish(local.triples).await
}

fn documents(connection: &Connection) -> Result<Vec<Local>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.id, c.name, s.uri, s.title, s.path, s.origin, s.digest, s.media_type, s.bytes,
                s.loaded_at, s.triples
         FROM library_sources s JOIN library_collections c ON c.id = s.collection
         WHERE s.state = 1 ORDER BY c.name, s.id",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Local {
            id: row.get(0)?,
            collection: row.get(1)?,
            source: NewSource {
                uri: row.get(2)?,
                title: row.get(3)?,
                path: row.get(4)?,
                origin: row.get(5)?,
                digest: row.get(6)?,
                media_type: row.get(7)?,
                bytes: row.get::<_, i64>(8)? as u64,
                loaded_at: row.get(9)?,
                version: None,
            },
            triples: row.get::<_, i64>(10)? as u64,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn passages(
    connection: &Connection,
    source: i64,
    after: i64,
) -> Result<Vec<(i64, Passage)>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT ordinal, heading, text, entity FROM library_passages
         WHERE source = ?1 AND ordinal > ?2 ORDER BY ordinal LIMIT ?3",
    )?;
    let rows = statement.query_map((source, after, PAGE), |row| {
        let passage = Passage {
            heading: row.get(1)?,
            text: row.get(2)?,
            entity: row.get(3)?,
        };
        Ok((row.get(0)?, passage))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
