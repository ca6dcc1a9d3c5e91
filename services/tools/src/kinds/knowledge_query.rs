//! `knowledge-query`: statements of the collection's graph about what a question names.
//!
//! Entities are found by words in the library's index; their statements are then asked of the graph
//! with the entity bound, so no query scans. Each statement is a line
//! `- subject | predicate | object [subject uri]`, in labels where there are any. A node without a
//! name is written as what it says, in parentheses.

use super::{Call, ToolKind, nothing};
use crate::library::{Entity, Library, covered, is_blank, label_quality, local_name, terms};
use crate::{Error, ToolResult, arguments};
use agentfleet_graph::{Answer, Graph, QueryOptions};
use agentfleet_schema::config::{ToolArgument, ToolItem};
use agentfleet_schema::records::Source;
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL};
use agentfleet_schema::{Term, TermType, uris};
use async_trait::async_trait;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Statements returned unless the item says otherwise.
const LIMIT: usize = 30;
/// Entities whose statements are asked for.
const ENTITIES: usize = 8;
/// An entity with less than this share of the best one's score is about something else.
const RELEVANT: f64 = 0.2;
/// Statements looked at for each entity and direction.
const LOOKED_AT: usize = 300;
/// Nameless nodes that are written out, and statements of each.
const NAMELESS: usize = 40;
const NAMELESS_PARTS: usize = 8;
const RDF_FIRST: &str = "http://www.w3.org/1999/02/22-rdf-syntax-ns#first";
/// Most characters of one value.
const MAX_VALUE: usize = 600;

const OUT: &str = "SELECT ?p ?o WHERE { GRAPH ?g { ?s ?p ?o } } LIMIT 300";
const IN: &str = "SELECT ?s ?p WHERE { GRAPH ?g { ?s ?p ?o } } LIMIT 300";

pub(crate) struct KnowledgeQuery {
    library: Library,
    graph: Arc<dyn Graph>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Statement {
    subject: String,
    predicate: String,
    object: Term,
}

impl KnowledgeQuery {
    pub(crate) fn new(library: Library, graph: Arc<dyn Graph>) -> Self {
        Self { library, graph }
    }

    /// The statements with `term` in one place.
    async fn statements(
        &self,
        graph: &str,
        term: &str,
        query: &str,
    ) -> Result<Vec<Statement>, agentfleet_graph::Error> {
        let is_subject = query == OUT;
        let place = if is_subject { "s" } else { "o" };
        let bindings = [("g", Term::iri(graph)), (place, Term::iri(term))];
        let answer = self
            .graph
            .query(query, &bindings, QueryOptions::default())
            .await?;
        let Answer::Solutions(found) = answer else {
            return Ok(Vec::new());
        };
        let mut statements = Vec::with_capacity(found.rows.len().min(LOOKED_AT));
        for row in 0..found.rows.len() {
            let Some(predicate) = found.text(row, "p").map(str::to_owned) else {
                continue;
            };
            let (subject, object) = if is_subject {
                let object = found
                    .column("o")
                    .and_then(|column| found.rows[row][column].clone());
                (Some(term.to_owned()), object)
            } else {
                (
                    found.text(row, "s").map(str::to_owned),
                    Some(Term::iri(term)),
                )
            };
            if let (Some(subject), Some(object)) = (subject, object) {
                statements.push(Statement {
                    subject,
                    predicate,
                    object,
                });
            }
        }
        Ok(statements)
    }

    async fn about(
        &self,
        graph: &str,
        entity: &str,
    ) -> Result<Vec<Statement>, agentfleet_graph::Error> {
        let mut all = without_translations(self.statements(graph, entity, OUT).await?);
        let incoming = self.statements(graph, entity, IN).await?;
        // That something is an item of a list says nothing about it.
        all.extend(incoming.into_iter().filter(|s| s.predicate != RDF_FIRST));
        Ok(all)
    }

