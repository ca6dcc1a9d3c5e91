//! Erasure: from the records of batches to their statements.
//!
//! A statement goes if a batch that is erased states it and no other batch does, as in the embedded
//! graph. Statements and records of some batches go in one update, so an erasure that is interrupted
//! goes on where it stopped when it is repeated.

use super::records::{Record, data, node};
use super::rewrite::{Form, Plan};
use super::{Dialect, Remote};
use crate::error::Error;
use crate::{Answer, EraseBy, Erased, QueryOptions, Solutions};
use oxigraph::model::{Literal, NamedOrBlankNode, Quad, Variable};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Batches erased by one update, and read at once.
const PAGE: usize = 32;
/// Of the questions that an erasure asks.
const OPTIONS: QueryOptions = QueryOptions {
    timeout: Duration::from_secs(120),
    max_rows: usize::MAX,
    apart: false,
    graphs: None,
};

impl Remote {
    pub(super) async fn erase(self: &Arc<Self>, by: &EraseBy) -> Result<Erased, Error> {
        let mut erased = Erased::default();
        let Some(chosen) = chosen(by) else {
            return Ok(erased);
        };
        loop {
            let page = self.page(&chosen).await?;
            if page.is_empty() {
                break;
            }
            let mut gone: HashSet<Quad> = HashSet::new();
            for record in &page {
                erased.quads += record.quads.len() as u64;
                gone.extend(record.quads.iter().cloned());
            }
            erased.batches += page.len() as u64;
            let stated = self.stated_by_others(&gone, &chosen).await?;
            gone.retain(|quad| !stated.contains(quad));
            self.update(self.deletion(&gone, &page)).await?;
            // Whoever stated the same meanwhile, too, has it back.
            let stated = self.stated_by_others(&gone, &chosen).await?;
            if !stated.is_empty() {
                let again: Vec<Quad> = stated.into_iter().collect();
                self.insert_data(data(&again)).await?;
            }
        }
        if erased.batches > 0 {
            self.forget_owners().await?;
        }
        Ok(erased)
    }

    /// Some of the batches that are to go; none if none is left.
    async fn page(&self, chosen: &str) -> Result<Vec<Record>, Error> {
        let (owner, record) = (node("owner"), node("record"));
        let inner = self.own(&format!(
            "?batch {owner} ?owner ; {record} ?record . {chosen}"
        ));
        let sparql = format!("SELECT ?batch ?record WHERE {{ {inner} }} LIMIT {PAGE}");
        read(&self.rows(sparql, &["batch", "record"]).await?)
    }

    fn deletion(&self, gone: &HashSet<Quad>, page: &[Record]) -> String {
        let mut gone: Vec<Quad> = gone.iter().cloned().collect();
        gone.sort_by_cached_key(|quad| quad.graph_name.to_string());
        let batches: Vec<String> = page.iter().map(|it| format!("<{}>", it.batch)).collect();
        let records = format!(
            "DELETE {{ ?batch ?p ?o }} WHERE {{ VALUES ?batch {{ {} }} {} }}",
            batches.join(" "),
            self.own("?batch ?p ?o .")
        );
        if gone.is_empty() {
            return records;
        }
        format!("DELETE DATA {{\n{}}} ;\n{records}", data(&gone))
    }

    /// Which of these are stated by a batch that stays.
    async fn stated_by_others(
        &self,
        quads: &HashSet<Quad>,
        chosen: &str,
    ) -> Result<HashSet<Quad>, Error> {
        // What is not yet known to be stated, by subject: a subject of many batches is soon settled.
        let mut open: HashMap<NamedOrBlankNode, HashSet<Quad>> = HashMap::new();
        for quad in quads {
            let of_subject = open.entry(quad.subject.clone()).or_default();
            of_subject.insert(quad.clone());
        }
        let mut stated = HashSet::new();
        let mut after = None;
        while !open.is_empty() {
            let found = self.others(open.keys(), chosen, after.as_deref()).await?;
            let mut named: HashSet<NamedOrBlankNode> = HashSet::new();
            for record in &found {
                named.extend(record.subjects().cloned());
                for quad in &record.quads {
                    let Some(of_subject) = open.get_mut(&quad.subject) else {
                        continue;
                    };
                    if of_subject.remove(quad) {
                        stated.insert(quad.clone());
                    }
                }
            }
            open.retain(|_, of_subject| !of_subject.is_empty());
            match found.last() {
                Some(last) if found.len() >= PAGE => {
                    // The first look takes what comes first; from then on there is an order.
                    after = Some(after.map_or_else(String::new, |_: String| last.batch.clone()));
                }
                _ => break,
            }
        }
        Ok(stated)
    }

