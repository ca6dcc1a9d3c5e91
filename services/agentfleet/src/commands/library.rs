//! `load` and `document`: what people bring in, and what the fleet wrote down.

use crate::cli::{Document, Load};
use crate::engine::open_graph;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui;
use agentfleet_console::text;
use agentfleet_graph::{Answer, Batch, Graph, QueryOptions};
use agentfleet_library::{Library, LoadOptions, LoadReport, Progress};
use agentfleet_schema::{CollectionName, Term, keys};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Most kinds of skipped files listed.
const LISTED: usize = 20;

pub(crate) async fn load(load: Load, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.seed().await?;
    let library = open(&store, settings).await?;
    let bar = ui::bar("{spinner} {msg} [{wide_bar}] {bytes}/{total_bytes} {eta}");
    if let Some(standing) = library.standing().await?
        && standing.missing > 0
    {
        bar.set_message("reading what was loaded before");
    }
    let progress = |progress: &Progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes_done);
        bar.set_message(format!(
            "{}/{} files",
            progress.files_done, progress.files_total
        ));
    };
    let collection = CollectionName::from(load.collection.as_str());
    let options = LoadOptions {
        prune: load.prune,
        ..LoadOptions::new(collection)
    };
    let report = library.load(&load.paths, &options, &progress).await;
    bar.finish_and_clear();
    let report = report?;
    let found = report.loaded + report.replaced + report.unchanged;
    let nothing = || match (found, report.skipped.len()) {
        (0, 1..) => Err(Failure::new(Exit::Failed, "every file was skipped")),
        _ => Ok(()),
    };
    if load.output.json {
        ui::json(&report)?;
        return nothing();
    }
    print(&report);
    nothing()?;
    outln!(
        "\nAsk about it:\n  {} ask \"...\" --collection {}",
        settings.program(),
        ui::shell_word(&report.collection)
    );
    Ok(())
}

pub(crate) async fn open(store: &Store, settings: &Settings) -> Result<Library, Failure> {
    let (graph, _) = open_graph(store, settings, &|_, _| {}).await?;
    store.library(graph, settings).await
}

/// Names of the collections something was loaded into.
pub(crate) async fn collections(
    store: &Store,
    settings: &Settings,
) -> Result<Vec<String>, Failure> {
    let known = unlinked(store, settings).await?.holdings().await?;
    Ok(known.into_iter().map(|(name, _)| name).collect())
}

fn print(report: &LoadReport) {
    outln!(
        "Collection `{}`: {} loaded, {} replaced, {} unchanged; {}, {}, {}.",
        report.collection,
        report.loaded,
        report.replaced,
        report.unchanged,
        text::counted(report.passages, "passage"),
        text::counted(report.entities, "entity"),
        text::counted(report.triples, "statement"),
    );
    if report.removed > 0 {
        let removed = text::counted(report.removed as u64, "document");
        outln!("Removed {removed} whose files are gone.");
    }
    if !report.missing.is_empty() {
        let kept = text::counted(report.missing.len() as u64, "document");
        outln!("Kept {kept} whose files are gone (`--prune` removes them):");
        for path in report.missing.iter().take(LISTED) {
            outln!("  {}", text::line(path));
        }
    }
    if report.skipped.is_empty() {
        return;
    }
    outln!("Skipped {}:", text::count(report.skipped.len() as u64));
    let mut kinds: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for skipped in &report.skipped {
        let kind = Path::new(&skipped.path).extension();
        let kind = kind.and_then(|kind| kind.to_str()).unwrap_or_default();
        let same = kinds.entry((kind, &skipped.reason)).or_default();
        same.push(&skipped.path);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, paths)| std::cmp::Reverse(paths.len()));
    for ((kind, reason), paths) in kinds.iter().take(LISTED) {
        match (paths.as_slice(), *kind) {
            ([path], _) => outln!("  {}", text::line(&format!("{path}: {reason}"))),
            (several, "") => {
                outln!("  {} without ending: {}", several.len(), text::line(reason));
            }
            (several, kind) => {
                let told = format!("{} .{kind}: {reason}", several.len());
                outln!("  {}", text::line(&told));
            }
        }
    }
    if report.skipped.len() > kinds.len().min(LISTED) {
        outln!("  (`--json` lists each)");
    }
}

pub(crate) async fn document(document: Document, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let uri = &document.uri;
    let documents = &*store.documents;
    for candidate in [uri.clone(), agentfleet_schema::uris::document_of(uri)] {
        if let Some(body) = documents.get(&keys::document(&candidate)).await? {
            outln!("{}", String::from_utf8_lossy(&body));
            return Ok(());
        }
    }
    if let Some(text) = loaded(&store, uri, settings).await? {
        outln!("{text}");
        return Ok(());
    }
    let parent = uri
        .rsplit_once('/')
        .map_or(uri.as_str(), |(parent, _)| parent);
    let near = documents.list(&keys::document(parent)).await?;
    let failure = Failure::not_found(format!("there is no document `{uri}`"));
    Err(match near.first() {
        Some(key) => failure.hint(format!(
            "there is `{}`{}",
            key.trim_start_matches("documents/"),
            if near.len() > 1 {
                format!(" and {} more below `{parent}`", near.len() - 1)
            } else {
                String::new()
            }
        )),
        None => failure.hint("`agentfleet trace SESSION` names the documents of a run"),
    })
}

/// A library whose names and texts are read, and nothing else.
pub(crate) async fn unlinked(store: &Store, settings: &Settings) -> Result<Library, Failure> {
    store.library(Arc::new(NoGraph), settings).await
}

/// Stands where a graph is neither asked nor written, and takes time to open.
struct NoGraph;

#[async_trait]
impl Graph for NoGraph {
    async fn insert(&self, _: Vec<Batch>) -> Result<(), agentfleet_graph::Error> {
        Err(agentfleet_graph::Error::Stopped)
    }

    async fn query(
        &self,
        _: &str,
        _: &[(&str, Term)],
        _: QueryOptions,
    ) -> Result<Answer, agentfleet_graph::Error> {
        Err(agentfleet_graph::Error::Stopped)
    }
}

/// The text of a loaded document, as the index has it.
async fn loaded(store: &Store, uri: &str, settings: &Settings) -> Result<Option<String>, Failure> {
    let library = unlinked(store, settings).await?;
    let Some(collection) = library.holder(uri).await? else {
        return Ok(None);
    };
    let found = library.fetch(&collection, uri, 0, usize::MAX).await?;
    Ok(found.map(|found| found.text))
}
