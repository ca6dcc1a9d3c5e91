//! The step protocol: look up, check, work, commit, publish, acknowledge.

use crate::attempts::{Attempts, Begun, LEASE};
use crate::away::{Away, Wait};
use crate::debits::Debits;
use crate::drive::Driver;
use crate::error::Stop;
use crate::intake::{self, Intake};
use crate::stream::Attempt;
use crate::watched::Watched;
use crate::{Options, Parts};
use agentfleet_broker::{
    Delivery, MAX_PAYLOAD, MAX_PROPERTIES, Outgoing, Receipt, properties_size,
};
use agentfleet_core::commit::{self, Assembled, Commit, Streamed, assemble};
use agentfleet_core::error::Code;
use agentfleet_core::limits::Limits;
use agentfleet_core::{
    Finish, Rejection, Situation, Turn, approval, error, fan_in, limits, prices, say, so_far,
};
use agentfleet_runtime::account::Debited;
use agentfleet_runtime::effects::{Standing, WithoutCall};
use agentfleet_runtime::{
    Adoption, CLOCK_SKEW, Committed, Disposition, Handler, StepCommit, account, effects, metrics,
    telemetry, texts,
};
use agentfleet_schema::records::{
    ClosedRecord, FanInRecord, Publication, StepRecord, TELLING, Termination, Worked,
};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{
    AgentRequest, AgentResponse, Digest, ErrorBody, MessageId, MessageType, Millis, keys, millis,
};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::Instrument as _;
use tracing::field::Empty;

/// Between two looks for a worker that knows a message's pattern.
const NEWER_WORKER: Duration = Duration::from_secs(10);
/// How long there may be none: workers of two versions are side by side during an upgrade.
const UPGRADE: Duration = Duration::from_secs(15 * 60);
/// Longest between two looks whether a part of the fleet is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Shortest: what must be put back at once comes again at once, and is no storm.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// Properties of a refused message that are parked with it: a broker takes so many.
const MOST_PROPERTIES: usize = 100;

/// A stateless worker of `agent-request`.
#[derive(Clone, Debug)]
pub struct Orchestrator {
    parts: Parts,
    options: Options,
    /// Attempts at work, by the receipt of their delivery.
    working: Arc<Mutex<HashMap<Receipt, Working>>>,
}

/// A delivery at work.
#[derive(Clone, Debug)]
struct Working {
    /// The attempt that was noted, where the broker does not count deliveries.
    begun: Option<Arc<Begun>>,
    watched: Arc<Watched>,
}

/// What the store knows of a step before it is worked.
#[derive(Default)]
struct Found {
    tombstone: bool,
    outcome: Option<Arc<[u8]>>,
    published: bool,
    closed: Option<ClosedRecord>,
    /// A fan-out above this session has its verdict: nobody waits for this work.
    decided_above: bool,
    fan_in: Option<FanInRecord>,
    /// An attempt before this one began to call something, or not to.
    called: bool,
    /// An attempt before this one debited something.
    debited: bool,
    /// The keys of the step, if they were listed.
    listed: Vec<String>,
}

/// What is asked about everything above a step.
fn above(request: &AgentRequest) -> Vec<String> {
    let root = request.root();
    let own = verdict_key(request);
    let ancestors = request.control.ancestors.iter();
    let ancestors = ancestors.map(|above| keys::fan_in(&above.session, above.step));
    [keys::tombstone(root), keys::closed(root)]
        .into_iter()
        .chain(ancestors)
        .chain(own)
        .collect()
}

/// Where the verdict lies that a synthesis answers.
fn verdict_key(request: &AgentRequest) -> Option<String> {
    Some(keys::fan_in(
        fan_in::session_of(request),
        request.control.fan_in_step?,
    ))
}

impl Found {
    /// Reads what was found for [`above`].
    fn above(request: &AgentRequest, bodies: &[Option<Arc<[u8]>>]) -> Result<Self, Stop> {
        let body = |at: usize| bodies.get(at).and_then(Option::as_ref);
        let ancestors = 2..2 + request.control.ancestors.len();
        let closed = keys::closed(request.root());
        let fan_in = verdict_key(request);
        Ok(Self {
            tombstone: body(0).is_some(),
            closed: body(1).map(|body| decode(&closed, body)).transpose()?,
            decided_above: ancestors.clone().any(|at| body(at).is_some()),
            fan_in: match (fan_in, body(ancestors.end)) {
                (Some(key), Some(body)) => Some(fan_in::read_by(request, decode(&key, body)?)),
                _ => None,
            },
            ..Self::default()
        })
    }

