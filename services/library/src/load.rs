//! Loading: a thread reads files, this side writes what it finds in batches.
//!
//! Text becomes visible document by document, each in one transaction. Statements go to the graph
//! before their document becomes visible; those of a replaced version are taken back at the end of
//! the load. A load that is interrupted can be started again: what is finished is skipped, and what
//! was half done is cleared away later.
//!
//! Into a shared library documents are stored, and become visible some at a time; the index here then
//! learns of them as any other does.

mod report;

pub use report::{LoadOptions, LoadReport, OnProgress, Progress, Skipped};

use super::passage::Passage;
use super::reader::{Content, Event, Reader};
use super::shared::Upload;
use super::store::{Applied, Change, Known, NewSource, Open};
use super::walk::Candidate;
use super::{Library, graph_key, store, walk};
use crate::Error;
use agentfleet_graph::Batch;
use agentfleet_storage::{Database, Durability};
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Passages after which a batch is written.
const BATCH_PASSAGES: usize = 400;
/// Changes after which a batch is written.
const BATCH_CHANGES: usize = 256;
/// Events that may wait for the writer.
const WAITING: usize = 64;

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
        self.clear_local().await?;
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
        self.clear_local().await?;
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
        let mut target: Box<dyn Target> = match &self.shared {
            Some(shared) => {
                shared.current_within(Some(name), None).await?;
                Box::new(Upload::new(Arc::clone(shared), name).await?)
            }
            None => Box::new(Tables::new(&self.database, name)),
        };
        let known = self.known(name.to_owned()).await?;
        let (send, mut events) = mpsc::channel(WAITING);
        let reader = Reader::new(options.clone(), known, send);
        let mut writer = Writer {
            library: self,
            collection: name,
            target: &mut *target,
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
        let (loaded, replaced) = writer.target.end().await?;
        writer.report.loaded = loaded;
        writer.report.replaced = replaced;
        Ok(writer.report)
    }

    async fn known(&self, collection: String) -> Result<Vec<Known>, Error> {
        let known = self.database.read(move |connection| {
            match store::collection(connection, &collection)? {
                Some(id) => store::known(connection, id),
                None => Ok(Vec::new()),
            }
        });
        Ok(known.await?)
    }

    /// Finds documents of the loaded folders whose files are gone.
    async fn look_for_missing(
        &self,
        roots: &[PathBuf],
        options: &LoadOptions,
        report: &mut LoadReport,
    ) -> Result<(), Error> {
        let known = self.known(options.collection.as_str().to_owned()).await?;
        let mut gone = Vec::new();
        for document in known {
            let origin = Path::new(&document.origin);
            let is_below = roots.iter().any(|root| origin.starts_with(root));
            if !is_below || origin.exists() {
                continue;
            }
            if options.prune {
                gone.push(document.uri);
            } else {
                report.missing.push(document.origin);
            }
        }
        report.removed = gone.len();
        if let Some(shared) = &self.shared {
            shared.remove(options.collection.as_str(), &gone).await?;
            return Ok(());
        }
        for uri in gone {
            self.hide(&options.collection, Some(uri)).await?;
        }
        Ok(())
    }
}

