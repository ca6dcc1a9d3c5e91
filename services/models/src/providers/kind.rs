//! The providers this build can speak to: one row each.
//!
//! Adding one is a variant here; the exhaustive matches below point at the rest.

use crate::error::{Error, Kind};

/// A kind of provider: the protocol spoken and the names people know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// OpenAI, and every server that speaks its chat completions protocol.
    OpenAi,
    Anthropic,
    Gemini,
    Ollama,
}

impl ProviderKind {
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Ollama];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str().eq_ignore_ascii_case(name))
    }

    /// Variables that may hold the key, first choice first. Empty: no key is used.
    pub fn key_variables(self) -> &'static [&'static str] {
        match self {
            Self::OpenAi => &["OPENAI_API_KEY"],
            Self::Anthropic => &["ANTHROPIC_API_KEY"],
            Self::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
            Self::Ollama => &[],
        }
    }

    pub fn model_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_MODEL",
            Self::Anthropic => "ANTHROPIC_MODEL",
            Self::Gemini => "GEMINI_MODEL",
            Self::Ollama => "OLLAMA_MODEL",
        }
    }

    pub fn base_url_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_BASE_URL",
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Gemini => "GEMINI_BASE_URL",
            Self::Ollama => "OLLAMA_HOST",
        }
    }

    /// The model used where neither a flag, nor config, nor the environment names one; `None` where the
    /// server must be asked. Chosen for good tool use at a moderate price, since a fan-out asks many
    /// times. Any of them can be replaced by `--model PROVIDER:MODEL` or the provider's `..._MODEL`
    /// variable.
    pub fn default_model(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("gpt-5.4-mini"),
            Self::Anthropic => Some("claude-sonnet-5"),
            Self::Gemini => Some("gemini-3.8-flash"),
            Self::Ollama => None,
        }
    }

    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://127.0.0.1:11434/",
        }
    }

    /// A base URL as calls need it: with a scheme, a path and a slash at the end.
    pub(crate) fn normal_base_url(self, given: &str) -> Result<String, Error> {
        let own = self.default_base_url();
        let bad = |reason: &str| {
            Error::new(
                Kind::Misconfigured,
                format!("base URL `{given}` cannot be used: {reason} (example: `{own}`)"),
            )
        };
        let given_trimmed = given.trim();
        let with_scheme = match given_trimmed.split_once("://") {
            Some(_) => given_trimmed.to_owned(),
            // `OLLAMA_HOST` is usually written as host and port.
            None if self == Self::Ollama => format!("http://{given_trimmed}"),
            None => return Err(bad("it has no scheme such as `https://`")),
        };
        let mut url = reqwest::Url::parse(&with_scheme).map_err(|e| bad(&e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("its scheme is neither `http` nor `https`"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it has a query or a fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("it holds a user name or password"));
        }
        if self == Self::Ollama {
            // The variable also tells the server where to listen; nobody can call that address.
            if url.host_str() == Some("0.0.0.0") {
                let _ = url.set_host(Some("127.0.0.1"));
            }
            if url.port().is_none() && url.scheme() == "http" && !with_scheme.contains(":80") {
                let _ = url.set_port(Some(11434));
            }
        }
        let mut text = url.to_string();
        // Where the person gave only a host: the usual path, as each provider's own tools do.
        if url.path() == "/" {
            text.extend(own.splitn(4, '/').nth(3));
        }
        if !text.ends_with('/') {
            text.push('/');
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn base_urls_are_taken_as_people_write_them() {
        use ProviderKind::{Anthropic, Gemini, Ollama, OpenAi};
        let cases = [
            (
                OpenAi,
                "http://localhost:8000/v1",
                "http://localhost:8000/v1/",
            ),
            (OpenAi, "http://localhost:8000", "http://localhost:8000/v1/"),
            (
                OpenAi,
                "https://x.example/openai/v1/",
                "https://x.example/openai/v1/",
            ),
            (
                Anthropic,
                "https://api.anthropic.com",
                "https://api.anthropic.com/v1/",
            ),
            (Gemini, "https://g.example", "https://g.example/v1beta/"),
            (Ollama, "127.0.0.1:11434", "http://127.0.0.1:11434/"),
            (Ollama, "0.0.0.0", "http://127.0.0.1:11434/"),
            (Ollama, "http://gpu.example", "http://gpu.example:11434/"),
            (
                Ollama,
                "https://gpu.example/ollama",
                "https://gpu.example/ollama/",
            ),
        ];
        for (kind, given, expected) in cases {
            assert_eq!(kind.normal_base_url(given).unwrap(), expected, "{given}");
        }
        for given in [
            "localhost:8000",
            "ftp://x",
            "http://u:p@x/v1",
            "https://x/v1?key=1",
            "http://",
        ] {
            assert!(OpenAi.normal_base_url(given).is_err(), "{given}");
        }
    }
}
