//! HTTPS on the listener: who comes over it, who does not, and certificates that change.

use crate::fleet::{Fleet, options};
use agentfleet_gateway::{Error, Gateway, Options, TlsFiles};
use agentfleet_schema::Millis;
use futures::StreamExt as _;
use reqwest::{Certificate, Client, tls};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(60);

/// A certificate for this machine, which is its own authority, and its key.
fn certify(directory: &Path, name: &str, days: u32) -> TlsFiles {
    let file = |end: &str| directory.join(format!("{name}.{end}"));
    let files = TlsFiles {
        certificate: file("pem"),
        key: file("key"),
    };
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost \
                     -addext basicConstraints=critical,CA:FALSE \
                     -addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    let made = Command::new("openssl")
        .args(arguments.split_whitespace())
        .args(["-days", &days.to_string()])
        .arg("-out")
        .arg(&files.certificate)
        .arg("-keyout")
        .arg(&files.key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    files
}

/// A client that trusts one certificate and no other.
fn trusting(files: &TlsFiles, versions: Option<tls::Version>) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pem = std::fs::read(&files.certificate).unwrap();
    let mut client = Client::builder()
        .no_proxy()
        .tls_certs_only([Certificate::from_pem(&pem).unwrap()])
        .pool_max_idle_per_host(0);
    if let Some(version) = versions {
        client = client.tls_version_min(version).tls_version_max(version);
    }
    client.build().unwrap()
}

async fn fleet(files: &TlsFiles, more: Options) -> (Fleet, String) {
    let fleet = Fleet::with(Options {
        tls: Some(files.clone()),
        ..more
    })
    .await;
    let url = format!("https://localhost:{}", fleet.client.address.port());
    (fleet, url)
}

