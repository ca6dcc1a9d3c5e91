//! Loading: a thread reads files, this side writes what it finds in batches.
//!
//! Text becomes visible document by document, each in one transaction. Statements go to the graph
//! before their document becomes visible; those of a replaced version are taken back at the end of
//! the load. A load that is interrupted can be started again: what is finished is skipped, and what
//! was half done is cleared away later.

use super::reader::{Content, Event, Limits, Reader};
use super::store::{self, Applied, Change, Open};
use super::walk::{self, Candidate};
use super::{Library, graph_key};
use crate::Error;
use agentfleet_graph::Batch;
use agentfleet_schema::{CollectionName, uris};
use agentfleet_storage::Durability;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// Passages after which a batch is written.
const BATCH_PASSAGES: usize = 400;
/// Changes after which a batch is written.
const BATCH_CHANGES: usize = 256;
/// Events that may wait for the writer.
const WAITING: usize = 64;

/// How to load.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The collection to load into; created if there is none of that name.
    pub collection: CollectionName,
    /// Largest file that is read in one piece (Markdown, HTML), in bytes.
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

impl Library {
    /// Loads files and folders. Fails if one of the paths is not there or a store fails; a file
    /// that cannot be read is only reported.
    pub async fn load(
        &self,
        paths: &[PathBuf],
        options: &LoadOptions,
        progress: OnProgress<'_>,
    ) -> Result<LoadReport, Error> {
        let asked = paths.to_vec();
        let walked = tokio::task::spawn_blocking(move || walk::walk(&asked))
            .await
            .map_err(|_| Error::Stopped)?
            .map_err(|(path, source)| Error::Unreadable { path, source })?;
        let roots: Vec<PathBuf> = paths.iter().filter_map(|p| p.canonicalize().ok()).collect();
        let files = walked.files.into_iter().map(|file| {
            let content = Content::File(file.origin.clone());
            (file, content)
        });
        let mut report = self.load_all(files.collect(), options, progress).await?;
        report.skipped.splice(0..0, walked.skipped);
        self.look_for_missing(&roots, options, &mut report).await?;
        self.clear().await?;
        Ok(report)
    }

    /// Loads files that are in memory. `set` tells them from files of the same path elsewhere.
    pub async fn load_memory(
        &self,
        set: &str,
        files: &[(&str, &[u8])],
        options: &LoadOptions,
        progress: OnProgress<'_>,
    ) -> Result<LoadReport, Error> {
        let files = files.iter().map(|(path, bytes)| {
            let origin = PathBuf::from(format!("memory:{set}/{path}"));
            let file = Candidate {
                path: (*path).to_owned(),
                origin,
                bytes: bytes.len() as u64,
            };
            (file, Content::Memory((*bytes).into()))
        });
        let report = self.load_all(files.collect(), options, progress).await?;
        self.clear().await?;
        Ok(report)
    }

    async fn load_all(
        &self,
        files: Vec<(Candidate, Content)>,
        options: &LoadOptions,
        progress: OnProgress<'_>,
    ) -> Result<LoadReport, Error> {
        let name = options.collection.as_str();
        if name.trim().is_empty() {
            return Err(Error::NoCollection);
        }
        let owned = name.to_owned();
        let (collection, known) = self
            .database
            .write(Durability::Process, move |unit| {
                let id = store::ensure_collection(unit, &owned)?;
                Ok((id, store::known(unit.tx(), id)?))
            })
            .await?;
        let limits = Limits {
            whole: options.max_document_bytes,
            streamed: options.max_stream_bytes,
        };
        let (send, mut events) = mpsc::channel(WAITING);
        let reader = Reader::new(name, uris::collection_graph(name), limits, known, send);
        let mut writer = Writer {
            library: self,
            collection,
            collection_name: name,
            changes: Vec::new(),
            weight: 0,
            open: None,
            file: FileTotals::default(),
            report: LoadReport {
                collection: name.to_owned(),
                ..LoadReport::default()
            },
            progress: Progress {
                files_total: files.len(),
                bytes_total: files.iter().map(|(file, _)| file.bytes).sum(),
                ..Progress::default()
            },
        };
        let reading = tokio::task::spawn_blocking(move || reader.run(files));
        while let Some(event) = events.recv().await {
            writer.event(event).await?;
            progress(&writer.progress);
        }
        reading.await.map_err(|_| Error::Stopped)?;
        writer.flush(Durability::Durable).await?;
        Ok(writer.report)
    }

    /// Finds documents of the loaded folders whose files are gone.
    async fn look_for_missing(
        &self,
        roots: &[PathBuf],
        options: &LoadOptions,
        report: &mut LoadReport,
    ) -> Result<(), Error> {
        let name = options.collection.as_str().to_owned();
        let known = self
            .database
            .read(
                move |connection| match store::collection(connection, &name)? {
                    Some(id) => store::known(connection, id),
                    None => Ok(Vec::new()),
                },
            )
            .await?;
        for document in known {
            let origin = Path::new(&document.origin);
            let is_below = roots.iter().any(|root| origin.starts_with(root));
            if !is_below || origin.exists() {
                continue;
            }
            if options.prune {
                self.hide(&options.collection, Some(document.uri)).await?;
                report.removed += 1;
            } else {
                report.missing.push(document.origin);
            }
        }
        Ok(())
    }
}

