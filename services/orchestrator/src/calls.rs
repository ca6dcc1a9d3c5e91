//! Calling tools. A call that changes something outside is started at most once per step (TL-1):
//! an intent record is created before it and a result record after it, and whoever meets a foreign
//! intent adopts that call and drops its own.
//!
//! A step that ends without a call is committed with a fence where its intent would be. An attempt that
//! is still about to make that call finds it and stops; and who finds a call there instead tells it.
//! So no call is made that no record tells.

use crate::Parts;
use crate::attempts::Attempts;
use crate::error::Stop;
use crate::model;
use agentfleet_broker::Delivery;
use agentfleet_core::{ToolUse, bounds, pipeline, words};
use agentfleet_documents::Documents;
use agentfleet_runtime::CLOCK_SKEW;
use agentfleet_schema::config::{Fallbacks, Snapshot, ToolItem};
use agentfleet_schema::keys;
use agentfleet_schema::records::{CallStatus, FailedTry, IntentRecord, ResultRecord, Trouble};
use agentfleet_schema::{AgentRequest, LONGEST_MS, millis};
use agentfleet_tools::{CallContext, ToolCall, ToolResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a call came to; `ran` is the call that was made, which may be another attempt's.
pub(crate) struct Called {
    pub ran: (String, BTreeMap<String, String>),
    pub result: ToolResult,
    /// Tries of it that failed around the tool.
    pub tried: Vec<FailedTry>,
}

/// A call that is not made, because its tenant made all that it may for now.
pub(crate) fn limited(tool_use: ToolUse, locale: &str) -> Called {
    let why = Trouble::RateLimited;
    let limit = tool_use.tool.rate_limit.unwrap_or_default();
    let error = format!("{} calls in {} ms", limit.calls, limit.per_ms);
    Called {
        result: failed(pipeline::words(&tool_use.tool, why, locale)),
        ran: (tool_use.tool.name, tool_use.arguments),
        tried: vec![FailedTry {
            of: String::new(),
            why,
            error,
        }],
    }
}

/// Makes one call of a step.
pub(crate) struct Caller<'a> {
    pub parts: &'a Parts,
    pub request: &'a AgentRequest,
    pub snapshot: &'a Arc<Snapshot>,
    /// Where tools that ask a model may go.
    pub fallbacks: Fallbacks,
    pub nonce: &'a str,
    pub attempts: &'a Attempts<'a>,
    pub delivery: &'a Delivery,
}

/// What stands where a call of this attempt would.
enum Claim {
    Own,
    Foreign(IntentRecord),
}

