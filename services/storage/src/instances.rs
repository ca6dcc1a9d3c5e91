//! Who else works on this data directory, and who of them is still alive.
//!
//! Every open database is an instance. It holds a lock on `run/{id}.lock` for as long as its process
//! lives; the system lets go of the lock when the process dies, however it dies. The file holds the
//! path of the instance's socket. Ids are never used twice.

use crate::error::Error;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of locks and sockets, in the data directory.
pub(crate) const RUN: &str = "run";

/// The instances of one data directory, seen from one of them.
#[derive(Clone, Debug)]
pub struct Instances {
    run_dir: Arc<Path>,
    own: i64,
}

impl Instances {
    pub(crate) fn new(run_dir: &Path, own: i64) -> Self {
        Self {
            run_dir: run_dir.into(),
            own,
        }
    }

    /// The id of this instance.
    pub fn own(&self) -> i64 {
        self.own
    }

    /// Whether the process of instance `id` still lives.
    pub fn alive(&self, id: i64) -> bool {
        id == self.own || is_locked(&lock_path(&self.run_dir, id))
    }

    /// The other living instances with the paths of their sockets.
    pub(crate) fn others(&self) -> Vec<(i64, PathBuf)> {
        let ids = ids(&self.run_dir).into_iter();
        ids.filter(|id| *id != self.own && self.alive(*id))
            .filter_map(|id| {
                let path = std::fs::read_to_string(lock_path(&self.run_dir, id)).ok()?;
                (!path.is_empty()).then(|| (id, PathBuf::from(path)))
            })
            .collect()
    }

    /// Removes what dead instances left behind; says whether there was anything.
    pub(crate) fn sweep(&self) -> bool {
        let mut swept = false;
        for id in ids(&self.run_dir) {
            if !self.alive(id) {
                remove(&self.run_dir, id);
                swept = true;
            }
        }
        swept
    }
}

/// Whether any instance works on the data directory with this `run` directory.
pub(crate) fn any_alive(run_dir: &Path) -> bool {
    ids(run_dir)
        .into_iter()
        .any(|id| is_locked(&lock_path(run_dir, id)))
}

/// The lock of this instance: held until dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    run_dir: PathBuf,
    id: i64,
    _lock: File,
}

impl Presence {
    /// Takes the lock of `id`, whose socket is at `socket`.
    pub(crate) fn announce(run_dir: &Path, id: i64, socket: &Path) -> Result<Self, Error> {
        let path = lock_path(run_dir, id);
        let fresh = path.with_extension("new");
        let failed = |error| Error::io("write the lock file", &path, error);
        let mut lock = File::create(&fresh).map_err(failed)?;
        // Others see the file only once it is locked and complete: before that they would take this
        // instance for a dead one.
        lock.lock().map_err(failed)?;
        lock.write_all(socket.as_os_str().as_encoded_bytes())
            .map_err(failed)?;
        std::fs::rename(&fresh, &path).map_err(failed)?;
        Ok(Self {
            run_dir: run_dir.to_owned(),
            id,
            _lock: lock,
        })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        remove(&self.run_dir, self.id);
    }
}

fn lock_path(run_dir: &Path, id: i64) -> PathBuf {
    run_dir.join(format!("{id}.lock"))
}

fn remove(run_dir: &Path, id: i64) {
    let lock = lock_path(run_dir, id);
    if let Ok(socket) = std::fs::read_to_string(&lock) {
        drop(std::fs::remove_file(socket));
    }
    drop(std::fs::remove_file(lock));
}

fn ids(run_dir: &Path) -> Vec<i64> {
    let Ok(entries) = std::fs::read_dir(run_dir) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_suffix(".lock")?
                .parse()
                .ok()
        })
        .collect()
}

fn is_locked(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        // A file that cannot be looked at is no proof of death.
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => true,
    }
}