    /// Whether nobody waits for this step any more, and how it then ends.
    fn unwanted(&self) -> Option<(&'static str, Finish)> {
        if let Some(closed) = &self.closed {
            let (reason, termination) = say::tree_closed(closed);
            return Some(("closed", say::cancelled(&reason, termination)));
        }
        self.decided_above.then(|| {
            let (reason, termination) = say::decided_above();
            ("decided-above", say::cancelled(&reason, termination))
        })
    }
}

#[async_trait]
impl Handler for Orchestrator {
    async fn handle(&self, delivery: &Delivery) -> Disposition {
        // Of a level that is never filtered out: every log line below carries the ids.
        let span = tracing::error_span!("step", session = Empty, step = Empty, trace = Empty);
        self.work(delivery).instrument(span).await
    }

    async fn keep(&self, delivery: &Delivery) {
        let working = self.working().get(&delivery.receipt).cloned();
        let Some(Working { begun, watched }) = working else {
            return;
        };
        if let Some(begun) = begun {
            self.attempts().keep(&begun).await;
        }
        self.look_after(&watched).await;
    }

    async fn panicked(&self, delivery: &Delivery) {
        let working = self.working().remove(&delivery.receipt);
        if let Some(Working { begun, watched }) = working {
            let (session, step) = (&watched.request.session_id, watched.request.step);
            tracing::error!(%session, step, "the attempt at this step ended in a panic");
            self.give_up(begun, true).await;
        }
    }

    async fn look(&self, delivery: &Delivery) {
        let working = self.working().get(&delivery.receipt).cloned();
        let Some(Working { begun, watched }) = working else {
            return;
        };
        if let Some(begun) = begun {
            self.attempts().keep(&begun).await;
        }
        let ago = watched.looked_ago(self.parts.host.now());
        if self.is_too_late(&watched) || ago >= self.options.look.as_millis() as Millis {
            self.look_after(&watched).await;
        }
    }
}

impl Orchestrator {
    pub fn new(parts: Parts, options: Options) -> Self {
        Self {
            parts,
            options,
            working: Arc::default(),
        }
    }

