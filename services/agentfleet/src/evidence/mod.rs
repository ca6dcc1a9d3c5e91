//! Everything the stores hold of a run, as it is stored, and whether it agrees: what `verify` checks.

mod check;

pub use check::{Counts, check};

use crate::commands::records;
use crate::error::Failure;
use agentfleet_core::audit::{About, Finding, Link, StoredCalls, accepted, identity};
use agentfleet_documents::{Documents, Error};
use agentfleet_runtime::records::AT_ONCE;
use agentfleet_schema::keys::{self, CallPart};
use agentfleet_schema::records::{
    AcceptedRecord, Activity, Asked, DebitRecord, FanInRecord, FanOutRecord, FannedOut,
    OutcomeKind, PauseRecord, StepRecord,
};
use agentfleet_schema::{AgentRequest, SessionId};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

/// What is stored of one session.
#[derive(Debug, Default)]
pub struct Session {
    pub id: SessionId,
    /// Its records, in order.
    pub links: Vec<Link>,
    /// By the step they were committed at.
    pub fan_outs: BTreeMap<u32, FanOutRecord>,
    pub verdicts: BTreeMap<u32, FanInRecord>,
    pub pauses: BTreeMap<u32, PauseRecord>,
    /// Calls with effects, by the step they were made at.
    pub calls: BTreeMap<u32, StoredCalls>,
    /// What attempts at a step debited, by its number and then by place.
    pub debits: BTreeMap<u32, BTreeMap<u32, DebitRecord>>,
    /// The body of the message it began with, where somebody recorded it.
    pub asked: Option<String>,
    /// Whether its parent's verdict says that it was not waited for.
    pub late: bool,
}

impl Session {
    pub fn end(&self) -> Option<&StepRecord> {
        let last = self.links.last().map(|link| &link.record);
        last.filter(|record| record.outcome.is_terminal())
    }

    /// The record of a step, if there is one.
    pub fn step(&self, step: u32) -> Option<&StepRecord> {
        let link = self.links.iter().find(|link| link.step == step);
        link.map(|link| &link.record)
    }

    /// The request that a step answered, where it can be known.
    pub fn request(&self, step: u32) -> Option<AgentRequest> {
        let body = match step.checked_sub(1) {
            None => self.asked.as_deref(),
            Some(before) => match self.step(before)?.outcome {
                OutcomeKind::FanOut => {
                    let fan_out = self.fan_outs.get(&before);
                    fan_out.map(|fan_out| fan_out.synthesis.body.as_str())
                }
                OutcomeKind::Pause => {
                    let pause = self.pauses.get(&before);
                    pause.map(|pause| pause.resume.body.as_str())
                }
                _ => {
                    let published = self.step(before)?.request_for(&self.id);
                    published.map(|publication| publication.body.as_str())
                }
            },
        };
        serde_json::from_str(body?).ok()
    }

    /// The fan-outs its records tell of, by step.
    pub fn fanned_out(&self) -> impl Iterator<Item = (&Link, &FannedOut)> {
        let links = self.links.iter();
        links.filter_map(|link| match &link.record.activity {
            Activity::FannedOut(fanned_out) => Some((link, fanned_out)),
            _ => None,
        })
    }

    /// The waits for people its records tell of, by step.
    pub fn asked(&self) -> impl Iterator<Item = (&Link, &Asked)> {
        let links = self.links.iter();
        links.filter_map(|link| match &link.record.activity {
            Activity::Asked(asked) => Some((link, asked)),
            _ => None,
        })
    }
}

/// A session and every subagent below it, each after its parent. What cannot be read is a finding.
pub async fn gather(
    documents: &dyn Documents,
    top: &SessionId,
) -> Result<(Vec<Session>, Vec<Finding>), Failure> {
    let mut findings = Vec::new();
    let mut sessions = Vec::new();
    let mut seen = HashSet::from([top.clone()]);
    let mut open = VecDeque::from([(top.clone(), None, None)]);
    while let Some((id, asked, late)) = open.pop_front() {
        let mut session = one(documents, id, &mut findings).await?;
        if session.id == *top {
            (session.asked, session.late) = above(documents, &session, &mut findings).await?;
        } else {
            session.asked = asked;
            session.late = late.unwrap_or_default();
        }
        for (Link { record, .. }, fanned_out) in session.fanned_out() {
            let verdict = session.verdicts.get(&record.step);
            for child in &fanned_out.children {
                if seen.insert(child.session.clone()) {
                    let asked = asked_of(record, &child.session);
                    let late = verdict.map(|verdict| is_missing(verdict, &child.session));
                    open.push_back((child.session.clone(), asked, late));
                }
            }
        }
        sessions.push(session);
    }
    Ok((sessions, findings))
}

