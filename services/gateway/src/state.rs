//! What the handlers share.

use crate::accept::Intake;
use crate::identity::Door;
use crate::options::Options;
use crate::problem::{Code, Problem};
use crate::seams::Status;
use agentfleet_graph::{Graph, QueryOptions};
use agentfleet_runs::{Approvals, Endings};
use agentfleet_runtime::Records;
use agentfleet_schema::SessionId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{
    AcquireError, Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch,
};
use tokio_util::sync::CancellationToken;

/// How many sessions can be taken in at once, within one process.
const STRIPES: usize = 64;

/// Everything a gateway works with.
#[derive(Clone)]
pub struct Parts {
    /// The stores, as requests are taken into them.
    pub intake: Intake,
    pub graph: Arc<dyn Graph>,
    pub endings: Endings,
    pub approvals: Approvals,
    pub status: Arc<dyn Status>,
}

impl Parts {
    pub(crate) fn records(&self) -> Records<'_> {
        Records::new(&*self.intake.documents)
    }

    /// Why a request cannot be taken in, where the queue or the documents do not answer.
    pub(crate) async fn trouble(&self) -> Option<Problem> {
        let queue = async { self.intake.broker.ready().await.map_err(Problem::from) };
        let documents = async { self.intake.documents.ready().await.map_err(Problem::from) };
        futures::try_join!(queue, documents).err()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// One gateway, as its handlers see it.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub parts: Parts,
    pub options: Arc<Options>,
    /// Cancelled when the gateway should stop.
    pub stop: CancellationToken,
    pub door: Arc<Door>,
    queries: Arc<Semaphore>,
    /// The part of them that tenants may have: their queries do not keep the owner from asking.
    of_tenants: Arc<Semaphore>,
    /// When something was last written to see whether that can be done, and what came of it.
    pub written: Arc<Mutex<Option<(Instant, Result<(), String>)>>>,
    /// Held while all fan-outs are searched for a subagent.
    pub searching: Arc<Mutex<()>>,
    streams: Arc<Semaphore>,
    open_streams: watch::Sender<usize>,
    taking_in: Arc<Vec<Mutex<()>>>,
}

/// How many queries may run at once, in all or of tenants.
pub(crate) fn most_queries(options: &Options, of_tenant: bool) -> usize {
    let most = if of_tenant {
        options.max_queries / 2
    } else {
        options.max_queries
    };
    most.max(1)
}

type QueryTurn<'a> = (Option<SemaphorePermit<'a>>, SemaphorePermit<'a>);

impl App {
    pub(crate) fn new(parts: Parts, options: Options, stop: CancellationToken) -> Self {
        Self {
            door: Arc::new(Door::new(Arc::clone(&parts.intake.documents))),
            parts,
            queries: Arc::new(Semaphore::new(most_queries(&options, false))),
            of_tenants: Arc::new(Semaphore::new(most_queries(&options, true))),
            written: Arc::default(),
            searching: Arc::default(),
            streams: Arc::new(Semaphore::new(options.max_streams.max(1))),
            options: Arc::new(options),
            stop,
            open_streams: watch::Sender::new(0),
            taking_in: Arc::new((0..STRIPES).map(|_| Mutex::new(())).collect()),
        }
    }

    /// How a question of the gateway's own is asked.
    pub(crate) fn query_options(&self) -> QueryOptions {
        QueryOptions {
            timeout: self.options.query_timeout,
            max_rows: self.options.max_rows,
            ..QueryOptions::default()
        }
    }

    /// Held while a query of somebody's runs.
    pub(crate) async fn query_turn(&self, of_tenant: bool) -> Result<QueryTurn<'_>, AcquireError> {
        let own = if of_tenant {
            Some(self.of_tenants.acquire().await?)
        } else {
            None
        };
        Ok((own, self.queries.acquire().await?))
    }

    /// Held while a session is taken in, so that two equal requests at once are published once.
    /// Between processes the commit decides; this only saves the work.
    pub(crate) async fn taking_in(&self, session: &SessionId) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        session.hash(&mut hasher);
        let stripe = self.taking_in.get(hasher.finish() as usize % STRIPES)?;
        Some(stripe.lock().await)
    }

    /// Room for one more event stream.
    pub(crate) fn stream(&self) -> Result<OpenStream, Problem> {
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let most = self.options.max_streams;
            Problem::new(
                Code::TooBusy,
                format!("{most} event streams are open, which is the most"),
            )
            .hint("try again soon, or poll `GET /sessions/{id}`")
        })?;
        self.open_streams.send_modify(|open| *open += 1);
        Ok(OpenStream {
            _permit: permit,
            open: self.open_streams.clone(),
        })
    }

    pub(crate) fn open_streams(&self) -> watch::Receiver<usize> {
        self.open_streams.subscribe()
    }
}

/// Counts an event stream for as long as it is open.
#[derive(Debug)]
pub(crate) struct OpenStream {
    _permit: OwnedSemaphorePermit,
    open: watch::Sender<usize>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.send_modify(|open| *open -= 1);
    }
}
