//! Tokens of an OpenID Connect issuer at the door: an issuer on loopback, and what others make of its tokens.

use crate::fleet::{Fleet, options};
use crate::identity::{ended, get, log_with, send};
use agentfleet_gateway::Options;
use agentfleet_issuer::{ClaimNames, Issuer, Options as IssuerOptions, Waits};
use agentfleet_schema::Digest;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get as route;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

const HOUR: Duration = Duration::from_secs(3_600);

/// An issuer with one key at a time.
struct Place {
    url: String,
    keys: Arc<Mutex<Option<Value>>>,
    asked: Arc<AtomicUsize>,
}

type Served = (String, Arc<Mutex<Option<Value>>>, Arc<AtomicUsize>);

impl Place {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (keys, asked) = (Arc::default(), Arc::default());
        let served: Served = (url.clone(), Arc::clone(&keys), Arc::clone(&asked));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", route(describe))
            .route("/keys", route(publish))
            .with_state(served);
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, keys, asked }
    }

    /// Publishes these keys and no others; without any the issuer is away.
    fn publish(&self, keys: Option<&[&Signer]>) {
        let keys = keys.map(|keys| {
            let keys: Vec<&Value> = keys.iter().map(|signer| &signer.public).collect();
            json!({ "keys": keys })
        });
        *self.keys.lock().unwrap() = keys;
    }

    async fn fleet(&self, waits: Waits) -> Fleet {
        let issuer = Issuer::new(IssuerOptions {
            issuer: self.url.clone(),
            audiences: vec!["fleet".to_owned()],
            keys: None,
            certificates: None,
            claims: ClaimNames {
                roles: "realm_access.roles".to_owned(),
                ..ClaimNames::default()
            },
            waits,
        });
        Fleet::with(Options {
            token: Some(Digest::of(b"owner")),
            issuer: Some(Arc::new(issuer.unwrap())),
            ..options()
        })
        .await
    }

    fn claims(&self, name: &str, tenant: &str, roles: &[&str]) -> Value {
        json!({
            "iss": self.url, "aud": "fleet", "sub": name, "tenant": tenant, "exp": now() + 300,
            "realm_access": {"roles": roles},
        })
    }
}