/// What a record asked of a subagent.
fn asked_of(record: &StepRecord, session: &SessionId) -> Option<String> {
    let published = record.request_for(session);
    published.map(|publication| publication.body.clone())
}

fn is_missing(verdict: &FanInRecord, session: &SessionId) -> bool {
    verdict
        .missing
        .iter()
        .any(|child| child.session == *session)
}

/// What lies above the session that is asked about: the message that began it, and whether its
/// parent waited for it.
async fn above(
    documents: &dyn Documents,
    session: &Session,
    findings: &mut Vec<Finding>,
) -> Result<(Option<String>, bool), Failure> {
    let first = session.links.first().map(|link| &link.record);
    let Some(parent) = first.and_then(|record| record.parent.as_ref()) else {
        let key = keys::accepted(&session.id);
        let keys = std::slice::from_ref(&key);
        let taken_in = bodies(documents, keys, findings).await?.pop().flatten();
        let taken_in = taken_in.and_then(|body| read::<AcceptedRecord>(&key, &body, findings));
        if let Some(taken_in) = &taken_in {
            findings.extend(accepted(&session.id, taken_in, first));
        }
        return Ok((taken_in.map(|taken_in| taken_in.publication.body), false));
    };
    let wanted = [
        keys::outcome(&parent.session, parent.step),
        keys::fan_in(&parent.session, parent.step),
    ];
    let found = bodies(documents, &wanted, findings).await?;
    let body = |at: usize| found.get(at).and_then(Option::as_ref);
    let record = body(0).and_then(|body| read::<StepRecord>(&wanted[0], body, findings));
    let verdict = body(1).and_then(|body| read::<FanInRecord>(&wanted[1], body, findings));
    let asked = record.and_then(|record| asked_of(&record, &session.id));
    let late = verdict.is_some_and(|verdict| is_missing(&verdict, &session.id));
    Ok((asked, late))
}

async fn one(
    documents: &dyn Documents,
    id: SessionId,
    findings: &mut Vec<Finding>,
) -> Result<Session, Failure> {
    // Listed, not counted up: what stands behind a gap is to be found too.
    let (mut steps, mut committed, mut published) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for key in documents.list(&keys::steps(&id)).await? {
        let Some(step) = keys::step_number(&key) else {
            continue;
        };
        steps.insert(step);
        if key == keys::outcome(&id, step) {
            committed.insert(step);
        } else if key == keys::published(&id, step) {
            published.insert(step);
        }
    }
    // After the last record there is no gap that would tell that one is gone, but what it published went out.
    for step in published.difference(&committed) {
        let problem = "is missing, and what it published was sent";
        let key = keys::outcome(&id, *step);
        findings.push(Finding::new(About::Record, key, problem));
    }
    let steps: Vec<u32> = steps.into_iter().collect();
    let mut session = Session {
        id,
        ..Session::default()
    };
    for some in steps.chunks(AT_ONCE / 4) {
        let wanted: Vec<String> = some
            .iter()
            .flat_map(|step| {
                let id = &session.id;
                [
                    keys::outcome(id, *step),
                    keys::fan_out(id, *step),
                    keys::fan_in(id, *step),
                    keys::pause(id, *step),
                ]
            })
            .collect();
        let found = bodies(documents, &wanted, findings).await?;
        for ((step, keys), bodies) in some.iter().zip(wanted.chunks(4)).zip(found.chunks(4)) {
            let [outcome, fan_out, fan_in, pause] = bodies else {
                continue;
            };
            if let Some(body) = outcome
                && let Some(record) = read(&keys[0], body, findings)
            {
                match identity(body) {
                    Some(identity) => session.links.push(Link {
                        step: *step,
                        record,
                        identity,
                    }),
                    None => findings.push(Finding::new(
                        About::Record,
                        &keys[0],
                        "does not say what it published, so it has no identity",
                    )),
                }
            }
            session
                .fan_outs
                .extend(stored(*step, &keys[1], fan_out.as_deref(), findings));
            session
                .verdicts
                .extend(stored(*step, &keys[2], fan_in.as_deref(), findings));
            session
                .pauses
                .extend(stored(*step, &keys[3], pause.as_deref(), findings));
        }
    }
    beside(documents, &mut session, findings).await?;
    Ok(session)
}

