//! The little that only Pulsar's admin API can do: how long a topic keeps what was read.

use super::options::PulsarOptions;
use crate::Error;
use std::time::Duration;

/// Sets how long a topic keeps its messages, whoever has read them.
pub(super) async fn retain(
    options: &PulsarOptions,
    topic: &str,
    keep: Duration,
) -> Result<(), Error> {
    let Some(base) = &options.admin_url else {
        tracing::info!(
            topic,
            "no admin URL is set: see to it that Pulsar retains this topic for {} hours",
            keep.as_secs() / 3600
        );
        return Ok(());
    };
    let wrong = |reason: String| Error::Admin {
        url: base.clone(),
        reason,
    };
    let path = topic.replacen("://", "/", 1);
    let url = format!("{}/admin/v2/{path}/retention", base.trim_end_matches('/'));
    let client = client(options)?;
    let mut request =
        client
            .post(url)
            .timeout(options.operation_timeout)
            .json(&serde_json::json!({
                "retentionTimeInMinutes": keep.as_secs().div_ceil(60),
                "retentionSizeInMB": -1,
            }));
    if let Some(token) = &options.token {
        request = request.bearer_auth(token.read()?);
    }
    let answer = request
        .send()
        .await
        .map_err(|error| wrong(error.to_string()))?;
    if answer.status().is_success() {
        return Ok(());
    }
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    Err(wrong(format!(
        "retention of `{topic}`: {status} {}",
        text.trim()
    )))
}

fn client(options: &PulsarOptions) -> Result<reqwest::Client, Error> {
    let wrong = |error: reqwest::Error| Error::Admin {
        url: options.admin_url.clone().unwrap_or_default(),
        reason: error.to_string(),
    };
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
    builder.build().map_err(wrong)
}
