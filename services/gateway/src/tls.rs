//! HTTPS on the listener: the certificate and its key, read again when their files change.

use crate::error::Error;
use agentfleet_schema::{Digest, Millis, millis};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use x509_cert::Certificate;
use x509_cert::certificate::Version;
use x509_cert::der::Decode as _;

/// Largest file of certificates, or of a key, in bytes.
const MOST: u64 = 1024 * 1024;
/// What the server speaks below TLS.
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];
/// Most bytes of a request that is not answered which are read, so that its sender reads why.
const HEARD: u64 = 1024 * 1024;

/// Where certificate and key of the listener lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's own certificate, then those that it was issued by.
    pub certificate: PathBuf,
    /// PEM, without a password.
    pub key: PathBuf,
}

/// From when until when all certificates of a chain count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub from: Millis,
    pub until: Millis,
}

impl TlsFiles {
    /// Reads both as the gateway does when it starts, and says how long the certificates count.
    pub fn lifetime(&self) -> Result<Lifetime, Error> {
        let read = self.read();
        let key = self.pair(&read)?;
        self.lifetime_of(&key.cert)
    }

    fn of_certificate(&self, reason: impl Into<String>) -> Error {
        Error::Tls {
            what: "certificate",
            path: self.certificate.clone(),
            reason: reason.into(),
        }
    }

    fn of_key(&self, reason: impl Into<String>) -> Error {
        Error::Tls {
            what: "key",
            path: self.key.clone(),
            reason: reason.into(),
        }
    }

    /// What both files hold, or why they cannot be read.
    fn read(&self) -> [Result<Vec<u8>, String>; 2] {
        [&self.certificate, &self.key].map(|path| contents(path))
    }

    /// A certificate chain with the key of its first certificate.
    fn pair(&self, read: &[Result<Vec<u8>, String>; 2]) -> Result<CertifiedKey, Error> {
        let [certificate, key] = read;
        let certificate = certificate
            .as_ref()
            .map_err(|error| self.of_certificate(error))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
        let chain = chain.map_err(|error| self.of_certificate(format!("it is broken: {error}")))?;
        if chain.is_empty() {
            let says = "it holds no certificate: expected PEM, which begins with \
                        `-----BEGIN CERTIFICATE-----`";
            return Err(self.of_certificate(says));
        }
        self.check_version(&chain)?;
        let pem = key.as_ref().map_err(|error| self.of_key(error))?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
            pem::Error::NoItemsFound if is_encrypted(pem) => {
                let says = "its key has a password, which nobody could enter: write it without one";
                self.of_key(says)
            }
            pem::Error::NoItemsFound => {
                let says = "it holds no private key: expected PEM, which begins with \
                            `-----BEGIN PRIVATE KEY-----`";
                self.of_key(says)
            }
            error => self.of_key(format!("it is broken: {error}")),
        })?;
        let key = provider().key_provider.load_private_key(key);
        let key = key.map_err(|error| {
            let expected = "RSA of 2048 to 4096 bits, ECDSA P-256 or P-384, or Ed25519";
            self.of_key(format!(
                "its key cannot be used ({error}): expected {expected}"
            ))
        })?;
        let pair = CertifiedKey::new(chain, key);
        match pair.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
                Ok(pair)
            }
            Err(rustls::Error::InconsistentKeys(_)) => {
                let path = self.certificate.display();
                Err(self.of_key(format!(
                    "it is not the key of the first certificate in `{path}`, which must be the server's own"
                )))
            }
            Err(error) => Err(self.of_certificate(format!("it cannot be used: {error}"))),
        }
    }

    /// Refuses a certificate of the server that is older than version 3 of X.509, which no client takes.
    fn check_version(&self, chain: &[CertificateDer<'_>]) -> Result<(), Error> {
        let own = chain.first().map(|own| Certificate::from_der(own));
        // What cannot be read is told by who uses it.
        let Some(Ok(own)) = own else {
            return Ok(());
        };
        let version = match own.tbs_certificate().version() {
            Version::V3 => return Ok(()),
            Version::V2 => 2,
            Version::V1 => 1,
        };
        Err(self.of_certificate(format!(
            "its first certificate is of X.509 version {version}: expected version 3, which can name the server \
             (`subjectAltName`); `openssl req -x509 -addext subjectAltName=DNS:HOST ...` makes one"
        )))
    }

    fn lifetime_of(&self, chain: &[CertificateDer<'_>]) -> Result<Lifetime, Error> {
        let mut whole = Lifetime {
            from: Millis::MIN,
            until: Millis::MAX,
        };
        for (one, n) in chain.iter().zip(1..) {
            let read = Certificate::from_der(one).map_err(|error| {
                self.of_certificate(format!("certificate {n} of it cannot be read: {error}"))
            })?;
            let validity = read.tbs_certificate().validity();
            whole.from = whole
                .from
                .max(millis(validity.not_before.to_unix_duration()));
            whole.until = whole
                .until
                .min(millis(validity.not_after.to_unix_duration()));
        }
        Ok(whole)
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, String> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    match read() {
        Ok(bytes) if bytes.len() as u64 > MOST => Err(format!("it has more than {MOST} bytes")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

fn is_encrypted(pem: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];
    let has = |mark: &&[u8]| pem.windows(mark.len()).any(|part| part == *mark);
    marks.iter().any(has)
}

/// One TLS provider for the whole process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a look at the files came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// Nothing changed since the last look.
    Same,
    New,
    /// What is there now cannot serve, which is logged this once.
    Useless,
}

/// The TLS side of a listener.
pub(crate) struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
    /// What the files held when they were last looked at, whether it was of use or not.
    seen: Mutex<Digest>,
}

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Result<Self, Error> {
        let read = files.read();
        let current = config(files.pair(&read)?)?;
        Ok(Self {
            current: RwLock::new(current),
            seen: Mutex::new(digest(&read)),
            files,
        })
    }

    /// Takes up what the files hold, if that is something else than before and of use.
    fn look(&self) -> Looked {
        let read = self.files.read();
        let found = digest(&read);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return Looked::Same;
        }
        *seen = found;
        drop(seen);
        match self.files.pair(&read).and_then(config) {
            Ok(config) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!(
                    "the certificate was read again, and counts from the next connection on"
                );
                Looked::New
            }
            // A renewal writes one file after the other: the next look finds both.
            Err(error) => {
                tracing::warn!(%error, "the certificate that was read before stays");
                Looked::Useless
            }
        }
    }

    /// Looks at the files again and again, until told to stop.
    pub(crate) async fn watch(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
            let tls = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || tls.look()).await;
            if let Err(error) = looked {
                tracing::error!(%error, "the files of the certificate could not be looked at");
            }
        }
    }

    /// For one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&current))
    }
}

