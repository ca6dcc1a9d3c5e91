//! From what a token says to a principal and its roles.

use crate::{Refused, Whose};
use agentfleet_schema::names::{MAX_PLAIN, is_plain, is_tenant};
use agentfleet_schema::{Millis, Principal};
use serde_json::{Map, Value};

/// How far the clocks of issuer and fleet may be apart.
const LEEWAY: Millis = 60_000;
/// How far ahead the end of a token may be. Nobody can take one back, so whoever gets hold of one that counts
/// for years would come in for years.
const MOST_AHEAD: Millis = 24 * 3_600_000;
/// Longest name of a principal, in bytes.
const MAX_NAME: usize = 256;
/// Most permissions of one token, and the longest of them.
const PERMISSIONS: (usize, usize) = (100, 256);

/// Where a token says what. A name with dots leads into objects, unless a claim has that very name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimNames {
    pub name: String,
    pub tenant: String,
    pub roles: String,
    pub permissions: String,
    /// The tenant of tokens that say none.
    pub default_tenant: Option<String>,
}

impl Default for ClaimNames {
    fn default() -> Self {
        Self {
            name: "sub".to_owned(),
            tenant: "tenant".to_owned(),
            roles: "roles".to_owned(),
            permissions: "permissions".to_owned(),
            default_tenant: None,
        }
    }
}

/// Who holds a token that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    pub principal: Principal,
    /// Those with names that roles can have; whether there are such roles is for the config to say.
    pub roles: Vec<String>,
}

/// Reads the claims of a token that the issuer made. `at` is when it was shown, and `late` how long its time may
/// be over by then.
pub(crate) fn read(
    claims: &Map<String, Value>,
    names: &ClaimNames,
    (issuer, audiences): (&str, &[String]),
    (at, late): (Millis, Millis),
) -> Result<Bearer, Refused> {
    let text = |name: &str| find(claims, name).and_then(Value::as_str);
    // One that is not of this issuer says nothing that counts.
    if text("iss") != Some(issuer) {
        let says = format!("`iss` is not `{issuer}`");
        return Err(Refused::Unproven(says));
    }
    let is_name = |name: &&str| {
        !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control)
    };
    let name = text(&names.name).filter(is_name);
    let tenant = match find(claims, &names.tenant) {
        None | Some(Value::Null) => names.default_tenant.as_deref(),
        Some(said) => said.as_str(),
    };
    let tenant = tenant.filter(|tenant| is_tenant(tenant));
    let whose = Whose {
        name: name.unwrap_or_default().to_owned(),
        tenant: tenant.unwrap_or_default().to_owned(),
    };
    let unfit = |says: String| Refused::Unfit(whose.clone(), says);
    let seconds = |name: &str| claims.get(name).map(instant);
    match seconds("exp") {
        Some(Some(until)) if until.saturating_sub(LEEWAY) > at.saturating_add(MOST_AHEAD) => {
            return Err(unfit("its `exp` is more than 24 hours ahead".to_owned()));
        }
        Some(Some(until)) if until.saturating_add(LEEWAY).saturating_add(late) > at => {}
        Some(Some(_)) => return Err(Refused::Expired(whose)),
        Some(None) | None => return Err(unfit("it has no `exp`".to_owned())),
    }
    match seconds("nbf") {
        None => {}
        Some(Some(from)) if from.saturating_sub(LEEWAY) <= at => {}
        Some(_) => return Err(unfit("its `nbf` is still to come".to_owned())),
    }
    let meant = list(claims.get("aud"));
    if !meant.iter().any(|one| audiences.contains(one)) {
        let wanted = audiences.join("`, `");
        return Err(unfit(format!("`aud` does not name `{wanted}`")));
    }
    let Some(name) = name else {
        let (claim, most) = (&names.name, MAX_NAME);
        let says = format!("claim `{claim}` is no name of 1 to {most} bytes");
        return Err(unfit(says));
    };
    let Some(tenant) = tenant else {
        let (claim, most) = (&names.tenant, MAX_PLAIN);
        let says =
            format!("claim `{claim}` is no tenant of 1 to {most} letters, digits and `-_@+`");
        return Err(unfit(says));
    };
    let roles = list(find(claims, &names.roles));
    let permissions = list(find(claims, &names.permissions));
    let (most, longest) = PERMISSIONS;
    if permissions.len() > most || permissions.iter().any(|one| one.len() > longest) {
        let claim = &names.permissions;
        let says = format!(
            "claim `{claim}` has more than {most} entries, or one of more than {longest} bytes"
        );
        return Err(unfit(says));
    }
    Ok(Bearer {
        principal: Principal {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            permissions,
        },
        roles: roles.into_iter().filter(|role| is_plain(role)).collect(),
    })
}

