//! Versions of the tables: each crate brings its own part, as a list of steps that only grows.

use crate::error::Error;
use rusqlite::{Connection, OptionalExtension};

/// Brings the tables of `part` to the last of `steps`, all in one transaction.
pub(crate) fn migrate(connection: &Connection, part: &str, steps: &[&str]) -> Result<(), Error> {
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if version(connection, part)? == known {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = apply(connection, part, steps, known);
    let end = if outcome.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = connection.execute_batch(end);
    outcome?;
    Ok(ended?)
}

fn apply(connection: &Connection, part: &str, steps: &[&str], known: u32) -> Result<(), Error> {
    // Read again under the lock: another process may have been quicker.
    let found = version(connection, part)?;
    if found > known {
        return Err(Error::Newer {
            part: part.to_owned(),
            found,
            known,
        });
    }
    for step in steps.iter().skip(found as usize) {
        connection.execute_batch(step)?;
    }
    connection.execute(
        "INSERT INTO parts(name, version) VALUES (?1, ?2)
         ON CONFLICT(name) DO UPDATE SET version = excluded.version",
        (part, known),
    )?;
    Ok(())
}

fn version(connection: &Connection, part: &str) -> Result<u32, Error> {
    let found = connection
        .query_row("SELECT version FROM parts WHERE name = ?1", [part], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(found.unwrap_or(0))
}
