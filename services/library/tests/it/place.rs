//! A library on a data directory, and a folder of files to load.

use agentfleet_graph::{EmbeddedGraph, Graph as _, GraphOptions, QueryOptions};
use agentfleet_library::{Library, LoadOptions, LoadReport, dossier};
use agentfleet_storage::{Clock, Database, SystemClock};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) struct Place {
    pub(crate) library: Library,
    pub(crate) graph: Arc<EmbeddedGraph>,
    /// A folder for files to load, beside the data directory.
    files: PathBuf,
    _folder: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::with(Arc::new(SystemClock)).await
    }

    pub(crate) async fn with(clock: Arc<dyn Clock>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open_with(&folder.path().join("data"), clock).unwrap();
        Self::on(database, folder).await
    }

    /// On a database in this folder.
    pub(crate) async fn on(database: Database, folder: tempfile::TempDir) -> Self {
        let graph = EmbeddedGraph::open(database.clone(), GraphOptions::default(), &|_, _| {})
            .await
            .unwrap();
        let graph = Arc::new(graph);
        let library = Library::open(database, graph.clone()).unwrap();
        let files = folder.path().join("files");
        std::fs::create_dir(&files).unwrap();
        Self {
            library,
            graph,
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
        let files = dossier::files();
        let options = LoadOptions::new(dossier::COLLECTION);
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
}
