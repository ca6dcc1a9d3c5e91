//! The way from any thread to the writer thread: operations, signals, and the order to stop.

use crate::error::Error;
use crate::hook::{CommitHook, Nudge};
use crate::unit::{Durability, Unit};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// An operation with its answer slot.
pub(crate) trait Job: Send {
    fn durability(&self) -> Durability;
    /// Runs the operation; a failure asks for its changes to be rolled back.
    fn run(&mut self, unit: &mut Unit<'_>) -> Result<(), Error>;
    /// Answers the caller; an error here means the whole group did not commit.
    fn answer(self: Box<Self>, group: Result<(), Error>);
}

pub(crate) struct Operation<T, F> {
    pub(crate) durability: Durability,
    pub(crate) action: Option<F>,
    pub(crate) result: Option<Result<T, Error>>,
    pub(crate) reply: oneshot::Sender<Result<T, Error>>,
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl<T, F> Job for Operation<T, F>
where
    F: FnOnce(&mut Unit<'_>) -> Result<T, Error> + Send,
    T: Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, unit: &mut Unit<'_>) -> Result<(), Error> {
        let Some(action) = self.action.take() else {
            return Ok(());
        };
        let result = action(unit);
        let outcome = result.as_ref().map(|_| ()).map_err(Error::clone);
        self.result = Some(result);
        outcome
    }

    fn answer(self: Box<Self>, group: Result<(), Error>) {
        let answer = match (self.result, group) {
            // Its own failure says more than that of the group.
            (Some(Err(own)), _) => Err(own),
            (_, Err(group)) => Err(group),
            (Some(result), Ok(())) => result,
            // Only a panic leaves no result behind.
            (None, Ok(())) => Err(Error::Panicked),
        };
        // The caller may have stopped waiting; the operation stands all the same.
        drop(self.reply.send(answer));
    }
}

/// A way to make the writer look around, for who must not keep the database open.
#[derive(Clone)]
pub struct Poker(pub(crate) Arc<Queue>);

impl Poker {
    pub fn poke(&self) {
        self.0.poke();
    }
}

impl std::fmt::Debug for Poker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poker")
    }
}

/// What the writer thread finds when it looks.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    pub(crate) hooks: Vec<Box<dyn CommitHook>>,
    pub(crate) nudges: Vec<Nudge>,
    pub(crate) closed: bool,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    hooks: Vec<Box<dyn CommitHook>>,
    nudges: Vec<Nudge>,
    poked: bool,
    closed: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty()
            && self.hooks.is_empty()
            && self.nudges.is_empty()
            && !self.poked
            && !self.closed
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.wake.notify_one();
    }

    /// Hands over an operation; gives it back if the writer has stopped.
    pub(crate) fn push(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        let mut state = self.lock();
        if state.closed {
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) fn hook(&self, hook: Box<dyn CommitHook>) {
        self.with(|state| state.hooks.push(hook));
    }

    pub(crate) fn nudge(&self, nudge: Nudge) {
        self.with(|state| {
            if !state.nudges.contains(&nudge) {
                state.nudges.push(nudge);
            }
        });
    }

    /// Makes the writer look around.
    pub(crate) fn poke(&self) {
        self.with(|state| state.poked = true);
    }

    /// No operation is taken from now on; those queued are still run.
    pub(crate) fn close(&self) {
        self.with(|state| state.closed = true);
    }

    /// Drops what is queued, for a writer that is gone: its callers learn that it is.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        drop(jobs);
    }

    /// Waits until there is something to do, or `timeout`, and takes up to `max` operations.
    pub(crate) fn take(&self, max: usize, timeout: Option<Duration>) -> Taken {
        let idle = |state: &mut State| state.is_idle();
        let state = self.lock();
        let mut state = match timeout {
            None => self
                .wake
                .wait_while(state, idle)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                self.wake
                    .wait_timeout_while(state, timeout, idle)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        state.poked = false;
        let count = state.jobs.len().min(max);
        Taken {
            jobs: state.jobs.drain(..count).collect(),
            hooks: std::mem::take(&mut state.hooks),
            nudges: std::mem::take(&mut state.nudges),
            closed: state.closed,
        }
    }
}
