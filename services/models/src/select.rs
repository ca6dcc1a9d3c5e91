//! Which model the fleet uses, and why, in one sentence for people.
//!
//! In this order; the first that applies wins:
//! 1. the model option (`--model`, `AGENTFLEET_MODEL` or the config file): `openai:NAME`,
//!    `anthropic:NAME`, `gemini:NAME`, `ollama:NAME`, each also without `:NAME`; `offline`;
//!    `scripted:FILE`. A base URL without a model option means an OpenAI-compatible server;
//! 2. `OPENAI_API_KEY`, or `OPENAI_BASE_URL` alone for a server that wants no key; `OPENAI_MODEL`;
//! 3. `ANTHROPIC_API_KEY`; `ANTHROPIC_BASE_URL`, `ANTHROPIC_MODEL`;
//! 4. `GEMINI_API_KEY` or `GOOGLE_API_KEY`; `GEMINI_BASE_URL`, `GEMINI_MODEL`;
//! 5. an Ollama that answers at `OLLAMA_HOST`, or at its usual address on this machine;
//!    `OLLAMA_MODEL`;
//! 6. the offline model.
//!
//! An empty variable counts as unset. Reading the environment is the caller's part.

use crate::error::{Error, Kind};
use crate::providers::{ApiKey, Provider, ProviderKind, ProviderOptions, Timeouts, http_client};
use crate::{ChatModel, Offline, Script, Scripted};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

mod listing;

use listing::chat_models;

/// What a person or the environment says about the model.
#[derive(Clone, Debug, Default)]
pub struct ModelOptions {
    /// `provider:model`, a provider, `offline`, or `scripted:FILE`.
    pub model: Option<String>,
    /// Where the model is served.
    pub base_url: Option<String>,
    /// Overrides whether tools are offered natively.
    pub native_tools: Option<bool>,
    pub timeouts: Timeouts,
    /// The environment variables.
    pub environment: BTreeMap<String, String>,
    /// Where a local Ollama is looked for if `OLLAMA_HOST` is unset; `None` is its usual address.
    pub local_ollama: Option<String>,
    /// The process's shared client; built if absent.
    pub http: Option<reqwest::Client>,
}

impl ModelOptions {
    /// Options from this process's environment.
    pub fn from_environment() -> Self {
        Self {
            environment: std::env::vars().collect(),
            ..Self::default()
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.environment
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// The key and its variable.
    fn key(&self, kind: ProviderKind) -> Option<ApiKey> {
        kind.key_variables()
            .iter()
            .find_map(|name| Some(ApiKey::new(self.variable(name)?, *name)))
    }
}

/// The model chosen.
#[derive(Clone)]
pub struct Choice {
    pub model: Arc<dyn ChatModel>,
    /// `openai`, `anthropic`, `gemini`, `ollama`, `offline` or `scripted`.
    pub provider: &'static str,
    /// Which and why; and how it is told its tools, where its server decided that.
    pub reason: String,
}

impl std::fmt::Debug for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Choice")
            .field("model", &self.model.describe())
            .field("provider", &self.provider)
            .field("reason", &self.reason)
            .finish()
    }
}

/// What is said of a model whose template has no place for tools.
const TOOLS_IN_TEXT: &str = " Its server says that its chat template has no place for tools (`/props`): they are \
                             described in the text of the prompt, and called by name there.";

/// Chooses the model.
pub async fn select(options: &ModelOptions) -> Result<Choice, Error> {
    let given = options
        .model
        .as_deref()
        .map(str::trim)
        .filter(|given| !given.is_empty());
    match given {
        Some(given) => named(given, options).await,
        None if options.base_url.is_some() => {
            let why = "the base URL is set";
            provider(ProviderKind::OpenAi, None, options, why).await
        }
        None => from_environment(options).await,
    }
}

