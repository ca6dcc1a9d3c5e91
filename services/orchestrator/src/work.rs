//! A step at work: what it is prepared with, what ends it before its turn, and what it came to.

use crate::attempts::Begun;
use crate::away::Away;
use crate::begin::First;
use crate::debits::Debits;
use crate::drive::{Done, Driver};
use crate::error::Stop;
use crate::found::{Found, decode};
use crate::handle::{Orchestrator, Working};
use crate::intake::{self, Intake};
use crate::watched::Watched;
use agentfleet_broker::Delivery;
use agentfleet_core::conversation;
use agentfleet_core::error::Code;
use agentfleet_core::{
    Ending, Finish, Overruled, Prepared, Rejection, Turn, approval, error, limits, prices, quota,
    say, so_far,
};
use agentfleet_runtime::account::Debited;
use agentfleet_runtime::{Records, account, effects};
use agentfleet_schema::records::{
    EndedBy, IntentRecord, Publication, StepRecord, Termination, Worked as Kept,
};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, ErrorBody, Millis, Spent, keys};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks for a worker that knows a message's pattern.
const NEWER_WORKER: Duration = Duration::from_secs(10);
/// How long there may be none: workers of two versions are side by side during an upgrade.
const UPGRADE: Duration = Duration::from_secs(15 * 60);
/// Properties of a refused message that are parked with it: a broker takes so many.
const MOST_PROPERTIES: usize = 100;

/// A step that this worker took up.
pub(crate) struct Work<'a> {
    pub delivery: &'a Delivery,
    pub prepared: Prepared,
    pub found: Found,
    /// When its message came first.
    pub came_at: Millis,
    /// The call of an attempt before this one, with its number.
    pub left: Option<IntentRecord>,
    pub debited: Debited,
    /// What was debited for its first call when it was begun.
    pub ahead: Option<Spent>,
    /// Why its responses may not go where the message wants them.
    pub not_allowed: Option<ErrorBody>,
    /// Whether this is the last try: a fault then ends the step instead of stopping it.
    pub is_last_attempt: bool,
    pub watched: Arc<Watched>,
}

/// How the turn of a step ended, or what ended the step before it.
pub(crate) struct Ended {
    finish: Finish,
    by: Option<EndedBy>,
    parked: Option<Publication>,
}

impl Ended {
    /// By the turn itself.
    pub(crate) fn own(finish: Finish) -> Self {
        Self {
            finish,
            by: None,
            parked: None,
        }
    }
}

impl From<Overruled> for Ended {
    fn from(over: Overruled) -> Self {
        Self {
            finish: over.finish,
            by: Some(over.by),
            parked: None,
        }
    }
}

/// What a step came to.
pub(crate) struct Worked<'a> {
    pub ending: Ending,
    /// Whether it ends without a call, as another attempt may still make one.
    pub without_call: bool,
    /// What its calls came to.
    pub spent: Spent,
    pub debits: Debits<'a>,
}

/// What other attempts spent on a step. A call that one of them began is this step's own, and counts there:
/// else the budget might leave no room for the turn that is to take it.
fn of_others(mut debited: Spent, has_call: bool) -> Spent {
    debited.tool_calls = debited.tool_calls.saturating_sub(has_call.into());
    debited
}

/// What a run that begins with this step was shown of its conversation, of what is remembered, and of its
/// tenant's quota.
fn shown_at_first(request: &AgentRequest) -> Kept {
    if request.step > 0 || request.is_subagent() {
        return Kept::default();
    }
    let control = &request.control;
    Kept {
        conversation: control.conversation.clone(),
        carried: conversation::carried(request),
        memories: control.memories.clone(),
        quota: control.quota.clone(),
        ..Kept::default()
    }
}

