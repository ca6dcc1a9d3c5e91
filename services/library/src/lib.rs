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
pub mod dossier;
mod error;
mod format;
mod guard;
mod held;
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

pub use error::Error;
pub use format::EXTENSIONS;
pub use held::{Collection, Document, Fetched};
pub use html::plain as html_text;
pub use load::{LoadOptions, LoadReport, OnProgress, Progress, Skipped};
pub use outline::shortened;
pub use rdf::{label_quality, local_name, one_value};
pub use search::{Description, Entity, Hit};
pub use shared::Standing;
pub use uri::{document_of_blank, is_blank};

use agentfleet_documents::Documents;
use agentfleet_graph::Graph;
use agentfleet_schema::CollectionName;
use agentfleet_storage::{Database, Durability, Error as StorageError};
use held::documents;
use rusqlite::Connection;
use shared::Shared;
use std::collections::HashMap;
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
        let closed = |_| StorageError::Closed;
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

    /// Waits until a read of the collection, or of all, sees what it must.
    async fn current(&self, collection: Option<&CollectionName>) -> Result<(), Error> {
        match &self.shared {
            Some(shared) => shared.current(collection.map(CollectionName::as_str)).await,
            None => Ok(()),
        }
    }

    /// Reads of a collection, once the index holds all that must be in the answer.
    async fn read<T: Send + 'static>(
        &self,
        collection: &CollectionName,
        read: impl FnOnce(&Connection, &str) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, Error> {
        self.current(Some(collection)).await?;
        let name = collection.as_str().to_owned();
        let found = self.database.read(move |tables| read(tables, &name));
        Ok(found.await?)
    }

    /// The passages that match `query` best.
    pub async fn search(
        &self,
        collection: &CollectionName,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Hit>, Error> {
        let query = query.to_owned();
        let found = move |tables: &_, name: &str| search::passages(tables, name, &query, limit);
        self.read(collection, found).await
    }

    /// The entities of RDF files whose names and literals match `query` best.
    pub async fn entities(
        &self,
        collection: &CollectionName,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Entity>, Error> {
        let query = query.to_owned();
        let found = move |tables: &_, name: &str| search::entities(tables, name, &query, limit);
        self.read(collection, found).await
    }

    /// What the entities of a collection are called, for those of `iris` that have a name.
    pub async fn labels(
        &self,
        collection: &CollectionName,
        iris: Vec<String>,
    ) -> Result<HashMap<String, String>, Error> {
        let found = move |tables: &_, name: &str| search::labels(tables, name, iris);
        self.read(collection, found).await
    }

    /// The documents of a collection that describe these entities.
    pub async fn descriptions(
        &self,
        collection: &CollectionName,
        entities: Vec<String>,
    ) -> Result<Vec<Description>, Error> {
        let found = move |tables: &_, name: &str| search::descriptions(tables, name, entities);
        self.read(collection, found).await
    }

    /// Up to `most` characters of a document's text, beginning after `from` of them.
    pub async fn fetch(
        &self,
        collection: &CollectionName,
        uri: &str,
        from: usize,
        most: usize,
    ) -> Result<Option<Fetched>, Error> {
        let uri = uri.to_owned();
        let found = move |tables: &_, name: &str| {
            let Some((source, document)) = documents(tables, name, Some(&uri), 1)?.pop() else {
                return Ok(None);
            };
            let window = opened::window(tables, source, from, most)?;
            let shown = window.text.chars().count();
            let before = from.min(window.at);
            let after = window.at - before - shown;
            Ok(Some(Fetched {
                document,
                text: window.text,
                before,
                after,
            }))
        };
        self.read(collection, found).await
    }

    /// The documents of a collection in the order of their paths, up to `limit`.
    pub async fn documents(
        &self,
        collection: &CollectionName,
        limit: usize,
    ) -> Result<Vec<Document>, Error> {
        let found = move |tables: &_, name: &str| documents(tables, name, None, limit);
        let found = self.read(collection, found).await?.into_iter();
        Ok(found.map(|(_, document)| document).collect())
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

    /// Removes the document with this URI, with its passages and statements, in whichever collection it
    /// is; says in which it was.
    pub async fn forget_document(&self, uri: &str) -> Result<Option<CollectionName>, Error> {
        let Some(collection) = self.holder(uri).await? else {
            return Ok(None);
        };
        let removed = match &self.shared {
            Some(shared) => {
                shared
                    .remove(collection.as_str(), &[uri.to_owned()])
                    .await?
            }
            None => {
                let hidden = self.hide(&collection, Some(uri.to_owned())).await?;
                self.clear().await?;
                hidden
            }
        };
        Ok((removed > 0).then_some(collection))
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
        store::clear_all(&self.database, Some(&*self.graph)).await
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
