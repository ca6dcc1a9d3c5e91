//! A signed token (JWS, compact form), taken apart.

use crate::Refused;
use crate::key_set::{Algorithm, Key};
use crate::unambiguous;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Longest token, in bytes.
pub const MAX_TOKEN: usize = 16 * 1024;
/// Longest name of a key.
const MAX_KEY_ID: usize = 256;
/// Kinds of signed texts that are no tokens of access or identity are refused.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Whether a text has the form of a signed token.
pub fn looks_signed(text: &str) -> bool {
    text.starts_with("ey") && text.matches('.').count() == 2
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// A token whose signature is still to be checked.
pub(crate) struct Token<'a> {
    pub algorithm: Algorithm,
    pub key: Option<String>,
    signed: &'a str,
    signature: Vec<u8>,
    body: &'a str,
}

impl<'a> Token<'a> {
    pub(crate) fn read(text: &'a str) -> Result<Self, Refused> {
        let wrong = |says: &str| Refused::Unproven(says.to_owned());
        if text.len() > MAX_TOKEN {
            let size = text.len();
            return Err(wrong(&format!(
                "it has {size} bytes, the limit is {MAX_TOKEN}"
            )));
        }
        let parts: Vec<&str> = text.split('.').collect();
        let [header, body, signature] = parts[..] else {
            return Err(wrong("it has not three parts"));
        };
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part);
        let (Ok(head), Ok(signature_bytes)) = (decoded(header), decoded(signature)) else {
            return Err(wrong("it is not base64url"));
        };
        let head = unambiguous::object(&head).map(Value::Object);
        let head: Header = head
            .and_then(|head| serde_json::from_value(head).ok())
            .ok_or_else(|| {
                wrong("its header is not that of a signed token, or has a name twice")
            })?;
        let Some(algorithm) = Algorithm::named(&head.alg) else {
            let known = Algorithm::NAMES;
            return Err(wrong(&format!("it is signed by none of {known}")));
        };
        if head.crit.is_some() {
            return Err(wrong(
                "its header has `crit`, and no extension is known here",
            ));
        }
        let is_known = |typ: &String| TYPES.contains(&typ.to_ascii_lowercase().as_str());
        if head.typ.as_ref().is_some_and(|typ| !is_known(typ)) {
            return Err(wrong("its header has another `typ` than `JWT` or `at+jwt`"));
        }
        if head.kid.as_ref().is_some_and(|id| id.len() > MAX_KEY_ID) {
            return Err(wrong(&format!(
                "its `kid` has more than {MAX_KEY_ID} bytes"
            )));
        }
        Ok(Self {
            algorithm,
            key: head.kid,
            signed: &text[..header.len() + 1 + body.len()],
            signature: signature_bytes,
            body,
        })
    }

    /// What it says, if one of the keys signed it.
    pub(crate) fn claims(&self, keys: &[Key]) -> Result<Map<String, Value>, Refused> {
        let wrong = |says: &str| Refused::Unproven(says.to_owned());
        if keys.is_empty() {
            return Err(wrong(
                "it names no key that the issuer has for its algorithm",
            ));
        }
        let message = self.signed.as_bytes();
        let signed = |key: &Key| key.signed(self.algorithm, message, &self.signature);
        if !keys.iter().any(signed) {
            return Err(wrong("its signature is not that of the key"));
        }
        let body = URL_SAFE_NO_PAD.decode(self.body);
        let body = body.map_err(|_| wrong("it is not base64url"))?;
        unambiguous::object(&body)
            .ok_or_else(|| wrong("it holds no claims, or has one of them twice"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// Keys and tokens of RFC 7515 (A.2, A.3), and one of another library.
    fn examples() -> [(&'static str, Value, String); 3] {
        let claims = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let rs256 = json!({"kty": "RSA", "e": "AQAB", "n": concat!(
            "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL",
            "-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-",
            "KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h",
            "9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ")});
        let rs256_signature = concat!(
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9",
            "uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB",
            "_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rq",
            "Vt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
        );
        let es256 = json!({"kty": "EC", "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
        let es256_signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
        let ps256 = json!({"kty": "RSA", "e": "AQAB", "n": concat!(
            "sVqqTyELU5Z76nr_Eq6Ded9rPW3ENeO8uQ21_qVGPnmufRrNZLqzZR9rIlUQ1vCw5jPQcKTH4zurAqGu5zBCe4g0rdNkeiNDlCb6",
            "qsWx_k8b5oaqP61AjcdK7xLEEo4sjRYacSN2LdLVqRzuHBRFvDiRdJXBxLeYIo6DTa6EB33WY31ajKt8rqHTBUcYxr5wj9Iw2LmJ",
            "KXE3rvFvGvdR24YYFgmS7m_BC1GRWXwz2LbWyiSH4bI3fy5UfkyT-sYSGNu480z6KB7y2Ki-JodNg5UrQIumpSx8mYM4kEn1thya",
            "o0xX5AKJDu1kMLIKOT15z8Qv_aAo5fy7woQi8-5G0w")});
        let ps256_token = concat!(
            "eyJ0eXAiOiJKV1QiLCJhbGciOiJQUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.WSzNL1VCSBv2vifNbbAdnmPKG7v_XxlY2fOfTQ6ygOm4",
            "owoDgk0i69ZLnxVgDkRJ53R7rpWevLo6I4ww7o8uAZJ3baNlOPV8ABe-lsJ1GOTglKdBw0cu6NBTqXM0_BAnCXoc9EA1JCfobK00",
            "dKtU-XZQRdvDc_6D_Ho48NcMc28v9g6OUvE_AFPMrEqU2lYujXl1etuNj2QG1E67i7VUmY8wjOKct47xo4Bba-2iukEu2xihFwFc",
            "sfwXYvjUY5nY757jIhalTbSQ9PbthOpR8N8hzAvvZJtgfS4fAhnsDdV3c-hWHrRfxY16cjXRz6XdFn__8ieHTtUKPNqYzs1_Kw"
        );
        [
            (
                "RS256",
                rs256,
                format!("eyJhbGciOiJSUzI1NiJ9.{claims}.{rs256_signature}"),
            ),
            (
                "ES256",
                es256,
                format!("eyJhbGciOiJFUzI1NiJ9.{claims}.{es256_signature}"),
            ),
            ("PS256", ps256, ps256_token.to_owned()),
        ]
    }

    fn checked(token: &str, keys: &[Value]) -> Result<Map<String, Value>, String> {
        let set = json!({ "keys": keys }).to_string();
        let keys = Key::set(set.as_bytes()).unwrap();
        let token = Token::read(token).map_err(|refused| refused.to_string())?;
        let fit = |key: &&Key| key.fits(token.algorithm, token.key.as_deref());
        let keys: Vec<Key> = keys.iter().filter(fit).cloned().collect();
        token.claims(&keys).map_err(|refused| refused.to_string())
    }

    #[test]
    fn what_others_signed_counts_with_their_key_only_and_unchanged() {
        let all: Vec<Value> = examples().into_iter().map(|(_, key, _)| key).collect();
        for (name, key, token) in examples() {
            assert!(checked(&token, &all).is_ok(), "{name}");
            let others: Vec<Value> = all.iter().filter(|one| **one != key).cloned().collect();
            assert!(checked(&token, &others).is_err(), "{name}");
            let parts: Vec<&str> = token.split('.').collect();
            let changed = URL_SAFE_NO_PAD.encode(r#"{"sub": "eve"}"#);
            let changed = format!("{}.{changed}.{}", parts[0], parts[2]);
            let says = checked(&changed, &all).unwrap_err();
            assert!(says.contains("signature"), "{name}: {says}");
            let other = match name {
                "RS256" => "PS256",
                "PS256" => "RS256",
                _ => "EdDSA",
            };
            let mut tied = key;
            tied["alg"] = other.into();
            assert!(
                checked(&token, &[tied]).is_err(),
                "{name} with a key for {other}"
            );
        }
    }

    /// RFC 8037, A.4: its body is text, which a token's is not.
    #[test]
    fn an_edwards_key_checks_what_it_signed() {
        let set = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        let keys = Key::set(set.as_bytes()).unwrap();
        let signed = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(keys[0].signed(Algorithm::EdDsa, signed.as_bytes(), &signature));
        assert!(!keys[0].signed(Algorithm::EdDsa, b"other", &signature));
        assert!(!keys[0].signed(Algorithm::Rs256, signed.as_bytes(), &signature));
    }

    #[test]
    fn a_header_that_does_not_fit_is_refused_before_any_key_is_looked_for() {
        let with = |header: &str| format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode(header));
        for (token, expected) in [
            (with(r#"{"alg": "none"}"#), "signed by none of"),
            (with(r#"{"alg": "HS256"}"#), "signed by none of"),
            (with(r#"{"alg": "ES256", "crit": ["b64"]}"#), "`crit`"),
            (with(r#"{"alg": "ES256", "typ": "logout+jwt"}"#), "`typ`"),
            (with(r#"{"alg": "ES256", "alg": "ES256"}"#), "a name twice"),
            (
                with(r#"{"alg": "ES256", "x": {"y": 1, "y": 2}}"#),
                "a name twice",
            ),
            (
                with(&format!(
                    r#"{{"alg": "ES256", "kid": "{}"}}"#,
                    "x".repeat(257)
                )),
                "`kid`",
            ),
            (with("[]"), "its header"),
            ("ey.e30".to_owned(), "three parts"),
            ("ey.e30..AAAA".to_owned(), "three parts"),
            ("ey!.e30.AAAA".to_owned(), "base64url"),
            (format!("ey{}", "x".repeat(MAX_TOKEN)), "the limit is"),
        ] {
            let says = Token::read(&token).err().map(|refused| refused.to_string());
            assert!(
                says.as_ref().is_some_and(|says| says.contains(expected)),
                "{token}: {says:?}"
            );
        }
        assert!(Token::read(&with(r#"{"alg": "ES256", "typ": "at+JWT"}"#)).is_ok());
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let (_, key, token) = examples().into_iter().next().unwrap();
        for (name, value) in [
            ("use", json!("enc")),
            ("key_ops", json!(["encrypt"])),
            ("alg", json!("RS512")),
            ("kty", json!("oct")),
            ("n", json!("!")),
        ] {
            let mut other = key.clone();
            other[name] = value;
            assert!(checked(&token, &[other, json!(7)]).is_err(), "{name}");
        }
        let many = json!({"keys": vec![key; 101]}).to_string();
        assert!(Key::set(many.as_bytes()).is_err());
    }
}
