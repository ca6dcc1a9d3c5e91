//! `trace`: who decided what, from which options, at what cost.

use super::records::{self, Run};
use crate::cli::{Trace as Args, TraceFormat};
use crate::engine::graph_to_read;
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::trace::{Format, Trace, queries};
use agentfleet_console::{Look, text};
use agentfleet_documents::Documents;
use agentfleet_gateway::{Failure as Lent, TraceFormat as Drawn, TraceRenderer};
use agentfleet_graph::{Answer, Graph, QueryOptions};
use agentfleet_schema::records::Call;
use agentfleet_schema::{SessionId, Triple, keys};
use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) async fn run(args: Args, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    if let Some(step) = args.step {
        return raw(&store, &args, step).await;
    }
    let graph = graph_to_read(&store, settings).await?;
    let id = match records::session(&store, &args.id).await? {
        // Of a subagent or a root by its beginning; anything else the graph may know as it is.
        session if session.as_str().starts_with(args.id.trim()) => session.to_string(),
        _ => args.id.clone(),
    };
    let Some(trace) = of(&*graph, &id).await? else {
        return Err(records::untold(&store, &args.id).await?);
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

/// The calls of one step, as they were recorded.
async fn raw(store: &Store, args: &Args, step: u32) -> Result<(), Failure> {
    let (session, started) = records::session_or_started(store, &args.id).await?;
    let run = Run::read(&*store.documents, &session).await?;
    let Some(record) = run.steps.iter().find(|record| record.step == step) else {
        let known = match run.steps.len() {
            0 if started.is_none() => return Err(records::missing(store, &session).await?),
            0 => "no step of it is done yet".to_owned(),
            1 => "it has step 0 alone".to_owned(),
            more => format!("it has steps 0 to {}", more - 1),
        };
        return Err(Failure::not_found(format!(
            "session `{session}` has no step {step}: {known}"
        )));
    };
    match args.format {
        TraceFormat::Json => return ui::json(&record.calls),
        TraceFormat::Tree => {}
        TraceFormat::Mermaid | TraceFormat::Svg | TraceFormat::Turtle | TraceFormat::ProvJson => {
            return Err(Failure::usage(
                "`--raw` is written as `--format tree` or `json`",
            ));
        }
    }
    if record.calls.is_empty() {
        outln!("Step {step} called nothing.");
    }
    for (call, number) in record.calls.iter().zip(1..) {
        let (head, parts) = told(call);
        outln!("== call {number}: {head}");
        for (name, text) in parts.into_iter().filter(|(_, text)| !text.is_empty()) {
            outln!("\n-- {name}\n{}", text::clean(&text));
        }
        outln!();
    }
    Ok(())
}

/// A call in a line, and its texts by name.
fn told(call: &Call) -> (String, Vec<(&'static str, String)>) {
    match call {
        Call::Model {
            operation,
            model,
            prompt,
            reply,
            usage,
            ms,
            cut,
            ignored,
            ..
        } => (
            format!(
                "model `{model}` for `{operation}`, {}, {} in, {} out{}{}",
                text::duration(*ms),
                text::counted(usage.input_tokens, "token"),
                text::count(usage.output_tokens),
                if *cut {
                    ", cut at the limit of its length"
                } else {
                    ""
                },
                match ignored.join(", ") {
                    nothing if nothing.is_empty() => nothing,
                    names => format!(", not called: {names}"),
                },
            ),
            vec![("prompt", prompt.clone()), ("reply", reply.clone())],
        ),
        Call::Tool {
            name,
            arguments,
            result,
            is_error,
            ms,
            ..
        } => {
            let failed = if *is_error { ", failed" } else { "" };
            let arguments = serde_json::to_string_pretty(arguments).unwrap_or_default();
            (
                format!("tool `{name}`, {}{failed}", text::duration(*ms)),
                vec![("arguments", arguments), ("result", result.clone())],
            )
        }
        Call::Facts { query, rows, .. } => (
            format!("facts of the graph, {}", text::counted(*rows, "row")),
            vec![("query", query.clone())],
        ),
        Call::Document { uri, missing, .. } => {
            let found = if *missing {
                ", which was not there"
            } else {
                ""
            };
            (format!("document `{uri}`{found}"), Vec::new())
        }
    }
}

/// The trace of the whole tree that an id belongs to.
async fn of(graph: &dyn Graph, id: &str) -> Result<Option<Trace>, Failure> {
    let mut triples: Vec<Triple> = Vec::new();
    for root in roots(graph, id).await? {
        let tree = queries::tree(&root);
        let options = QueryOptions::default();
        if let Answer::Triples(more) = graph.query(&tree.sparql, &tree.bindings, options).await? {
            triples.extend(more);
        }
    }
    Ok((!triples.is_empty()).then(|| Trace::from_triples(&triples)))
}

/// The roots of the trees that an id belongs to: of a session, a correlation, or any node.
pub(crate) async fn roots(graph: &dyn Graph, id: &str) -> Result<Vec<SessionId>, Failure> {
    let roots = queries::roots_of(id);
    let found = graph
        .select(&roots.sparql, &roots.bindings, QueryOptions::default())
        .await?;
    let rows = 0..found.rows.len();
    Ok(rows
        .filter_map(|row| found.text(row, "root").map(SessionId::from))
        .collect())
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
