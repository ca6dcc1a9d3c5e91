//! Checking afterwards that what is stored of a run is what was committed: pure functions over
//! records, documents, triples and config. Whoever reads those from the stores is elsewhere.
//!
//! What each part can find: `chain` a changed, missing or added record; `joins` a fan-out, verdict or
//! wait that is not what the records say; `calls` a call or an account that is not; `triples` a
//! statement that the records do not make, or one that the graph lost; `choices` a choice that was not
//! open at the config of the run.

mod calls;
mod chain;
mod choices;
mod joins;
mod triples;

pub use calls::{StoredCalls, account, calls};
pub use chain::{Link, accepted, chain, identity};
pub use choices::choices;
pub use joins::{fan_out, pause, verdict};
pub use triples::{canonical, compare};

use serde::Serialize;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// The head that was kept elsewhere.
    Head,
    Record,
    FanOut,
    Verdict,
    Wait,
    Document,
    Triple,
    Choice,
    Config,
}

impl About {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Record => "record",
            Self::FanOut => "fan-out",
            Self::Verdict => "verdict",
            Self::Wait => "wait",
            Self::Document => "document",
            Self::Triple => "triple",
            Self::Choice => "choice",
            Self::Config => "config",
        }
    }
}

/// Something that is not as it was committed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Finding {
    pub about: About,
    /// The key of the record or document, the triple, or where the choice stands.
    pub what: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Finding {
    pub fn new(about: About, what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            about,
            what: what.into(),
            problem: problem.into(),
        }
    }
}
