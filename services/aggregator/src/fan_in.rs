//! Fan-in: completion triples in, verdict and synthesis request out.
//!
//! For every completion: insert its own triples (idempotent), read the fan-out record, count the
//! distinct completions of its correlation in the graph, and if the rule is met create the verdict
//! (FI-1, FI-2). Completions that come together are looked at together, which is the same. One that
//! comes without the properties of this fleet's messages is found by its correlation in the graph.

use crate::completion::{Of, Place, read, step_of};
use crate::{Error, Parts};
use agentfleet_broker::Delivery;
use agentfleet_core::fan_in::{Completion, decide};
use agentfleet_graph::{Batch, QueryOptions};
use agentfleet_runs::{Approvals, Endings};
use agentfleet_runtime::records::decode;
use agentfleet_runtime::{
    Adoption, BatchHandler, Committed, Disposition, StepCommit, erased, metrics, telemetry,
};
use agentfleet_schema::records::{
    CompletionStatus, FanInRecord, FanOutRecord, JoinCause, StepRecord,
};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg, xsd};
use agentfleet_schema::{
    CorrelationId, Millis, SessionId, Source, Spent, Term, Triple, keys, uris,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
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
    fan_outs: Arc<Mutex<HashMap<String, Arc<FanOutRecord>>>>,
}