    /// Batches that stay and are about one of the subjects.
    async fn others(
        &self,
        subjects: impl Iterator<Item = &NamedOrBlankNode>,
        chosen: &str,
        after: Option<&str>,
    ) -> Result<Vec<Record>, Error> {
        let subjects: Vec<String> = subjects.map(ToString::to_string).collect();
        let (about, owner, record) = (node("about"), node("owner"), node("record"));
        let (later, order) = match after {
            None => (String::new(), ""),
            Some(after) => {
                let after = Literal::new_simple_literal(after);
                (format!("FILTER(STR(?batch) > {after})"), "ORDER BY ?batch")
            }
        };
        let batches = self.own(&format!(
            "?batch {about} ?subject . {later}
             FILTER NOT EXISTS {{ ?batch {owner} ?owner ; {record} ?record . {chosen} }}"
        ));
        let records = self.own(&format!("?batch {record} ?record ."));
        let sparql = format!(
            "SELECT ?batch ?record WHERE {{
                {{ SELECT DISTINCT ?batch WHERE {{
                    VALUES ?subject {{ {} }} {batches} }} {order} LIMIT {PAGE} }}
                {records} }} {order}",
            subjects.join(" ")
        );
        read(&self.rows(sparql, &["batch", "record"]).await?)
    }

    /// How many batches have a record. Reads all of them.
    pub(super) async fn batches(&self) -> Result<u64, Error> {
        let records = self.own(&format!("?batch {} ?record .", node("record")));
        let sparql = format!("SELECT (COUNT(DISTINCT ?batch) AS ?n) WHERE {{ {records} }}");
        let found = self.rows(sparql, &["n"]).await?;
        let count = found.text(0, "n").and_then(|n| n.parse().ok());
        Ok(count.unwrap_or_default())
    }

    /// Owners without batches say nothing more.
    async fn forget_owners(&self) -> Result<(), Error> {
        let owner = node("owner");
        let names: Vec<String> = ["root", "collection", "conversation"]
            .map(|name| node(name).to_string())
            .to_vec();
        let unused = self.own(&format!(
            "VALUES ?p {{ {} }} ?owner ?p ?o . FILTER NOT EXISTS {{ ?batch {owner} ?owner }}",
            names.join(" ")
        ));
        self.update(format!("DELETE {{ ?owner ?p ?o }} WHERE {{ {unused} }}"))
            .await
    }

    /// A pattern over the records. Jena may be told to show the union as its default graph.
    pub(super) fn own(&self, pattern: &str) -> String {
        match self.dialect {
            Dialect::Jena => format!("GRAPH <urn:x-arq:DefaultGraph> {{ {pattern} }}"),
            Dialect::Standard | Dialect::Peer => format!("{{ {pattern} }}"),
        }
    }

    pub(super) async fn rows(&self, sparql: String, columns: &[&str]) -> Result<Solutions, Error> {
        self.rows_within(sparql, columns, OPTIONS).await
    }

    pub(super) async fn rows_within(
        &self,
        sparql: String,
        columns: &[&str],
        options: QueryOptions,
    ) -> Result<Solutions, Error> {
        let columns = columns.iter().map(|name| Variable::new_unchecked(*name));
        let plan = Plan {
            text: sparql,
            form: Form::Rows(columns.collect()),
        };
        match self.answer(plan, &options).await? {
            Answer::Solutions(found) => Ok(found),
            Answer::Boolean(_) | Answer::Triples(_) => Ok(Solutions::default()),
        }
    }
}

/// What the `?owner` of a record must be for it to be erased; nothing if nothing can be.
fn chosen(by: &EraseBy) -> Option<String> {
    let (name, value) = match by {
        EraseBy::Root(value) => ("root", value),
        EraseBy::Conversation(value) => ("conversation", value),
        EraseBy::Collection(value) => ("collection", value),
    };
    // An empty name means `none`, and never `all without one`.
    let literal = Literal::new_simple_literal(value);
    (!value.is_empty()).then(|| format!("?owner {} {literal} .", node(name)))
}

/// Records, each batch once.
fn read(found: &Solutions) -> Result<Vec<Record>, Error> {
    let mut seen = HashSet::new();
    let mut records = Vec::new();
    for row in 0..found.rows.len() {
        let (Some(batch), Some(record)) = (found.text(row, "batch"), found.text(row, "record"))
        else {
            continue;
        };
        if seen.insert(batch.to_owned()) {
            records.push(Record::read(batch, record)?);
        }
    }
    Ok(records)
}
