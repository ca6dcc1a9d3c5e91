//! `http`: a call to a web service whose address and method the tool's item gives.
//!
//! Arguments travel as a JSON body with POST, PUT and PATCH, as the item's `body` has it, else in the query. Each call carries
//! `Idempotency-Key`, the same on every try, so that a service can drop repeats. GET and HEAD have
//! no side effects unless the item says so; all other methods have. See `http_address` for what may
//! be reached. Anything but a success is an error result that quotes the service.

use super::http_address::{Guarded, allowed, check};
use super::http_target::Target;
use super::{Call, Failed, ToolKind, settled};
use crate::oauth::{Tokens, bearer};
use crate::secrets::Used;
use crate::{Error, Secrets, ToolResult};
use agentfleet_models::root_cause;
use agentfleet_schema::config::{Snapshot, ToolArgument, ToolItem};
use agentfleet_schema::names;
use agentfleet_schema::records::{Source, Trouble};
use async_trait::async_trait;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Client, ClientBuilder, Response, Url};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of an answer that are read.
pub(crate) const MAX_ANSWER: usize = 1024 * 1024;
/// Most characters quoted of an answer that is no success.
const MAX_QUOTED: usize = 1_000;
/// Most redirects of one call that are followed.
const MOST_REDIRECTS: usize = 5;
/// What stands in a header for the tenant that the run is worked for. The fleet fills it in, no model does.
const RUN_TENANT: &str = "${run.tenant}";
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Http {
    /// Uses the proxy of the environment, if one is set.
    client: Client,
    /// For services on this machine, which no proxy can reach.
    direct: Client,
    secrets: Secrets,
    tokens: Tokens,
}

impl Http {
    pub(crate) fn new(secrets: Secrets) -> Result<Self, Error> {
        // TLS needs a provider for the whole process; whoever comes first sets the same one.
        drop(rustls::crypto::ring::default_provider().install_default());
        Ok(Self {
            client: client().build().map_err(Error::Http)?,
            direct: client().no_proxy().build().map_err(Error::Http)?,
            secrets,
            tokens: Tokens::default(),
        })
    }

    async fn send(
        &self,
        call: &Call,
        target: &Target,
        headers: HeaderMap,
    ) -> Result<Response, reqwest::Error> {
        let client = if is_loopback(&target.url) {
            &self.direct
        } else {
            &self.client
        };
        let mut url = target.url.clone();
        let mut body = None;
        if target.is_redirected {
            // The service named the address that it is to be asked at.
        } else if target.sends_body() {
            let all = || Value::Object(target.rest.clone());
            body = Some(target.body.clone().unwrap_or_else(all));
        } else {
            add_query(&mut url, &target.rest);
        }
        let mut request = client
            .request(target.method.clone(), url)
            .timeout(call.timeout)
            .header("Idempotency-Key", &call.context.idempotency_key)
            .header(ACCEPT, "application/json, text/*;q=0.9, */*;q=0.1")
            .headers(headers);
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await
    }

    /// What came of a call, or what is wrong with it.
    async fn tried(&self, call: &Call, used: &mut Used) -> Result<ToolResult, Failed> {
        let mut target = Target::of(&call.tool, &call.arguments)?;
        let mut headers = self.headers(&call.tool, &call.context.tenant, used)?;
        let token = self.token(&call.tool, used).await?;
        if let Some(token) = &token {
            headers.insert(AUTHORIZATION, bearer(token)?);
        }
        for _ in 0..=MOST_REDIRECTS {
            check(&target.url)?;
            let host = target.url.host_str().unwrap_or_default().to_owned();
            // A secret goes to the service that it is for, and not to where that one points.
            let headers = if target.is_redirected {
                HeaderMap::new()
            } else {
                headers.clone()
            };
            let response = self.send(call, &target, headers).await;
            let response = response.map_err(|error| Failed {
                trouble: Some(if error.is_timeout() {
                    Trouble::Timeout
                } else {
                    Trouble::Unavailable
                }),
                says: format!("no answer from `{host}`: {}", cause(&error)),
            })?;
            if let Some(next) = target.redirected(&call.tool, &response)? {
                target = next;
                continue;
            }
            if let Some(token) = token.as_ref().filter(|_| response.status() == 401) {
                // It was taken back, or is of no use: the next call gets another.
                self.tokens.forget(token).await;
            }
            let content = answer(response, &host).await?;
            let sources = vec![Source {
                uri: target.url.to_string(),
                title: call.tool.name.clone(),
            }];
            return Ok(ToolResult {
                content: result(&call.tool, content)?,
                sources,
                ..ToolResult::default()
            });
        }
        Err(Failed::from(format!(
            "`{}` redirects more than {MOST_REDIRECTS} times",
            target.url.host_str().unwrap_or_default()
        )))
    }

