//! What replay needs of a step, collected from the stores. Nothing here calls a model or a tool, and
//! nothing writes.

use crate::model;
use agentfleet_config::ConfigStore;
use agentfleet_core::replay::{Divergence, Replayed, Subject, replay};
use agentfleet_core::{ModelAsk, fan_in};
use agentfleet_documents::Documents;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    AcceptedRecord, Call, FanInRecord, FanOutRecord, OutcomeKind, PauseRecord, StepRecord,
};
use agentfleet_schema::{AgentRequest, Digest, SessionId, keys};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a step cannot be worked again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("there is no session `{0}`")]
    Unknown(SessionId),
    #[error("session `{0}` has not begun: it has no steps yet")]
    NotBegun(SessionId),
    #[error("session `{0}` was ended before its first step: it has no steps")]
    Closed(SessionId),
    #[error("session `{session}` has no step {step}: its steps are 0 to {last}")]
    NoStep {
        session: SessionId,
        step: u32,
        last: u32,
    },
    #[error("session `{0}` was erased: its records are gone")]
    Erased(SessionId),
    #[error("record `{key}` is missing: {what}")]
    Missing { key: String, what: &'static str },
    #[error("record `{key}` cannot be read: {reason}")]
    Unreadable { key: String, reason: String },
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
    #[error("config version {version} of `{key}` cannot be read: {error}")]
    Config {
        key: String,
        version: u64,
        error: agentfleet_config::Error,
    },
}

/// Works committed steps again.
pub struct Replayer<'a> {
    pub documents: &'a dyn Documents,
    pub config: &'a dyn ConfigStore,
    /// As in [`crate::Options`].
    pub default_prompts: &'a Snapshot,
}

impl std::fmt::Debug for Replayer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayer").finish_non_exhaustive()
    }
}

/// The committed steps of a session, in order. A hole among them, or one that cannot be read, is an
/// error.
pub async fn steps(
    documents: &dyn Documents,
    session: &SessionId,
) -> Result<Vec<StepRecord>, ReplayError> {
    let folder = format!("sessions/{session}/steps/");
    let listed = documents.list(&folder).await?;
    let numbers: BTreeSet<u32> = listed
        .iter()
        .filter_map(|key| {
            key.strip_prefix(&folder)?
                .strip_suffix("/outcome")?
                .parse()
                .ok()
        })
        .collect();
    let Some(last) = numbers.last() else {
        if documents.get(&keys::tombstone(session)).await?.is_some() {
            return Err(ReplayError::Erased(session.clone()));
        }
        let wanted = [keys::accepted(session), keys::closed(session)];
        let found = documents.get_many(&wanted).await?;
        let is_there = |at: usize| found.get(at).is_some_and(Option::is_some);
        return Err(match (is_there(0), is_there(1)) {
            (true, true) => ReplayError::Closed(session.clone()),
            (true, false) => ReplayError::NotBegun(session.clone()),
            (false, _) => ReplayError::Unknown(session.clone()),
        });
    };
    let mut steps = Vec::new();
    for step in 0..=*last {
        let key = keys::outcome(session, step);
        steps.push(needed(documents, &key, "a later step of the session is there").await?);
    }
    Ok(steps)
}

/// The subagents that the steps of a session started.
pub fn children(steps: &[StepRecord]) -> impl Iterator<Item = &SessionId> {
    use agentfleet_schema::records::Activity;
    let started = steps.iter().filter_map(|record| match &record.activity {
        Activity::FannedOut(fan_out) => Some(&fan_out.children),
        _ => None,
    });
    started.flatten().map(|child| &child.session)
}

/// The message that a committed step worked.
pub async fn request_of(
    documents: &dyn Documents,
    record: &StepRecord,
) -> Result<String, ReplayError> {
    if let Some(request) = record.worked.as_ref().and_then(|w| w.request.clone()) {
        return Ok(request);
    }
    let session = &record.session;
    let (key, what) = match (&record.parent, record.step) {
        (Some(parent), 0) => (
            keys::outcome(&parent.session, parent.step),
            "the fan-out that started this subagent",
        ),
        (None, 0) => {
            let key = keys::accepted(session);
            let what = "it holds what the session was asked";
            let accepted: AcceptedRecord = needed(documents, &key, what).await?;
            return Ok(accepted.publication.body);
        }
        (_, step) => (keys::outcome(session, step - 1), "the step before"),
    };
    let before: StepRecord = needed(documents, &key, what).await?;
    if before.outcome == OutcomeKind::FanOut && before.session == *session {
        let key = keys::fan_out(session, before.step);
        let fan_out: FanOutRecord =
            needed(documents, &key, "it holds the synthesis request").await?;
        return Ok(fan_out.synthesis.body);
    }
    if before.outcome == OutcomeKind::Pause {
        let key = keys::pause(session, before.step);
        let pause: PauseRecord =
            needed(documents, &key, "it holds the request that was answered").await?;
        return Ok(pause.resume.body);
    }
    before
        .request_for(session)
        .map(|publication| publication.body.clone())
        .ok_or(ReplayError::Unreadable {
            key,
            reason: format!("it publishes no request for session `{session}`"),
        })
}