async fn describe(State((url, ..)): State<Served>) -> Json<Value> {
    Json(json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
}

async fn publish(State((_, keys, asked)): State<Served>) -> Result<Json<Value>, StatusCode> {
    asked.fetch_add(1, Ordering::SeqCst);
    let keys = keys.lock().unwrap().clone();
    keys.map(Json).ok_or(StatusCode::SERVICE_UNAVAILABLE)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

struct Signer {
    key: EcdsaKeyPair,
    id: String,
    public: Value,
}

impl Signer {
    fn new(id: &str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let public = json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": x, "y": y});
        Self {
            key,
            id: id.to_owned(),
            public,
        }
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_text(&claims.to_string())
    }

    /// As written, also what no JSON value can be.
    fn sign_text(&self, claims: &str) -> String {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": self.id});
        let signed = format!("{}.{}", encoded(&header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.unwrap()))
    }
}

async fn status(fleet: &Fleet, token: &str) -> (u16, String) {
    let reply = get(fleet, token, "/sessions").await;
    (reply.status, reply.code())
}

fn refused() -> (u16, String) {
    (401, "not-authorized".to_owned())
}

#[tokio::test]
async fn a_token_lets_in_as_a_key_does_and_sees_its_tenant_only() {
    let place = Place::new().await;
    let signer = Signer::new("one");
    let seed = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let edwards = Ed25519KeyPair::from_pkcs8(seed.as_ref()).unwrap();
    let x = URL_SAFE_NO_PAD.encode(edwards.public_key());
    let public = json!({"kty": "OKP", "crv": "Ed25519", "kid": "two", "alg": "EdDSA", "x": x});
    *place.keys.lock().unwrap() = Some(json!({"keys": [signer.public, public]}));
    let fleet = place.fleet(Waits::default()).await;
    let ann = signer.sign(&place.claims("ann", "acme", &["producer", "operator", "unknown"]));
    let asked = json!({"question": "hello", "session_id": "s-ann", "user": "somebody else"});
    ended(&fleet, &ann, &asked).await;
    let seen = get(&fleet, &ann, "/sessions").await;
    assert_eq!(seen.status, 200);
    assert!(seen.text().contains("s-ann"), "{}", seen.text());
    assert_eq!(seen.header("ratelimit-limit"), "600");
    // Another way to sign, and another tenant.
    let claims = place.claims("bob", "bond", &["operator", "producer"]);
    let header = json!({"alg": "EdDSA", "kid": "two"});
    let signed = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = URL_SAFE_NO_PAD.encode(edwards.sign(signed.as_bytes()));
    let bob = format!("{signed}.{signature}");
    let theirs = get(&fleet, &bob, "/sessions/s-ann").await;
    assert_eq!(
        (theirs.status, theirs.code().as_str()),
        (404, "unknown-session")
    );
    log_with(&fleet, |one| {
        one.principal == "bob" && one.reason.starts_with("another-tenant")
    })
    .await;
    // Roles bound it.
    let trace = get(&fleet, &ann, "/sessions/s-ann/trace").await;
    assert_eq!(
        (trace.status, trace.code().as_str()),
        (403, "not-permitted")
    );
    let nothing = signer.sign(&place.claims("eve", "acme", &[]));
    let reply = get(&fleet, &nothing, "/sessions").await;
    assert_eq!(reply.status, 403);
    assert!(
        reply.text().contains("the caller has: none"),
        "{}",
        reply.text()
    );
    // A key and the token of the owner still count.
    assert_eq!(get(&fleet, "owner", "/sessions").await.status, 200);
}

#[tokio::test]
async fn what_is_forged_or_does_not_fit_is_refused_and_only_the_log_says_why() {
    let place = Place::new().await;
    let (signer, other) = (Signer::new("one"), Signer::new("one"));
    place.publish(Some(&[&signer]));
    let fleet = place.fleet(Waits::default()).await;
    let claims = place.claims("ann", "acme", &["operator"]);
    let good = signer.sign(&claims);
    assert_eq!(status(&fleet, &good).await.0, 200);
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        signer.sign(&claims)
    };
    let twice = claims
        .to_string()
        .replacen('{', r#"{"tenant": "bond", "#, 1);
    let parts: Vec<&str> = good.split('.').collect();
    let eve = place.claims("eve", "acme", &["operator"]);
    let headed = |algorithm: &str| {
        let header = json!({"alg": algorithm, "kid": "one"});
        format!("{}.{}", encoded(&header), parts[1])
    };
    // The public key, in every form in which a careless program would take it for a secret.
    let shared = headed("HS256");
    let secret = hmac::Key::new(hmac::HMAC_SHA256, signer.key.public_key().as_ref());
    let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, shared.as_bytes()));
    for (what, token, reason) in [
        (
            "tampered",
            format!("{}.{}.{}", parts[0], encoded(&eve), parts[2]),
            "signature",
        ),
        ("none", format!("{}.", headed("none")), "signed by none of"),
        (
            "none, signed",
            format!("{}.{}", headed("none"), parts[2]),
            "signed by none of",
        ),
        (
            "shared secret",
            format!("{shared}.{tag}"),
            "signed by none of",
        ),
        ("another key", other.sign(&claims), "signature"),
        (
            "unknown key",
            Signer::new("two").sign(&claims),
            "names no key",
        ),
        (
            "issuer",
            with("iss", "https://issuer.example".into()),
            "`iss` is not",
        ),
        (
            "audience",
            with("aud", json!(["others"])),
            "`aud` does not name",
        ),
        (
            "too early",
            with("nbf", (now() + 600).into()),
            "still to come",
        ),
        ("two tenants", signer.sign_text(&twice), "one of them twice"),
        (
            "for years",
            with("exp", (now() + 90_000).into()),
            "more than 24 hours ahead",
        ),
        ("tenant", with("tenant", "a/b".into()), "claim `tenant`"),
        (
            "too long",
            format!("{}.{}.{}", parts[0], "x".repeat(17_000), parts[2]),
            "the limit is",
        ),
    ] {
        let reply = get(&fleet, &token, "/sessions").await;
        assert_eq!((reply.status, reply.code()), refused(), "{what}");
        assert!(
            reply.text().contains("does not count here"),
            "{what}: {}",
            reply.text()
        );
        assert!(!reply.text().contains(reason), "{what}: {}", reply.text());
        // Of equal refusals in a row one is written: a fleet of its own for each.
        let alone = place.fleet(Waits::default()).await;
        assert_eq!(status(&alone, &token).await, refused(), "{what}");
        let log = log_with(&alone, |one| one.reason.contains(reason)).await;
        let text = serde_json::to_string(&log).unwrap();
        assert!(!text.contains(&token[..40]), "{what}: {text}");
    }
    let late = with("exp", (now() - 120).into());
    let reply = get(&fleet, &late, "/sessions").await;
    assert_eq!((reply.status, reply.code()), refused());
    assert!(
        reply.text().contains("the token expired"),
        "{}",
        reply.text()
    );
    log_with(&fleet, |one| {
        one.principal == "ann" && one.reason.contains("expired")
    })
    .await;
    // The graph and whoever is behind the door never saw it.
    let body = json!({"question": "hello"});
    assert_eq!(
        send(&fleet, &late, "POST", "/requests", &body).await.status,
        401
    );
}

