//! Copies of the whole database: taken while it is in use, and put back into a new data directory.

use crate::connection::{self, FILE};
use crate::error::Error;
use crate::instances;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Pages copied between two progress reports.
const STEP: i32 = 1024;

/// The settings of a fleet may be there before the fleet is.
const SETTINGS: &str = "agentfleet.toml";

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
    if !connection::is_ours(&connection, source)? {
        return Err(Error::Foreign(source.to_owned()));
    }
    if !problems(&connection).map_err(found)?.is_empty() {
        return Err(Error::Corrupt(source.to_owned()));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)
        .map_err(|error| Error::io("create the data directory", data_dir, error))?;
    if instances::any_alive(&data_dir.join(instances::RUN)) {
        return Err(Error::InUse(data_dir.to_owned()));
    }
    let mut entries = std::fs::read_dir(data_dir)
        .map_err(|error| Error::io("look into the data directory", data_dir, error))?;
    let dest = data_dir.join(FILE);
    // What a restore left that was killed is no data.
    let left = left_by(&dest);
    let is_own = |path: PathBuf| {
        path.ends_with(instances::RUN) || path.ends_with(SETTINGS) || left.contains(&path)
    };
    if entries.any(|entry| entry.is_ok_and(|entry| !is_own(entry.path()))) {
        return Err(Error::NotEmpty(data_dir.to_owned()));
    }
    copy(&connection, source, &dest, progress)
}

/// What is written until a copy is complete, the file itself first.
fn left_by(dest: &Path) -> [PathBuf; 4] {
    ["", "-journal", "-wal", "-shm"].map(|ending| {
        let mut partial = dest.as_os_str().to_owned();
        partial.push(".partial");
        partial.push(ending);
        PathBuf::from(partial)
    })
}

/// Whether a restore into the place of this database has not come to its end.
pub(crate) fn is_half_restored(file: &Path) -> bool {
    let [partial, ..] = left_by(file);
    partial.exists() && !file.exists()
}

/// The file that a copy is written to, empty, and locked for as long as it is held. One that a killed
/// process left is taken over, one that another process writes is not.
fn begin(partial: &[PathBuf; 4]) -> Result<File, Error> {
    let [path, beside @ ..] = partial;
    let failed = |error| Error::io("create the copy", path, error);
    // Everything lies in it: it is for its owner only.
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Error::InUse(path.clone())),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    for path in beside {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    // One that is taken over may have been made for all to read.
    file.set_permissions(Permissions::from_mode(0o600))
        .and_then(|()| file.set_len(0))
        .map_err(failed)?;
    Ok(file)
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
    if dest.exists() {
        return Err(Error::Exists(dest.to_owned()));
    }
    let partial = left_by(dest);
    let held = begin(&partial)?;
    let outcome = pages(source, source_file, &partial[0], progress).and_then(|()| {
        // A link, unlike a rename, never replaces a file that appeared meanwhile.
        std::fs::hard_link(&partial[0], dest).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Error::Exists(dest.to_owned()),
            _ => Error::io("name the copy", dest, error),
        })
    });
    drop(std::fs::remove_file(&partial[0]));
    drop(held);
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
