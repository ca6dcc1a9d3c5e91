//! Watching over a query: its time, its memory, and a core that comes back.
//!
//! Queries of ours are known, and run in this process: they end soon after a cancellation, because
//! they read. Those of somebody else run apart.

use super::apart::{self, Copy};
use super::{Inner, memory, run};
use crate::error::Error;
use crate::{Answer, QueryOptions, sparql};
use agentfleet_schema::Term;
use oxigraph::sparql::CancellationToken;
use spargebra::Query;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between two looks at the memory of a query that takes long.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Inner {
    pub(super) async fn query(
        self: &Arc<Self>,
        text: &str,
        bindings: &[(&str, Term)],
        options: QueryOptions,
    ) -> Result<Answer, Error> {
        let query = sparql::parse(text, bindings, options.graphs.as_deref())?;
        let answer = async {
            if options.apart {
                self.apart(query, &options).await
            } else {
                self.beside(query, &options).await
            }
        };
        match tokio::time::timeout(options.timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout(options.timeout)),
        }
    }

    /// Runs a query of ours in this process.
    async fn beside(
        self: &Arc<Self>,
        query: Query,
        options: &QueryOptions,
    ) -> Result<Answer, Error> {
        let generation = self.caught_up().await?;
        let token = CancellationToken::new();
        let cancel = CancelOnDrop(token.clone());
        let running = Running::new(&self.running);
        let reading = Arc::clone(&self.reading).read_owned().await;
        let max_rows = options.max_rows;
        let task = tokio::task::spawn_blocking(move || {
            let _running = (running, reading);
            run::run(query, &generation.store, token, max_rows)
        });
        let answer = task.await.map_err(|_| Error::Stopped)?;
        drop(cancel);
        answer
    }

    /// Runs somebody else's query in a process of its own.
    async fn apart(
        self: &Arc<Self>,
        query: Query,
        options: &QueryOptions,
    ) -> Result<Answer, Error> {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.map_err(|_| Error::Stopped)?;
        let generation = self.caught_up().await?;
        let running = Running::new(&self.running);
        let copy = EndOnDrop::default();
        let (inner, own) = (Arc::clone(self), Arc::clone(&copy.0));
        let bytes = self.limits.max_query_bytes;
        let before = memory::resident();
        let options = options.clone();
        let task = tokio::task::spawn_blocking(move || {
            // Until the copy has ended, whoever asked for it.
            let _running = (running, room);
            let started = {
                let _nobody_reads = inner.reading.blocking_write();
                let _nobody_writes = inner.following.blocking_lock();
                apart::start(&own, query, &generation.store, &options, bytes)?
            };
            drop((generation, inner));
            started.finish(&own, &options, bytes)
        });
        tokio::select! {
            answer = task => answer.map_err(|_| Error::Stopped)?,
            () = outgrown(&copy.0, before, bytes) => Err(Error::TooMuchMemory(bytes >> 20)),
        }
    }
}

/// Returns when a copy has grown by so many bytes; never, if the system does not tell. The limit of
/// its address space does not see what the allocator had in reserve.
async fn outgrown(copy: &Copy, before: Option<u64>, bytes: u64) {
    let Some(before) = before else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if copy
            .resident()
            .is_some_and(|now| now > before.saturating_add(bytes))
        {
            return;
        }
    }
}

/// Ends the copy when nobody waits for its answer any more, whatever the reason.
#[derive(Default)]
struct EndOnDrop(Arc<Copy>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Ends the evaluation when nobody waits for it any more, whatever the reason.
struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Counts a query for as long as it uses a core.
struct Running(watch::Sender<usize>);

impl Running {
    fn new(count: &watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
