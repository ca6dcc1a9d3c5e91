//! The library: documents that people loaded, by collection, with a full-text index over their
//! passages. What was loaded from RDF lies in the graph; its entities are found here by words.
//!
//! # Invariants
//! - A search, a fetch or a list sees the documents of its collection and nothing else.
//! - A document is visible whole or not at all, in one version.
//! - The URI of a document outlives reloads: `urn:agentfleet:document:{collection}:{path}`.
//!
//! On an embedded data directory the tables here are the library. On servers they are an index of what
//! lies in the documents store, in a database of its own that can be thrown away: see [`shared`].

mod docx;
mod format;
mod guard;
mod html;
mod load;
mod markdown;
mod opened;
mod outline;
mod passage;
mod pdf;
mod rdf;
mod reader;
mod rows;
mod rst;
mod search;
mod shared;
mod store;
mod terms;
mod text;
mod uri;
mod walk;

pub use format::EXTENSIONS;
pub use load::{LoadOptions, LoadReport, OnProgress, Progress, Skipped};
pub use opened::Opened;
pub use search::{Description, Entity, Hit};
pub use shared::Standing;

pub(crate) use agentfleet_schema::words::{covered, terms};
pub(crate) use html::plain as html_text;
pub(crate) use rdf::{label_quality, local_name, one_value};
pub(crate) use uri::{document_of_blank, is_blank};

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_graph::{EraseBy, Graph};
use agentfleet_schema::{CollectionName, Millis};
use agentfleet_storage::{Database, Durability};
use shared::Shared;
use shared::catalogue::Scope;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Loaded documents: those of one data directory, or those of all machines. Clones share them.
#[derive(Clone)]
pub struct Library {
    /// The library itself, or the index of the shared one.
    database: Database,
    graph: Arc<dyn Graph>,
    shared: Option<Arc<Shared>>,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library")
            .field("database", &self.database)
            .field("shared", &self.shared.is_some())
            .finish_non_exhaustive()
    }
}

/// What a collection holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Collection {
    pub name: String,
    pub documents: u64,
    pub passages: u64,
    pub entities: u64,
    pub triples: u64,
    pub loaded_at: Option<Millis>,
}

/// A loaded document.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Document {
    pub uri: String,
    pub title: String,
    /// Below the folder it was loaded from.
    pub path: String,
    pub media_type: String,
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub digest: String,
    pub loaded_at: Millis,
}

/// A part of a document's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub document: Document,
    pub text: String,
    /// Characters before the part, and after it.
    pub before: usize,
    pub after: usize,
}

impl Library {
    /// The library in `database`; statements of RDF files go to `graph`.
    pub fn open(database: Database, graph: Arc<dyn Graph>) -> Result<Self, Error> {
        database.migrate(store::PART, store::TABLES)?;
        Ok(Self {
            database,
            graph,
            shared: None,
        })
    }

    /// The library that lies in `documents`, where other machines see it too. `index` is a database
    /// for this and nothing else; it is brought up to date when somebody reads, and all the time after
    /// [`Library::keep_current`].
    ///
    /// A read sees what was loaded anywhere a second before it, or earlier. Where that takes longer
    /// than tools may take it fails with [`Error::Building`].
    pub async fn shared(
        index: Database,
        graph: Arc<dyn Graph>,
        documents: Arc<dyn Documents>,
    ) -> Result<Self, Error> {
        index.migrate(store::PART, store::TABLES)?;
        let shared = Shared::open(documents, Arc::clone(&graph), index.clone()).await?;
        Ok(Self {
            database: index,
            graph,
            shared: Some(shared),
        })
    }

    /// Brings the index of a shared library up to date in the background, from now on until all clones
    /// are dropped.
    pub fn keep_current(&self) {
        if let Some(shared) = &self.shared {
            shared.keep_current();
        }
    }

    /// How the index stands to the shared library; `None` if this is none.
    pub async fn standing(&self) -> Result<Option<Standing>, Error> {
        match &self.shared {
            Some(shared) => shared.standing().await.map(Some),
            None => Ok(None),
        }
    }

    /// Deletes what loads and removals that were cut off left in the store; says how many versions of
    /// documents it was.
    pub async fn sweep(&self) -> Result<usize, Error> {
        match &self.shared {
            Some(shared) => shared.sweep(None).await,
            None => Ok(0),
        }
    }

    /// Takes what was removed out of every byte of the index: the words of its full-text parts, which
    /// keep them until they are merged, and what the file has of it. `false` as
    /// [`Database::scrub`] says.
    pub async fn scrub(&self) -> Result<bool, Error> {
        self.database
            .write(Durability::Durable, store::merge)
            .await?;
        let database = self.database.clone();
        let scrubbed = tokio::task::spawn_blocking(move || database.scrub());
        let closed = |_| agentfleet_storage::Error::Closed;
        Ok(scrubbed.await.map_err(closed)??)
    }

