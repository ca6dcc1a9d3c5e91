//! Whole graphs in and out: dumps for other stores, and files of knowledge.

use super::{EmbeddedGraph, Prepared};
use crate::error::Error;
use crate::{Batch, RdfFormat};
use agentfleet_schema::Digest;
use oxigraph::io::{RdfParser, RdfSerializer};
use oxigraph::model::{
    BlankNode, GraphName, NamedNode, NamedOrBlankNode, Quad, Term as RdfTerm, Triple as RdfTriple,
};
use std::collections::HashMap;
use std::io::{BufWriter, Read, Write};
use tokio::sync::mpsc;

/// Quads of one batch of a load.
const BATCH: usize = 1000;
/// Batches stored in one transaction.
const TOGETHER: usize = 16;

/// How data is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    pub format: RdfFormat,
    /// Names the data, for example the file. The same data under the same key is stored once.
    pub key: String,
    /// The collection it belongs to, for erasure.
    pub collection: String,
    /// Where statements without a graph go; the default graph unless given.
    pub graph: Option<String>,
    /// What relative IRIs are resolved against.
    pub base: Option<String>,
    /// Keep blank node labels: for a dump of our own. Otherwise they are made unique to the key,
    /// because the same label in two files means two nodes.
    pub keep_labels: bool,
}

/// What a load did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Loaded {
    pub quads: u64,
    pub batches: u64,
}

impl EmbeddedGraph {
    /// Writes every quad, and returns the writer and how many there were.
    pub async fn dump<W>(&self, writer: W, format: RdfFormat) -> Result<(W, u64), Error>
    where
        W: Write + Send + 'static,
    {
        if !format.engine().supports_datasets() {
            return Err(Error::OneGraphFormat(format.as_str()));
        }
        let generation = self.inner.caught_up().await?;
        let write = move || {
            let mut serializer =
                RdfSerializer::from_format(format.engine()).for_writer(BufWriter::new(writer));
            let mut quads = 0;
            for quad in &generation.store {
                let quad = quad.map_err(Error::engine)?;
                serializer.serialize_quad(&quad).map_err(Error::Write)?;
                quads += 1;
            }
            let buffer = serializer.finish().map_err(Error::Write)?;
            let writer = buffer
                .into_inner()
                .map_err(|error| Error::Write(error.into_error()))?;
            Ok((writer, quads))
        };
        tokio::task::spawn_blocking(write)
            .await
            .map_err(|_| Error::Stopped)?
    }

    /// Loads RDF: a dump, or a file of knowledge. `progress` is called with the quads stored.
    pub async fn load<R>(
        &self,
        reader: R,
        options: LoadOptions,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Loaded, Error>
    where
        R: Read + Send + 'static,
    {
        let format = options.format.as_str();
        let parser = parser(&options)?;
        let (sender, mut receiver) = mpsc::channel(TOGETHER);
        let parsing = tokio::task::spawn_blocking(move || parse(parser, reader, &options, &sender));
        let mut loaded = Loaded::default();
        let mut group: Vec<Prepared> = Vec::new();
        while receiver.recv_many(&mut group, TOGETHER).await > 0 {
            let (quads, batches) = (
                group.iter().map(Prepared::quads).sum::<u64>(),
                group.len() as u64,
            );
            self.store(std::mem::take(&mut group)).await?;
            loaded.quads += quads;
            loaded.batches += batches;
            progress(loaded.quads);
        }
        match parsing.await.map_err(|_| Error::Stopped)? {
            Ok(()) => Ok(loaded),
            Err(reason) => Err(Error::Parse {
                format,
                reason,
                quads: loaded.quads,
            }),
        }
    }
}

fn parser(options: &LoadOptions) -> Result<RdfParser, Error> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| Error::Parse {
        format: options.format.as_str(),
        reason: format!("{what}: {error}"),
        quads: 0,
    };
    let mut parser = RdfParser::from_format(options.format.engine());
    if let Some(base) = &options.base {
        parser = parser
            .with_base_iri(base)
            .map_err(|error| wrong(&format!("the base `{base}`"), &error))?;
    }
    if let Some(graph) = &options.graph {
        let name = NamedNode::new(graph)
            .map_err(|error| wrong(&format!("the graph `{graph}`"), &error))?;
        parser = parser.with_default_graph(name);
    }
    Ok(parser)
}

