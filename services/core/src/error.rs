//! Why a message cannot become a turn.

use agentfleet_schema::ErrorBody;

/// A request that this worker cannot work as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Nobody can work it: the caller is told.
    #[error("{}", .0.message)]
    Invalid(ErrorBody),
    /// A newer worker may know it: it is put back for a while.
    #[error("pattern `{0}` is configured but this worker does not implement it")]
    NotImplementedHere(String),
}

impl Rejection {
    pub fn invalid(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Invalid(body(code, message, hint))
    }
}

/// Builds an error as callers see it.
pub fn body(code: &str, message: impl Into<String>, hint: impl Into<String>) -> ErrorBody {
    let hint = hint.into();
    ErrorBody {
        code: code.to_owned(),
        message: message.into(),
        hint: (!hint.is_empty()).then_some(hint),
    }
}
