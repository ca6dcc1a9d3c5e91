//! Copies of the whole database: taken while it is in use, and put back into a new data directory.

use crate::connection::{self, FILE};
use crate::error::Error;
use crate::instances;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Pages copied between two progress reports.
const STEP: i32 = 1024;

/// How far a copy has come, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub copied: u64,
    pub total: u64,
}

/// Copies the database `file` as it is now to `dest`, which must not exist.
pub(crate) fn backup(
    file: &Path,
    dest: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let source = connection::reader(file)?;
    // The open snapshot keeps commits made meanwhile out of the copy.
    let snapshot = source
        .execute_batch("BEGIN DEFERRED")
        .and_then(|()| source.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())));
    snapshot.map_err(|error| Error::from(error).at(file))?;
    copy(&source, file, dest, progress)
}

/// Puts the copy `source` into `data_dir`, which must be new or empty.
pub(crate) fn restore(
    source: &Path,
    data_dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    // Said by the system: SQLite only says that it cannot.
    File::open(source).map_err(|error| Error::io("open the copy", source, error))?;
    let connection = Connection::open_with_flags(source, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| Error::from(error).at(source))?;
    let found = |error: rusqlite::Error| Error::from(error).at(source);
    if !connection::is_ours(&connection).map_err(found)? {
        return Err(Error::Foreign(source.to_owned()));
    }
    if !problems(&connection).map_err(found)?.is_empty() {
        return Err(Error::Corrupt(source.to_owned()));
    }
    std::fs::create_dir_all(data_dir)
        .map_err(|error| Error::io("create the data directory", data_dir, error))?;
    if instances::any_alive(&data_dir.join(instances::RUN)) {
        return Err(Error::InUse(data_dir.to_owned()));
    }
    let mut entries = std::fs::read_dir(data_dir)
        .map_err(|error| Error::io("look into the data directory", data_dir, error))?;
    if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != instances::RUN)) {
        return Err(Error::NotEmpty(data_dir.to_owned()));
    }
    copy(&connection, source, &data_dir.join(FILE), progress)
}

/// What an integrity check finds wrong; empty if all is well.
pub(crate) fn problems(connection: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    lines
        .filter(|line| !matches!(line, Ok(line) if line == "ok"))
        .collect()
}

/// Copies to a name beside `dest` first, so that `dest` is complete or absent.
fn copy(
    source: &Connection,
    source_file: &Path,
    dest: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let mut partial = dest.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if dest.exists() {
        return Err(Error::Exists(dest.to_owned()));
    }
    match File::create_new(&partial) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists(partial));
        }
        Err(error) => return Err(Error::io("create the copy", &partial, error)),
    }
    let outcome = pages(source, source_file, &partial, progress).and_then(|()| {
        // A link, unlike a rename, never replaces a file that appeared meanwhile.
        std::fs::hard_link(&partial, dest).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Error::Exists(dest.to_owned()),
            _ => Error::io("name the copy", dest, error),
        })
    });
    drop(std::fs::remove_file(&partial));
    outcome?;
    sync_directory(dest)
}

fn pages(
    source: &Connection,
    source_file: &Path,
    dest: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let at_source = |error: rusqlite::Error| Error::from(error).at(source_file);
    let at_dest = |error: rusqlite::Error| Error::from(error).at(dest);
    let page: u32 = source
        .query_row("PRAGMA page_size", [], |row| row.get(0))
        .map_err(at_source)?;
    let mut target = Connection::open(dest).map_err(at_dest)?;
    {
        let backup = Backup::new(source, &mut target).map_err(at_dest)?;
        loop {
            let step = backup.step(STEP).map_err(at_dest)?;
            let so_far = backup.progress();
            let pages = |count: i32| u64::try_from(count).unwrap_or(0) * u64::from(page);
            progress(Progress {
                copied: pages(so_far.pagecount - so_far.remaining),
                total: pages(so_far.pagecount),
            });
            match step {
                StepResult::Done => break,
                StepResult::More => {}
                // Busy or locked: the copy did not go on.
                _ => return Err(Error::Busy(dest.to_owned())),
            }
        }
    }
    // One file that stands alone: no log beside it to forget.
    target
        .query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))
        .map_err(at_dest)?;
    target.close().map_err(|(_, error)| at_dest(error))?;
    let file = File::open(dest).map_err(|error| Error::io("open the copy", dest, error))?;
    file.sync_all()
        .map_err(|error| Error::io("write the copy", dest, error))
}

fn sync_directory(file: &Path) -> Result<(), Error> {
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Error::io("write the directory", parent, error))
}