/// Parses and hands over batches; stops quietly when nobody takes them any more.
fn parse(
    parser: RdfParser,
    reader: impl Read,
    options: &LoadOptions,
    sender: &mpsc::Sender<Prepared>,
) -> Result<(), String> {
    let mut labels = Labels::new(options);
    let mut quads = Vec::with_capacity(BATCH);
    let mut index = 0_usize;
    let mut hand_over = |quads: &mut Vec<Quad>| {
        let batch = Batch {
            key: format!("{}#{index}", options.key),
            root: String::new(),
            collection: options.collection.clone(),
            conversation: String::new(),
            triples: Vec::new(),
        };
        index += 1;
        let prepared = Prepared::of_quads(&batch, quads);
        quads.clear();
        sender.blocking_send(prepared).is_ok()
    };
    for quad in parser.for_reader(reader) {
        let quad = match quad {
            Ok(quad) => quad,
            Err(error) => {
                // What came before stands, so that the message can say how much there was.
                if !quads.is_empty() {
                    hand_over(&mut quads);
                }
                return Err(error.to_string());
            }
        };
        quads.push(labels.quad(quad));
        if quads.len() == BATCH && !hand_over(&mut quads) {
            return Ok(());
        }
    }
    if !quads.is_empty() {
        hand_over(&mut quads);
    }
    Ok(())
}

/// Blank node labels that depend on the key and the order of appearance only, so that loading the
/// same data again gives the same nodes.
pub(crate) struct Labels {
    prefix: Option<String>,
    known: HashMap<BlankNode, BlankNode>,
}

impl Labels {
    fn new(options: &LoadOptions) -> Self {
        if options.keep_labels {
            return Self {
                prefix: None,
                known: HashMap::new(),
            };
        }
        Self::unique_to(&options.key)
    }

    pub(crate) fn unique_to(key: &str) -> Self {
        Self {
            prefix: Some(format!("k{:.16}b", Digest::of(key.as_bytes()))),
            known: HashMap::new(),
        }
    }

    pub(crate) fn quad(&mut self, quad: Quad) -> Quad {
        if self.prefix.is_none() {
            return quad;
        }
        let Quad {
            subject,
            predicate,
            object,
            graph_name,
        } = quad;
        let graph_name = match graph_name {
            GraphName::BlankNode(node) => self.node(node).into(),
            other => other,
        };
        Quad::new(self.name(subject), predicate, self.term(object), graph_name)
    }

    fn name(&mut self, name: NamedOrBlankNode) -> NamedOrBlankNode {
        match name {
            NamedOrBlankNode::BlankNode(node) => self.node(node).into(),
            NamedOrBlankNode::NamedNode(_) => name,
        }
    }

    fn term(&mut self, term: RdfTerm) -> RdfTerm {
        match term {
            RdfTerm::BlankNode(node) => self.node(node).into(),
            RdfTerm::Triple(triple) => {
                let RdfTriple {
                    subject,
                    predicate,
                    object,
                } = *triple;
                let (subject, object) = (self.name(subject), self.term(object));
                RdfTerm::Triple(Box::new(RdfTriple::new(subject, predicate, object)))
            }
            RdfTerm::NamedNode(_) | RdfTerm::Literal(_) => term,
        }
    }

    fn node(&mut self, node: BlankNode) -> BlankNode {
        let Some(prefix) = &self.prefix else {
            return node;
        };
        let next = self.known.len();
        let label = || BlankNode::new_unchecked(format!("{prefix}{next}"));
        self.known.entry(node).or_insert_with(label).clone()
    }
}
