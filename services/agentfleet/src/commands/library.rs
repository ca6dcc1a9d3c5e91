//! `load` and `document`: what people bring in, and what the fleet wrote down.

use crate::cli::{Document, Load};
use crate::error::Failure;
use crate::fleet::{Store, open_graph};
use crate::settings::Settings;
use crate::ui;
use agentfleet_documents::Documents as _;
use agentfleet_schema::{CollectionName, keys};
use agentfleet_tools::library::{Library, LoadOptions, LoadReport, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Arc;

/// Most skipped files listed; the rest are counted.
const LISTED: usize = 20;

pub(crate) async fn load(load: Load, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let library = open(&store, settings).await?;
    let bar = bar();
    let progress = |progress: &Progress| {
        bar.set_length(progress.bytes_total);
        bar.set_position(progress.bytes_done);
        bar.set_message(format!(
            "{}/{} files",
            progress.files_done, progress.files_total
        ));
    };
    let collection = CollectionName::from(load.collection.as_str());
    let report = library
        .load(&load.paths, &LoadOptions::new(collection), &progress)
        .await;
    bar.finish_and_clear();
    let report = report?;
    if load.output.json {
        return ui::json(&report);
    }
    print(&report);
    outln!(
        "\nAsk about it:\n  agentfleet ask \"...\" --collection {}",
        ui::shell_word(&report.collection)
    );
    Ok(())
}

pub(crate) async fn open(store: &Store, settings: &Settings) -> Result<Library, Failure> {
    let graph = open_graph(store, settings, &|_, _| {}).await?;
    Ok(Library::open(store.database.clone(), Arc::new(graph))?)
}

fn bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{spinner} {msg} [{wide_bar}] {bytes}/{total_bytes} {eta}");
    let bar = ProgressBar::new(0);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn print(report: &LoadReport) {
    outln!(
        "Collection `{}`: {} loaded, {} replaced, {} unchanged; {} passages, {} entities, {} statements.",
        report.collection,
        report.loaded,
        report.replaced,
        report.unchanged,
        report.passages,
        report.entities,
        report.triples
    );
    if !report.skipped.is_empty() {
        outln!("Skipped {}:", report.skipped.len());
        for skipped in report.skipped.iter().take(LISTED) {
            outln!("  {}: {}", skipped.path, skipped.reason);
        }
        if report.skipped.len() > LISTED {
            outln!(
                "  and {} more (`--json` lists all)",
                report.skipped.len() - LISTED
            );
        }
    }
}

pub(crate) async fn document(document: Document, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    let uri = &document.uri;
    let documents = &store.documents;
    for candidate in [uri.clone(), agentfleet_schema::uris::document_of(uri)] {
        if let Some(body) = documents.get(&keys::document(&candidate)).await? {
            outln!("{}", String::from_utf8_lossy(&body));
            return Ok(());
        }
    }
    if let Some(text) = loaded(&store, settings, uri).await? {
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

/// The text of a loaded document, as the index has it.
async fn loaded(store: &Store, settings: &Settings, uri: &str) -> Result<Option<String>, Failure> {
    let library = open(store, settings).await?;
    for collection in library.collections().await? {
        let name = CollectionName::from(collection.name);
        if let Some(found) = library.fetch(&name, uri, 0, usize::MAX).await? {
            return Ok(Some(found.text));
        }
    }
    Ok(None)
}
