//! Side-effecting calls that attempts at a step made, as their records tell.
//!
//! A record that ends a step without having adopted them tells them all the same: whatever was
//! started stands in the history of the run.

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_schema::records::{Call, CallStatus, IntentRecord, ResultRecord};
use agentfleet_schema::{SessionId, keys};
use serde::de::DeserializeOwned;

/// The calls of a step that were started, in order.
pub async fn started(
    documents: &dyn Documents,
    session: &SessionId,
    step: u32,
) -> Result<Vec<Call>, Error> {
    let folder = keys::calls(session, step);
    let mut calls = Vec::new();
    for key in documents.list(&folder).await? {
        let Some(call) = key.strip_suffix("/intent") else {
            continue;
        };
        let Some(intent) = read::<IntentRecord>(documents, &key).await? else {
            continue;
        };
        if intent.fence {
            continue;
        }
        let result = read::<ResultRecord>(documents, &format!("{call}/result")).await?;
        let result = result.unwrap_or_default();
        calls.push(Call::Tool {
            name: intent.tool,
            arguments: intent.arguments,
            is_error: result.status != CallStatus::Ok,
            result: match result.status {
                CallStatus::Ok | CallStatus::Error => result.content,
                CallStatus::Unknown => "started; its end is unknown".to_owned(),
            },
            ms: 0,
            sources: result.sources,
            adopted: None,
        });
    }
    Ok(calls)
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
