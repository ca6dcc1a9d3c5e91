//! Asks a server which models it has, with a short limit: this happens while a person waits.

use crate::error::{Error, Kind};
use crate::providers::{ApiKey, Bound, BoundedBody, ProviderKind, ReadFault, root_cause};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough for a machine in the same house, short enough not to be noticed.
const LIMIT: Duration = Duration::from_millis(1_500);

/// Bytes of the longest name of a model that is one.
const LONGEST_NAME: usize = 256;

/// The models of a server that can talk, in its own order: embedding models cannot. Ollama lists what was
/// used or pulled last first. `base_url` ends with a slash.
pub(super) async fn chat_models(
    http: &reqwest::Client,
    kind: ProviderKind,
    base_url: &str,
    key: Option<&ApiKey>,
) -> Result<Vec<String>, Error> {
    const NOT_CHAT: &[&str] = &["embed", "minilm", "bge-", "rerank", "whisper", "tts"];
    let (path, list, field) = match kind {
        ProviderKind::Ollama => ("api/tags", "models", "name"),
        _ => ("models", "data", "id"),
    };
    let body = get(http, kind, path, base_url, key).await?;
    let mut names = names(&body, list, field);
    names.retain(|name| {
        let name = name.to_lowercase();
        !NOT_CHAT.iter().any(|part| name.contains(part))
    });
    Ok(names)
}

/// Whether an Ollama model says that it can call tools; `None` where the server does not tell of the model.
pub(super) async fn ollama_calls_tools(
    http: &reqwest::Client,
    base_url: &str,
    model: &str,
) -> Option<bool> {
    let asked = http
        .post(format!("{base_url}api/show"))
        .json(&json!({ "model": model }))
        .timeout(LIMIT)
        .send()
        .await;
    let response = asked.ok()?.error_for_status().ok()?;
    let body = BoundedBody::new(response, Bound::Listing, None);
    let body: Value = body.json().await.ok()?;
    let able = body.get("capabilities").and_then(Value::as_array);
    Some(able.is_some_and(|able| able.iter().any(|one| one.as_str() == Some("tools"))))
}

/// Whether a llama.cpp server says that the template of its model has no place for tools: it takes them
/// all the same, and the model is told of none. Other servers say nothing of it.
pub(super) async fn template_lacks_tools(
    http: &reqwest::Client,
    base_url: &str,
    key: Option<&ApiKey>,
) -> bool {
    let root = base_url.strip_suffix("v1/").unwrap_or(base_url);
    let told = get(http, ProviderKind::OpenAi, "props", root, key).await;
    told.is_ok_and(|told| told.pointer("/chat_template_caps/supports_tools") == Some(&false.into()))
}

async fn get(
    http: &reqwest::Client,
    kind: ProviderKind,
    path: &str,
    base_url: &str,
    key: Option<&ApiKey>,
) -> Result<Value, Error> {
    // A server that answers is there; many compatible ones just keep no list.
    let shown = base_url.trim_end_matches('/');
    let no_listing = |detail: String| {
        let message = format!(
            "`{shown}` does not tell which models it has ({detail}): name the one to use \
             (`--model {}:NAME`), or correct the address",
            kind.as_str()
        );
        Error::new(Kind::Misconfigured, message)
    };
    let mut request = http.get(format!("{base_url}{path}")).timeout(LIMIT);
    if let Some(key) = key {
        request = request.bearer_auth(key.secret());
    }
    // Without the address: the message names it once.
    let response = request.send().await.map_err(|error| {
        let detail = if error.is_timeout() {
            "no answer in time".into()
        } else {
            root_cause(&error)
        };
        let advice = "start the server there, or correct the address";
        let message = format!("`{shown}` does not answer: {detail}; {advice}");
        Error::new(Kind::Unreachable, message)
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
