//! What can go wrong between a question and a reply, and whether asking again can help.
//!
//! Messages say what happened and what to do about it. They never hold a key, and never a prompt
//! beyond what a provider chose to repeat in its own error text (cut to [`DETAIL_LIMIT`]).

use crate::providers::Bound;
use agentfleet_schema::records::Usage;
use std::time::Duration;

/// Longest piece of a provider's own error text that is kept, in characters.
pub(crate) const DETAIL_LIMIT: usize = 300;

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again, not sooner than this.
    After(Duration),
    /// The same call will fail again until a person changes something.
    No,
}

/// Which limit a call ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Connect,
    FirstByte,
    BetweenChunks,
    WholeCall,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::FirstByte => "no response headers",
            Self::BetweenChunks => "no further data",
            Self::WholeCall => "no complete reply",
        }
    }
}

/// What kind of failure a call ran into; for counting, so there are few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No answer, or not the whole of it, in time.
    Timeout,
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
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RateLimited => "rate-limited",
            Self::Unavailable => "unavailable",
            Self::Unreachable => "unreachable",
            Self::NotAllowed => "not-allowed",
            Self::Refused => "refused",
            Self::Declined => "declined",
            Self::InvalidReply => "invalid-reply",
            Self::Misconfigured => "misconfigured",
        }
    }
}

/// A model that could not be chosen, or a call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("unknown model `{given}` (write `PROVIDER:MODEL`; available: {known})")]
    UnknownModelOption { given: String, known: String },
    #[error("`{provider}` needs a key: set `{variables}`")]
    MissingKey {
        provider: &'static str,
        variables: String,
    },
    #[error("base URL `{url}` cannot be used: {reason} (example: `{example}`)")]
    BadBaseUrl {
        url: String,
        reason: String,
        example: &'static str,
    },
    #[error("`{url}` lists no model: name one (`{example}`){hint}")]
    NoModelThere {
        url: String,
        example: String,
        hint: &'static str,
    },
    #[error(
        "`{url}` does not tell which models it has ({detail}): name the one to use (`{example}`), or \
         correct the address"
    )]
    NoListing {
        url: String,
        detail: String,
        example: String,
    },
    #[error("`{url}` does not answer: {detail}; start the server there, or correct the address")]
    Unreachable { url: String, detail: String },
    #[error("the HTTP client cannot be built: {detail}")]
    HttpClient { detail: String },

    #[error("{provider} refused the key in `{variable}` (HTTP {status}): set a valid one{detail}")]
    Unauthorized {
        provider: &'static str,
        variable: String,
        status: u16,
        detail: String,
    },
    #[error(
        "{provider} does not let this key use model `{model}` (HTTP 403): choose another model or \
         ask for access{detail}"
    )]
    Forbidden {
        provider: &'static str,
        model: String,
        detail: String,
    },
    #[error(
        "{provider} has no model `{model}` at `{url}` (HTTP 404): check the model name and the base \
         URL{detail}"
    )]
    NotFound {
        provider: &'static str,
        model: String,
        url: String,
        detail: String,
    },
    #[error(
        "{provider} says that this account may spend no more (HTTP {status}): add credit or raise \
         its limit{detail}"
    )]
    QuotaExhausted {
        provider: &'static str,
        status: u16,
        detail: String,
    },
    #[error("{provider} model `{model}` refused the request as invalid (HTTP {status}){detail}")]
    BadRequest {
        provider: &'static str,
        model: String,
        status: u16,
        detail: String,
    },
    #[error(
        "{provider} model `{model}` takes no tools; the text format is used from now on{detail}"
    )]
    ToolsRefused {
        provider: &'static str,
        model: String,
        detail: String,
    },
    #[error("{provider} limits the rate of requests{detail}")]
    RateLimited {
        provider: &'static str,
        after: Duration,
        detail: String,
    },
    #[error("{provider} cannot answer now ({status}){detail}")]
    Unavailable {
        provider: &'static str,
        status: String,
        after: Duration,
        detail: String,
    },
    #[error("{provider} at `{url}`: {} within {limit:?}", phase.as_str())]
    Timeout {
        provider: &'static str,
        url: String,
        phase: Phase,
        limit: Duration,
    },
    #[error("{provider} at `{url}` cannot be reached: {detail}")]
    Connection {
        provider: &'static str,
        url: String,
        detail: String,
    },
    #[error("{provider} broke off before the reply was complete: {detail}")]
    Interrupted {
        provider: &'static str,
        detail: String,
    },
    #[error("{provider} sent something that is not a reply: {detail}")]
    Malformed {
        provider: &'static str,
        detail: String,
    },
    #[error("{provider} model `{model}` sent an empty reply")]
    Empty {
        provider: &'static str,
        model: String,
        usage: Usage,
    },
    #[error(
        "{provider} model `{model}` came to its limit of tokens before it had written a word: raise \
         `max-tokens` of the operation's model profile"
    )]
    CutEmpty {
        provider: &'static str,
        model: String,
        usage: Usage,
    },
    #[error("{provider} sent more than {bound}, which is more than is read")]
    Oversized {
        provider: &'static str,
        bound: Bound,
    },
    #[error("{provider} model `{model}` declined to answer ({reason}): rephrase the question")]
    Declined {
        provider: &'static str,
        model: String,
        reason: String,
        usage: Usage,
    },
    #[error("{provider}: this call cannot be made: {detail}")]
    Unsupported {
        provider: &'static str,
        detail: String,
    },

    #[error("script `{path}` cannot be used: {reason}")]
    BadScript { path: String, reason: String },
    #[error(
        "no rule of the script answers operation `{operation}`, whose prompt begins: {beginning}"
    )]
    Unscripted {
        operation: &'static str,
        beginning: String,
    },
    #[error("{message}")]
    Scripted {
        message: String,
        retry_after: Option<Duration>,
    },
}

