//! One operation inside the transaction of its group.

use agentfleet_schema::Millis;
use rusqlite::Connection;

/// What a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Power loss: the commit waits for the disk.
    Durable,
    /// Death of every process, but not power loss.
    Process,
}

type Callback = Box<dyn FnOnce() + Send>;

/// What the operations of one transaction left to do around its commit.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) number: u64,
    pub(crate) now: Millis,
    pub(crate) touched: Vec<i64>,
    pub(crate) callbacks: Vec<Callback>,
}

/// One operation inside the transaction of its group: it commits with the others, or alone is
/// rolled back if it fails.
pub struct Unit<'t> {
    connection: &'t Connection,
    scope: &'t mut Scope,
}

impl std::fmt::Debug for Unit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit")
            .field("transaction", &self.scope.number)
            .finish_non_exhaustive()
    }
}

impl<'t> Unit<'t> {
    pub(crate) fn new(connection: &'t Connection, scope: &'t mut Scope) -> Self {
        Self { connection, scope }
    }

    /// The connection, inside the open transaction. Use `prepare_cached`; do not begin or commit.
    pub fn tx(&self) -> &'t Connection {
        self.connection
    }

    /// The instant of this transaction, the same for all its operations.
    pub fn now(&self) -> Millis {
        self.scope.now
    }

    /// The number of this transaction, unique in this process: what was read under it holds until
    /// its commit.
    pub fn transaction(&self) -> u64 {
        self.scope.number
    }

    /// The topics touched so far in this transaction.
    pub fn touched_topics(&self) -> &[i64] {
        &self.scope.touched
    }

    /// Says that something waiting for `topic` may now be ready, here and in other processes.
    pub fn touched(&mut self, topic: i64) {
        if !self.scope.touched.contains(&topic) {
            self.scope.touched.push(topic);
        }
    }

    /// Runs after the commit, and only if it succeeds. Must be quick: it holds up the writer.
    pub fn after_commit(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.scope.callbacks.push(Box::new(callback));
    }
}
