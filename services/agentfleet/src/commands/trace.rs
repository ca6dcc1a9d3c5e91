//! `trace`: who decided what, from which options, at what cost.

use crate::cli::{Trace as Args, TraceFormat};
use crate::error::Failure;
use crate::fleet::{Store, open_graph};
use crate::settings::Settings;
use crate::ui::Ui;
use agentfleet_console::trace::{Format, Trace, queries};
use agentfleet_documents::Documents as _;
use agentfleet_graph::{Answer, EmbeddedGraph, Graph as _, QueryOptions};
use agentfleet_schema::{SessionId, Triple, keys};
use std::collections::HashMap;

pub(crate) async fn run(args: Args, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    let graph = open_graph(&store, settings, &|_, _| {}).await?;
    let trace = of(&graph, &args.id).await?.ok_or_else(|| {
        Failure::not_found(format!(
            "the graph knows no session or correlation `{}`",
            args.id
        ))
        .hint("`agentfleet sessions list` shows the runs")
    })?;
    let texts = texts(&store, &trace).await?;
    let format = match args.format {
        TraceFormat::Tree => Format::Tree,
        TraceFormat::Mermaid => Format::Mermaid,
        TraceFormat::Svg => Format::Svg,
        TraceFormat::Turtle => Format::Turtle,
        TraceFormat::Json => Format::Json,
        TraceFormat::ProvJson => Format::ProvJson,
    };
    let drawn = trace.render(format, ui.look(), &|uri| texts.get(uri).cloned());
    outln!("{}", drawn.trim_end());
    Ok(())
}

/// The trace of the whole tree that an id belongs to.
pub(crate) async fn of(graph: &EmbeddedGraph, id: &str) -> Result<Option<Trace>, Failure> {
    let roots = queries::roots_of(id);
    let found = graph
        .query(&roots.sparql, &roots.bindings, QueryOptions::default())
        .await?;
    let Answer::Solutions(found) = found else {
        return Ok(None);
    };
    let mut triples: Vec<Triple> = Vec::new();
    for row in 0..found.rows.len() {
        let Some(root) = found.text(row, "root") else {
            continue;
        };
        let tree = queries::tree(&SessionId::from(root));
        let options = QueryOptions::default();
        if let Answer::Triples(more) = graph.query(&tree.sparql, &tree.bindings, options).await? {
            triples.extend(more);
        }
    }
    Ok((!triples.is_empty()).then(|| Trace::from_triples(&triples)))
}

/// The texts a trace refers to, as far as the librarian has them.
async fn texts(store: &Store, trace: &Trace) -> Result<HashMap<String, String>, Failure> {
    let uris = trace.documents();
    let keys: Vec<String> = uris.iter().map(|uri| keys::document(uri)).collect();
    let bodies = store.documents.get_many(&keys).await?;
    Ok(uris
        .into_iter()
        .zip(bodies)
        .filter_map(|(uri, body)| Some((uri, String::from_utf8_lossy(&body?).into_owned())))
        .collect())
}