    async fn lines(
        &self,
        call: &Call,
        question: &str,
        entities: &[Entity],
    ) -> Result<Vec<(String, String)>, Failure> {
        let graph = uris::collection_graph(call.collection.as_str());
        let words = terms(question);
        let mut found = Vec::with_capacity(entities.len());
        for entity in entities {
            found.push(self.about(&graph, &entity.uri).await?);
        }
        let mut nameless = HashMap::new();
        for node in nameless_nodes(found.iter().flatten()) {
            let parts = self.statements(&graph, &node, OUT).await?;
            nameless.insert(node, parts);
        }
        let iris = named_iris(found.iter().flatten().chain(nameless.values().flatten()));
        let labels = self.library.labels(&call.collection, iris).await?;
        let names = Names { labels, nameless };
        for statements in &mut found {
            // Those that speak of what was asked first; types, which say least, last.
            statements.sort_by_cached_key(|s| {
                (
                    std::cmp::Reverse(covered(&words, &names.line(s))),
                    s.predicate == RDF_TYPE,
                )
            });
        }
        Ok(names.lines(found, call.limit(LIMIT)))
    }
}

/// A fault of a store, or a query that only this question makes fail.
enum Failure {
    Fault(Error),
    Query(agentfleet_graph::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

impl From<agentfleet_graph::Error> for Failure {
    fn from(error: agentfleet_graph::Error) -> Self {
        if error.retry().is_some() {
            Self::Fault(error.into())
        } else {
            Self::Query(error)
        }
    }
}

#[async_trait]
impl ToolKind for KnowledgeQuery {
    fn name(&self) -> &'static str {
        "knowledge-query"
    }

    fn arguments(&self, _tool: &ToolItem) -> Vec<ToolArgument> {
        vec![arguments::text(
            "question",
            "a question that names the things to look up",
        )]
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let question = call.arguments.text("question");
        let mut entities = self
            .library
            .entities(&call.collection, question, ENTITIES)
            .await?;
        let best = entities.first().map_or(0.0, |entity| entity.score);
        entities.retain(|entity| entity.score >= best * RELEVANT);
        let lines = match self.lines(&call, question, &entities).await {
            Ok(lines) => lines,
            Err(Failure::Fault(error)) => return Err(error),
            Err(Failure::Query(error)) => return Ok(ToolResult::error(error.to_string())),
        };
        if lines.is_empty() {
            let content = nothing(&self.library, &call.collection, "facts", question).await?;
            return Ok(ToolResult {
                content,
                ..ToolResult::default()
            });
        }
        let shown: HashSet<&str> = lines.iter().map(|(subject, _)| subject.as_str()).collect();
        let mut sources: Vec<Source> = Vec::new();
        for entity in &entities {
            if sources.iter().all(|source| source.uri != entity.document) {
                let title = entity.document_title.clone();
                sources.push(Source {
                    uri: entity.document.clone(),
                    title,
                });
            }
        }
        for entity in entities {
            if shown.contains(entity.uri.as_str()) && !is_blank(&entity.uri) {
                sources.push(Source {
                    uri: entity.uri,
                    title: entity.label,
                });
            }
        }
        let lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
        Ok(ToolResult {
            content: lines.join("\n"),
            sources,
            ..ToolResult::default()
        })
    }
}

/// What IRIs are called.
struct Names {
    labels: HashMap<String, String>,
    nameless: HashMap<String, Vec<Statement>>,
}

impl Names {
    /// Statements as lines with their subject, the best of each entity before the rest of any.
    fn lines(&self, found: Vec<Vec<Statement>>, limit: usize) -> Vec<(String, String)> {
        let share = (limit / 3).max(6);
        let mut seen = HashSet::new();
        let mut first = Vec::new();
        let mut rest = Vec::new();
        for statements in found {
            let mut taken = 0;
            for statement in statements {
                let line = (statement.subject.clone(), self.line(&statement));
                // Different terms may have the same name: `rdfs:Class` and `owl:Class`.
                if self.is_redundant(&statement) || !seen.insert(line.clone()) {
                    continue;
                }
                taken += 1;
                if taken <= share {
                    first.push(line);
                } else {
                    rest.push(line);
                }
            }
        }
        first.truncate(limit);
        let room = limit - first.len();
        first.extend(rest.into_iter().take(room));
        first
    }

    fn line(&self, statement: &Statement) -> String {
        let Statement {
            subject,
            predicate,
            object,
        } = statement;
        format!(
            "- {} | {} | {} [{subject}]",
            self.subject(subject, predicate),
            self.of(predicate),
            self.object(object)
        )
    }

