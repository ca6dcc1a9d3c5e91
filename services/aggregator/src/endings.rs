//! Ending a run from outside: `closed` is written, then the first missing step of the root is
//! created as its end. Only a step record can end a dialog (OR-3), so whoever loses that race goes
//! on to the next step, and finds either an end or another missing step.

use crate::Parts;
use crate::error::Error;
use crate::fan_in::decode;
use agentfleet_core::commit::{Assembled, Commit, Streamed, assemble};
use agentfleet_core::error::Code;
use agentfleet_core::{Finish, Outcome, error, say};
use agentfleet_runtime::{Adoption, Committed, StepCommit, effects, telemetry};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    ClosedRecord, FanOutRecord, OutcomeKind, Publication, StepRecord, Termination, Worked,
};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, Digest, SessionId, keys};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What came of an attempt to end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This call ended it.
    Now,
    /// It had ended already, as the record says.
    Before(OutcomeKind),
    /// Nothing is known of it. It is closed all the same, should it ever come.
    Unknown,
}

/// Ends runs.
#[derive(Clone, Debug)]
pub struct Endings {
    parts: Parts,
}

/// The request a step would have worked, with the properties of its message.
struct Asked {
    request: AgentRequest,
    properties: BTreeMap<String, String>,
}

impl Endings {
    pub fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// Ends the run of a root session, whatever it is doing.
    pub async fn end(
        &self,
        root: &SessionId,
        termination: Termination,
        cause: &str,
        by: &str,
    ) -> Result<Ended, Error> {
        let documents = &*self.parts.documents;
        if self.is_erased(root).await? {
            return Ok(Ended::Unknown);
        }
        let mut step = 0;
        let mut asked: Option<Asked> = None;
        let mut closed = false;
        loop {
            let outcome_key = keys::outcome(root, step);
            if let Some(body) = documents.get(&outcome_key).await? {
                let record: StepRecord = decode(&outcome_key, &body)?;
                if record.outcome.is_terminal() {
                    let kind = record.outcome;
                    self.publish_if_unpublished(record).await?;
                    return Ok(Ended::Before(kind));
                }
                if record.outcome == OutcomeKind::FanOut {
                    // Its fan-out lies where it belongs once it is published.
                    self.publish_if_unpublished(record.clone()).await?;
                }
                asked = self.asked_next(&record).await?;
                step += 1;
                continue;
            }
            if !closed {
                // Written before the end, so that nothing starts beside it; and not written for a
                // run that has ended by itself.
                let record = ClosedRecord {
                    cause: cause.to_owned(),
                    at: self.parts.host.now(),
                    by: by.to_owned(),
                };
                let body = serde_json::to_vec(&record).unwrap_or_default();
                documents.ensure(&keys::closed(root), body).await?;
                closed = true;
            }
            if step == 0 {
                // Not accepted yet, or never asked: when it comes, its worker sees `closed`.
                return Ok(Ended::Unknown);
            }
            let reason = match termination {
                Termination::Timeout => "the time of the run is used up".to_owned(),
                _ if by.is_empty() => "the run was cancelled".to_owned(),
                _ => format!("the run was cancelled by {by}"),
            };
            let finish = say::cancelled(&reason, termination);
            let ended = self.conclude(root, step, asked.take(), finish).await?;
            if ended {
                return Ok(Ended::Now);
            }
            // Lost the race: look at what won.
        }
    }

    /// Whether the tree of a root was erased: nothing of it may come back.
    pub(crate) async fn is_erased(&self, root: &SessionId) -> Result<bool, Error> {
        let tombstone = self.parts.documents.get(&keys::tombstone(root)).await?;
        Ok(tombstone.is_some())
    }

    /// Ends one step of one session as failed, or finds that it is over: the undertaker's part.
    pub(crate) async fn fail(
        &self,
        request: AgentRequest,
        properties: BTreeMap<String, String>,
        reason: &str,
    ) -> Result<(), Error> {
        let (session, step) = (request.session_id.clone(), request.step);
        let key = keys::outcome(&session, step);
        loop {
            if let Some(body) = self.parts.documents.get(&key).await? {
                return self.publish_if_unpublished(decode(&key, &body)?).await;
            }
            let (code, why) = Code::of_refusal(reason);
            let message = if code == Code::DeadLetter {
                format!("no worker could work this step: {why}")
            } else {
                why.to_owned()
            };
            let error = error::body(code, message, "`agentfleet dlq list` shows the message");
            let finish = say::failed(error, Termination::DeadLettered, 0);
            let asked = Asked {
                request: request.clone(),
                properties: properties.clone(),
            };
            if self.conclude(&session, step, Some(asked), finish).await? {
                return Ok(());
            }
        }
    }