/// Whether a model takes tools as calls of its API, and not in its text. `None` where that cannot be told here:
/// its server is away, or nothing says which model it is. Needs no key.
pub async fn native_tools(options: &ModelOptions) -> Result<Option<bool>, Error> {
    let given = options.model.as_deref().unwrap_or_default().trim();
    let (name, model) = given.split_once(':').unwrap_or((given, ""));
    match ProviderKind::by_name(name) {
        Some(ProviderKind::OpenAi | ProviderKind::Anthropic | ProviderKind::Gemini) => {
            return Ok(Some(options.native_tools.unwrap_or(true)));
        }
        Some(kind @ ProviderKind::Ollama) if !model.is_empty() => {
            let url = options.base_url.as_deref();
            let url = url.or(options.variable(kind.base_url_variable()));
            let Ok(url) = kind.normal_base_url(url.unwrap_or(kind.default_base_url())) else {
                return Ok(None);
            };
            let told = listing::ollama_calls_tools(&client(options)?, &url, model.trim()).await;
            return Ok(told.map(|told| options.native_tools.unwrap_or(told)));
        }
        Some(ProviderKind::Ollama) | None => {}
    }
    match select(options).await {
        // Where the fleet is started, a key may name another.
        Ok(chosen) if given.is_empty() && chosen.provider == "offline" => Ok(None),
        Ok(chosen) => Ok(Some(chosen.model.capabilities().native_tools)),
        Err(error) if error.kind() == Kind::UnknownOption => Err(error),
        Err(_) => Ok(None),
    }
}

async fn named(given: &str, options: &ModelOptions) -> Result<Choice, Error> {
    let (name, rest) = given.split_once(':').unwrap_or((given, ""));
    let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
    match (name, rest) {
        ("offline", None) => Ok(offline("it was asked for")),
        ("scripted", Some(file)) => {
            let script = Script::from_file(Path::new(file))?;
            Ok(Choice {
                model: Arc::new(Scripted::new(script)),
                provider: "scripted",
                reason: format!("Using the script `{file}`: it was asked for."),
            })
        }
        (name, model) => match ProviderKind::by_name(name) {
            Some(kind) => provider(kind, model, options, "it was asked for").await,
            None => Err(unknown(given)),
        },
    }
}

fn unknown(given: &str) -> Error {
    let mut known: Vec<String> = ProviderKind::ALL
        .iter()
        .map(|kind| format!("`{}:MODEL`", kind.as_str()))
        .collect();
    known.extend(["`offline`".to_owned(), "`scripted:FILE`".to_owned()]);
    let known = known.join(", ");
    Error::new(
        Kind::UnknownOption,
        format!("unknown model `{given}` (write `PROVIDER:MODEL`; available: {known})"),
    )
}

async fn from_environment(options: &ModelOptions) -> Result<Choice, Error> {
    for kind in [
        ProviderKind::OpenAi,
        ProviderKind::Anthropic,
        ProviderKind::Gemini,
    ] {
        if let Some(key) = options.key(kind) {
            let why = format!("`{}` is set", key.source());
            return provider(kind, None, options, &why).await;
        }
        if kind == ProviderKind::OpenAi && options.variable(kind.base_url_variable()).is_some() {
            let why = format!("`{}` is set", kind.base_url_variable());
            return provider(kind, None, options, &why).await;
        }
    }
    local(options).await
}

/// A local Ollama, or the offline model.
async fn local(options: &ModelOptions) -> Result<Choice, Error> {
    let kind = ProviderKind::Ollama;
    let variable = options.variable(kind.base_url_variable());
    let address = variable
        .or(options.local_ollama.as_deref())
        .unwrap_or(kind.default_base_url());
    let base_url = match kind.normal_base_url(address) {
        Ok(url) => url,
        // The variable is the Ollama server's, not ours: what we cannot read must not stop us.
        Err(error) => return Ok(offline(&error.to_string())),
    };
    let looked = "no key is set (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`)";
    let shown = base_url.trim_end_matches('/');
    let http = client(options)?;
    match chat_models(&http, kind, &base_url, None).await {
        Err(_) => Ok(offline(&format!(
            "{looked} and no Ollama answers at {shown}"
        ))),
        Ok(models) if models.is_empty() => Ok(offline(&format!(
            "{looked} and the Ollama at {shown} has no chat model"
        ))),
        Ok(_) => {
            let mut found = options.clone();
            found.base_url = Some(base_url.clone());
            found.http = Some(http);
            let why = format!("{looked}, and an Ollama answers at {shown}");
            provider(kind, None, &found, &why).await
        }
    }
}

