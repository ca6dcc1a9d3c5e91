//! An issuer: where its keys come from, how long they count, and how often they are asked for.

use crate::claims::{self, Bearer, ClaimNames};
use crate::key_set::Key;
use crate::token::Token;
use crate::{Error, Refused};
use agentfleet_schema::names::is_loopback;
use agentfleet_schema::{Millis, millis};
use reqwest::{Client, Url};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};

/// How long the issuer may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest answer of an issuer, in bytes.
const MAX_BODY: usize = 1024 * 1024;
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Which tokens count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// As tokens have it in `iss`.
    pub issuer: String,
    /// What `aud` must name one of.
    pub audiences: Vec<String>,
    /// Where the keys are, if the issuer's own description does not say it.
    pub keys: Option<String>,
    /// PEM file of the authorities that the issuer's certificate may come from.
    pub certificates: Option<PathBuf>,
    pub claims: ClaimNames,
    pub waits: Waits,
}

/// How long keys count, and how often they are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Keys that are older are asked for again.
    pub fresh: Duration,
    /// Where the issuer is away, known keys count so long after they were read.
    pub kept: Duration,
    /// The issuer is asked at most once in this time, however many tokens name a key that nobody knows.
    pub again: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            fresh: Duration::from_secs(300),
            kept: Duration::from_secs(24 * 3_600),
            again: Duration::from_secs(10),
        }
    }
}

/// Checks tokens of one issuer.
#[derive(Debug)]
pub struct Issuer {
    options: Options,
    http: Client,
    known: RwLock<Option<Known>>,
    asked: Mutex<Asked>,
}

/// Keys, and when they were read.
#[derive(Clone, Debug)]
struct Known {
    keys: Arc<[Key]>,
    at: Instant,
}

/// When the issuer was last asked, and what went wrong.
#[derive(Debug, Default)]
struct Asked {
    at: Option<Instant>,
    error: String,
}

impl Issuer {
    pub fn new(options: Options) -> Result<Self, Error> {
        let url = address(&options.issuer)?;
        if let Some(keys) = &options.keys {
            address(keys)?;
        }
        // One TLS provider for the whole process; a second one is refused, and that is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("agentfleet/", env!("CARGO_PKG_VERSION")));
        if is_here(&url) {
            // No proxy can reach it.
            http = http.no_proxy();
        }
        if let Some(path) = &options.certificates {
            let unreadable = |reason: String| Error::Certificates {
                path: path.display().to_string(),
                reason,
            };
            let pem = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
            let found = reqwest::Certificate::from_pem_bundle(&pem);
            let found = found.map_err(|error| unreadable(error.to_string()))?;
            if found.is_empty() {
                return Err(unreadable("it holds no certificate".to_owned()));
            }
            for certificate in found {
                http = http.add_root_certificate(certificate);
            }
        }
        let http = http.build().map_err(|error| Error::Client(chain(&error)))?;
        Ok(Self {
            options,
            http,
            known: RwLock::default(),
            asked: Mutex::default(),
        })
    }

    /// Whose token it is, if it counts at an instant.
    pub async fn check(&self, token: &str, at: Millis) -> Result<Bearer, Refused> {
        self.check_late(token, at, Duration::ZERO).await
    }

    /// The same of a token that may have waited for so long since it was sent.
    pub async fn check_late(
        &self,
        token: &str,
        at: Millis,
        late: Duration,
    ) -> Result<Bearer, Refused> {
        let token = Token::read(token)?;
        let wants = |key: &Key| key.fits(token.algorithm, token.key.as_deref());
        let claims = match token.claims(&self.keys(wants).await?) {
            Ok(claims) => claims,
            // Another key may have taken the place of the one that is known.
            Err(_) => {
                self.ask(self.asked.lock().await).await;
                let known = self.known(wants);
                token.claims(&known.map(|(_, keys)| keys).unwrap_or_default())?
            }
        };
        let expected = (self.options.issuer.as_str(), &*self.options.audiences);
        claims::read(&claims, &self.options.claims, expected, (at, millis(late)))
    }

    /// Says whether the keys can be read, and how many there are.
    pub async fn look(&self) -> Result<usize, Refused> {
        Ok(self.keys(|_| true).await?.len())
    }