    /// The token that the service wants, if it wants one.
    async fn token(&self, tool: &ToolItem, used: &mut Used) -> Result<Option<String>, Failed> {
        let Some(oauth) = &tool.oauth else {
            return Ok(None);
        };
        let clients = (&self.client, &self.direct);
        let token = self.tokens.token(oauth, &self.secrets, clients, used);
        token.await.map(Some)
    }

    /// The headers that the item gives, with secrets and the tenant in place. What a tenant is called is no
    /// template: a secret that it names stays where it is.
    fn headers(&self, tool: &ToolItem, tenant: &str, used: &mut Used) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, template) in &tool.headers {
            let wrong = || format!("tool `{}` has a bad header `{name}`", tool.name);
            let parts = template.split(RUN_TENANT);
            let parts = parts.map(|part| self.secrets.fill(part, used));
            let value = parts.collect::<Result<Vec<_>, _>>()?.join(tenant);
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(known, value);
        }
        Ok(headers)
    }
}

/// The part of an answer that the item asks for.
pub(crate) fn result(tool: &ToolItem, content: String) -> Result<String, String> {
    let Some(pointer) = &tool.result else {
        return Ok(content);
    };
    let name = &tool.name;
    let value: Value = serde_json::from_str(&content).map_err(|error| {
        format!("the answer to `{name}` is not JSON, which `result` asks for: {error}")
    })?;
    match value.pointer(pointer) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(part) => Ok(part.to_string()),
        None => Err(format!("the answer to `{name}` has nothing at `{pointer}`")),
    }
}

pub(crate) fn client() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("agentfleet/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .dns_resolver(Arc::new(Guarded))
}

#[async_trait]
impl ToolKind for Http {
    fn arguments(&self, tool: &ToolItem) -> Vec<ToolArgument> {
        tool.declared()
    }

    async fn call(&self, call: Call) -> Result<ToolResult, Error> {
        let mut used = Used::default();
        let tried = self.tried(&call, &mut used).await;
        Ok(settled(tried, &used))
    }

    /// Whether its secrets are there, and somebody listens at its address. Nothing is sent.
    async fn look(&self, tool: &ToolItem, _: &Snapshot) -> Result<String, String> {
        self.headers(tool, "", &mut Used::default())?;
        let token = self.token(tool, &mut Used::default()).await;
        token.map_err(|failed| failed.says)?;
        let url = Target::base(tool)?;
        check(&url)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        if !is_loopback(&url) && has_proxy(url.scheme()) {
            return Ok(format!(
                "`{host}` is reached through a proxy, which is not asked"
            ));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        let connecting = connect(host.trim_matches(['[', ']']), port);
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(())) => Ok(format!("`{host}` takes connections at port {port}")),
            Ok(Err(says)) => Err(format!("`{host}` cannot be reached at port {port}: {says}")),
            Err(_) => Err(format!(
                "`{host}` took no connection at port {port} within {CONNECT_TIMEOUT:?}"
            )),
        }
    }
}

