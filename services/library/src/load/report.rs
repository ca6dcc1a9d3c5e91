//! What a load is asked for, and what it says of itself.

use agentfleet_schema::CollectionName;

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The collection to load into; created if there is none of that name.
    pub collection: CollectionName,
    /// Largest file that is read in one piece (Markdown, HTML, RST, PDF, Word), in bytes.
    pub max_document_bytes: u64,
    /// Largest file that is read in a stream (text, CSV, RDF), in bytes.
    pub max_stream_bytes: u64,
    /// Whether documents of a loaded folder whose files are gone are removed.
    pub prune: bool,
}

impl LoadOptions {
    pub fn new(collection: impl Into<CollectionName>) -> Self {
        Self {
            collection: collection.into(),
            max_document_bytes: 64 << 20,
            max_stream_bytes: 4 << 30,
            prune: false,
        }
    }
}

/// How far a load is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub files_total: usize,
    pub files_done: usize,
    pub bytes_total: u64,
    pub bytes_done: u64,
    pub passages: u64,
    pub entities: u64,
    pub triples: u64,
    /// The file being read.
    pub current: String,
}

/// What a load came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LoadReport {
    pub collection: String,
    /// Documents that were not there before.
    pub loaded: usize,
    /// Documents whose files are as they were.
    pub unchanged: usize,
    /// Documents whose files had changed.
    pub replaced: usize,
    /// Documents removed because their files are gone and the options ask for it.
    pub removed: usize,
    /// Files left out, and why.
    pub skipped: Vec<Skipped>,
    /// Documents whose files are gone and which were kept.
    pub missing: Vec<String>,
    /// Passages of text written.
    pub passages: u64,
    /// Entities of RDF files written.
    pub entities: u64,
    /// Statements written to the graph.
    pub triples: u64,
}

/// A file that was left out.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    pub path: String,
    pub reason: String,
}

/// Receives the progress of a load; called often, so it must be quick.
pub type OnProgress<'p> = &'p (dyn Fn(&Progress) + Send + Sync);
