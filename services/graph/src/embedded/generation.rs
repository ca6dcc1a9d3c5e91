//! One reading of the log into memory.
//!
//! A generation only grows, by rows in the order of their `seq`. After an erasure a new one is
//! read and takes its place, because the engine never gives memory back for what is deleted.

use super::log::{self, Row};
use crate::error::Error;
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::prov;
use agentfleet_storage::Database;
use oxigraph::model::{GraphNameRef, NamedOrBlankNodeRef, QuadRef, TermRef};
use oxigraph::store::Store;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Bytes of log read at once: bounds memory beside the graph, and how long a reader is held.
pub(crate) const CHUNK: usize = 2 << 20;

/// Called while the log is read, with quads so far and quads in all.
pub(crate) type Progress<'p> = &'p (dyn Fn(u64, u64) + Send + Sync);

pub(crate) struct Generation {
    pub(crate) store: Store,
    pub(crate) epoch: i64,
    /// The last row applied.
    applied: AtomicI64,
    /// Quads of all rows applied; one that two batches hold counts twice.
    quads: AtomicU64,
    /// Sessions by when they began.
    begun: RwLock<BTreeSet<Begun>>,
}

/// When a session began, so written that texts compare as instants do, and its URI.
type Begun = (String, String);

impl Generation {
    fn new(epoch: i64) -> Result<Self, Error> {
        Ok(Self {
            store: Store::new().map_err(Error::engine)?,
            epoch,
            applied: AtomicI64::new(0),
            quads: AtomicU64::new(0),
            begun: RwLock::default(),
        })
    }

    pub(crate) fn applied(&self) -> i64 {
        self.applied.load(Ordering::Acquire)
    }

    pub(crate) fn quads(&self) -> u64 {
        self.quads.load(Ordering::Relaxed)
    }

    /// Sessions, the newest first: those that began before an instant, or at it with a lesser URI.
    pub(crate) fn begun(&self, before: Option<(&str, &str)>, max: usize) -> Vec<(String, String)> {
        let begun = self.begun.read().unwrap_or_else(PoisonError::into_inner);
        let until = before.map_or(Bound::Unbounded, |(at, session)| {
            Bound::Excluded((comparable(at), session.to_owned()))
        });
        let found = begun.range((Bound::Unbounded, until)).rev();
        found.take(max).cloned().collect()
    }

    /// Applies rows, all or none. One caller at a time.
    pub(crate) fn apply(&self, rows: &[Row]) -> Result<(), Error> {
        let before = self.applied();
        let mut transaction = self.store.start_transaction().map_err(Error::engine)?;
        let (mut last, mut quads, mut begun) = (before, 0, Vec::new());
        for row in rows.iter().filter(|row| row.seq > before) {
            let take = |quad: QuadRef<'_>| {
                begun.extend(beginning(quad));
                transaction.insert(quad);
            };
            super::body::decode(&row.body, take).map_err(|reason| Error::Damaged {
                seq: row.seq,
                reason,
            })?;
            last = row.seq;
            quads += row.quads;
        }
        transaction.commit().map_err(Error::engine)?;
        if !begun.is_empty() {
            let mut all = self.begun.write().unwrap_or_else(PoisonError::into_inner);
            all.extend(begun);
        }
        self.quads.fetch_add(quads, Ordering::Relaxed);
        self.applied.store(last, Ordering::Release);
        Ok(())
    }

    /// Reads the whole log. The next chunk is read while one is applied.
    pub(crate) async fn load(
        database: &Database,
        max: u64,
        progress: Progress<'_>,
    ) -> Result<(Arc<Self>, Rate), Error> {
        loop {
            let started = Instant::now();
            let (epoch, total) = database
                .read(|connection| Ok((log::epoch(connection)?, log::quads(connection)?)))
                .await?;
            if total > max {
                return Err(Error::Full { quads: total, max });
            }
            let generation = Arc::new(Self::new(epoch)?);
            let mut since = read(database, 0).await?;
            while !since.rows.is_empty() {
                let last = since.rows.last().map_or(0, |row| row.seq);
                let applying = Arc::clone(&generation);
                let rows = since.rows;
                let applied = tokio::task::spawn_blocking(move || applying.apply(&rows));
                let (applied, next) = tokio::join!(applied, read(database, last));
                applied.map_err(|_| Error::Stopped)??;
                since = next?;
                progress(generation.quads(), total.max(generation.quads()));
            }
            // What was erased meanwhile may have been read before: begin again.
            if since.epoch == epoch {
                let rate = Rate::of(generation.quads(), started.elapsed());
                return Ok((generation, rate));
            }
        }
    }
}

/// The session that a quad says began, and when.
fn beginning(quad: QuadRef<'_>) -> Option<Begun> {
    let (NamedOrBlankNodeRef::NamedNode(session), TermRef::Literal(at)) =
        (quad.subject, quad.object)
    else {
        return None;
    };
    let is_told = quad.predicate.as_str() == prov::STARTED_AT_TIME
        && matches!(quad.graph_name, GraphNameRef::NamedNode(graph) if graph.as_str() == uris::RETRIEVAL_GRAPH)
        && uris::session_of(session.as_str()).is_some();
    is_told.then(|| (comparable(at.value()), session.as_str().to_owned()))
}

/// An instant in UTC with all the digits that its fraction may have.
fn comparable(at: &str) -> String {
    let at = at.trim_end_matches('Z');
    let (seconds, fraction) = at.split_once('.').unwrap_or((at, ""));
    format!("{seconds}.{fraction:0<9}")
}

pub(crate) async fn read(database: &Database, after: i64) -> Result<log::Since, Error> {
    Ok(database
        .read(move |connection| log::since(connection, after, CHUNK))
        .await?)
}

/// How fast a log is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    per_second: f64,
}

impl Rate {
    /// Too few quads tell nothing; then a rate measured on two modest cores stands in.
    fn of(quads: u64, elapsed: Duration) -> Self {
        let per_second = if quads < 50_000 {
            400_000.0
        } else {
            quads as f64 / elapsed.as_secs_f64().max(0.001)
        };
        Self { per_second }
    }

    pub(crate) fn estimate(self, quads: u64) -> Duration {
        Duration::from_secs_f64(quads as f64 / self.per_second)
    }
}
