//! What the store keeps about batches, so that erasure finds their statements again.
//!
//! # Layout
//! In the store's own default graph, which no query of ours shows (see [`super::rewrite`]):
//!
//! ```text
//! <urn:agentfleet:store:batch:D>  :owner  <urn:agentfleet:store:owner:H> ;
//!                                 :about  <each subject of the batch> ;
//!                                 :record "BODY" .
//! <urn:agentfleet:store:owner:H>  :root "..." ; :collection "..." ; :conversation "..." .
//! ```
//!
//! `D` is a digest of key and quads, `H` one of root, collection and conversation. The body is the
//! batch as the embedded log writes it, compressed, in Base64. A record is written by the same update
//! as its quads, so there is never one without the other. The same batch inserted again gives the
//! same statements.

use super::fault::RemoteFault;
use super::skolem;
use crate::embedded::{Prepared, body};
use crate::error::Error;
use crate::{Batch, terms};
use agentfleet_schema::{Digest, hex};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use oxigraph::model::{GraphName, Literal, NamedNode, NamedOrBlankNode, Quad};
use std::collections::BTreeSet;

pub(super) const NAMESPACE: &str = "urn:agentfleet:store:";

/// Checks a batch, and writes its quads and its record down for an update.
pub(super) fn written(batch: &Batch) -> Result<String, Error> {
    let quads = terms::quads(batch)?.into_iter().map(skolem::stored);
    let quads: Vec<Quad> = quads.collect();
    Ok(data(&quads) + &record(batch, &quads))
}

/// Quads as they stand in `INSERT DATA` and `DELETE DATA`.
pub(super) fn data(quads: &[Quad]) -> String {
    let mut text = String::with_capacity(quads.len() * 200);
    let mut open: Option<&GraphName> = None;
    for quad in quads {
        if open != Some(&quad.graph_name) {
            if open.is_some() {
                text.push_str("}\n");
            }
            text.push_str(&format!("GRAPH {} {{\n", quad.graph_name));
            open = Some(&quad.graph_name);
        }
        text.push_str(&format!(
            "{} {} {} .\n",
            quad.subject, quad.predicate, quad.object
        ));
    }
    if open.is_some() {
        text.push_str("}\n");
    }
    text
}

pub(super) fn node(local: &str) -> NamedNode {
    NamedNode::new_unchecked(format!("{NAMESPACE}{local}"))
}

fn record(batch: &Batch, quads: &[Quad]) -> String {
    let prepared = Prepared::of_quads(batch, quads);
    let digest = hex(prepared.digest());
    let (named, owner) = (node(&format!("batch:{digest}")), owner(batch));
    let body = BASE64.encode(lz4_flex::compress_prepend_size(prepared.body()));
    let record = Literal::new_simple_literal(body);
    let subjects: BTreeSet<String> = quads.iter().map(|quad| quad.subject.to_string()).collect();
    let subjects: Vec<String> = subjects.into_iter().collect();
    let mut text = format!(
        "{named} {} {owner} ; {} {record} ; {} {} .\n",
        node("owner"),
        node("record"),
        node("about"),
        subjects.join(", ")
    );
    for (name, value) in parts(batch) {
        if !value.is_empty() {
            let value = Literal::new_simple_literal(value);
            text.push_str(&format!("{owner} {} {value} .\n", node(name)));
        }
    }
    text
}

fn parts(batch: &Batch) -> [(&'static str, &str); 3] {
    [
        ("root", batch.root.as_str()),
        ("collection", batch.collection.as_str()),
        ("conversation", batch.conversation.as_str()),
    ]
}

fn owner(batch: &Batch) -> NamedNode {
    let mut text = String::new();
    for (_, value) in parts(batch) {
        text.push_str(&format!("{}:{value}", value.len()));
    }
    let digest = Digest::of(text.as_bytes());
    node(&format!("owner:{:.32}", digest.as_str()))
}

/// A record read back.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) batch: String,
    pub(super) quads: Vec<Quad>,
}

impl Record {
    pub(super) fn read(batch: &str, text: &str) -> Result<Self, RemoteFault> {
        let fault = |reason: &str| RemoteFault::Record {
            batch: batch.to_owned(),
            reason: reason.to_owned(),
        };
        let packed = BASE64
            .decode(text)
            .map_err(|error| fault(&error.to_string()))?;
        let bytes = lz4_flex::decompress_size_prepended(&packed)
            .map_err(|error| fault(&error.to_string()))?;
        let mut quads = Vec::new();
        body::decode(&bytes, |quad| quads.push(quad.into_owned())).map_err(fault)?;
        Ok(Self {
            batch: batch.to_owned(),
            quads,
        })
    }

    /// The subjects, as they are written in a query.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &NamedOrBlankNode> {
        self.quads.iter().map(|quad| &quad.subject)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::contract;
    use agentfleet_schema::{Term, Triple};

    #[test]
    fn a_record_gives_back_every_kind_of_term() {
        let triples = contract::every_kind()
            .into_iter()
            .map(|object| Triple {
                s: Term::iri("urn:test:s"),
                p: Term::iri("urn:test:p"),
                o: object,
                g: None,
            })
            .collect();
        let batch = contract::batch("k", triples);
        let stored: Vec<Quad> = terms::quads(&batch)
            .unwrap()
            .into_iter()
            .map(skolem::stored)
            .collect();
        let text = written(&batch).unwrap();
        let line = text
            .lines()
            .find(|line| line.contains("store:record"))
            .unwrap();
        let literal = line.split('"').nth(1).unwrap();
        assert_eq!(Record::read("b", literal).unwrap().quads, stored);
        assert!(Record::read("b", "~").is_err());
    }

    #[test]
    fn the_same_batch_is_written_the_same_and_another_owner_is_another() {
        let triple = Triple {
            s: Term::iri("urn:test:s"),
            p: Term::iri("urn:test:p"),
            o: Term::text("\" } ; DROP ALL #"),
            g: None,
        };
        let one = contract::batch("k", vec![triple]);
        let text = |batch: &Batch| written(batch).unwrap();
        assert_eq!(text(&one), text(&one.clone()));
        assert!(text(&one).contains("\"\\\" } ; DROP ALL #\""));
        let other = Batch {
            root: "roo".to_owned(),
            collection: "tdefault".to_owned(),
            ..one.clone()
        };
        assert_ne!(owner(&one), owner(&other));
    }
}