/// What was written of the present file.
#[derive(Debug, Default)]
struct FileTotals {
    path: String,
    begun: bool,
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
    collection: &'l str,
    target: &'l mut dyn Target,
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
            Event::Skipped(skipped) => {
                if self.file.begun {
                    self.target.abort().await?;
                }
                self.report.skipped.push(skipped);
            }
            Event::Begin {
                source,
                has_triples,
            } => {
                self.file.begun = true;
                self.file.graph_key = self.target.begin(source, has_triples).await?;
            }
            Event::Passages(_) | Event::Triples { .. } if self.file.refused.is_some() => {}
            Event::Passages(passages) => self.passages(passages).await?,
            Event::Triples {
                statements,
                triples,
            } => self.triples(statements, triples).await?,
            Event::Finish => self.finish().await?,
            Event::Done { bytes } => {
                self.progress.files_done += 1;
                self.progress.bytes_done += bytes;
            }
        }
        Ok(())
    }

    async fn passages(&mut self, passages: Vec<Passage>) -> Result<(), Error> {
        let entities = passages.iter().filter(|p| p.entity.is_some()).count() as u64;
        let texts = passages.len() as u64 - entities;
        self.file.entities += entities;
        self.file.passages += texts;
        self.progress.entities += entities;
        self.progress.passages += texts;
        self.target.passages(passages).await
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
            collection: self.collection.to_owned(),
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
            self.target.abort().await?;
            let path = std::mem::take(&mut self.file.path);
            self.report.skipped.push(Skipped { path, reason });
            return Ok(());
        }
        self.report.passages += self.file.passages;
        self.report.entities += self.file.entities;
        self.report.triples += self.file.triples;
        self.target.finish(self.file.triples).await
    }
}

/// Where documents go, one after the other.
#[async_trait]
pub(crate) trait Target: Send {
    /// Begins a document, and says what its statements are filed under.
    async fn begin(
        &mut self,
        source: NewSource,
        has_triples: bool,
    ) -> Result<Option<String>, Error>;

    async fn passages(&mut self, passages: Vec<Passage>) -> Result<(), Error>;

    async fn finish(&mut self, triples: u64) -> Result<(), Error>;

    /// Takes back what was begun.
    async fn abort(&mut self) -> Result<(), Error>;

    /// Makes visible what is not, and says how many documents were loaded and how many replaced.
    async fn end(&mut self) -> Result<(usize, usize), Error>;
}

/// The tables of one collection, written in batches.
pub(crate) struct Tables {
    database: Database,
    pub(crate) collection: String,
    changes: Vec<Change>,
    weight: usize,
    /// The document that the batches before left unfinished.
    open: Option<Open>,
    loaded: usize,
    replaced: usize,
}

#[async_trait]
impl Target for Tables {
    async fn begin(
        &mut self,
        source: NewSource,
        has_triples: bool,
    ) -> Result<Option<String>, Error> {
        self.changes.push(Change::Begin(source));
        if !has_triples {
            return Ok(None);
        }
        // Statements are filed under the number the document gets.
        self.flush(Durability::Process).await?;
        Ok(self.open.as_ref().map(|open| graph_key(open.id)))
    }

    async fn passages(&mut self, passages: Vec<Passage>) -> Result<(), Error> {
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

    async fn finish(&mut self, triples: u64) -> Result<(), Error> {
        self.changes.push(Change::Finish { triples });
        if self.changes.len() >= BATCH_CHANGES {
            self.flush(Durability::Process).await?;
        }
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), Error> {
        self.changes.push(Change::Abort);
        Ok(())
    }

    async fn end(&mut self) -> Result<(usize, usize), Error> {
        self.flush(Durability::Durable).await?;
        Ok((self.loaded, self.replaced))
    }
}

impl Tables {
    pub(crate) fn new(database: &Database, collection: &str) -> Self {
        Self {
            database: database.clone(),
            collection: collection.to_owned(),
            changes: Vec::new(),
            weight: 0,
            open: None,
            loaded: 0,
            replaced: 0,
        }
    }

    /// Writes what is not written. An empty write that is durable makes those before it so.
    pub(crate) async fn flush(&mut self, durability: Durability) -> Result<(), Error> {
        let changes = std::mem::take(&mut self.changes);
        if changes.is_empty() && durability == Durability::Process {
            return Ok(());
        }
        self.weight = 0;
        let open = self.open.take();
        let name = self.collection.clone();
        let Applied {
            open,
            loaded,
            replaced,
        } = self
            .database
            .write(durability, move |unit| {
                let collection = store::ensure_collection(unit, &name)?;
                store::apply(unit, collection, changes, open)
            })
            .await?;
        self.open = open;
        self.loaded += loaded;
        self.replaced += replaced;
        Ok(())
    }
}
