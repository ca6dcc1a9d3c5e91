//! The tables of the library and everything that writes to them.
//!
//! A document is written as a source that nobody sees (`LOADING`), becomes visible in one
//! transaction that also hides the version before it (`LIVE`, `GONE`), and is cleared away in small
//! steps afterwards. So a reader never sees half a document or two versions of one, however large
//! it is, and the writer is never held up for long.
//!
//! Each collection has two full-text tables of its own, one for passages of text and one for
//! entities of RDF files: what other collections hold neither shows up in a search nor changes its
//! ranking.

mod clearing;

pub(crate) use clearing::{
    clear_all, drop_collection, drop_unused, give_up, has_hidden, hide, merge,
};

use super::passage::{Passage, ROW};
use super::shared::catalogue;
use super::{rdf, uri};
use agentfleet_schema::Millis;
use agentfleet_storage::{Error as StorageError, Unit};
use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

pub(crate) const PART: &str = "library";

pub(crate) const TABLES: &[&str] = &["
    CREATE TABLE library_collections(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE TABLE library_sources(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        collection INTEGER NOT NULL,
        state INTEGER NOT NULL,
        touched_at INTEGER NOT NULL,
        uri TEXT NOT NULL,
        title TEXT NOT NULL,
        path TEXT NOT NULL,
        origin TEXT NOT NULL,
        digest TEXT NOT NULL,
        media_type TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        passages INTEGER NOT NULL DEFAULT 0,
        entities INTEGER NOT NULL DEFAULT 0,
        triples INTEGER NOT NULL DEFAULT 0,
        loaded_at INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX library_sources_live ON library_sources(collection, uri) WHERE state = 1;
    CREATE INDEX library_sources_hidden ON library_sources(state) WHERE state <> 1;
    -- A source is opened by its URI alone.
    CREATE INDEX library_sources_uri ON library_sources(uri);
    CREATE TABLE library_passages(
        id INTEGER PRIMARY KEY,
        source INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        entity TEXT,
        heading TEXT NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX library_passages_of_source ON library_passages(source, ordinal);
    CREATE INDEX library_passages_of_entity ON library_passages(entity) WHERE entity IS NOT NULL;
"];

const LOADING: i64 = 0;
pub(crate) const LIVE: i64 = 1;
pub(crate) const GONE: i64 = 2;
/// Passages cleared away in one transaction.
pub(crate) const CLEAR_STEP: i64 = 500;
/// A load that has written nothing for so long was interrupted.
const ABANDONED: Millis = 60 * 60 * 1000;

/// Which of a collection's full-text tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    Text,
    Entities,
}

impl Index {
    /// Where a passage is found that describes an entity, or does not.
    pub(crate) fn of(describes_entity: bool) -> Self {
        if describes_entity {
            Self::Entities
        } else {
            Self::Text
        }
    }

    pub(crate) fn table(self, collection: i64) -> String {
        match self {
            Self::Text => format!("library_text_{collection}"),
            Self::Entities => format!("library_entities_{collection}"),
        }
    }
}

/// The id of a collection, if it has one.
pub(crate) fn collection(connection: &Connection, name: &str) -> Result<Option<i64>, StorageError> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM library_collections WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}

/// The id of a collection, which is created with its full-text tables if there is none.
pub(crate) fn ensure_collection(unit: &mut Unit<'_>, name: &str) -> Result<i64, StorageError> {
    if let Some(id) = collection(unit.tx(), name)? {
        return Ok(id);
    }
    unit.tx()
        .execute("INSERT INTO library_collections(name) VALUES (?1)", [name])?;
    let id = unit.tx().last_insert_rowid();
    for index in [Index::Text, Index::Entities] {
        let table = index.table(id);
        // The text itself lies in `library_passages`; the index keeps none of it. Words count
        // more in a heading, and more in a title, than in the text below.
        unit.tx().execute_batch(&format!(
            "CREATE VIRTUAL TABLE {table} USING fts5(
                 title, heading, body, content = '', contentless_delete = 1,
                 tokenize = 'porter unicode61 remove_diacritics 2');
             INSERT INTO {table}({table}, rank) VALUES ('rank', 'bm25(2.0, 3.0, 1.0)');"
        ))?;
    }
    Ok(id)
}

/// A document about to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewSource {
    pub(crate) uri: String,
    pub(crate) title: String,
    pub(crate) path: String,
    pub(crate) origin: String,
    pub(crate) digest: String,
    pub(crate) media_type: String,
    pub(crate) bytes: u64,
    /// When it was loaded; none for now.
    pub(crate) loaded_at: Option<Millis>,
    /// Of the shared library, if it comes from there.
    #[serde(skip)]
    pub(crate) version: Option<String>,
}

/// A document being written.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) id: i64,
    /// Title and path, as they are searched.
    title: String,
    ordinal: i64,
    entities: i64,
    version: Option<String>,
}

/// One thing to write, in the order of the files.
#[derive(Debug)]
pub(crate) enum Change {
    Begin(NewSource),
    Passages(Vec<Passage>),
    Finish { triples: u64 },
    Abort,
}

/// What some changes came to.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) open: Option<Open>,
    pub(crate) loaded: usize,
    pub(crate) replaced: usize,
}