fn add_query(url: &mut Url, arguments: &Map<String, Value>) {
    if arguments.is_empty() {
        return;
    }
    let mut pairs = url.query_pairs_mut();
    for (name, value) in arguments {
        match value {
            Value::String(text) => pairs.append_pair(name, text),
            other => pairs.append_pair(name, &other.to_string()),
        };
    }
}

/// Whether the environment names a proxy for a scheme.
fn has_proxy(scheme: &str) -> bool {
    let names = [format!("{scheme}_proxy"), "all_proxy".to_owned()];
    let names = names
        .iter()
        .flat_map(|name| [name.clone(), name.to_uppercase()]);
    let mut values = names.filter_map(|name| std::env::var(name).ok());
    values.any(|value| !value.trim().is_empty())
}

/// Connects to the first address of a host that may be reached and takes connections.
async fn connect(host: &str, port: u16) -> Result<(), String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found = found.map_err(|error| error.to_string())?.collect();
    let addresses = allowed(host, found).map_err(|error| error.to_string())?;
    let connected = tokio::net::TcpStream::connect(&addresses[..]).await;
    connected.map(drop).map_err(|error| error.to_string())
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    names::is_loopback(url.host_str().unwrap_or_default())
}

/// The text of a successful answer, or what is wrong with it.
async fn answer(response: Response, host: &str) -> Result<String, Failed> {
    let status = response.status();
    if status.is_redirection() {
        let to = response
            .headers()
            .get(LOCATION)
            .and_then(|to| to.to_str().ok());
        return Err(Failed::from(format!(
            "`{host}` redirects to `{}`, which is not followed; the tool's `url` must be the final address",
            to.unwrap_or("nowhere")
        )));
    }
    let media_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = media_type.unwrap_or_default().to_ascii_lowercase();
    let (bytes, is_cut) = read(response, MAX_ANSWER)
        .await
        .map_err(|error| format!("the answer of `{host}` broke off: {}", cause(&error)))?;
    if !is_text(&media_type, &bytes, is_cut) {
        return Err(Failed::from(format!(
            "`{host}` answered with `{media_type}`, which is not text"
        )));
    }
    let mut text = decoded(&bytes, &media_type);
    if media_type.starts_with("text/html") {
        text = agentfleet_library::html_text(&text);
    }
    if !status.is_success() {
        let quoted: String = text.chars().take(MAX_QUOTED).collect();
        let says = format!("`{host}` answered {status}: {}", quoted.trim());
        // The service says that it cannot now, and nothing of what was asked.
        let is_away = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        return Err(Failed {
            trouble: is_away.then_some(Trouble::Unavailable),
            says: says.trim_end().to_owned(),
        });
    }
    if is_cut {
        text += &format!("\n\n[the answer was cut after {MAX_ANSWER} bytes]");
    }
    Ok(text)
}

/// The first bytes of an answer, and whether there were more.
async fn read(mut response: Response, most: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = most - bytes.len();
        if chunk.len() > room {
            bytes.extend_from_slice(&chunk[..room]);
            return Ok((bytes, true));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, false))
}

fn is_text(media_type: &str, bytes: &[u8], is_cut: bool) -> bool {
    if media_type.starts_with("text/")
        || ["json", "xml", "csv", "yaml", "turtle", "urlencoded"]
            .iter()
            .any(|t| media_type.contains(t))
    {
        return true;
    }
    // Many services send no type, or a wrong one; bytes that read as text are text.
    let valid = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => is_cut && error.error_len().is_none(),
    };
    valid && !bytes.contains(&0)
}

fn decoded(bytes: &[u8], media_type: &str) -> String {
    let label = media_type.split_once("charset=").map(|(_, rest)| rest);
    let label = label
        .and_then(|rest| rest.split(';').next())
        .map(|l| l.trim().trim_matches('"'));
    let encoding = label.and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()));
    encoding
        .unwrap_or(encoding_rs::UTF_8)
        .decode(bytes)
        .0
        .into_owned()
}

/// The innermost reason, which is the one that tells a person something. The address is left out:
/// it may carry a key.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    root_cause(error)
}