impl Orchestrator {
    /// Takes a step up: its config, its limits, its number among the attempts, and what those before it
    /// spent.
    pub(crate) async fn prepare<'a>(
        &self,
        intake: Intake,
        found: Found,
        first: Option<First>,
        left: Option<IntentRecord>,
        delivery: &'a Delivery,
    ) -> Result<Work<'a>, Stop> {
        let Intake {
            mut request,
            digest,
        } = intake;
        let now = self.parts.host.now().max(request.control.after);
        // Nothing is recorded of the run yet, but what may be adopted was chosen under that.
        if request.control.config_version.is_none()
            && let Some(intent) = &left
        {
            request.control.config_version = intent.config_version;
        }
        let (snapshot, nonce) = match &first {
            Some(first) => (Arc::clone(&first.snapshot), first.begun.nonce.clone()),
            None => {
                let version = request.control.config_version;
                (self.config_at(version).await?, self.parts.host.nonce())
            }
        };
        let ahead = first.as_ref().and_then(|first| first.debited);
        let session = request.session_id.clone();
        let step = (&session, request.step);
        let begun = match (delivery.deliveries, first) {
            (Some(_), _) => None,
            (None, Some(first)) => Some(Arc::new(first.begun)),
            (None, None) => {
                let attempts = self.attempts();
                let begins = attempts.begin(step, &found.listed, &nonce, delivery);
                Some(Arc::new(begins.await?))
            }
        };
        let counted = begun.as_ref().map(|begun| begun.counted);
        let attempt = delivery.deliveries.or(counted).unwrap_or(1);
        let first_at = begun.as_ref().and_then(|begun| begun.first_at);
        let came_at = intake::came_at(delivery).or(first_at).unwrap_or(now);
        limits::accept(&mut request, &snapshot, &self.options.limits, came_at);
        let watched = self.watch(delivery, begun, request.clone());
        let debited = if found.debited {
            account::debited(&*self.parts.documents, step.0, step.1).await?
        } else {
            Debited {
                last: ahead.map_or(0, |_| 1),
                ..Debited::default()
            }
        };
        let (responses, not_allowed) = match self.options.reply_topics.of(&delivery.properties) {
            Ok(topic) => (topic, None),
            Err(error) => (topics::AGENT_RESPONSE, Some(error)),
        };
        let native_tools = self.parts.model.capabilities().native_tools;
        let is_new = request.step == 0 && !request.is_subagent();
        let kept = Kept {
            // No record before this one holds what a root was asked.
            request: is_new.then(|| String::from_utf8_lossy(&delivery.payload).into_owned()),
            came_at: (came_at != now).then_some(came_at),
            native_tools,
            fleet: Some(self.options.limits.clone()),
            waited: Away::of(delivery).map(|away| away.waited()),
            ..shown_at_first(&request)
        };
        let mut prepared = Prepared {
            request_digest: digest,
            properties: delivery.properties.clone(),
            nonce,
            attempt,
            config_version: snapshot.version,
            snapshot,
            started_at: now,
            spent_before: request.control.spent,
            wasted: Spent::default(),
            responses,
            worked: Box::new(kept),
            request,
        };
        prepared.waste(of_others(debited.spent, left.is_some()));
        Ok(Work {
            delivery,
            prepared,
            found,
            came_at,
            left,
            debited,
            ahead,
            not_allowed,
            is_last_attempt: attempt >= self.options.max_attempts,
            watched,
        })
    }

    /// Notes that a delivery is at work, so that whoever keeps it can look after it.
    fn watch(
        &self,
        delivery: &Delivery,
        begun: Option<Arc<Begun>>,
        request: AgentRequest,
    ) -> Arc<Watched> {
        let watched = Arc::new(Watched::new(request, self.parts.host.now()));
        let working = Working {
            begun,
            watched: Arc::clone(&watched),
        };
        self.working().insert(delivery.receipt, working);
        watched
    }

    /// Works the turn of a step, unless something ends the step before it.
    pub(crate) async fn drive(&self, driver: &mut Driver<'_, '_>) -> Result<Ended, Stop> {
        let work = driver.work;
        if let Some(over) = self.overruled(work) {
            return Ok(over.into());
        }
        if let Some(refused) = self.refused(work).await? {
            return Ok(refused);
        }
        let (prepared, fan_in) = (&work.prepared, work.found.fan_in.clone());
        let (now, nonce) = (prepared.started_at, &prepared.nonce);
        let situation = self.situation(&prepared.snapshot, now, nonce, fan_in);
        let turn = match Turn::parse(prepared.request.clone(), situation) {
            Ok(turn) => turn,
            Err(rejection) => return Self::rejected(work, rejection),
        };
        match Box::pin(driver.run(turn)).await {
            Err(Stop::Retry { reason, .. }) if work.is_last_attempt => {
                let tries = prepared.attempt;
                let why = format!("gave up after {tries} tries: {reason}");
                Ok(gave_up(why, "ask again when the cause is gone").into())
            }
            ended => ended,
        }
    }

    /// Whether nothing may start for this request any more (BG-1), and how the step then ends.
    fn overruled(&self, work: &Work<'_>) -> Option<Overruled> {
        let prepared = &work.prepared;
        if let Some(unwanted) = work.found.unwanted() {
            return Some(unwanted);
        }
        if prepared.started_at >= prepared.request.control.hard_deadline {
            let finish = match Away::of(work.delivery) {
                None => say::time_used_up(),
                Some(away) => out_of_time(&prepared.request, &away),
            };
            return Some(Overruled {
                by: EndedBy::Deadline,
                finish,
            });
        }
        (prepared.attempt > self.options.max_attempts).then(|| {
            let tries = prepared.attempt - 1;
            let why = format!("gave up after {tries} tries, none of which came to its end");
            gave_up(why, "the log of the workers says what stopped them")
        })
    }

    /// Whether the request asks for what may not be done, and how the step then ends.
    async fn refused(&self, work: &Work<'_>) -> Result<Option<Ended>, Stop> {
        let request = &work.prepared.request;
        let error = match &work.not_allowed {
            Some(error) => Some(error.clone()),
            None => self.unapproved(request).await?,
        };
        if let Some(error) = error {
            return Ok(Some(refuse(work, error)));
        }
        if let Some(left) = &request.control.quota
            && quota::is_asked(request)
            && let Some(error) = quota::refusal(request.tenant(), left)
        {
            return Ok(Some(refusal(error).into()));
        }
        let limits = &self.options.limits;
        let is_metered = self.parts.model.capabilities().metered;
        let unpriced =
            is_metered.then(|| prices::missing(request, &work.prepared.snapshot, limits));
        // Not parked: the message is well, and `retry` begins the run again once there are prices.
        Ok(unpriced.flatten().map(|error| refusal(error).into()))
    }

    /// How a step ends that no turn can be made of. A worker of a later version may know its pattern.
    fn rejected(work: &Work<'_>, rejection: Rejection) -> Result<Ended, Stop> {
        let error = match rejection {
            Rejection::Invalid(error) => error,
            Rejection::NotImplementedHere(_) => {
                let reason = rejection.to_string();
                if work.prepared.started_at - work.came_at < UPGRADE.as_millis() as Millis {
                    let after = NEWER_WORKER;
                    return Err(Stop::Postpone { reason, after });
                }
                error::body(
                    Code::PatternNotImplemented,
                    reason,
                    "leave `pattern` empty to let the router choose, or update the workers",
                )
            }
        };
        Ok(refuse(work, error))
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

    /// Rounds a step off: with what its session knows where its time was up, with the call of another
    /// attempt that it ends over the head of, and with what the record keeps of how it was worked.
    pub(crate) async fn round_off<'a>(
        &self,
        work: &mut Work<'_>,
        (done, debits): (Done, Debits<'a>),
        ended: Ended,
    ) -> Result<Worked<'a>, Stop> {
        let spent = done.spent();
        let Done {
            mut calls,
            streamed,
            unaffordable,
            failures,
            side_effects,
            mut without_call,
        } = done;
        let Ended {
            mut finish,
            by,
            parked,
        } = ended;
        if by.is_some() {
            finish = self.with_found(finish, work).await?;
        }
        let is_alone = work.prepared.attempt <= 1 && by.is_none() && !work.found.called;
        if finish.outcome.is_terminal() && side_effects == 0 && !is_alone {
            // Ended over the head of an attempt that may have begun to call something, or be about to.
            without_call = work.left.is_none();
            if let Some(intent) = work.left.take() {
                let request = &work.prepared.request;
                let step = (&request.session_id, request.step);
                let (documents, root) = (&*self.parts.documents, request.root());
                calls.push(effects::told(documents, root, step, intent).await?);
            }
        }
        // A call that was dropped may have cost what was reserved for it.
        work.prepared.waste(debits.open.unwrap_or_default());
        work.prepared.worked.failures = failures;
        work.prepared.worked.unaffordable = unaffordable;
        let ending = Ending {
            finish,
            by,
            calls,
            streamed,
            parked,
        };
        Ok(Worked {
            ending,
            without_call,
            spent,
            debits,
        })
    }

    /// With what the session knows, where its time is used up.
    async fn with_found(&self, finish: Finish, work: &Work<'_>) -> Result<Finish, Stop> {
        if !so_far::is_told(&finish) {
            return Ok(finish);
        }
        let mut found = so_far::carried(&work.prepared.request);
        if let Some(fan_in) = &work.found.fan_in {
            let (goals, documents) = so_far::answers_of(fan_in);
            let texts = Records::new(&*self.parts.documents)
                .texts(&documents)
                .await?;
            found.extend(so_far::answers(goals, texts));
        }
        Ok(so_far::with(finish, &found))
    }
}

