//! The little that only Pulsar's admin API can do: how long a topic keeps what was read, and who
//! consumes it.

use super::options::PulsarOptions;
use crate::Error;
use serde_json::Value;
use std::time::Duration;

/// Sets how long a topic keeps its messages, whoever has read them.
pub(super) async fn retain(
    options: &PulsarOptions,
    topic: &str,
    keep: Duration,
) -> Result<(), Error> {
    if options.admin_url.is_none() {
        tracing::info!(
            topic,
            "no admin URL is set: see to it that Pulsar retains this topic for {} hours",
            keep.as_secs() / 3600
        );
        return Ok(());
    }
    let body = serde_json::json!({
        "retentionTimeInMinutes": keep.as_secs().div_ceil(60),
        "retentionSizeInMB": -1,
    });
    ask(options, topic, "retention", Some(body)).await.map(drop)
}

/// Who consumes a subscription of a topic.
pub(super) async fn consumers(
    options: &PulsarOptions,
    topic: &str,
    subscription: &str,
) -> Result<Vec<String>, Error> {
    Ok(working(&stats(options, topic).await?, subscription))
}

/// How many subscriptions of a topic somebody consumes.
pub(super) async fn served(options: &PulsarOptions, topic: &str) -> Result<u64, Error> {
    let stats = stats(options, topic).await?;
    let named = stats["subscriptions"].as_object().into_iter().flatten();
    let served = named.filter(|(name, _)| !working(&stats, name).is_empty());
    Ok(served.count() as u64)
}

async fn stats(options: &PulsarOptions, topic: &str) -> Result<Value, Error> {
    let stats = ask(options, topic, "stats", None).await?;
    serde_json::from_str(&stats).map_err(|error| wrong(options, error.to_string()))
}

/// The addresses of those that take messages. Who only counts what waits takes none.
fn working(stats: &Value, subscription: &str) -> Vec<String> {
    let some = |consumer: &Value, name: &str| consumer[name].as_i64().is_some_and(|n| n != 0);
    let consumers = stats["subscriptions"][subscription]["consumers"].as_array();
    let consumers = consumers.into_iter().flatten().filter(|consumer| {
        let signs = ["availablePermits", "unackedMessages", "msgOutCounter"];
        signs.iter().any(|sign| some(consumer, sign))
    });
    let address = |consumer: &Value| consumer["address"].as_str().map(str::to_owned);
    consumers
        .map(|consumer| address(consumer).unwrap_or_default())
        .map(|address| address.trim_start_matches('/').to_owned())
        .collect()
}

fn wrong(options: &PulsarOptions, reason: String) -> Error {
    Error::Admin {
        url: options.admin_url.clone().unwrap_or_default(),
        reason,
    }
}

/// Asks about a topic, or sets something of it.
async fn ask(
    options: &PulsarOptions,
    topic: &str,
    what: &str,
    body: Option<Value>,
) -> Result<String, Error> {
    let base = options.admin_url.as_deref().unwrap_or_default();
    let path = topic.replacen("://", "/", 1);
    let url = format!("{}/admin/v2/{path}/{what}", base.trim_end_matches('/'));
    let client = client(options)?;
    let request = match body {
        Some(body) => client.post(url).json(&body),
        None => client.get(url),
    };
    let mut request = request.timeout(options.operation_timeout);
    if let Some(token) = &options.token {
        request = request.bearer_auth(token.read()?);
    }
    let failed = |error: reqwest::Error| wrong(options, error.to_string());
    let answer = request.send().await.map_err(failed)?;
    let status = answer.status();
    let text = answer.text().await;
    if status.is_success() {
        return text.map_err(failed);
    }
    let text = text.unwrap_or_default();
    let says = format!("{what} of `{topic}`: {status} {}", text.trim());
    Err(wrong(options, says))
}

fn client(options: &PulsarOptions) -> Result<reqwest::Client, Error> {
    // One TLS provider for the whole process; a second one is refused, and that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder();
    if let Some(path) = &options.certificates {
        let unreadable = |reason: String| Error::File {
            purpose: "certificates",
            path: path.display().to_string(),
            reason,
        };
        let pem = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let found = reqwest::Certificate::from_pem_bundle(&pem);
        for certificate in found.map_err(|error| unreadable(error.to_string()))? {
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder
        .build()
        .map_err(|error| wrong(options, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_only_counts_does_not_work() {
        let stats = json!({"subscriptions": {"orchestrator": {"consumers": [
            {"address": "/10.0.0.1:5000", "availablePermits": 0, "unackedMessages": 0, "msgOutCounter": 0},
            {"address": "/10.0.0.2:5000", "availablePermits": 16, "unackedMessages": 0, "msgOutCounter": 0},
            {"address": "/10.0.0.3:5000", "availablePermits": 0, "unackedMessages": 16, "msgOutCounter": 16},
        ]}}});
        assert_eq!(
            working(&stats, "orchestrator"),
            ["10.0.0.2:5000", "10.0.0.3:5000"]
        );
        assert!(working(&stats, "undertaker").is_empty());
    }
}