/// What was written of the present file.
#[derive(Debug, Default)]
struct FileTotals {
    path: String,
    graph_key: Option<String>,
    batches: usize,
    passages: u64,
    entities: u64,
    triples: u64,
    /// Set when the graph refused the file: the rest of it is passed over.
    refused: Option<String>,
}

struct Writer<'l> {
    library: &'l Library,
    collection: i64,
    collection_name: &'l str,
    changes: Vec<Change>,
    weight: usize,
    open: Option<Open>,
    file: FileTotals,
    report: LoadReport,
    progress: Progress,
}

impl Writer<'_> {
    async fn event(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::File { path } => {
                self.progress.current.clone_from(&path);
                self.file = FileTotals {
                    path,
                    ..FileTotals::default()
                };
            }
            Event::Unchanged => self.report.unchanged += 1,
            Event::Skipped(skipped) => self.report.skipped.push(skipped),
            Event::Begin {
                source,
                has_triples,
            } => {
                self.changes.push(Change::Begin(source));
                if has_triples {
                    // Statements are filed under the number the document gets.
                    self.flush(Durability::Process).await?;
                    self.file.graph_key = self.open.as_ref().map(|open| graph_key(open.id));
                }
            }
            Event::Passages(_) | Event::Triples { .. } if self.file.refused.is_some() => {}
            Event::Passages(passages) => self.passages(passages).await?,
            Event::Triples {
                statements,
                triples,
            } => self.triples(statements, triples).await?,
            Event::Finish => self.finish().await?,
            Event::Abort(skipped) => {
                self.changes.push(Change::Abort);
                self.report.skipped.push(skipped);
            }
            Event::Done { bytes } => {
                self.progress.files_done += 1;
                self.progress.bytes_done += bytes;
            }
        }
        Ok(())
    }

    async fn passages(&mut self, passages: Vec<super::passage::Passage>) -> Result<(), Error> {
        let entities = passages.iter().filter(|p| p.entity.is_some()).count() as u64;
        let texts = passages.len() as u64 - entities;
        self.file.entities += entities;
        self.file.passages += texts;
        self.progress.entities += entities;
        self.progress.passages += texts;
        let mut rest = passages;
        while !rest.is_empty() {
            let later = rest.split_off(rest.len().min(BATCH_PASSAGES));
            self.weight += rest.len();
            self.changes.push(Change::Passages(rest));
            rest = later;
            if self.weight >= BATCH_PASSAGES || self.changes.len() >= BATCH_CHANGES {
                self.flush(Durability::Process).await?;
            }
        }
        Ok(())
    }

    async fn triples(
        &mut self,
        statements: u64,
        triples: Vec<agentfleet_schema::Triple>,
    ) -> Result<(), Error> {
        let key = self.file.graph_key.clone().unwrap_or_default();
        self.file.batches += 1;
        let batch = Batch {
            key: format!("{key}/{}", self.file.batches),
            root: String::new(),
            collection: self.collection_name.to_owned(),
            conversation: key,
            triples,
        };
        match self.library.graph.insert(vec![batch]).await {
            Ok(()) => {
                self.file.triples += statements;
                self.progress.triples += statements;
                Ok(())
            }
            Err(agentfleet_graph::Error::Invalid {
                index,
                triple,
                fault,
                ..
            }) => {
                self.file.refused = Some(format!(
                    "holds a statement ({index}) that is no RDF, `{triple}`: {fault}"
                ));
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn finish(&mut self) -> Result<(), Error> {
        if let Some(reason) = self.file.refused.take() {
            self.changes.push(Change::Abort);
            let path = std::mem::take(&mut self.file.path);
            self.report.skipped.push(Skipped { path, reason });
            return Ok(());
        }
        self.report.passages += self.file.passages;
        self.report.entities += self.file.entities;
        self.report.triples += self.file.triples;
        self.changes.push(Change::Finish {
            triples: self.file.triples,
        });
        if self.changes.len() >= BATCH_CHANGES {
            self.flush(Durability::Process).await?;
        }
        Ok(())
    }

    async fn flush(&mut self, durability: Durability) -> Result<(), Error> {
        let changes = std::mem::take(&mut self.changes);
        self.weight = 0;
        let open = self.open.take();
        let collection = self.collection;
        let Applied {
            open,
            loaded,
            replaced,
        } = self
            .library
            .database
            .write(durability, move |unit| {
                store::apply(unit, collection, changes, open)
            })
            .await?;
        self.open = open;
        self.report.loaded += loaded;
        self.report.replaced += replaced;
        Ok(())
    }
}
