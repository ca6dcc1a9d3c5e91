//! Waking other processes on the same data directory: one datagram after each commit.
//!
//! A datagram carries no news, it only says: look again. So it may be lost when a receiver has not
//! yet read the ones before.

use crate::error::Error;
use crate::hook::Nudge;
use crate::instances::Instances;
use crate::queue::Queue;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How often a process with company makes sure that the others still live.
const LIVENESS: Duration = Duration::from_secs(1);

const HELLO: u8 = b'h';
const COMMITTED: u8 = b'c';

/// This instance's ear: a bound socket.
pub(crate) struct Ear {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Ear {
    /// Binds a socket in `run_dir`, or where temporary files go if the path is too long for one.
    pub(crate) fn bind(run_dir: &Path, id: i64) -> Result<Self, Error> {
        let path = run_dir.join(format!("{id}.sock"));
        // The id is ours alone, so what has its name is left over from a database that is gone.
        drop(std::fs::remove_file(&path));
        if let Ok(socket) = UnixDatagram::bind(&path) {
            return Ok(Self { socket, path });
        }
        let elsewhere =
            std::env::temp_dir().join(format!("agentfleet-{}-{id}.sock", std::process::id()));
        drop(std::fs::remove_file(&elsewhere));
        let socket = UnixDatagram::bind(&elsewhere)
            .map_err(|error| Error::io("bind the socket", &elsewhere, error))?;
        Ok(Self {
            socket,
            path: elsewhere,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The other processes, as this one last saw them.
pub(crate) struct Peers {
    instances: Instances,
    ear: Ear,
    mouth: UnixDatagram,
    known: Mutex<Vec<(i64, PathBuf)>>,
    closed: AtomicBool,
}

impl Peers {
    pub(crate) fn start(
        ear: Ear,
        instances: Instances,
        queue: Arc<Queue>,
        changes: Arc<watch::Sender<u64>>,
    ) -> Result<Arc<Self>, Error> {
        let failed = |error| Error::io("prepare the socket", &ear.path, error);
        let mouth = UnixDatagram::unbound().map_err(failed)?;
        // A full receiver must not hold up commits, and will wake up anyway.
        mouth.set_nonblocking(true).map_err(failed)?;
        let others = instances.others();
        let peers = Arc::new(Self {
            instances,
            ear,
            mouth,
            known: Mutex::new(others),
            closed: AtomicBool::new(false),
        });
        let listener = Arc::clone(&peers);
        std::thread::Builder::new()
            .name("storage-listen".to_owned())
            .spawn(move || listener.listen(&queue, &changes))
            .map_err(|error| Error::io("start the thread listening on", &peers.ear.path, error))?;
        peers.send(HELLO);
        Ok(peers)
    }

    /// Tells the others that something was committed.
    pub(crate) fn announce(&self) {
        self.send(COMMITTED);
    }

    /// Stops the listener.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        drop(self.ear.socket.shutdown(Shutdown::Both));
        // Where shutting down does not wake the listener, a last datagram does.
        drop(self.mouth.send_to(&[COMMITTED], &self.ear.path));
    }

    fn known(&self) -> MutexGuard<'_, Vec<(i64, PathBuf)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, signal: u8) {
        for (_, socket) in self.known().iter() {
            // A peer that cannot be reached is either full or dead; the listener finds out.
            drop(self.mouth.send_to(&[signal], socket));
        }
    }

    fn listen(&self, queue: &Queue, changes: &watch::Sender<u64>) {
        let mut buffer = [0_u8; 8];
        let mut looked = Instant::now();
        loop {
            let timeout = (!self.known().is_empty()).then_some(LIVENESS);
            drop(self.ear.socket.set_read_timeout(timeout));
            let received = self.ear.socket.recv(&mut buffer);
            if self.closed.load(Ordering::SeqCst) {
                return;
            }
            match &received {
                Ok(_) if buffer[0] == HELLO => {}
                Ok(_) => {
                    changes.send_modify(|count| *count += 1);
                    queue.nudge(Nudge::Committed);
                }
                // A process that was stopped and goes on is told that its wait was interrupted.
                Err(error) if is_timeout(error) || error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot listen for other processes, looking every second");
                    std::thread::sleep(LIVENESS);
                    queue.nudge(Nudge::Committed);
                }
            }
            // Also when commits of others never leave a second of silence.
            let hello = received.is_ok() && buffer[0] == HELLO;
            if hello || looked.elapsed() >= LIVENESS {
                self.look_around(queue);
                looked = Instant::now();
            }
        }
    }

    /// Renews what is known of the others, and reports deaths.
    fn look_around(&self, queue: &Queue) {
        let found = self.instances.others();
        let before = std::mem::replace(&mut *self.known(), found.clone());
        let is_new = |(id, _): &&(i64, PathBuf)| before.iter().all(|(known, _)| known != id);
        for (_, socket) in found.iter().filter(is_new) {
            // It was not told of what was committed since it came, and before it was known.
            drop(self.mouth.send_to(&[COMMITTED], socket));
        }
        // One may also have come and gone unseen: then only what it left behind tells of it.
        let swept = self.instances.sweep();
        if swept || before.iter().any(|(id, _)| !self.instances.alive(*id)) {
            queue.nudge(Nudge::Died);
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
