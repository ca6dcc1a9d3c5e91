//! The embedded engine: one SQLite file for each data directory, shared by any number of processes.
//!
//! Owns connections, transactions, group commit, table versions, waking who waits for a change, and
//! knowing which processes live. Leaves every table to the crate that brings it: broker, documents,
//! graph, config.
//!
//! ```text
//! agentfleet.db        the database, with its write-ahead log beside it
//! run/open.lock        held while one process opens the directory
//! run/{id}.lock        held by a living instance
//! run/{id}.sock        where it hears that others committed
//! ```

mod backup;
mod clock;
mod connection;
mod error;
mod hook;
mod instances;
mod migrate;
mod pack;
mod peers;
mod queue;
mod readers;
mod unit;
mod writer;

pub use backup::Progress;
pub use clock::{Clock, ManualClock, Moved, SystemClock};
pub use connection::FILE;
pub use error::Error;
pub use hook::{CommitHook, Nudge};
pub use instances::Instances;
pub use pack::{Packed, unpack};
pub use queue::Poker;
pub use unit::{Durability, Unit};

use instances::Presence;
use peers::{Ear, Peers};
use queue::{Operation, Queue};
use readers::Readers;
use rusqlite::Connection;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{Semaphore, oneshot, watch};

/// Operations that may wait for the writer at once; more wait in their callers.
const WAITING: usize = 4096;
/// Reader threads.
const READERS: usize = 2;

