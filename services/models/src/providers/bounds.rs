//! How much a server may send. Nothing that a server says is kept, or read, beyond these bounds, so that
//! neither a hostile server nor a broken one can fill memory.

use std::fmt;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What is read of the body of an error; the rest is dropped unread.
pub(crate) const ERROR_BODY: usize = 64 * KIB;
/// Bytes of a name that a server gives: a model, a tool, the id of a call, a reason to stop.
pub(super) const NAME: usize = 256;
/// The highest count of tokens that is believed, so that sums of them stay within what can be reckoned with.
pub(super) const TOKENS: u64 = 100_000_000;

/// A bound of what one call may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Bytes of a call's response in all: text, thinking, comments, usage.
    Call,
    /// Bytes of one line, and of one event of a stream.
    Line,
    /// Bytes of the reply's text.
    Text,
    /// Bytes of the arguments of all tool calls of a reply.
    Arguments,
    ToolCalls,
    /// Values in one piece of JSON: a small one in bytes can be a large one in memory.
    Values,
    /// Bytes of a list of models, or of the description of one.
    Listing,
}

impl Bound {
    pub const fn limit(self) -> usize {
        match self {
            Self::Call => 32 * MIB,
            Self::Line => 4 * MIB,
            Self::Text => 8 * MIB,
            Self::Arguments => MIB,
            Self::ToolCalls => 128,
            Self::Values => 200_000,
            Self::Listing => 4 * MIB,
        }
    }

    /// Whether `size` is within the bound.
    pub(super) const fn holds(self, size: usize) -> bool {
        size <= self.limit()
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.limit() / MIB;
        match self {
            Self::Call => write!(f, "{mib} MiB in one call"),
            Self::Line => write!(f, "{mib} MiB in one line or event"),
            Self::Text => write!(f, "{mib} MiB of text in one reply"),
            Self::Arguments => write!(f, "{mib} MiB of arguments in one reply"),
            Self::ToolCalls => write!(f, "{} tool calls in one reply", self.limit()),
            Self::Values => write!(f, "{} values in one piece of JSON", self.limit()),
            Self::Listing => write!(f, "{mib} MiB about its models"),
        }
    }
}

/// A name as a server gives it, no longer than [`NAME`].
pub(super) fn name(told: &str) -> &str {
    let mut end = told.len().min(NAME);
    while !told.is_char_boundary(end) {
        end -= 1;
    }
    &told[..end]
}
