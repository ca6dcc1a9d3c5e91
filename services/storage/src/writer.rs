//! The writer thread: takes what is queued, runs it as one transaction, commits once, answers all.
//!
//! ```text
//! take -> BEGIN IMMEDIATE -> operations, each undone alone if it fails -> hooks -> COMMIT -> answer
//! ```
//! - A group commits durably if any of its operations asks for it; in WAL mode that makes earlier
//!   commits durable too.
//! - A caller is answered only after the commit, so an answer is never taken back.
//! - With nothing queued the thread sleeps until it is woken or a hook's next instant comes.

use crate::clock::Clock;
use crate::connection;
use crate::error::Error;
use crate::hook::CommitHook;
use crate::peers::Peers;
use crate::queue::{Job, Queue};
use crate::unit::{Durability, Scope, Unit};
use agentfleet_schema::Millis;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// The most operations of one transaction: bounds how long the first of them waits.
const GROUP: usize = 256;
/// Transactions between two looks at the length of the log.
const LOG_CHECK: u64 = 16;
/// How long hooks that failed are left alone, unless there is other work.
const PAUSE: Millis = 1000;

pub(crate) struct Writer {
    connection: Connection,
    queue: Arc<Queue>,
    clock: Arc<dyn Clock>,
    changes: Arc<watch::Sender<u64>>,
    peers: Arc<Peers>,
    file: PathBuf,
    hooks: Vec<Box<dyn CommitHook>>,
    scope: Scope,
    /// Whether `synchronous` is `FULL` now.
    durable: bool,
    /// Until when failed hooks start no transaction of their own.
    paused_until: Option<Millis>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Also if this thread panics: nobody may wait for an answer that cannot come.
        self.queue.abandon();
    }
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        queue: Arc<Queue>,
        clock: Arc<dyn Clock>,
        changes: Arc<watch::Sender<u64>>,
        peers: Arc<Peers>,
        file: PathBuf,
    ) -> Self {
        Self {
            connection,
            queue,
            clock,
            changes,
            peers,
            file,
            hooks: Vec::new(),
            scope: Scope::default(),
            durable: true,
            paused_until: None,
        }
    }

    pub(crate) fn run(mut self) {
        loop {
            let timeout = self
                .next_wake()
                .and_then(|instant| self.clock.until(instant));
            let taken = self.queue.take(GROUP, timeout);
            self.hooks.extend(taken.hooks);
            for nudge in taken.nudges {
                self.hooks.iter_mut().for_each(|hook| hook.nudged(nudge));
            }
            let busy = !taken.jobs.is_empty();
            if busy || self.hooks_are_due() {
                self.group(taken.jobs);
            }
            if taken.closed && !busy {
                return;
            }
        }
    }

    fn next_wake(&self) -> Option<Millis> {
        let wake = self.hooks.iter().filter_map(|hook| hook.next_wake()).min();
        wake.max(self.paused_until)
    }

    fn hooks_are_due(&mut self) -> bool {
        let now = self.clock.now();
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        self.paused_until = None;
        let mut due = false;
        for hook in &mut self.hooks {
            match hook.due(&self.connection, now) {
                Ok(found) => due |= found,
                Err(error) => {
                    let error = error.at(&self.file);
                    tracing::warn!(%error, "cannot see what is due, trying again");
                    self.paused_until = Some(now + PAUSE);
                }
            }
        }
        due
    }

    fn group(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        self.scope = Scope {
            number: self.scope.number + 1,
            now: self.clock.now(),
            ..Scope::default()
        };
        self.paused_until = None;
        let mut hooked = Vec::new();
        let outcome = self
            .transaction(&mut jobs, &mut hooked)
            .map_err(|error| error.at(&self.file));
        if let Err(error) = &outcome {
            if !self.connection.is_autocommit() {
                drop(self.connection.execute_batch("ROLLBACK"));
            }
            tracing::warn!(%error, "a group of {} operations was rolled back", jobs.len());
            self.paused_until = Some(self.scope.now + PAUSE);
            self.scope.callbacks.clear();
        }
        for callback in self.scope.callbacks.drain(..) {
            callback();
        }
        let ran = hooked.iter().map(Some).chain(std::iter::repeat(None));
        for (hook, ran) in self.hooks.iter_mut().zip(ran) {
            hook.after_commit(match (&outcome, ran) {
                (Err(error), _) | (Ok(()), Some(Err(error))) => Err(error),
                (Ok(()), Some(Ok(())) | None) => Ok(()),
            });
        }
        // What a hook only took concerns nobody else.
        if outcome.is_ok() && (!jobs.is_empty() || !self.scope.touched.is_empty()) {
            self.changes.send_modify(|count| *count += 1);
            self.peers.announce();
        }
        for job in jobs {
            job.answer(outcome.clone());
        }
        if self.scope.number.is_multiple_of(LOG_CHECK)
            && let Err(error) = connection::shorten_log(&mut self.connection, &self.file)
        {
            tracing::warn!(%error, "cannot shorten the write-ahead log");
        }
    }

    /// Runs one group; `hooked` receives what became of each hook.
    fn transaction(
        &mut self,
        jobs: &mut [Box<dyn Job>],
        hooked: &mut Vec<Result<(), Error>>,
    ) -> Result<(), Error> {
        let durable = jobs
            .iter()
            .any(|job| job.durability() == Durability::Durable);
        if durable != self.durable {
            let level = if durable { "FULL" } else { "NORMAL" };
            self.connection
                .execute_batch(&format!("PRAGMA synchronous = {level}"))?;
            self.durable = durable;
        }
        let connection = &self.connection;
        execute(connection, "BEGIN IMMEDIATE")?;
        for job in jobs {
            // Its failure is for its own caller, unless it took the transaction with it.
            drop(step(connection, &mut self.scope, |unit| job.run(unit))?);
        }
        for hook in &mut self.hooks {
            let done = step(connection, &mut self.scope, |unit| hook.before_commit(unit))?;
            if let Err(error) = &done {
                tracing::warn!(%error, "cannot do what is due, trying again");
                self.paused_until = Some(self.scope.now + PAUSE);
            }
            hooked.push(done);
        }
        execute(connection, "COMMIT")
    }
}

/// Runs one step inside the transaction, undoing it alone if it fails. The outer error says that
/// the whole transaction is lost.
fn step(
    connection: &Connection,
    scope: &mut Scope,
    run: impl FnOnce(&mut Unit<'_>) -> Result<(), Error>,
) -> Result<Result<(), Error>, Error> {
    let (touched, callbacks) = (scope.touched.len(), scope.callbacks.len());
    execute(connection, "SAVEPOINT step")?;
    let mut unit = Unit::new(connection, scope);
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut unit))).unwrap_or(Err(Error::Panicked));
    if let Err(error) = &outcome {
        // A full disk, among others, makes SQLite roll back everything.
        if connection.is_autocommit() {
            return Err(error.clone());
        }
        execute(connection, "ROLLBACK TO step")?;
        scope.touched.truncate(touched);
        scope.callbacks.truncate(callbacks);
    }
    execute(connection, "RELEASE step")?;
    Ok(outcome)
}

fn execute(connection: &Connection, statement: &str) -> Result<(), Error> {
    connection.prepare_cached(statement)?.execute([])?;
    Ok(())
}
