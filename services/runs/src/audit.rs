//! The audit log: what was refused, answered and changed, and by whom.
//!
//! Each entry names the hash of the newest one that its writer knew, and is named by its own hash: one that was
//! changed has another name than it should, and one that was lost is missed by those after it. Writers at the
//! same time make a branch, which is no error. What is cut off at the very end shows only to who noted the
//! newest hash elsewhere.

use agentfleet_documents::{Documents, Error};
use agentfleet_schema::records::AuditEntry;
use agentfleet_schema::{Digest, Millis, keys};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex as Locked, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Of equal refusals one is written within this time.
const QUIET: Duration = Duration::from_secs(10);
/// Kinds of refusals that are remembered.
const MOST_KINDS: usize = 10_000;
/// Entries read at once.
const PAGE: usize = 500;
/// How long ago the newest entry may be that is looked for first: a minute, an hour, a day, a month.
const AGO: [Millis; 4] = [60_000, 3_600_000, 86_400_000, 2_592_000_000];
/// Writers that begin an empty log at the same time each write a first entry; those are this near.
const TOGETHER: Millis = 60_000;
/// Characters of an entry's hash in its key.
const NAMED: usize = 32;

/// Writes the log. One of each process knows what it wrote last.
#[derive(Clone)]
pub struct Audit {
    documents: Arc<dyn Documents>,
    newest: Arc<Mutex<Option<(String, Digest)>>>,
    recent: Arc<Locked<HashMap<Kind, (Instant, u64)>>>,
}

/// Principal, tenant, action, code and reason of a refusal, the reason without its figures.
type Kind = (String, String, String, &'static str, String);
/// Characters of a reason that tell refusals apart.
const TELLING: usize = 120;

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Audit {
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self {
            documents,
            newest: Arc::default(),
            recent: Arc::default(),
        }
    }

    /// Writes an entry, after the newest one there is. Its instant and what it follows are set here.
    pub async fn write(&self, mut entry: AuditEntry, now: Millis) -> Result<(), Error> {
        let mut newest = self.newest.lock().await;
        *newest = self.catch_up(newest.take(), now).await?;
        // Always after what it follows, so that the order of keys is that of the chain.
        let before = newest.as_ref();
        let after = before.and_then(|(key, _)| keys::audit_entry_of(key));
        entry.at = after.map_or(now, |(at, _)| now.max(at + 1));
        entry.previous = before.map(|(_, digest)| digest.clone());
        let body = serde_json::to_vec(&entry).unwrap_or_default();
        let digest = Digest::of(&body);
        let key = keys::audit_entry(entry.at, &name_of(&digest));
        self.documents.ensure(&key, body).await?;
        *newest = Some((key, digest));
        Ok(())
    }

    /// Writes a refusal beside what goes on, so that its caller cannot tell by the time what was refused. Of
    /// equal ones in a row one is written every 10 seconds, which says how many there were.
    pub fn refused(&self, mut entry: AuditEntry, code: &'static str, now: Millis) {
        let kind = (
            entry.principal.clone(),
            entry.tenant.clone(),
            entry.action.clone(),
            code,
            (entry.reason.chars().filter(|c| !c.is_ascii_digit()))
                .take(TELLING)
                .collect(),
        );
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= MOST_KINDS {
            recent.retain(|_, (at, _)| at.elapsed() < QUIET);
        }
        let is_full = recent.len() >= MOST_KINDS;
        match recent.get_mut(&kind) {
            Some((at, more)) if at.elapsed() < QUIET => {
                *more += 1;
                return;
            }
            Some((at, more)) => {
                if *more > 0 {
                    entry.reason = format!("{} ({more} more like it before)", entry.reason);
                }
                (*at, *more) = (Instant::now(), 0);
            }
            None if is_full => return,
            None => {
                recent.insert(kind, (Instant::now(), 0));
            }
        }
        drop(recent);
        let audit = self.clone();
        "refused".clone_into(&mut entry.outcome);
        tokio::spawn(async move {
            if let Err(error) = audit.write(entry, now).await {
                tracing::error!(%error, "a refusal could not be written to the audit log");
            }
        });
    }

    /// The newest entry, from the newest that is known on.
    async fn catch_up(
        &self,
        known: Option<(String, Digest)>,
        now: Millis,
    ) -> Result<Option<(String, Digest)>, Error> {
        let mut last = match &known {
            Some((key, _)) => self.last_after(key).await?,
            None => None,
        };
        if known.is_none() {
            for ago in AGO {
                last = self
                    .last_after(&keys::audit_entry(now - ago, "\u{7f}"))
                    .await?;
                if last.is_some() {
                    break;
                }
            }
            if last.is_none() {
                last = self.last_after("").await?;
            }
        }
        let Some(key) = last else {
            return Ok(known);
        };
        match self.documents.get(&key).await {
            Ok(body) => Ok(body.map(|body| (key, Digest::of(&body))).or(known)),
            // The log goes on after the newest that can still be followed.
            Err(Error::Damaged { .. }) if known.is_some() => Ok(known),
            Err(Error::Damaged { .. }) => {
                let found = logged(&*self.documents, 0).await?;
                let whole = |one: Logged| Some((one.key, one.digest?));
                Ok(found.into_iter().rev().find_map(whole))
            }
            Err(error) => Err(error),
        }
    }

    async fn last_after(&self, key: &str) -> Result<Option<String>, Error> {
        let mut last: Option<String> = None;
        loop {
            let after = last.as_deref().unwrap_or(key);
            let page = self.documents.entries(keys::AUDIT, after, PAGE).await?;
            let is_whole = page.len() < PAGE;
            if let Some(entry) = page.into_iter().next_back() {
                last = Some(entry.key);
            }
            if is_whole {
                return Ok(last);
            }
        }
    }
}

