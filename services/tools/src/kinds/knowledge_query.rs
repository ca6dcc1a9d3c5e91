//! `knowledge-query`: statements of the collection's graph about what a question names.
//!
//! Entities are found by words in the library's index; their statements are then asked of the graph
//! with the entity bound, so no query scans. Statements stand below the loaded file that makes them,
//! `[n] Title (uri)`, each as a line `- subject | predicate | object [subject uri]`, in labels where
//! there are any. A node without a name is written as what it says, in parentheses.

mod names;

use super::{Call, PATIENT, ToolKind, graph_answers, library_answers, nothing};
use crate::{Error, ToolResult};
use agentfleet_graph::{Graph, QueryOptions};
use agentfleet_library::{
    Description, Entity, Library, document_of_blank, is_blank, local_name, one_value,
};
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::records::Source;
use agentfleet_schema::vocabulary::RDF_TYPE;
use agentfleet_schema::words::terms;
use agentfleet_schema::{Term, TermType, arguments, uris};
use async_trait::async_trait;
use names::{Names, named_iris, nameless_nodes, without_translations};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

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
/// Shortest beginning that a word of the question and a predicate may share: `subclasses` asks for
/// `subClassOf`.
const RELATION_CHARS: usize = 5;
/// Predicates, by the end of their IRI, that say in words what something is.
const DESCRIBING: &[&str] = &[
    "definition",
    "description",
    "comment",
    "abstract",
    "scopenote",
    "note",
];

const OUT: &str = "SELECT ?p ?o WHERE { GRAPH ?g { ?s ?p ?o } } LIMIT 300";
const IN: &str = "SELECT ?s ?p WHERE { GRAPH ?g { ?s ?p ?o } } LIMIT 300";

pub(crate) struct KnowledgeQuery {
    pub(crate) library: Library,
    pub(crate) graph: Arc<dyn Graph>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Statement {
    subject: String,
    predicate: String,
    object: Term,
}

impl KnowledgeQuery {
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
        let found = self
            .graph
            .select(query, &bindings, QueryOptions::default())
            .await?;
        let mut statements = Vec::with_capacity(found.rows.len().min(LOOKED_AT));
        for row in 0..found.rows.len() {
            let Some(predicate) = found.text(row, "p").map(str::to_owned) else {
                continue;
            };
            let (subject, object) = if is_subject {
                let object = found.column("o");
                let object = object.and_then(|column| found.rows[row][column].clone());
                (Some(term.to_owned()), object)
            } else {
                let subject = found.text(row, "s").map(str::to_owned);
                (subject, Some(Term::iri(term)))
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
    ) -> Result<Vec<Line>, Error> {
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
        let mut ranked = Vec::with_capacity(found.len());
        for statements in found {
            let mut weighed: Vec<(Weight, Statement)> = statements
                .into_iter()
                .map(|s| (names.weight(&words, &s), s))
                .collect();
            weighed.sort_by_key(|(weight, _)| weight.rank);
            ranked.push(weighed);
        }
        let mut lines = names.lines(ranked, call.limit(LIMIT));
        self.find_documents(call, &mut lines).await?;
        Ok(lines)
    }

    /// Names the loaded file that makes each statement.
    async fn find_documents(&self, call: &Call, lines: &mut [Line]) -> Result<(), Error> {
        let subjects: BTreeSet<String> = lines
            .iter()
            .map(|line| line.statement.subject.clone())
            .collect();
        let subjects: Vec<String> = subjects.into_iter().collect();
        let described = self
            .library
            .descriptions(&call.collection, subjects)
            .await?;
        for line in lines.iter_mut() {
            line.source = stated_in(&line.statement, &described);
        }
        // A nameless node has no description of its own, but its name holds that of its file.
        for at in 0..lines.len() {
            if lines[at].source.is_some() {
                continue;
            }
            let Some(uri) = document_of_blank(&lines[at].statement.subject) else {
                continue;
            };
            let known = lines
                .iter()
                .filter_map(|line| line.source.as_ref())
                .find(|source| source.uri == uri);
            let source = match known {
                Some(source) => source.clone(),
                None => match self.library.fetch(&call.collection, &uri, 0, 0).await? {
                    Some(found) => Source {
                        uri,
                        title: found.document.title,
                    },
                    None => continue,
                },
            };
            lines[at].source = Some(source);
        }
        Ok(())
    }
}

/// The loaded document that states something of a subject. Of several that describe it, the first
/// whose words hold the statement, else the first that may state it beyond what is kept of its words.
fn stated_in(statement: &Statement, described: &[Description]) -> Option<Source> {
    let own: Vec<&Description> = described
        .iter()
        .filter(|d| d.entity == statement.subject)
        .collect();
    let object = &statement.object;
    let said = match object.kind {
        TermType::Literal => one_value(&object.value),
        TermType::Iri | TermType::Blank | TermType::Triple => local_name(&object.iri),
    };
    let said = if statement.predicate == RDF_TYPE {
        said
    } else {
        format!("{}: {said}", local_name(&statement.predicate))
    };
    let found = own
        .iter()
        .find(|d| d.text.contains(&said))
        .or_else(|| own.iter().find(|d| d.is_cut()))
        .or(own.first())?;
    Some(Source {
        uri: found.document.clone(),
        title: found.title.clone(),
    })
}

/// A statement as it is shown.
#[derive(Clone, Debug)]
struct Line {
    statement: Statement,
    text: String,
    /// The loaded file that says so.
    source: Option<Source>,
}

/// What a statement says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    rank: Rank,
    /// The question names its relation.
    is_asked_for: bool,
    /// It has words of the question that the name of its subject has not.
    adds: bool,
}

/// Where a statement stands among those of its entity; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Words of the question that it lacks, its relation counted as one more.
    lacking: usize,
    /// It says nothing that can be read, such as a node without a name.
    is_empty: bool,
    is_type: bool,
    /// It does not say in words what the thing is.
    is_bare: bool,
}

