//! `knowledge-query`: statements of the collection's graph about what a question names.
//!
//! Entities are found by words in the library's index; their statements are then asked of the graph
//! with the entity bound, so no query scans. Statements stand below the loaded file that makes them,
//! `[n] Title (uri)`, each as a line `- subject | predicate | object [subject uri]`, in labels where
//! there are any. A node without a name is written as what it says, in parentheses.

use super::{Call, ToolKind, nothing};
use crate::library::{
    Description, Entity, Library, covered, document_of_blank, is_blank, label_quality, local_name,
    one_value, terms,
};
use crate::{Error, ToolResult};
use agentfleet_graph::{Graph, QueryOptions};
use agentfleet_schema::arguments;
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
    ) -> Result<Vec<Line>, Failure> {
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

/// What IRIs are called.
struct Names {
    labels: HashMap<String, String>,
    nameless: HashMap<String, Vec<Statement>>,
}

impl Names {
    /// Statements as lines with their subject: those that say most in the relation asked for, then one
    /// of each entity, then the best of each before the rest of any.
    fn lines(&self, found: Vec<Vec<(Weight, Statement)>>, limit: usize) -> Vec<Line> {
        let share = (limit / 3).max(6);
        let least = found
            .iter()
            .flatten()
            .map(|(weight, _)| weight.rank.lacking)
            .min();
        let mut seen = HashSet::new();
        let mut answers = Vec::new();
        let mut leads = Vec::new();
        let mut first = Vec::new();
        let mut rest = Vec::new();
        for statements in found {
            let mut taken = 0;
            for (weight, statement) in statements {
                let text = self.line(&statement);
                // Different terms may have the same name: `rdfs:Class` and `owl:Class`.
                let is_new = seen.insert((statement.subject.clone(), text.clone()));
                if self.is_redundant(&statement) || !is_new {
                    continue;
                }
                taken += 1;
                let line = Line {
                    statement,
                    text,
                    source: None,
                };
                // What answers best is shown whole: all subclasses, and not the first ten. That a thing
                // is called as the question says makes none of its statements an answer.
                let is_best = Some(weight.rank.lacking) == least;
                if is_best && weight.is_asked_for {
                    answers.push(line);
                } else if taken == 1 {
                    leads.push(line);
                } else if taken <= share || (is_best && weight.adds) {
                    first.push(line);
                } else {
                    rest.push(line);
                }
            }
        }
        answers.extend(leads);
        answers.extend(first);
        answers.extend(rest);
        answers.truncate(limit);
        answers
    }

    fn line(&self, statement: &Statement) -> String {
        let Statement {
            subject,
            predicate,
            object,
        } = statement;
        let address = if is_blank(subject) {
            String::new()
        } else {
            format!(" [{subject}]")
        };
        format!(
            "- {} | {} | {}{address}",
            self.subject(subject, predicate),
            self.of(predicate),
            self.object(object)
        )
    }

    fn weight(&self, words: &[String], statement: &Statement) -> Weight {
        let line = self.line(statement);
        let own = local_name(&statement.predicate);
        let relation: String = own.split_whitespace().collect();
        let relation = relation.to_lowercase();
        let asks_for = |word: &String| {
            let same = word
                .chars()
                .zip(relation.chars())
                .take_while(|(a, b)| a == b)
                .count();
            let long = word.chars().count();
            // All but an ending of the word.
            same >= RELATION_CHARS && same + 2 >= long || *word == relation
        };
        let held = covered(words, &line);
        let lacking = words.len() - held;
        let named = covered(
            words,
            &self.subject(&statement.subject, &statement.predicate),
        );
        let is_asked_for = words.iter().any(asks_for);
        let value = self.object(&statement.object);
        let is_describing = DESCRIBING.iter().any(|end| relation.ends_with(end));
        let rank = Rank {
            lacking: (lacking + 1).saturating_sub(usize::from(is_asked_for)),
            is_empty: value.contains("without a name") || value == "something",
            is_type: statement.predicate == RDF_TYPE,
            is_bare: !(is_describing && statement.object.kind == TermType::Literal),
        };
        Weight {
            rank,
            is_asked_for,
            adds: is_asked_for || held > named,
        }
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
