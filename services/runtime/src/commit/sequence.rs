//! Committing as a sequence, over any broker and any documents store.

use super::{Adoption, Committed, Committer, StepCommit, outgoing, publishable, staged};
use crate::Error;
use crate::effects::{self, Fenced};
use crate::settle::Settler;
use agentfleet_broker::{Broker, Delivery, Outgoing};
use agentfleet_documents::Documents;
use agentfleet_schema::topics;
use async_trait::async_trait;
use std::borrow::Cow;
use std::sync::Arc;

/// A sequence over any broker and any documents store.
#[derive(Clone)]
pub struct SequentialCommitter {
    broker: Arc<dyn Broker>,
    documents: Arc<dyn Documents>,
    /// Marks and acknowledges, off the path of the step.
    settler: Option<Settler>,
}

impl std::fmt::Debug for SequentialCommitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SequentialCommitter")
            .finish_non_exhaustive()
    }
}

impl SequentialCommitter {
    pub fn new(broker: Arc<dyn Broker>, documents: Arc<dyn Documents>) -> Self {
        Self {
            broker,
            documents,
            settler: None,
        }
    }

    /// The same, which marks and acknowledges for many steps at once, in a task of its own.
    pub fn settling(broker: Arc<dyn Broker>, documents: Arc<dyn Documents>) -> Self {
        let settler = Settler::start(Arc::clone(&broker), Arc::clone(&documents));
        Self {
            settler: Some(settler),
            ..Self::new(broker, documents)
        }
    }
}

/// Whether a stored record carries this nonce.
fn is_own(record: &[u8], nonce: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Nonce {
        #[serde(default)]
        nonce: String,
    }
    serde_json::from_slice::<Nonce>(record).is_ok_and(|there| there.nonce == nonce)
}

#[async_trait]
impl Committer for SequentialCommitter {
    async fn commit(
        &self,
        commit: StepCommit,
        delivery: Option<&Delivery>,
    ) -> Result<Committed, Error> {
        let StepCommit {
            record: (record_key, record),
            nonce,
            objects,
            publications,
            marker,
            without_call,
        } = commit;
        let messages: Vec<Outgoing> = publications.into_iter().map(outgoing).collect();
        // Before the record is there: afterwards a refusal could only be tried for ever.
        messages.iter().try_for_each(Outgoing::check)?;
        if let Some(place) = without_call {
            let staged = with_staged(record.clone(), &objects);
            match effects::put(&*self.documents, &place, &nonce, &staged).await? {
                Fenced::Own => {}
                Fenced::Called => return Ok(Committed::Called),
                Fenced::Ended(theirs) => {
                    if let Some(theirs) = theirs {
                        self.documents.ensure(&record_key, theirs.into()).await?;
                    }
                    return Ok(Committed::Lost);
                }
            }
        }
        let there = self
            .documents
            .create_with(&record_key, record, &objects)
            .await?;
        if let Some(there) = there {
            if !is_own(&there, &nonce) {
                return Ok(Committed::Lost);
            }
            // Put in place by who found the fence.
            self.documents.ensure_all(&objects).await?;
        }
        self.publish(messages, marker, delivery).await?;
        Ok(Committed::Won)
    }

    async fn adopt(&self, adoption: Adoption, delivery: Option<&Delivery>) -> Result<(), Error> {
        let key = adoption.record_key;
        if let Some(record) = self.documents.get(&key).await? {
            // Those that came in a fence. All who do this have read the record, and write the same.
            self.documents.ensure_all(&staged(&key, &record)?).await?;
        }
        let messages = publishable(adoption.publications);
        self.publish(messages, adoption.marker, delivery).await
    }

    async fn flush(&self) {
        if let Some(settler) = &self.settler {
            settler.flush().await;
        }
    }
}

impl SequentialCommitter {
    async fn publish(
        &self,
        mut messages: Vec<Outgoing>,
        marker: String,
        delivery: Option<&Delivery>,
    ) -> Result<(), Error> {
        // What goes on with the run comes first. Within each topic the order stays.
        messages.sort_by_key(|message| message.topic != topics::AGENT_REQUEST);
        if let Err(error) = self.broker.publish(messages.clone()).await {
            // A topic that a caller named may not be there, or not be ours to write to. The run must
            // not hang on it: what would have gone there goes to the fleet's own readers.
            let is_callers = |message: &Outgoing| !topics::ALL.contains(&message.topic);
            if error.retry().is_some() || !messages.iter().any(is_callers) {
                return Err(error.into());
            }
            tracing::warn!(%error, "the topic named for the responses cannot be published to");
            let messages = messages.into_iter().map(|mut message| {
                if is_callers(&message) {
                    message.topic = topics::AGENT_RESPONSE;
                }
                message
            });
            self.broker.publish(messages.collect()).await?;
        }
        if let (Some(delivery), Some(settler)) = (delivery, &self.settler) {
            settler.settle(marker, delivery.clone()).await;
            return Ok(());
        }
        self.documents.create(&marker, Vec::new()).await?;
        if let Some(delivery) = delivery {
            self.broker.ack(delivery).await?;
        }
        Ok(())
    }
}

