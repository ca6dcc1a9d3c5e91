//! What a person can set about a provider, and the HTTP client all of them share.

use super::{ApiKey, ProviderKind};
use crate::error::{Error, Kind};
use std::time::Duration;

/// How long each part of a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// Until the response headers.
    pub first_byte: Duration,
    /// Between two pieces of the response, keep-alives included. Also covers a model that thinks
    /// long before it speaks.
    pub between_chunks: Duration,
    /// The whole call, where the request itself sets no limit.
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(2),
            between_chunks: Duration::from_mins(2),
            whole: Duration::from_mins(10),
        }
    }
}

/// Which model to call and how.
#[derive(Clone, Debug)]
pub struct ProviderOptions {
    pub kind: ProviderKind,
    pub model: String,
    /// Where it is served; `None` is the provider's own address.
    pub base_url: Option<String>,
    /// `None` sends no key, as servers on one's own machine want it.
    pub key: Option<ApiKey>,
    /// Whether tools are offered natively.
    pub native_tools: bool,
    /// `false` for servers that cannot stream; the reply then comes in one piece.
    pub streaming: bool,
    pub timeouts: Timeouts,
}

impl ProviderOptions {
    pub fn new(kind: ProviderKind, model: impl Into<String>) -> Self {
        Self {
            kind,
            model: model.into(),
            base_url: None,
            key: None,
            native_tools: true,
            streaming: true,
            timeouts: Timeouts::default(),
        }
    }
}

/// The HTTP client for model calls: build it once and share it.
///
/// Redirects are not followed: a key would travel with them. Fails, instead of panicking inside the
/// HTTP library, if the process has not installed its TLS provider.
pub fn http_client(timeouts: &Timeouts) -> Result<reqwest::Client, Error> {
    let refuse = |detail: &str| {
        let message = format!("the HTTP client cannot be built: {detail}");
        Error::new(Kind::Misconfigured, message)
    };
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        return Err(refuse("no TLS provider is installed in this process"));
    }
    reqwest::Client::builder()
        .connect_timeout(timeouts.connect)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("agentfleet/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| refuse(&error.to_string()))
}
