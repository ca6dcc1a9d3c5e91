//! What a server of our own does with a request that changes its graph.
//!
//! It is for holders of the data directory's token; whoever serves it checks that, and bounds the
//! body. Inserts only: `INSERT DATA` and N-Quads from anyone's tools, and batches with their owners
//! from a [`crate::RemoteGraph`] of ours, which finds out by [`PEER_HEADER`] that it may send them.
//! A request is stored whole or not at all.

use crate::error::Error;
use crate::{Batch, EraseBy, Erased, Graph, sparql, terms};
use agentfleet_schema::Digest;
use oxigraph::io::{RdfFormat, RdfParser};
use oxigraph::model::{BlankNode, GraphName, NamedOrBlankNode, Quad};
use serde::{Deserialize, Serialize};
use spargebra::GraphUpdateOperation;
use std::collections::HashMap;

/// The header that every answer to a query has, with the path of updates for its value.
pub const PEER_HEADER: &str = "agentfleet-graph";
/// The media type of [`Request`].
pub const OWN: &str = "application/vnd.agentfleet.graph+json";
const UPDATE: &str = "application/sparql-update";
const N_QUADS: &str = "application/n-quads";
/// What nests in a statement; a stack that runs out cannot be caught.
const MAX_DEPTH: usize = 50;

/// What one of ours asks of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    Insert(Vec<Batch>),
    Erase(Vec<EraseBy>),
    Count,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Inserted { batches: u64, triples: u64 },
    Erased(Erased),
    Counted { batches: u64 },
}

/// Carries out a request. `collection` owns what comes without an owner; it may be empty.
pub async fn update(
    graph: &dyn Graph,
    content_type: &str,
    body: &[u8],
    collection: &str,
) -> Result<Reply, Error> {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let batches = match media_type.to_ascii_lowercase().as_str() {
        OWN => match serde_json::from_slice(body).map_err(|error| unreadable("JSON", &error))? {
            Request::Insert(batches) => batches,
            Request::Erase(by) => return Ok(Reply::Erased(graph.erase_all(by).await?)),
            Request::Count => {
                let batches = graph.batches().await?;
                return Ok(Reply::Counted { batches });
            }
        },
        UPDATE => vec![batch(insert_data(text(body, "SPARQL")?)?, body, collection)],
        N_QUADS => vec![batch(n_quads(text(body, "N-Quads")?)?, body, collection)],
        other => return Err(Error::UnknownFormat(other.to_owned())),
    };
    let triples = batches.iter().map(|batch| batch.triples.len() as u64).sum();
    let count = batches.len() as u64;
    graph.insert(batches).await?;
    Ok(Reply::Inserted {
        batches: count,
        triples,
    })
}

/// The HTTP status that says what an error of [`update`] means to whoever sent the request.
pub fn status(error: &Error) -> u16 {
    match error {
        Error::UnknownFormat(_) => 415,
        Error::NotInsertData => 403,
        Error::Syntax { .. }
        | Error::QueryTooLarge { .. }
        | Error::Invalid { .. }
        | Error::Parse { .. } => 400,
        // A graph that is full, busy or away may take it later.
        other if other.retry().is_some() => 503,
        _ => 500,
    }
}

fn text<'b>(body: &'b [u8], format: &'static str) -> Result<&'b str, Error> {
    let text = std::str::from_utf8(body).map_err(|error| unreadable(format, &error))?;
    match sparql::depth(text) {
        found if found > MAX_DEPTH => Err(Error::QueryTooLarge {
            what: "levels of brackets:",
            found,
            most: MAX_DEPTH,
        }),
        _ => Ok(text),
    }
}

fn insert_data(text: &str) -> Result<Vec<Quad>, Error> {
    let mut quads = Vec::new();
    for operation in sparql::parse_update(text)? {
        match operation {
            GraphUpdateOperation::InsertData { data } => {
                for quad in data {
                    let graph = match quad.graph_name {
                        spargebra::term::GraphName::NamedNode(node) => node.into(),
                        spargebra::term::GraphName::DefaultGraph => GraphName::DefaultGraph,
                    };
                    quads.push(Quad::new(quad.subject, quad.predicate, quad.object, graph));
                }
            }
            GraphUpdateOperation::DeleteData { .. }
            | GraphUpdateOperation::DeleteInsert { .. }
            | GraphUpdateOperation::Load { .. }
            | GraphUpdateOperation::Clear { .. }
            | GraphUpdateOperation::Create { .. }
            | GraphUpdateOperation::Drop { .. } => return Err(Error::NotInsertData),
        }
    }
    Ok(quads)
}

fn n_quads(text: &str) -> Result<Vec<Quad>, Error> {
    RdfParser::from_format(RdfFormat::NQuads)
        .for_slice(text)
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable("N-Quads", &error))
}

/// One batch of what a body holds. Its blank nodes are its own, and the same when it is sent again.
fn batch(quads: Vec<Quad>, body: &[u8], collection: &str) -> Batch {
    let key = format!("update:{}", Digest::of(body).as_str());
    let prefix = format!("k{:.16}b", Digest::of(key.as_bytes()));
    let mut known: HashMap<BlankNode, BlankNode> = HashMap::new();
    let mut own = |name| {
        let NamedOrBlankNode::BlankNode(node) = name else {
            return name;
        };
        let label = format!("{prefix}{}", known.len());
        let label = || BlankNode::new_unchecked(label);
        known.entry(node).or_insert_with(label).clone().into()
    };
    let triples = quads.into_iter().map(|quad| {
        let graph_name = match quad.graph_name {
            GraphName::BlankNode(node) => own(node.into()).into(),
            other => other,
        };
        let (subject, object) = (own(quad.subject), terms::renamed(quad.object, &mut own));
        terms::wire_quad(Quad::new(subject, quad.predicate, object, graph_name))
    });
    Batch {
        triples: triples.collect(),
        key,
        root: String::new(),
        collection: collection.to_owned(),
        conversation: String::new(),
    }
}

fn unreadable(format: &'static str, error: &dyn std::fmt::Display) -> Error {
    Error::Parse {
        format,
        reason: error.to_string(),
        quads: 0,
    }
}