#[tokio::test]
async fn keys_change_without_a_restart_and_made_up_ones_do_not_flood_the_issuer() {
    let place = Place::new().await;
    let (first, second) = (Signer::new("one"), Signer::new("two"));
    place.publish(Some(&[&first]));
    let claims = place.claims("ann", "acme", &["operator"]);
    let eager = place
        .fleet(Waits {
            again: Duration::ZERO,
            ..Waits::default()
        })
        .await;
    let (old, new) = (first.sign(&claims), second.sign(&claims));
    assert_eq!(status(&eager, &old).await.0, 200);
    assert_eq!(status(&eager, &new).await, refused());
    place.publish(Some(&[&second]));
    assert_eq!(status(&eager, &new).await.0, 200);
    // What was taken away counts no more, since the keys were read anew.
    assert_eq!(status(&eager, &old).await, refused());
    let patient = place
        .fleet(Waits {
            again: HOUR,
            ..Waits::default()
        })
        .await;
    let before = place.asked.load(Ordering::SeqCst);
    for number in 0..50 {
        let made_up = Signer::new(&format!("k{number}")).sign(&claims);
        assert_eq!(status(&patient, &made_up).await, refused());
    }
    assert_eq!(place.asked.load(Ordering::SeqCst) - before, 1);
    assert_eq!(status(&patient, &new).await.0, 200);
}

#[tokio::test]
async fn an_issuer_that_is_away_keeps_its_known_keys_for_a_while() {
    let place = Place::new().await;
    let signer = Signer::new("one");
    let claims = place.claims("ann", "acme", &["operator"]);
    let token = signer.sign(&claims);
    let stale = |kept| Waits {
        fresh: Duration::ZERO,
        again: Duration::ZERO,
        kept,
    };
    let (long, short) = (
        place.fleet(stale(HOUR)).await,
        place.fleet(stale(Duration::ZERO)).await,
    );
    // Nobody knows yet.
    assert_eq!(status(&long, &token).await, (503, "unavailable".to_owned()));
    log_with(&long, |one| one.reason.contains("503")).await;
    place.publish(Some(&[&signer]));
    assert_eq!(status(&long, &token).await.0, 200);
    place.publish(None);
    assert_eq!(status(&long, &token).await.0, 200);
    assert_eq!(status(&short, &token).await.0, 503);
}
