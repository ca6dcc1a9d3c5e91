//! A broker that speaks TLS with a certificate of its own, and asks for a token.

use crate::server::Server;
use crate::{message, subscribe};
use agentfleet_broker::{Broker, Error, PulsarBroker, PulsarOptions, Token};
use agentfleet_schema::topics::Topic;
use std::path::Path;
use std::process::Command;

const SECRET: &[u8] = b"a secret of these tests, of 32 bytes and more";

fn base64(bytes: &[u8], alphabet: &[u8; 64], padded: bool) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0_u8; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        for place in 0..4 {
            if place <= chunk.len() {
                let index = (word >> (18 - 6 * place)) & 63;
                text.push(char::from(alphabet[index as usize]));
            } else if padded {
                text.push('=');
            }
        }
    }
    text
}

const PLAIN: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A JSON web token for a subject, signed with a secret.
fn token(subject: &str, secret: &[u8]) -> String {
    let head = base64(br#"{"alg":"HS256","typ":"JWT"}"#, URL, false);
    let body = base64(format!(r#"{{"sub":"{subject}"}}"#).as_bytes(), URL, false);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let signature = ring::hmac::sign(&key, format!("{head}.{body}").as_bytes());
    format!("{head}.{body}.{}", base64(signature.as_ref(), URL, false))
}

/// A key store for the broker, and its certificate for us; both by the JDK's own tool.
fn certify(directory: &Path) {
    let keytool = |arguments: &str| {
        let made = Command::new("keytool")
            .current_dir(directory)
            .args(arguments.split(' '))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    let store = "-keystore broker.p12 -storetype PKCS12 -storepass password -alias broker";
    keytool(&format!(
        "-genkeypair {store} -keyalg EC -validity 2 -dname CN=localhost -ext san=dns:localhost,ip:127.0.0.1"
    ));
    keytool(&format!("-exportcert {store} -rfc -file broker.pem"));
}

fn settings(directory: &Path, port: u16) -> String {
    let store = directory.join("broker.p12");
    let admin = token("admin", SECRET);
    let secret = base64(SECRET, PLAIN, true);
    format!(
        "brokerServicePortTls={port}
tlsEnabledWithKeyStore=true
tlsKeyStoreType=PKCS12
tlsKeyStore={0}
tlsKeyStorePassword=password
tlsTrustStoreType=PKCS12
tlsTrustStore={0}
tlsTrustStorePassword=password
authenticationEnabled=true
authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
tokenSecretKey=data:;base64,{secret}
authorizationEnabled=true
superUserRoles=admin
brokerClientAuthenticationPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
brokerClientAuthenticationParameters=token:{admin}
",
        store.display()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_tls_and_tokens_is_used_and_a_refusal_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let extra = directory.path().join("extra.conf");
    std::fs::write(&extra, settings(directory.path(), port)).unwrap();
    let admin = token("admin", SECRET);
    let server = tokio::task::spawn_blocking({
        let (extra, admin) = (extra.display().to_string(), admin.clone());
        move || {
            Server::start_with(&[
                ("PULSAR_EXTRA_CONF", &extra),
                ("PULSAR_ADMIN_TOKEN", &admin),
            ])
        }
    })
    .await
    .unwrap();

    let file = directory.path().join("token");
    std::fs::write(&file, format!("{admin}\n")).unwrap();
    let mut options = server.options();
    options.url = format!("pulsar+ssl://localhost:{port}");
    options.certificates = Some(directory.path().join("broker.pem"));
    options.token = Some(Token::File(file));
    let broker = PulsarBroker::connect(options.clone()).await.unwrap();
    let topic = Topic::named("trusted");
    let mut consumer = subscribe(&broker, &topic).await;
    broker.publish(vec![message(&topic, "a")]).await.unwrap();
    let delivery = consumer.receive(1).await.unwrap().remove(0);
    assert_eq!(delivery.payload.as_ref(), b"a");
    broker
        .ensure(&[agentfleet_schema::topics::AGENT_RESPONSE], &[])
        .await
        .unwrap();

    let refused = async |change: &dyn Fn(&mut PulsarOptions)| {
        let mut options = options.clone();
        change(&mut options);
        PulsarBroker::connect(options).await.unwrap_err()
    };
    let forged = token("admin", b"another secret, long enough for the check");
    let wrong = refused(&|options| options.token = Some(Token::Text(forged.clone()))).await;
    assert!(matches!(wrong, Error::Unauthorized { .. }), "{wrong}");
    assert!(wrong.to_string().contains("Check the token"), "{wrong}");
    assert!(!wrong.to_string().contains(&forged));
    let none = refused(&|options| options.token = None).await;
    assert!(matches!(none, Error::Unauthorized { .. }), "{none}");
    let stranger = token("stranger", SECRET);
    let stranger = refused(&|options| options.token = Some(Token::Text(stranger.clone()))).await;
    assert!(matches!(stranger, Error::Unauthorized { .. }), "{stranger}");
    let untrusted = refused(&|options| options.certificates = None).await;
    assert!(untrusted.to_string().contains("TLS failed"), "{untrusted}");
    let missing = refused(&|options| options.certificates = Some("/no/such.pem".into())).await;
    assert!(matches!(missing, Error::File { .. }), "{missing}");
    let missing = refused(&|options| options.token = Some(Token::File("/no/token".into()))).await;
    assert!(missing.to_string().contains("/no/token"), "{missing}");
}
