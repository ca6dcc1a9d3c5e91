//! Fan-in: completion triples in, verdict and synthesis request out.
//!
//! For every completion: insert its own triples (idempotent), read the fan-out record, count the
//! distinct completions of its correlation in the graph, and if the rule is met create the verdict
//! (FI-1, FI-2). Completions that come together are looked at together, which is the same. One that
//! comes without the properties of this fleet's messages is found by its correlation in the graph.

use crate::completion::{Of, Place, read};
use crate::siblings::Siblings;
use crate::{Error, Parts};
use agentfleet_broker::Delivery;
use agentfleet_core::fan_in::{Completion, decide};
use agentfleet_graph::Batch;
use agentfleet_runs::{Approvals, Endings};
use agentfleet_runtime::records::decode;
use agentfleet_runtime::{
    Adoption, BatchHandler, Committed, Disposition, StepCommit, erased, metrics, telemetry,
};
use agentfleet_schema::records::{FanInRecord, FanOutRecord, JoinCause, StepRecord};
use agentfleet_schema::vocabulary::{tg, xsd};
use agentfleet_schema::{Millis, SessionId, Term, Triple, keys, uris};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Fan-out records kept in memory. They never change, so a copy is as good as the record.
const REMEMBERED: usize = 256;
/// How long a completion that is not of this fleet's making is kept for a fan-out that the graph does
/// not know yet, and how often that is looked for.
const FOREIGN_WAIT: Millis = 60_000;
const FOREIGN_LOOK: Duration = Duration::from_secs(1);

/// The aggregator of completions.
#[derive(Clone, Debug)]
pub struct FanIn {
    parts: Parts,
    endings: Endings,
    siblings: Siblings,
    fan_outs: Arc<Mutex<HashMap<String, Arc<FanOutRecord>>>>,
}

#[async_trait]
impl BatchHandler for FanIn {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Disposition> {
        let mut dispositions: Vec<Option<Disposition>> = vec![None; deliveries.len()];
        let mut told = Vec::new();
        let mut places: BTreeMap<Place, Completed> = BTreeMap::new();
        let erased = match erased(&*self.parts.documents, deliveries).await {
            Ok(erased) => erased,
            Err(error) => {
                let error = Error::from(error);
                tracing::warn!(%error, "completions are put off");
                return vec![error.disposition(); deliveries.len()];
            }
        };
        for (at, delivery) in deliveries.iter().enumerate() {
            match read(delivery) {
                Ok((batch, _)) if erased.contains(&batch.root) => {
                    dispositions[at] = Some(Disposition::Ack);
                }
                Ok((batch, Of::Place(place))) => {
                    places.entry(place.clone()).or_default().add(at, &batch);
                    told.push((place, batch));
                }
                // The graph-writer writes it; it concerns no fan-out.
                Ok((_, Of::Foreign(named))) if named.is_empty() => {}
                Ok((batch, Of::Foreign(named))) => match self.siblings.places_of(&named).await {
                    Ok(found) if found.is_empty() => {
                        let since = self.parts.host.now() - delivery.published_at;
                        let again = (since < FOREIGN_WAIT).then_some(FOREIGN_LOOK);
                        dispositions[at] = again.map(Disposition::RetryAfter);
                    }
                    Ok(found) => {
                        for place in found {
                            places.entry(place.clone()).or_default().add(at, &batch);
                            told.push((place, batch.clone()));
                        }
                    }
                    Err(error) => dispositions[at] = Some(error.disposition()),
                },
                Err(reason) => {
                    // Not ours, or damaged: the graph-writer's copy is dead-lettered if it is.
                    tracing::warn!(message = %delivery.message_id, %reason, "no completion");
                    dispositions[at] = Some(Disposition::Ack);
                }
            }
        }
        if let Err(error) = self.siblings.tell(told).await {
            tracing::warn!(%error, "completions could not be written; they come again");
            return deliveries.iter().map(|_| error.disposition()).collect();
        }
        for (place, completed) in places {
            if let Err(error) = self.evaluate(&place, &completed.sessions).await {
                tracing::warn!(session = %place.0, step = place.1, %error, "fan-in put off");
                for at in completed.deliveries {
                    dispositions[at] = Some(error.disposition());
                }
            }
        }
        dispositions
            .into_iter()
            .map(|d| d.unwrap_or(Disposition::Ack))
            .collect()
    }
}

