//! A handful of connections, opened as they are needed. Each carries many statements at once, one behind
//! the other; several of them let the server put what they commit on its disk together.
//!
//! Whatever happens to a connection or the server, a statement is tried again until it is done or
//! its patience is over. So all of them are such that they may be done twice.

use super::address::Address;
use super::fault::Fault;
use crate::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// Most connections of one process.
const CONNECTIONS: usize = 4;
/// Statements under way in all; more wait, and hold nothing but what their caller gave them.
const AT_ONCE: usize = 64;
/// How long an operation is tried in all, its repetitions included.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Longest for one try of a statement. Its connection is given up then.
const STATEMENT: Duration = Duration::from_secs(10);
/// Longest until a connection is usable, TLS and authentication included.
const OPEN: Duration = Duration::from_secs(6);
/// How long a connection that could not be opened is left alone while there are others.
const LEFT_ALONE: Duration = Duration::from_secs(5);
/// Between two tries, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What is asked of the server.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    Statement(&'a str, &'a [Param<'a>]),
    /// Several statements, done as one.
    Script(&'a str),
}

pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// Whether an earlier try may have been done too.
    pub(super) is_repeated: bool,
}

pub(super) struct Pool {
    pub(super) address: Address,
    slots: [Slot; CONNECTIONS],
    permits: Semaphore,
    patience: Duration,
}

/// A place for one connection.
#[derive(Default)]
struct Slot {
    /// Held while one is opened, so that it is opened once.
    line: tokio::sync::Mutex<Line>,
    /// Statements that use it or wait for it.
    load: AtomicUsize,
    /// When and why it could not be opened, for those that wait for it or do not live to try.
    failed: Mutex<Option<(Instant, Fault)>>,
}

#[derive(Default)]
struct Line {
    live: Option<Arc<Live>>,
    /// When the next try to open it may be made, and how long after that the next.
    next: Option<Instant>,
    delay: Duration,
}

struct Live {
    client: Client,
    driver: AbortHandle,
}

/// Counts a statement while it has a slot.
struct Chosen<'a>(&'a Slot);

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    pub(super) fn new(address: Address, patience: Duration) -> Self {
        Self {
            address,
            slots: Default::default(),
            permits: Semaphore::new(AT_ONCE),
            patience,
        }
    }

    /// Has something done, and again where that failed for the time being.
    pub(super) async fn run(&self, ask: Ask<'_>) -> Result<Answer, Error> {
        let end = Instant::now() + self.patience;
        let Ok(Ok(_permit)) = timeout_at(end, self.permits.acquire()).await else {
            let so = format!("{AT_ONCE} statements are under way, and none came to its end");
            return Err(self.unavailable(&so));
        };
        let (mut delay, mut is_repeated) = (BACKOFF.0, false);
        loop {
            let chosen = self.choose();
            let fault = match timeout_at(end, chosen.0.open(&self.address)).await {
                Err(_) => return Err(chosen.0.last().unwrap_or_else(|| self.late(STATEMENT))),
                Ok(Err(fault)) => fault,
                Ok(Ok(live)) => {
                    let until = end.min(Instant::now() + STATEMENT);
                    match timeout_at(until, live.ask(ask)).await {
                        Ok(Ok(rows)) => return Ok(Answer { rows, is_repeated }),
                        Ok(Err(error)) => {
                            is_repeated = true;
                            let fault = Fault::of(&error, &self.address.shown);
                            if matches!(fault, Fault::Elsewhere(_)) {
                                live.give_up();
                            }
                            fault
                        }
                        Err(_) => {
                            is_repeated = true;
                            live.give_up();
                            Fault::Elsewhere(self.late(STATEMENT))
                        }
                    }
                }
            };
            drop(chosen);
            let error = match fault {
                Fault::Final(error) => return Err(error),
                Fault::Again(error) | Fault::Elsewhere(error) => error,
            };
            let wake = Instant::now() + jittered(delay);
            if wake >= end {
                return Err(error);
            }
            sleep_until(wake).await;
            delay = (delay * 2).min(BACKOFF.1);
        }
    }

    /// Has something done with one try, for who asks whether the server answers: what keeps others trying
    /// is told. Its connection stays, because others are on it and have more patience.
    pub(super) async fn try_once(&self, ask: Ask<'_>, limit: Duration) -> Result<(), Error> {
        let chosen = self.choose();
        let told = |fault: Fault| fault.error().clone();
        let tried = async {
            let live = chosen.0.open(&self.address).await.map_err(told)?;
            let asked = live.ask(ask).await;
            asked.map_err(|error| told(Fault::of(&error, &self.address.shown)))
        };
        match timeout_at(Instant::now() + limit, tried).await {
            Ok(tried) => tried.map(drop),
            Err(_) => Err(chosen.0.last().unwrap_or_else(|| self.late(limit))),
        }
    }

    /// The slot with the least to do; the first of them, so that what is done one by one needs one. A
    /// server that has no more connections for us is asked through those that are open.
    fn choose(&self) -> Chosen<'_> {
        let load = |slot: &&Slot| (slot.has_failed(), slot.load.load(Ordering::Relaxed));
        let slot = self.slots.iter().min_by_key(load);
        let slot = slot.unwrap_or(&self.slots[0]);
        slot.load.fetch_add(1, Ordering::Relaxed);
        Chosen(slot)
    }

    fn late(&self, limit: Duration) -> Error {
        let seconds = limit.as_secs();
        self.unavailable(&format!("it did not answer within {seconds} s"))
    }

    fn unavailable(&self, reason: &str) -> Error {
        Error::Unavailable {
            address: self.address.shown.clone(),
            reason: reason.to_owned(),
        }
    }
}