/// Adds the objects to a record, which is a JSON object, without reading it again.
fn with_staged(mut record: Vec<u8>, objects: &[(String, Vec<u8>)]) -> Vec<u8> {
    if objects.is_empty() {
        return record;
    }
    let staged: Vec<(&str, Cow<'_, str>)> = objects
        .iter()
        .map(|(key, body)| (key.as_str(), String::from_utf8_lossy(body)))
        .collect();
    // Plain data: writing it as JSON cannot fail.
    let staged = serde_json::to_string(&staged).unwrap_or_default();
    let end = record.iter().rposition(|byte| *byte == b'}');
    record.truncate(end.unwrap_or_default());
    let first = record.last().is_none_or(|byte| *byte == b'{');
    record.extend_from_slice(if first { b"" } else { b"," });
    record.extend_from_slice(format!("\"staged\":{staged}}}").as_bytes());
    record
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_broker::{Consumer, Error as BrokerError, Retained, Subscription, Waiting};
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_schema::records::Publication;
    use agentfleet_schema::topics::Topic;
    use agentfleet_storage::Database;
    use std::sync::Mutex;
    use std::time::Duration;

    /// A broker without the topic that a caller named.
    #[derive(Default)]
    struct Without(&'static str, Mutex<Vec<String>>);

    #[async_trait]
    impl Broker for Without {
        async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), BrokerError> {
            for message in messages {
                if message.topic.as_str() == self.0 {
                    return Err(BrokerError::NoTopic {
                        topic: self.0.to_owned(),
                        reason: "no such namespace".to_owned(),
                    });
                }
                self.1.lock().unwrap().push(message.topic.to_string());
            }
            Ok(())
        }
        async fn subscribe(&self, _: Subscription) -> Result<Box<dyn Consumer>, BrokerError> {
            Err(BrokerError::Closed)
        }
        async fn ack(&self, _: &Delivery) -> Result<(), BrokerError> {
            Ok(())
        }
        async fn nack(&self, _: &Delivery, _: Duration) -> Result<(), BrokerError> {
            Ok(())
        }
        async fn dead_letter(&self, _: &Delivery, _: &str) -> Result<(), BrokerError> {
            Ok(())
        }
        async fn extend(&self, _: &Delivery) -> Result<(), BrokerError> {
            Ok(())
        }
        async fn read(
            &self,
            _: &Topic,
            _: &str,
            _: i64,
            _: usize,
        ) -> Result<Vec<Retained>, BrokerError> {
            Ok(Vec::new())
        }
        async fn mark(&self, _: &Topic) -> Result<i64, BrokerError> {
            Ok(0)
        }
        async fn waiting(&self) -> Result<Vec<Waiting>, BrokerError> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_record_carries_what_it_staged_and_is_otherwise_the_same() {
        let objects = [("documents/a".to_owned(), "say \"}\" 4".as_bytes().to_vec())];
        for record in ["{}", r#"{"nonce":"n","a":{"b":"}"}}"#, "{\"a\":1}\n"] {
            let plain: serde_json::Value = serde_json::from_str(record).unwrap();
            assert_eq!(with_staged(record.into(), &[]), record.as_bytes());
            let with = with_staged(record.into(), &objects);
            let mut read: serde_json::Value = serde_json::from_slice(&with).unwrap();
            let staged = read.as_object_mut().unwrap().remove("staged").unwrap();
            assert_eq!(staged, serde_json::json!([["documents/a", "say \"}\" 4"]]));
            assert_eq!(read, plain);
        }
    }

    #[tokio::test]
    async fn responses_that_reach_no_topic_go_to_the_fleets_own_and_the_run_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let documents = Arc::new(EmbeddedDocuments::open(&database).unwrap());
        let publication = |topic: &str| Publication {
            topic: topic.to_owned(),
            ..Publication::default()
        };
        for (missing, expected) in [
            (
                "nowhere",
                // What goes on with the run is the first.
                Some(["agent-request", "explainability", "agent-response"]),
            ),
            ("explainability", None),
        ] {
            let broker = Arc::new(Without(missing, Mutex::default()));
            let committer = SequentialCommitter::new(broker.clone(), documents.clone());
            let topics = ["explainability", "nowhere", "agent-request"];
            let committed = committer.commit(
                StepCommit {
                    record: (format!("{missing}/outcome"), b"{}".to_vec()),
                    nonce: String::new(),
                    objects: Vec::new(),
                    publications: topics.map(publication).to_vec(),
                    marker: format!("{missing}/published"),
                    without_call: None,
                },
                None,
            );
            let committed = committed.await.is_ok();
            let marker = documents
                .get(&format!("{missing}/published"))
                .await
                .unwrap();
            assert_eq!(
                (committed, marker.is_some()),
                (expected.is_some(), expected.is_some())
            );
            let published = broker.1.lock().unwrap();
            if let Some(expected) = expected {
                // What was published before the fault is there twice, as a repeat.
                assert!(published.ends_with(&expected.map(str::to_owned)));
            }
        }
    }
}
