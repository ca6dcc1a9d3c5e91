//! The backstop of the deadlines: a look at every fan-out that should be over and is not.
//!
//! A deadline message can be lost where a broker deletes what waits too long. Then nobody concludes
//! a fan-out with a sibling that never ends. The sweep asks the graph for fan-outs that are past
//! their deadline and have no synthesis, and looks at each as if its deadline had come (LV-1). Like
//! everything here it is level-triggered: any number may sweep, at any time.
//!
//! Waits for people are looked at with it: whoever answered may have died before that was published.

use crate::completion::step_of;
use crate::fan_in::FanIn;
use crate::siblings::Siblings;
use crate::{Error, PATIENCE, Parts};
use agentfleet_core::provenance::date_time;
use agentfleet_graph::QueryOptions;
use agentfleet_runs::Approvals;
use agentfleet_schema::vocabulary::{RDF_TYPE, prov, tg, xsd};
use agentfleet_schema::{CorrelationId, Millis, SessionId, Term, keys, millis, uris};
use std::time::Duration;

/// Fan-outs looked at in one sweep, the oldest first; the next one takes the others.
const MOST: usize = 200;

/// Fan-outs whose siblings are counted apart from the graph, of which a sweep asks whether they are over.
const MOST_COUNTED: usize = 10_000;

/// What is not over: fan-outs, or calls that wait for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub count: u64,
    /// How long the oldest has waited; zero if there is none.
    pub oldest: Duration,
}

/// Looks after fan-outs whose deadline passed unseen.
#[derive(Clone, Debug)]
pub struct Sweep {
    parts: Parts,
    fan_in: FanIn,
    siblings: Siblings,
    approvals: Approvals,
}

impl Sweep {
    pub fn new(parts: Parts) -> Self {
        Self {
            fan_in: FanIn::new(parts.clone()),
            siblings: Siblings::new(parts.clone()),
            approvals: Approvals::new(parts.clone()),
            parts,
        }
    }

    /// Looks once. Answers how many fan-outs were overdue.
    pub async fn once(&self) -> Result<usize, Error> {
        match self.approvals.tend().await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "answers that nobody had published, or waited for"),
            Err(error) => tracing::warn!(%error, "waits for people are put off"),
        }
        if let Err(error) = self.forget_concluded().await {
            tracing::warn!(%error, "siblings of concluded fan-outs stay counted for now");
        }
        let overdue = self.overdue().await?;
        for (session, correlation) in &overdue {
            let Some(step) = step_of(session, correlation) else {
                // Not of this fleet.
                continue;
            };
            tracing::warn!(%session, step, "no deadline message ended this fan-out in time");
            if let Err(error) = self.fan_in.evaluate(&(session.clone(), step), &[]).await {
                tracing::warn!(%session, step, %error, "an overdue fan-out is put off");
            }
        }
        Ok(overdue.len())
    }

    /// How many fan-outs wait for their siblings, and since when the oldest does.
    pub async fn open(&self) -> Result<Open, Error> {
        let sparql = format!(
            "SELECT (COUNT(DISTINCT ?fanout) AS ?open) (MIN(?began) AS ?oldest) {}",
            unconcluded(&format!("?fanout <{}> ?began .", prov::GENERATED_AT_TIME)),
        );
        let found = self
            .parts
            .graph
            .select(&sparql, &[], QueryOptions::default())
            .await?;
        let count = found.text(0, "open").and_then(|text| text.parse().ok());
        let oldest = found.text(0, "oldest").and_then(|text| {
            let began = chrono::DateTime::parse_from_rfc3339(text).ok()?;
            Some(began.timestamp_millis())
        });
        Ok(Open {
            count: count.unwrap_or_default(),
            oldest: self.since(oldest),
        })
    }

    /// How many calls wait for a person, and since when the oldest does.
    pub async fn waiting(&self) -> Result<Open, Error> {
        let open = self.approvals.open().await?;
        Ok(Open {
            count: open.len() as u64,
            oldest: self.since(open.first().map(|pause| pause.asked.asked_at)),
        })
    }

    fn since(&self, instant: Option<Millis>) -> Duration {
        let passed = instant.map_or(0, |instant| self.parts.host.now() - instant);
        Duration::from_millis(passed.max(0).unsigned_abs())
    }

    /// Forgets siblings of fan-outs that are over. An aggregator whose message was given to another, who
    /// concluded and forgot, may write its completion after that and die: no message tells of it.
    async fn forget_concluded(&self) -> Result<(), Error> {
        let places = self.siblings.counted_apart(MOST_COUNTED).await?;
        let wanted: Vec<String> = places
            .iter()
            .flat_map(|(session, step)| {
                [keys::fan_out(session, *step), keys::fan_in(session, *step)]
            })
            .collect();
        let there = self.parts.documents.get_many(&wanted).await?;
        for (place, there) in places.iter().zip(there.chunks(2)) {
            let is_open = matches!(there, [Some(_), None]);
            if !is_open {
                self.fan_in.evaluate(place, &[]).await?;
            }
        }
        Ok(())
    }

    async fn overdue(&self) -> Result<Vec<(SessionId, CorrelationId)>, Error> {
        let sparql = format!(
            "SELECT DISTINCT ?session ?correlation ?deadline {} ORDER BY ?deadline LIMIT {MOST}",
            unconcluded(&format!(
                "?fanout <{}> ?deadline . FILTER (?deadline < ?before)",
                tg::JOIN_DEADLINE
            )),
        );
        let before = self.parts.host.now() - millis(PATIENCE);
        let bindings = [("before", Term::typed(date_time(before), xsd::DATE_TIME))];
        let found = self
            .parts
            .graph
            .select(&sparql, &bindings, QueryOptions::default())
            .await?;
        let rows = 0..found.rows.len();
        let read = |row| {
            let text = |name| found.text(row, name).unwrap_or_default();
            let session = uris::session_of(text("session"))?;
            Some((session, CorrelationId::from(text("correlation"))))
        };
        Ok(rows.filter_map(read).collect())
    }
}

/// Dataset and pattern of every `?fanout` of a `?session` with a `?correlation` that has no
/// synthesis, `further` patterns with them.
fn unconcluded(further: &str) -> String {
    format!(
        // Loaded knowledge may claim anything; only what the fleet wrote counts.
        "FROM <{}> WHERE {{ \
           ?fanout <{RDF_TYPE}> <{}> ; <{}> ?correlation ; <{}> ?session . {further} \
           FILTER NOT EXISTS {{ ?synthesis <{RDF_TYPE}> <{}> ; <{}> ?correlation }} \
           FILTER NOT EXISTS {{ ?session <{}> ?ended }} \
         }}",
        uris::RETRIEVAL_GRAPH,
        tg::FAN_OUT,
        tg::CORRELATION_ID,
        prov::WAS_GENERATED_BY,
        tg::SYNTHESIS,
        tg::CORRELATION_ID,
        prov::ENDED_AT_TIME,
    )
}