/// Writes some changes; `open` is the document that the changes before left unfinished.
pub(crate) fn apply(
    unit: &mut Unit<'_>,
    collection: i64,
    changes: Vec<Change>,
    open: Option<Open>,
) -> Result<Applied, StorageError> {
    let mut applied = Applied {
        open,
        ..Applied::default()
    };
    for change in changes {
        match change {
            Change::Begin(new) => applied.open = Some(begin(unit, collection, new)?),
            Change::Passages(passages) => {
                if let Some(open) = &mut applied.open {
                    add(unit, collection, open, passages)?;
                }
            }
            Change::Finish { triples } => {
                if let Some(open) = applied.open.take() {
                    if finish(unit, collection, &open, triples)? {
                        applied.replaced += 1;
                    } else {
                        applied.loaded += 1;
                    }
                }
            }
            Change::Abort => {
                if let Some(open) = applied.open.take() {
                    set_state(unit, open.id, GONE)?;
                }
            }
        }
    }
    if let Some(open) = &applied.open {
        unit.tx()
            .prepare_cached("UPDATE library_sources SET touched_at = ?2 WHERE id = ?1")?
            .execute((open.id, unit.now()))?;
    }
    Ok(applied)
}

fn begin(unit: &mut Unit<'_>, collection: i64, new: NewSource) -> Result<Open, StorageError> {
    unit.tx()
        .prepare_cached(
            "INSERT INTO library_sources(collection, state, touched_at, uri, title, path, origin,
                                         digest, media_type, bytes, loaded_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, coalesce(?11, ?3))",
        )?
        .execute((
            collection,
            LOADING,
            unit.now(),
            &new.uri,
            &new.title,
            &new.path,
            &new.origin,
            &new.digest,
            &new.media_type,
            new.bytes as i64,
            new.loaded_at,
        ))?;
    Ok(Open {
        id: unit.tx().last_insert_rowid(),
        title: format!("{} {}", new.title, path_words(&new.path)),
        ordinal: 0,
        entities: 0,
        version: new.version,
    })
}

fn add(
    unit: &mut Unit<'_>,
    collection: i64,
    open: &mut Open,
    passages: Vec<Passage>,
) -> Result<(), StorageError> {
    let mut passage_row = unit.tx().prepare_cached(
        "INSERT INTO library_passages(source, ordinal, entity, heading, text)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for passage in passages {
        passage_row.execute((
            open.id,
            open.ordinal,
            &passage.entity,
            &passage.heading,
            &passage.text,
        ))?;
        let rowid = unit.tx().last_insert_rowid();
        let table = Index::of(passage.entity.is_some()).table(collection);
        unit.tx()
            .prepare_cached(&format!(
                "INSERT INTO {table}(rowid, title, heading, body) VALUES (?1, ?2, ?3, ?4)"
            ))?
            .execute((
                rowid,
                &open.title,
                searchable(&passage),
                without_marks(&passage.text),
            ))?;
        open.ordinal += 1;
        open.entities += i64::from(passage.entity.is_some());
    }
    Ok(())
}

/// The words of a path: a folder is often named after what its files are about.
pub(crate) fn path_words(path: &str) -> String {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    stem.replace('/', " ")
}

/// A text without the marks of table rows, which are nobody's words.
fn without_marks(text: &str) -> Cow<'_, str> {
    let row_below = format!("\n{ROW}");
    match text.strip_prefix(ROW) {
        Some(rest) => Cow::Owned(rest.replace(&row_below, "\n")),
        None if text.contains(&row_below) => Cow::Owned(text.replace(&row_below, "\n")),
        None => Cow::Borrowed(text),
    }
}

/// The heading as it is searched. Names such as `hasUnit` are found by their words, and an entity
/// by the words of its IRI too.
fn searchable(passage: &Passage) -> Cow<'_, str> {
    match &passage.entity {
        Some(iri) if !uri::is_blank(iri) => Cow::Owned(format!(
            "{} {} {}",
            passage.heading,
            rdf::in_words(&passage.heading),
            rdf::local_name(iri)
        )),
        _ => Cow::Borrowed(&passage.heading),
    }
}

/// Makes a document visible; `true` if it takes the place of an older version. A version of the shared
/// library that is not the present one any more stays hidden.
fn finish(
    unit: &mut Unit<'_>,
    collection: i64,
    open: &Open,
    triples: u64,
) -> Result<bool, StorageError> {
    if let Some(version) = &open.version
        && !catalogue::indexed(unit, version, open.id)?
    {
        set_state(unit, open.id, GONE)?;
        return Ok(false);
    }
    let replaced = unit
        .tx()
        .prepare_cached(
            "UPDATE library_sources SET state = ?3 WHERE collection = ?1 AND state = ?4
             AND uri = (SELECT uri FROM library_sources WHERE id = ?2)",
        )?
        .execute((collection, open.id, GONE, LIVE))?;
    unit.tx()
        .prepare_cached(
            "UPDATE library_sources
             SET state = ?2, passages = ?3, entities = ?4, triples = ?5 WHERE id = ?1",
        )?
        .execute((
            open.id,
            LIVE,
            open.ordinal - open.entities,
            open.entities,
            triples as i64,
        ))?;
    Ok(replaced > 0)
}

fn set_state(unit: &mut Unit<'_>, source: i64, state: i64) -> Result<(), StorageError> {
    unit.tx()
        .prepare_cached("UPDATE library_sources SET state = ?2 WHERE id = ?1")?
        .execute((source, state))?;
    Ok(())
}

/// What is known of a visible document, to tell whether a file must be read again.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) uri: String,
    pub(crate) origin: String,
    pub(crate) digest: String,
}

pub(crate) fn known(connection: &Connection, collection: i64) -> Result<Vec<Known>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT uri, origin, digest FROM library_sources WHERE collection = ?1 AND state = ?2",
    )?;
    let rows = statement.query_map((collection, LIVE), |row| {
        Ok(Known {
            uri: row.get(0)?,
            origin: row.get(1)?,
            digest: row.get(2)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
