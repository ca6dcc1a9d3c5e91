//! `memory-get`, `memory-set`, `memory-list`, `memory-delete`: what is remembered for who asks, or for all of
//! their tenant, beyond the run.

use super::{Call, ToolKind, documents_answer, optional};
use crate::memories::{Memories, Refused};
use crate::{Error, ToolResult};
use agentfleet_documents::Documents;
use agentfleet_schema::arguments::text;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::MemoryRecord;
use async_trait::async_trait;
use std::sync::Arc;

const DAY: i64 = 24 * 60 * 60 * 1_000;
/// Longest that something may be remembered, in days, where an end is given.
const MOST_DAYS: usize = 3_650;

/// What is done with what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Get,
    Set,
    List,
    Delete,
}

pub(crate) struct Memory {
    pub(crate) doing: Doing,
    pub(crate) documents: Arc<dyn Documents>,
}

#[async_trait]
impl ToolKind for Memory {
    fn arguments(&self, _: &ToolItem) -> Vec<ToolArgument> {
        let name = || text("name", "a short name, such as `tone`");
        let whose = optional(
            "for",
            "string",
            "`me` for who asks (usual), `everyone` for all of the same tenant",
        );
        match self.doing {
            Doing::Get | Doing::Delete => vec![name(), whose],
            Doing::List => vec![whose],
            Doing::Set => vec![
                name(),
                text("value", "what to remember, in few words"),
                optional("days", "integer", "for how many days; for ever if left out"),
                whose,
            ],
        }
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        documents_answer(&*self.documents).await
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let context = &call.context;
        let user = match call.arguments.text("for") {
            "" | "me" => context.user.as_str(),
            "everyone" => "",
            other => {
                let wrong = format!("`for` must be `me` or `everyone`, not `{other}`");
                return Ok(ToolResult::error(wrong));
            }
        };
        let memories = Memories {
            documents: &*self.documents,
            tenant: &context.tenant,
            user,
        };
        let name = call.arguments.text("name").trim();
        let content = match self.doing {
            Doing::Get => match memories.get(name, context.now).await? {
                Some(found) => found.value,
                None => format!("Nothing is remembered as `{name}`."),
            },
            Doing::List => {
                let all = memories.all(context.now).await?;
                let lines = all.iter().map(|one| format!("{}: {}", one.name, one.value));
                let lines: Vec<String> = lines.collect();
                if lines.is_empty() {
                    "Nothing is remembered.".to_owned()
                } else {
                    lines.join("\n")
                }
            }
            Doing::Delete => {
                if memories.forget(name).await? {
                    format!("`{name}` is forgotten.")
                } else {
                    format!("Nothing was remembered as `{name}`.")
                }
            }
            Doing::Set => {
                let days = call.arguments.count("days").unwrap_or_default();
                if days > MOST_DAYS {
                    let wrong = format!("`days` must be at most {MOST_DAYS}, not {days}");
                    return Ok(ToolResult::error(wrong));
                }
                let record = MemoryRecord {
                    name: name.to_owned(),
                    value: call.arguments.text("value").trim().to_owned(),
                    tenant: context.tenant.clone(),
                    user: user.to_owned(),
                    written_at: context.now,
                    session: context.session.clone(),
                    expires_at: match days {
                        0 => 0,
                        days => context.now + days as i64 * DAY,
                    },
                };
                match memories.set(record, &context.idempotency_key).await? {
                    Ok(()) => format!("`{name}` is remembered."),
                    Err(refused @ (Refused::Name | Refused::Value(_) | Refused::Full)) => {
                        return Ok(ToolResult::error(refused.to_string()));
                    }
                }
            }
        };
        Ok(ToolResult {
            content,
            ..ToolResult::default()
        })
    }
}
