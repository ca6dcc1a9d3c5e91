//! What can go wrong between a question and a reply, and whether asking again can help.
//!
//! Messages say what happened and what to do about it. They never hold a key, and never a prompt
//! beyond what a provider chose to repeat in its own error text (cut to [`DETAIL_LIMIT`]).

use crate::Tried;
use agentfleet_schema::records::Usage;
use std::time::Duration;

/// Longest piece of a provider's own error text that is kept, in characters.
pub(crate) const DETAIL_LIMIT: usize = 300;

/// What kind of failure a call ran into; for counting, so there are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No answer, or not the whole of it, in time.
    Timeout,
    /// No connection in time: nothing was asked yet. Counted with the others.
    ConnectTimeout,
    /// Too many calls for the provider's liking.
    RateLimited,
    /// The provider is overloaded or broken.
    Unavailable,
    /// No connection, or one that broke off.
    Unreachable,
    /// A key, an account or its credit.
    NotAllowed,
    /// The provider does not take the request as it is: a model's name, parameters, tools.
    Refused,
    /// The model will not answer this.
    Declined,
    /// What came is no reply.
    InvalidReply,
    /// The model was never set up rightly.
    Misconfigured,
    /// There is no such model option, so it was not even set up.
    UnknownOption,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout | Self::ConnectTimeout => "timeout",
            Self::RateLimited => "rate-limited",
            Self::Unavailable => "unavailable",
            Self::Unreachable => "unreachable",
            Self::NotAllowed => "not-allowed",
            Self::Refused => "refused",
            Self::Declined => "declined",
            Self::InvalidReply => "invalid-reply",
            Self::Misconfigured | Self::UnknownOption => "misconfigured",
        }
    }
}

/// A model that could not be chosen, or a call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
    retry: Option<Duration>,
    usage: Usage,
    tried: Vec<Tried>,
    /// It is a reply without a word, which nothing had cut.
    silent: bool,
}

impl Error {
    /// A failure that comes again until a person changes something.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry: None,
            usage: Usage::default(),
            tried: Vec::new(),
            silent: false,
        }
    }

    /// Asking again can help, not sooner than this.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry = Some(pause);
        self
    }

    #[must_use]
    pub(crate) fn costing(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// What came is no reply. Most often a proxy's error page, or a model that tripped: worth another try.
    pub(crate) fn malformed(provider: &str, detail: &str) -> Self {
        let message = format!("{provider} sent something that is not a reply: {detail}");
        Self::new(Kind::InvalidReply, message).after(Duration::from_secs(1))
    }

    /// A reply without a word. One that was cut would be cut again, and be paid for again.
    pub(crate) fn empty(provider: &str, model: &str, cut: bool, usage: Usage) -> Self {
        let error = if cut {
            let message = format!(
                "{provider} model `{model}` came to its limit of tokens before it had written a word: \
                 raise `max-tokens` of the operation's model profile"
            );
            Self::new(Kind::InvalidReply, message)
        } else {
            let message = format!("{provider} model `{model}` sent an empty reply");
            Self {
                silent: true,
                ..Self::new(Kind::InvalidReply, message).after(Duration::from_secs(1))
            }
        };
        error.costing(usage)
    }

    /// How long to wait before trying again; `None` if trying again cannot help.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// After these models, the last of which is this very failure.
    #[must_use]
    pub(crate) fn after_all(mut self, tried: Vec<Tried>) -> Self {
        self.tried = tried;
        self
    }

    /// Models that were to answer, and did not; empty where there was one only.
    pub fn tried(&self) -> &[Tried] {
        &self.tried
    }

    /// Whether the model replied, without a word. In the same words it may be asked in vain.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// What the call came to all the same: a reply without a word is paid for as any other.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }
}
