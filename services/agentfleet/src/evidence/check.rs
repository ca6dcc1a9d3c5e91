//! What is stored of a run against itself: everything that needs no graph.

use super::{Session, bodies};
use crate::error::Failure;
use agentfleet_config::ConfigStore;
use agentfleet_core::audit::{self, About, Finding, Link};
use agentfleet_documents::Documents;
use agentfleet_runtime::records::AT_ONCE;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{Activity, Call, Executed, StepRecord};
use agentfleet_schema::{Digest, SessionId, keys};
use serde::Serialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub sessions: u64,
    pub records: u64,
    pub documents: u64,
    /// For whoever holds the graph against them.
    pub triples: u64,
    pub choices: u64,
}

/// Holds the records of a tree against each other, against what they refer to, and against the config
/// of their time.
pub async fn check(
    documents: &dyn Documents,
    config: &dyn ConfigStore,
    sessions: &[Session],
    findings: &mut Vec<Finding>,
) -> Result<Counts, Failure> {
    for session in sessions {
        let asked = session.asked.as_deref();
        findings.extend(audit::chain(&session.id, &session.links, asked));
        for Link { record, .. } in &session.links {
            let calls = session.calls.get(&record.step).cloned();
            findings.extend(audit::calls(record, &calls.unwrap_or_default()));
            let debits = session.debits.get(&record.step).cloned();
            findings.extend(audit::account(record, &debits.unwrap_or_default()));
        }
    }
    findings.extend(joins(sessions));
    Ok(Counts {
        sessions: sessions.len() as u64,
        triples: 0,
        records: sessions.iter().map(|one| one.links.len() as u64).sum(),
        documents: texts(documents, sessions, findings).await?,
        choices: choices(config, sessions, findings).await?,
    })
}

fn joins(sessions: &[Session]) -> Vec<Finding> {
    let ends: BTreeMap<SessionId, &StepRecord> = sessions
        .iter()
        .filter_map(|session| Some((session.id.clone(), session.end()?)))
        .collect();
    let mut findings = Vec::new();
    for session in sessions {
        for (link, fanned_out) in session.fanned_out() {
            let record = &link.record;
            let next = session.step(record.step + 1);
            let fan_out = session.fan_outs.get(&record.step);
            findings.extend(audit::fan_out(link, fanned_out, fan_out, next));
            let verdict = session.verdicts.get(&record.step);
            findings.extend(audit::verdict(record, fanned_out, verdict, &ends, next));
        }
        for (link, asked) in session.asked() {
            let next = session.step(link.step + 1);
            let stored = session.pauses.get(&link.step);
            findings.extend(audit::pause(link, asked, stored, next));
        }
        let fanned_out: BTreeSet<u32> = session.fanned_out().map(|(link, _)| link.step).collect();
        let asked: BTreeSet<u32> = session.asked().map(|(link, _)| link.step).collect();
        let mut untold = |about, key: String, what: &str| {
            let problem = format!("is there, and the record of its step tells of no {what}");
            findings.push(Finding::new(about, key, problem));
        };
        for step in session
            .fan_outs
            .keys()
            .filter(|step| !fanned_out.contains(step))
        {
            untold(About::FanOut, keys::fan_out(&session.id, *step), "fan-out");
        }
        for step in session
            .verdicts
            .keys()
            .filter(|step| !fanned_out.contains(step))
        {
            untold(About::Verdict, keys::fan_in(&session.id, *step), "fan-out");
        }
        for step in session.pauses.keys().filter(|step| !asked.contains(step)) {
            untold(About::Wait, keys::pause(&session.id, *step), "wait");
        }
    }
    findings
}

/// Every text that a record refers to by its digest, as written or as read.
async fn texts(
    documents: &dyn Documents,
    sessions: &[Session],
    findings: &mut Vec<Finding>,
) -> Result<u64, Failure> {
    let mut wanted: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let empty = Digest::of(b"");
    for record in sessions.iter().flat_map(|one| &one.links) {
        let record = &record.record;
        for written in &record.documents {
            let of_it = wanted.entry(&written.uri).or_default();
            of_it.insert((written.digest.as_str(), "was written"));
        }
        for call in &record.calls {
            // What was not there yet was read as nothing.
            if let Call::Document { uri, digest, .. } = call
                && *digest != empty
            {
                let of_it = wanted.entry(uri).or_default();
                of_it.insert((digest.as_str(), "was read"));
            }
        }
    }
    let uris: Vec<&str> = wanted.keys().copied().collect();
    for some in uris.chunks(AT_ONCE) {
        let keys: Vec<String> = some.iter().map(|uri| keys::document(uri)).collect();
        let mut damaged = Vec::new();
        let bodies = bodies(documents, &keys, &mut damaged).await?;
        for ((uri, key), body) in some.iter().zip(&keys).zip(bodies) {
            let Some(body) = body else {
                if let Some(found) = damaged.iter().find(|found| found.what == *key) {
                    findings.push(Finding::new(About::Document, *uri, found.problem.clone()));
                    continue;
                }
                let problem = "is missing, and a record refers to it";
                findings.push(Finding::new(About::Document, *uri, problem));
                continue;
            };
            let now = Digest::of(&body);
            for (digest, how) in wanted.get(*uri).into_iter().flatten() {
                if *digest != now.as_str() {
                    let problem = format!("{how} with the digest {digest}, and has {now} now");
                    findings.push(Finding::new(About::Document, *uri, problem));
                }
            }
        }
    }
    Ok(wanted.len() as u64)
}

/// Every choice against its options, and those against the config that the run was pinned to.
async fn choices(
    config: &dyn ConfigStore,
    sessions: &[Session],
    findings: &mut Vec<Finding>,
) -> Result<u64, Failure> {
    let mut sets: BTreeMap<u64, Option<Arc<Snapshot>>> = BTreeMap::new();
    let mut count = 0;
    for session in sessions {
        for link in &session.links {
            let record = &link.record;
            let routed = record.routed.iter().flat_map(|routed| &routed.decisions);
            let tool = matches!(
                record.activity,
                Activity::Iterated(_) | Activity::Executed(Executed { call: Some(_), .. })
            );
            let made = routed.count() + record.decisions.len() + usize::from(tool);
            if made == 0 {
                continue;
            }
            count += made as u64;
            let version = record.config_version;
            if let Entry::Vacant(unread) = sets.entry(version) {
                let set = match config.snapshot_at(version).await {
                    // An end from outside may name none.
                    _ if version == 0 => Some(Arc::default()),
                    Ok(set) => Some(set),
                    Err(
                        error @ (agentfleet_config::Error::UnknownVersion { .. }
                        | agentfleet_config::Error::Damaged { .. }),
                    ) => {
                        let what = format!("config version {version}");
                        findings.push(Finding::new(About::Config, what, error.to_string()));
                        None
                    }
                    Err(error) => return Err(error.into()),
                };
                unread.insert(set);
            }
            if let Some(Some(set)) = sets.get(&version) {
                let asked = session.request(link.step);
                findings.extend(audit::choices(record, asked.as_ref(), set));
            }
        }
    }
    Ok(count)
}
