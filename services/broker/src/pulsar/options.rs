//! What an operator says about the Pulsar cluster, and what is checked of it before connecting.

use crate::{Error, FleetSecret};
use agentfleet_schema::topics::{AGENT_RESPONSE, Topic};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How to reach a Pulsar cluster, and how to behave on it.
#[derive(Clone, Debug)]
pub struct PulsarOptions {
    /// `pulsar://host:6650` or `pulsar+ssl://host:6651`; several hosts by comma.
    pub url: String,
    /// The admin API, for example `http://host:8080`. Without it the broker cannot set how long
    /// topics are retained.
    pub admin_url: Option<String>,
    pub tenant: String,
    pub namespace: String,
    /// Names of topics that differ from ours: short ones, or full ones with their domain.
    pub names: BTreeMap<Topic, String>,
    pub token: Option<Token>,
    /// What requests are signed with that are published through it.
    pub secret: Option<FleetSecret>,
    /// A file of PEM certificates to trust, beside the public ones.
    pub certificates: Option<PathBuf>,
    /// How long the broker may take to answer.
    pub operation_timeout: Duration,
    /// The first pause before trying again; it doubles, up to ten times as long.
    pub retry_delay: Duration,
    /// How long a publish is tried before it fails.
    pub publish_timeout: Duration,
    /// How long a consumer that may receive stays silent before its backlog is asked for.
    pub silence: Duration,
    /// Topics that are read by key, and how long their messages are kept.
    pub retain: BTreeMap<Topic, Duration>,
    /// Bytes of retained messages to keep in memory, for each topic.
    pub retained_memory: usize,
    /// Bytes that may be on their way to the broker at once; further publishes wait.
    pub in_flight: usize,
}

impl PulsarOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            admin_url: None,
            tenant: "public".to_owned(),
            namespace: "default".to_owned(),
            names: BTreeMap::new(),
            token: None,
            secret: None,
            certificates: None,
            operation_timeout: Duration::from_secs(3),
            retry_delay: Duration::from_millis(200),
            publish_timeout: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            retain: BTreeMap::from([(AGENT_RESPONSE, Duration::from_hours(7 * 24))]),
            retained_memory: 64 << 20,
            in_flight: 64 << 20,
        }
    }
}

/// A token for Pulsar's token authentication; never shown.
#[derive(Clone)]
pub enum Token {
    Text(String),
    /// Read anew for every connection, so that it can be replaced while the fleet runs.
    File(PathBuf),
}

impl Token {
    pub(super) fn read(&self) -> Result<String, Error> {
        match self {
            Self::Text(text) => Ok(text.trim().to_owned()),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.trim().to_owned()),
                Err(error) => Err(Error::File {
                    purpose: "the token",
                    path: path.display().to_string(),
                    reason: error.to_string(),
                }),
            },
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// A host and port of the cluster, and whether to speak TLS with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl Endpoint {
    /// All endpoints that a service URL names.
    pub(super) fn all(url: &str) -> Result<Vec<Self>, Error> {
        let wrong = || Error::ServiceUrl(url.to_owned());
        let (scheme, hosts) = url.trim().split_once("://").ok_or_else(wrong)?;
        let tls = match scheme {
            "pulsar" => false,
            "pulsar+ssl" => true,
            _ => return Err(wrong()),
        };
        let hosts = hosts.trim_end_matches('/').split(',');
        hosts
            .map(|host| Self::one(host.trim(), tls).ok_or_else(wrong))
            .collect()
    }

    fn one(text: &str, tls: bool) -> Option<Self> {
        let standard = if tls { 6651 } else { 6650 };
        // The port follows the last colon, unless that colon is part of an IPv6 address.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (text, standard),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let valid = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        (!host.is_empty() && host.chars().all(valid)).then(|| Self {
            host: host.to_owned(),
            port,
            tls,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "pulsar+ssl" } else { "pulsar" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_service_url_names_one_host_or_several() {
        let table = [
            ("pulsar://one", "pulsar://one:6650"),
            ("pulsar://one:7000/", "pulsar://one:7000"),
            ("pulsar+ssl://one", "pulsar+ssl://one:6651"),
            (
                "pulsar://a:1,b, c:3",
                "pulsar://a:1 pulsar://b:6650 pulsar://c:3",
            ),
            ("pulsar://[::1]:7000", "pulsar://[::1]:7000"),
            ("pulsar://[::1]", "pulsar://[::1]:6650"),
        ];
        for (url, expected) in table {
            let endpoints = Endpoint::all(url).unwrap();
            let shown: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(" "), expected, "{url}");
        }
        for wrong in [
            "",
            "one:6650",
            "http://one:8080",
            "pulsar://",
            "pulsar://one:port",
            "pulsar://one,,two",
            "pulsar://user@one",
        ] {
            let error = Endpoint::all(wrong).unwrap_err();
            assert!(error.to_string().contains("pulsar://host:6650"), "{error}");
        }
    }

    #[test]
    fn a_token_is_never_shown() {
        let mut options = PulsarOptions::new("pulsar://one");
        options.token = Some(Token::Text("secret-token".to_owned()));
        assert!(!format!("{options:?}").contains("secret-token"));
    }
}
