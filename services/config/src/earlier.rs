//! Data directories that were made before the config lay among the documents: it had two tables of its own.

use crate::book::Book;
use crate::error::Error;
use crate::{Item, ItemVersion};
use agentfleet_documents::Documents;
use agentfleet_schema::keys;
use agentfleet_storage::{Database, Durability, Error as StorageError};
use rusqlite::{Connection, Row};
use serde_json::Value;

/// Writes every version of such tables as documents, then drops the tables. It may be repeated, and nothing
/// happens where there are none.
pub(crate) async fn take_over(database: &Database, documents: &dyn Documents) -> Result<(), Error> {
    let Some(books) = database.read(books).await? else {
        return Ok(());
    };
    for book in &books {
        let body = serde_json::to_vec(book).unwrap_or_default();
        documents.create(&keys::config(book.version), body).await?;
    }
    let drop = "DROP TABLE IF EXISTS config_items; DROP TABLE IF EXISTS config_versions;";
    let dropped = database.write(Durability::Durable, move |unit| {
        Ok(unit.tx().execute_batch(drop)?)
    });
    Ok(dropped.await?)
}

/// The book at each version, the first first.
fn books(connection: &Connection) -> Result<Option<Vec<Book>>, StorageError> {
    let tables =
        "SELECT count(*) FROM sqlite_master WHERE name IN ('config_items', 'config_versions')";
    if connection.query_row(tables, [], |row| row.get::<_, i64>(0))? < 2 {
        return Ok(None);
    }
    let mut statement = connection.prepare(
        "SELECT i.type, i.key, i.value, i.version, v.at, v.author, i.deleted
         FROM config_items i JOIN config_versions v USING (version) ORDER BY i.version, i.type, i.key",
    )?;
    let found = statement.query_map([], item_version)?;
    let items = found.collect::<Result<Vec<ItemVersion>, _>>()?;
    let mut books: Vec<Book> = Vec::new();
    for item in items {
        if books.last().is_none_or(|book| book.version < item.version) {
            let mut next = books.last().cloned().unwrap_or_default();
            next.version = item.version;
            books.push(next);
        }
        if let Some(book) = books.last_mut() {
            book.replace(item);
        }
    }
    Ok(Some(books))
}

fn item_version(row: &Row<'_>) -> Result<ItemVersion, rusqlite::Error> {
    let text: String = row.get(2)?;
    Ok(ItemVersion {
        item: Item {
            item_type: row.get(0)?,
            key: row.get(1)?,
            // What is no JSON is kept for people to see and mend.
            value: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        },
        version: row.get::<_, i64>(3)?.unsigned_abs(),
        at: row.get(4)?,
        author: row.get(5)?,
        deleted: row.get(6)?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{ConfigStore, DocumentsConfig, Item};
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_storage::{Database, Durability};
    use std::sync::Arc;

    const TABLES: &str = "
        CREATE TABLE config_versions(version INTEGER PRIMARY KEY, at INTEGER NOT NULL, author TEXT NOT NULL);
        CREATE TABLE config_items(type TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL,
            value TEXT NOT NULL, deleted INTEGER NOT NULL, PRIMARY KEY (type, key, version)) WITHOUT ROWID;
        INSERT INTO config_versions VALUES (1, 5, 'ada'), (2, 6, 'ben');
        INSERT INTO config_items VALUES ('tool', 'odd', 1, '{\"kind\": 7}', 0);
        INSERT INTO config_items VALUES ('agent-pattern', 'react', 1, '{\"name\": \"react\"}', 0);
        INSERT INTO config_items VALUES ('agent-pattern', 'react', 2, '{\"name\": \"react\"}', 1);";

    #[tokio::test]
    async fn tables_of_earlier_versions_are_taken_over_with_their_history() {
        let directory = tempfile::TempDir::new().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let made = database.write(Durability::Durable, |unit| {
            Ok(unit.tx().execute_batch(TABLES)?)
        });
        made.await.unwrap();
        let documents = Arc::new(EmbeddedDocuments::open(&database).unwrap());
        let open = || DocumentsConfig::of_directory(&database, Arc::clone(&documents) as _, || 7);
        let config = open().await.unwrap();
        let history = config.history("agent-pattern", "react").await.unwrap();
        let told: Vec<_> = history
            .iter()
            .map(|one| (one.version, one.at, one.author.as_str(), one.deleted))
            .collect();
        assert_eq!(told, [(2, 6, "ben", true), (1, 5, "ada", false)]);
        let first = config.snapshot_at(1).await.unwrap();
        assert_eq!((first.tools.len(), first.patterns.len()), (0, 1));
        // What cannot be read is left out of the set, and can be mended.
        assert!(config.get("tool", "odd").await.unwrap().is_some());
        let item = Item {
            item_type: "tool".to_owned(),
            key: "odd".to_owned(),
            value: serde_json::json!({"name": "odd", "type": "document-search"}),
        };
        assert_eq!(config.put(vec![item], "someone").await.unwrap(), 3);
        let again = open().await.unwrap().snapshot().await.unwrap();
        assert_eq!((again.version, again.tools.len()), (3, 1));
    }
}
