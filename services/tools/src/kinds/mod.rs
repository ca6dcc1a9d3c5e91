//! One file for each kind of tool. A new kind is a file here and a line in `registry.rs`.

mod agent;
mod document_fetch;
mod document_search;
pub(crate) mod http;
pub(crate) mod http_address;
mod http_target;
mod knowledge_query;
mod mcp;
mod memory;
mod model;
mod prompt;
mod read_back;
mod sparql;
mod text_completion;
mod tool_service;

pub(crate) use agent::Agent;
pub(crate) use document_fetch::DocumentFetch;
pub(crate) use document_search::DocumentSearch;
pub(crate) use http::Http;
pub(crate) use knowledge_query::KnowledgeQuery;
pub(crate) use mcp::Mcp;
pub(crate) use memory::{Doing, Memory};
pub(crate) use prompt::Prompt;
pub(crate) use read_back::ReadBack;
pub(crate) use sparql::Sparql;
pub(crate) use text_completion::TextCompletion;
pub(crate) use tool_service::Services;

use crate::secrets::Used;
use crate::{CallContext, Error, ToolResult};
use agentfleet_documents::Documents;
use agentfleet_graph::Graph;
use agentfleet_library::Library;
use agentfleet_schema::CollectionName;
use agentfleet_schema::arguments::Arguments;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::Trouble;
use async_trait::async_trait;
use std::time::Duration;

/// How long kinds may take, at least, that ask a model or wait until the index of a shared library is
/// built.
const PATIENT: Duration = Duration::from_secs(60);

/// What is told of kinds that ask the model, which costs something.
const ASKS_THE_MODEL: &str =
    "asks the model of the fleet, which `agentfleet doctor` asks for a word";

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

    /// Whether a call could be made: what it reaches is there, and so are its secrets. Nothing is called.
    async fn look(&self, tool: &ToolItem, config: &Snapshot) -> Result<String, String>;

    /// Makes the call. What goes wrong in it is a result; an error is a fault of the stores.
    async fn call(&self, call: Call) -> Result<ToolResult, Error>;
}

/// What is wrong with a call.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) trouble: Option<Trouble>,
    pub(crate) says: String,
}

impl Failed {
    /// Something around the tool that may pass.
    pub(crate) fn away(says: impl Into<String>) -> Self {
        Self {
            trouble: Some(Trouble::Unavailable),
            says: says.into(),
        }
    }
}

impl From<String> for Failed {
    fn from(says: String) -> Self {
        let trouble = None;
        Self { trouble, says }
    }
}

/// What came of a call to a service, without the secrets that it was sent.
fn settled(tried: Result<ToolResult, Failed>, used: &Used) -> ToolResult {
    let mut result = tried.unwrap_or_else(|failed| ToolResult {
        trouble: failed.trouble,
        ..ToolResult::error(failed.says)
    });
    result.content = used.taken_out(&result.content).into_owned();
    for source in &mut result.sources {
        source.uri = used.taken_out(&source.uri).into_owned();
        source.title = used.taken_out(&source.title).into_owned();
    }
    result
}

/// Whether the library answers.
async fn library_answers(library: &Library) -> Result<String, String> {
    let held = library
        .holdings()
        .await
        .map_err(|error| error.to_string())?;
    Ok(format!("the library holds {} collections", held.len()))
}

/// Whether the documents store answers.
async fn documents_answer(documents: &dyn Documents) -> Result<String, String> {
    let asked = documents.get("memories/none").await;
    asked.map_err(|error| error.to_string())?;
    Ok("the records answer".to_owned())
}

/// Whether the graph answers.
async fn graph_answers(graph: &dyn Graph) -> Result<String, String> {
    graph.ready().await.map_err(|error| error.to_string())?;
    Ok("the graph answers".to_owned())
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