fn offline(why: &str) -> Choice {
    Choice {
        model: Arc::new(Offline::new()),
        provider: "offline",
        reason: format!(
            "Using the offline model, which quotes what it finds and cannot reason: {why}."
        ),
    }
}

fn client(options: &ModelOptions) -> Result<reqwest::Client, Error> {
    options
        .http
        .clone()
        .map_or_else(|| http_client(&options.timeouts), Ok)
}

/// A real provider, with everything the options say about it.
async fn provider(
    kind: ProviderKind,
    model: Option<&str>,
    options: &ModelOptions,
    why: &str,
) -> Result<Choice, Error> {
    let http = client(options)?;
    let given = options
        .base_url
        .as_deref()
        .or(options.variable(kind.base_url_variable()));
    let base_url = given.map(|url| kind.normal_base_url(url)).transpose()?;
    let named = model.or(options.variable(kind.model_variable()));
    let mut chosen = ProviderOptions::new(kind, named.unwrap_or_default());
    chosen.base_url.clone_from(&base_url);
    chosen.key = options.key(kind);
    chosen.timeouts = options.timeouts;
    let mut tools = "";
    match kind {
        ProviderKind::Ollama => {
            let url = base_url.as_deref().unwrap_or(kind.default_base_url());
            if chosen.model.is_empty() {
                chosen.model = first_of(chat_models(&http, kind, url, None).await?, kind, url)?;
            }
            // Ollama says which of its models can call tools; the text format suits all the others.
            let native = listing::ollama_calls_tools(&http, url, &chosen.model).await;
            chosen.native_tools = native.unwrap_or(false);
        }
        ProviderKind::OpenAi if chosen.model.is_empty() && base_url.is_some() => {
            let url = base_url.as_deref().unwrap_or_default();
            chosen.model = if let Some(model) = own_default(kind, url) {
                model.to_owned()
            } else {
                let models = chat_models(&http, kind, url, chosen.key.as_ref()).await?;
                first_of(models, kind, url)?
            };
        }
        ProviderKind::OpenAi | ProviderKind::Anthropic | ProviderKind::Gemini => {
            if chosen.model.is_empty() {
                kind.default_model()
                    .unwrap_or_default()
                    .clone_into(&mut chosen.model);
            }
        }
    }
    if let Some(native) = options.native_tools {
        chosen.native_tools = native;
    } else if let Some(url) = base_url.as_deref().filter(|_| kind == ProviderKind::OpenAi)
        && url != kind.default_base_url()
    {
        let key = chosen.key.as_ref();
        if listing::template_lacks_tools(&http, url, key).await {
            chosen.native_tools = false;
            tools = TOOLS_IN_TEXT;
        }
    }
    let place = match &base_url {
        Some(url) if url != kind.default_base_url() => {
            format!(" at {}", url.trim_end_matches('/'))
        }
        _ => String::new(),
    };
    let model = Provider::new(chosen, http)?;
    let reason = format!("Using {}{place}: {why}.{tools}", model.describe());
    Ok(Choice {
        model: Arc::new(model),
        provider: kind.as_str(),
        reason,
    })
}

/// The default model is OpenAI's own; a compatible server has others.
fn own_default(kind: ProviderKind, base_url: &str) -> Option<&'static str> {
    kind.default_model()
        .filter(|_| base_url == kind.default_base_url())
}

fn first_of(models: Vec<String>, kind: ProviderKind, url: &str) -> Result<String, Error> {
    models.into_iter().next().ok_or_else(|| {
        let hint = match kind {
            ProviderKind::Ollama => "; `ollama pull MODEL` fetches one",
            ProviderKind::OpenAi | ProviderKind::Anthropic | ProviderKind::Gemini => "",
        };
        let (url, name) = (url.trim_end_matches('/'), kind.as_str());
        let message = format!("`{url}` lists no model: name one (`--model {name}:MODEL`){hint}");
        Error::new(Kind::Misconfigured, message)
    })
}
