//! Why: the provenance of a session and of all below it.

use crate::identity::Caller;
use crate::negotiate::{self, Offer};
use crate::params::Params;
use crate::problem::Problem;
use crate::rdf;
use crate::session;
use crate::sparql::typed;
use crate::state::App;
use agentfleet_console::Look;
use agentfleet_console::trace::{Format, Trace, queries};
use agentfleet_documents::Documents;
use agentfleet_graph::{Answer, Error, Graph, QueryOptions};
use agentfleet_runtime::Records;
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL};
use agentfleet_schema::{SessionId, Term, TermType, Triple, uris};
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use oxrdfio::RdfFormat;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// What is drawn, beside the forms of a graph.
const DRAWN: [(Format, &str); 4] = [
    (Format::Tree, "text/plain; charset=utf-8"),
    (Format::Mermaid, "text/vnd.mermaid"),
    (Format::Svg, "image/svg+xml"),
    (Format::ProvJson, "application/json"),
];

/// A tree over HTTP, where nobody says how wide a line may be.
const PAGE: Look = Look::plain(120);

/// How far the graph may be behind the records.
const LAG: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(25);

const JSON: Offer<()> = Offer {
    form: (),
    content_type: "application/json",
    media_types: &["application/json"],
    names: &["json"],
};

/// How a trace is written.
enum Form {
    Json,
    Graph(&'static Offer<RdfFormat>),
    Drawn(Format, &'static str),
}

/// `GET /sessions/{id}/trace`.
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = Params::read(query.as_deref(), &["format"])?;
    let name = params.one("format")?.map(str::to_ascii_lowercase);
    let form = form(name.as_deref(), &headers)?;
    let session = SessionId::new(id);
    if caller.key().is_some() {
        session::look_as(&app, &caller, &session).await?;
    }
    let mut trace = told(&app, &session).await?;
    match form {
        Form::Json => {
            let body = nodes(&session, &trace.triples).to_string().into_bytes();
            Ok(typed(body, JSON.content_type))
        }
        Form::Graph(offer) => {
            let format = offer.form;
            for triple in &mut trace.triples {
                triple.g = Some(uris::RETRIEVAL_GRAPH.to_owned());
            }
            let answer = Answer::Triples(trace.triples);
            let body = rdf::write(answer, move |answer| rdf::graph(answer, format)).await?;
            Ok(typed(body, offer.content_type))
        }
        Form::Drawn(..) if trace.is_empty() => Err(Problem::unknown_session(session.as_str())),
        Form::Drawn(format, content_type) => {
            let texts = texts_of(&*app.parts.intake.documents, &trace).await?;
            let drawn = trace.render(format, PAGE, &|uri| texts.get(uri).cloned());
            Ok(typed(drawn.into_bytes(), content_type))
        }
    }
}

/// The form of a name, or without one what `Accept` asks for.
fn form(name: Option<&str>, headers: &HeaderMap) -> Result<Form, Problem> {
    let Some(name) = name else {
        if let Some((format, content_type)) = drawn_by_type(headers) {
            return Ok(Form::Drawn(format, content_type));
        }
        // Plain JSON unless an RDF syntax is asked for by its own name.
        if negotiate::choose(headers, &[JSON]).is_ok() {
            return Ok(Form::Json);
        }
        return negotiate::choose(headers, rdf::GRAPHS).map(Form::Graph);
    };
    let mut drawn = DRAWN.into_iter();
    if let Some((format, content_type)) = drawn.find(|(format, _)| format.as_str() == name) {
        return Ok(Form::Drawn(format, content_type));
    }
    if JSON.names.contains(&name) {
        return Ok(Form::Json);
    }
    let mut graphs = rdf::GRAPHS.iter();
    let graph = graphs.find(|offer| offer.names.contains(&name));
    graph.map(Form::Graph).ok_or_else(|| unknown_format(name))
}

/// What is drawn for an `Accept` that names its type. A range such as `*/*` asks for no drawing, nor
/// do types that the gateway writes itself.
fn drawn_by_type(headers: &HeaderMap) -> Option<(Format, &'static str)> {
    let own = rdf::GRAPHS.iter().flat_map(|offer| offer.media_types);
    let own: Vec<&str> = own.chain(JSON.media_types).copied().collect();
    let bare = |kind: &'static str| kind.split(';').next().unwrap_or_default();
    let mut kinds = own.clone();
    kinds.extend(DRAWN.map(|(_, kind)| bare(kind)));
    let wanted = negotiate::named(headers, &kinds)?;
    let mut drawn = DRAWN.into_iter();
    drawn.find(|(_, kind)| bare(kind) == wanted && !own.contains(&wanted))
}

fn unknown_format(format: &str) -> Problem {
    let graphs = rdf::GRAPHS.iter().filter_map(|offer| offer.names.first());
    let known = ["json"].iter().chain(graphs).copied();
    let known = known.chain(DRAWN.map(|(format, _)| format.as_str()));
    let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
    Problem::parameter(
        "format",
        format!(
            "unknown format `{format}` (available: {})",
            known.join(", ")
        ),
    )
}

/// The trace of a session and all below it. Records come before the graph: of a session that has ended,
/// its end is waited for, for a moment.
async fn told(app: &App, session: &SessionId) -> Result<Trace, Problem> {
    let graph = &*app.parts.graph;
    let until = Instant::now() + LAG;
    // Of a session that goes on there is no end yet, and an unknown one is a problem.
    while !is_end_told(graph, session).await?
        && session::look(app, session).await?.ended().is_some()
        && Instant::now() < until
    {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let trace = trace_of(graph, session.as_str(), app.query_options()).await?;
    Ok(trace.subtree(session).unwrap_or_default())
}

async fn is_end_told(graph: &dyn Graph, session: &SessionId) -> Result<bool, Error> {
    let sparql = format!(
        "SELECT ?p FROM <{}> WHERE {{ ?end ?p ?o }} LIMIT 1",
        uris::RETRIEVAL_GRAPH
    );
    let end = Term::iri(uris::answer(session));
    let found = graph
        .select(&sparql, &[("end", end)], QueryOptions::default())
        .await?;
    Ok(!found.rows.is_empty())
}

/// The trace of the whole tree that an id belongs to: of a session, a correlation, or any node. It is
/// empty where the graph knows nothing of it.
pub async fn trace_of(graph: &dyn Graph, id: &str, options: QueryOptions) -> Result<Trace, Error> {
    let mut triples = Vec::new();
    for root in roots_of(graph, id).await? {
        let tree = queries::tree(&root);
        if let Answer::Triples(more) = graph
            .query(&tree.sparql, &tree.bindings, options.clone())
            .await?
        {
            triples.extend(more);
        }
    }
    Ok(Trace::from_triples(&triples))
}

/// The roots of the trees that an id belongs to.
pub async fn roots_of(graph: &dyn Graph, id: &str) -> Result<Vec<SessionId>, Error> {
    let roots = queries::roots_of(id);
    let options = QueryOptions::default();
    let found = graph
        .select(&roots.sparql, &roots.bindings, options)
        .await?;
    let rows = 0..found.rows.len();
    Ok(rows
        .filter_map(|row| found.text(row, "root").map(SessionId::from))
        .collect())
}

/// The texts that a trace refers to, as far as the librarian has them.
pub async fn texts_of(
    documents: &dyn Documents,
    trace: &Trace,
) -> Result<HashMap<String, String>, agentfleet_runtime::Error> {
    let uris = trace.documents();
    let texts = Records::new(documents).texts(&uris).await?;
    let found = uris.into_iter().zip(texts);
    Ok(found.filter_map(|(uri, text)| Some((uri, text?))).collect())
}

/// The trace as a list of nodes, each with its types, its label and its other properties.
fn nodes(session: &SessionId, triples: &[Triple]) -> Value {
    let mut nodes: Vec<Value> = Vec::new();
    for of_node in triples.chunk_by(|a, b| a.s == b.s) {
        let mut types = Vec::new();
        let mut label = Value::Null;
        let mut properties = Map::new();
        for triple in of_node {
            let predicate = triple.p.iri.as_str();
            if predicate == RDF_TYPE {
                types.push(Value::from(rdf::short(&triple.o.iri)));
            } else if predicate == RDFS_LABEL && label.is_null() {
                label = triple.o.value.clone().into();
            } else {
                let values = properties
                    .entry(rdf::short(predicate))
                    .or_insert_with(|| json!([]));
                if let Some(values) = values.as_array_mut() {
                    values.push(value(&triple.o));
                }
            }
        }
        let id = of_node
            .first()
            .map(|triple| triple.s.iri.clone())
            .unwrap_or_default();
        nodes.push(json!({ "id": id, "types": types, "label": label, "properties": properties }));
    }
    json!({ "session_id": session, "nodes": nodes })
}

/// A value: a link is an object with its `id`, a literal is text.
fn value(term: &Term) -> Value {
    match term.kind {
        TermType::Iri => json!({ "id": term.iri }),
        TermType::Blank => json!({ "id": format!("_:{}", term.id) }),
        TermType::Literal | TermType::Triple => term.value.clone().into(),
    }
}
