//! Finding passages and entities of one collection.
//!
//! Candidates are ranked by BM25, in which a word of a heading counts more than one of the text;
//! then each is weighted by the share of the question's terms it holds, so that a passage about
//! everything that was asked beats one that repeats a single term. Passages of a few words count a
//! little less, since they match easily and say little. The fourth and later passages of a document
//! count less than those of others, because a synthesis needs more than one witness.
//!
//! Of entities, those come right after the best whose name is in the question and says what the names
//! before them do not: a question that asks how things relate names a relation beside the things.

use super::store::{self, Index};
use super::{rdf, terms};
use agentfleet_schema::words;
use agentfleet_storage::Error as StorageError;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::{HashMap, HashSet};

/// Candidates that are weighted for each result asked for, and at least.
const CANDIDATES: usize = 8;
const MIN_CANDIDATES: usize = 40;
/// Passages of one document that count in full, and what later ones count.
const PER_DOCUMENT: usize = 3;
const LATER: f64 = 0.6;
/// Words from which on a passage counts in full, and the least that one counts.
const SUBSTANTIAL: f64 = 50.0;
const SLIGHT: f64 = 0.75;
/// What a passage counts that begins to tell of a name with an underscore in the question: manuals list what
/// such a name is as `work_mem (integer): ...`, and mention it in the descriptions of others.
const DEFINES: f64 = 1.5;
/// What an entity counts whose whole name stands in the question.
const NAMED: f64 = 2.0;
/// What an entity counts at least, beside the best, that the question names for something else.
const BESIDE: f64 = 0.5;

/// A passage that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The document.
    pub uri: String,
    pub title: String,
    /// Headings above the passage, joined by ` > `; may be empty.
    pub heading: String,
    pub text: String,
    /// Higher is better; comparable within one search only.
    pub score: f64,
}

/// An entity that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    pub uri: String,
    pub label: String,
    /// The document that describes it.
    pub document: String,
    pub score: f64,
}

pub(crate) fn passages(
    connection: &Connection,
    collection: &str,
    query: &str,
    limit: usize,
) -> Result<Vec<Hit>, StorageError> {
    let found = ranked(connection, collection, query, limit, Index::Text)?;
    let mut of_document: HashMap<String, usize> = HashMap::new();
    let mut hits: Vec<Hit> = found
        .into_iter()
        .map(|row| {
            let seen = of_document.entry(row.uri.clone()).or_default();
            *seen += 1;
            let weight = if *seen > PER_DOCUMENT { LATER } else { 1.0 };
            Hit {
                uri: row.uri,
                title: row.title,
                heading: row.heading,
                text: row.text,
                score: row.score * weight,
            }
        })
        .collect();
    hits.sort_by(|a, b| b.score.total_cmp(&a.score));
    hits.truncate(limit);
    Ok(hits)
}

pub(crate) fn entities(
    connection: &Connection,
    collection: &str,
    query: &str,
    limit: usize,
) -> Result<Vec<Entity>, StorageError> {
    let found = ranked(connection, collection, query, limit, Index::Entities)?;
    let found = named_first(query, found);
    let mut seen = HashSet::new();
    Ok(found
        .into_iter()
        .filter_map(|row| {
            let uri = row.entity?;
            seen.insert(uri.clone()).then_some(Entity {
                uri,
                label: row.heading,
                document: row.uri,
                score: row.score,
            })
        })
        .take(limit)
        .collect())
}

/// Moves to the front, behind the best, what the question names for the terms that names before it
/// lack.
fn named_first(question: &str, mut rows: Vec<Row>) -> Vec<Row> {
    let Some(best) = rows.first() else {
        return rows;
    };
    let least = best.score * BESIDE;
    let has = |term: &String, name: &str| {
        words::covered(std::slice::from_ref(term), &rdf::in_words(name)) > 0
    };
    let mut lacking = words::terms(question);
    lacking.retain(|term| !has(term, &best.heading));
    let mut front = 1;
    for at in 1..rows.len() {
        let name = rdf::in_words(&rows[at].heading);
        let own = words::terms(&name);
        let is_named = !own.is_empty() && words::covered(&own, question) == own.len();
        if !is_named || !lacking.iter().any(|term| has(term, &name)) {
            continue;
        }
        lacking.retain(|term| !has(term, &name));
        rows[at].score = rows[at].score.max(least);
        rows[front..=at].rotate_right(1);
        front += 1;
    }
    rows
}

