//! What a measurement left behind. A figure divides by work that was counted afterwards, in the records
//! and in the graph, and a measurement that did other work than it was asked for fails.

use crate::Result;
use agentfleet::engine::Engine;
use agentfleet_graph::{Answer, QueryOptions};
use agentfleet_schema::keys;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Sessions and committed steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) sessions: usize,
    pub(crate) steps: usize,
}

impl Work {
    pub(crate) fn times(self, runs: usize) -> Self {
        Self {
            sessions: self.sessions * runs,
            steps: self.steps * runs,
        }
    }
}

/// What a fleet has done so far, counted twice: in its records, and in its graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    records: Work,
    graph: Work,
    triples: usize,
}

const SESSIONS: &str =
    "SELECT (COUNT(DISTINCT ?x) AS ?n) FROM <urn:graph:retrieval> WHERE { ?x a tg:AgentQuestion }";
/// Each step has one node that names its record.
const STEPS: &str =
    "SELECT (COUNT(DISTINCT ?x) AS ?n) FROM <urn:graph:retrieval> WHERE { ?node tg:stepRecord ?x }";
const TRIPLES: &str = "SELECT (COUNT(*) AS ?n) FROM <urn:graph:retrieval> WHERE { ?s ?p ?o }";

impl Done {
    /// Waits until nothing is queued and the graph tells of every record, then counts.
    pub(crate) async fn count(engine: &Engine) -> Result<Self> {
        until_idle(engine).await?;
        let keys = engine.documents().list("sessions/").await?;
        let records: Vec<_> = keys.iter().filter_map(|key| keys::step_of(key)).collect();
        let sessions: BTreeSet<_> = records.iter().map(|(session, _)| session).collect();
        let records = Work {
            sessions: sessions.len(),
            steps: records.len(),
        };
        // The last batch may be in the hands of a graph-writer still.
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let graph = Work {
                sessions: number_of(engine, SESSIONS).await?,
                steps: number_of(engine, STEPS).await?,
            };
            if graph == records || Instant::now() > limit {
                let triples = number_of(engine, TRIPLES).await?;
                return Ok(Self {
                    records,
                    graph,
                    triples,
                });
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Fails unless exactly the work that was asked for was done since `before`, by the records and by
    /// the graph. Returns how many triples tell of a step.
    pub(crate) fn check(self, before: Self, asked: Work) -> Result<f64> {
        let since = |now: Work, then: Work| Work {
            sessions: now.sessions - then.sessions,
            steps: now.steps - then.steps,
        };
        for (place, did) in [
            ("the records", since(self.records, before.records)),
            ("the graph", since(self.graph, before.graph)),
        ] {
            if did != asked {
                return Err(format!(
                    "the measurement is void: it asked for {asked:?}, and {place} tell of {did:?}"
                )
                .into());
            }
        }
        Ok((self.triples - before.triples) as f64 / asked.steps as f64)
    }
}

/// Waits until no queue holds a message.
pub(crate) async fn until_idle(engine: &Engine) -> Result<()> {
    let broker = engine.broker();
    while broker.waiting().await?.iter().any(|queue| queue.ready > 0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn number_of(engine: &Engine, sparql: &str) -> Result<usize> {
    let options = QueryOptions {
        timeout: Duration::from_secs(120),
        max_rows: 1,
        apart: false,
        graphs: None,
    };
    match engine.graph.query(sparql, &[], options).await? {
        Answer::Solutions(rows) => Ok(rows.text(0, "n").ok_or("a count has no row")?.parse()?),
        Answer::Boolean(_) | Answer::Triples(_) => Err("a count gave no rows".into()),
    }
}
