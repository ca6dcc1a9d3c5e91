//! Secrets that tools send and nobody else sees: by name, from a file or the environment.
//!
//! A tool's item says `${NAME}`. The value is read when a call is made, so a new one counts at once, and is
//! taken out of whatever a service answers before anything is recorded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// What a secret's variable begins with; its name follows.
pub const VARIABLE: &str = "AGENTFLEET_SECRET_";
/// Shorter values are no secrets: taking them out of texts would tear words apart.
const SHORTEST: usize = 6;
/// What an address takes without encoding.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Where secrets lie.
#[derive(Clone, Default)]
pub struct Secrets {
    variables: BTreeMap<String, String>,
    folder: Option<PathBuf>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

/// Values that a text was filled with.
#[derive(Clone, Default)]
pub(crate) struct Used(Vec<(String, String)>);

impl Used {
    /// Notes a value that was got, and is as secret as those that were read.
    pub(crate) fn note(&mut self, name: &str, value: &str) {
        if value.len() >= SHORTEST {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    /// What was noted under a name.
    pub(crate) fn noted(&self, name: &str) -> impl Iterator<Item = &str> {
        let noted = self.0.iter().filter(move |(known, _)| known == name);
        noted.map(|(_, value)| value.as_str())
    }

    /// A text without the values.
    pub(crate) fn taken_out<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for (name, value) in &self.0 {
            for form in forms(value) {
                if text.contains(form.as_str()) {
                    text = Cow::Owned(text.replace(form.as_str(), &format!("[secret {name}]")));
                }
            }
        }
        text
    }
}

/// A value as services usually send it back: as it is, in JSON, in an address, in Base64. The longest come
/// first, so that no rest of one stays.
fn forms(value: &str) -> Vec<String> {
    let quoted = Value::from(value).to_string();
    let in_json = quoted[1..quoted.len() - 1].to_owned();
    let slashes = in_json.replace('/', "\\/");
    let in_address = utf8_percent_encode(value, UNRESERVED).to_string();
    let mut forms = vec![
        value.to_owned(),
        in_json,
        slashes,
        in_address.replace("%20", "+"),
        in_address.to_ascii_lowercase(),
        in_address,
    ];
    // What stands before a secret shifts its Base64: of each place that it can begin at, the part that is
    // the secret's own.
    for shift in 0..3 {
        let mut bytes = vec![0; shift];
        bytes.extend_from_slice(value.as_bytes());
        let whole = bytes.len() / 3 * 3;
        let own = STANDARD.encode(&bytes[..whole]);
        let skip = if shift == 0 { 0 } else { 4 };
        if own.len() >= skip + SHORTEST {
            forms.push(own[skip..].to_owned());
        }
    }
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    forms.dedup();
    forms
}

impl Secrets {
    /// Those of the environment, and those of a folder, in which each is a file of its name.
    pub fn new(environment: impl IntoIterator<Item = (String, String)>, folder: PathBuf) -> Self {
        let of = |(name, value): (String, String)| {
            Some((name.strip_prefix(VARIABLE)?.to_owned(), value))
        };
        Self {
            variables: environment.into_iter().filter_map(of).collect(),
            folder: Some(folder),
        }
    }

    /// The value of a secret.
    pub fn get(&self, name: &str) -> Result<String, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!(
                "`{name}` is no name of a secret: use letters, digits and `_`"
            ));
        }
        if let Some(value) = self.variables.get(name) {
            return checked(name, value);
        }
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        let text = path.as_ref().map(fs::read_to_string);
        match text {
            Some(Ok(text)) => checked(name, text.trim_end_matches(['\r', '\n'])),
            _ => Err(format!(
                "secret `{name}` is not there: set `{VARIABLE}{name}`, or write it to the file `secrets/{name}` \
                 in the data directory"
            )),
        }
    }

    /// A text with each `${NAME}` replaced.
    pub(crate) fn fill(&self, text: &str, used: &mut Used) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, behind)) = after.split_once('}') else {
                return Err("`${` is not closed by `}`".to_owned());
            };
            let value = self.get(name)?;
            filled.push_str(before);
            filled.push_str(&value);
            used.0.push((name.to_owned(), value));
            rest = behind;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

fn checked(name: &str, value: &str) -> Result<String, String> {
    if value.len() < SHORTEST {
        return Err(format!("secret `{name}` has fewer than {SHORTEST} bytes"));
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn secrets() -> Secrets {
        let variable = (format!("{VARIABLE}KEY"), "s3cret-value".to_owned());
        Secrets::new([variable], "/nowhere".into())
    }

    #[test]
    fn a_secret_is_filled_in_and_taken_out_again() {
        let mut used = Used::default();
        let filled = secrets().fill("Bearer ${KEY}!", &mut used).unwrap();
        assert_eq!(filled, "Bearer s3cret-value!");
        assert_eq!(
            used.taken_out("you sent s3cret-value"),
            "you sent [secret KEY]"
        );
    }

    #[test]
    fn a_secret_that_comes_back_in_another_form_is_taken_out_too() {
        let value = "Zq7\"x&/+ SECRET-value99";
        let used = Used(vec![("KEY".to_owned(), value.to_owned())]);
        for text in [
            r#"{"told": "Zq7\"x&/+ SECRET-value99"}"#,
            "key=Zq7%22x%26%2F%2B%20SECRET-value99&x",
            "key=Zq7%22x%26%2F%2B+SECRET-value99&x",
            // Base64 of it alone, of `Bearer ` and it, and of `user:` and it.
            "WnE3IngmLysgU0VDUkVULXZhbHVlOTk=",
            "QmVhcmVyIFpxNyJ4Ji8rIFNFQ1JFVC12YWx1ZTk5",
            "dXNlcjpacTcieCYvKyBTRUNSRVQtdmFsdWU5OQ==",
        ] {
            let told = used.taken_out(text);
            assert!(told.contains("[secret KEY]"), "{told}");
            for part in ["SECRET", "U0VDUkVU", "NFQ1JF", "TRUNSRV"] {
                assert!(!told.contains(part), "{told}");
            }
        }
    }

    #[test]
    fn what_is_no_secret_is_named() {
        for (text, expected) in [
            (
                "${NONE}",
                "secret `NONE` is not there: set `AGENTFLEET_SECRET_NONE`",
            ),
            ("${../x}", "`../x` is no name of a secret"),
            ("${KEY", "is not closed"),
        ] {
            let error = secrets().fill(text, &mut Used::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