/// The names of entities, by IRI.
pub(crate) fn labels(
    connection: &Connection,
    collection: &str,
    iris: Vec<String>,
) -> Result<HashMap<String, String>, StorageError> {
    let Some(collection) = store::collection(connection, collection)? else {
        return Ok(HashMap::new());
    };
    let mut statement = connection.prepare_cached(
        "SELECT p.entity, p.heading FROM library_passages p JOIN library_sources s ON s.id = p.source
         WHERE p.entity IN (SELECT value FROM json_each(?1)) AND s.collection = ?2 AND s.state = 1
         ORDER BY p.source DESC, p.ordinal DESC",
    )?;
    let iris = serde_json::Value::from(iris).to_string();
    let rows = statement.query_map((iris, collection), |row| Ok((row.get(0)?, row.get(1)?)))?;
    // Of several descriptions the first that was loaded names the entity.
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A document that describes an entity, and what it says of it in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub entity: String,
    pub document: String,
    pub title: String,
    /// Statements as `predicate: value; predicate: value`, cut where they are many.
    pub text: String,
}

impl Description {
    /// Whether there may be more statements than its text holds.
    pub fn is_cut(&self) -> bool {
        self.text.len() >= rdf::MAX_PASSAGE
    }
}

/// The documents of a collection that describe these entities, in the order they were loaded.
pub(crate) fn descriptions(
    connection: &Connection,
    collection: &str,
    entities: Vec<String>,
) -> Result<Vec<Description>, StorageError> {
    let Some(collection) = store::collection(connection, collection)? else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(
        "SELECT p.entity, s.uri, s.title, p.text
         FROM library_passages p JOIN library_sources s ON s.id = p.source
         WHERE p.entity IN (SELECT value FROM json_each(?1)) AND s.state = 1
           AND s.collection = ?2
         ORDER BY p.source, p.ordinal",
    )?;
    let entities = serde_json::Value::from(entities).to_string();
    let rows = statement.query_map((entities, collection), |row| {
        Ok(Description {
            entity: row.get(0)?,
            document: row.get(1)?,
            title: row.get(2)?,
            text: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[derive(Debug)]
struct Row {
    uri: String,
    title: String,
    path: String,
    heading: String,
    text: String,
    ordinal: i64,
    entity: Option<String>,
    score: f64,
}

fn ranked(
    connection: &Connection,
    collection: &str,
    text: &str,
    limit: usize,
    index: Index,
) -> Result<Vec<Row>, StorageError> {
    let terms = words::terms(text);
    let Some(collection) = store::collection(connection, collection)? else {
        return Ok(Vec::new());
    };
    if terms.is_empty() || limit == 0 {
        return Ok(Vec::new());
    }
    let table = index.table(collection);
    let query = terms::query(text, &terms);
    let wanted = limit.saturating_mul(CANDIDATES).max(MIN_CANDIDATES);
    // Passages of versions that are on their way in or out are found too and left out here; ask
    // for more while they crowd out the visible ones.
    let mut most = wanted;
    let candidates = loop {
        let (found, visible) = candidates(connection, &table, &query, most)?;
        if visible.len() >= limit || found < most || most >= wanted.saturating_mul(64) {
            break visible;
        }
        most = most.saturating_mul(4);
    };
    let mut rows = Vec::with_capacity(candidates.len());
    for (id, bm25) in candidates {
        if let Some(mut row) = row(connection, id)? {
            let path = store::path_words(&row.path);
            let whole = format!("{} {path} {} {}", row.title, row.heading, row.text);
            // What matched in a way that is not seen here is at least one of the terms.
            let covered = words::covered(&terms, &whole).max(1);
            row.score = bm25 * (0.5 + 0.5 * covered as f64 / terms.len() as f64);
            row.score *= match index {
                Index::Text => {
                    let words = row.text.split_whitespace().count() as f64;
                    let defines = if defines(text, &row.text) {
                        DEFINES
                    } else {
                        1.0
                    };
                    defines * (SLIGHT + (1.0 - SLIGHT) * (words / SUBSTANTIAL).min(1.0))
                }
                Index::Entities if is_named(text, &row.heading) => NAMED,
                Index::Entities => 1.0,
            };
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| a.uri.cmp(&b.uri))
            .then(a.ordinal.cmp(&b.ordinal))
    });
    Ok(rows)
}

/// How many rows matched, up to `most`, and those of them that are visible, with their BM25.
fn candidates(
    connection: &Connection,
    table: &str,
    query: &str,
    most: usize,
) -> Result<(usize, Vec<(i64, f64)>), StorageError> {
    // `rank` is more negative for better matches.
    let mut statement = connection.prepare_cached(&format!(
        "SELECT f.rowid, -f.rank, coalesce(s.state = 1, 0)
         FROM (SELECT rowid, rank FROM {table} WHERE {table} MATCH ?1 ORDER BY rank LIMIT ?2) f
         LEFT JOIN library_passages p ON p.id = f.rowid
         LEFT JOIN library_sources s ON s.id = p.source"
    ))?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = statement.query_map((query, most), |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, f64>(1)?,
            row.get::<_, bool>(2)?,
        ))
    })?;
    let mut found = 0;
    let mut visible = Vec::new();
    for row in rows {
        let (id, bm25, is_visible) = row?;
        found += 1;
        if is_visible {
            visible.push((id, bm25));
        }
    }
    Ok((found, visible))
}

/// Whether a line of a passage begins with a name of the question, such as `work_mem` or, after the module that it is
/// of, `functools.lru_cache`.
fn defines(question: &str, passage: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = question.split(|c: char| !is_part(c));
    let mut names = names.filter(|name| name.contains('_'));
    names.any(|name| {
        passage.lines().any(|line| {
            let first = line.trim_start_matches(|c: char| !is_part(c));
            let end = first.find(|c: char| !is_part(c) && c != '.');
            let first = &first[..end.unwrap_or(first.len())];
            first.rsplit('.').next() == Some(name)
        })
    })
}

/// Whether all words of a name stand in a question as they are. `OrganizationalUnit` is two words.
fn is_named(question: &str, name: &str) -> bool {
    let words = |text: &str| -> HashSet<String> {
        let words = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let asked = words(question);
    let name = words(&rdf::in_words(name));
    !name.is_empty() && name.is_subset(&asked)
}

fn row(connection: &Connection, id: i64) -> Result<Option<Row>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.uri, s.title, p.heading, p.text, p.ordinal, p.entity, s.path
         FROM library_passages p JOIN library_sources s ON s.id = p.source WHERE p.id = ?1",
    )?;
    let row = statement.query_row([id], |row| {
        Ok(Row {
            uri: row.get(0)?,
            title: row.get(1)?,
            heading: row.get(2)?,
            text: row.get(3)?,
            ordinal: row.get(4)?,
            entity: row.get(5)?,
            path: row.get(6)?,
            score: 0.0,
        })
    });
    Ok(row.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_defines_a_name_that_one_of_its_lines_begins_with() {
        for (question, passage, expected) in [
            (
                "default of work_mem?",
                "Memory.\nwork_mem (integer): Sets it.",
                true,
            ),
            (
                "default of work_mem?",
                "maintenance_work_mem (integer): Sets it.",
                false,
            ),
            ("default of work_mem?", "It uses work_mem.", false),
            (
                "the lru_cache decorator",
                "@functools.lru_cache(maxsize=128): Wraps.",
                true,
            ),
            ("What is memory?", "memory: a thing", false),
            ("What is __init__?", "__init__ is called", true),
        ] {
            assert_eq!(defines(question, passage), expected, "{question} {passage}");
        }
    }
}
