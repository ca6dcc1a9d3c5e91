#![allow(clippy::unwrap_used)]
use agentfleet_graph::{EmbeddedGraph, GraphOptions};
use agentfleet_schema::config::*;
use agentfleet_storage::Database;
use agentfleet_tools::{library::*, *};
use std::sync::Arc;
#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let db = Database::open(std::path::Path::new(&args[0])).unwrap();
    let graph = Arc::new(
        EmbeddedGraph::open(db.clone(), GraphOptions::default(), &|_, _| {})
            .await
            .unwrap(),
    );
    let library = Library::open(db, graph.clone()).unwrap();
    let toolbox = Toolbox::new(
        library.clone(),
        graph,
        Arc::new(agentfleet_models::Offline::new()),
    )
    .unwrap();
    let c = args[1].as_str();
    match args[2].as_str() {
        "load" => {
            let t = std::time::Instant::now();
            let paths: Vec<_> = args[3..].iter().map(Into::into).collect();
            let r = library
                .load(&paths, &LoadOptions::new(c), &|_| {})
                .await
                .unwrap();
            println!(
                "{:?}: loaded {} unchanged {} replaced {} passages {} entities {} triples {} skipped {}",
                t.elapsed(),
                r.loaded,
                r.unchanged,
                r.replaced,
                r.passages,
                r.entities,
                r.triples,
                r.skipped.len()
            );
            for s in r
                .skipped
                .iter()
                .filter(|s| !s.reason.contains("unknown type"))
                .take(60)
            {
                println!("  {}: {}", s.path, s.reason);
            }
        }
        "dossier" => {
            library
                .load_memory("dossier", dossier::files(), &LoadOptions::new(c), &|_| {})
                .await
                .unwrap();
        }
        "list" => {
            for d in library.documents(&c.into(), 1000).await.unwrap() {
                println!("{} | {} | {}", d.path, d.title, d.uri)
            }
        }
        kind => {
            let arg = match kind {
                "document-search" => "query",
                "document-fetch" => "uri",
                _ => "question",
            };
            let t = std::time::Instant::now();
            let r = toolbox
                .call(ToolCall {
                    tool: ToolItem {
                        name: kind.into(),
                        kind: kind.into(),
                        ..Default::default()
                    },
                    arguments: [(arg.to_owned(), args[3].clone())].into(),
                    collection: c.into(),
                    context: CallContext {
                        session: String::new(),
                        idempotency_key: String::new(),
                        config: Arc::new(Snapshot::default()),
                    },
                })
                .await
                .unwrap();
            println!(
                "({:?}) error={}\n{}\n-- sources {:?}",
                t.elapsed(),
                r.is_error,
                r.content,
                r.sources.iter().map(|s| &s.uri).collect::<Vec<_>>()
            );
        }
    }
}
