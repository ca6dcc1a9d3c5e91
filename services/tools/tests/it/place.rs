//! A data directory with everything the tools need, and calls in one line.

use crate::diary::python;
use crate::shelf;
use agentfleet_broker::{EmbeddedBroker, Options};
use agentfleet_documents::EmbeddedDocuments;
use agentfleet_models::{ChatModel, Script, Scripted};
use agentfleet_schema::Lineage;
use agentfleet_schema::config::{Fallbacks, Snapshot, ToolItem};
use agentfleet_storage::Database;
use agentfleet_tools::{
    CallContext, Error, Secrets, ToolCall, ToolResult, Toolbox, Tools as _, mcp,
};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Place {
    shelf: shelf::Place,
    pub(crate) toolbox: Toolbox,
    pub(crate) broker: EmbeddedBroker,
    pub(crate) servers: mcp::Servers,
    pub(crate) documents: Arc<EmbeddedDocuments>,
    /// Who calls, and which tree that is of.
    pub(crate) session: String,
    pub(crate) root: String,
    pub(crate) lineage: Vec<Lineage>,
    pub(crate) fallbacks: Fallbacks,
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) now: i64,
    pub(crate) config: Snapshot,
}

/// What is loaded, and its graph.
impl Deref for Place {
    type Target = shelf::Place;

    fn deref(&self) -> &shelf::Place {
        &self.shelf
    }
}

impl Place {
    /// The text of a source that a tool names: a loaded document, or what one says of an entity.
    pub(crate) async fn text(&self, uri: &str) -> String {
        let Some(collection) = self.library.holder(uri).await.unwrap() else {
            let of = vec![uri.to_owned()];
            let described = self.library.descriptions(&"c".into(), of).await.unwrap();
            let texts = described.into_iter().map(|found| found.text);
            return texts.collect::<Vec<_>>().join("\n");
        };
        let fetched = self.library.fetch(&collection, uri, 0, usize::MAX).await;
        fetched.unwrap().unwrap().text
    }

    pub(crate) async fn new() -> Self {
        Self::with_model(Arc::new(Scripted::new(Script::new()))).await
    }

    pub(crate) async fn with_model(model: Arc<dyn ChatModel>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("data")).unwrap();
        let documents = Arc::new(EmbeddedDocuments::open(&database).unwrap());
        let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
        let shelf = shelf::Place::on(database, folder).await;
        let programs = vec![python(), "sh".to_owned()];
        let servers = mcp::Servers::new(secrets(), programs).unwrap();
        let toolbox = Toolbox::new(
            shelf.library.clone(),
            documents.clone(),
            shelf.graph.clone(),
            model,
            Duration::from_secs(60),
            secrets(),
            servers.clone(),
        )
        .unwrap()
        .with_services(Arc::new(broker.clone()));
        Self {
            shelf,
            toolbox,
            broker,
            servers,
            documents,
            session: "s".into(),
            root: "s".into(),
            lineage: Vec::new(),
            fallbacks: Fallbacks::default(),
            tenant: String::new(),
            user: String::new(),
            now: 0,
            config: Snapshot::default(),
        }
    }

    pub(crate) async fn call(
        &self,
        tool: &ToolItem,
        collection: &str,
        arguments: &[(&str, &str)],
    ) -> ToolResult {
        self.try_call(tool, collection, arguments).await.unwrap()
    }

    pub(crate) async fn try_call(
        &self,
        tool: &ToolItem,
        collection: &str,
        arguments: &[(&str, &str)],
    ) -> Result<ToolResult, Error> {
        let call = ToolCall {
            tool: tool.clone(),
            arguments: arguments
                .iter()
                .map(|(n, v)| ((*n).into(), (*v).into()))
                .collect(),
            collection: collection.into(),
            context: CallContext {
                session: self.session.clone(),
                tenant: self.tenant.clone(),
                user: self.user.clone(),
                now: self.now,
                root: self.root.clone(),
                lineage: self.lineage.clone(),
                idempotency_key: "key-1".into(),
                config: Arc::new(self.config.clone()),
                fallbacks: self.fallbacks,
            },
        };
        self.toolbox.call(call).await
    }
}

fn secrets() -> Secrets {
    let variable = "AGENTFLEET_SECRET_KEY".to_owned();
    Secrets::new([(variable, "s3cret-value".to_owned())], "/nowhere".into())
}

/// A tool of a kind, with nothing else set.
pub(crate) fn tool(kind: &str) -> ToolItem {
    ToolItem {
        name: format!("the {kind}"),
        kind: kind.into(),
        ..ToolItem::default()
    }
}
