//! What a store holds of ours, to be given to another graph: batches with their owners, from their
//! records. What others put into the store themselves is theirs to copy.

use super::records::{NAMESPACE, Record, node};
use super::skolem::{NO_GRAPH, restored};
use super::{Dialect, Remote};
use crate::error::Error;
use crate::export::wire;
use crate::{Batch, QueryOptions};
use oxigraph::model::{GraphName, NamedOrBlankNode, Quad, Term};
use std::time::Duration;

const OPTIONS: QueryOptions = QueryOptions {
    timeout: Duration::from_secs(600),
    max_rows: usize::MAX,
    apart: false,
};

impl Remote {
    /// The names of all batches.
    pub(super) async fn batches(&self) -> Result<Vec<String>, Error> {
        if self.dialect == Dialect::Peer {
            return Err(Error::Unsupported("export what another process keeps"));
        }
        let inner = self.own(&format!("?batch {} ?record .", node("record")));
        let sparql = format!("SELECT DISTINCT ?batch WHERE {{ {inner} }}");
        let found = self.rows_within(sparql, &["batch"], OPTIONS).await?;
        let names = (0..found.rows.len()).filter_map(|row| found.text(row, "batch"));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Some of them.
    pub(super) async fn export(&self, names: &[String]) -> Result<Vec<Batch>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let values: Vec<String> = names.iter().map(|name| format!("<{name}>")).collect();
        let part = |name: &str| format!("OPTIONAL {{ ?owner {} ?{name} }}", node(name));
        let parts = ["root", "collection", "conversation"].map(part).join(" ");
        let inner = self.own(&format!(
            "?batch {} ?owner ; {} ?record . {parts}",
            node("owner"),
            node("record")
        ));
        let sparql = format!(
            "SELECT * WHERE {{ VALUES ?batch {{ {} }} {inner} }} ORDER BY ?batch",
            values.join(" ")
        );
        let columns = ["batch", "record", "root", "collection", "conversation"];
        let found = self.rows_within(sparql, &columns, OPTIONS).await?;
        let mut batches: Vec<Batch> = Vec::new();
        for row in 0..found.rows.len() {
            let text = |name| found.text(row, name).unwrap_or_default();
            let (name, record) = (text("batch"), text("record"));
            let digest = name.strip_prefix(NAMESPACE).unwrap_or(name);
            let key = format!("log:{}", digest.trim_start_matches("batch:"));
            // One that was written twice has a record for each hour.
            if batches.last().is_some_and(|batch| batch.key == key) {
                continue;
            }
            let quads = Record::read(name, record)?.quads.into_iter();
            batches.push(Batch {
                triples: quads
                    .map(unstored)
                    .map(|quad| wire(quad.as_ref()))
                    .collect(),
                key,
                root: text("root").to_owned(),
                collection: text("collection").to_owned(),
                conversation: text("conversation").to_owned(),
            });
        }
        Ok(batches)
    }
}

/// A quad as it was before it was stored.
fn unstored(quad: Quad) -> Quad {
    let subject = match restored(quad.subject.clone().into()) {
        Term::NamedNode(node) => NamedOrBlankNode::from(node),
        Term::BlankNode(node) => node.into(),
        Term::Literal(_) | Term::Triple(_) => quad.subject,
    };
    let graph = match quad.graph_name {
        GraphName::NamedNode(node) if node.as_str() == NO_GRAPH => GraphName::DefaultGraph,
        graph => graph,
    };
    Quad::new(subject, quad.predicate, restored(quad.object), graph)
}
