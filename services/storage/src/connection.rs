//! Opening connections to the one file of a data directory, and telling ours from others.

use crate::error::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// The name of the database in its data directory.
pub const FILE: &str = "agentfleet.db";

/// Bytes of the write-ahead log beyond which it has grown too long.
pub(crate) const LOG_LIMIT: u64 = 32 * 1024 * 1024;

/// Pages of the log after which it is copied into the file, 16 MiB: a page that is written again and
/// again is copied once.
const CHECKPOINT_PAGES: u32 = 4_000;

/// `AgFl`: marks the file as ours in its header.
const APPLICATION: i32 = 0x4167_466c;

/// Of what all parts store, records included, as the header of the file says. One that reads otherwise has
/// another number.
const FORMAT: i32 = 1;

/// Opens a connection that writes, creating the file if it is absent.
pub(crate) fn writer(file: &Path) -> Result<Connection, Error> {
    // The connection stays on one thread at a time, so SQLite needs no mutex of its own.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(file, flags)?;
    claim(&connection, file)?;
    // What is deleted is overwritten: an erased text must not lie in a free page for years.
    let prepared = prepare(&connection, 32)
        .and_then(|()| connection.execute_batch("PRAGMA secure_delete = ON"));
    prepared.map_err(|error| Error::from(error).at(file))?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(crate) fn reader(file: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(file, flags)?;
    let prepared =
        prepare(&connection, 8).and_then(|()| connection.execute_batch("PRAGMA query_only = ON"));
    prepared.map_err(|error| Error::from(error).at(file))?;
    Ok(connection)
}

fn open(file: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let mut connection =
        Connection::open_with_flags(file, flags).map_err(|error| Error::from(error).at(file))?;
    connection
        .busy_handler(Some(wait_for_lock))
        .map_err(|error| Error::from(error).at(file))?;
    connection.set_prepared_statement_cache_capacity(256);
    // A prepared statement keeps its plan: otherwise SQLite plans it anew for other bound values,
    // which costs more than the statements here do.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| Error::from(error).at(file))?;
    Ok(connection)
}

fn prepare(connection: &Connection, cache_megabytes: u32) -> Result<(), rusqlite::Error> {
    let cache = cache_megabytes * 1024;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -{cache};
         PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
         PRAGMA journal_size_limit = {LOG_LIMIT};"
    ))
}

/// Marks a new file as ours; refuses one of another program.
fn claim(connection: &Connection, file: &Path) -> Result<(), Error> {
    let found = |error: rusqlite::Error| Error::from(error).at(file);
    if is_ours(connection, file)? {
        return Ok(());
    }
    // Two processes may open a new directory at once: the second looks again under the lock.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(found)?;
    let outcome = (|| {
        if is_ours(connection, file)? {
            return Ok(true);
        }
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = connection
            .query_row(tables, [], |r| r.get(0))
            .map_err(found)?;
        if number(connection, "application_id", file)? != 0 || tables != 0 {
            return Ok(false);
        }
        let script = format!(
            "PRAGMA application_id = {APPLICATION};
             PRAGMA user_version = {FORMAT};
             CREATE TABLE parts(name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;"
        );
        connection.execute_batch(&script).map_err(found)?;
        Ok(true)
    })();
    match outcome {
        Ok(true) => connection.execute_batch("COMMIT").map_err(found),
        Ok(false) => {
            drop(connection.execute_batch("ROLLBACK"));
            Err(Error::Foreign(file.to_owned()))
        }
        Err(error) => {
            drop(connection.execute_batch("ROLLBACK"));
            Err(error)
        }
    }
}

/// Whether a file is ours. Refuses one of another format.
pub(crate) fn is_ours(connection: &Connection, file: &Path) -> Result<bool, Error> {
    if number(connection, "application_id", file)? != APPLICATION {
        return Ok(false);
    }
    match number(connection, "user_version", file)? {
        FORMAT => Ok(true),
        found => Err(Error::OtherFormat {
            file: file.to_owned(),
            found,
            known: FORMAT,
        }),
    }
}

/// A number in the header of a file.
fn number(connection: &Connection, name: &str, file: &Path) -> Result<i32, Error> {
    let number = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    number.map_err(|error| Error::from(error).at(file))
}

/// Starts the write-ahead log over if it has grown too long. SQLite does so by itself, but not while
/// readers follow each other without a gap; so this waits for one, though not for long.
pub(crate) fn shorten_log(connection: &mut Connection, file: &Path) -> Result<(), Error> {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(Path::new(&log)).map_or(0, |log| log.len()) <= LOG_LIMIT {
        return Ok(());
    }
    connection.busy_timeout(Duration::from_millis(50))?;
    let outcome = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
    connection.busy_handler(Some(wait_for_lock))?;
    Ok(outcome?)
}

/// Takes what was deleted out of the write-ahead log as well. `false` if somebody read or wrote all the time,
/// so that the log stays.
pub(crate) fn scrub(file: &Path) -> Result<bool, Error> {
    let busy: bool = writer(file)?
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(|error| Error::from(error).at(file))?;
    Ok(!busy)
}

/// Waits for the write lock of another process: short steps at first, because commits take well
/// under a millisecond; about ten seconds in all.
fn wait_for_lock(attempt: i32) -> bool {
    let pause = match attempt {
        0..20 => Duration::from_micros(100),
        20..200 => Duration::from_millis(1),
        200..1200 => Duration::from_millis(10),
        _ => return false,
    };
    std::thread::sleep(pause);
    true
}
