//! The text of what was loaded, as it was read.

use super::passage::HEADING;
use agentfleet_storage::Error as StorageError;
use rusqlite::{Connection, OptionalExtension as _};

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