/// Waits until the other side has closed.
async fn ends(stream: &mut TcpStream) {
    let mut byte = [0];
    let ended = tokio::time::timeout(DEADLINE, stream.read(&mut byte)).await;
    let ended = ended.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn requests_and_events_come_over_https_and_over_nothing_else() {
    let place = TempDir::new().unwrap();
    let files = certify(place.path(), "server", 2);
    let (fleet, url) = fleet(&files, options()).await;
    for version in [
        None,
        Some(tls::Version::TLS_1_2),
        Some(tls::Version::TLS_1_3),
    ] {
        let client = trusting(&files, version);
        let health = client.get(format!("{url}/health/live")).send().await;
        assert_eq!(health.unwrap().status(), 200, "{version:?}");
    }
    let client = trusting(&files, None);
    let asked = client
        .post(format!("{url}/requests"))
        .header("accept", "text/event-stream")
        .json(&json!({ "question": "hold this?", "session_id": "s-1" }))
        .send()
        .await
        .unwrap();
    assert_eq!(asked.headers()["content-type"], "text/event-stream");
    let mut events = asked.bytes_stream();
    let mut told = String::new();
    // The first part comes while the run still goes on.
    while !told.contains("event: answer") {
        let part = events.next().await.unwrap().unwrap();
        told.push_str(std::str::from_utf8(&part).unwrap());
    }
    fleet.gate.send_replace(true);
    while let Some(part) = events.next().await {
        told.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
    }
    assert!(told.contains("You asked: hold this?"), "{told}");
    let view = client
        .get(format!("{url}/sessions/s-1"))
        .send()
        .await
        .unwrap();
    let view: Value = view.json().await.unwrap();
    assert_eq!(view["state"], "answered");

    let stranger = certify(place.path(), "stranger", 2);
    let refused = trusting(&stranger, None).get(&url).send().await;
    assert!(refused.unwrap_err().is_connect());
    // Without TLS, with a body larger than is read ahead.
    let body = vec![b'x'; 300_000];
    let plain = fleet.client.send("POST", "/requests", &[], &body).await;
    assert_eq!(plain.status, 400);
    assert!(plain.header("content-type").starts_with("text/plain"));
    assert!(plain.text().contains("https://"), "{}", plain.text());
    let plain = fleet.client.get("/health/live").await;
    assert_eq!(plain.status, 400);
    // What is neither ends, and nothing else does.
    let mut noise = TcpStream::connect(fleet.client.address).await.unwrap();
    noise.write_all(&[0; 64]).await.unwrap();
    noise.read_to_end(&mut Vec::new()).await.ok();
    assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn who_is_silent_or_slow_to_begin_holds_up_nobody() {
    let place = TempDir::new().unwrap();
    let files = certify(place.path(), "server", 2);
    let few = Options {
        max_connections: 2,
        handshake_timeout: Duration::from_secs(3_600),
        ..options()
    };
    let (fleet, url) = fleet(&files, few).await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(fleet.client.address).await.unwrap();
        // The beginning of a handshake that never goes on.
        stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        silent.push(stream);
    }
    let client = trusting(&files, None);
    let answered = client.get(&url).timeout(DEADLINE).send().await.unwrap();
    assert_eq!(answered.status(), 200);
    // The oldest of them made room, though its time was not over.
    ends(&mut silent[0]).await;
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_ended_and_one_that_is_under_way_holds_up_no_stop() {
    let place = TempDir::new().unwrap();
    let files = certify(place.path(), "server", 2);
    let short = Options {
        handshake_timeout: Duration::from_millis(50),
        ..options()
    };
    let (quick, _) = fleet(&files, short).await;
    let mut silent = TcpStream::connect(quick.client.address).await.unwrap();
    ends(&mut silent).await;

    let long = Options {
        handshake_timeout: Duration::from_secs(3_600),
        grace: Duration::from_secs(3_600),
        ..options()
    };
    let (mut patient, url) = fleet(&files, long).await;
    let _silent = TcpStream::connect(patient.client.address).await.unwrap();
    // Served after it, so it was accepted.
    let served = trusting(&files, None).get(&url).send().await.unwrap();
    assert_eq!(served.status(), 200);
    patient.stop.cancel();
    let stopped = tokio::time::timeout(DEADLINE, &mut patient.gateway).await;
    stopped.unwrap().unwrap();
}

#[tokio::test]
async fn a_new_certificate_counts_without_a_restart() {
    let place = TempDir::new().unwrap();
    let (files, next) = (
        certify(place.path(), "server", 2),
        certify(place.path(), "next", 2),
    );
    let often = Options {
        tls_look: Duration::from_millis(20),
        ..options()
    };
    let (_fleet, url) = fleet(&files, often).await;
    let (old, new) = (trusting(&files, None), trusting(&next, None));
    assert!(old.get(&url).send().await.is_ok());
    assert!(new.get(&url).send().await.is_err());
    // One after the other, as whoever renews it does.
    std::fs::copy(&next.certificate, &files.certificate).unwrap();
    std::fs::copy(&next.key, &files.key).unwrap();
    let until = Instant::now() + DEADLINE;
    while new.get(&url).send().await.is_err() {
        assert!(Instant::now() < until, "the new certificate never counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(old.get(&url).send().await.is_err());
}

/// A certificate without extensions, of version 1. Newer programs make none without being asked to.
const OLD: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIzCBywIUNkBxd0eOQNBRCQUTXJ9QEczkYoYwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNTE4NDEzN1oYDzIxMjYxMTAxMTg0MTM3
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AARt2UFWvixescBaZPJvwjLmN3+su5QEVvnEfosSFHSWto5U9HAyCxp8i3P9ICVb
4yjDiholDIDvtL9O4foWwK5GMAoGCCqGSM49BAMCA0cAMEQCICiankPHonxpfr8Q
pOLpMDbAhCOtOH3ciiLi5D77CwFMAiACKB2RkAR8WUSKQKzpa1Dj7YsqOFC+Wc1z
4wZn0urTxQ==
-----END CERTIFICATE-----
";

#[tokio::test]
async fn files_that_cannot_serve_are_named_with_what_would_be_right() {
    let place = TempDir::new().unwrap();
    let (files, other) = (
        certify(place.path(), "server", 2),
        certify(place.path(), "other", 2),
    );
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let certificate = |path: &Path| TlsFiles {
        certificate: path.to_owned(),
        ..files.clone()
    };
    let key = |path: &Path| TlsFiles {
        key: path.to_owned(),
        ..files.clone()
    };
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let open = "-----BEGIN PRIVATE KEY-----\nAAAA\n";
    let fleet = Fleet::start().await;
    for (files, what, says) in [
        (
            certificate(Path::new("/no/such.pem")),
            "certificate",
            "cannot be read",
        ),
        (certificate(place.path()), "certificate", "cannot be read"),
        (
            certificate(&write("empty.pem", "")),
            "certificate",
            "no certificate",
        ),
        (certificate(&files.key), "certificate", "no certificate"),
        (
            certificate(&write("garbage.pem", garbage)),
            "certificate",
            "cannot be used",
        ),
        (
            certificate(&write("old.pem", OLD)),
            "certificate",
            "X.509 version 1: expected version 3",
        ),
        (
            certificate(&write("large.pem", &"x".repeat(1_100_000))),
            "certificate",
            "more than 1048576 bytes",
        ),
        (key(Path::new("/no/such.key")), "key", "cannot be read"),
        (key(&files.certificate), "key", "no private key"),
        (key(&write("locked.key", locked)), "key", "without one"),
        (key(&write("open.key", open)), "key", "broken"),
        (
            key(&other.key),
            "key",
            "not the key of the first certificate",
        ),
    ] {
        let path = if what == "key" {
            &files.key
        } else {
            &files.certificate
        };
        let path = path.display().to_string();
        let tls = Options {
            tls: Some(files.clone()),
            ..options()
        };
        let served = Gateway::serve(fleet.parts.clone(), tls, CancellationToken::new()).await;
        let Err(error @ Error::Tls { .. }) = served else {
            panic!("{files:?}: {served:?}");
        };
        let told = error.to_string();
        let named = format!("{what} file `{path}`");
        assert!(
            told.contains(&named) && told.contains(says),
            "{says}: {told}"
        );
        // For `doctor` alike.
        assert_eq!(files.lifetime().unwrap_err().to_string(), told);
    }
}

#[tokio::test]
async fn a_chain_counts_as_long_as_all_of_it() {
    let place = TempDir::new().unwrap();
    let (files, issuer) = (
        certify(place.path(), "server", 400),
        certify(place.path(), "issuer", 3),
    );
    const DAY: Millis = 86_400_000;
    let now = UNIX_EPOCH.elapsed().unwrap().as_millis() as Millis;
    let left = |files: &TlsFiles| {
        let lifetime = files.lifetime().unwrap();
        assert!(lifetime.from <= now + 60_000 && lifetime.from > now - DAY);
        (lifetime.until - now + DAY / 2) / DAY
    };
    assert_eq!(left(&files), 400);
    let both = [&files.certificate, &issuer.certificate].map(|path| std::fs::read(path).unwrap());
    std::fs::write(&files.certificate, both.concat()).unwrap();
    assert_eq!(left(&files), 3);
}
