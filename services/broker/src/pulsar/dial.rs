//! Opening a connection: TCP, TLS if asked for, and Pulsar's greeting.
//!
//! The connection is our own, over the codec of the `pulsar` crate, because that crate opens its
//! sockets without `TCP_NODELAY` and offers no way to set it: a small command then waits some 40 ms
//! for the acknowledgement of the one before. Here the option is set before the first byte.

use super::commands;
use super::options::{Endpoint, PulsarOptions, Token};
use crate::Error;
use futures::{Sink, SinkExt, Stream, StreamExt};
use pulsar::error::ConnectionError;
use pulsar::message::{Codec, Message};
use pulsar::proto::ServerError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::codec::Framed;

/// Both directions of a connection, in commands.
pub(super) trait Commands:
    Stream<Item = Result<Message, ConnectionError>> + Sink<Message, Error = ConnectionError> + Send
{
}

impl<T> Commands for T where
    T: Stream<Item = Result<Message, ConnectionError>>
        + Sink<Message, Error = ConnectionError>
        + Send
{
}

pub(super) type Wire = std::pin::Pin<Box<dyn Commands>>;

/// What a broker takes if it does not say.
const USUAL_MESSAGE: usize = 5 * 1024 * 1024;

pub(super) struct Dialled {
    pub(super) url: String,
    pub(super) max_message: usize,
    pub(super) wire: Wire,
}

#[derive(Clone)]
pub(super) struct Dialler {
    tls: Option<TlsConnector>,
    pub(super) token: Option<Token>,
    pub(super) patience: Duration,
}

impl Dialler {
    /// Reads what the options name.
    pub(super) fn new(options: &PulsarOptions, tls: bool) -> Result<Self, Error> {
        if let Some(token) = &options.token {
            token.read()?;
        }
        Ok(Self {
            tls: tls.then(|| connector(options)).transpose()?,
            token: options.token.clone(),
            patience: options.operation_timeout,
        })
    }

    /// Opens a connection; through a proxy if `broker` is not the endpoint itself.
    pub(super) async fn dial(
        &self,
        endpoint: &Endpoint,
        broker: Option<&str>,
    ) -> Result<Dialled, Error> {
        let unreachable = |reason: String| Error::Unreachable {
            url: endpoint.to_string(),
            reason,
        };
        match timeout(self.patience, self.greet(endpoint, broker)).await {
            Ok(Ok(dialled)) => Ok(dialled),
            Ok(Err(refusal)) => Err(refusal),
            Err(_) => Err(unreachable(format!("no answer within {:?}", self.patience))),
        }
    }

    async fn greet(&self, endpoint: &Endpoint, broker: Option<&str>) -> Result<Dialled, Error> {
        let url = endpoint.to_string();
        let unreachable = |reason: String| Error::Unreachable {
            url: url.clone(),
            reason,
        };
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
            .await
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| unreachable(error.to_string()))?;
        let wire: Wire = match &self.tls {
            Some(tls) if endpoint.tls => {
                let name = ServerName::try_from(endpoint.host.clone())
                    .map_err(|error| unreachable(error.to_string()))?;
                let stream = tls
                    .connect(name, stream)
                    .await
                    .map_err(|error| unreachable(format!("TLS failed: {error}")))?;
                framed(stream)
            }
            _ => framed(stream),
        };
        let token = self.token.as_ref().map(Token::read).transpose()?;
        let mut wire = wire;
        wire.send(commands::connect(
            token.as_deref(),
            broker.map(str::to_owned),
        ))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
        let answer = match wire.next().await {
            Some(Ok(answer)) => answer.command,
            Some(Err(error)) => return Err(unreachable(error.to_string())),
            None => return Err(unreachable("it closed the connection at once".to_owned())),
        };
        if let Some(error) = answer.error {
            let reason = error.message;
            return Err(match ServerError::try_from(error.error) {
                Ok(ServerError::AuthenticationError | ServerError::AuthorizationError) => {
                    Error::Unauthorized { url, reason }
                }
                _ => unreachable(reason),
            });
        }
        let connected = answer.connected.ok_or_else(|| {
            unreachable("what it answers is not a greeting of Apache Pulsar".to_owned())
        })?;
        Ok(Dialled {
            max_message: connected
                .max_message_size
                .and_then(|size| usize::try_from(size).ok())
                .unwrap_or(USUAL_MESSAGE),
            url,
            wire,
        })
    }
}

fn framed<T: AsyncRead + AsyncWrite + Send + 'static>(stream: T) -> Wire {
    Box::pin(Framed::new(stream, Codec))
}

/// TLS by `ring` alone, with the public certificates and those of the options.
fn connector(options: &PulsarOptions) -> Result<TlsConnector, Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = &options.certificates {
        let wrong = |reason: String| Error::File {
            purpose: "certificates",
            path: path.display().to_string(),
            reason,
        };
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let mut found = 0;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots
                .add(certificate)
                .map_err(|error| wrong(error.to_string()))?;
            found += 1;
        }
        if found == 0 {
            return Err(wrong("it holds no certificate in PEM form".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Unreachable {
            url: options.url.clone(),
            reason: error.to_string(),
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
