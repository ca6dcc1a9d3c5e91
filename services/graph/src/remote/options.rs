//! Where the server is, and how to speak to it.

use super::fault::RemoteFault;
use reqwest::Url;
use std::net::IpAddr;
use std::time::Duration;

/// Who we are to the server. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    Basic { user: String, password: String },
    Bearer(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Basic { .. } => "Basic(redacted)",
            Self::Bearer(_) => "Bearer(redacted)",
        })
    }
}

/// How to reach a SPARQL server.
#[derive(Clone)]
pub struct RemoteOptions {
    /// The dataset, for example `http://host:3030/ds`. It may hold `user:password@`.
    pub url: String,
    /// Where queries go; found by trying `{url}/query`, `{url}/sparql` and `{url}` unless given.
    pub query_url: Option<String>,
    /// Where updates go; found by trying `{url}/update`, `{url}/statements` and the place of the
    /// queries unless given.
    pub update_url: Option<String>,
    /// Where data is posted to Jena, which takes it faster than as an update; `{url}/data` unless
    /// given.
    pub data_url: Option<String>,
    pub credentials: Option<Credentials>,
    pub connect_timeout: Duration,
    /// The longest an update may take. It is tried again after that, by whoever waits for it.
    pub update_timeout: Duration,
    /// How often a request that may be repeated is tried, with growing pauses of 50 ms and more.
    pub attempts: u32,
    /// The most bytes of one answer.
    pub max_answer_bytes: u64,
}

impl RemoteOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            query_url: None,
            update_url: None,
            data_url: None,
            credentials: None,
            connect_timeout: Duration::from_secs(5),
            update_timeout: Duration::from_secs(60),
            attempts: 4,
            max_answer_bytes: 1 << 30,
        }
    }

    /// Whether it may be the graph of an `up` on this machine: that has no path, as the datasets of SPARQL
    /// servers have.
    pub fn is_of_up(&self) -> bool {
        self.is_local() && Url::parse(&self.url).is_ok_and(|url| url.path() == "/")
    }

    /// Whether the server is on this machine.
    pub fn is_local(&self) -> bool {
        let Ok(url) = Url::parse(&self.url) else {
            return false;
        };
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl std::fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown =
            |url: &String| parse(url).map_or_else(|_| "invalid".to_owned(), |it| shown(&it));
        f.debug_struct("RemoteOptions")
            .field("url", &shown(&self.url))
            .field("query_url", &self.query_url.as_ref().map(shown))
            .field("update_url", &self.update_url.as_ref().map(shown))
            .field("data_url", &self.data_url.as_ref().map(shown))
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

/// An address as it may be shown.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for addresses that have no place for either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

/// An address that a request can be sent to.
pub(super) fn parse(text: &str) -> Result<Url, RemoteFault> {
    let fault = |reason: String| RemoteFault::Address {
        // Whatever stands before an `@` may be a password.
        url: text.rsplit('@').next().unwrap_or_default().to_owned(),
        reason,
    };
    let url = Url::parse(text).map_err(|error| fault(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(fault(
            "it must begin with `http://` or `https://`".to_owned(),
        ));
    }
    Ok(url)
}

/// Takes `user:password@` out of an address.
pub(super) fn take_credentials(url: &mut Url) -> Option<Credentials> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| super::skolem::decoded(text).unwrap_or_else(|| text.to_owned());
    let taken = Credentials::Basic {
        user: decoded(url.username()),
        password: decoded(url.password().unwrap_or_default()),
    };
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Some(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nothing_secret_is_ever_shown() {
        let mut options = RemoteOptions::new("http://fleet:hush%40me@localhost:3030/ds?token=hush");
        options.query_url = Some("http://fleet:hush@localhost:3030/q".to_owned());
        options.credentials = Some(Credentials::Bearer("hush".to_owned()));
        let text = format!("{options:?}");
        assert!(text.contains("localhost:3030/ds"), "{text}");
        assert!(!text.contains("hush"), "{text}");
        let basic = Credentials::Basic {
            user: "fleet".to_owned(),
            password: "hush".to_owned(),
        };
        assert!(!format!("{basic:?}").contains("hush"));
        for bad in ["fleet:hush@nowhere", "ftp://fleet:hush@host/ds", "http://"] {
            let text = parse(bad).unwrap_err().to_string();
            assert!(!text.contains("hush"), "{text}");
        }
    }

    #[test]
    fn an_address_may_hold_the_credentials() {
        let mut url = parse("http://fleet:p%40ss%2Fw@localhost:3030/ds").unwrap();
        let expected = Credentials::Basic {
            user: "fleet".to_owned(),
            password: "p@ss/w".to_owned(),
        };
        assert_eq!(take_credentials(&mut url), Some(expected));
        assert_eq!(url.as_str(), "http://localhost:3030/ds");
        assert_eq!(take_credentials(&mut url), None);
    }
}