fn name_of(digest: &Digest) -> String {
    digest.as_str().chars().take(NAMED).collect()
}

/// An entry as it is stored.
#[derive(Clone, Debug)]
pub struct Logged {
    pub key: String,
    /// `None` where the store itself cannot read it.
    pub digest: Option<Digest>,
    /// `None` where it cannot be read.
    pub entry: Option<AuditEntry>,
}

impl Logged {
    fn of(key: String, body: &[u8]) -> Self {
        Self {
            key,
            digest: Some(Digest::of(body)),
            entry: serde_json::from_slice(body).ok(),
        }
    }
}

/// The entries since an instant, the oldest first.
pub async fn logged(documents: &dyn Documents, since: Millis) -> Result<Vec<Logged>, Error> {
    let mut after = keys::audit_entry(since, "");
    let mut found = Vec::new();
    loop {
        let page = documents.entries(keys::AUDIT, &after, PAGE).await?;
        let is_whole = page.len() < PAGE;
        let page: Vec<String> = page.into_iter().map(|entry| entry.key).collect();
        if let Some(last) = page.last() {
            after.clone_from(last);
        }
        match documents.get_many(&page).await {
            Ok(bodies) => {
                let pairs = page.into_iter().zip(bodies);
                found.extend(pairs.filter_map(|(key, body)| Some(Logged::of(key, &body?))));
            }
            Err(Error::Damaged { .. }) => {
                for key in page {
                    found.extend(one(documents, key).await?);
                }
            }
            Err(error) => return Err(error),
        }
        if is_whole {
            return Ok(found);
        }
    }
}

/// One entry, by itself: so that one that is damaged keeps no other from being read.
async fn one(documents: &dyn Documents, key: String) -> Result<Option<Logged>, Error> {
    match documents.get(&key).await {
        Ok(body) => Ok(body.map(|body| Logged::of(key, &body))),
        Err(Error::Damaged { .. }) => Ok(Some(Logged {
            key,
            digest: None,
            entry: None,
        })),
        Err(error) => Err(error),
    }
}

/// What came of reading the whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub entries: usize,
    /// Entries that follow one which another follows, too: writers at the same time.
    pub branches: usize,
    /// The hash of the newest entry. Noted elsewhere, it shows whether the end was cut off.
    pub newest: Option<Digest>,
    /// What is not as it was written, one sentence each.
    pub findings: Vec<String>,
}

/// Checks the chain of the whole log.
pub async fn verify(documents: &dyn Documents) -> Result<Report, Error> {
    let found = logged(documents, 0).await?;
    let mut report = Report {
        entries: found.len(),
        newest: found.iter().rev().find_map(|one| one.digest.clone()),
        ..Report::default()
    };
    let first = found.first().and_then(|one| keys::audit_entry_of(&one.key));
    let begins = first.map_or(0, |(at, _)| at);
    // By what an entry was written as: one that was changed is still there, and is told once.
    let names: HashSet<&str> = found.iter().filter_map(|one| named(&one.key)).collect();
    let mut followed = HashSet::new();
    for one in &found {
        let key = &one.key;
        let at = keys::audit_entry_of(key).map_or(0, |(at, _)| at);
        let Some(digest) = &one.digest else {
            let says = format!("entry `{key}` is damaged: the store cannot read it");
            report.findings.push(says);
            continue;
        };
        if named(key) != Some(name_of(digest).as_str()) {
            let says = format!("entry `{key}` was changed: its SHA-256 is now {digest}");
            report.findings.push(says);
            continue;
        }
        let Some(entry) = &one.entry else {
            let says = format!("entry `{key}` cannot be read");
            report.findings.push(says);
            continue;
        };
        if keys::audit_entry(entry.at, &name_of(digest)) != *key {
            let says = format!("entry `{key}` stands at another instant than it says");
            report.findings.push(says);
        }
        match &entry.previous {
            Some(previous) if !names.contains(name_of(previous).as_str()) => {
                let says =
                    format!("the entry with the SHA-256 {previous} is missing: `{key}` follows it");
                report.findings.push(says);
            }
            Some(previous) => report.branches += usize::from(!followed.insert(previous)),
            None if at > begins + TOGETHER => {
                let says = format!("entry `{key}` follows none, and there are older ones");
                report.findings.push(says);
            }
            None => {}
        }
    }
    Ok(report)
}

/// The beginning of the hash that an entry was written with.
fn named(key: &str) -> Option<&str> {
    keys::audit_entry_of(key).map(|(_, id)| id)
}
