//! Asks a server which models it has, with a short limit: this happens while a person waits.

use crate::error::Error;
use crate::providers::{ApiKey, Bound, BoundedBody, ProviderKind, ReadFault};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for a machine in the same house, short enough not to be noticed.
const LIMIT: Duration = Duration::from_millis(1_500);

/// Bytes of the longest name of a model that is one.
const LONGEST_NAME: usize = 256;

/// Models a server has, in its own order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    names: Vec<String>,
}

impl Listing {
    /// `base_url` ends with a slash. Ollama lists what was used or pulled last first.
    pub(super) async fn of_ollama(http: &reqwest::Client, base_url: &str) -> Result<Self, Error> {
        let body = get(
            http,
            &format!("{base_url}api/tags"),
            base_url,
            None,
            ProviderKind::Ollama,
        )
        .await?;
        Ok(Self {
            names: names(&body, "models", "name"),
        })
    }

    pub(super) async fn of_openai(
        http: &reqwest::Client,
        base_url: &str,
        key: Option<&ApiKey>,
    ) -> Result<Self, Error> {
        let body = get(
            http,
            &format!("{base_url}models"),
            base_url,
            key,
            ProviderKind::OpenAi,
        )
        .await?;
        Ok(Self {
            names: names(&body, "data", "id"),
        })
    }

    /// Those that can talk: embedding models cannot.
    pub(super) fn chat_models(&self) -> Vec<&str> {
        const NOT_CHAT: &[&str] = &["embed", "minilm", "bge-", "rerank", "whisper", "tts"];
        self.names
            .iter()
            .map(String::as_str)
            .filter(|name| {
                !NOT_CHAT
                    .iter()
                    .any(|part| name.to_lowercase().contains(part))
            })
            .collect()
    }
}

/// Whether an Ollama model says that it can call tools. What cannot be learned counts as no.
pub(super) async fn ollama_calls_tools(
    http: &reqwest::Client,
    base_url: &str,
    model: &str,
) -> bool {
    let asked = http
        .post(format!("{base_url}api/show"))
        .json(&json!({ "model": model }))
        .timeout(LIMIT)
        .send()
        .await;
    let Ok(response) = asked else { return false };
    let Ok(body) = BoundedBody::new(response, Bound::Listing, None)
        .json()
        .await
    else {
        return false;
    };
    let able = body.get("capabilities").and_then(Value::as_array);
    able.is_some_and(|able| able.iter().any(|one| one.as_str() == Some("tools")))
}

async fn get(
    http: &reqwest::Client,
    url: &str,
    base_url: &str,
    key: Option<&ApiKey>,
    kind: ProviderKind,
) -> Result<Value, Error> {
    // A server that answers is there; many compatible ones just keep no list.
    let no_listing = |detail: String| Error::NoListing {
        url: base_url.trim_end_matches('/').to_owned(),
        detail,
        example: format!("--model {}:NAME", kind.as_str()),
    };
    let unreachable = |detail: String| Error::Unreachable {
        url: base_url.trim_end_matches('/').to_owned(),
        detail,
    };
    let mut request = http.get(url).timeout(LIMIT);
    if let Some(key) = key {
        request = request.bearer_auth(key.secret());
    }
    // Without the address: the message names it once.
    let response = request.send().await.map_err(|error| {
        unreachable(if error.is_timeout() {
            "no answer in time".into()
        } else {
            cause(&error)
        })
    })?;
    if !response.status().is_success() {
        let status = response.status().as_u16();
        return Err(no_listing(format!("it answers HTTP {status}")));
    }
    let body = BoundedBody::new(response, Bound::Listing, None)
        .json()
        .await;
    body.map_err(|fault| match fault {
        ReadFault::Beyond(bound) => no_listing(format!("it sends more than {bound}")),
        ReadFault::Transport(error) if error.is_timeout() => {
            no_listing("its answer does not come to an end in time".to_owned())
        }
        _ => no_listing("its answer is not JSON".to_owned()),
    })
}

fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn names(body: &Value, list: &str, field: &str) -> Vec<String> {
    let items = body
        .get(list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.get(field)?.as_str())
        // What has control characters in it, or has no end, is no name.
        .filter(|name| name.len() < LONGEST_NAME && !name.contains(char::is_control))
        .map(str::to_owned)
        .collect()
}
