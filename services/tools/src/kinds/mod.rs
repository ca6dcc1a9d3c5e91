//! One file for each kind of tool. A new kind is a file here and a line in `registry.rs`.

mod agent;
mod document_fetch;
mod document_search;
mod http;
mod http_address;
mod http_target;
mod knowledge_query;
mod memory;
mod model;
mod prompt;
mod read_back;
mod sparql;
mod text_completion;

pub(crate) use agent::Agent;
pub(crate) use document_fetch::DocumentFetch;
pub(crate) use document_search::DocumentSearch;
pub(crate) use http::Http;
pub(crate) use knowledge_query::KnowledgeQuery;
pub(crate) use memory::{Doing, Memory};
pub(crate) use prompt::Prompt;
pub(crate) use read_back::ReadBack;
pub(crate) use sparql::Sparql;
pub(crate) use text_completion::TextCompletion;

use crate::{CallContext, Error, ToolResult};
use agentfleet_library::Library;
use agentfleet_schema::CollectionName;
use agentfleet_schema::arguments::Arguments;
use agentfleet_schema::config::{ToolArgument, ToolItem};
use async_trait::async_trait;
use std::time::Duration;

/// How long kinds may take, at least, that ask a model or wait until the index of a shared library is
/// built.
const PATIENT: Duration = Duration::from_secs(60);

/// A call whose arguments were checked.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) tool: ToolItem,
    pub(crate) arguments: Arguments,
    /// The only collection the call may see.
    pub(crate) collection: CollectionName,
    pub(crate) context: CallContext,
    /// How long the call may take in all.
    pub(crate) timeout: Duration,
}

impl Call {
    /// Most results to return.
    fn limit(&self, otherwise: usize) -> usize {
        let asked = self
            .tool
            .limit
            .and_then(|limit| usize::try_from(limit).ok());
        asked.unwrap_or(otherwise).clamp(1, 1_000)
    }
}

/// A kind of tool.
#[async_trait]
pub(crate) trait ToolKind: Send + Sync + 'static {
    /// The arguments of a tool of this kind.
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument>;

    /// How long a call may take where its item does not say; `usual` is the fleet's.
    fn patience(&self, usual: Duration) -> Duration {
        usual
    }

    /// Makes the call. What goes wrong in it is a result; an error is a fault of the stores.
    async fn call(&self, call: Call) -> Result<ToolResult, Error>;
}

/// An argument that may be left out.
fn optional(name: &str, kind: &str, description: &str) -> ToolArgument {
    ToolArgument {
        name: name.to_owned(),
        kind: kind.to_owned(),
        description: description.to_owned(),
        required: false,
    }
}

/// Says that a collection holds nothing, or nothing that matches. `what` are the things looked for,
/// such as `passages`. What other collections there are is not for this call to know.
async fn nothing(
    library: &Library,
    collection: &CollectionName,
    what: &str,
    asked: &str,
) -> Result<ToolResult, Error> {
    let content = match library.count(collection).await? {
        0 => format!("No documents have been loaded into collection `{collection}`."),
        1 => {
            format!("No {what} of collection `{collection}` match `{asked}`. It holds 1 document.")
        }
        count => format!(
            "No {what} of collection `{collection}` match `{asked}`. It holds {count} documents."
        ),
    };
    Ok(ToolResult {
        content,
        ..ToolResult::default()
    })
}