impl Slot {
    /// Its connection, opened if it is not. Tries are put off more and more where they fail.
    async fn open(&self, address: &Address) -> Result<Arc<Live>, Fault> {
        let asked_at = Instant::now();
        let mut line = self.line.lock().await;
        if let Some(live) = &line.live
            && !live.client.is_closed()
        {
            return Ok(Arc::clone(live));
        }
        line.live = None;
        // What became of the try of another while this one waited for it is true of both.
        if let Some((_, fault)) = self.failed().as_ref().filter(|(at, _)| *at >= asked_at) {
            return Err(fault.clone());
        }
        if let Some(next) = line.next {
            sleep_until(next).await;
        }
        match Live::open(address).await {
            Ok(live) => {
                let live = Arc::new(live);
                *line = Line {
                    live: Some(Arc::clone(&live)),
                    ..Line::default()
                };
                self.remember(None);
                Ok(live)
            }
            Err(fault) => {
                line.delay = (line.delay * 2).clamp(BACKOFF.0, BACKOFF.1);
                line.next = Some(Instant::now() + jittered(line.delay));
                self.remember(Some(fault.clone()));
                Err(fault)
            }
        }
    }

    fn remember(&self, fault: Option<Fault>) {
        *self.failed() = fault.map(|fault| (Instant::now(), fault));
    }

    fn has_failed(&self) -> bool {
        let failed = self.failed();
        failed
            .as_ref()
            .is_some_and(|(at, _)| at.elapsed() < LEFT_ALONE)
    }

    fn last(&self) -> Option<Error> {
        let failed = self.failed();
        failed.as_ref().map(|(_, fault)| fault.error().clone())
    }

    fn failed(&self) -> MutexGuard<'_, Option<(Instant, Fault)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    async fn open(address: &Address) -> Result<Self, Fault> {
        let opened = address.config.connect(address.tls.clone());
        let opened = timeout_at(Instant::now() + OPEN, opened).await;
        let (client, connection) = opened
            .map_err(|_| {
                let seconds = OPEN.as_secs();
                Fault::Elsewhere(Error::Unavailable {
                    address: address.shown.clone(),
                    reason: format!("it took a connection, and did not greet within {seconds} s"),
                })
            })?
            .map_err(|error| Fault::of(&error, &address.shown))?;
        // Ends with the connection, or when nobody has the client any more. What broke it is told to
        // whoever waits for an answer.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { client, driver })
    }

    /// Ends it, so that the next statement opens another. Those that are still on it are told at once.
    fn give_up(&self) {
        self.driver.abort();
    }

    async fn ask(&self, ask: Ask<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
        match ask {
            Ask::Statement(sql, params) => self.client.query_typed(sql, params).await,
            Ask::Script(sql) => self.client.batch_execute(sql).await.map(|()| Vec::new()),
        }
    }
}

/// Up to a quarter more, so that many that failed together do not come back together.
fn jittered(delay: Duration) -> Duration {
    let (_, random) = uuid::Uuid::new_v4().as_u64_pair();
    delay + delay * (random % 64) as u32 / 256
}