fn config(pair: CertifiedKey) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Versions(error.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
    Ok(Arc::new(config))
}

fn digest(read: &[Result<Vec<u8>, String>; 2]) -> Digest {
    let parts = read.each_ref().map(|part| match part {
        Ok(bytes) => Digest::of(bytes),
        Err(error) => Digest::of(error.as_bytes()),
    });
    Digest::of(format!("{} {}", parts[0], parts[1]).as_bytes())
}

/// Whether a connection begins as one without TLS does: with the name of a method.
pub(crate) async fn is_plain(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0].is_ascii_alphabetic() || first[0].is_ascii_whitespace()),
    }
}

/// Says how to come in, to who came without TLS.
pub(crate) async fn turn_away(mut stream: TcpStream) -> io::Result<()> {
    let says = "This address speaks HTTPS: use https:// instead of http://\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{says}",
        says.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closed with bytes unread, a connection is reset, and its client may lose the answer.
    tokio::io::copy(&mut stream.take(HEARD), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    fn certify(directory: &Path, name: &str) -> TlsFiles {
        let file = |end: &str| directory.join(format!("{name}.{end}"));
        let (certificate, key) = (file("pem"), file("key"));
        let made = Command::new("openssl")
            .args("req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=localhost".split(' '))
            .arg("-out")
            .arg(&certificate)
            .arg("-keyout")
            .arg(&key)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        TlsFiles { certificate, key }
    }

    #[test]
    fn a_pair_that_does_not_fit_is_told_once_and_the_old_one_stays() {
        let place = tempfile::tempdir().unwrap();
        let (files, next) = (
            certify(place.path(), "server"),
            certify(place.path(), "next"),
        );
        let tls = Tls::new(files.clone()).unwrap();
        let current = || Arc::clone(&tls.current.read().unwrap());
        let first = current();
        let old = [&files.certificate, &files.key].map(|path| std::fs::read(path).unwrap());
        let new = [&next.certificate, &next.key].map(|path| std::fs::read(path).unwrap());
        for (certificate, key, expected) in [
            (Some(&old[0]), &old[1], Looked::Same),
            // Half of a renewal.
            (Some(&new[0]), &old[1], Looked::Useless),
            (Some(&new[0]), &old[1], Looked::Same),
            (None, &old[1], Looked::Useless),
            (None, &old[1], Looked::Same),
            (Some(&b"x".to_vec()), &old[1], Looked::Useless),
            (Some(&new[0]), &new[1], Looked::New),
            (Some(&new[0]), &new[1], Looked::Same),
        ] {
            match certificate {
                Some(bytes) => std::fs::write(&files.certificate, bytes).unwrap(),
                None => std::fs::remove_file(&files.certificate).unwrap_or_default(),
            }
            std::fs::write(&files.key, key).unwrap();
            assert_eq!(tls.look(), expected);
            let is_first = Arc::ptr_eq(&current(), &first);
            assert_eq!(is_first, *key == old[1]);
        }
    }
}
