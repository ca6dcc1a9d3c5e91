//! Loading into the shared library: versions are stored part by part, and then named in the log, some
//! at a time. What was not named when a load is cut off is nobody's, and is swept away later.

use super::catalogue;
use super::log::{self, Change, Put};
use super::version::{Header, PART, Part, weight};
use super::{Expected, Shared};
use crate::Error;
use crate::graph_key;
use crate::load::Target;
use crate::passage::Passage;
use crate::store::NewSource;
use agentfleet_documents::{Created, Documents};
use agentfleet_graph::EraseBy;
use agentfleet_schema::{Millis, keys};
use agentfleet_storage::Durability;
use async_trait::async_trait;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Parts on their way at once.
const AT_ONCE: usize = 16;
/// Documents named by one entry of the log.
const NAMED: usize = 200;
/// A complete document is named at the latest when the part of another is stored after so long.
const WAITS: Millis = 30 * 1000;
/// A load that stood still for so long gives up what it has not named. Less than the time after which
/// that may be swept away, by hours.
const STOOD_STILL: Millis = 12 * 60 * 60 * 1000;

/// A load into one collection.
pub(crate) struct Upload {
    shared: Arc<Shared>,
    collection: String,
    epoch: u64,
    open: Option<Draft>,
    storing: JoinSet<Result<(), Error>>,
    /// Documents that are complete, or will be when all is stored, and are not named.
    pending: Vec<Put>,
    /// When the first of them was stored.
    since: Option<Millis>,
    loaded: usize,
    replaced: usize,
}

/// A version being stored.
struct Draft {
    source: NewSource,
    version: String,
    /// Parts stored so far.
    parts: u32,
    passages: Vec<Passage>,
    weight: usize,
    statements: bool,
}

impl Upload {
    /// `shared` must have been brought up to date for the collection.
    pub(crate) async fn new(shared: Arc<Shared>, collection: &str) -> Result<Self, Error> {
        let epoch = shared.epoch(collection).await?;
        Ok(Self {
            shared,
            collection: collection.to_owned(),
            epoch,
            open: None,
            storing: JoinSet::new(),
            pending: Vec::new(),
            since: None,
            loaded: 0,
            replaced: 0,
        })
    }

    pub(crate) async fn begin_as(
        &mut self,
        source: NewSource,
        version: String,
        statements: bool,
    ) -> Result<Option<String>, Error> {
        let key = statements.then(|| graph_key(&version));
        if statements {
            let begun = keys::library_begun(&self.collection, self.epoch, &version);
            self.shared.documents.create(&begun, Vec::new()).await?;
        }
        self.open = Some(Draft {
            source,
            version,
            parts: 0,
            passages: Vec::new(),
            weight: 0,
            statements,
        });
        Ok(key)
    }

    /// Names what is complete: from here on it is in the library.
    pub(crate) async fn commit(&mut self) -> Result<(), Error> {
        self.stored().await?;
        if self.pending.is_empty() {
            return Ok(());
        }
        let stood = self.since.take();
        let now = self.shared.database.clock().now();
        if stood.is_some_and(|since| now - since > STOOD_STILL) {
            return Err(Error::Stalled);
        }
        let pending = std::mem::take(&mut self.pending);
        let documents: Vec<String> = pending.iter().map(|put| put.document.clone()).collect();
        let changes = pending.iter().cloned().map(Change::Put).collect();
        let expected = Expected {
            collection: self.collection.clone(),
            epoch: self.epoch,
            documents: documents.clone(),
        };
        match self.shared.append(changes, Some(expected)).await {
            Ok(held) => {
                self.replaced += held;
                self.loaded += documents.len().saturating_sub(held);
            }
            Err(error) => {
                if matches!(error, Error::Cleared(_)) {
                    self.shared.discard(pending).await?;
                }
                return Err(error);
            }
        }
        // The log says what counts: what cannot be cleared away now is swept away later.
        let discarded = self
            .shared
            .discard_replaced(&self.collection, documents)
            .await;
        if let Err(error) = discarded {
            tracing::warn!(%error, "replaced versions of documents are still in the store");
        }
        Ok(())
    }

    fn put(&self, draft: Draft) -> Put {
        Put {
            collection: self.collection.clone(),
            epoch: self.epoch,
            document: log::document(&draft.source.uri),
            version: draft.version,
            parts: draft.parts,
            statements: draft.statements,
        }
    }

    async fn store(&mut self, draft: &mut Draft, header: Option<Header>) -> Result<(), Error> {
        let key = keys::library_part(&self.collection, self.epoch, &draft.version, draft.parts);
        draft.parts += 1;
        draft.weight = 0;
        let part = Part {
            header,
            passages: std::mem::take(&mut draft.passages),
        };
        while self.storing.len() >= AT_ONCE {
            self.one_stored().await?;
        }
        // What is complete does not wait for a document that takes long.
        let now = self.shared.database.clock().now();
        if self.since.is_some_and(|since| now - since > WAITS) {
            self.commit().await?;
        }
        let documents = Arc::clone(&self.shared.documents);
        self.storing
            .spawn(async move { create(&*documents, key, &part).await });
        Ok(())
    }

