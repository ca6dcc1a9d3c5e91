//! The patterns this binary implements, one file each.

mod react;
mod supervisor;

pub use react::React;
pub(crate) use react::iterations;
pub use supervisor::{Decompose, Synthesise};

/// A pattern this binary can run. What is configured beyond these is never offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implemented {
    React,
    Supervisor,
}

impl Implemented {
    pub const ALL: [Self; 2] = [Self::React, Self::Supervisor];

    /// The name in requests and config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::React => "react",
            Self::Supervisor => "supervisor",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|pattern| pattern.as_str() == name)
    }

    /// Whether it needs subagents, and so room below it.
    pub fn fans_out(self) -> bool {
        match self {
            Self::React => false,
            Self::Supervisor => true,
        }
    }
}