impl Replayer<'_> {
    /// Works a committed step again.
    pub async fn step(&self, record: &StepRecord) -> Result<Replayed, ReplayError> {
        let documents = self.documents;
        let key = keys::outcome(&record.session, record.step);
        let message = request_of(documents, record).await?;
        let request: AgentRequest =
            serde_json::from_str(&message).map_err(|error| ReplayError::Unreadable {
                key: key.clone(),
                reason: format!("its request: {error}"),
            })?;
        let snapshot = if record.request.is_empty() {
            // Ended by the aggregator, which takes no config into account.
            Arc::default()
        } else {
            let version = record.config_version;
            let found = self.config.snapshot_at(version).await;
            found.map_err(|error| ReplayError::Config {
                key,
                version,
                error,
            })?
        };
        let fan_out_key = keys::fan_out(&record.session, record.step);
        let fan_out: Option<FanOutRecord> = read(documents, &fan_out_key).await?;
        let pause_key = keys::pause(&record.session, record.step);
        let pause: Option<PauseRecord> = read(documents, &pause_key).await?;
        let texts = self.texts(record).await?;
        let prompt = |ask: &ModelAsk| {
            model::messages(ask, &request, &snapshot, self.default_prompts)
                .map(|messages| model::prompt_text(&messages))
        };
        let mut replayed = replay(&Subject {
            record,
            fan_out: fan_out.as_ref(),
            pause: pause.as_ref(),
            request: &message,
            snapshot: Arc::clone(&snapshot),
            fan_in: verdict(documents, record, &request).await?,
            texts: &texts,
            prompt: &prompt,
        });
        replayed.divergences.extend(self.stored(record).await?);
        Ok(replayed)
    }

    /// The texts that a step read.
    async fn texts(&self, record: &StepRecord) -> Result<BTreeMap<String, String>, ReplayError> {
        let read = record.calls.iter().filter_map(|call| match call {
            Call::Document { uri, .. } => Some(uri.clone()),
            Call::Model { .. } | Call::Tool { .. } | Call::Facts { .. } => None,
        });
        let uris: Vec<String> = read.collect();
        let keys: Vec<String> = uris.iter().map(|uri| keys::document(uri)).collect();
        let bodies = self.documents.get_many(&keys).await?;
        let found = uris.into_iter().zip(bodies);
        Ok(found
            .filter_map(|(uri, body)| Some((uri, String::from_utf8_lossy(&body?).into_owned())))
            .collect())
    }

    /// Whether the texts that a step left are still those.
    async fn stored(&self, record: &StepRecord) -> Result<Vec<Divergence>, ReplayError> {
        let documents = &record.documents;
        let keys: Vec<String> = documents.iter().map(|d| keys::document(&d.uri)).collect();
        let bodies = self.documents.get_many(&keys).await?;
        let mut found = Vec::new();
        for (document, body) in documents.iter().zip(bodies) {
            let there = body.map(|body| Digest::of(&body));
            if there.as_ref() != Some(&document.digest) {
                found.push(Divergence {
                    at: format!("document `{}`", document.uri),
                    recorded: document.digest.to_string(),
                    derived: there.map_or_else(|| "no text is there".to_owned(), |d| d.to_string()),
                });
            }
        }
        Ok(found)
    }
}

/// The verdict that a synthesis answered.
async fn verdict(
    documents: &dyn Documents,
    record: &StepRecord,
    request: &AgentRequest,
) -> Result<Option<FanInRecord>, ReplayError> {
    let Some(step) = request.control.fan_in_step else {
        return Ok(None);
    };
    let session = match fan_in::session_of(request) {
        unnamed if unnamed.is_empty() => &record.session,
        session => session,
    };
    let found: Option<FanInRecord> = read(documents, &keys::fan_in(session, step)).await?;
    Ok(found.map(|verdict| fan_in::read_by(request, verdict)))
}

async fn needed<T: DeserializeOwned>(
    documents: &dyn Documents,
    key: &str,
    what: &'static str,
) -> Result<T, ReplayError> {
    let found = read(documents, key).await?;
    found.ok_or_else(|| ReplayError::Missing {
        key: key.to_owned(),
        what,
    })
}

async fn read<T: DeserializeOwned>(
    documents: &dyn Documents,
    key: &str,
) -> Result<Option<T>, ReplayError> {
    let Some(body) = documents.get(key).await? else {
        return Ok(None);
    };
    let read = serde_json::from_slice(&body);
    read.map(Some).map_err(|error| ReplayError::Unreadable {
        key: key.to_owned(),
        reason: error.to_string(),
    })
}
