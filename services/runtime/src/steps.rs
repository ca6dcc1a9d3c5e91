//! Committing a step, for workers and for who ends steps from outside.

use crate::{Committed, Committer, Error, StepCommit, telemetry};
use agentfleet_broker::Delivery;
use agentfleet_documents::Documents;
use agentfleet_schema::keys;
use agentfleet_schema::records::StepRecord;
use std::collections::BTreeMap;

/// A step that has ended.
#[derive(Clone, Debug)]
pub struct EndedStep<'a> {
    /// With everything it publishes.
    pub record: StepRecord,
    /// The record without that, as JSON.
    pub bare: Vec<u8>,
    /// Key and body of what the record refers to.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Whether it must not have a call: then no attempt makes one once this is committed.
    pub without_call: bool,
    pub pattern: &'a str,
    /// Of the message that asked for it, where that is known.
    pub properties: &'a BTreeMap<String, String>,
}

/// Whose record a step has now.
#[derive(Clone, Debug)]
pub enum StepCommitted {
    /// This one. What it publishes is out.
    Won(Box<StepRecord>),
    /// Somebody else's: it may not be published, and the delivery is open.
    Lost,
    /// Nobody's: another attempt makes a call, and this end is one without.
    Called,
}

/// Commits a step, and tells of it where it won.
pub async fn commit_step(
    documents: &dyn Documents,
    committer: &dyn Committer,
    step: EndedStep<'_>,
    delivery: Option<&Delivery>,
) -> Result<StepCommitted, Error> {
    let mut record = step.record;
    let body = StepRecord::stored(step.bare, &record.publications);
    let commit = StepCommit {
        record: (keys::outcome(&record.session, record.step), body),
        nonce: record.nonce.clone(),
        objects: step.objects,
        publications: std::mem::take(&mut record.publications),
        marker: keys::published(&record.session, record.step),
        without_call: (step.without_call).then(|| keys::intent(&record.session, record.step, 0)),
    };
    Ok(match committer.commit(commit, delivery).await? {
        Committed::Won => {
            telemetry::step(documents, &record, step.pattern, step.properties).await;
            StepCommitted::Won(Box::new(record))
        }
        Committed::Lost => StepCommitted::Lost,
        Committed::Called => StepCommitted::Called,
    })
}
