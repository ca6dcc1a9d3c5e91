//! Why: the provenance of a session and of all below it.

use crate::negotiate::{self, Offer};
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::rdf;
use crate::seams::TraceFormat;
use crate::session;
use crate::sparql::typed;
use crate::state::App;
use agentfleet_graph::{Answer, QueryOptions};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL};
use agentfleet_schema::{SessionId, Term, TermType, Triple, uris};
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// All that was said about the sessions of a tree: what they generated and used, who worked, and
/// what hangs on those nodes, in the provenance graph and no other: nothing that was loaded passes
/// for a trace. What was forked from it is another tree, and of what it was forked from itself it is
/// told that it is there. The sub-select selects `?top`, or a value for it would stay outside.
const TREE: &str = "
CONSTRUCT { ?node ?p ?o . ?from a prov:Entity } FROM <urn:graph:retrieval> WHERE {
  { SELECT DISTINCT ?node ?from ?top WHERE {
      ?session prov:wasInformedBy* ?top .
      FILTER NOT EXISTS { ?top tg:rootSessionId ?root . ?session tg:rootSessionId ?other .
                          FILTER(?root != ?other) }
      { ?session prov:startedAtTime ?start . BIND(?session AS ?node) }
      UNION { ?node prov:wasGeneratedBy ?session }
      UNION { ?session prov:used|prov:wasAssociatedWith ?node }
      UNION { ?made prov:wasGeneratedBy ?session .
              ?made tg:thought|tg:subagentGoals|tg:source|prov:wasAttributedTo ?node }
      UNION { ?session prov:wasInformedBy ?informant .
              FILTER NOT EXISTS { ?session tg:parentSessionId ?id }
              { ?session prov:used/prov:wasDerivedFrom ?from }
              UNION { ?made prov:wasGeneratedBy ?session ; prov:wasDerivedFrom ?from }
              BIND(?session AS ?node) }
  } }
  ?node ?p ?o
}";

/// How far the graph may be behind the records.
const LAG: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(25);

const JSON: Offer<()> = Offer {
    form: (),
    content_type: "application/json",
    media_types: &["application/json"],
    names: &["json"],
};

/// `GET /sessions/{id}/trace`.
pub(crate) async fn show(
    State(app): State<App>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = Params::read(query.as_deref(), &["format"])?;
    let mut format = params.one("format")?.map(str::to_ascii_lowercase);
    let session = SessionId::new(id);
    if let (None, Some(renderer)) = (&format, &app.parts.traces) {
        format = drawn_by_type(&headers, &renderer.formats());
    }
    if let (Some(renderer), Some(format)) = (&app.parts.traces, &format)
        && let Some(known) = renderer
            .formats()
            .iter()
            .find(|known| known.name == *format)
    {
        // Not before the graph has told what the own formats would show.
        triples(&app, &session).await?;
        let drawn = renderer.render(&session, format).await;
        let drawn = drawn.map_err(|error| Problem::internal("drawing the trace", &error))?;
        let drawn = drawn.ok_or_else(|| Problem::unknown_session(session.as_str()))?;
        return Ok(typed(drawn, &known.media_type));
    }
    let Some(form) = form(format.as_deref(), &headers)? else {
        return Err(unknown_format(&app, &format.unwrap_or_default()));
    };
    let triples = triples(&app, &session).await?;
    match form {
        None => {
            let body = nodes(&session, &triples).to_string().into_bytes();
            Ok(typed(body, JSON.content_type))
        }
        Some(offer) => {
            let format = offer.form;
            let answer = Answer::Triples(triples);
            let body = rdf::write(answer, move |answer| rdf::graph(answer, format)).await?;
            Ok(typed(body, offer.content_type))
        }
    }
}