impl Error {
    /// Whether trying again can help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { after, .. } | Self::Unavailable { after, .. } => {
                Retry::After(*after)
            }
            Self::Timeout { .. } | Self::Connection { .. } | Self::Interrupted { .. } => {
                Retry::After(Duration::from_secs(2))
            }
            // Most often a proxy's error page, or a model that tripped: worth another try.
            Self::Malformed { .. } | Self::Empty { .. } => {
                Retry::After(Duration::from_secs(1))
            }
            // The next try is made without tools.
            Self::ToolsRefused { .. } => Retry::After(Duration::ZERO),
            Self::Scripted { retry_after, .. } => retry_after.map_or(Retry::No, Retry::After),
            Self::UnknownModelOption { .. }
            | Self::MissingKey { .. }
            | Self::BadBaseUrl { .. }
            | Self::NoModelThere { .. }
            | Self::NoListing { .. }
            | Self::Unreachable { .. }
            | Self::HttpClient { .. }
            | Self::Unauthorized { .. }
            | Self::Forbidden { .. }
            | Self::NotFound { .. }
            | Self::QuotaExhausted { .. }
            | Self::BadRequest { .. }
            // Whatever made it send so much will do so again, and each try may cost as much.
            | Self::Oversized { .. }
            // It would be cut again, and be paid for again.
            | Self::CutEmpty { .. }
            | Self::Declined { .. }
            | Self::Unsupported { .. }
            | Self::BadScript { .. }
            | Self::Unscripted { .. } => Retry::No,
        }
    }

    /// What the call came to all the same: a reply without a word is paid for as any other.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Empty { usage, .. }
            | Self::CutEmpty { usage, .. }
            | Self::Declined { usage, .. } => *usage,
            _ => Usage::default(),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Timeout { .. } => Kind::Timeout,
            Self::RateLimited { .. } => Kind::RateLimited,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::Connection { .. } | Self::Interrupted { .. } | Self::Unreachable { .. } => {
                Kind::Unreachable
            }
            Self::Unauthorized { .. } | Self::Forbidden { .. } | Self::QuotaExhausted { .. } => {
                Kind::NotAllowed
            }
            Self::NotFound { .. }
            | Self::BadRequest { .. }
            | Self::ToolsRefused { .. }
            | Self::Unsupported { .. } => Kind::Refused,
            Self::Declined { .. } => Kind::Declined,
            Self::Malformed { .. }
            | Self::Empty { .. }
            | Self::CutEmpty { .. }
            | Self::Oversized { .. } => Kind::InvalidReply,
            // A script plays a provider that fails: one that may be asked again cannot answer now.
            Self::Scripted { retry_after, .. } => match retry_after {
                Some(_) => Kind::Unavailable,
                None => Kind::Refused,
            },
            Self::UnknownModelOption { .. }
            | Self::MissingKey { .. }
            | Self::BadBaseUrl { .. }
            | Self::NoModelThere { .. }
            | Self::NoListing { .. }
            | Self::HttpClient { .. }
            | Self::BadScript { .. }
            | Self::Unscripted { .. } => Kind::Misconfigured,
        }
    }
}
