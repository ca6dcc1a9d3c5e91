//! A data directory with everything the tools need, and calls in one line.

use agentfleet_documents::EmbeddedDocuments;
use agentfleet_graph::{EmbeddedGraph, Graph as _, GraphOptions, QueryOptions};
use agentfleet_models::{ChatModel, Script, Scripted};
use agentfleet_schema::Lineage;
use agentfleet_schema::config::{Snapshot, ToolItem};
use agentfleet_storage::{Clock, Database, SystemClock};
use agentfleet_tools::library::{LoadOptions, LoadReport};
use agentfleet_tools::{CallContext, Error, Library, ToolCall, ToolResult, Toolbox, Tools as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Place {
    pub(crate) library: Library,
    pub(crate) graph: Arc<EmbeddedGraph>,
    pub(crate) toolbox: Toolbox,
    pub(crate) documents: Arc<EmbeddedDocuments>,
    /// Who calls, and which tree that is of.
    pub(crate) session: String,
    pub(crate) root: String,
    pub(crate) lineage: Vec<Lineage>,
    pub(crate) config: Snapshot,
    /// A folder for files to load, beside the data directory.
    files: PathBuf,
    _folder: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::with_model(Arc::new(Scripted::new(Script::new()))).await
    }

    pub(crate) async fn with_model(model: Arc<dyn ChatModel>) -> Self {
        Self::with(model, Arc::new(SystemClock)).await
    }

    pub(crate) async fn with(model: Arc<dyn ChatModel>, clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open_with(&folder.path().join("data"), clock).unwrap();
        let graph = EmbeddedGraph::open(database.clone(), GraphOptions::default(), &|_, _| {})
            .await
            .unwrap();
        let graph = Arc::new(graph);
        let library = Library::open(database.clone(), graph.clone()).unwrap();
        let documents = Arc::new(EmbeddedDocuments::open(&database).unwrap());
        let toolbox = Toolbox::new(
            library.clone(),
            documents.clone(),
            graph.clone(),
            model,
            Duration::from_secs(60),
        )
        .unwrap();
        let files = folder.path().join("files");
        std::fs::create_dir(&files).unwrap();
        Self {
            library,
            graph,
            toolbox,
            documents,
            session: "s".into(),
            root: "s".into(),
            lineage: Vec::new(),
            config: Snapshot::default(),
            files,
            _folder: folder,
        }
    }

    /// Writes a file below the folder of files, and returns where.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.files.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// What a query answers in one of its columns.
    pub(crate) async fn column(&self, name: &str, query: &str) -> Vec<String> {
        let found = self
            .graph
            .select(query, &[], QueryOptions::default())
            .await
            .unwrap();
        (0..found.rows.len())
            .map(|row| found.text(row, name).unwrap().to_owned())
            .collect()
    }

    pub(crate) fn files(&self) -> &Path {
        &self.files
    }

    /// Loads the folder of files.
    pub(crate) async fn load(&self, collection: &str) -> LoadReport {
        self.load_from(
            std::slice::from_ref(&self.files),
            &LoadOptions::new(collection),
        )
        .await
    }

    pub(crate) async fn load_from(&self, paths: &[PathBuf], options: &LoadOptions) -> LoadReport {
        self.library.load(paths, options, &|_| {}).await.unwrap()
    }

    pub(crate) async fn load_dossier(&self) -> LoadReport {
        let files = agentfleet_tools::dossier::files();
        let options = LoadOptions::new(agentfleet_tools::dossier::COLLECTION);
        self.library
            .load_memory("dossier", files, &options, &|_| {})
            .await
            .unwrap()
    }

    /// Titles of what a search finds, best first.
    pub(crate) async fn titles(&self, collection: &str, query: &str) -> Vec<String> {
        let hits = self
            .library
            .search(&collection.into(), query, 5)
            .await
            .unwrap();
        hits.into_iter().map(|hit| hit.title).collect()
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
                root: self.root.clone(),
                lineage: self.lineage.clone(),
                idempotency_key: "key-1".into(),
                config: Arc::new(self.config.clone()),
            },
        };
        self.toolbox.call(call).await
    }
}

/// A tool of a kind, with nothing else set.
pub(crate) fn tool(kind: &str) -> ToolItem {
    ToolItem {
        name: format!("the {kind}"),
        kind: kind.into(),
        ..ToolItem::default()
    }
}