/// The end of a run that waited for its model to the end of its time. What the provider said is for those only
/// who run the fleet.
fn out_of_time(request: &AgentRequest, away: &Away) -> Finish {
    let mut why = "its time was used up while it waited for the model".to_owned();
    if request.tenant().is_empty() {
        why = format!("{why}: {}", away.reason);
    }
    say::cancelled(&why, Termination::Timeout)
}

fn gave_up(why: String, hint: &str) -> Overruled {
    let error = error::body(Code::GaveUp, why, hint);
    Overruled {
        by: EndedBy::GaveUp,
        finish: say::failed(error, Termination::Error, 0),
    }
}

fn refusal(error: ErrorBody) -> Overruled {
    Overruled {
        by: EndedBy::Refused,
        finish: say::failed(error, Termination::Error, 0),
    }
}

/// Ends the step of a message that asks for what cannot be done. The message is parked for people.
fn refuse(work: &Work<'_>, error: ErrorBody) -> Ended {
    let parked = Some(parked(work, &error));
    Ended {
        parked,
        ..refusal(error).into()
    }
}

/// The message as the undertaker parks it.
fn parked(work: &Work<'_>, error: &ErrorBody) -> Publication {
    let delivery = work.delivery;
    let properties = delivery.properties.iter();
    let mut properties: BTreeMap<String, String> = properties
        .filter(|(name, value)| name.len() + value.len() <= property::MAX_CARRIED)
        .take(MOST_PROPERTIES)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let reason = format!("{}: {}", error.code, error.message);
    let session = work.prepared.request.session_id.to_string();
    properties.insert(property::REASON.to_owned(), reason);
    properties.insert(property::SESSION.to_owned(), session);
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