/// A claim by its name, or else by a path of names.
fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    find(claims.get(first)?.as_object()?, rest)
}

/// Texts in a list, or in one text with spaces between them, as `scope` has it.
fn list(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => text.split_ascii_whitespace().map(str::to_owned).collect(),
        Some(Value::Array(all)) => {
            let texts = all.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Seconds since the epoch as milliseconds; some issuers write fractions.
fn instant(value: &Value) -> Option<Millis> {
    let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0)?;
    Some((seconds * 1_000.0) as Millis)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    const NOW: Millis = 1_000_000_000;

    fn bearer(change: &Value) -> Result<Bearer, Refused> {
        let mut claims = json!({
            "iss": "https://issuer.example", "aud": ["other", "fleet"], "sub": "ann", "tenant": "acme",
            "exp": NOW / 1_000 + 300, "realm_access": {"roles": ["analyst", "admin", "producer"]},
            "https://fleet.example/may": "blog.* mail.send",
        });
        let claims = claims.as_object_mut().unwrap();
        for (name, value) in change.as_object().unwrap() {
            claims.insert(name.clone(), value.clone());
        }
        let names = ClaimNames {
            roles: "realm_access.roles".to_owned(),
            permissions: "https://fleet.example/may".to_owned(),
            ..ClaimNames::default()
        };
        let audiences = ["fleet".to_owned()];
        read(
            claims,
            &names,
            ("https://issuer.example", &audiences),
            (NOW, 0),
        )
    }

    #[test]
    fn a_token_says_who_it_is_and_what_they_may() {
        let bearer = bearer(&json!({})).unwrap();
        assert_eq!(bearer.principal.name, "ann");
        assert_eq!(bearer.principal.tenant, "acme");
        assert_eq!(bearer.principal.permissions, ["blog.*", "mail.send"]);
        assert_eq!(bearer.roles, ["analyst", "admin", "producer"]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let now = NOW / 1_000;
        for (change, expected) in [
            (json!({"aud": "fleet"}), ""),
            (json!({"exp": now - 59}), ""),
            (json!({"exp": now as f64 + 0.5}), ""),
            (json!({"exp": now + 86_460}), ""),
            (json!({"exp": now + 86_461}), "more than 24 hours ahead"),
            (json!({"exp": 1e300}), "more than 24 hours ahead"),
            (json!({"nbf": now + 60}), ""),
            (json!({"iss": "https://issuer.example/"}), "`iss` is not"),
            (json!({"iss": ["https://issuer.example"]}), "`iss` is not"),
            (json!({"exp": now - 60}), "expired"),
            (json!({"exp": null}), "no `exp`"),
            (json!({"exp": "soon"}), "no `exp`"),
            (json!({"exp": -1}), "no `exp`"),
            (json!({"nbf": now + 61}), "still to come"),
            (json!({"nbf": "x"}), "still to come"),
            (json!({"aud": "fleet2"}), "`aud` does not name `fleet`"),
            (json!({"aud": null}), "`aud` does not name"),
            (json!({"sub": ""}), "claim `sub`"),
            (json!({"sub": "a\u{7}"}), "claim `sub`"),
            (json!({"tenant": "a b"}), "claim `tenant`"),
            (json!({"tenant": "../acme"}), "claim `tenant`"),
            (json!({"tenant": "acme.lab"}), "claim `tenant`"),
            (
                json!({"https://fleet.example/may": vec!["x"; 101]}),
                "more than 100 entries",
            ),
        ] {
            let says = bearer(&change).err().map(|refused| refused.to_string());
            let says = says.unwrap_or_default();
            assert_eq!(says.is_empty(), expected.is_empty(), "{change}: {says}");
            assert!(says.contains(expected), "{change}: {says}");
        }
    }
}