    /// Those of the issuer's keys that are wanted. Who wants one that is not known waits until the issuer was asked.
    async fn keys(&self, wants: impl Fn(&Key) -> bool + Copy) -> Result<Vec<Key>, Refused> {
        let Waits { fresh, kept, .. } = self.options.waits;
        let mut error = String::new();
        match self.known(wants) {
            Some((age, keys)) if age < fresh && !keys.is_empty() => return Ok(keys),
            Some((age, keys)) if age < kept && !keys.is_empty() => {
                // One asks; the others go on with what they have.
                if let Ok(asked) = self.asked.try_lock() {
                    self.ask(asked).await;
                }
            }
            _ => error = self.ask(self.asked.lock().await).await,
        }
        match self.known(wants) {
            Some((age, keys)) if age < kept => Ok(keys),
            _ => Err(Refused::Away(error)),
        }
    }

    fn known(&self, wants: impl Fn(&Key) -> bool) -> Option<(Duration, Vec<Key>)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let Known { keys, at } = known.as_ref()?;
        let wanted = keys.iter().filter(|key| wants(key)).cloned().collect();
        Some((at.elapsed(), wanted))
    }

    /// Asks the issuer for its keys, unless that was done just now. Gives back what last went wrong.
    async fn ask(&self, mut asked: MutexGuard<'_, Asked>) -> String {
        let again = self.options.waits.again;
        if asked.at.is_some_and(|at| at.elapsed() < again) {
            return asked.error.clone();
        }
        // Also where the caller goes away meanwhile.
        asked.at = Some(Instant::now());
        "the issuer did not answer in time".clone_into(&mut asked.error);
        let at = Instant::now();
        asked.error = match Box::pin(self.fetch()).await {
            Ok(keys) => {
                let keys = keys.into();
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                *known = Some(Known { keys, at });
                String::new()
            }
            Err(error) => {
                tracing::warn!(%error, issuer = self.options.issuer, "the keys of the issuer could not be read");
                error
            }
        };
        asked.at = Some(Instant::now());
        asked.error.clone()
    }

    async fn fetch(&self) -> Result<Vec<Key>, String> {
        let url = match &self.options.keys {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let url = address(&url).map_err(|error| error.to_string())?;
        let body = self.get(url.clone()).await?;
        let keys = Key::set(&body).map_err(|error| format!("{url} holds no keys: {error}"))?;
        if keys.is_empty() {
            return Err(format!(
                "{url} holds no key that signatures are checked with here"
            ));
        }
        Ok(keys)
    }

    /// Where the issuer says that its keys are.
    async fn discover(&self) -> Result<String, String> {
        #[derive(Deserialize)]
        struct Described {
            issuer: String,
            jwks_uri: String,
        }
        let issuer = &self.options.issuer;
        let url = format!("{}{DISCOVERY}", issuer.trim_end_matches('/'));
        let url = address(&url).map_err(|error| error.to_string())?;
        let body = self.get(url.clone()).await?;
        let described: Described = serde_json::from_slice(&body)
            .map_err(|error| format!("{url} describes no issuer: {error}"))?;
        if described.issuer != *issuer {
            let other = &described.issuer;
            return Err(format!("{url} describes issuer `{other}`, not `{issuer}`"));
        }
        Ok(described.jwks_uri)
    }

    async fn get(&self, url: Url) -> Result<Vec<u8>, String> {
        let failed = |error: reqwest::Error| format!("{url}: {}", chain(&error.without_url()));
        let sent = self.http.get(url.clone()).send().await;
        let mut response = sent.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("{url} answers {status}"));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY {
                return Err(format!("{url} sends more than {MAX_BODY} bytes"));
            }
        }
        Ok(body)
    }
}

/// An error with what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}

/// Whoever can change what comes over the wire could have any token count: so TLS, but within this machine.
fn address(text: &str) -> Result<Url, Error> {
    let wrong = |reason: String| Error::Address {
        url: text.to_owned(),
        reason,
    };
    let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_here(&url));
    if !is_safe {
        let says = "expected `https://`, or `http://` on the loopback interface";
        return Err(wrong(says.to_owned()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("expected no credentials in it".to_owned()));
    }
    Ok(url)
}

fn is_here(url: &Url) -> bool {
    is_loopback(url.host_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_tls_but_within_the_machine() {
        for (url, is_safe) in [
            ("https://issuer.example/realms/x", true),
            ("http://127.0.0.1:9000", true),
            ("http://[::1]:9000", true),
            ("http://localhost:9000/", true),
            ("http://issuer.example", false),
            ("http://127.0.0.1.issuer.example", false),
            ("https://user:word@issuer.example", false),
            ("file:///etc/keys", false),
            ("issuer.example", false),
        ] {
            assert_eq!(address(url).is_ok(), is_safe, "{url}");
        }
    }
}