#[async_trait]
impl ToolKind for KnowledgeQuery {
    fn arguments(&self, _tool: &ToolItem) -> Vec<ToolArgument> {
        vec![arguments::text(
            "question",
            "a question that names the things to look up",
        )]
    }

    fn patience(&self, usual: Duration) -> Duration {
        usual.max(PATIENT)
    }

    async fn look(&self, _: &ToolItem, _: &Snapshot) -> Result<String, String> {
        library_answers(&self.library).await?;
        graph_answers(&*self.graph).await
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
            // A query that only this question makes fail.
            Err(Error::Graph(error)) if error.retry().is_none() => {
                return Ok(ToolResult::error(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        if lines.is_empty() {
            return nothing(&self.library, &call.collection, "facts", question).await;
        }
        let (content, mut sources) = by_document(&lines);
        let shown: HashSet<&str> = lines
            .iter()
            .map(|line| line.statement.subject.as_str())
            .collect();
        for entity in entities {
            if shown.contains(entity.uri.as_str()) && !is_blank(&entity.uri) {
                sources.push(Source {
                    uri: entity.uri,
                    title: entity.label,
                });
            }
        }
        Ok(ToolResult {
            content,
            sources,
            ..ToolResult::default()
        })
    }
}

/// The statements of each document below its name, in the order in which they come up, and the
/// documents.
fn by_document(lines: &[Line]) -> (String, Vec<Source>) {
    let mut groups: Vec<(Option<&Source>, Vec<&str>)> = Vec::new();
    for line in lines {
        let source = line.source.as_ref();
        let uri = source.map(|s| &s.uri);
        match groups
            .iter_mut()
            .find(|(known, _)| known.map(|s| &s.uri) == uri)
        {
            Some((_, texts)) => texts.push(&line.text),
            None => groups.push((source, vec![&line.text])),
        }
    }
    let blocks: Vec<String> = groups
        .iter()
        .enumerate()
        .map(|(at, (source, texts))| {
            let head = match source {
                Some(source) => format!("{} ({})", source.title, source.uri),
                None => "the knowledge graph".to_owned(),
            };
            format!("[{}] {head}\n{}", at + 1, texts.join("\n"))
        })
        .collect();
    let sources = groups.into_iter().filter_map(|(source, _)| source.cloned());
    (blocks.join("\n\n"), sources.collect())
}