#[async_trait]
impl BatchHandler for FanIn {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Disposition> {
        let mut dispositions: Vec<Option<Disposition>> = vec![None; deliveries.len()];
        let mut batches = Vec::new();
        let mut places: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
        let mut foreign = Vec::new();
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
                Ok((batch, of)) => {
                    match of {
                        Of::Place(place) => places.entry(place).or_default().push(at),
                        // The graph-writer writes it; it concerns no fan-out.
                        Of::Foreign(named) if named.is_empty() => continue,
                        Of::Foreign(named) => foreign.push((at, named)),
                    }
                    batches.push(batch);
                }
                Err(reason) => {
                    // Not ours, or damaged: the graph-writer's copy is dead-lettered if it is.
                    tracing::warn!(message = %delivery.message_id, %reason, "no completion");
                    dispositions[at] = Some(Disposition::Ack);
                }
            }
        }
        if let Err(error) = self.insert(batches).await {
            tracing::warn!(%error, "completions could not be written; they come again");
            return deliveries.iter().map(|_| error.disposition()).collect();
        }
        for (at, named) in foreign {
            match self.places_of(&named).await {
                Ok(found) if found.is_empty() => {
                    let since = self.parts.host.now() - deliveries[at].published_at;
                    let again = (since < FOREIGN_WAIT).then_some(FOREIGN_LOOK);
                    dispositions[at] = again.map(Disposition::RetryAfter);
                }
                Ok(found) => {
                    for place in found {
                        places.entry(place).or_default().push(at);
                    }
                }
                Err(error) => dispositions[at] = Some(error.disposition()),
            }
        }
        for (place, members) in places {
            if let Err(error) = self.evaluate(&place).await {
                tracing::warn!(session = %place.0, step = place.1, %error, "fan-in put off");
                for at in members {
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
            parts,
            fan_outs: Arc::default(),
        }
    }

    /// Writes completions. One that is no RDF is left out, so that others do not wait for it; the
    /// graph-writer parks its copy.
    async fn insert(&self, mut batches: Vec<Batch>) -> Result<(), Error> {
        let Err(error) = self.parts.graph.insert(batches.clone()).await else {
            return Ok(());
        };
        if error.retry().is_some() {
            return Err(error.into());
        }
        batches.retain(|batch| match agentfleet_graph::validate(batch) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "a completion is no RDF");
                false
            }
        });
        Ok(self.parts.graph.insert(batches).await?)
    }

    /// Looks at a fan-out, and concludes it if its rule is met.
    pub(crate) async fn evaluate(&self, (session, step): &Place) -> Result<(), Error> {
        let Some(fan_out) = self.fan_out(session, *step).await? else {
            return Ok(());
        };
        let verdict_key = keys::fan_in(session, *step);
        let marker = keys::fan_in_published(session, *step);
        let tombstone = keys::tombstone(&fan_out.root);
        let wanted = [verdict_key.clone(), marker.clone(), tombstone];
        let there = self.parts.documents.get_many(&wanted).await?;
        let found = |at: usize| there.get(at).and_then(Option::as_ref);
        if found(2).is_some() {
            // Erased: what still comes of it has no effect.
            return Ok(());
        }
        let (verdict, published) = (found(0), found(1).is_some());
        if let Some(body) = verdict {
            let verdict = decode(&verdict_key, body)?;
            return self.release(&fan_out, &verdict, published).await;
        }
        let Some(mut verdict) = self.verdict(&fan_out).await? else {
            return Ok(());
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
                return Ok(());
            }
        }
        // Another aggregator's verdict may be there instead. It may be dead by now, so whoever comes
        // second releases the synthesis too; the marker and the step's record keep that harmless.
        let wanted = [verdict_key.clone(), marker];
        let there = self.parts.documents.get_many(&wanted).await?;
        let [Some(body), published] = &there[..] else {
            return Ok(());
        };
        let verdict = decode(&verdict_key, body)?;
        let published = published.is_some();
        self.release(&fan_out, &verdict, published).await
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
        self.mark_late(fan_out, verdict).await
    }

    /// The verdict that may be reached now, if any.
    async fn verdict(&self, fan_out: &FanOutRecord) -> Result<Option<FanInRecord>, Error> {
        let mut completions = self.completions(fan_out).await?;
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
                self.insert(forgotten).await?;
            }
        }
        Box::pin(self.find_sources(&fan_out.correlation, &mut completions)).await?;
        verdict = decide(fan_out, &completions, now).unwrap_or(verdict);
        Ok(Some(verdict))
    }

    /// The fan-outs of correlations, by what the graph knows of them, else by the session that the
    /// completion names as the one above.
    async fn places_of(
        &self,
        named: &[(CorrelationId, Option<SessionId>)],
    ) -> Result<Vec<Place>, Error> {
        let sparql = format!(
            "SELECT DISTINCT ?session FROM <{}> WHERE {{ \
               ?fanout <{RDF_TYPE}> <{}> ; <{}> ?correlation ; <{}> ?session }}",
            uris::RETRIEVAL_GRAPH,
            tg::FAN_OUT,
            tg::CORRELATION_ID,
            prov::WAS_GENERATED_BY,
        );
        let mut places = Vec::new();
        for (correlation, parent) in named {
            let bindings = [("correlation", Term::text(correlation.as_str()))];
            let options = QueryOptions::default();
            let found = self.parts.graph.select(&sparql, &bindings, options).await?;
            let session = found.text(0, "session").and_then(uris::session_of);
            let Some(session) = session.or_else(|| parent.clone()) else {
                continue;
            };
            places.extend(step_of(&session, correlation).map(|step| (session, step)));
        }
        Ok(places)
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

    /// The distinct completions of a fan-out, as the graph has them.
    async fn completions(&self, fan_out: &FanOutRecord) -> Result<Vec<Completion>, Error> {
        let sparql = format!(
            "SELECT DISTINCT ?session ?status ?partial ?document ?tokens ?cost ?models ?tools ?unpriced ?expected \
             FROM <{}> WHERE {{ \
               ?completion <{}> ?correlation ; <{RDF_TYPE}> <{}> ; <{}> ?session . \
               OPTIONAL {{ ?completion <{}> ?status }} \
               OPTIONAL {{ ?completion <{}> ?partial }} \
               OPTIONAL {{ ?completion <{}> ?document }} \
               OPTIONAL {{ ?completion <{}> ?tokens }} \
               OPTIONAL {{ ?completion <{}> ?cost }} \
               OPTIONAL {{ ?completion <{}> ?models }} \
               OPTIONAL {{ ?completion <{}> ?tools }} \
               OPTIONAL {{ ?completion <{}> ?unpriced }} \
               OPTIONAL {{ ?fanout <{}> ?correlation ; <{}> ?expected }} }}",
            // Loaded knowledge may claim anything; only what the fleet wrote counts.
            uris::RETRIEVAL_GRAPH,
            tg::CORRELATION_ID,
            tg::SUBAGENT_COMPLETION,
            tg::SUBAGENT_SESSION_ID,
            tg::STATUS,
            tg::PARTIAL,
            tg::RESULT,
            tg::TOKENS,
            tg::COST_TOTAL,
            tg::MODEL_CALLS_TOTAL,
            tg::TOOL_CALLS_TOTAL,
            tg::UNPRICED_CALLS_TOTAL,
            tg::CORRELATION_ID,
            tg::EXPECTED_SIBLINGS,
        );
        let bindings = [("correlation", Term::text(fan_out.correlation.as_str()))];
        let found = self
            .parts
            .graph
            .select(&sparql, &bindings, QueryOptions::default())
            .await?;
        let expected = fan_out.children.len();
        if let Some(told) = found.text(0, "expected")
            && told.parse() != Ok(expected)
        {
            let correlation = &fan_out.correlation;
            tracing::error!(%correlation, told, expected, "the graph tells of other siblings than the record, which counts");
        }
        let mut completions: Vec<Completion> = (0..found.rows.len())
            .map(|row| {
                let text = |name| found.text(row, name).unwrap_or_default();
                Completion {
                    session: SessionId::from(text("session")),
                    // The orchestration spec has a status on errors only.
                    status: found
                        .text(row, "status")
                        .map_or(CompletionStatus::Answered, CompletionStatus::from_literal),
                    partial: text("partial") == "true",
                    document: text("document").to_owned(),
                    sources: None,
                    spent: Spent {
                        tokens: text("tokens").parse().unwrap_or_default(),
                        cost: text("cost").parse().unwrap_or_default(),
                        model_calls: text("models").parse().unwrap_or_default(),
                        tool_calls: text("tools").parse().unwrap_or_default(),
                        unpriced_calls: text("unpriced").parse().unwrap_or_default(),
                    },
                }
            })
            .collect();
        completions.sort_by(|a, b| a.session.cmp(&b.session));
        Ok(completions)
    }

    /// What the answers of a correlation rest on, for its verdict. An answer that says nothing of it was
    /// given by an older version.
    async fn find_sources(
        &self,
        correlation: &CorrelationId,
        completions: &mut [Completion],
    ) -> Result<(), Error> {
        let sparql = format!(
            "SELECT ?session ?source ?unsourced (MIN(?label) AS ?title) FROM <{}> WHERE {{ \
               ?completion <{}> ?correlation ; <{}> ?session ; <{}> ?answer . \
               {{ ?answer <{}>|<{}> ?source . OPTIONAL {{ ?source <{RDFS_LABEL}> ?label }} }} \
               UNION {{ ?answer <{}> ?unsourced }} \
             }} GROUP BY ?session ?source ?unsourced ORDER BY ?session ?source",
            uris::RETRIEVAL_GRAPH,
            tg::CORRELATION_ID,
            tg::SUBAGENT_SESSION_ID,
            prov::WAS_DERIVED_FROM,
            tg::CITES,
            tg::CONSULTED,
            tg::UNSOURCED,
        );
        let bindings = [("correlation", Term::text(correlation.as_str()))];
        let options = QueryOptions::default();
        let found = self.parts.graph.select(&sparql, &bindings, options).await?;
        for row in 0..found.rows.len() {
            let text = |name| found.text(row, name).unwrap_or_default();
            let of = |it: &&mut Completion| it.session.as_str() == text("session");
            let Some(completion) = completions.iter_mut().find(of) else {
                continue;
            };
            let sources = completion.sources.get_or_insert_default();
            if let Some(uri) = found.text(row, "source") {
                sources.push(Source {
                    uri: uri.to_owned(),
                    title: text("title").to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Marks completions that are no members of the verdict: kept, without effect.
    async fn mark_late(&self, fan_out: &FanOutRecord, verdict: &FanInRecord) -> Result<(), Error> {
        if verdict.missing.is_empty() {
            return Ok(());
        }
        let completions = self.completions(fan_out).await?;
        let late: Vec<Batch> = completions
            .iter()
            .filter(|c| {
                verdict
                    .missing
                    .iter()
                    .any(|child| child.session == c.session)
            })
            .map(|completion| {
                let uri = uris::completion(&completion.session);
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

/// What a record told the graph.
fn told(record: &StepRecord) -> impl Iterator<Item = Batch> {
    record.provenance().filter_map(|published| {
        let message = serde_json::from_str(&published.body).ok()?;
        Some(Batch::of_message(message, &published.properties))
    })
}
