//! Working a committed step again, from records alone: the same turn, with what models, tools, graph
//! and librarian answered then, must come to the same record.
//!
//! Pure: whoever has the records looks them up, and calls nothing. What differs is a divergence, with
//! both values in short. What this program cannot tell is unchecked, never guessed to be equal.

mod compare;
mod tape;

use crate::approval;
use crate::attempt::{Ending, Prepared};
use crate::commit::{Assembled, Streamed, carried};
use crate::conversation;
use crate::limits::{self, FleetLimits};
use crate::order::ModelAsk;
use crate::prices;
use crate::quota;
use crate::say;
use crate::turn::{Situation, Turn};
use crate::{Rejection, error};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Activity, EndedBy, EndedFromOutside, FanInRecord, FanOutRecord, PauseRecord, Publication,
    StepRecord,
};
use agentfleet_schema::topics::{self, Topic};
use agentfleet_schema::{AgentRequest, Digest};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tape::Tape;

/// Longest value shown of a difference, in characters.
const SHORT: usize = 120;

/// A committed step, with what it was worked from.
pub struct Subject<'a> {
    pub record: &'a StepRecord,
    /// The fan-out as the aggregator reads it, where one was committed with the step.
    pub fan_out: Option<&'a FanOutRecord>,
    /// The wait for a person as whoever answers reads it, where one was committed with the step.
    pub pause: Option<&'a PauseRecord>,
    /// The message that was worked.
    pub request: &'a str,
    /// The config at the version of the record.
    pub snapshot: Arc<Snapshot>,
    /// The verdict that a synthesis answers.
    pub fan_in: Option<FanInRecord>,
    /// Texts of the librarian that the step read, by URI.
    pub texts: &'a BTreeMap<String, String>,
    /// What the model is sent for a question to it. `Err` says why that cannot be told.
    pub prompt: &'a dyn Fn(&ModelAsk) -> Result<String, String>,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("session", &self.record.session)
            .field("step", &self.record.step)
            .finish_non_exhaustive()
    }
}

/// What came of working a step again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    pub divergences: Vec<Divergence>,
    /// What this program cannot tell.
    pub unchecked: Vec<String>,
}