    /// Puts the loaded documents of a data directory into this shared library, and says how many were
    /// not there. Their statements are moved with the graph.
    pub async fn take_over(
        &self,
        from: &Self,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<u64, Error> {
        match (&self.shared, &from.shared) {
            (Some(shared), None) => shared.take_over(&from.database, progress).await,
            (_, _) => Ok(0),
        }
    }

    /// Copies a shared library into a new file, as the library of a data directory.
    pub async fn bring_home(&self, file: &Path) -> Result<(), Error> {
        // However long the index takes: nobody waits for an answer here.
        while let Err(error) = self.current(None).await {
            if !matches!(error, Error::Building { .. }) {
                return Err(error);
            }
        }
        Ok(self.database.backup(file, |_| {})?)
    }

    /// Waits until a read of the collection, or of all, sees what it must.
    async fn current(&self, collection: Option<&CollectionName>) -> Result<(), Error> {
        match &self.shared {
            Some(shared) => shared.current(&scope(collection)).await,
            None => Ok(()),
        }
    }

    /// The passages that match `query` best.
    pub async fn search(
        &self,
        collection: &CollectionName,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, Error> {
        self.current(Some(collection)).await?;
        let (collection, query) = (collection.as_str().to_owned(), query.to_owned());
        let found = self
            .database
            .read(move |connection| search::passages(connection, &collection, &query, limit));
        Ok(found.await?)
    }

    /// The entities of RDF files whose names and literals match `query` best.
    pub async fn entities(
        &self,
        collection: &CollectionName,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Entity>, Error> {
        self.current(Some(collection)).await?;
        let (collection, query) = (collection.as_str().to_owned(), query.to_owned());
        let found = self
            .database
            .read(move |connection| search::entities(connection, &collection, &query, limit));
        Ok(found.await?)
    }

    /// What the entities of a collection are called, for those of `iris` that have a name.
    pub async fn labels(
        &self,
        collection: &CollectionName,
        iris: Vec<String>,
    ) -> Result<HashMap<String, String>, Error> {
        self.current(Some(collection)).await?;
        let collection = collection.as_str().to_owned();
        let found = self
            .database
            .read(move |connection| search::labels(connection, &collection, iris));
        Ok(found.await?)
    }

    /// The documents of a collection that describe these entities.
    pub async fn descriptions(
        &self,
        collection: &CollectionName,
        entities: Vec<String>,
    ) -> Result<Vec<Description>, Error> {
        self.current(Some(collection)).await?;
        let collection = collection.as_str().to_owned();
        let found = self
            .database
            .read(move |connection| search::descriptions(connection, Some(&collection), entities));
        Ok(found.await?)
    }

    /// Up to `most` characters of a document's text, beginning after `from` of them.
    pub async fn fetch(
        &self,
        collection: &CollectionName,
        uri: &str,
        from: usize,
        most: usize,
    ) -> Result<Option<Fetched>, Error> {
        self.current(Some(collection)).await?;
        let (collection, uri) = (collection.as_str().to_owned(), uri.to_owned());
        let found = self
            .database
            .read(move |connection| {
                let mut documents = documents(connection, &collection, Some(&uri), 1)?;
                let Some((source, document)) = documents.pop() else {
                    return Ok(None);
                };
                let window = opened::window(connection, source, from, most)?;
                let shown = window.text.chars().count();
                let before = from.min(window.at);
                let after = window.at - before - shown;
                Ok(Some(Fetched {
                    document,
                    text: window.text,
                    before,
                    after,
                }))
            })
            .await?;
        Ok(found)
    }

    /// The documents of a collection in the order of their paths, up to `limit`.
    pub async fn documents(
        &self,
        collection: &CollectionName,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        self.current(Some(collection)).await?;
        let collection = collection.as_str().to_owned();
        let found = self
            .database
            .read(move |connection| documents(connection, &collection, None, limit));
        Ok(found
            .await?
            .into_iter()
            .map(|(_, document)| document)
            .collect())
    }

    /// All collections that hold something, by name.
    pub async fn collections(&self) -> Result<Vec<Collection>, Error> {
        self.current(None).await?;
        let found = self
            .database
            .read(|connection| {
                let mut statement = connection.prepare_cached(
                    "SELECT c.name, count(*), sum(s.passages), sum(s.entities), sum(s.triples),
                            max(s.loaded_at)
                     FROM library_collections c JOIN library_sources s ON s.collection = c.id
                     WHERE s.state = 1 GROUP BY c.id ORDER BY c.name",
                )?;
                let rows = statement.query_map([], |row| {
                    Ok(Collection {
                        name: row.get(0)?,
                        documents: count(row, 1)?,
                        passages: count(row, 2)?,
                        entities: count(row, 3)?,
                        triples: count(row, 4)?,
                        loaded_at: row.get(5)?,
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await?;
        Ok(found)
    }

    /// Names of the collections that hold something, with how many documents. Needs no index.
    pub async fn holdings(&self) -> Result<Vec<(String, u64)>, Error> {
        match &self.shared {
            Some(shared) => shared.collections().await,
            None => {
                let held = self.collections().await?.into_iter();
                Ok(held.map(|held| (held.name, held.documents)).collect())
            }
        }
    }

    /// How many documents a collection holds. Needs no index.
    pub async fn count(&self, collection: &CollectionName) -> Result<u64, Error> {
        let held = self.holdings().await?.into_iter();
        let mut own = held.filter(|(name, _)| name == collection.as_str());
        Ok(own.next().map_or(0, |(_, count)| count))
    }

    /// The collection that holds the document with this URI. Needs no index.
    pub async fn holder(&self, uri: &str) -> Result<Option<CollectionName>, Error> {
        let held = match &self.shared {
            Some(shared) => shared.holder(uri).await?,
            None => {
                let wanted = uri.to_owned();
                self.database
                    .read(move |connection| opened::collection_of(connection, &wanted))
                    .await?
            }
        };
        Ok(held.map(CollectionName::from))
    }

    /// Removes a document with its passages and statements; `false` if there was none.
    pub async fn remove_document(
        &self,
        collection: &CollectionName,
        uri: &str,
    ) -> Result<bool, Error> {
        if let Some(shared) = &self.shared {
            let uris = [uri.to_owned()];
            return Ok(shared.remove(collection.as_str(), &uris).await? > 0);
        }
        let removed = self.hide(collection, Some(uri.to_owned())).await?;
        self.clear().await?;
        Ok(removed > 0)
    }

    /// Removes the document with this URI, in whichever collection it is; says in which it was.
    pub async fn forget_document(&self, uri: &str) -> Result<Option<CollectionName>, Error> {
        let Some(collection) = self.holder(uri).await? else {
            return Ok(None);
        };
        let removed = self.remove_document(&collection, uri).await?;
        Ok(removed.then_some(collection))
    }

    /// Removes everything that was loaded into a collection; says how many documents that was.
    pub async fn remove_collection(&self, collection: &CollectionName) -> Result<usize, Error> {
        if let Some(shared) = &self.shared {
            return shared.clear(collection.as_str()).await;
        }
        let removed = self.hide(collection, None).await?;
        self.clear().await?;
        let name = collection.as_str().to_owned();
        self.database
            .write(Durability::Durable, move |unit| {
                match store::collection(unit.tx(), &name)? {
                    Some(id) => store::drop_collection(unit, id),
                    None => Ok(()),
                }
            })
            .await?;
        Ok(removed)
    }

    async fn hide(&self, collection: &CollectionName, uri: Option<String>) -> Result<usize, Error> {
        let name = collection.as_str().to_owned();
        let hidden = self
            .database
            .write(Durability::Durable, move |unit| {
                match store::collection(unit.tx(), &name)? {
                    Some(id) => store::hide(unit, id, uri.as_deref()),
                    None => Ok(0),
                }
            })
            .await?;
        Ok(hidden)
    }

    /// As [`Library::clear`], where the tables here are the library; an index is kept tidy by whoever
    /// builds it.
    async fn clear_local(&self) -> Result<(), Error> {
        match &self.shared {
            Some(_) => Ok(()),
            None => self.clear().await,
        }
    }

    /// Clears away what is hidden, its statements first.
    async fn clear(&self) -> Result<(), Error> {
        loop {
            let hidden = self
                .database
                .write(Durability::Process, store::hidden)
                .await?;
            if hidden.is_empty() {
                return Ok(());
            }
            let with_triples = hidden.iter().filter(|hidden| hidden.has_triples);
            let keys: Vec<String> = with_triples
                .map(|hidden| graph_key(hidden.source))
                .collect();
            if !keys.is_empty() {
                // Loaded files have no conversation; the field of their batches holds the load.
                let by = keys.iter().cloned().map(EraseBy::Conversation).collect();
                self.graph.erase_all(by).await?;
            }
            store::clear_all(&self.database, hidden).await?;
        }
    }
}

fn scope(collection: Option<&CollectionName>) -> Scope {
    match collection {
        Some(name) => Scope::Collection(name.as_str().to_owned()),
        None => Scope::All,
    }
}

/// A number that is never negative; SQLite knows none of that sort.
fn count(row: &rusqlite::Row<'_>, column: usize) -> Result<u64, rusqlite::Error> {
    row.get::<_, i64>(column).map(|number| number as u64)
}

/// What the statements of one loaded version of a file are filed under in the graph.
fn graph_key(source: impl std::fmt::Display) -> String {
    format!("urn:agentfleet:load:{source}")
}

/// Documents with their source ids.
fn documents(
    connection: &rusqlite::Connection,
    collection: &str,
    uri: Option<&str>,
    limit: usize,
) -> Result<Vec<(i64, Document)>, agentfleet_storage::Error> {
    let Some(collection) = store::collection(connection, collection)? else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(
        "SELECT id, uri, title, path, media_type, bytes, digest, loaded_at FROM library_sources
         WHERE collection = ?1 AND state = 1 AND (?2 IS NULL OR uri = ?2) ORDER BY path LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map((collection, uri, limit), |row| {
        Ok((
            row.get(0)?,
            Document {
                uri: row.get(1)?,
                title: row.get(2)?,
                path: row.get(3)?,
                media_type: row.get(4)?,
                bytes: count(row, 5)?,
                digest: row.get(6)?,
                loaded_at: row.get(7)?,
            },
        ))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
