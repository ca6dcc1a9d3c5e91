//! The fleet lock: one process at a time runs the roles of an embedded data directory, and another
//! takes over when it goes. It tells the others what it works with.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use agentfleet_models::Choice;
use std::fs::{File, TryLockError};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// What the process that works a data directory says of itself, in the file whose lock it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// The settings `model` and `base_url` it was started with.
    pub asked: String,
    pub base_url: Option<String>,
    /// The model that came of them, and why it is that one; empty while it starts.
    pub model: String,
    pub reason: String,
}

impl Holder {
    pub fn of(settings: &Settings, choice: Option<&Choice>) -> Self {
        Self {
            pid: std::process::id(),
            asked: settings.model.clone(),
            base_url: settings.base_url.clone(),
            model: choice.map(|c| c.model.describe()).unwrap_or_default(),
            reason: choice.map(|c| c.reason.clone()).unwrap_or_default(),
        }
    }
}

/// Held by the one process that runs all roles of a data directory.
#[derive(Debug)]
pub struct FleetLock {
    file: File,
}

impl FleetLock {
    /// Takes the lock, or says that another process has it.
    pub fn try_take(settings: &Settings) -> Result<Option<Self>, Failure> {
        let path = lock_file(settings);
        let locked = open_lock(&path).and_then(|file| match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        match locked.map_err(|error| cannot_lock(&path, &error))? {
            Some(file) => Ok(Some(Self::taken(file, settings))),
            None => Ok(None),
        }
    }

    /// Waits for the lock on a thread of its own: the holder may be there for days.
    pub async fn take(settings: &Settings) -> Result<Self, Failure> {
        let path = lock_file(settings);
        let (sender, taken) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let result = open_lock(&path)
                .and_then(|file| file.lock().map(|()| file))
                .map_err(|error| cannot_lock(&path, &error));
            drop(sender.send(result));
        });
        let file = taken.await.map_err(|_| {
            Failure::new(
                Exit::Unavailable,
                "the thread that waits for the fleet lock ended",
            )
        })??;
        Ok(Self::taken(file, settings))
    }

    fn taken(file: File, settings: &Settings) -> Self {
        let lock = Self { file };
        lock.say(&Holder::of(settings, None));
        lock
    }

    /// Tells others what this process works with. It works all the same if it cannot be told.
    pub fn say(&self, holder: &Holder) {
        let written = serde_json::to_vec(holder).map_err(std::io::Error::from);
        let written = written.and_then(|text| {
            self.file.set_len(0)?;
            self.file.write_all_at(&text, 0)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "cannot tell other processes what works here");
        }
    }

    /// The other process that works the data directory, if one does.
    pub fn holder(settings: &Settings) -> Result<Option<Holder>, Failure> {
        let path = lock_file(settings);
        let failed = |error| cannot_lock(&path, &error);
        let file = open_lock(&path).map_err(failed)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            // It may be writing this very moment.
            Err(TryLockError::WouldBlock) => {
                let text = std::fs::read(&path).map_err(failed)?;
                Ok(Some(serde_json::from_slice(&text).unwrap_or_default()))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

fn lock_file(settings: &Settings) -> PathBuf {
    settings.data.join("run").join("fleet.lock")
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path)
}

fn cannot_lock(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Unavailable,
        format!("cannot lock `{}`: {error}", path.display()),
    )
}