/// A place where the record and what follows from its inputs differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Divergence {
    pub at: String,
    pub recorded: String,
    pub derived: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}`: the record says {}, working it again gives {}",
            self.at, self.recorded, self.derived
        )
    }
}

impl Replayed {
    fn differs(&mut self, at: impl Into<String>, recorded: &str, derived: &str) {
        self.divergences.push(Divergence {
            at: at.into(),
            recorded: short(recorded),
            derived: short(derived),
        });
    }

    fn unchecked(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.unchecked.contains(&what) {
            self.unchecked.push(what);
        }
    }
}

/// A text on one line, cut where it is long.
pub fn short(text: &str) -> String {
    let line = say::in_one_line(text);
    match line.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// Works a committed step again.
pub fn replay(subject: &Subject<'_>) -> Replayed {
    let mut replayed = Replayed::default();
    if let Some(assembled) = assembled(subject, &mut replayed) {
        compared(subject, &assembled, &mut replayed);
    }
    replayed
}

/// What the step comes to again; `None` where something that was noted stands in the way.
fn assembled(subject: &Subject<'_>, replayed: &mut Replayed) -> Option<Assembled> {
    let record = subject.record;
    let worked = &*record.worked;
    let mut request = message(subject, replayed)?;
    // What the aggregator ends, no orchestrator has taken in.
    let by_aggregator = record.request.is_empty();
    let snapshot = if by_aggregator {
        Arc::default()
    } else {
        Arc::clone(&subject.snapshot)
    };
    let fleet = worked.fleet.clone().unwrap_or_default();
    if !by_aggregator {
        let came_at = worked.came_at.unwrap_or(record.started_at);
        limits::accept(&mut request, &snapshot, &fleet, came_at);
    }
    if conversation::remembers(&request) {
        request
            .control
            .conversation
            .clone_from(&worked.conversation);
        conversation::carry(&mut request, worked.carried.clone());
    }
    if conversation::begins(&request) {
        request.control.memories.clone_from(&worked.memories);
    }
    if quota::is_asked(&request) {
        request.control.quota.clone_from(&worked.quota);
    }
    let spent_before = request.control.spent;
    request.control.spent = spent_before + record.wasted;
    let finish = match (&worked.ended, &record.activity) {
        // What a person says is an input, as what a tool returns.
        (None, Activity::Decided(decided)) => {
            let asked = request.control.held.as_ref().map(|held| &held.approval);
            if asked != Some(&decided.id) {
                let waits = asked.map_or("no call waits", |id| id.as_str());
                replayed.differs("activity.id", decided.id.as_str(), waits);
            }
            approval::answered(&request, decided)
        }
        (Some(ended), _) => {
            refused_again(subject, &request, &snapshot, &fleet, ended, replayed);
            say::ended(ended)
        }
        (None, _) => {
            let situation = situation(subject, &snapshot, fleet, worked.native_tools);
            let mut tape = Tape {
                subject,
                worked,
                next: 0,
                failed: 0,
                replayed,
            };
            tape.play(request.clone(), situation)?
        }
    };
    let prepared = Prepared {
        request,
        request_digest: record.request.clone(),
        properties: properties(record),
        nonce: record.nonce.clone(),
        attempt: record.attempt,
        config_version: record.config_version,
        snapshot,
        started_at: record.started_at,
        spent_before,
        wasted: record.wasted,
        responses: match worked.responses.as_str() {
            "" => topics::AGENT_RESPONSE,
            named => Topic::named(named.to_owned()),
        },
        worked: record.worked.clone(),
    };
    let ending = Ending {
        by: worked.ended.as_ref().map(|ended| ended.by),
        streamed: Streamed::from_noted(&worked.streamed, &finish.said),
        finish,
        calls: record.calls.clone(),
        parked: None,
    };
    Some(prepared.end_as_told(ending, record.committed_at))
}

/// What the step was worked in.
fn situation(
    subject: &Subject<'_>,
    snapshot: &Arc<Snapshot>,
    fleet: FleetLimits,
    native_tools: bool,
) -> Situation {
    let record = subject.record;
    Situation {
        now: record.started_at,
        snapshot: Arc::clone(snapshot),
        fleet: Arc::new(fleet),
        native_tools,
        nonce: record.nonce.clone(),
        fan_in: subject.fan_in.clone(),
    }
}

/// The message that was worked.
fn message(subject: &Subject<'_>, replayed: &mut Replayed) -> Option<AgentRequest> {
    let record = subject.record;
    let mut request: AgentRequest = match serde_json::from_str(subject.request) {
        Ok(request) => request,
        Err(error) => {
            replayed.differs("request", "a message", &format!("no request: {error}"));
            return None;
        }
    };
    let digest = Digest::of(subject.request.as_bytes());
    if !record.request.is_empty() && record.request != digest {
        replayed.differs("request", record.request.as_str(), digest.as_str());
    }
    if request.session_id.is_empty() {
        request.session_id = record.session.clone();
    }
    if request.control.root.is_empty() {
        request.control.root = request.session_id.clone();
    }
    Some(request)
}

/// The properties of the message that was worked: every publication carries them on.
fn properties(record: &StepRecord) -> BTreeMap<String, String> {
    let first = record.publications.first();
    first.map_or_else(BTreeMap::new, |first| carried(&first.properties))
}

/// Whether a request that was refused would be refused again, and for the same reason.
fn refused_again(
    subject: &Subject<'_>,
    request: &AgentRequest,
    snapshot: &Arc<Snapshot>,
    fleet: &FleetLimits,
    ended: &EndedFromOutside,
    replayed: &mut Replayed,
) {
    let is_of_the_moment = |code: &str| {
        [
            error::Code::ReplyToNotAllowed.as_str(),
            error::Code::PatternNotImplemented.as_str(),
            error::Code::NotApproved.as_str(),
        ]
        .contains(&code)
    };
    let Some(recorded) = ended
        .error
        .as_ref()
        .filter(|_| ended.by == EndedBy::Refused)
    else {
        return;
    };
    if is_of_the_moment(&recorded.code) {
        return;
    }
    let left = request.control.quota.as_ref();
    let used_up = left.and_then(|left| quota::refusal(request.tenant(), left));
    if used_up.as_ref() == Some(recorded) {
        return;
    }
    // Looked at before the request is parsed, by a worker whose model costs something.
    if prices::missing(request, snapshot, fleet).as_ref() == Some(recorded) {
        return;
    }
    let situation = situation(subject, snapshot, fleet.clone(), false);
    let derived = match Turn::parse(request.clone(), situation) {
        Err(Rejection::Invalid(error)) if error == *recorded => return,
        Err(Rejection::Invalid(error)) => error.message,
        Err(rejection @ Rejection::NotImplementedHere(_)) => rejection.to_string(),
        Ok(_) => "no refusal".to_owned(),
    };
    replayed.differs("worked.ended", &recorded.message, &derived);
}

/// Compares what is there with what follows.
fn compared(subject: &Subject<'_>, assembled: &Assembled, replayed: &mut Replayed) {
    let bare = |record: &StepRecord| -> Value {
        serde_json::from_slice(&record.bare()).unwrap_or_default()
    };
    let (recorded, derived) = (bare(subject.record), bare(&assembled.record));
    compare::values("", &recorded, &derived, &mut replayed.divergences);
    // What is published follows from the rest: where that differs already, it says nothing new.
    if !replayed.divergences.is_empty() {
        return;
    }
    published(subject, assembled, replayed);
    let (pause, fan_out) = (assembled.pause.as_ref(), assembled.fan_out.as_ref());
    beside("pause", "wait", subject.pause, pause, replayed);
    beside("fanout", "fan-out", subject.fan_out, fan_out, replayed);
}

/// Compares what is committed beside a record.
fn beside<T: Serialize>(
    at: &str,
    what: &str,
    there: Option<&T>,
    derived: Option<&T>,
    replayed: &mut Replayed,
) {
    match (there, derived) {
        (Some(there), Some(derived)) => compare::values(
            at,
            &with_bodies(there),
            &with_bodies(derived),
            &mut replayed.divergences,
        ),
        (None, Some(_)) => replayed.differs(at, "none", &format!("the {what} of this step")),
        (_, None) => {}
    }
}

fn with_bodies<T: Serialize + ?Sized>(value: &T) -> Value {
    compare::with_bodies(serde_json::to_value(value).unwrap_or_default())
}

fn published(subject: &Subject<'_>, assembled: &Assembled, replayed: &mut Replayed) {
    let mut there = subject.record.publications.clone();
    let mut ours = assembled.record.publications.clone();
    // A body that is not stored follows from the record, which was compared.
    let untold = there.iter().zip(&mut ours);
    for (_, ours) in untold.filter(|(there, _)| there.body.is_empty()) {
        ours.body.clear();
    }
    let is_letter = |publication: &Publication| publication.topic == topics::DEAD_LETTER.as_str();
    // A message that was refused is parked with the record.
    if there.len() == ours.len() + 1
        && let Some(letter) = there.pop_if(|last| is_letter(last))
    {
        let digest = Digest::of(letter.body.as_bytes());
        if digest != subject.record.request {
            replayed.differs(
                "publications, the parked message",
                "the request",
                &letter.body,
            );
        }
    }
    let mut found = Vec::new();
    let (recorded, derived) = (with_bodies(&there), with_bodies(&ours));
    compare::values("publications", &recorded, &derived, &mut found);
    // A price that was read back may differ in its last digit, and with it the digest of the record.
    let has_fractions = subject.record.usage.cost != 0.0
        || matches!(&subject.record.activity, Activity::Concluded(end) if !end.confidence.is_empty());
    if found.is_empty() && !has_fractions {
        // The same in other words is another message.
        let pairs = there.iter().zip(&ours).enumerate();
        for (index, (there, ours)) in pairs.filter(|(_, (a, b))| a.body != b.body) {
            replayed.differs(
                format!("publications[{index}].body, as text"),
                Digest::of(there.body.as_bytes()).as_str(),
                Digest::of(ours.body.as_bytes()).as_str(),
            );
        }
    }
    found.retain(|at| !(has_fractions && at.at.ends_with("control.previous")));
    replayed.divergences.extend(found);
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