    fn attempts(&self) -> Attempts<'_> {
        Attempts {
            documents: &*self.parts.documents,
            host: &*self.parts.host,
            lease: self.options.lease.min(LEASE),
        }
    }

    fn working(&self) -> MutexGuard<'_, HashMap<Receipt, Working>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(&self, delivery: &Delivery) -> Disposition {
        let stepped = self.step(delivery).await;
        let working = self.working().remove(&delivery.receipt);
        let (begun, watched) = working.map_or((None, None), |working| {
            (working.begun, Some(working.watched))
        });
        match stepped {
            Ok(disposition) => disposition,
            Err(Stop::ModelAway(wait)) => {
                self.give_up(begun, false).await;
                tracing::warn!(message = %delivery.message_id, told = wait.told, "waits for the model");
                self.wait_for_model(delivery, &wait, watched.as_deref())
                    .await
            }
            Err(Stop::Retry { reason, after }) => {
                self.give_up(begun, true).await;
                tracing::warn!(message = %delivery.message_id, %reason, ?after, "will try again");
                Disposition::RetryAfter(after)
            }
            Err(Stop::Postpone { reason, after }) => {
                self.give_up(begun, false).await;
                tracing::warn!(message = %delivery.message_id, %reason, ?after, "put back");
                self.postpone(delivery, after, None).await
            }
            Err(Stop::Behind { attempt, after }) => {
                self.give_up(begun, false).await;
                tracing::warn!(
                    message = %delivery.message_id, attempt, ?after,
                    "another attempt may be at work on this step; waiting for its lease"
                );
                self.postpone(delivery, after, Some(attempt)).await
            }
        }
    }

    async fn give_up(&self, begun: Option<Arc<Begun>>, counts: bool) {
        if let Some(begun) = begun {
            self.attempts().give_up(&begun, counts).await;
        }
    }

    async fn step(&self, delivery: &Delivery) -> Result<Disposition, Stop> {
        let Intake {
            mut request,
            digest,
        } = match intake::read(delivery) {
            Ok(intake) => intake,
            Err(reason) => return Ok(Disposition::DeadLetter(reason)),
        };
        if delivery.properties.get(property::KIND).map(String::as_str)
            == Some(property::KIND_CANCEL)
        {
            return self.pass_on(&request).await;
        }
        tracing::Span::current()
            .record("session", request.session_id.as_str())
            .record("step", request.step)
            .record(
                "trace",
                telemetry::trace_id(request.root(), &delivery.properties),
            );
        let began = Instant::now();
        let counted = delivery.deliveries;
        let found = match counted {
            Some(_) => self.look_up(&request).await?,
            None => self.list(&request).await?,
        };
        if found.outcome.is_some() {
            metrics::redelivery();
        }
        if found.tombstone {
            return Ok(Disposition::Ack);
        }
        if let Some(record) = &found.outcome {
            return self
                .adopt(&request, record, found.published, delivery)
                .await;
        }
        let now = self.parts.host.now().max(request.control.after);
        let (documents, step) = (&*self.parts.documents, (&request.session_id, request.step));
        let left = if found.called {
            match effects::standing(documents, step).await? {
                Standing::Call(intent, number) => Some((*intent, number)),
                Standing::Nothing => None,
                Standing::Ended(record) => {
                    // Of an attempt that died before it could put it in its place.
                    let key = keys::outcome(step.0, step.1);
                    let there = documents.create_or_get(&key, record.clone().into()).await?;
                    let record = there.unwrap_or_else(|| Arc::from(record.into_bytes()));
                    return self.adopt(&request, &record, false, delivery).await;
                }
            }
        } else {
            None
        };
        // Nothing is recorded of the run yet, but what may be adopted was chosen under that.
        if request.control.config_version.is_none()
            && let Some((intent, _)) = &left
        {
            request.control.config_version = intent.config_version;
        }
        let snapshot = match request.control.config_version {
            Some(version) => self.parts.config.snapshot_at(version).await?,
            None => self.parts.config.snapshot().await?,
        };
        let came_at = intake::came_at(delivery).unwrap_or(now);
        limits::accept(&mut request, &snapshot, &self.options.limits, came_at);
        let nonce = self.parts.host.nonce();
        let (attempt, begun) = match counted {
            Some(count) => (count, None),
            None => {
                let step = (&request.session_id, request.step);
                let begun = self
                    .attempts()
                    .begin(step, &found.listed, &nonce, delivery)
                    .await?;
                (begun.counted, Some(Arc::new(begun)))
            }
        };
        let watched = Arc::new(Watched::new(request.clone(), self.parts.host.now()));
        let working = Working {
            begun,
            watched: Arc::clone(&watched),
        };
        self.working().insert(delivery.receipt, working);
        let debited = if found.debited {
            account::debited(&*self.parts.documents, &request.session_id, request.step).await?
        } else {
            Debited::default()
        };
        let before = request.control.spent;
        request.control.spent = before + debited.spent;
        let budget = Limits::of(&request, &snapshot, &self.options.limits).budget;
        let (responses, not_allowed) = match self.options.reply_topics.of(&delivery.properties) {
            Ok(topic) => (topic, None),
            Err(error) => (topics::AGENT_RESPONSE, Some(error)),
        };
        let metered = self.parts.model.capabilities().metered;
        let unpriced = if metered {
            prices::missing(&request, &snapshot, &self.options.limits)
        } else {
            None
        };
        let unapproved = self.unapproved(&request).await?;
        let mut refused = None;
        let mut driver = Driver {
            parts: &self.parts,
            options: &self.options,
            request: &request,
            delivery,
            attempts: self.attempts(),
            snapshot: &snapshot,
            nonce: &nonce,
            responses: &responses,
            last_attempt: attempt >= self.options.max_attempts,
            calls: Vec::new(),
            streamed: Streamed::default(),
            unaffordable: None,
            failures: Vec::new(),
            ended_by: "",
            debits: Debits {
                documents: &*self.parts.documents,
                request: &request,
                nonce: &nonce,
                of_models: metered || !budget.is_unbounded(),
                of_tools: budget.tool_calls.is_some(),
                last: debited.last,
                open: None,
                any: false,
            },
            watched: &watched,
            side_effects: 0,
            left,
            without_call: false,
        };
        let native_tools = self.parts.model.capabilities().native_tools;
        let answers = found.fan_in.as_ref().map(so_far::answers_of);
        let mut by = "";
        let finish = if let Some((stopped_by, finish)) =
            self.stopped(&found, &request, delivery, attempt, now)
        {
            by = stopped_by;
            finish
        } else if let Some(error) = not_allowed.or(unapproved) {
            refuse(error, &mut refused)
        } else if let Some(error) = unpriced {
            // Not parked: the message is well, and `retry` begins the run again once there are prices.
            by = "refused";
            say::failed(error, Termination::Error, 0)
        } else {
            let situation = Situation {
                now,
                snapshot: Arc::clone(&snapshot),
                fleet: Arc::new(self.options.limits.clone()),
                native_tools,
                telling: TELLING,
                nonce: nonce.clone(),
                fan_in: found.fan_in,
            };
            match Turn::parse(request.clone(), situation) {
                Ok(turn) => match Box::pin(driver.run(turn)).await {
                    Ok(finish) => finish,
                    Err(Stop::Retry { reason, .. }) if driver.last_attempt => {
                        by = "gave-up";
                        say::failed(
                            error::body(
                                Code::GaveUp,
                                format!("gave up after {attempt} tries: {reason}"),
                                "ask again when the cause is gone",
                            ),
                            Termination::Error,
                            0,
                        )
                    }
                    Err(stop) => {
                        let spent = driver.spent();
                        driver.debits.settle(spent).await;
                        return Err(stop);
                    }
                },
                Err(Rejection::Invalid(error)) => refuse(error, &mut refused),
                Err(rejection @ Rejection::NotImplementedHere(_))
                    if now - came_at < UPGRADE.as_millis() as Millis =>
                {
                    return Err(Stop::Postpone {
                        reason: rejection.to_string(),
                        after: NEWER_WORKER,
                    });
                }
                Err(rejection @ Rejection::NotImplementedHere(_)) => refuse(
                    error::body(
                        Code::PatternNotImplemented,
                        rejection.to_string(),
                        "leave `pattern` empty to let the router choose, or update the workers",
                    ),
                    &mut refused,
                ),
            }
        };
        if refused.is_some() {
            by = "refused";
        }
        if by.is_empty() {
            by = driver.ended_by;
        }
        let (finish, ended) = if by.is_empty() {
            (finish, None)
        } else {
            let finish = self.with_found(finish, &request, answers).await?;
            let ended = say::from_outside(by, &finish);
            (finish, ended)
        };
        let spent = driver.spent();
        let (mut calls, streamed) = (driver.calls, driver.streamed);
        let mut without_call = driver.without_call;
        // A call that was dropped may have cost what was reserved for it.
        let wasted = debited.spent + driver.debits.open.unwrap_or_default();
        let worked = Worked {
            // No record before this one holds what a root was asked.
            request: (request.step == 0 && !request.is_subagent())
                .then(|| String::from_utf8_lossy(&delivery.payload).into_owned()),
            came_at: (came_at != now).then_some(came_at),
            native_tools,
            telling: TELLING,
            fleet: Some(self.options.limits.clone()),
            responses: if responses == topics::AGENT_RESPONSE {
                String::new()
            } else {
                responses.as_str().to_owned()
            },
            failures: driver.failures,
            waited: Away::of(delivery).map(|away| away.waited(now)),
            unaffordable: driver.unaffordable,
            streamed: streamed.noted(),
            ended,
        };
        let is_alone = attempt <= 1 && by.is_empty() && !found.called;
        if finish.outcome.is_terminal() && driver.side_effects == 0 && !is_alone {
            // Ended over the head of an attempt that may have begun to call something, or be about to.
            without_call = driver.left.is_none();
            if let Some((intent, number)) = driver.left.take() {
                let step = (&request.session_id, request.step);
                let documents = &*self.parts.documents;
                let root = request.root();
                calls.push(effects::told(documents, root, step, intent, number).await?);
            }
        }
        let mut commit = Commit {
            snapshot: Arc::clone(&snapshot),
            request: request.clone(),
            request_digest: digest,
            properties: delivery.properties.clone(),
            nonce: nonce.clone(),
            attempt,
            config_version: snapshot.version,
            started_at: now,
            now: self.parts.host.now(),
            finish,
            wasted,
            calls,
            streamed,
            responses: responses.clone(),
            worked: Some(Box::new(worked)),
        };
        commit.request.control.spent = before + wasted;
        let done = self.commit(commit, without_call, refused, (delivery, began));
        match done.await? {
            Some(disposition) => Ok(disposition),
            None => {
                // It was not there when this attempt began: the next one begins with it.
                driver.debits.settle(spent).await;
                Err(Stop::Postpone {
                    reason: "another attempt called a tool".into(),
                    after: Duration::ZERO,
                })
            }
        }
    }

    /// With what the session knows, where its time is used up.
    async fn with_found(
        &self,
        finish: Finish,
        request: &AgentRequest,
        answers: Option<(Vec<String>, Vec<String>)>,
    ) -> Result<Finish, Stop> {
        if !so_far::is_told(&finish) {
            return Ok(finish);
        }
        let mut found = so_far::carried(request);
        if let Some((goals, documents)) = answers {
            let texts = texts(&*self.parts.documents, &documents).await?;
            found.extend(so_far::answers(goals, texts));
        }
        Ok(so_far::with(finish, &found))
    }

    /// Why a request may not rest on the approval that it names: the step before is not that
    /// approval. Messages are not believed in this, the record is.
    async fn unapproved(&self, request: &AgentRequest) -> Result<Option<ErrorBody>, Stop> {
        let held = request.control.held.as_ref();
        let Some(held) = held.filter(|held| held.approved) else {
            return Ok(None);
        };
        let before = match request.step.checked_sub(1) {
            Some(step) => {
                let key = keys::outcome(&request.session_id, step);
                let body = self.parts.documents.get(&key).await?;
                body.map(|body| decode::<StepRecord>(&key, &body))
                    .transpose()?
            }
            None => None,
        };
        if before.is_some_and(|before| approval::is_by(held, &before)) {
            return Ok(None);
        }
        Ok(Some(error::body(
            Code::NotApproved,
            format!(
                "the request names an approval of `{}` that the step before is not",
                held.tool
            ),
            "only the answer to a wait for a person approves a call",
        )))
    }

    /// One round trip for everything the protocol asks about a step before work.
    async fn look_up(&self, request: &AgentRequest) -> Result<Found, Stop> {
        let (session, step) = (&request.session_id, request.step);
        let mut wanted = vec![
            keys::outcome(session, step),
            keys::published(session, step),
            keys::intent(session, step, 0),
            keys::debit(session, step, 1),
        ];
        let own = wanted.len();
        wanted.extend(above(request));
        let bodies = self.parts.documents.get_many(&wanted).await?;
        let (of_step, of_tree) = bodies.split_at(own.min(bodies.len()));
        Ok(Found {
            outcome: of_step.first().cloned().flatten(),
            published: of_step.get(1).is_some_and(Option::is_some),
            called: of_step.get(2).is_some_and(Option::is_some),
            debited: of_step.get(3).is_some_and(Option::is_some),
            ..Found::above(request, of_tree)?
        })
    }

    /// The same where attempts must be known too: what there is of the step is listed, and a store
    /// that is far away is asked for nothing that is not there.
    async fn list(&self, request: &AgentRequest) -> Result<Found, Stop> {
        let documents = &*self.parts.documents;
        let (session, step) = (&request.session_id, request.step);
        let (folder, wanted) = (keys::step(session, step), above(request));
        let (listed, of_tree) =
            tokio::try_join!(documents.list(&folder), documents.get_many(&wanted))?;
        let outcome = keys::outcome(session, step);
        Ok(Found {
            outcome: if listed.contains(&outcome) {
                documents.get(&outcome).await?
            } else {
                None
            },
            published: listed.contains(&keys::published(session, step)),
            called: listed.contains(&keys::intent(session, step, 0)),
            debited: listed.contains(&keys::debit(session, step, 1)),
            listed,
            ..Found::above(request, &of_tree)?
        })
    }

    /// Whether the time of a step at work is used up, and it does not know.
    fn is_too_late(&self, watched: &Watched) -> bool {
        !watched.is_stopped() && self.parts.host.now() >= watched.request.control.hard_deadline
    }

    async fn look_after(&self, watched: &Watched) {
        watched.look(self.parts.host.now());
        if let Err(error) = self.look_again(watched).await {
            tracing::debug!(%error, "whether a step is still wanted is looked up later");
        }
    }

    /// Looks whether a step that is at work is still wanted, and stops it if it is not.
    async fn look_again(&self, watched: &Watched) -> Result<(), Stop> {
        let request = &watched.request;
        if self.is_too_late(watched) {
            watched.stop("deadline", say::time_used_up());
            return Ok(());
        }
        let mut wanted = above(request);
        wanted.push(keys::outcome(&request.session_id, request.step));
        let bodies = self.parts.documents.get_many(&wanted).await?;
        if let Some((by, finish)) = Found::above(request, &bodies)?.unwanted() {
            watched.stop(by, finish);
        } else if bodies.last().is_some_and(Option::is_some) {
            // Somebody committed this step: what this attempt does is lost, whatever it says.
            let reason = "the step was committed by another";
            watched.stop("closed", say::cancelled(reason, Termination::Cancelled));
        }
        Ok(())
    }

    /// Whether nothing may start for this request any more (BG-1), and how the step then ends.
    fn stopped(
        &self,
        found: &Found,
        request: &AgentRequest,
        delivery: &Delivery,
        attempt: u32,
        now: Millis,
    ) -> Option<(&'static str, Finish)> {
        if let Some(unwanted) = found.unwanted() {
            return Some(unwanted);
        }
        if now >= request.control.hard_deadline {
            let finish = match Away::of(delivery) {
                None => say::time_used_up(),
                Some(away) => say::cancelled(
                    &format!(
                        "its time was used up while it waited for the model: {}",
                        away.reason
                    ),
                    Termination::Timeout,
                ),
            };
            return Some(("deadline", finish));
        }
        (attempt > self.options.max_attempts).then(|| {
            let error = error::body(
                Code::GaveUp,
                format!(
                    "gave up after {} tries, none of which came to its end",
                    attempt - 1
                ),
                "the log of the workers says what stopped them",
            );
            ("gave-up", say::failed(error, Termination::Error, 0))
        })
    }

    /// Commits a step; `None` if it is one without a call, and another attempt makes one.
    async fn commit(
        &self,
        mut commit: Commit,
        without_call: bool,
        refused: Option<String>,
        (delivery, began): (&Delivery, Instant),
    ) -> Result<Option<Disposition>, Stop> {
        let mut assembled = assemble(&commit);
        if let Some(reason) = refused {
            // With the record, so that neither is without the other.
            let mut letter = parked(delivery, reason);
            let session = commit.request.session_id.to_string();
            letter
                .properties
                .insert(property::SESSION.to_owned(), session);
            assembled.record.publications.push(letter);
        }
        if let Some(what) = oversized(&assembled) {
            // Checked before the commit: afterwards it could only be tried for ever.
            let error = error::body(
                Code::StepTooLarge,
                what,
                "ask for less at a time, or lower the number of subagents",
            );
            commit.finish = say::failed(error, Termination::Error, 0);
            commit.streamed = Streamed::default();
            if let Some(worked) = &mut commit.worked {
                worked.streamed = commit.streamed.noted();
                worked.ended = say::from_outside("too-large", &commit.finish);
            }
            assembled = assemble(&commit);
        }
        let (session, step) = (&commit.request.session_id, commit.request.step);
        let objects = assembled.objects();
        let Assembled { mut record, .. } = assembled;
        let outcome = keys::outcome(session, step);
        let body = serde_json::to_vec(&record).unwrap_or_default();
        let publications = std::mem::take(&mut record.publications);
        let committed = self
            .parts
            .committer
            .commit(
                StepCommit {
                    record: (outcome.clone(), body),
                    nonce: commit.nonce.clone(),
                    objects,
                    publications,
                    marker: keys::published(session, step),
                    without_call: without_call.then(|| WithoutCall {
                        session: session.clone(),
                        step,
                        now: commit.now,
                    }),
                },
                Some(delivery),
            )
            .await?;
        match committed {
            Committed::Called => Ok(None),
            Committed::Won => {
                metrics::step(&record, &commit.request.pattern, began.elapsed());
                let (pattern, properties) = (&commit.request.pattern, &commit.properties);
                telemetry::step(&*self.parts.documents, &record, pattern, properties).await;
                Ok(Some(Disposition::Settled))
            }
            Committed::Lost => {
                metrics::attempt_lost();
                match self.parts.documents.get(&outcome).await? {
                    Some(theirs) => {
                        let adopted = self.adopt(&commit.request, &theirs, false, delivery);
                        adopted.await.map(Some)
                    }
                    None => Err(Stop::Retry {
                        reason: format!("record `{outcome}` was taken but cannot be read"),
                        after: Duration::from_secs(1),
                    }),
                }
            }
        }
    }

    /// Publishes what somebody committed, if nobody has, and acknowledges.
    async fn adopt(
        &self,
        request: &AgentRequest,
        record: &[u8],
        published: bool,
        delivery: &Delivery,
    ) -> Result<Disposition, Stop> {
        let (session, step) = (&request.session_id, request.step);
        let marker = keys::published(session, step);
        let published = published || self.parts.documents.get(&marker).await?.is_some();
        let is_root = step == 0 && !request.is_subagent();
        if published && !is_root {
            return Ok(Disposition::Ack);
        }
        let record: StepRecord = decode(&keys::outcome(session, step), record)?;
        if is_root && intake::is_another(&record, &delivery.payload) {
            self.refuse_second(request, delivery).await?;
            return Ok(Disposition::Ack);
        }
        if published {
            return Ok(Disposition::Ack);
        }
        self.parts
            .committer
            .adopt(Adoption::of(record), Some(delivery))
            .await?;
        Ok(Disposition::Settled)
    }

    /// Tells the producer of a request that its session has another one. It ends no dialog (OR-3), and
    /// is no response of the other's run: it carries no root.
    async fn refuse_second(&self, request: &AgentRequest, delivery: &Delivery) -> Result<(), Stop> {
        let session = &request.session_id;
        let error = error::body(
            Code::SessionTaken,
            format!("`$.session_id`: session `{session}` has another request; this one is not run"),
            "use another session id for another request; to repeat one, send it unchanged",
        );
        tracing::warn!(%session, message = %delivery.message_id, "a second request names this session");
        let digest = Digest::of(&delivery.payload);
        let response = AgentResponse {
            message_type: MessageType::Error,
            session_id: session.clone(),
            conversation_id: request.conversation_id.clone(),
            content: error.message.clone(),
            error: Some(error),
            end_of_message: true,
            message_id: MessageId::of_attempt(digest.as_str(), "session-taken"),
            ..AgentResponse::default()
        };
        let topic = self.options.reply_topics.of(&delivery.properties);
        let mut properties = commit::carried(&delivery.properties);
        properties.insert(property::SESSION.to_owned(), session.to_string());
        let refusal = Outgoing {
            topic: topic.unwrap_or(topics::AGENT_RESPONSE),
            payload: serde_json::to_vec(&response).unwrap_or_default(),
            properties,
            deliver_at: None,
            durability: agentfleet_broker::Durability::Durable,
        };
        Ok(self.parts.broker.publish(vec![refusal]).await?)
    }

    /// Gives a cancellation to those who end runs from outside. Said twice it does no more.
    async fn pass_on(&self, request: &AgentRequest) -> Result<Disposition, Stop> {
        let now = self.parts.host.now();
        let properties = [
            (property::KIND, property::KIND_CANCEL.to_owned()),
            (property::SESSION, request.session_id.to_string()),
            (property::STEP, "0".to_owned()),
            (property::DUE, now.to_string()),
            (property::BY, request.user.clone()),
        ];
        let properties = properties.map(|(name, value)| (name.to_owned(), value));
        let order = Outgoing {
            topic: topics::DEADLINE,
            payload: b"{}".to_vec(),
            properties: properties.into(),
            deliver_at: None,
            durability: agentfleet_broker::Durability::Durable,
        };
        self.parts.broker.publish(vec![order]).await?;
        Ok(Disposition::Ack)
    }

    /// Puts a message back as a new, delayed one: waiting for others must not use up its tries.
    async fn postpone(
        &self,
        delivery: &Delivery,
        mut after: Duration,
        waits_for: Option<String>,
    ) -> Disposition {
        let mut properties = delivery.properties.clone();
        let at_once = after.is_zero();
        if let Some(attempt) = waits_for {
            // Once for each sign of life.
            properties.insert(property::WAITED_FOR.to_owned(), attempt);
        } else if !at_once {
            // Ever more rarely: what is away for long comes back to a queue, not to a storm.
            let waited = intake::came_at(delivery).map_or(0, |since| self.parts.host.now() - since);
            let pause = Duration::from_millis(waited.max(0).unsigned_abs() / 4);
            after = after.max(pause.min(LONGEST_PAUSE));
        }
        after = after.max(SHORTEST_PAUSE);
        if !at_once {
            // A clock that is behind the broker's must not make the pause none.
            after += CLOCK_SKEW;
        }
        let at = self.parts.host.now() + millis(after);
        let again = self.again(delivery, properties, at);
        self.put_back(vec![again], after).await
    }

    /// Puts a message back until its model may answer, and tells whoever watches.
    async fn wait_for_model(
        &self,
        delivery: &Delivery,
        wait: &Wait,
        watched: Option<&Watched>,
    ) -> Disposition {
        let mut properties = delivery.properties.clone();
        properties.insert(property::MODEL_AWAY.to_owned(), wait.away.property());
        let mut messages = vec![self.again(delivery, properties, wait.again_at)];
        if let Some(watched) = watched {
            let topic = self.options.reply_topics.of(&delivery.properties);
            let attempt = Attempt {
                request: &watched.request,
                properties: &delivery.properties,
                nonce: &wait.nonce,
                responses: &topic.unwrap_or(topics::AGENT_RESPONSE),
            };
            messages.push(attempt.status("waits-for-model", &wait.told));
        }
        let left = wait.again_at - self.parts.host.now();
        let after = Duration::from_millis(left.max(1_000).unsigned_abs());
        self.put_back(messages, after).await
    }

    /// A message once more, at some time.
    fn again(
        &self,
        delivery: &Delivery,
        mut properties: BTreeMap<String, String>,
        at: Millis,
    ) -> Outgoing {
        // A request that names no session is known by its first message.
        properties
            .entry(property::ORIGIN_MESSAGE.to_owned())
            .or_insert_with(|| delivery.message_id.clone());
        properties
            .entry(property::SINCE.to_owned())
            .or_insert_with(|| self.parts.host.now().to_string());
        Outgoing {
            topic: delivery.topic.clone(),
            payload: delivery.payload.to_vec(),
            properties,
            deliver_at: Some(at),
            durability: agentfleet_broker::Durability::Durable,
        }
    }

    async fn put_back(&self, messages: Vec<Outgoing>, after: Duration) -> Disposition {
        match self.parts.broker.publish(messages).await {
            Ok(()) => Disposition::Ack,
            Err(error) => {
                tracing::warn!(%error, "cannot put a message back");
                Disposition::RetryAfter(after)
            }
        }
    }
}