impl FanIn {
    pub fn new(parts: Parts) -> Self {
        Self {
            endings: Endings::new(parts.clone()),
            siblings: Siblings::new(parts.clone()),
            parts,
            fan_outs: Arc::default(),
        }
    }

    /// Looks at a fan-out, concludes it if its rule is met, and forgets its siblings once it is over. Of those
    /// that have just completed another aggregator may have forgotten some.
    pub(crate) async fn evaluate(&self, place: &Place, just: &[SessionId]) -> Result<(), Error> {
        if self.conclude(place, just).await? {
            self.siblings.forget(place).await?;
        }
        Ok(())
    }

    /// Concludes a fan-out if its rule is met. Answers whether it is over.
    async fn conclude(&self, (session, step): &Place, just: &[SessionId]) -> Result<bool, Error> {
        let Some(fan_out) = self.fan_out(session, *step).await? else {
            return Ok(true);
        };
        let verdict_key = keys::fan_in(session, *step);
        let marker = keys::fan_in_published(session, *step);
        let tombstone = keys::tombstone(&fan_out.root);
        let wanted = [verdict_key.clone(), marker.clone(), tombstone];
        let there = self.parts.documents.get_many(&wanted).await?;
        let found = |at: usize| there.get(at).and_then(Option::as_ref);
        if found(2).is_some() {
            // Erased: what still comes of it has no effect.
            return Ok(true);
        }
        let (verdict, published) = (found(0), found(1).is_some());
        if let Some(body) = verdict {
            let verdict = decode(&verdict_key, body)?;
            self.release(&fan_out, &verdict, published, just).await?;
            return Ok(true);
        }
        let Some(mut verdict) = self.verdict(&fan_out).await? else {
            return Ok(false);
        };
        verdict.nonce = self.parts.host.nonce();
        tracing::info!(
            session = %session, step, correlation = %verdict.correlation,
            cause = verdict.cause.as_str(), members = verdict.members.len(),
            missing = verdict.missing.len(), "fan-in concluded"
        );
        let is_complete = verdict.missing.is_empty();
        let won = self.create(&fan_out, &verdict).await?;
        if won {
            metrics::fan_in(verdict.cause.as_str());
            let now = self.parts.host.now();
            telemetry::fan_in(&*self.parts.documents, &fan_out, &verdict, now).await;
            if is_complete {
                return Ok(true);
            }
        }
        // Another aggregator's verdict may be there instead. It may be dead by now, so whoever comes
        // second releases the synthesis too; the marker and the step's record keep that harmless.
        let wanted = [verdict_key.clone(), marker];
        let there = self.parts.documents.get_many(&wanted).await?;
        let [Some(body), published] = &there[..] else {
            return Ok(false);
        };
        let verdict = decode(&verdict_key, body)?;
        let published = published.is_some();
        self.release(&fan_out, &verdict, published, just).await?;
        Ok(true)
    }

    /// Creates a verdict; `false` if another one is there. One that does without nobody is one with the
    /// request of its synthesis.
    async fn create(&self, fan_out: &FanOutRecord, verdict: &FanInRecord) -> Result<bool, Error> {
        let key = keys::fan_in(&fan_out.session, fan_out.step);
        let body = serde_json::to_vec(verdict).unwrap_or_default();
        if !verdict.missing.is_empty() {
            let there = self.parts.documents.create_or_get(&key, body).await?;
            return Ok(there.is_none());
        }
        let commit = StepCommit {
            record: (key, body),
            nonce: verdict.nonce.clone(),
            objects: Vec::new(),
            publications: vec![fan_out.synthesis.clone()],
            marker: keys::fan_in_published(&fan_out.session, fan_out.step),
            without_call: None,
        };
        let committed = self.parts.committer.commit(commit, None).await?;
        Ok(committed == Committed::Won)
    }

    /// Asks for the synthesis of a verdict, if nobody has. Those whom it does without have ended before, so
    /// that what comes after the synthesis knows of each call that they began.
    async fn release(
        &self,
        fan_out: &FanOutRecord,
        verdict: &FanInRecord,
        published: bool,
        just: &[SessionId],
    ) -> Result<(), Error> {
        if !published {
            self.endings.end_missing(fan_out, &verdict.missing).await?;
            if !verdict.missing.is_empty() {
                // No message will wake those of them that wait for a person.
                let approvals = Approvals::new(self.parts.clone());
                approvals.end_needless(&fan_out.root).await?;
            }
            let adoption = Adoption {
                record_key: keys::fan_in(&fan_out.session, fan_out.step),
                publications: vec![fan_out.synthesis.clone()],
                marker: keys::fan_in_published(&fan_out.session, fan_out.step),
            };
            self.parts.committer.adopt(adoption, None).await?;
        }
        // Somebody may have completed between the count and the verdict.
        self.mark_late(fan_out, verdict, just).await
    }

