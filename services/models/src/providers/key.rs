//! An API key: usable in a request, invisible everywhere else.

use std::fmt;

/// A provider's key and the name of the variable or setting it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    secret: String,
    source: String,
}

impl ApiKey {
    /// `source` is shown to people ("set `OPENAI_API_KEY`"); the secret never is.
    pub fn new(secret: impl Into<String>, source: impl Into<String>) -> Self {
        // A key pasted with its line end is a common accident, and no header can carry it.
        Self {
            secret: secret.into().trim().to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Where the key came from.
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey(redacted, from `{}`)", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_shown_by_debug() {
        let key = ApiKey::new("sk-secret\n", "OPENAI_API_KEY");
        assert_eq!(key.secret(), "sk-secret");
        let shown = format!("{key:?} {:?}", Some(&key));
        assert!(!shown.contains("sk-secret"), "{shown}");
        assert!(shown.contains("OPENAI_API_KEY"), "{shown}");
    }
}
