//! TLS by `ring` alone, with the public certificates and those of a file. The server is verified, always.

use crate::error::Error;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as Encrypted;

/// Makes connections of one setting.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// `authorities` is a PEM file.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, Error> {
        let mut roots = rustls::RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        if let Some(path) = authorities {
            let wrong = |reason: String| {
                Error::Settings(format!("`sslrootcert={}`: {reason}", path.display()))
            };
            let all = CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?;
            let before = roots.len();
            for one in all {
                let one = one.map_err(|error| wrong(error.to_string()))?;
                roots.add(one).map_err(|error| wrong(error.to_string()))?;
            }
            if roots.len() == before {
                return Err(wrong("it holds no certificate in PEM form".to_owned()));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Settings(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

/// A connection that is about to be made, to the host of this name.
pub(super) struct To(TlsConnector, ServerName<'static>);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = To;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<To, Self::Error> {
        // A socket of this machine has no name, and no TLS either.
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(To(self.0.clone(), ServerName::try_from(host.to_owned())?))
    }
}

impl TlsConnect<Socket> for To {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Stream(Box::new(self.0.connect(self.1, socket).await?))) })
    }
}

pub(super) struct Stream(Box<Encrypted<Socket>>);

impl TlsStream for Stream {
    /// The certificate is verified, so that there is nobody between to be found out.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
