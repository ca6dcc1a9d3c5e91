//! The calls that shipped code makes of its seams, as the scheduler and the log see them.

use agentfleet_broker::Outgoing;
use agentfleet_schema::topics::property;
use std::fmt;

/// What kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Create,
    Read,
    List,
    Publish,
    Ack,
    Nack,
    DeadLetter,
    /// Record, documents, publications, marker and acknowledgement in one transaction.
    Commit,
    Insert,
    Query,
    Erase,
    Config,
    Chat,
    Call,
}

/// One call of a seam.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub verb: Verb,
    /// Keys, messages, prompts: whatever it is about.
    pub what: String,
}

impl Effect {
    pub fn new(verb: Verb, what: impl Into<String>) -> Self {
        Self {
            verb,
            what: what.into(),
        }
    }

    pub fn publish(messages: &[Outgoing]) -> Self {
        let mut what = String::new();
        for message in messages {
            let property = |name: &str| message.properties.get(name).map_or("", String::as_str);
            if !what.is_empty() {
                what.push_str(", ");
            }
            what.push_str(message.topic.as_str());
            for part in [property::SESSION, property::STEP, property::KIND] {
                let text = property(part);
                if !text.is_empty() {
                    what.push(' ');
                    what.push_str(text);
                }
            }
        }
        Self::new(Verb::Publish, what)
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.verb, self.what)
    }
}

/// Where a task stands: just before a call takes effect, or just after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub when: When,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    /// A call that lasts, while it lasts.
    During,
    After,
}

impl Point {
    /// Whether this is the point before a call of `verb` about something that contains `what`.
    pub fn is(&self, when: When, verb: Verb, what: &str) -> bool {
        self.when == when && self.effect.verb == verb && self.effect.what.contains(what)
    }
}

/// What can go wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// It had no effect, and the caller is told that it failed.
    Refused,
    /// It took effect, and the caller is told that it failed.
    ReplyLost,
    /// Nothing was stored, and the caller is told that the key exists.
    FalseExists,
    /// It was stored, and the caller is told that the key exists: a client's own retry.
    OwnExists,
    /// It took effect twice.
    Doubled,
    /// It failed, and will fail again.
    Permanent,
    /// The process dies at this call.
    Death,
}
