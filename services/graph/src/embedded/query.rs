//! Watching over a query: its time, its memory, and a core that comes back.

use super::{Inner, memory, run};
use crate::error::Error;
use crate::{Answer, QueryOptions, sparql};
use agentfleet_schema::Term;
use oxigraph::sparql::CancellationToken;
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
        let mut query = sparql::parse(text, bindings)?;
        sparql::nest(&mut query);
        let answer = async {
            let generation = self.caught_up().await?;
            let token = CancellationToken::new();
            let cancel = CancelOnDrop(token.clone());
            let running = Running::new(&self.running);
            let task = tokio::task::spawn_blocking(move || {
                let _running = running;
                run::run(query, &generation.store, token, options.max_rows)
            });
            let answer = tokio::select! {
                answer = task => answer.map_err(|_| Error::Stopped)?,
                () = grown_by(self.limits.max_query_bytes) => {
                    Err(Error::TooMuchMemory(self.limits.max_query_bytes >> 20))
                }
            };
            drop(cancel);
            answer
        };
        match tokio::time::timeout(options.timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout(options.timeout)),
        }
    }
}

/// Returns when the process has grown by so many bytes; never, if the system does not tell.
async fn grown_by(bytes: u64) {
    // Most queries end before anything is read.
    tokio::time::sleep(LOOK_EVERY).await;
    let Some(start) = memory::resident() else {
        return std::future::pending().await;
    };
    while memory::resident().is_none_or(|now| now < start.saturating_add(bytes)) {
        tokio::time::sleep(LOOK_EVERY).await;
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