    /// Whether a statement only repeats the name its line begins with.
    fn is_redundant(&self, statement: &Statement) -> bool {
        let names = statement.predicate == RDFS_LABEL
            || label_quality(&statement.predicate, &statement.object.language).is_some();
        names && self.labels.get(&statement.subject) == Some(&statement.object.value)
    }

    fn subject(&self, iri: &str, but: &str) -> String {
        if is_blank(iri) {
            self.written_out(iri, Some(but))
        } else {
            self.of(iri)
        }
    }

    fn object(&self, term: &Term) -> String {
        match term.kind {
            TermType::Iri if is_blank(&term.iri) => self.written_out(&term.iri, None),
            TermType::Iri => self.of(&term.iri),
            TermType::Literal => shortened(&term.value),
            TermType::Blank => "something without a name".to_owned(),
            TermType::Triple => match term.triple.as_deref() {
                Some(inner) => format!(
                    "that {} {} {}",
                    self.object(&inner.s),
                    self.of(&inner.p.iri),
                    self.object(&inner.o)
                ),
                None => "a statement".to_owned(),
            },
        }
    }

    /// An object inside a nameless node: one level is written out, deeper ones are named only.
    fn value(&self, term: &Term) -> String {
        match term.kind {
            TermType::Literal => shortened(&term.value),
            TermType::Iri | TermType::Blank | TermType::Triple => self.of(&term.iri),
        }
    }

    fn of(&self, iri: &str) -> String {
        match self.labels.get(iri).map(String::as_str) {
            Some(label) if !label.is_empty() => label.to_owned(),
            _ if is_blank(iri) => "something without a name".to_owned(),
            _ => match local_name(iri) {
                name if name.is_empty() => iri.to_owned(),
                name => name,
            },
        }
    }

    /// A node without a name by its statements, without those of predicate `but`.
    fn written_out(&self, iri: &str, but: Option<&str>) -> String {
        let Some(statements) = self.nameless.get(iri) else {
            return self.of(iri);
        };
        if let Some(first) = statements.iter().find(|s| s.predicate == RDF_FIRST) {
            return format!("a list that begins with {}", self.value(&first.object));
        }
        let kind = statements.iter().find(|s| s.predicate == RDF_TYPE);
        let kind = kind.map_or_else(|| "something".to_owned(), |s| self.of(&s.object.iri));
        let parts: Vec<String> = statements
            .iter()
            .filter(|s| s.predicate != RDF_TYPE && Some(s.predicate.as_str()) != but)
            .take(NAMELESS_PARTS)
            .map(|s| format!("{}: {}", self.of(&s.predicate), self.value(&s.object)))
            .collect();
        if parts.is_empty() {
            kind
        } else {
            format!("{kind} ({})", parts.join("; "))
        }
    }
}

/// Leaves out what is said again in another language.
fn without_translations(mut statements: Vec<Statement>) -> Vec<Statement> {
    let is_foreign = |term: &Term| {
        !term.language.is_empty() && !term.language.to_ascii_lowercase().starts_with("en")
    };
    let readable: HashSet<String> = statements
        .iter()
        .filter(|s| s.object.kind == TermType::Literal && !is_foreign(&s.object))
        .map(|s| s.predicate.clone())
        .collect();
    statements.retain(|s| !is_foreign(&s.object) || !readable.contains(&s.predicate));
    statements
}

fn nameless_nodes<'s>(statements: impl Iterator<Item = &'s Statement>) -> BTreeSet<String> {
    statements
        .flat_map(|s| [s.subject.as_str(), s.object.iri.as_str()])
        .filter(|iri| is_blank(iri))
        .map(str::to_owned)
        .take(NAMELESS)
        .collect()
}

fn named_iris<'s>(statements: impl Iterator<Item = &'s Statement>) -> Vec<String> {
    let all: BTreeSet<&str> = statements
        .flat_map(|s| {
            [
                s.subject.as_str(),
                s.predicate.as_str(),
                s.object.iri.as_str(),
            ]
        })
        .filter(|iri| !iri.is_empty())
        .collect();
    all.into_iter().map(str::to_owned).collect()
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_VALUE) {
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line,
    }
}
