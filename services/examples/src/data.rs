//! The SQLite file of an example: opened, filled for each tenant, and asked with named values.
//!
//! The file is the example's own. Nothing of the fleet lies in it.

use crate::{Error, Example, day};
use rusqlite::types::{ToSqlOutput, Value as Cell, ValueRef};
use rusqlite::{Connection, Statement, TransactionBehavior};
use serde_json::{Map, Value, json};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

/// How long a writer waits for another, such as a reset while the service runs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Tenants with data of their own.
const MOST_TENANTS: i64 = 100;
/// Tables of every example.
const OWN: &str = "
CREATE TABLE IF NOT EXISTS tenants(tenant TEXT PRIMARY KEY, since TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers(tenant TEXT, key TEXT, request TEXT NOT NULL, status INTEGER NOT NULL,
  body TEXT NOT NULL, at TEXT NOT NULL, PRIMARY KEY(tenant, key));
";

pub(crate) type Rows = Vec<Value>;

/// Opens the file, which is made if it is not there.
pub(crate) fn open(example: &Example, path: &Path) -> Result<Connection, Error> {
    let broken = |reason: String| Error::Open {
        path: path.to_owned(),
        reason,
    };
    if let Some(folder) = path.parent() {
        // For its owner alone, as all of a data directory is.
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(|error| broken(error.to_string()))?;
    }
    let opened = Connection::open(path).and_then(|connection| {
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON;")?;
        connection.execute_batch(OWN)?;
        connection.execute_batch(example.schema)?;
        Ok(connection)
    });
    opened.map_err(|error| broken(error.to_string()))
}

/// Puts the data back to what it was at first, also while the service runs.
pub fn reset(example: &Example, path: &Path) -> Result<(), Error> {
    let mut connection = open(example, path)?;
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    change.execute_batch("PRAGMA defer_foreign_keys = ON")?;
    let tables = rows(
        &change,
        "SELECT name FROM sqlite_schema WHERE type = 'table'",
        "",
        &json!({}),
    )?;
    for name in tables.iter().filter_map(|row| row["name"].as_str()) {
        change.execute(&format!("DELETE FROM \"{name}\""), [])?;
    }
    fill(&change, example, "")?;
    Ok(change.commit()?)
}

/// Gives a tenant that is new the data that each begins with. `false` if there is no room for another.
pub(crate) fn fill(
    connection: &Connection,
    example: &Example,
    tenant: &str,
) -> Result<bool, rusqlite::Error> {
    let known = "SELECT count(*) AS all_of_them, count(*) FILTER (WHERE tenant = :tenant) AS own FROM tenants";
    let known = rows(connection, known, tenant, &json!({}))?;
    let count = |name: &str| known[0][name].as_i64().unwrap_or_default();
    if count("own") > 0 {
        return Ok(true);
    }
    if count("all_of_them") >= MOST_TENANTS {
        return Ok(false);
    }
    let today = json!({"today": day::today().to_string()});
    let new = "INSERT INTO tenants(tenant, since) VALUES (:tenant, :today)";
    rows(connection, new, tenant, &today)?;
    let statements = example.sample.split(";\n").map(str::trim);
    for sql in statements.filter(|sql| !sql.is_empty()) {
        rows(connection, sql, tenant, &today)?;
    }
    Ok(true)
}

/// Runs one statement. Each of its parameters is `:tenant`, or has a value of its name; columns become fields. A
/// column whose name ends in `?` is true or false, one that ends in `[]` is JSON, and what is NULL is left out.
pub(crate) fn rows(
    connection: &Connection,
    sql: &str,
    tenant: &str,
    values: &Value,
) -> Result<Rows, rusqlite::Error> {
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, tenant, values)?;
    let columns: Vec<String> = statement.column_names().map(Into::into).collect();
    let mut found = statement.raw_query();
    let mut rows = Rows::new();
    while let Some(row) = found.next()? {
        let mut fields = Map::new();
        for (index, column) in columns.iter().enumerate() {
            let value = read(row.get_ref(index)?, column);
            if !value.is_null() {
                fields.insert(column.trim_end_matches(['?', '[', ']']).to_owned(), value);
            }
        }
        rows.push(Value::Object(fields));
    }
    Ok(rows)
}

fn bind(
    statement: &mut Statement<'_>,
    tenant: &str,
    values: &Value,
) -> Result<(), rusqlite::Error> {
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).unwrap_or_default();
        let name = name.trim_start_matches(':').to_owned();
        let value = match values.get(&name) {
            _ if name == "tenant" => Cell::Text(tenant.to_owned()),
            Some(Value::Null) => Cell::Null,
            Some(Value::Bool(yes)) => Cell::Integer(i64::from(*yes)),
            Some(Value::String(text)) => Cell::Text(text.clone()),
            Some(Value::Number(number)) => match number.as_i64() {
                Some(whole) => Cell::Integer(whole),
                None => Cell::Real(number.as_f64().unwrap_or_default()),
            },
            Some(listed @ (Value::Array(_) | Value::Object(_))) => Cell::Text(listed.to_string()),
            None => return Err(rusqlite::Error::InvalidParameterName(name)),
        };
        statement.raw_bind_parameter(index, ToSqlOutput::Owned(value))?;
    }
    Ok(())
}

fn read(cell: ValueRef<'_>, column: &str) -> Value {
    match cell {
        ValueRef::Integer(number) if column.ends_with('?') => json!(number != 0),
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            match serde_json::from_str(&text) {
                Ok(value) if column.ends_with("[]") => value,
                _ => json!(text),
            }
        }
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
    }
}
