//! Committing: the record is created if absent, and whoever creates it publishes from it.
//!
//! On the embedded engine record, documents, publications, marker and acknowledgement are one
//! transaction. On servers they are a sequence in which every prefix is safe: the fence of a step without
//! a call (`effects`), record and objects as one, publications, marker, acknowledgement; the last two off
//! the path of the step, for many at once (`settle`). A crash in
//! between leaves a record without its marker, and the redelivered message finds it, and goes on from there.
//!
//! Objects lie under keys that every attempt shares, so they are created with the record that counts, or
//! not at all (OR-2): what a losing attempt wrote is never taken for what was committed. A fence comes
//! before its record, so the record in it has its objects staged, for whoever puts it in place.

mod atomic;
mod sequence;

pub use atomic::{AtomicCommitter, EmbeddedCommitter, Joint, Transaction, TransactionalStore};
pub use sequence::SequentialCommitter;

use crate::Error;
use agentfleet_broker::{Delivery, Durability, Outgoing};
use agentfleet_schema::keys;
use agentfleet_schema::records::{Publication, StepRecord};
use agentfleet_schema::topics::Topic;
use async_trait::async_trait;
use serde::Deserialize;

/// What is committed as one.
#[derive(Clone, Debug)]
pub struct StepCommit {
    /// The commit point: created if absent. A JSON object.
    pub record: (String, Vec<u8>),
    /// The attempt's nonce, as it stands in the record.
    pub nonce: String,
    /// What the record refers to, there before anything is published.
    pub objects: Vec<(String, Vec<u8>)>,
    pub publications: Vec<Publication>,
    /// Written after the publications, before the acknowledgement.
    pub marker: String,
    /// Set where the step must not have a call, to the key of its intent: then no attempt makes one once this
    /// is committed.
    pub without_call: Option<String>,
}

/// Who committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// This commit; its delivery is acknowledged, or will be within milliseconds.
    Won,
    /// Somebody else's record was there; nothing was published, the delivery is still open.
    Lost,
    /// Nobody: another attempt makes a call, and this commit is one without.
    Called,
}

/// A record somebody committed, whose publications may not be out.
#[derive(Clone, Debug)]
pub struct Adoption {
    pub record_key: String,
    pub publications: Vec<Publication>,
    pub marker: String,
}

impl Adoption {
    /// Of a step.
    pub fn of(record: StepRecord) -> Self {
        Self {
            record_key: keys::outcome(&record.session, record.step),
            marker: keys::published(&record.session, record.step),
            publications: record.publications,
        }
    }
}

/// Makes a step's effects one thing.
#[async_trait]
pub trait Committer: Send + Sync + 'static {
    async fn commit(
        &self,
        commit: StepCommit,
        delivery: Option<&Delivery>,
    ) -> Result<Committed, Error>;

    /// Publishes what a record says, marks it, and acknowledges: for whoever finds a record
    /// without its marker.
    async fn adopt(&self, adoption: Adoption, delivery: Option<&Delivery>) -> Result<(), Error>;

    /// Waits until every delivery that was committed with is acknowledged: for whoever stops receiving.
    async fn flush(&self) {}
}

/// A publication as the broker takes it.
pub fn outgoing(publication: Publication) -> Outgoing {
    Outgoing {
        topic: Topic::named(publication.topic),
        payload: publication.body.into_bytes(),
        properties: publication.properties,
        deliver_at: publication.deliver_at,
        durability: Durability::Durable,
    }
}

/// What a record publishes, without what no broker takes: it could only be tried for ever, and what
/// comes after it would never be published. No commit makes such a record.
fn publishable(publications: Vec<Publication>) -> Vec<Outgoing> {
    let mut messages: Vec<Outgoing> = publications.into_iter().map(outgoing).collect();
    messages.retain(|message| match message.check() {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "a message of a record cannot be published, and is left out");
            false
        }
    });
    messages
}

/// What a record says beside what it is: key and text of each object that comes with it. Every object
/// of a step is text.
#[derive(Deserialize)]
struct WithStaged {
    #[serde(default)]
    staged: Vec<(String, String)>,
}

/// The objects that come with the record at a key, with their own keys.
pub fn staged(key: &str, record: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let record: WithStaged = serde_json::from_slice(record).map_err(|error| Error::Unreadable {
        key: key.to_owned(),
        reason: error.to_string(),
    })?;
    let objects = record.staged.into_iter();
    Ok(objects
        .map(|(key, text)| (key, text.into_bytes()))
        .collect())
}
