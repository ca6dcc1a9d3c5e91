//! `trace`: who decided what, from which options, at what cost.

use super::records;
use crate::cli::{Trace as Args, TraceFormat};
use crate::engine::settled_graph;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::Look;
use agentfleet_console::trace::{Format, Trace, queries};
use agentfleet_documents::Documents;
use agentfleet_gateway::{Failure as Lent, TraceFormat as Drawn, TraceRenderer};
use agentfleet_graph::{Answer, Graph, QueryOptions};
use agentfleet_schema::{SessionId, Triple, keys};
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) async fn run(args: Args, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    let graph = settled_graph(&store, settings).await?;
    let id = match records::session(&store, &args.id).await? {
        // Of a subagent or a root by its beginning; anything else the graph may know as it is.
        session if session.as_str().starts_with(args.id.trim()) => session.to_string(),
        _ => args.id.clone(),
    };
    let Some(trace) = of(&*graph, &id).await? else {
        let erased = records::erased(&store, &SessionId::new(id)).await?;
        return Err(erased.unwrap_or_else(|| {
            let given = &args.id;
            Failure::not_found(format!(
                "the graph knows no session or correlation `{given}`"
            ))
            .hint(records::how_to_name(given))
        }));
    };
    let texts = texts(&*store.documents, &trace).await?;
    let format = match args.format {
        TraceFormat::Tree => Format::Tree,
        TraceFormat::Mermaid => Format::Mermaid,
        TraceFormat::Svg => Format::Svg,
        TraceFormat::Turtle => Format::Turtle,
        TraceFormat::Json => Format::Json,
        TraceFormat::ProvJson => Format::ProvJson,
    };
    let drawn = trace.render(format, ui.look(), &|uri| texts.get(uri).cloned());
    match format {
        Format::Tree => ui::painted(&drawn),
        Format::Turtle => ui::exact(&drawn),
        Format::Mermaid | Format::Svg | Format::Json | Format::ProvJson => ui::write(&drawn),
    }
    Ok(())
}

/// The trace of the whole tree that an id belongs to.
async fn of(graph: &dyn Graph, id: &str) -> Result<Option<Trace>, Failure> {
    let roots = queries::roots_of(id);
    let found = graph
        .select(&roots.sparql, &roots.bindings, QueryOptions::default())
        .await?;
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
async fn texts(
    documents: &dyn Documents,
    trace: &Trace,
) -> Result<HashMap<String, String>, Failure> {
    let uris = trace.documents();
    let keys: Vec<String> = uris.iter().map(|uri| keys::document(uri)).collect();
    let bodies = documents.get_many(&keys).await?;
    Ok(uris
        .into_iter()
        .zip(bodies)
        .filter_map(|(uri, body)| Some((uri, String::from_utf8_lossy(&body?).into_owned())))
        .collect())
}

/// Draws traces for the HTTP door.
pub(crate) struct Renderer {
    pub graph: Arc<dyn Graph>,
    pub documents: Arc<dyn Documents>,
}

/// A tree over HTTP, where nobody says how wide a line may be.
const PAGE: Look = Look {
    width: 120,
    color: false,
};

/// What the gateway does not draw itself.
const DRAWN: [(Format, &str); 4] = [
    (Format::Tree, "text/plain; charset=utf-8"),
    (Format::Mermaid, "text/vnd.mermaid"),
    (Format::Svg, "image/svg+xml"),
    (Format::ProvJson, "application/json"),
];

#[async_trait]
impl TraceRenderer for Renderer {
    fn formats(&self) -> Vec<Drawn> {
        DRAWN
            .iter()
            .map(|(format, media_type)| Drawn {
                name: format.as_str().to_owned(),
                media_type: (*media_type).to_owned(),
            })
            .collect()
    }

    async fn render(&self, session: &SessionId, format: &str) -> Result<Option<Vec<u8>>, Lent> {
        let format: Format = format.parse()?;
        let Some(trace) = of(&*self.graph, session.as_str()).await? else {
            return Ok(None);
        };
        let Some(trace) = trace.subtree(session) else {
            return Ok(None);
        };
        let texts = texts(&*self.documents, &trace).await?;
        let drawn = trace.render(format, PAGE, &|uri| texts.get(uri).cloned());
        Ok(Some(drawn.into_bytes()))
    }
}