    /// The verdict that may be reached now, if any.
    async fn verdict(&self, fan_out: &FanOutRecord) -> Result<Option<FanInRecord>, Error> {
        let mut completions = self.siblings.completions(fan_out).await?;
        let now: Millis = self.parts.host.now();
        let Some(mut verdict) = decide(fan_out, &completions, now) else {
            return Ok(None);
        };
        if verdict.cause == JoinCause::Deadline {
            // The graph may have forgotten, as one does that was restored or lies in memory: a sibling
            // is missing only if no record of its own ends it.
            let mut forgotten = Vec::new();
            for child in &verdict.missing {
                if let Some(end) = self.parts.records().end_from(&child.session, 0).await? {
                    completions.push(Completion::of(&end));
                    forgotten.extend(told(&self.endings.whole(end).await?));
                }
            }
            if !forgotten.is_empty() {
                let place = (fan_out.session.clone(), fan_out.step);
                self.siblings.tell_again(&place, forgotten).await?;
            }
        }
        let correlation = &fan_out.correlation;
        Box::pin(self.siblings.find_sources(correlation, &mut completions)).await?;
        verdict = decide(fan_out, &completions, now).unwrap_or(verdict);
        Ok(Some(verdict))
    }

    /// The fan-out record; `None` if its tree was erased.
    async fn fan_out(
        &self,
        session: &SessionId,
        step: u32,
    ) -> Result<Option<Arc<FanOutRecord>>, Error> {
        let key = keys::fan_out(session, step);
        if let Ok(known) = self.fan_outs.lock()
            && let Some(fan_out) = known.get(&key)
        {
            return Ok(Some(Arc::clone(fan_out)));
        }
        let Some(fan_out) = self.parts.records().fan_out(session, step).await? else {
            // Children are published after the record is there, so it can only have been erased,
            // or the message is not of this fleet.
            tracing::info!(%key, "no such fan-out; its completion has no effect");
            return Ok(None);
        };
        let fan_out = Arc::new(fan_out);
        if let Ok(mut known) = self.fan_outs.lock() {
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(key, Arc::clone(&fan_out));
        }
        Ok(Some(fan_out))
    }

    /// Marks completions that are no members of the verdict: kept, without effect.
    async fn mark_late(
        &self,
        fan_out: &FanOutRecord,
        verdict: &FanInRecord,
        just: &[SessionId],
    ) -> Result<(), Error> {
        if verdict.missing.is_empty() {
            return Ok(());
        }
        let completions = self.siblings.completions(fan_out).await?;
        let known: HashSet<&SessionId> =
            completions.iter().map(|c| &c.session).chain(just).collect();
        let missing = verdict.missing.iter().map(|child| &child.session);
        let late: Vec<Batch> = missing
            .filter(|session| known.contains(session))
            .map(|session| {
                let uri = uris::completion(session);
                let mark = Triple::new(&uri, tg::LATE, Term::typed("true", xsd::BOOLEAN));
                Batch {
                    key: format!("{uri}#late"),
                    root: fan_out.root.to_string(),
                    collection: String::new(),
                    conversation: String::new(),
                    triples: vec![mark],
                }
            })
            .collect();
        if late.is_empty() {
            return Ok(());
        }
        Ok(self.parts.graph.insert(late).await?)
    }
}

/// What completed in a fan-out.
#[derive(Debug, Default)]
struct Completed {
    /// Positions of the deliveries that say so.
    deliveries: Vec<usize>,
    sessions: Vec<SessionId>,
}

impl Completed {
    fn add(&mut self, delivery: usize, batch: &Batch) {
        self.deliveries.push(delivery);
        let named = batch.triples.iter();
        let named = named.filter(|triple| triple.p.iri == tg::SUBAGENT_SESSION_ID);
        self.sessions
            .extend(named.map(|triple| SessionId::from(triple.o.value.as_str())));
    }
}

/// What a record told the graph.
fn told(record: &StepRecord) -> impl Iterator<Item = Batch> {
    record.provenance().filter_map(|published| {
        let message = serde_json::from_str(&published.body).ok()?;
        Some(Batch::of_message(message, &published.properties))
    })
}