    /// Creates a step as the end of its session; `false` if somebody else created it.
    async fn conclude(
        &self,
        session: &SessionId,
        step: u32,
        asked: Option<Asked>,
        finish: Finish,
    ) -> Result<bool, Error> {
        let Asked {
            mut request,
            mut properties,
        } = asked.unwrap_or_else(|| Asked {
            request: AgentRequest::default(),
            properties: BTreeMap::new(),
        });
        request.session_id = session.clone();
        request.step = step;
        if request.control.root.is_empty() {
            request.control.root = session.clone();
        }
        properties.remove(property::STEP);
        let by = match &finish.outcome {
            Outcome::Fail { .. } => "dead-letter",
            Outcome::Cancelled(_)
            | Outcome::Continue(_)
            | Outcome::FanOut(_)
            | Outcome::Answer(_) => "cancelled",
        };
        let worked = Worked {
            request: serde_json::to_string(&request).ok(),
            responses: String::new(),
            ended: say::from_outside(by, &finish),
            ..Worked::default()
        };
        let pattern = request.pattern.clone();
        // What is not allowed has been refused before, or is refused now: by the fleet's own topic.
        let responses = self.parts.reply_topics.of(&properties);
        let responses = responses.unwrap_or(topics::AGENT_RESPONSE);
        let snapshot = Arc::new(Snapshot::default());
        let nonce = self.parts.host.nonce();
        let now = self.parts.host.now();
        let Assembled {
            mut record,
            documents,
            ..
        } = assemble(&Commit {
            config_version: request.control.config_version.unwrap_or_default(),
            request_digest: Digest::default(),
            properties,
            nonce: nonce.clone(),
            attempt: 1,
            snapshot,
            started_at: now,
            now,
            finish,
            calls: effects::started(&*self.parts.documents, session, step).await?,
            streamed: Streamed::default(),
            worked: Some(Box::new(Worked {
                responses: if responses == topics::AGENT_RESPONSE {
                    String::new()
                } else {
                    responses.as_str().to_owned()
                },
                ..worked
            })),
            responses,
            request,
        });
        let body = serde_json::to_vec(&record).unwrap_or_default();
        let publications = std::mem::take(&mut record.publications);
        let properties = publications.first().map(|first| first.properties.clone());
        let committed = self
            .parts
            .committer
            .commit(
                StepCommit {
                    record: (keys::outcome(session, step), body),
                    nonce,
                    objects: documents
                        .into_iter()
                        .map(|(uri, text)| (keys::document(&uri), text.into_bytes()))
                        .collect(),
                    publications,
                    marker: keys::published(session, step),
                },
                None,
            )
            .await?;
        if committed == Committed::Won {
            let properties = properties.unwrap_or_default();
            telemetry::step(&*self.parts.documents, &record, &pattern, &properties).await;
        }
        Ok(committed == Committed::Won)
    }

    async fn publish_if_unpublished(&self, record: StepRecord) -> Result<(), Error> {
        let marker = keys::published(&record.session, record.step);
        if self.parts.documents.get(&marker).await?.is_none() {
            self.parts
                .committer
                .adopt(Adoption::of(record), None)
                .await?;
        }
        Ok(())
    }

    /// The request that a committed step released, or will release.
    async fn asked_next(&self, record: &StepRecord) -> Result<Option<Asked>, Error> {
        let own = |p: &&Publication| {
            p.topic == topics::AGENT_REQUEST.as_str()
                && p.properties.get(property::SESSION).map(String::as_str)
                    == Some(record.session.as_str())
        };
        let next = if record.outcome == OutcomeKind::FanOut {
            let key = keys::fan_out(&record.session, record.step);
            match self.parts.documents.get(&key).await? {
                Some(body) => Some(decode::<FanOutRecord>(&key, &body)?.synthesis),
                None => None,
            }
        } else {
            record.publications.iter().find(own).cloned()
        };
        let Some(next) = next else { return Ok(None) };
        let request = serde_json::from_str(&next.body).map_err(|error| Error::Unreadable {
            key: keys::outcome(&record.session, record.step),
            reason: error.to_string(),
        })?;
        Ok(Some(Asked {
            request,
            properties: next.properties,
        }))
    }
}
