//! The keys that an issuer publishes (JWK Set), and what each may check.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// Most keys of one issuer.
const MOST_KEYS: usize = 100;

/// How a token may be signed. Closed: `none` is no signature, and a shared secret (`HS256`) no key of an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(crate) const NAMES: &str = "RS256, PS256, ES256, EdDSA";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "PS256" => Some(Self::Ps256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    id: Option<String>,
    /// The only one it may be used with, if the issuer says so.
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key as it is published.
#[derive(Deserialize)]
struct Published {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Key {
    /// The keys of a set that a signature can be checked with; others are left out.
    pub(crate) fn set(body: &[u8]) -> Result<Vec<Self>, String> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if set.keys.len() > MOST_KEYS {
            let count = set.keys.len();
            return Err(format!("it has {count} keys, the limit is {MOST_KEYS}"));
        }
        let published = set.keys.into_iter();
        let published = published.filter_map(|key| serde_json::from_value(key).ok());
        Ok(published.filter_map(Self::of).collect())
    }

    fn of(published: Published) -> Option<Self> {
        let is_other = |purpose: &String| purpose != "sig";
        let cannot = |may: &Vec<String>| !may.iter().any(|one| one == "verify");
        if published.purpose.as_ref().is_some_and(is_other)
            || published.key_ops.as_ref().is_some_and(cannot)
        {
            return None;
        }
        let algorithm = match &published.alg {
            // One that is not known here checks nothing.
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
        let material = match (published.kty.as_str(), published.crv.as_deref()) {
            ("RSA", _) => {
                // `ring` takes numbers without leading zeros.
                let number = |text| {
                    let bytes = bytes(text)?;
                    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                    bytes.get(zeros..).map(<[u8]>::to_vec)
                };
                Material::Rsa {
                    n: number(&published.n)?,
                    e: number(&published.e)?,
                }
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&published.x)?, bytes(&published.y)?);
                let is_whole = x.len() == 32 && y.len() == 32;
                is_whole.then(|| Material::P256([&[4], &*x, &*y].concat()))?
            }
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(&published.x)?),
            _ => return None,
        };
        Some(Self {
            id: published.kid,
            algorithm,
            material,
        })
    }

    /// Whether a token may be checked with it. One that names no key may be of any.
    pub(crate) fn fits(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        let is_of_kind = match algorithm {
            Algorithm::Rs256 | Algorithm::Ps256 => matches!(self.material, Material::Rsa { .. }),
            Algorithm::Es256 => matches!(self.material, Material::P256(_)),
            Algorithm::EdDsa => matches!(self.material, Material::Ed25519(_)),
        };
        is_of_kind
            && self.algorithm.is_none_or(|only| only == algorithm)
            && id.is_none_or(|id| self.id.as_deref() == Some(id))
    }

    /// Whether it signed a message. An algorithm of another kind of key never did.
    pub(crate) fn signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let checked =
            match (&self.material, algorithm) {
                (Material::Rsa { n, e }, Algorithm::Rs256) => RsaPublicKeyComponents { n, e }
                    .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature),
                (Material::Rsa { n, e }, Algorithm::Ps256) => RsaPublicKeyComponents { n, e }
                    .verify(&signature::RSA_PSS_2048_8192_SHA256, message, signature),
                (Material::P256(point), Algorithm::Es256) => {
                    UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                        .verify(message, signature)
                }
                (Material::Ed25519(key), Algorithm::EdDsa) => {
                    UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
                }
                (Material::Rsa { .. } | Material::P256(_) | Material::Ed25519(_), _) => {
                    return false;
                }
            };
        checked.is_ok()
    }
}