/// What is drawn for an `Accept` that names its type. A range such as `*/*` asks for no drawing, nor
/// do types that the gateway writes itself.
fn drawn_by_type(headers: &HeaderMap, formats: &[TraceFormat]) -> Option<String> {
    let own = rdf::GRAPHS.iter().flat_map(|offer| offer.media_types);
    let own: Vec<&str> = own.chain(JSON.media_types).copied().collect();
    let bare = |format: &TraceFormat| {
        let kind = format.media_type.split(';').next().unwrap_or_default();
        kind.trim().to_ascii_lowercase()
    };
    let drawn: Vec<String> = formats.iter().map(bare).collect();
    let mut kinds = own.clone();
    kinds.extend(drawn.iter().map(String::as_str));
    let wanted = negotiate::named(headers, &kinds)?;
    let at = drawn.iter().position(|kind| kind == wanted)?;
    (!own.contains(&wanted)).then(|| formats[at].name.clone())
}

/// The form to write: `Some(None)` is JSON, and `None` an unknown name.
#[allow(clippy::option_option)] // each level says something else, and both are used up in one place
fn form(
    name: Option<&str>,
    headers: &HeaderMap,
) -> Result<Option<Option<&'static Offer<oxrdfio::RdfFormat>>>, Problem> {
    let Some(name) = name else {
        // Plain JSON unless an RDF syntax is asked for by its own name.
        if negotiate::choose(headers, &[JSON]).is_ok() {
            return Ok(Some(None));
        }
        return negotiate::choose(headers, rdf::GRAPHS).map(|offer| Some(Some(offer)));
    };
    if JSON.names.contains(&name) {
        return Ok(Some(None));
    }
    Ok(rdf::GRAPHS
        .iter()
        .find(|offer| offer.names.contains(&name))
        .map(Some))
}

fn unknown_format(app: &App, format: &str) -> Problem {
    let mut known: Vec<String> = vec!["json".to_owned()];
    known.extend(
        rdf::GRAPHS
            .iter()
            .filter_map(|o| o.names.first())
            .map(|name| (*name).to_owned()),
    );
    if let Some(renderer) = &app.parts.traces {
        known.extend(renderer.formats().into_iter().map(|format| format.name));
    }
    known.dedup();
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    Problem::new(
        Code::InvalidParameter,
        format!(
            "parameter `format`: unknown format `{format}` (available: {})",
            known.join(", ")
        ),
    )
}

/// The triples of a session's tree. Records come before the graph: of a session that has ended, its
/// end is waited for, for a moment.
async fn triples(app: &App, session: &SessionId) -> Result<Vec<Triple>, Problem> {
    let end = uris::answer(session);
    let until = Instant::now() + LAG;
    loop {
        let triples = read(app, session).await?;
        let told = triples.iter().any(|triple| triple.s.iri == end);
        if told || Instant::now() >= until {
            return Ok(triples);
        }
        // Of a session that goes on there is no end yet, and an unknown one is a problem.
        if session::look(app, session).await?.ended().is_none() {
            return Ok(triples);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn read(app: &App, session: &SessionId) -> Result<Vec<Triple>, Problem> {
    let options = QueryOptions {
        timeout: app.options.query_timeout,
        max_rows: app.options.max_rows,
        ..QueryOptions::default()
    };
    let top = Term::iri(uris::session(session));
    let answer = app
        .parts
        .graph
        .query(TREE, &[("top", top)], options)
        .await?;
    let Answer::Triples(mut triples) = answer else {
        return Err(Problem::internal(
            "reading the trace",
            &"the graph gave no triples",
        ));
    };
    for triple in &mut triples {
        triple.g = Some(uris::RETRIEVAL_GRAPH.to_owned());
    }
    triples.sort_by(|a, b| key(a).cmp(&key(b)));
    triples.dedup();
    Ok(triples)
}

/// Groups the statements of a node, the same way every time.
fn key(triple: &Triple) -> (&str, &str, &str, &str) {
    (&triple.s.iri, &triple.p.iri, &triple.o.iri, &triple.o.value)
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
