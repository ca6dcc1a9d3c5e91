//! The kinds of tools there are, and how any of them is called.
//!
//! A call is checked before it starts, runs in a task of its own within the tool's time, and always
//! comes to a result: what goes wrong inside, panics included, is told to the agent.

use crate::kinds::{
    Agent, Call, DocumentFetch, DocumentSearch, Doing, Http, KnowledgeQuery, Mcp, Memory, Prompt,
    ReadBack, Services, Sparql, TextCompletion, ToolKind,
};
use crate::mcp::Servers;
use crate::{Error, Secrets, ToolCall, ToolResult, Tools};
use agentfleet_broker::Broker;
use agentfleet_documents::Documents;
use agentfleet_graph::Graph;
use agentfleet_library::Library;
use agentfleet_models::ChatModel;
use agentfleet_schema::CollectionName;
use agentfleet_schema::arguments::{self, Arguments};
use agentfleet_schema::config::{Snapshot, ToolItem, tool_kind};
use agentfleet_schema::records::Trouble;
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

/// How long one tool is looked at; a program of an MCP server may take a minute to start.
const LOOK: Duration = Duration::from_secs(90);
/// How many are looked at together.
const LOOKS: usize = 16;

/// All kinds of tools, by the name config items use.
pub struct Toolbox {
    kinds: BTreeMap<&'static str, Arc<dyn ToolKind>>,
    /// Longest a call may take where the tool does not say.
    timeout: Duration,
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toolbox")
            .field("kinds", &self.kinds.keys())
            .field("timeout", &self.timeout)
            .finish()
    }
}

impl Toolbox {
    /// Every kind this program has but services over a queue. One line each.
    pub fn new(
        library: Library,
        documents: Arc<dyn Documents>,
        graph: Arc<dyn Graph>,
        model: Arc<dyn ChatModel>,
        timeout: Duration,
        secrets: Secrets,
        servers: Servers,
    ) -> Result<Self, Error> {
        let search = DocumentSearch(library.clone());
        let fetch = DocumentFetch(library.clone());
        let completion = TextCompletion(Arc::clone(&model));
        let memory = |doing| -> Arc<dyn ToolKind> {
            let documents = Arc::clone(&documents);
            Arc::new(Memory { doing, documents })
        };
        let sparql = Sparql(Arc::clone(&graph));
        let kinds: [(_, Arc<dyn ToolKind>); 14] = [
            (tool_kind::AGENT, Arc::new(Agent)),
            (tool_kind::MEMORY_GET, memory(Doing::Get)),
            (tool_kind::MEMORY_SET, memory(Doing::Set)),
            (tool_kind::MEMORY_LIST, memory(Doing::List)),
            (tool_kind::MEMORY_DELETE, memory(Doing::Delete)),
            (tool_kind::SPARQL, Arc::new(sparql)),
            (tool_kind::MCP, Arc::new(Mcp(servers))),
            (tool_kind::DOCUMENT_SEARCH, Arc::new(search)),
            (tool_kind::DOCUMENT_FETCH, Arc::new(fetch)),
            (
                tool_kind::KNOWLEDGE_QUERY,
                Arc::new(KnowledgeQuery { library, graph }),
            ),
            (tool_kind::TEXT_COMPLETION, Arc::new(completion)),
            (tool_kind::PROMPT, Arc::new(Prompt(model))),
            (tool_kind::HTTP, Arc::new(Http::new(secrets)?)),
            (tool_kind::READ_BACK, Arc::new(ReadBack(documents))),
        ];
        let kinds = kinds.into();
        Ok(Self { kinds, timeout })
    }

    /// With services that are asked over a queue.
    #[must_use]
    pub fn with_services(mut self, broker: Arc<dyn Broker>) -> Self {
        let services = Arc::new(Services::new(broker));
        self.kinds.insert(tool_kind::TOOL_SERVICE, services);
        self
    }

    /// The names of the kinds, as a config item's `type` gives them.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.kinds.keys().copied().collect()
    }

    /// Whether each of some tools could be called: what it reaches is there, and so are its secrets. Nothing is
    /// called.
    pub async fn look<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolItem>,
        config: &Snapshot,
    ) -> Vec<(&'a ToolItem, Result<String, String>)> {
        let looks = tools.into_iter().map(|tool| async move {
            let Some(kind) = self.kinds.get(tool.kind.as_str()) else {
                return (tool, Err(format!("unknown type `{}`", tool.kind)));
            };
            let looked = tokio::time::timeout(LOOK, kind.look(tool, config)).await;
            let late = |_| Err(format!("no answer within {LOOK:?}"));
            (tool, looked.unwrap_or_else(late))
        });
        stream::iter(looks).buffered(LOOKS).collect().await
    }
}

