//! What replay needs of a step, collected from the stores. Nothing here calls a model or a tool, and
//! nothing writes.

use crate::model;
use agentfleet_config::ConfigStore;
use agentfleet_core::replay::{Divergence, Replayed, Subject, replay};
use agentfleet_core::{ModelAsk, fan_in};
use agentfleet_documents::Documents;
use agentfleet_runtime::Records;
use agentfleet_runtime::records::request_in;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{Call, FanInRecord, StepRecord};
use agentfleet_schema::{AgentRequest, Digest, SessionId, keys};
use std::collections::BTreeMap;
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
    #[error(transparent)]
    Records(#[from] agentfleet_runtime::Error),
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

/// The committed steps of a session, in order; where there are none, why.
pub async fn steps(
    records: Records<'_>,
    session: &SessionId,
) -> Result<Vec<StepRecord>, ReplayError> {
    let steps = records.steps(session).await?;
    if !steps.is_empty() {
        return Ok(steps);
    }
    let session = session.clone();
    if records.is_erased(&session).await? {
        return Err(ReplayError::Erased(session));
    }
    let accepted = records.has(&keys::accepted(&session)).await?;
    Err(match records.has(&keys::closed(&session)).await? {
        _ if !accepted => ReplayError::Unknown(session),
        true => ReplayError::Closed(session),
        false => ReplayError::NotBegun(session),
    })
}

impl Replayer<'_> {
    /// Works a committed step again.
    pub async fn step(&self, record: &StepRecord) -> Result<Replayed, ReplayError> {
        let records = Records::new(self.documents);
        let (session, step) = (&record.session, record.step);
        let key = keys::outcome(session, step);
        let message = records.request_of(record).await?;
        let request = request_in(record, &message)?;
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
        let fan_out = records.fan_out(session, step).await?;
        let pause = records.pause(session, step).await?;
        let texts = read_by(records, record).await?;
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
            fan_in: verdict(records, record, &request).await?.1,
            texts: &texts,
            prompt: &prompt,
        });
        replayed.divergences.extend(self.stored(record).await?);
        Ok(replayed)
    }

    /// Whether the texts that a step left are still those.
    async fn stored(&self, record: &StepRecord) -> Result<Vec<Divergence>, ReplayError> {
        let documents = &record.documents;
        let keys: Vec<String> = documents.iter().map(|d| keys::document(&d.uri)).collect();
        let bodies = self.documents.get_many(&keys).await;
        let bodies = bodies.map_err(agentfleet_runtime::Error::from)?;
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

/// The texts that a step read.
async fn read_by(
    records: Records<'_>,
    record: &StepRecord,
) -> Result<BTreeMap<String, String>, ReplayError> {
    let read = record.calls.iter().filter_map(|call| match call {
        Call::Document { uri, .. } => Some(uri.clone()),
        Call::Model { .. } | Call::Tool { .. } => None,
    });
    let uris: Vec<String> = read.collect();
    let texts = records.texts(&uris).await?;
    let found = uris.into_iter().zip(texts);
    Ok(found.filter_map(|(uri, text)| Some((uri, text?))).collect())
}

/// The verdict that a synthesis answered, as it read it, and the session whose fan-out it is on.
pub async fn verdict<'a>(
    records: Records<'_>,
    record: &'a StepRecord,
    request: &'a AgentRequest,
) -> Result<(&'a SessionId, Option<FanInRecord>), ReplayError> {
    let session = match fan_in::session_of(request) {
        unnamed if unnamed.is_empty() => &record.session,
        session => session,
    };
    let Some(step) = request.control.fan_in_step else {
        return Ok((session, None));
    };
    let found = records.verdict(session, step).await?;
    let read = found.map(|verdict| fan_in::read_by(request, verdict));
    Ok((session, read))
}
