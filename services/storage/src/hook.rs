//! What a crate may do around every commit, on the writer thread: the broker hands out messages in
//! the very transaction that published them.

use crate::error::Error;
use crate::unit::Unit;
use agentfleet_schema::Millis;
use rusqlite::Connection;

/// Why a hook is asked to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nudge {
    /// Another process committed something.
    Committed,
    /// Another process died.
    Died,
}

/// Work around every commit. All methods run on the writer thread, never two at a time.
pub trait CommitHook: Send {
    /// Another process did something.
    fn nudged(&mut self, nudge: Nudge);

    /// Whether there is work for a transaction now, though no operation asks for one. Asked outside
    /// of transactions, whenever the writer was woken; may read, must not write.
    fn due(&mut self, connection: &Connection, now: Millis) -> Result<bool, Error>;

    /// Runs in every transaction, after its operations. A failure rolls back what the hook did, and
    /// nothing else.
    fn before_commit(&mut self, unit: &mut Unit<'_>) -> Result<(), Error>;

    /// Follows every transaction: whether what [`CommitHook::before_commit`] did was committed. It
    /// may fail without that having run.
    fn after_commit(&mut self, outcome: Result<(), &Error>);

    /// The instant at which there may be something due again.
    fn next_wake(&self) -> Option<Millis>;
}