#[async_trait]
impl Tools for Toolbox {
    fn parameters(&self, tool: &ToolItem) -> Value {
        if let Some(parameters) = &tool.parameters {
            return parameters.clone();
        }
        match self.kinds.get(tool.kind.as_str()) {
            Some(kind) => arguments::schema(&kind.arguments(tool)),
            None => arguments::schema(&tool.arguments),
        }
    }

    fn timeout(&self, tool: &ToolItem) -> Duration {
        let kind = self.kinds.get(tool.kind.as_str());
        let usual = || kind.map_or(self.timeout, |kind| kind.patience(self.timeout));
        tool.timeout_ms.map_or_else(usual, Duration::from_millis)
    }

    async fn call(&self, call: ToolCall) -> Result<ToolResult, Error> {
        let Some(kind) = self.kinds.get(call.tool.kind.as_str()).cloned() else {
            let known: Vec<String> = self.kinds.keys().map(|name| format!("`{name}`")).collect();
            return Ok(ToolResult::error(format!(
                "tool `{}` has the unknown type `{}` (available: {})",
                call.tool.name,
                call.tool.kind,
                known.join(", ")
            )));
        };
        let arguments = match Arguments::check(&kind.arguments(&call.tool), &call.arguments) {
            Ok(arguments) => arguments,
            Err(faults) => return Ok(ToolResult::error(faults)),
        };
        let name = call.tool.name.clone();
        let timeout = self.timeout(&call.tool);
        let collection = match &call.tool.collection {
            Some(own) if !own.is_empty() => CollectionName::from(own.as_str()),
            _ => call.collection,
        };
        let call = Call {
            tool: call.tool,
            arguments,
            collection,
            context: call.context,
            timeout,
        };
        let task = async move { kind.call(call).await }.in_current_span();
        // Dropping the handle ends the task: nobody waits for it any more.
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        match tokio::time::timeout(timeout, task).await {
            Ok(Ok(result)) => Ok(result?.without_credentials()),
            Ok(Err(failed)) if failed.is_panic() => {
                tracing::error!(tool = name, "a tool panicked");
                Ok(ToolResult::error(format!(
                    "tool `{name}` failed inside; try another way"
                )))
            }
            Ok(Err(_)) => Err(Error::Stopped),
            Err(_) => Ok(ToolResult::troubled(
                Trouble::Timeout,
                format!(
                    "tool `{name}` did not end within {timeout:?}; ask for less, or allow it more with `timeout-ms`"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::CallContext;
    use agentfleet_schema::config::{Fallbacks, ToolArgument};

    /// Does what its tool's name says.
    struct Odd;

    #[async_trait]
    impl ToolKind for Odd {
        fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
            tool.arguments.clone()
        }

        async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
            Err("odd".to_owned())
        }

        async fn call(&self, call: Call) -> Result<ToolResult, Error> {
            match call.tool.name.as_str() {
                "panics" => panic!("as asked"),
                "hangs" | "hangs longer" => std::future::pending().await,
                _ => Ok(ToolResult {
                    content: call.collection.to_string(),
                    ..ToolResult::default()
                }),
            }
        }
    }

    async fn call(name: &str, kind: &str, own: Option<&str>) -> ToolResult {
        let call = ToolCall {
            tool: ToolItem {
                name: name.into(),
                kind: kind.into(),
                collection: own.map(Into::into),
                // Its own where it is named so, else the fleet's.
                timeout_ms: (name == "hangs").then_some(20),
                ..ToolItem::default()
            },
            arguments: BTreeMap::new(),
            collection: "of the request".into(),
            context: CallContext {
                session: String::new(),
                root: String::new(),
                tenant: String::new(),
                user: String::new(),
                now: 0,
                lineage: Vec::new(),
                idempotency_key: String::new(),
                config: Arc::new(Snapshot::default()),
                fallbacks: Fallbacks::default(),
            },
        };
        let odd: Arc<dyn ToolKind> = Arc::new(Odd);
        let toolbox = Toolbox {
            kinds: BTreeMap::from([("odd", odd)]),
            timeout: Duration::from_millis(30),
        };
        toolbox.call(call).await.unwrap()
    }

    #[tokio::test]
    async fn every_failure_inside_a_tool_is_a_result() {
        for (name, kind, expected) in [
            (
                "x",
                "none",
                "tool `x` has the unknown type `none` (available: `odd`)",
            ),
            (
                "panics",
                "odd",
                "tool `panics` failed inside; try another way",
            ),
            ("hangs", "odd", "tool `hangs` did not end within 20ms"),
            (
                "hangs longer",
                "odd",
                "tool `hangs longer` did not end within 30ms",
            ),
        ] {
            let result = call(name, kind, None).await;
            assert!(
                result.is_error && result.content.starts_with(expected),
                "{result:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_tool_restricted_to_a_collection_sees_that_one() {
        assert_eq!(call("x", "odd", None).await.content, "of the request");
        assert_eq!(call("x", "odd", Some("")).await.content, "of the request");
        assert_eq!(call("x", "odd", Some("its own")).await.content, "its own");
    }
}
