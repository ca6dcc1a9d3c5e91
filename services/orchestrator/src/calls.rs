//! Calling tools. A call that changes something outside is started at most once per step (TL-1):
//! an intent record is created before it and a result record after it, and whoever meets a foreign
//! intent adopts that call and drops its own.

use crate::error::Stop;
use crate::{Options, Parts};
use agentfleet_core::ToolUse;
use agentfleet_documents::{Created, Documents};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{CallStatus, IntentRecord, ResultRecord};
use agentfleet_schema::{AgentRequest, Digest, keys};
use agentfleet_tools::{CallContext, ToolCall, ToolResult};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Added to a lease, for clocks that differ.
const SKEW: Duration = Duration::from_secs(2);

/// What a call came to; `ran` is the call that was made, which may be another attempt's.
pub(crate) struct Called {
    pub ran: (String, BTreeMap<String, String>),
    pub result: ToolResult,
}

/// Makes one call of a step.
pub(crate) struct Caller<'a> {
    pub parts: &'a Parts,
    pub options: &'a Options,
    pub request: &'a AgentRequest,
    pub snapshot: &'a Arc<Snapshot>,
    pub nonce: &'a str,
    /// Number of the call within the step.
    pub number: u32,
}

impl Caller<'_> {
    pub(crate) async fn call(&self, tool_use: ToolUse) -> Result<Called, Stop> {
        if self.parts.tools.has_side_effects(&tool_use.tool) {
            self.once(tool_use).await
        } else {
            let ran = (tool_use.tool.name.clone(), tool_use.arguments.clone());
            Ok(Called {
                ran,
                result: self.run(tool_use).await?,
            })
        }
    }

    async fn run(&self, tool_use: ToolUse) -> Result<ToolResult, Stop> {
        let request = self.request;
        let call = ToolCall {
            tool: tool_use.tool,
            arguments: tool_use.arguments,
            collection: request.collection.clone(),
            context: CallContext {
                session: request.session_id.to_string(),
                idempotency_key: format!("{}/{}/{}", request.session_id, request.step, self.number),
                config: Arc::clone(self.snapshot),
            },
        };
        Ok(self.parts.tools.call(call).await?)
    }

    async fn once(&self, tool_use: ToolUse) -> Result<Called, Stop> {
        let documents = &*self.parts.documents;
        let (session, step) = (&self.request.session_id, self.request.step);
        let intent_key = keys::intent(session, step, self.number);
        let result_key = keys::result(session, step, self.number);
        let unknown_key = self.unknown_key(&tool_use);
        if documents.get(&unknown_key).await?.is_some() {
            return Ok(Called {
                ran: (tool_use.tool.name.clone(), tool_use.arguments.clone()),
                result: failed(format!(
                    "Error: an equal call of `{}` was started earlier in this run and nobody knows \
                     whether it took effect. It is not made again without a person: say so in the \
                     answer.",
                    tool_use.tool.name
                )),
            });
        }
        let timeout = tool_use
            .tool
            .timeout_ms
            .map_or(self.options.tool_timeout, Duration::from_millis);
        let now = self.parts.host.now();
        let own = IntentRecord {
            tool: tool_use.tool.name.clone(),
            arguments: tool_use.arguments.clone(),
            nonce: self.nonce.to_owned(),
            lease_until: now + (timeout + SKEW).as_millis() as i64,
        };
        let intent = loop {
            if documents.create(&intent_key, bytes(&own)).await? == Created::New {
                break own.clone();
            }
            // What is there decides; nothing there means the store's reply was wrong.
            if let Some(there) = read::<IntentRecord>(documents, &intent_key).await? {
                break there;
            }
        };
        if intent.nonce != own.nonce {
            return self.adopt(intent, &result_key, &unknown_key).await;
        }
        let result = self.run(tool_use).await.unwrap_or_else(|stop| {
            // The call may have been made: its outcome is settled here, never tried again.
            failed(format!("Error: the call could not be completed: {stop}"))
        });
        let record = ResultRecord {
            status: if result.is_error {
                CallStatus::Error
            } else {
                CallStatus::Ok
            },
            content: result.content.clone(),
            sources: result.sources.clone(),
        };
        if documents.create(&result_key, bytes(&record)).await? == Created::Exists {
            // Somebody gave up on this attempt while the call was still running.
            return self.adopt(intent, &result_key, &unknown_key).await;
        }
        Ok(Called {
            ran: (intent.tool, intent.arguments),
            result,
        })
    }

    /// Takes another attempt's call as this step's.
    async fn adopt(
        &self,
        intent: IntentRecord,
        result_key: &str,
        unknown_key: &str,
    ) -> Result<Called, Stop> {
        let documents = &*self.parts.documents;
        if let Some(record) = read::<ResultRecord>(documents, result_key).await? {
            return self.adopted(intent, record, unknown_key).await;
        }
        let left = intent.lease_until - self.parts.host.now();
        if left > 0 {
            return Err(Stop::Postpone {
                reason: format!("another attempt is calling `{}`", intent.tool),
                after: Duration::from_millis(left.unsigned_abs()),
            });
        }
        let unknown = ResultRecord {
            status: CallStatus::Unknown,
            ..ResultRecord::default()
        };
        documents.create(result_key, bytes(&unknown)).await?;
        let record = read::<ResultRecord>(documents, result_key)
            .await?
            .unwrap_or(unknown);
        self.adopted(intent, record, unknown_key).await
    }

    async fn adopted(
        &self,
        intent: IntentRecord,
        record: ResultRecord,
        unknown_key: &str,
    ) -> Result<Called, Stop> {
        let result = match record.status {
            CallStatus::Ok | CallStatus::Error => ToolResult {
                is_error: record.status == CallStatus::Error,
                content: record.content,
                sources: record.sources,
                ..ToolResult::default()
            },
            CallStatus::Unknown => {
                self.parts
                    .documents
                    .create(unknown_key, bytes(&intent))
                    .await?;
                failed(format!(
                    "Error: `{}` was started, but its worker died before its result was known. It \
                     may or may not have taken effect, and is not made again by itself.",
                    intent.tool
                ))
            }
        };
        Ok(Called {
            ran: (intent.tool, intent.arguments),
            result,
        })
    }

    /// Where it is remembered that nobody knows what became of such a call in this tree.
    fn unknown_key(&self, tool_use: &ToolUse) -> String {
        let call = bytes(&(&tool_use.tool.name, &tool_use.arguments));
        format!(
            "trees/{}/unknown/{}",
            self.request.root(),
            Digest::of(&call)
        )
    }
}

fn failed(content: String) -> ToolResult {
    ToolResult {
        content,
        is_error: true,
        ..ToolResult::default()
    }
}

/// Records are plain data: writing one as JSON cannot fail.
fn bytes<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

async fn read<T: DeserializeOwned>(
    documents: &dyn Documents,
    key: &str,
) -> Result<Option<T>, Stop> {
    let Some(body) = documents.get(key).await? else {
        return Ok(None);
    };
    match serde_json::from_slice(&body) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Stop::Retry {
            reason: format!("record `{key}` cannot be read: {error}"),
            after: Duration::from_secs(30),
        }),
    }
}
