//! Committing in one transaction, where documents and queue lie in one store. The simulator runs this
//! committer over a store of its own.

use super::{Adoption, Committed, Committer, StepCommit, outgoing, publishable, staged};
use crate::Error;
use crate::effects;
use agentfleet_broker::{Delivery, EmbeddedBroker, Outgoing, Parcel};
use agentfleet_documents::{Created, Documents as _, EmbeddedDocuments};
use agentfleet_schema::records::IntentRecord;
use agentfleet_storage::{self as storage, Database, Durability, Packed, Unit};
use async_trait::async_trait;
use std::sync::Arc;

/// A store of documents and messages whose transactions change both.
#[async_trait]
pub trait TransactionalStore: Clone + Send + Sync + 'static {
    /// A document as the store takes it.
    type Body: Send + 'static;
    /// A message as the store takes it.
    type Message: Send + 'static;

    fn body(&self, bytes: Vec<u8>) -> Self::Body;

    /// Refuses what no transaction could take.
    fn message(&self, message: Outgoing) -> Result<Self::Message, Error>;

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error>;

    /// Runs `act` in one transaction; `key` names what the transaction is about.
    async fn transact<T, F>(&self, key: &str, act: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Joint<'_, Self::Body, Self::Message>) -> Result<T, storage::Error>
            + Send
            + 'static;
}

/// An open transaction.
pub trait Transaction {
    type Body;
    type Message;

    fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, storage::Error>;
    fn create(&mut self, key: &str, body: &Self::Body) -> Result<Created, storage::Error>;
    fn publish(&mut self, messages: &[Self::Message]) -> Result<(), storage::Error>;
    fn acknowledge(&mut self, delivery: &Delivery) -> Result<(), storage::Error>;
}

/// An open transaction of any store.
pub type Joint<'t, Body, Message> = dyn Transaction<Body = Body, Message = Message> + 't;

/// Commits a step in one transaction.
#[derive(Clone, Debug)]
pub struct AtomicCommitter<S> {
    store: S,
}

impl<S: TransactionalStore> AtomicCommitter<S> {
    pub fn over(store: S) -> Self {
        Self { store }
    }

    fn bodies(&self, objects: Vec<(String, Vec<u8>)>) -> Vec<(String, S::Body)> {
        objects
            .into_iter()
            .map(|(key, body)| (key, self.store.body(body)))
            .collect()
    }

    fn messages(&self, messages: Vec<Outgoing>) -> Result<Vec<S::Message>, Error> {
        let messages = messages.into_iter();
        messages
            .map(|message| self.store.message(message))
            .collect()
    }
}

#[async_trait]
impl<S: TransactionalStore> Committer for AtomicCommitter<S> {
    async fn commit(
        &self,
        commit: StepCommit,
        delivery: Option<&Delivery>,
    ) -> Result<Committed, Error> {
        // Packed before the transaction begins: all transactions share one thread.
        let (key, record) = commit.record;
        let about = key.clone();
        let record = self.store.body(record);
        let objects = self.bodies(commit.objects);
        let messages = self.messages(commit.publications.into_iter().map(outgoing).collect())?;
        let marker = (commit.marker, self.store.body(Vec::new()));
        let nonce = commit.nonce;
        let fence = commit.without_call.map(|place| {
            let fence = self.store.body(effects::fence(&nonce, None));
            (place, fence)
        });
        let (store, delivery) = (self.store.clone(), delivery.cloned());
        self.store
            .transact(&about, move |transaction| {
                if let Some((place, _)) = &fence
                    && let Some(there) = transaction.get(place)?
                {
                    let there = intent(&there);
                    if !there.fence {
                        return Ok(Committed::Called);
                    }
                    // It came from servers, and its record may not have.
                    if let Some(theirs) = there.record {
                        transaction.create(&key, &store.body(theirs.into_bytes()))?;
                    }
                }
                if transaction.create(&key, &record)? == Created::Exists {
                    return Ok(Committed::Lost);
                }
                if let Some((place, fence)) = &fence {
                    transaction.create(place, fence)?;
                }
                for (key, body) in objects.iter().chain([&marker]) {
                    transaction.create(key, body)?;
                }
                transaction.publish(&messages)?;
                if let Some(delivery) = &delivery {
                    transaction.acknowledge(delivery)?;
                }
                Ok(Committed::Won)
            })
            .await
    }