    /// Waits until everything is stored.
    async fn stored(&mut self) -> Result<(), Error> {
        while !self.storing.is_empty() {
            self.one_stored().await?;
        }
        Ok(())
    }

    async fn one_stored(&mut self) -> Result<(), Error> {
        match self.storing.join_next().await {
            Some(Ok(stored)) => stored,
            Some(Err(_)) => Err(Error::Stopped),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl Target for Upload {
    async fn begin(
        &mut self,
        source: NewSource,
        has_triples: bool,
    ) -> Result<Option<String>, Error> {
        let version = uuid::Uuid::new_v4().simple().to_string();
        self.begin_as(source, version, has_triples).await
    }

    async fn passages(&mut self, passages: Vec<Passage>) -> Result<(), Error> {
        let Some(mut draft) = self.open.take() else {
            return Ok(());
        };
        for passage in passages {
            draft.weight += weight(&passage);
            draft.passages.push(passage);
            if draft.weight >= PART {
                self.store(&mut draft, None).await?;
            }
        }
        self.open = Some(draft);
        Ok(())
    }

    async fn finish(&mut self, triples: u64) -> Result<(), Error> {
        let Some(mut draft) = self.open.take() else {
            return Ok(());
        };
        let now = self.shared.database.clock().now();
        draft.source.loaded_at.get_or_insert(now);
        let source = draft.source.clone();
        let header = Header { source, triples };
        self.store(&mut draft, Some(header)).await?;
        self.since.get_or_insert(now);
        self.pending.push(self.put(draft));
        if self.pending.len() >= NAMED {
            self.commit().await?;
        }
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), Error> {
        let Some(draft) = self.open.take() else {
            return Ok(());
        };
        if draft.parts > 0 || draft.statements {
            self.stored().await?;
            let begun = self.put(draft);
            self.shared.discard(vec![begun]).await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<(usize, usize), Error> {
        self.commit().await?;
        Ok((self.loaded, self.replaced))
    }
}

async fn create(documents: &dyn Documents, key: String, part: &Part) -> Result<(), Error> {
    let body = log::encode(&key, part)?;
    if documents.create(&key, body.clone()).await? == Created::New {
        return Ok(());
    }
    // It is ours where the reply was lost, or where a move is repeated.
    match documents.get(&key).await? {
        Some(there) if *there == *body => Ok(()),
        _ => Err(Error::Shared {
            key,
            reason: "it is there already, and is another".to_owned(),
        }),
    }
}

impl Shared {
    /// Deletes what the store and the graph hold of versions that do not count any more.
    pub(super) async fn discard(&self, versions: Vec<Put>) -> Result<(), Error> {
        let stating = versions.iter().filter(|version| version.statements);
        self.take_back(stating.map(|version| version.version.as_str()))
            .await?;
        let mut objects = Vec::new();
        for put in &versions {
            objects.extend((0..put.parts).map(|part| put.key(part)));
            // Last: as long as it is there, the rest is found.
            if put.statements {
                let begun = keys::library_begun(&put.collection, put.epoch, &put.version);
                objects.push(begun);
            }
        }
        for some in objects.chunks(500) {
            self.documents.delete(some).await?;
        }
        let names: Vec<String> = versions.into_iter().map(|put| put.version).collect();
        self.database
            .write(Durability::Process, move |unit| {
                catalogue::discarded(unit, &names)
            })
            .await?;
        Ok(())
    }

    /// Takes the statements of versions out of the graph.
    pub(super) async fn take_back(
        &self,
        versions: impl Iterator<Item = &str> + Send,
    ) -> Result<(), Error> {
        let by: Vec<EraseBy> = versions
            .map(|version| EraseBy::Conversation(graph_key(version)))
            .collect();
        if !by.is_empty() {
            self.graph.erase_all(by).await?;
        }
        Ok(())
    }

    /// Deletes what the store holds of these documents beside their present versions.
    pub(super) async fn discard_replaced(
        &self,
        collection: &str,
        documents: Vec<String>,
    ) -> Result<(), Error> {
        let collection = collection.to_owned();
        let replaced = self
            .database
            .read(move |connection| catalogue::replaced(connection, &collection, &documents))
            .await?;
        if replaced.is_empty() {
            return Ok(());
        }
        self.discard(replaced).await
    }

    /// Removes documents of a collection, by their URIs; says how many there were.
    pub(crate) async fn remove(&self, collection: &str, uris: &[String]) -> Result<usize, Error> {
        let documents: Vec<String> = uris.iter().map(|uri| log::document(uri)).collect();
        self.refresh(super::Duration::ZERO).await?;
        let (name, wanted) = (collection.to_owned(), documents.clone());
        let held = self
            .database
            .read(move |connection| catalogue::count_held(connection, &name, &wanted))
            .await?;
        if held > 0 {
            let drop = |document: &String| Change::Drop {
                collection: collection.to_owned(),
                document: document.clone(),
            };
            self.append(documents.iter().map(drop).collect(), None)
                .await?;
        }
        // Also where an earlier removal was cut off.
        self.discard_replaced(collection, documents).await?;
        Ok(held)
    }
}