/// Storage's own tables.
const TABLES: &[&str] = &["CREATE TABLE instances(last INTEGER NOT NULL);
     INSERT INTO instances VALUES (0);"];

/// The database of one data directory. Clones share it; the last one dropped finishes what is
/// queued and closes it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    data_dir: PathBuf,
    file: PathBuf,
    queue: Arc<Queue>,
    permits: Arc<Semaphore>,
    readers: Readers,
    changes: Arc<watch::Sender<u64>>,
    clock: Arc<dyn Clock>,
    instances: Instances,
    peers: Arc<Peers>,
    writer: Option<JoinHandle<()>>,
    // Last: this instance lives until everything above is gone.
    _presence: Presence,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("data_dir", &self.inner.data_dir)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database of `data_dir`, creating both if they are absent.
    pub fn open(data_dir: &Path) -> Result<Self, Error> {
        Self::open_with(data_dir, Arc::new(SystemClock))
    }

    /// As [`Database::open`], with the clock that timers and timestamps follow.
    pub fn open_with(data_dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let run_dir = data_dir.join(instances::RUN);
        // Prompts and answers lie here: they are for their owner only.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&run_dir)
            .map_err(|error| Error::io("create the data directory", &run_dir, error))?;
        // One at a time: switching a new file to its log, and taking an id.
        let gate = run_dir.join("open.lock");
        let opening = File::create(&gate)
            .and_then(|lock| lock.lock().map(|()| lock))
            .map_err(|error| Error::io("lock", &gate, error))?;

        let file = data_dir.join(connection::FILE);
        if backup::is_half_restored(&file) {
            return Err(Error::HalfRestored(data_dir.to_owned()));
        }
        // SQLite gives its log the permissions of the file. Only a new one is opened here: closing a
        // file lets go of the locks that this process has on it. What fails here, SQLite tells.
        let mut new = File::options();
        drop(new.write(true).create_new(true).mode(0o600).open(&file));
        let connection = connection::writer(&file)?;
        migrate::migrate(&connection, "storage", TABLES).map_err(|error| error.at(&file))?;
        let own = connection
            .query_row(
                "UPDATE instances SET last = last + 1 RETURNING last",
                [],
                |row| row.get(0),
            )
            .map_err(|error| Error::from(error).at(&file))?;
        let ear = Ear::bind(&run_dir, own)?;
        let presence = Presence::announce(&run_dir, own, ear.path())?;
        let instances = Instances::new(&run_dir, own);
        instances.sweep();

        let queue = Arc::new(Queue::default());
        let changes = Arc::new(watch::Sender::new(0));
        let peers = Peers::start(
            ear,
            instances.clone(),
            Arc::clone(&queue),
            Arc::clone(&changes),
        )?;
        let readers = Readers::start(&file, READERS)?;
        let writer = writer::Writer::new(
            connection,
            Arc::clone(&queue),
            Arc::clone(&clock),
            Arc::clone(&changes),
            Arc::clone(&peers),
            file.clone(),
        );
        let writer = std::thread::Builder::new()
            .name("storage-write".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Error::io("start the writer thread for", &file, error))?;
        drop(opening);

        let moved = Poker(Arc::clone(&queue));
        clock.on_moved(Box::new(move || moved.poke()));
        Ok(Self {
            inner: Arc::new(Inner {
                data_dir: data_dir.to_owned(),
                file,
                queue,
                permits: Arc::new(Semaphore::new(WAITING)),
                readers,
                changes,
                clock,
                instances,
                peers,
                writer: Some(writer),
                _presence: presence,
            }),
        })
    }

    /// Brings the tables of one crate up to date: `steps` are applied once each, in order, and the
    /// list only ever grows. Refuses tables that a newer program has changed.
    pub fn migrate(&self, part: &str, steps: &[&str]) -> Result<(), Error> {
        let connection = connection::writer(&self.inner.file)?;
        migrate::migrate(&connection, part, steps).map_err(|error| error.at(&self.inner.file))
    }

    /// Registers what runs around every commit from now on.
    pub fn hook(&self, hook: Box<dyn CommitHook>) {
        self.inner.queue.hook(hook);
    }

    /// Runs `action` in the next transaction and returns after its commit. Other operations may
    /// share the transaction; a failure rolls back only the changes of the one that failed.
    ///
    /// Dropping the future does not take the operation back.
    pub async fn write<T, F>(&self, durability: Durability, action: F) -> Result<T, Error>
    where
        F: FnOnce(&mut Unit<'_>) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        let permits = Arc::clone(&self.inner.permits);
        let permit = permits.acquire_owned().await.map_err(|_| Error::Closed)?;
        let (reply, answer) = oneshot::channel();
        let operation = Operation {
            durability,
            action: Some(action),
            result: None,
            reply,
            _permit: permit,
        };
        if self.inner.queue.push(Box::new(operation)).is_err() {
            return Err(Error::Closed);
        }
        let result: Result<T, Error> = answer.await.map_err(|_| Error::Closed)?;
        result.map_err(|error| error.at(&self.inner.file))
    }

    /// Runs `action` on a consistent snapshot of the database. It sees every commit that was
    /// answered before, and never waits for the writer.
    pub async fn read<T, F>(&self, action: F) -> Result<T, Error>
    where
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.inner.readers.submit(Box::new(move |connection| {
            drop(reply.send(readers::on_snapshot(connection, action)));
        }));
        let result: Result<T, Error> = answer.await.map_err(|_| Error::Closed)?;
        result.map_err(|error| error.at(&self.inner.file))
    }

    /// Ticks after commits, made by this process or another one on the same data directory. Several
    /// commits may share a tick, and a tick may come without a change of interest.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Copies the database as it is now to `dest`, which must not exist, while it stays in use.
    /// Blocks the calling thread.
    pub fn backup(&self, dest: &Path, mut progress: impl FnMut(Progress)) -> Result<(), Error> {
        backup::backup(&self.inner.file, dest, &mut progress)
    }

    /// Puts a copy made by [`Database::backup`] into `data_dir`, which must be new or empty and not
    /// in use. Blocks the calling thread.
    pub fn restore(
        source: &Path,
        data_dir: &Path,
        mut progress: impl FnMut(Progress),
    ) -> Result<(), Error> {
        backup::restore(source, data_dir, &mut progress)
    }

    /// Reads every page and index and says what is wrong; empty if all is well. Blocks the calling
    /// thread.
    pub fn problems(&self) -> Result<Vec<String>, Error> {
        let file = &self.inner.file;
        let connection = connection::reader(file)?;
        backup::problems(&connection).map_err(|error| Error::from(error).at(file))
    }

    /// The size of the database in bytes, free space inside it included.
    pub async fn size(&self) -> Result<u64, Error> {
        self.read(|connection| {
            let pages: u32 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let size: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
            Ok(u64::from(pages) * u64::from(size))
        })
        .await
    }

    /// Takes what was deleted out of every byte of the files, those of the write-ahead log too. `false`
    /// if the log was in use all the time: it is overwritten later. Blocks the calling thread.
    pub fn scrub(&self) -> Result<bool, Error> {
        connection::scrub(&self.inner.file)
    }

    /// The permissions of the data directory, if they let other users of this machine look into it or put
    /// files there: settings and a token of theirs would be taken for the owner's.
    pub fn open_to_others(&self) -> Option<u32> {
        let open = |path: &Path| {
            let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
            (mode & 0o077 != 0).then_some(mode)
        };
        let mode = open(&self.inner.data_dir)?;
        // A closed file in a directory that can only be listed is nothing to warn of.
        let is_writable = mode & 0o022 != 0;
        (is_writable || open(&self.inner.file).is_some()).then_some(mode)
    }

    pub fn data_dir(&self) -> &Path {
        &self.inner.data_dir
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// This instance and the others on the data directory.
    pub fn instances(&self) -> &Instances {
        &self.inner.instances
    }

    /// A way to make the writer look around that does not keep the database open.
    pub fn poker(&self) -> Poker {
        Poker(Arc::clone(&self.inner.queue))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.take() {
            // The last clone may be dropped by an operation, on the writer thread itself.
            if writer.thread().id() != std::thread::current().id() {
                drop(writer.join());
            }
        }
        self.peers.close();
    }
}
