//! The step protocol: read, look up, adopt or prepare, work, end, commit, acknowledge.

use crate::attempts::{Attempts, Begun, LEASE};
use crate::drive::Driver;
use crate::error::Stop;
use crate::found::{Found, above};
use crate::intake;
use crate::rates::Rates;
use crate::trust::Against;
use crate::watched::Watched;
use crate::{Options, Parts};
use agentfleet_broker::{Delivery, Receipt};
use agentfleet_core::{Overruled, say};
use agentfleet_runs::Usage;
use agentfleet_runs::audit::Audit;
use agentfleet_runtime::effects::{self, Standing};
use agentfleet_runtime::{Disposition, Handler, metrics, telemetry};
use agentfleet_schema::records::{EndedBy, IntentRecord, Termination};
use agentfleet_schema::{AgentRequest, Millis, keys};
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::Instrument as _;
use tracing::field::Empty;

/// A stateless worker of `agent-request`.
#[derive(Clone, Debug)]
pub struct Orchestrator {
    pub(crate) parts: Parts,
    pub(crate) options: Options,
    pub(crate) rates: Arc<Rates>,
    pub(crate) usage: Arc<Usage>,
    audit: Audit,
    /// Attempts at work, by the receipt of their delivery.
    working: Arc<Mutex<HashMap<Receipt, Working>>>,
}

/// A delivery at work.
#[derive(Clone, Debug)]
pub(crate) struct Working {
    /// The attempt that was noted, where the broker does not count deliveries.
    pub begun: Option<Arc<Begun>>,
    pub watched: Arc<Watched>,
}

/// What an earlier attempt at a step left behind.
enum Left {
    Nothing,
    Call(IntentRecord),
    /// The record of the step.
    Record(Arc<[u8]>),
}

#[async_trait]
impl Handler for Orchestrator {
    async fn handle(&self, delivery: &Delivery) -> Disposition {
        // Of a level that is never filtered out: every log line below carries the ids.
        let span = tracing::error_span!("step", session = Empty, step = Empty, trace = Empty);
        Box::pin(self.work(delivery)).instrument(span).await
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

    async fn drained(&self) {
        self.parts.committer.flush().await;
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
            usage: Arc::new(Usage::new(Arc::clone(&parts.documents))),
            audit: Audit::new(Arc::clone(&parts.documents)),
            parts,
            options,
            rates: Arc::default(),
            working: Arc::default(),
        }
    }

    pub(crate) fn attempts(&self) -> Attempts<'_> {
        Attempts {
            documents: &*self.parts.documents,
            host: &*self.parts.host,
            lease: self.options.lease.min(LEASE),
        }
    }

    pub(crate) fn working(&self) -> MutexGuard<'_, HashMap<Receipt, Working>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(&self, delivery: &Delivery) -> Disposition {
        let against = Against {
            documents: &*self.parts.documents,
            config: &*self.parts.config,
            audit: &self.audit,
            now: self.parts.host.now(),
        };
        let admitted = match Box::pin(self.options.trust.admit(delivery, against)).await {
            Ok(admitted) => admitted,
            Err(disposition) => return disposition,
        };
        let delivery = admitted.as_ref().unwrap_or(delivery);
        let stepped = Box::pin(self.step(delivery)).await;
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

    /// One message, one step. Whatever happens in between, the record decides: who finds one adopts it.
    async fn step(&self, delivery: &Delivery) -> Result<Disposition, Stop> {
        let began = Instant::now();
        let mut intake = match intake::read(delivery) {
            Ok(intake) => intake,
            Err(reason) => return Ok(Disposition::DeadLetter(reason)),
        };
        if intake::is_cancel(delivery) {
            return self.pass_on(&intake.request).await;
        }
        self.remember(&mut intake.request).await?;
        Box::pin(self.recall(&mut intake.request)).await?;
        Box::pin(self.allow(&mut intake.request)).await?;
        let request = &intake.request;
        name_in_log(request, delivery);
        let (found, first) = self.begin(request, delivery).await?;
        if found.outcome.is_some() {
            metrics::redelivery();
        }
        if found.tombstone {
            return Ok(Disposition::Ack);
        }
        if let Some(record) = &found.outcome {
            let is_published = found.published;
            return self.adopt(request, record, is_published, delivery).await;
        }
        let left = match self.left_by_others(request, &found).await? {
            Left::Record(record) => return self.adopt(request, &record, false, delivery).await,
            Left::Call(intent) => Some(intent),
            Left::Nothing => None,
        };
        let mut work = self.prepare(intake, found, first, left, delivery).await?;
        let mut driver = Driver::new(self, &work);
        let ended = match Box::pin(self.drive(&mut driver)).await {
            Ok(ended) => ended,
            Err(stop) => {
                driver.settle().await;
                return Err(stop);
            }
        };
        let done = driver.over();
        let worked = self.round_off(&mut work, done, ended).await?;
        self.commit(work, worked, began).await
    }

    /// What stands where the calls of a step do, if another attempt put something there.
    async fn left_by_others(&self, request: &AgentRequest, found: &Found) -> Result<Left, Stop> {
        if !found.called {
            return Ok(Left::Nothing);
        }
        let documents = &*self.parts.documents;
        let step = (&request.session_id, request.step);
        Ok(match effects::standing(documents, step).await? {
            Standing::Nothing => Left::Nothing,
            Standing::Call(intent) => Left::Call(*intent),
            Standing::Ended(record) => {
                // Of an attempt that died before it could put it in its place.
                let key = keys::outcome(step.0, step.1);
                let there = documents.create_or_get(&key, record.clone().into()).await?;
                Left::Record(there.unwrap_or_else(|| Arc::from(record.into_bytes())))
            }
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
            watched.stop(Overruled {
                by: EndedBy::Deadline,
                finish: say::time_used_up(),
            });
            return Ok(());
        }
        let mut wanted = above(request);
        wanted.push(keys::outcome(&request.session_id, request.step));
        let bodies = self.parts.documents.get_many(&wanted).await?;
        if let Some(over) = Found::above(request, &bodies)?.unwanted() {
            watched.stop(over);
        } else if bodies.last().is_some_and(Option::is_some) {
            // Somebody committed this step: what this attempt does is lost, whatever it says.
            let reason = "the step was committed by another";
            watched.stop(Overruled {
                by: EndedBy::Closed,
                finish: say::cancelled(reason, Termination::Cancelled),
            });
        }
        Ok(())
    }
}

/// Puts the ids of a step into every line that is logged of it.
fn name_in_log(request: &AgentRequest, delivery: &Delivery) {
    tracing::Span::current()
        .record("session", request.session_id.as_str())
        .record("step", request.step)
        .record(
            "trace",
            telemetry::trace_id(request.root(), &delivery.properties),
        );
}
