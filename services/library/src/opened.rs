//! The text of what was loaded, as it was read: by the URI of a document, or of an entity that a
//! document describes. It is what quotations are checked against.

use super::passage::HEADING;
use super::{Document, Library, documents, search};
use crate::Error;
use agentfleet_schema::CollectionName;
use agentfleet_storage::Error as StorageError;
use rusqlite::{Connection, OptionalExtension as _};
use std::fmt::Write as _;

/// What a source URI leads to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Opened {
    pub uri: String,
    pub title: String,
    /// Of the text given here: what was read from the file, not the file itself.
    pub media_type: &'static str,
    /// The whole text: passages with their headings, or what documents state of an entity.
    pub text: String,
    /// The document itself, or those that describe the entity, each with its collection.
    pub documents: Vec<(String, Document)>,
}

impl Library {
    /// The text behind a source that an answer or a trace names: a loaded document, or an entity of
    /// one. With a collection, only what that holds; a `#fragment` of a document is its document.
    pub async fn open_source(
        &self,
        collection: Option<&CollectionName>,
        uri: &str,
    ) -> Result<Option<Opened>, Error> {
        self.current(collection).await?;
        let only = collection.map(|name| name.as_str().to_owned());
        let uri = uri.trim().to_owned();
        let opened = self.database.read(move |connection| {
            let whole = uri.split('#').next().unwrap_or_default();
            for document in [uri.as_str(), whole] {
                if let Some(found) = document_text(connection, only.as_deref(), document)? {
                    return Ok(Some(found));
                }
            }
            entity_text(connection, only.as_deref(), &uri)
        });
        Ok(opened.await?)
    }
}

/// The collection that holds a document.
pub(super) fn collection_of(
    connection: &Connection,
    uri: &str,
) -> Result<Option<String>, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT c.name FROM library_sources s JOIN library_collections c ON c.id = s.collection
         WHERE s.uri = ?1 AND s.state = 1",
    )?;
    Ok(statement.query_row([uri], |row| row.get(0)).optional()?)
}

fn document_text(
    connection: &Connection,
    only: Option<&str>,
    uri: &str,
) -> Result<Option<Opened>, StorageError> {
    let Some(collection) = collection_of(connection, uri)? else {
        return Ok(None);
    };
    if only.is_some_and(|only| only != collection) {
        return Ok(None);
    }
    let found = documents(connection, &collection, Some(uri), 1)?.pop();
    let Some((source, document)) = found else {
        return Ok(None);
    };
    let window = window(connection, source, 0, usize::MAX)?;
    Ok(Some(Opened {
        uri: uri.to_owned(),
        title: document.title.clone(),
        media_type: "text/markdown",
        text: window.text,
        documents: vec![(collection, document)],
    }))
}

fn entity_text(
    connection: &Connection,
    only: Option<&str>,
    uri: &str,
) -> Result<Option<Opened>, StorageError> {
    let found = search::descriptions(connection, only, vec![uri.to_owned()])?;
    let Some(first) = found.first() else {
        return Ok(None);
    };
    let mut text = String::new();
    let mut all: Vec<(String, Document)> = Vec::new();
    for description in &found {
        let _ = writeln!(
            text,
            "{HEADING}{} ({})\n{}\n",
            description.title, description.document, description.text
        );
        if all
            .iter()
            .any(|(_, known)| known.uri == description.document)
        {
            continue;
        }
        if let Some(collection) = collection_of(connection, &description.document)? {
            let named = documents(connection, &collection, Some(&description.document), 1)?;
            all.extend(
                named
                    .into_iter()
                    .map(|(_, document)| (collection.clone(), document)),
            );
        }
    }
    Ok(Some(Opened {
        uri: uri.to_owned(),
        title: first.label.clone(),
        media_type: "text/markdown",
        text,
        documents: all,
    }))
}

/// Up to `most` characters of a source's text, beginning after `from` of them.
pub(super) fn window(
    connection: &Connection,
    source: i64,
    from: usize,
    most: usize,
) -> Result<Window, StorageError> {
    let mut statement = connection.prepare_cached(
        "SELECT heading, text FROM library_passages WHERE source = ?1 ORDER BY ordinal",
    )?;
    let mut rows = statement.query([source])?;
    let mut window = Window {
        from,
        most,
        at: 0,
        text: String::new(),
    };
    let mut above = String::new();
    while let Some(row) = rows.next()? {
        let heading: String = row.get(0)?;
        let text: String = row.get(1)?;
        if window.at > 0 {
            window.push("\n\n");
        }
        if !heading.is_empty() && heading != above {
            window.push(&format!("{HEADING}{heading}\n"));
        }
        above = heading;
        window.push(&text);
    }
    Ok(window)
}

/// The part of a text that is wanted, while the text passes by.
pub(super) struct Window {
    from: usize,
    most: usize,
    /// Characters that have passed.
    pub(super) at: usize,
    pub(super) text: String,
}

impl Window {
    fn push(&mut self, text: &str) {
        let count = text.chars().count();
        let skip = self.from.saturating_sub(self.at);
        let room = (self.from.saturating_add(self.most)).saturating_sub(self.at.max(self.from));
        self.text.extend(text.chars().skip(skip).take(room));
        self.at += count;
    }
}
