//! Listening, connections, and stopping.
//!
//! Stopping: no new connection; event streams end by themselves, because they see the same token;
//! requests in flight finish within the grace period; what is left is cut off.

use crate::endpoint;
use crate::error::Error;
use crate::guard::Hosts;
use crate::options::{Doors, Options};
use crate::rooms::{Room, Rooms};
use crate::state::{App, Parts};
use crate::tls::{self, Tls};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Bytes read ahead and written behind, per connection; a request's head must fit.
const BUFFER: usize = 64 * 1024;
/// After accepting failed: the system is short of something, and trying at once will not help.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// The HTTP door, bound and ready to serve.
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    routes: Router,
    app: App,
    tls: Option<Arc<Tls>>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Gateway {
    /// Binds the address. Nothing is served before [`Gateway::run`], but clients can connect.
    pub async fn serve(
        parts: Parts,
        options: Options,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let wanted = options.listen;
        let failed = |reason| Error::Listen {
            address: wanted,
            reason,
        };
        let tls = options.tls.clone().map(Tls::new).transpose()?;
        let tls = tls.map(Arc::new);
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().is_loopback() && options.token.is_none() && options.doors == Doors::All {
            tracing::warn!(%address, "the gateway asks nobody who they are, and is not on the loopback interface");
        }
        let hosts = Hosts::new(&options.allowed_hosts);
        let app = App::new(parts, options, stop);
        let routes = endpoint::routes(app.clone(), hosts);
        Ok(Self {
            listener,
            address,
            routes,
            app,
            tls,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many event streams are open.
    pub fn open_streams(&self) -> watch::Receiver<usize> {
        self.app.open_streams()
    }

    /// Serves until the gateway is told to stop, and returns when the last connection is closed.
    pub async fn run(self) {
        let Self {
            listener,
            address,
            routes,
            app,
            tls,
        } = self;
        let options = Arc::clone(&app.options);
        if let Some(tls) = &tls {
            let watching = Arc::clone(tls).watch(options.tls_look, app.stop.clone());
            tokio::spawn(watching);
        }
        let rooms = Rooms::new(options.max_connections.max(1));
        let graceful = GracefulShutdown::new();
        let mut tasks = JoinSet::new();
        tracing::info!(%address, "the gateway listens");
        loop {
            let accepted = tokio::select! {
                biased;
                () = app.stop.cancelled() => break,
                accepted = accept(&listener, &rooms) => accepted,
            };
            let (stream, room) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            while tasks.try_join_next().is_some() {}
            let connection = Connection {
                routes: routes.clone(),
                options: Arc::clone(&options),
                room,
                watcher: graceful.watcher(),
            };
            match &tls {
                None => tasks.spawn(connection.run(stalling(stream, options.stall_timeout))),
                Some(tls) => {
                    let stop = app.stop.clone();
                    tasks.spawn(connection.run_encrypted(stream, tls.acceptor(), stop))
                }
            };
        }
        drop(listener);
        if tokio::time::timeout(options.grace, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::info!(%address, "the grace period is over; what is in flight is cut off");
        }
        tasks.shutdown().await;
        tracing::info!(%address, "the gateway has stopped");
    }
}

/// A connection with its place among the others.
struct Connection {
    routes: Router,
    options: Arc<Options>,
    room: Room,
    watcher: Watcher,
}

impl Connection {
    /// Answers requests until one side is done.
    async fn run<I>(self, io: I)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let inner = TowerToHyperService::new(self.routes);
        let occupied = self.room.clone();
        let service = service_fn(move |request| {
            let busy = occupied.busy();
            let answer = inner.call(request);
            async move {
                let answer = answer.await;
                busy.done(answer.as_ref().is_ok_and(is_stream));
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.options.header_timeout)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(io), service);
        tokio::select! {
            ended = self.watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            },
            () = self.room.closed() => tracing::debug!("an idle connection made room"),
        }
    }

    /// The same over TLS, once that is agreed on. Who is slow at that, or silent, holds only this task and its
    /// room, which counts as idle.
    async fn run_encrypted(
        self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
        stop: CancellationToken,
    ) {
        let limit = self.options.handshake_timeout;
        let agreeing = agree(stream, acceptor, self.options.stall_timeout);
        let agreed = tokio::select! {
            () = stop.cancelled() => return,
            () = self.room.closed() => {
                tracing::debug!("a connection that had not begun made room");
                return;
            }
            agreed = tokio::time::timeout(limit, Box::pin(agreeing)) => agreed,
        };
        match agreed {
            Ok(Ok(Some(stream))) => self.run(stream).await,
            Ok(Ok(None)) => tracing::debug!("a client without TLS was turned away"),
            Ok(Err(error)) => tracing::debug!(%error, "a client did not agree on TLS"),
            Err(_) => tracing::debug!("a client did not agree on TLS in time"),
        }
    }
}

/// A stream that fails where its client takes nothing.
type Stalling = Pin<Box<TimeoutStream<TcpStream>>>;

/// A client that stops reading would fill all buffers, and then hold its connection.
fn stalling(stream: TcpStream, after: Duration) -> Stalling {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(after));
    Box::pin(stream)
}

/// Begins TLS; `None` of who came without it and was told so.
async fn agree(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    stall: Duration,
) -> std::io::Result<Option<Box<TlsStream<Stalling>>>> {
    if tls::is_plain(&stream).await? {
        tls::turn_away(stream).await?;
        return Ok(None);
    }
    let stream = acceptor.accept(stalling(stream, stall)).await?;
    Ok(Some(Box::new(stream)))
}

/// The next connection, and room for it.
async fn accept(listener: &TcpListener, rooms: &Rooms) -> std::io::Result<(TcpStream, Room)> {
    let (stream, _) = listener.accept().await?;
    // Events are small and should not wait for each other.
    stream.set_nodelay(true)?;
    Ok((stream, rooms.room().await))
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind == "text/event-stream")
}
