//! Answers to calls that changed something, by their `Idempotency-Key`: the same call again gets the same answer and
//! changes nothing.

use crate::data;
use rusqlite::Connection;
use serde_json::{Value, json};

/// What stands under a key.
pub(crate) enum Earlier {
    /// The same call was answered with this.
    Answered(u16, Value),
    /// The key was used for another call.
    Other,
}

pub(crate) fn earlier(
    connection: &Connection,
    tenant: &str,
    key: &str,
    request: &str,
) -> Result<Option<Earlier>, rusqlite::Error> {
    let sql = "SELECT request, status, body AS 'body[]' FROM answers WHERE tenant = :tenant AND key = :key";
    let found = data::rows(connection, sql, tenant, &json!({"key": key}))?;
    Ok(found.into_iter().next().map(|mut row| {
        if row["request"] != request {
            return Earlier::Other;
        }
        let status = row["status"].as_u64().unwrap_or(200) as u16;
        Earlier::Answered(status, row["body"].take())
    }))
}

/// Keeps an answer, and forgets those of before yesterday.
pub(crate) fn keep(
    connection: &Connection,
    tenant: &str,
    key: &str,
    request: &str,
    (status, body): (u16, &Value),
) -> Result<(), rusqlite::Error> {
    let old = "DELETE FROM answers WHERE at < datetime('now', '-1 day')";
    data::rows(connection, old, tenant, &json!({}))?;
    let sql = "INSERT INTO answers(tenant, key, request, status, body, at) \
               VALUES (:tenant, :key, :request, :status, :body, datetime('now'))";
    let values =
        json!({"key": key, "request": request, "status": status, "body": body.to_string()});
    data::rows(connection, sql, tenant, &values).map(drop)
}
