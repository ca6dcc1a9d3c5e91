//! The table, made by whoever comes first.

use super::pool::{Ask, Pool};
use crate::error::Error;
use tokio_postgres::types::Type;

/// Of the tables and of the records in them: others are not read.
const VERSION: i32 = 2;

/// How often the tables are looked for, where others make them at the same time.
const TRIES: u32 = 4;

/// Makes the tables if there are none, and refuses those of another version.
pub(super) async fn prepare(pool: &Pool) -> Result<(), Error> {
    let schema = &pool.address.schema;
    let mut failed = None;
    for _ in 0..TRIES {
        match version(pool, schema).await? {
            Some(VERSION) => return Ok(()),
            Some(version) => {
                return Err(Error::OtherVersion {
                    address: pool.address.shown.clone(),
                    found: version,
                    known: VERSION,
                });
            }
            // Of several that make them at once one does, and the others fail and find them.
            None => failed = make(pool, schema).await.err(),
        }
    }
    Err(failed.unwrap_or_else(|| Error::Unavailable {
        address: pool.address.shown.clone(),
        reason: format!("the tables of schema `{schema}` were made, and are not there"),
    }))
}

async fn version(pool: &Pool, schema: &str) -> Result<Option<i32>, Error> {
    let name = format!("\"{schema}\".version");
    let sql = "SELECT true WHERE to_regclass($1) IS NOT NULL";
    let ask = Ask::Statement(sql, &[(&name, Type::TEXT)]);
    if pool.run(ask).await?.rows.is_empty() {
        return Ok(None);
    }
    let sql = format!("SELECT max(version) FROM {name}");
    let answer = pool.run(Ask::Statement(&sql, &[])).await?;
    Ok(answer.rows.first().and_then(|row| row.try_get(0).ok()))
}

async fn make(pool: &Pool, schema: &str) -> Result<(), Error> {
    let sql = "SELECT true WHERE to_regnamespace($1) IS NOT NULL";
    let name = format!("\"{schema}\"");
    let there = pool
        .run(Ask::Statement(sql, &[(&name, Type::TEXT)]))
        .await?;
    // Who may not create a schema may have been given one.
    let create = if there.rows.is_empty() {
        format!("CREATE SCHEMA {name};")
    } else {
        String::new()
    };
    // A script is one transaction. Bodies are packed already, so the server need not try.
    let script = format!(
        "{create}
         CREATE TABLE {name}.objects(
           key text COLLATE \"C\" PRIMARY KEY,
           created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
           writer uuid NOT NULL,
           body bytea NOT NULL);
         ALTER TABLE {name}.objects ALTER body SET STORAGE EXTERNAL;
         CREATE TABLE {name}.version(version integer PRIMARY KEY);
         INSERT INTO {name}.version VALUES ({VERSION});"
    );
    pool.run(Ask::Script(&script)).await.map(drop)
}
