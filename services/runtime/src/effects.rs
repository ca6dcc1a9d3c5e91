//! Side-effecting calls that attempts at a step made, as their records tell.
//!
//! A record that ends a step without having adopted them tells them all the same: whatever was
//! started stands in the history of the run.

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_schema::keys::{self, CallPart};
use agentfleet_schema::records::{Call, IntentRecord, ResultRecord};
use agentfleet_schema::{Millis, SessionId, millis};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How long a fence keeps others from making a call. Whoever put it begins to commit the step in the
/// first half of that, or not at all: the other half is for a store that is slow, and for clocks that
/// differ. Only a call waits for it, and only for a fence whose owner died at that very moment.
const FENCE: Duration = Duration::from_secs(90);

/// A fence of an attempt that is about to end a step without a call of its own.
pub fn fence(nonce: &str, now: Millis) -> IntentRecord {
    IntentRecord {
        nonce: nonce.to_owned(),
        fence: true,
        lease_until: now + millis(FENCE),
        ..IntentRecord::default()
    }
}

/// Whether who put a fence up to `until` may still commit the step.
pub fn still_holds(until: Option<Millis>, now: Millis) -> bool {
    until.is_none_or(|until| now < until - millis(FENCE) / 2)
}

/// What there is of calls when a step is ended over the heads of those who work it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Started {
    pub calls: Vec<Call>,
    /// Until when none starts, where none was.
    pub fenced: Option<Millis>,
}

/// The calls of a step that were started. Where there is none, a fence is put in the way of whoever is
/// still about to make one: no record would tell of it. `nonce` is of who ends the step.
pub async fn close(
    documents: &dyn Documents,
    (session, step): (&SessionId, u32),
    nonce: &str,
    now: Millis,
) -> Result<Started, Error> {
    let folder = keys::calls(session, step);
    let own = fence(nonce, now);
    // Plain data: writing it as JSON cannot fail.
    let body = serde_json::to_vec(&own).unwrap_or_default();
    let fenced = Started {
        fenced: Some(own.lease_until),
        ..Started::default()
    };
    loop {
        let mut calls = Vec::new();
        let mut free = 0;
        for key in documents.list(&folder).await? {
            let Some((number, CallPart::Intent)) = keys::call_part(&key) else {
                continue;
            };
            free = free.max(number + 1);
            let Some(intent) = read::<IntentRecord>(documents, &key).await? else {
                continue;
            };
            if !intent.fence {
                let key = keys::result(session, step, number);
                let result = read::<ResultRecord>(documents, &key).await?;
                calls.push(intent.told(result));
            }
        }
        if !calls.is_empty() {
            // A step makes one call: whoever comes to it adopts the one that is there.
            return Ok(Started {
                calls,
                ..Started::default()
            });
        }
        let key = keys::intent(session, step, free);
        // What is there decides, and may be a call.
        if documents.create_or_get(&key, body.clone()).await?.is_none() {
            return Ok(fenced);
        }
    }
}

async fn read<T: DeserializeOwned>(
    documents: &dyn Documents,
    key: &str,
) -> Result<Option<T>, Error> {
    let Some(body) = documents.get(key).await? else {
        return Ok(None);
    };
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(|error| Error::Unreadable {
            key: key.to_owned(),
            reason: error.to_string(),
        })
}
