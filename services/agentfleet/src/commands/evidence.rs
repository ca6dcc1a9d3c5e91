//! Everything the stores hold of a run, as it is stored: what `verify` checks.

use super::records;
use crate::error::Failure;
use agentfleet_core::audit::{About, Finding, Link, identity};
use agentfleet_documents::{Documents, Error};
use agentfleet_schema::records::{
    AcceptedRecord, Activity, FanInRecord, FanOutRecord, FannedOut, OutcomeKind, PauseRecord,
    StepRecord,
};
use agentfleet_schema::topics::{AGENT_REQUEST, property};
use agentfleet_schema::{AgentRequest, SessionId, keys};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

/// Keys read in one round trip.
pub(crate) const AT_ONCE: usize = 200;

/// What is stored of one session.
#[derive(Debug)]
pub(crate) struct Session {
    pub id: SessionId,
    /// Its records, in order.
    pub links: Vec<Link>,
    /// By the step they were committed at.
    pub fan_outs: BTreeMap<u32, FanOutRecord>,
    pub verdicts: BTreeMap<u32, FanInRecord>,
    pub pauses: BTreeMap<u32, PauseRecord>,
    /// The body of the message it began with, where somebody recorded it.
    pub asked: Option<String>,
    /// Whether its parent's verdict says that it was not waited for.
    pub late: bool,
}

impl Session {
    pub(crate) fn end(&self) -> Option<&StepRecord> {
        let last = self.links.last().map(|link| &link.record);
        last.filter(|record| record.outcome.is_terminal())
    }

    /// The record of a step, if there is one.
    pub(crate) fn step(&self, step: u32) -> Option<&StepRecord> {
        let link = self.links.iter().find(|link| link.step == step);
        link.map(|link| &link.record)
    }

    /// The request that a step answered, where it can be known.
    pub(crate) fn request(&self, step: u32) -> Option<AgentRequest> {
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
                _ => published(self.step(before)?, &self.id),
            },
        };
        serde_json::from_str(body?).ok()
    }

    /// The fan-outs its records tell of, by step.
    pub(crate) fn fanned_out(&self) -> impl Iterator<Item = (&StepRecord, &FannedOut)> {
        self.links.iter().filter_map(|link| {
            fanned_out(&link.record).map(|fanned_out| (&link.record, fanned_out))
        })
    }
}

fn fanned_out(record: &StepRecord) -> Option<&FannedOut> {
    match &record.activity {
        Activity::FannedOut(fanned_out) => Some(fanned_out),
        _ => None,
    }
}

/// The request a record published for a session.
fn published<'a>(record: &'a StepRecord, session: &SessionId) -> Option<&'a str> {
    let of_it = record.publications.iter().find(|publication| {
        publication.topic == AGENT_REQUEST.as_str()
            && publication
                .properties
                .get(property::SESSION)
                .map(String::as_str)
                == Some(session.as_str())
    });
    of_it.map(|publication| publication.body.as_str())
}

/// A session and every subagent below it, each after its parent. What cannot be read is a finding.
pub(crate) async fn gather(
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
        for (record, fanned_out) in session.fanned_out() {
            let verdict = session.verdicts.get(&record.step);
            for child in &fanned_out.children {
                if seen.insert(child.session.clone()) {
                    let asked = published(record, &child.session).map(str::to_owned);
                    let late = verdict.map(|verdict| is_missing(verdict, &child.session));
                    open.push_back((child.session.clone(), asked, late));
                }
            }
        }
        sessions.push(session);
    }
    Ok((sessions, findings))
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
        let accepted = bodies(documents, keys, findings).await?.pop().flatten();
        let accepted = accepted.and_then(|body| read::<AcceptedRecord>(&key, &body, findings));
        return Ok((accepted.map(|accepted| accepted.publication.body), false));
    };
    let wanted = [
        keys::outcome(&parent.session, parent.step),
        keys::fan_in(&parent.session, parent.step),
    ];
    let found = bodies(documents, &wanted, findings).await?;
    let body = |at: usize| found.get(at).and_then(Option::as_ref);
    let record = body(0).and_then(|body| read::<StepRecord>(&wanted[0], body, findings));
    let verdict = body(1).and_then(|body| read::<FanInRecord>(&wanted[1], body, findings));
    let asked = record.and_then(|record| published(&record, &session.id).map(str::to_owned));
    let late = verdict.is_some_and(|verdict| is_missing(&verdict, &session.id));
    Ok((asked, late))
}

async fn one(
    documents: &dyn Documents,
    id: SessionId,
    findings: &mut Vec<Finding>,
) -> Result<Session, Failure> {
    // Listed, not counted up: what stands behind a gap is to be found too.
    let folder = format!("sessions/{id}/steps/");
    let (mut steps, mut committed, mut published) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for key in documents.list(&folder).await? {
        let rest = key.strip_prefix(&folder).unwrap_or_default();
        let Some((step, _)) = rest.split_once('/') else {
            continue;
        };
        let Ok(step) = step.parse::<u32>() else {
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
        links: Vec::new(),
        fan_outs: BTreeMap::new(),
        verdicts: BTreeMap::new(),
        pauses: BTreeMap::new(),
        asked: None,
        late: false,
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
            if let Some(body) = fan_out
                && let Some(record) = read(&keys[1], body, findings)
            {
                session.fan_outs.insert(*step, record);
            }
            if let Some(body) = fan_in
                && let Some(record) = read(&keys[2], body, findings)
            {
                session.verdicts.insert(*step, record);
            }
            if let Some(body) = pause
                && let Some(record) = read(&keys[3], body, findings)
            {
                session.pauses.insert(*step, record);
            }
        }
    }
    Ok(session)
}

/// The bodies stored under `keys`. One that is damaged is a finding, and counts as not there.
pub(crate) async fn bodies(
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
        _ => About::Record,
    }
}

/// What a body holds; one that cannot be read is a finding.
pub(crate) fn read<T: DeserializeOwned>(
    key: &str,
    body: &[u8],
    findings: &mut Vec<Finding>,
) -> Option<T> {
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
    let folder = format!("sessions/{session}/steps/");
    if store.documents.list(&folder).await?.is_empty() {
        return Err(
            Failure::not_found(format!("nothing is recorded of a session `{session}`"))
                .hint(records::how_to_name(text)),
        );
    }
    Ok(session)
}