impl Caller<'_> {
    /// Makes a call that may be made any number of times, and again where it failed around the tool.
    pub(crate) async fn call(&self, tool_use: ToolUse) -> Result<Called, Stop> {
        let ran = (tool_use.tool.name.clone(), tool_use.arguments.clone());
        let (mut tried, mut tries) = (Vec::new(), 0);
        loop {
            let result = self.run(tool_use.clone(), 0).await?;
            tried.extend(model::tried(&result.tried));
            let is_last = tries >= tool_use.tool.retries() || self.is_out_of_time();
            tries += 1;
            let Some(why) = result.trouble else {
                return Ok(Called { ran, result, tried });
            };
            let again = !is_last;
            let error = bounds::reason(&result.content).into_owned();
            tried.push(FailedTry {
                of: String::new(),
                why,
                error,
            });
            if !again {
                let result = self.told_otherwise(&tool_use.tool, result);
                return Ok(Called { ran, result, tried });
            }
        }
    }

    fn is_out_of_time(&self) -> bool {
        self.parts.host.now() >= self.request.control.hard_deadline
    }

    async fn run(&self, tool_use: ToolUse, number: u32) -> Result<ToolResult, Stop> {
        let request = self.request;
        let call = ToolCall {
            tool: tool_use.tool,
            arguments: tool_use.arguments,
            collection: request.collection.clone(),
            context: CallContext {
                session: request.session_id.to_string(),
                root: request.root().to_string(),
                tenant: request.tenant().to_owned(),
                user: request.asker().to_owned(),
                now: self.parts.host.now(),
                lineage: request.control.lineage.clone(),
                idempotency_key: format!("{}/{}/{number}", request.session_id, request.step),
                config: Arc::clone(self.snapshot),
                fallbacks: self.fallbacks,
            },
        };
        Ok(self.parts.tools.call(call).await?)
    }

    /// Creates the intent of a call. Where the fence of another attempt is in its place, that one has ended
    /// the step.
    async fn claim(&self, own: &IntentRecord, number: u32) -> Result<Claim, Stop> {
        let documents = &*self.parts.documents;
        let (session, step) = (&self.request.session_id, self.request.step);
        let key = keys::intent(session, step, number);
        let Some(there) = documents.create_or_get(&key, bytes(own)).await? else {
            return Ok(Claim::Own);
        };
        let there: IntentRecord = decode(&key, &there)?;
        if there.nonce == own.nonce {
            return Ok(Claim::Own);
        }
        let again = |reason| Stop::Postpone {
            reason,
            after: Duration::ZERO,
        };
        if there.fence {
            if let Some(record) = there.record {
                let outcome = keys::outcome(session, step);
                documents.ensure(&outcome, record.into()).await?;
            }
            return Err(again("another attempt ended this step".to_owned()));
        }
        // The config changed before the run had its first record, and the other one works under what
        // was there before: whoever comes next is pinned to that.
        if let (Some(theirs), Some(ours)) = (there.config_version, own.config_version)
            && theirs != ours
        {
            return Err(again(format!(
                "another attempt calls a tool under config version {theirs}"
            )));
        }
        Ok(Claim::Foreign(there))
    }

    /// Whether nobody knows what became of an equal call in this tree.
    pub(crate) async fn is_unknown(
        &self,
        tool: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<bool, Stop> {
        let key = keys::unknown_call(self.request.root(), tool, arguments);
        Ok(self.parts.documents.get(&key).await?.is_some())
    }

    /// Makes a call that may be made once.
    pub(crate) async fn once(&self, tool_use: ToolUse, number: u32) -> Result<Called, Stop> {
        let documents = &*self.parts.documents;
        let (session, step) = (&self.request.session_id, self.request.step);
        let longest = Duration::from_millis(LONGEST_MS);
        let timeout = self.parts.tools.timeout(&tool_use.tool).min(longest);
        let now = self.parts.host.now();
        let own = IntentRecord {
            tool: tool_use.tool.name.clone(),
            arguments: tool_use.arguments.clone(),
            nonce: self.nonce.to_owned(),
            lease_until: now + millis(timeout.saturating_add(CLOCK_SKEW)),
            config_version: self.request.control.config_version,
            ..IntentRecord::default()
        };
        if let Claim::Foreign(intent) = self.claim(&own, number).await? {
            return self.adopt(intent, number).await;
        }
        let result_key = keys::result(session, step, number);
        let tool = tool_use.tool.clone();
        let result = self.run(tool_use, number).await.unwrap_or_else(|stop| {
            // The call may have been made: its outcome is settled here, never tried again.
            failed(format!("Error: the call could not be completed: {stop}"))
        });
        let mut tried = model::tried(&result.tried);
        let result = match result.trouble {
            Some(why) => {
                let error = bounds::reason(&result.content).into_owned();
                tried.push(FailedTry {
                    of: String::new(),
                    why,
                    error,
                });
                self.told_otherwise(&tool, result)
            }
            None => result,
        };
        let record = ResultRecord {
            status: if result.is_error {
                CallStatus::Error
            } else {
                CallStatus::Ok
            },
            content: result.content.clone(),
            sources: result.sources.clone(),
        };
        let there = documents.create_or_get(&result_key, bytes(&record)).await?;
        if there.is_some() {
            // Somebody gave up on this attempt while the call was still running.
            return self.adopt(own, number).await;
        }
        Ok(Called {
            ran: (own.tool, own.arguments),
            result,
            tried,
        })
    }

    /// Takes another attempt's call as this step's. While its owner may live the result is waited for; an
    /// outcome that is called unknown too early needs a person.
    pub(crate) async fn adopt(&self, intent: IntentRecord, number: u32) -> Result<Called, Stop> {
        let documents = &*self.parts.documents;
        let result_key = keys::result(&self.request.session_id, self.request.step, number);
        if let Some(record) = read::<ResultRecord>(documents, &result_key).await? {
            return self.adopted(intent, record).await;
        }
        if !self.parts.host.is_gone(&intent.nonce) {
            self.wait_for(&intent).await?;
        }
        let unknown = ResultRecord {
            status: CallStatus::Unknown,
            ..ResultRecord::default()
        };
        let record = settle(documents, &result_key, unknown).await?;
        self.adopted(intent, record).await
    }

    /// Waits for the owner of a call, while it may be alive.
    async fn wait_for(&self, intent: &IntentRecord) -> Result<(), Stop> {
        let step = (&self.request.session_id, self.request.step);
        let owner = self
            .attempts
            .wait_for_owner(step, &intent.nonce, self.delivery);
        let left = intent.lease_until - self.parts.host.now();
        // Where attempts are not noted, the call is waited for as long as it may take.
        if owner.await? || left <= 0 {
            return Ok(());
        }
        Err(Stop::Postpone {
            reason: format!("another attempt is calling `{}`", intent.tool),
            after: Duration::from_millis(left.unsigned_abs()),
        })
    }

    async fn adopted(&self, intent: IntentRecord, record: ResultRecord) -> Result<Called, Stop> {
        let result = match record.status {
            CallStatus::Ok | CallStatus::Error => ToolResult {
                is_error: record.status == CallStatus::Error,
                content: record.content,
                sources: record.sources,
                ..ToolResult::default()
            },
            CallStatus::Unknown => {
                let root = self.request.root();
                let key = keys::unknown_call(root, &intent.tool, &intent.arguments);
                settle(&*self.parts.documents, &key, intent.clone()).await?;
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
            tried: Vec::new(),
        })
    }

    /// A result in words for people; what failed, and how, is told beside it.
    fn told_otherwise(&self, tool: &ToolItem, result: ToolResult) -> ToolResult {
        match result.trouble {
            Some(why) => ToolResult {
                content: pipeline::words(tool, why, words::locale(self.request, self.snapshot)),
                ..result
            },
            None => result,
        }
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
fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

async fn read<T: DeserializeOwned>(
    documents: &dyn Documents,
    key: &str,
) -> Result<Option<T>, Stop> {
    let body = documents.get(key).await?;
    body.map(|body| decode(key, &body)).transpose()
}

fn decode<T: DeserializeOwned>(key: &str, body: &[u8]) -> Result<T, Stop> {
    serde_json::from_slice(body).map_err(|error| Stop::unreadable(key, &error))
}

/// Creates a record, and answers with the one that is there then.
async fn settle<T: Serialize + DeserializeOwned>(
    documents: &dyn Documents,
    key: &str,
    own: T,
) -> Result<T, Stop> {
    match documents.create_or_get(key, bytes(&own)).await? {
        Some(there) => decode(key, &there),
        None => Ok(own),
    }
}
