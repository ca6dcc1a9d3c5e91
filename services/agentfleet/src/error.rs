//! How a command fails: what people read, and the exit code programs read.

use agentfleet_console::text::line;
use agentfleet_schema::redacted;
use std::fmt;

/// Exit codes; `agentfleet --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The run ended in an error.
    Failed = 1,
    /// The command line or the settings were wrong.
    Usage = 2,
    /// What was named does not exist.
    NotFound = 3,
    /// A store, a model or a server could not be reached or used.
    Unavailable = 4,
    /// Left before the run ended; it goes on, or waits for a fleet.
    Left = 5,
    /// A message was worked for longer than the wall limit: start the process again.
    Hung = 6,
    /// What is stored of a run is not what was committed, or a replay of it comes out otherwise.
    Differs = 7,
}

/// A failed command.
#[derive(Clone, Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// People have been told already; programs read the exit code.
    pub fn told(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// A name that is none of those known.
    pub(crate) fn unknown<'a>(
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        let known: Vec<String> = known.into_iter().map(|one| format!("`{one}`")).collect();
        let known = known.join(", ");
        Self::usage(format!("unknown {what} `{name}` (available: {known})"))
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line each, whatever is quoted in it.
        write!(f, "{}", line(&redacted(&self.message)))?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {}", line(&redacted(hint)))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

macro_rules! unavailable {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(Exit::Unavailable, error.to_string())
            }
        }
    )+};
}

unavailable!(
    agentfleet_storage::Error,
    agentfleet_broker::Error,
    agentfleet_documents::Error,
    agentfleet_examples::Error,
    agentfleet_graph::Error,
    agentfleet_library::Error,
    agentfleet_tools::Error,
    agentfleet_aggregator::Error,
    std::io::Error,
);

impl From<agentfleet_runtime::Error> for Failure {
    fn from(error: agentfleet_runtime::Error) -> Self {
        match error {
            agentfleet_runtime::Error::Missing { .. } => Self::not_found(error.to_string())
                .hint("records are never changed or taken away one by one: restore a backup"),
            _ => Self::new(Exit::Unavailable, error.to_string()),
        }
    }
}

impl From<agentfleet_gateway::Problem> for Failure {
    fn from(problem: agentfleet_gateway::Problem) -> Self {
        use agentfleet_gateway::Code;
        let exit = match problem.code {
            Code::Unavailable | Code::Internal => Exit::Unavailable,
            Code::SessionErased => Exit::NotFound,
            _ => Exit::Usage,
        };
        // Fields of a request are flags here.
        let message = match problem.message.strip_prefix("`$.") {
            Some(field) => {
                // The one flag that is not called as its field is.
                let field = field.replacen("conversation_id", "conversation", 1);
                format!("`--{}", field.replacen('_', "-", 1))
            }
            None => problem.message,
        };
        Self {
            hint: problem.hint,
            ..Self::new(exit, message)
        }
    }
}

impl From<agentfleet_orchestrator::replay::ReplayError> for Failure {
    fn from(error: agentfleet_orchestrator::replay::ReplayError) -> Self {
        use agentfleet_orchestrator::replay::ReplayError;
        let (exit, hint) = match error {
            ReplayError::Unknown(ref session) => (
                Exit::NotFound,
                Some(crate::commands::records::how_to_name(session.as_str())),
            ),
            ReplayError::NotBegun(_) => (Exit::NotFound, Some("wait until a fleet has begun it")),
            ReplayError::Closed(_) => (
                Exit::NotFound,
                Some("`agentfleet ask` asks its question again"),
            ),
            ReplayError::NoStep { .. } | ReplayError::Erased(_) => (Exit::NotFound, None),
            ReplayError::Records(error) => return error.into(),
            ReplayError::Config { .. } => (Exit::Unavailable, None),
        };
        Self {
            hint: hint.map(str::to_owned),
            ..Self::new(exit, error.to_string())
        }
    }
}

impl From<agentfleet_models::Error> for Failure {
    fn from(error: agentfleet_models::Error) -> Self {
        let exit = match error.kind() {
            agentfleet_models::Kind::UnknownOption => Exit::Usage,
            _ => Exit::Unavailable,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<agentfleet_config::Error> for Failure {
    fn from(error: agentfleet_config::Error) -> Self {
        Self::new(Exit::Usage, error.to_string())
    }
}
