//! A small pool of threads with a read-only connection each. A read sees one consistent snapshot
//! and never waits for the writer.

use crate::connection;
use crate::error::Error;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

type Task = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    closed: bool,
}

pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(file: &Path, count: usize) -> Result<Self, Error> {
        let mut readers = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for index in 0..count {
            let connection = connection::reader(file)?;
            let shared = Arc::clone(&readers.shared);
            let thread = std::thread::Builder::new()
                .name(format!("storage-read-{index}"))
                .spawn(move || serve(&shared, &connection))
                .map_err(|error| Error::io("start a reader thread for", file, error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    pub(crate) fn submit(&self, task: Task) {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !state.closed {
            state.tasks.push_back(task);
        }
        drop(state);
        self.shared.wake.notify_one();
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // The last owner may be dropped by a task on one of these threads.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
    }
}

fn serve(shared: &Shared, connection: &Connection) {
    loop {
        let task = {
            let state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = shared
                .wake
                .wait_while(state, |state| state.tasks.is_empty() && !state.closed)
                .unwrap_or_else(PoisonError::into_inner);
            match state.tasks.pop_front() {
                Some(task) => task,
                None => return,
            }
        };
        task(connection);
    }
}

/// Runs `action` on one snapshot.
pub(crate) fn on_snapshot<T>(
    connection: &Connection,
    action: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Error> {
    connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| action(connection)));
    let ended = connection
        .prepare_cached("ROLLBACK")
        .and_then(|mut end| end.execute([]));
    let value = result.unwrap_or(Err(Error::Panicked))?;
    ended?;
    Ok(value)
}