    async fn adopt(&self, adoption: Adoption, delivery: Option<&Delivery>) -> Result<(), Error> {
        let Adoption {
            record_key,
            publications,
            marker,
        } = adoption;
        // Of a record that came from servers in its fence: its objects may be in it only.
        let record = self.store.get(&record_key).await?;
        let objects = record.map(|record| staged(&record_key, &record));
        let objects = self.bodies(objects.transpose()?.unwrap_or_default());
        let messages = self.messages(publishable(publications))?;
        let marked = self.store.body(Vec::new());
        let delivery = delivery.cloned();
        self.store
            .transact(&marker.clone(), move |transaction| {
                for (key, body) in &objects {
                    transaction.create(key, body)?;
                }
                if transaction.create(&marker, &marked)? == Created::New {
                    transaction.publish(&messages)?;
                }
                if let Some(delivery) = &delivery {
                    transaction.acknowledge(delivery)?;
                }
                Ok(())
            })
            .await
    }
}

/// What stands where a call would. What cannot be read may be a call.
fn intent(body: &[u8]) -> IntentRecord {
    serde_json::from_slice(body).unwrap_or_default()
}

/// Commits in the embedded database.
pub type EmbeddedCommitter = AtomicCommitter<EmbeddedStore>;

impl EmbeddedCommitter {
    /// All three must be of the same data directory.
    pub fn new(database: Database, broker: EmbeddedBroker, documents: EmbeddedDocuments) -> Self {
        Self::over(EmbeddedStore {
            database,
            broker,
            documents,
        })
    }
}

/// The embedded database with the parts that lie in it.
#[derive(Clone, Debug)]
pub struct EmbeddedStore {
    database: Database,
    broker: EmbeddedBroker,
    documents: EmbeddedDocuments,
}

#[async_trait]
impl TransactionalStore for EmbeddedStore {
    type Body = Packed;
    type Message = Parcel;

    fn body(&self, bytes: Vec<u8>) -> Packed {
        Packed::of(&bytes)
    }

    fn message(&self, message: Outgoing) -> Result<Parcel, Error> {
        Ok(Parcel::of(message)?)
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        Ok(self.documents.get(key).await?)
    }

    async fn transact<T, F>(&self, _: &str, act: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Joint<'_, Packed, Parcel>) -> Result<T, storage::Error> + Send + 'static,
    {
        let (broker, documents) = (self.broker.clone(), self.documents.clone());
        let done = self.database.write(Durability::Durable, move |unit| {
            act(&mut EmbeddedTransaction {
                unit,
                broker: &broker,
                documents: &documents,
            })
        });
        Ok(done.await?)
    }
}

struct EmbeddedTransaction<'a, 't> {
    unit: &'a mut Unit<'t>,
    broker: &'a EmbeddedBroker,
    documents: &'a EmbeddedDocuments,
}

impl Transaction for EmbeddedTransaction<'_, '_> {
    type Body = Packed;
    type Message = Parcel;

    fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, storage::Error> {
        self.documents.get_in(self.unit, key)
    }

    fn create(&mut self, key: &str, body: &Packed) -> Result<Created, storage::Error> {
        self.documents.create_in(self.unit, key, body)
    }

    fn publish(&mut self, messages: &[Parcel]) -> Result<(), storage::Error> {
        self.broker.publish_in(self.unit, messages)
    }

    fn acknowledge(&mut self, delivery: &Delivery) -> Result<(), storage::Error> {
        self.broker.ack_in(self.unit, delivery)
    }
}
