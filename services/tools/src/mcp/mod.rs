//! Servers of the Model Context Protocol.
//!
//! Each has one connection in a process, which is opened when it is first used, opened again after a loss, and
//! closed when nobody has used it for a while. What a server says is bounded like an answer over HTTP.

mod answer;
mod connection;
mod offered;
mod program;
mod way;

pub use offered::Wanted;

pub(crate) use answer::{read, told};
pub(crate) use connection::{Connection, Listed};
pub(crate) use offered::{parameters, tools};

use crate::kinds::Failed;
use crate::kinds::http::client;
use crate::oauth::{ACCESS_TOKEN, Tokens};
use crate::secrets::Used;
use crate::{Error, Secrets};
use agentfleet_schema::config::McpServer;
use connection::Clients;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;
use way::Way;

/// Longest message of a server, in bytes.
pub(crate) const LONGEST: usize = 4 * 1024 * 1024;
/// Connections that are kept open; beyond it the one that was used longest ago is closed.
const MOST_OPEN: usize = 32;
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(300);

type Opening = Shared<BoxFuture<'static, Result<Arc<Connection>, Failed>>>;

/// The servers that this process is connected to.
#[derive(Clone)]
pub struct Servers(Arc<Inner>);

struct Inner {
    secrets: Secrets,
    /// Programs that may be started.
    programs: Vec<String>,
    tokens: Tokens,
    clients: Clients,
    open: Mutex<BTreeMap<Way, Slot>>,
}

/// A connection, or one that is being opened. That goes on when the call that began it is cut off: some
/// programs take longer to start than a call may last.
struct Slot {
    opening: Opening,
    used: Instant,
}

impl Slot {
    fn is_over(&self) -> bool {
        match self.opening.peek() {
            Some(Ok(connection)) => connection.is_closed(),
            Some(Err(_)) => true,
            None => false,
        }
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Servers")
            .field("programs", &self.0.programs)
            .finish_non_exhaustive()
    }
}

impl Servers {
    /// Servers with these secrets; `programs` may be started.
    pub fn new(secrets: Secrets, programs: Vec<String>) -> Result<Self, Error> {
        // TLS needs a provider for the whole process; whoever comes first sets the same one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let clients = Clients {
            client: client().build().map_err(Error::Http)?,
            direct: client().no_proxy().build().map_err(Error::Http)?,
        };
        Ok(Self(Arc::new(Inner {
            secrets,
            programs,
            tokens: Tokens::default(),
            clients,
            open: Mutex::default(),
        })))
    }

    /// What a server offers, or what is wrong with it, without the secrets that it was sent.
    pub async fn offered(
        &self,
        server: &McpServer,
        wanted: Wanted<'_>,
    ) -> Result<crate::openapi::Imported, String> {
        let mut used = Used::default();
        let looked = async {
            let connection = self.connection(server, &mut used).await?;
            connection.listed().await.cloned()
        };
        let looked: Result<Listed, Failed> = looked.await;
        let listed = looked.map_err(|failed| used.taken_out(&failed.says).into_owned())?;
        Ok(tools(server, &listed, wanted))
    }

    /// The connection to a server. What it is sent of secrets is noted in `used`.
    pub(crate) async fn connection(
        &self,
        server: &McpServer,
        used: &mut Used,
    ) -> Result<Arc<Connection>, Failed> {
        let mut way = Way::of(server, &self.0.secrets, &self.0.programs, used)?;
        if let (Some(oauth), Way::Http { headers, .. }) = (&server.oauth, &mut way) {
            let Clients { client, direct } = &self.0.clients;
            let got = self
                .0
                .tokens
                .token(oauth, &self.0.secrets, (client, direct), used);
            let got = got.await?;
            headers.insert("authorization".to_owned(), format!("Bearer {got}"));
        }
        let opened = self.opening(&server.name, way).await;
        if opened.is_err() {
            self.forget_tokens(used).await;
        }
        opened
    }

    fn opening(&self, name: &str, way: Way) -> Opening {
        let mut open = self.0.lock();
        if let Some(slot) = open.get_mut(&way)
            && !slot.is_over()
        {
            slot.used = Instant::now();
            return slot.opening.clone();
        }
        open.retain(|_, slot| !slot.is_over());
        if open.len() >= MOST_OPEN {
            let oldest = open.iter().min_by_key(|(_, slot)| slot.used);
            if let Some(way) = oldest.map(|(way, _)| way.clone()) {
                open.remove(&way);
            }
        }
        if open.is_empty() {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
        let patience = way.patience();
        let opened = Connection::connect(name.to_owned(), way.clone(), self.0.clients.clone());
        let opened = tokio::spawn(Box::pin(opened).in_current_span());
        let opened = AbortOnDropHandle::new(opened);
        let name = name.to_owned();
        let opening = async move {
            match tokio::time::timeout(patience, opened).await {
                Ok(Ok(opened)) => opened.map(Arc::new),
                Ok(Err(error)) => Err(Failed::away(format!("MCP server `{name}`: {error}"))),
                Err(_) => Err(Failed::away(format!(
                    "MCP server `{name}` did not answer within {patience:?}"
                ))),
            }
        };
        // In a task of its own: whoever waits for it may leave.
        let opening = opening.boxed().shared();
        tokio::spawn(opening.clone());
        let slot = Slot {
            opening: opening.clone(),
            used: Instant::now(),
        };
        open.insert(way, slot);
        opening
    }

    /// Tokens that were sent in vain may have been taken back: the next call gets others.
    pub(crate) async fn forget_tokens(&self, used: &Used) {
        for token in used.noted(ACCESS_TOKEN) {
            self.0.tokens.forget(token).await;
        }
    }

    /// Opens a connection anew when it is next used.
    pub(crate) fn forget(&self, connection: &Arc<Connection>) {
        self.0.lock().retain(|_, slot| {
            let peeked = slot.opening.peek();
            !matches!(peeked, Some(Ok(known)) if Arc::ptr_eq(known, connection))
        });
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Way, Slot>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what nobody uses, until nothing is open.
async fn sweep(servers: std::sync::Weak<Inner>) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(inner) = servers.upgrade() else {
            return;
        };
        let mut open = inner.lock();
        open.retain(|_, slot| !slot.is_over() && slot.used.elapsed() < IDLE);
        if open.is_empty() {
            return;
        }
    }
}
