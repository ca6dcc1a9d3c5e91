//! Tokens that services are called with, where they want OAuth: got with the credentials of this client, and kept
//! until shortly before they expire (RFC 6749, section 4.4).

use crate::Secrets;
use crate::kinds::Failed;
use crate::kinds::http::is_loopback;
use crate::kinds::http_address::check;
use crate::secrets::Used;
use agentfleet_models::root_cause;
use agentfleet_schema::config::OAuth;
use reqwest::header::HeaderValue;
use reqwest::{Client, Response, Url};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What stands in place of a token, where a service sends it back.
pub(crate) const ACCESS_TOKEN: &str = "access token";
/// How long a token server may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A token is not used any more so long before it expires.
const BEFORE_THE_END: Duration = Duration::from_secs(30);
/// How long a token counts whose server does not say it, and at the longest.
const UNSAID: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// Largest answer of a token server, in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Tokens that are kept.
const MOST_KEPT: usize = 1_000;

/// What may differ between two tokens: where from, for whom, and for what.
type Key = (String, String, String, String);

/// Tokens, each got once.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Arc<Mutex<HashMap<Key, Slot>>>);

type Slot = Arc<tokio::sync::Mutex<Option<Token>>>;

#[derive(Clone)]
struct Token {
    text: String,
    until: Instant,
}

impl Tokens {
    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, key: Key) -> Slot {
        let mut slots = self.slots();
        if slots.len() >= MOST_KEPT {
            slots.clear();
        }
        Arc::clone(slots.entry(key).or_default())
    }

    /// The token to call a service with. It is as secret as what it was got with, and is noted in `used`.
    pub(crate) async fn token(
        &self,
        oauth: &OAuth,
        secrets: &Secrets,
        (client, direct): (&Client, &Client),
        used: &mut Used,
    ) -> Result<String, Failed> {
        let id = secrets.fill(&oauth.client_id, used)?;
        let secret = secrets.fill(&oauth.client_secret, used)?;
        let url = address(&oauth.token_url)?;
        let key = (
            url.to_string(),
            id.clone(),
            secret.clone(),
            oauth.scope.clone(),
        );
        let slot = self.slot(key);
        // Who comes meanwhile waits for the same token.
        let mut kept = slot.lock().await;
        let now = Instant::now();
        let token = match kept.clone().filter(|token| token.until > now) {
            Some(token) => token,
            None => {
                let client = if is_loopback(&url) { direct } else { client };
                let asked = ask(client, url, (&id, &secret), &oauth.scope);
                let token = Box::pin(asked).await?;
                *kept = Some(token.clone());
                token
            }
        };
        used.note(ACCESS_TOKEN, &token.text);
        Ok(token.text)
    }

    /// Drops a token that a service did not take: the next call gets another.
    pub(crate) async fn forget(&self, text: &str) {
        let slots: Vec<Slot> = self.slots().values().cloned().collect();
        for slot in slots {
            let mut kept = slot.lock().await;
            if kept.as_ref().is_some_and(|token| token.text == text) {
                *kept = None;
            }
        }
    }
}

/// The header that carries a token.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header =
        header.map_err(|_| "the access token has signs that no header takes".to_owned())?;
    header.set_sensitive(true);
    Ok(header)
}

fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("bad `token-url` `{text}`: {error}"))?;
    check(&url)?;
    if url.scheme() != "https" && !is_loopback(&url) {
        return Err(format!(
            "`token-url` `{text}` must begin with `https://`: a secret is sent there"
        ));
    }
    Ok(url)
}

async fn ask(
    client: &Client,
    url: Url,
    (id, secret): (&str, &str),
    scope: &str,
) -> Result<Token, Failed> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let away = |says: String| Failed::away(format!("no token from `{host}`: {says}"));
    let mut form = vec![("grant_type", "client_credentials")];
    if !scope.is_empty() {
        form.push(("scope", scope));
    }
    let sent = client
        .post(url)
        .timeout(PATIENCE)
        .basic_auth(id, Some(secret))
        .form(&form)
        .send()
        .await;
    let response = sent.map_err(|error| away(root_cause(&error)))?;
    let status = response.status();
    let body = read(response).await.map_err(away)?;
    if status.is_server_error() || status.as_u16() == 429 {
        return Err(away(format!("it answers {status}")));
    }
    if !status.is_success() {
        // What such an answer says besides is not quoted: some servers repeat what they were sent.
        let error = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let error = error["error"].as_str().unwrap_or("no reason");
        let error: String = error.chars().take(100).collect();
        return Err(Failed::from(format!(
            "`{host}` gives no token: it answers {status} ({error}); check `client-id`, `client-secret` and `scope`"
        )));
    }
    let granted: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = granted["access_token"].as_str().unwrap_or_default();
    let kind = granted["token_type"].as_str().unwrap_or("bearer");
    if text.is_empty() || !kind.eq_ignore_ascii_case("bearer") {
        let says = format!("`{host}` answers with no bearer token in `access_token`");
        return Err(Failed::from(says));
    }
    let said = granted["expires_in"]
        .as_f64()
        .filter(|seconds| *seconds > 0.0);
    let lives = said.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let lives = lives.unwrap_or(UNSAID).min(LONGEST);
    // One that lives for less than that is used once.
    let lives = lives.saturating_sub(BEFORE_THE_END);
    Ok(Token {
        text: text.to_owned(),
        until: Instant::now() + lives,
    })
}

async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| root_cause(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER {
            return Err(format!("it sends more than {MAX_ANSWER} bytes"));
        }
    }
    Ok(body)
}