/// The record of a step, if it has one that can be read.
fn stored<T: DeserializeOwned>(
    step: u32,
    key: &str,
    body: Option<&[u8]>,
    findings: &mut Vec<Finding>,
) -> Option<(u32, T)> {
    Some((step, read(key, body?, findings)?))
}

/// What lies beside the records of steps: calls with effects, and debits. It is written before the record
/// of its step, so it is looked for after those were read.
async fn beside(
    documents: &dyn Documents,
    session: &mut Session,
    findings: &mut Vec<Finding>,
) -> Result<(), Failure> {
    let listed = documents.list(&keys::steps(&session.id)).await?;
    let is_part =
        |key: &&String| keys::debit_place(key).is_some() || keys::call_part(key).is_some();
    let parts: Vec<(u32, String)> = listed
        .iter()
        .filter(is_part)
        .filter_map(|key| Some((keys::step_number(key)?, key.clone())))
        .collect();
    for some in parts.chunks(AT_ONCE) {
        let wanted: Vec<String> = some.iter().map(|(_, key)| key.clone()).collect();
        let found = bodies(documents, &wanted, findings).await?;
        for ((step, key), body) in some.iter().zip(found) {
            let Some(body) = body else { continue };
            if let Some(place) = keys::debit_place(key) {
                let debits = session.debits.entry(*step).or_default();
                debits.extend(read(key, &body, findings).map(|debit| (place, debit)));
            } else if let Some((number, part)) = keys::call_part(key) {
                let calls = session.calls.entry(*step).or_default();
                let call = calls.entry(number).or_default();
                match part {
                    CallPart::Intent => call.0 = read(key, &body, findings),
                    CallPart::Result => call.1 = read(key, &body, findings),
                }
            }
        }
    }
    Ok(())
}

/// The bodies stored under `keys`. One that is damaged is a finding, and counts as not there.
async fn bodies(
    documents: &dyn Documents,
    keys: &[String],
    findings: &mut Vec<Finding>,
) -> Result<Vec<Option<Arc<[u8]>>>, Failure> {
    match documents.get_many(keys).await {
        Err(Error::Damaged { .. }) => {}
        found => return Ok(found?),
    }
    // One is enough to fail them all: which it is is found one by one.
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        found.push(match documents.get(key).await {
            Err(Error::Damaged { .. }) => {
                let problem = "is damaged: it cannot be unpacked";
                findings.push(Finding::new(about(key), key, problem));
                None
            }
            body => body?,
        });
    }
    Ok(found)
}

fn about(key: &str) -> About {
    match key.rsplit_once('/') {
        Some((_, "fanout")) => About::FanOut,
        Some((_, "fanin")) => About::Verdict,
        Some((_, "pause")) => About::Wait,
        _ => About::Record,
    }
}

/// What a body holds; one that cannot be read is a finding.
fn read<T: DeserializeOwned>(key: &str, body: &[u8], findings: &mut Vec<Finding>) -> Option<T> {
    match serde_json::from_slice(body) {
        Ok(record) => Some(record),
        Err(error) => {
            let problem = format!("cannot be read: {error}");
            findings.push(Finding::new(about(key), key, problem));
            None
        }
    }
}

/// The session a text names, if anything is stored of it.
pub(crate) async fn named(store: &crate::store::Store, text: &str) -> Result<SessionId, Failure> {
    let session = records::session(store, text).await?;
    if store
        .documents
        .list(&keys::steps(&session))
        .await?
        .is_empty()
    {
        let erased = records::erased(store, &session).await?;
        return Err(erased.unwrap_or_else(|| {
            Failure::not_found(format!("nothing is recorded of a session `{session}`"))
                .hint(records::how_to_name(text))
        }));
    }
    Ok(session)
}
