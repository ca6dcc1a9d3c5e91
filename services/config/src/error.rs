//! What can go wrong with the config, in words that say what would be right.

use std::fmt;
use std::time::Duration;

/// A failure of the config store, of seeding, or of rendering a prompt.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Never empty.
    #[error("{}", listed(.0))]
    Invalid(Vec<Problem>),
    #[error("config version {version} does not exist: the newest is {newest}")]
    UnknownVersion { version: u64, newest: u64 },
    #[error("seed file `{path}`: {reason}")]
    SeedFile { path: String, reason: String },
    #[error(
        "prompt `{prompt}`, {part}: {names} {} not given (given: {given})",
        be(names)
    )]
    MissingVariable {
        prompt: String,
        part: &'static str,
        names: String,
        given: String,
    },
    #[error("prompt `{prompt}`, {part}, line {line}: {reason}")]
    Template {
        prompt: String,
        part: &'static str,
        line: usize,
        reason: String,
    },
    #[error("prompt `{prompt}`, {part}: {what} is more than the most allowed, {most}")]
    TooMuch {
        prompt: String,
        part: &'static str,
        what: &'static str,
        most: u64,
    },
    #[error("config version {version} is damaged ({reason}): restore a backup")]
    Damaged { version: u64, reason: String },
    #[error(transparent)]
    Documents(#[from] agentfleet_documents::Error),
}

impl Error {
    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        match self {
            Self::Documents(error) => error.retry(),
            Self::Invalid(_)
            | Self::UnknownVersion { .. }
            | Self::SeedFile { .. }
            | Self::MissingVariable { .. }
            | Self::Template { .. }
            | Self::TooMuch { .. }
            | Self::Damaged { .. } => None,
        }
    }
}

/// What is wrong with one item.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    pub item_type: String,
    pub key: String,
    /// JSON Pointer to the field; empty for the item as a whole.
    pub field: String,
    pub reason: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` item `{}`", self.item_type, self.key)?;
        if !self.field.is_empty() {
            write!(f, ", field `{}`", self.field)?;
        }
        write!(f, ": {}", self.reason)
    }
}

fn listed(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

fn be(names: &str) -> &'static str {
    if names.contains(", ") { "are" } else { "is" }
}