/// Ends the step of a message that asks for what nobody can do. The message is parked for people.
fn refuse(error: ErrorBody, refused: &mut Option<String>) -> Finish {
    *refused = Some(format!("{}: {}", error.code, error.message));
    say::failed(error, Termination::Error, 0)
}

/// The message as the undertaker parks it.
fn parked(delivery: &Delivery, reason: String) -> Publication {
    let properties = delivery.properties.iter();
    let mut properties: BTreeMap<String, String> = properties
        .filter(|(name, value)| name.len() + value.len() <= property::MAX_CARRIED)
        .take(MOST_PROPERTIES)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    properties.insert(property::REASON.to_owned(), reason);
    properties.insert(property::ORIGIN.to_owned(), delivery.topic.to_string());
    properties
        .entry(property::ORIGIN_MESSAGE.to_owned())
        .or_insert_with(|| delivery.message_id.clone());
    Publication {
        topic: topics::DEAD_LETTER.to_string(),
        properties,
        deliver_at: None,
        body: String::from_utf8_lossy(&delivery.payload).into_owned(),
    }
}

/// Says what a step would publish that is larger than a message may be.
fn oversized(assembled: &Assembled) -> Option<String> {
    let synthesis = assembled.fan_out.iter().map(|fan_out| &fan_out.synthesis);
    let resume = assembled.pause.iter().map(|pause| &pause.resume);
    let published = assembled.record.publications.iter();
    let sizes = published
        .chain(synthesis)
        .chain(resume)
        .map(|one| (one.body.len(), properties_size(&one.properties)));
    let (body, properties) = sizes.fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)));
    let (what, size, limit) = if body > MAX_PAYLOAD {
        ("a message", body, MAX_PAYLOAD)
    } else if properties > MAX_PROPERTIES {
        ("properties", properties, MAX_PROPERTIES)
    } else {
        return None;
    };
    Some(format!(
        "the step would publish {what} of {size} bytes, the limit is {limit}"
    ))
}

fn decode<T: DeserializeOwned>(key: &str, body: &[u8]) -> Result<T, Stop> {
    serde_json::from_slice(body).map_err(|error| Stop::unreadable(key, &error))
}
