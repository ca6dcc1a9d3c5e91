//! What the graph knows of siblings: completions are told to it, and counted in it.
//!
//! Where the fleet has a coordination dataset, siblings are counted there alone, and a fan-out that is
//! concluded is forgotten: the graph may then be as far behind as it is, and holds everything for ever.

use crate::completion::{Place, step_of};
use crate::{Error, Parts};
use agentfleet_core::fan_in::Completion;
use agentfleet_graph::{Batch, EraseBy, Graph, QueryOptions};
use agentfleet_schema::records::{CompletionStatus, FanOutRecord};
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg};
use agentfleet_schema::{CorrelationId, SessionId, Source, Spent, Term, uris};

/// The siblings of open fan-outs.
#[derive(Clone, Debug)]
pub(crate) struct Siblings {
    parts: Parts,
}

impl Siblings {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts }
    }

    /// Where siblings are counted.
    fn counted_in(&self) -> &dyn Graph {
        self.parts
            .coordination
            .as_deref()
            .unwrap_or(&*self.parts.graph)
    }

    /// Tells of completions, each of a fan-out.
    pub(crate) async fn tell(
        &self,
        completions: impl IntoIterator<Item = (Place, Batch)>,
    ) -> Result<(), Error> {
        let is_apart = self.parts.coordination.is_some();
        let batches = completions.into_iter().map(|(place, mut batch)| {
            if is_apart {
                // One message may tell of completions of several fan-outs, which end one by one.
                batch.conversation = name_of(&place);
                batch.key = format!("{}#{}", batch.key, batch.conversation);
            }
            batch
        });
        let mut batches: Vec<Batch> = batches.collect();
        batches.dedup_by(|a, b| a.key == b.key);
        insert(self.counted_in(), batches).await
    }

    /// Tells of completions that the graph has forgotten.
    pub(crate) async fn tell_again(&self, place: &Place, told: Vec<Batch>) -> Result<(), Error> {
        if self.parts.coordination.is_some() {
            insert(&*self.parts.graph, told.clone()).await?;
        }
        self.tell(told.into_iter().map(|batch| (place.clone(), batch)))
            .await
    }

    /// Forgets the siblings of a fan-out that is concluded or erased, where they are counted apart from the graph.
    pub(crate) async fn forget(&self, place: &Place) -> Result<(), Error> {
        if let Some(coordination) = &self.parts.coordination {
            coordination
                .erase(EraseBy::Conversation(name_of(place)))
                .await?;
        }
        Ok(())
    }

    /// The fan-outs of which siblings are counted apart from the graph, not more than `most`.
    pub(crate) async fn counted_apart(&self, most: usize) -> Result<Vec<Place>, Error> {
        let Some(coordination) = &self.parts.coordination else {
            return Ok(Vec::new());
        };
        let sparql = format!(
            "SELECT DISTINCT ?correlation ?parent FROM <{}> WHERE {{ \
               ?completion <{RDF_TYPE}> <{}> ; <{}> ?correlation . \
               OPTIONAL {{ ?completion <{}> ?parent }} }} LIMIT {most}",
            uris::RETRIEVAL_GRAPH,
            tg::SUBAGENT_COMPLETION,
            tg::CORRELATION_ID,
            tg::PARENT_SESSION_ID,
        );
        let options = QueryOptions::default();
        let found = coordination.select(&sparql, &[], options).await?;
        let mut places = Vec::new();
        for row in 0..found.rows.len() {
            let text = |name| found.text(row, name);
            let correlation = CorrelationId::from(text("correlation").unwrap_or_default());
            let parent = text("parent").map(SessionId::from);
            let step = parent.as_ref().and_then(|it| step_of(it, &correlation));
            match (parent, step) {
                (Some(parent), Some(step)) => places.push((parent, step)),
                // Of another program: the graph knows whose it is.
                _ => places.extend(self.places_of(&[(correlation, None)]).await?),
            }
        }
        Ok(places)
    }

    /// The fan-outs of correlations, by what the graph knows of them, else by the session that the
    /// completion names as the one above.
    pub(crate) async fn places_of(
        &self,
        named: &[(CorrelationId, Option<SessionId>)],
    ) -> Result<Vec<Place>, Error> {
        let sparql = format!(
            "SELECT DISTINCT ?session FROM <{}> WHERE {{ \
               ?fanout <{RDF_TYPE}> <{}> ; <{}> ?correlation ; <{}> ?session }}",
            uris::RETRIEVAL_GRAPH,
            tg::FAN_OUT,
            tg::CORRELATION_ID,
            prov::WAS_GENERATED_BY,
        );
        let mut places = Vec::new();
        for (correlation, parent) in named {
            let bindings = [("correlation", Term::text(correlation.as_str()))];
            let options = QueryOptions::default();
            let found = self.parts.graph.select(&sparql, &bindings, options).await?;
            let session = found.text(0, "session").and_then(uris::session_of);
            let Some(session) = session.or_else(|| parent.clone()) else {
                continue;
            };
            places.extend(step_of(&session, correlation).map(|step| (session, step)));
        }
        Ok(places)
    }

    /// The distinct completions of a fan-out, as they were told.
    pub(crate) async fn completions(
        &self,
        fan_out: &FanOutRecord,
    ) -> Result<Vec<Completion>, Error> {
        let sparql = format!(
            "SELECT DISTINCT ?session ?status ?partial ?document ?tokens ?cost ?models ?tools ?unpriced ?expected \
             FROM <{}> WHERE {{ \
               ?completion <{}> ?correlation ; <{RDF_TYPE}> <{}> ; <{}> ?session . \
               OPTIONAL {{ ?completion <{}> ?status }} \
               OPTIONAL {{ ?completion <{}> ?partial }} \
               OPTIONAL {{ ?completion <{}> ?document }} \
               OPTIONAL {{ ?completion <{}> ?tokens }} \
               OPTIONAL {{ ?completion <{}> ?cost }} \
               OPTIONAL {{ ?completion <{}> ?models }} \
               OPTIONAL {{ ?completion <{}> ?tools }} \
               OPTIONAL {{ ?completion <{}> ?unpriced }} \
               OPTIONAL {{ ?fanout <{}> ?correlation ; <{}> ?expected }} }}",
            // Loaded knowledge may claim anything; only what the fleet wrote counts.
            uris::RETRIEVAL_GRAPH,
            tg::CORRELATION_ID,
            tg::SUBAGENT_COMPLETION,
            tg::SUBAGENT_SESSION_ID,
            tg::STATUS,
            tg::PARTIAL,
            tg::RESULT,
            tg::TOKENS,
            tg::COST_TOTAL,
            tg::MODEL_CALLS_TOTAL,
            tg::TOOL_CALLS_TOTAL,
            tg::UNPRICED_CALLS_TOTAL,
            tg::CORRELATION_ID,
            tg::EXPECTED_SIBLINGS,
        );
        let bindings = [("correlation", Term::text(fan_out.correlation.as_str()))];
        let found = self
            .counted_in()
            .select(&sparql, &bindings, QueryOptions::default())
            .await?;
        let expected = fan_out.children.len();
        if let Some(told) = found.text(0, "expected")
            && told.parse() != Ok(expected)
        {
            let correlation = &fan_out.correlation;
            tracing::error!(%correlation, told, expected, "the graph tells of other siblings than the record, which counts");
        }
        let mut completions: Vec<Completion> = (0..found.rows.len())
            .map(|row| {
                let text = |name| found.text(row, name).unwrap_or_default();
                Completion {
                    session: SessionId::from(text("session")),
                    // The orchestration spec has a status on errors only.
                    status: found
                        .text(row, "status")
                        .map_or(CompletionStatus::Answered, CompletionStatus::from_literal),
                    partial: text("partial") == "true",
                    document: text("document").to_owned(),
                    sources: Vec::new(),
                    spent: Spent {
                        tokens: text("tokens").parse().unwrap_or_default(),
                        cost: text("cost").parse().unwrap_or_default(),
                        model_calls: text("models").parse().unwrap_or_default(),
                        tool_calls: text("tools").parse().unwrap_or_default(),
                        unpriced_calls: text("unpriced").parse().unwrap_or_default(),
                    },
                }
            })
            .collect();
        completions.sort_by(|a, b| a.session.cmp(&b.session));
        Ok(completions)
    }

    /// What the answers of a correlation rest on, for its verdict.
    pub(crate) async fn find_sources(
        &self,
        correlation: &CorrelationId,
        completions: &mut [Completion],
    ) -> Result<(), Error> {
        let sparql = format!(
            "SELECT ?session ?source (MIN(?label) AS ?title) FROM <{}> WHERE {{ \
               ?completion <{}> ?correlation ; <{}> ?session ; <{}> ?answer . \
               ?answer <{}>|<{}> ?source . OPTIONAL {{ ?source <{RDFS_LABEL}> ?label }} \
             }} GROUP BY ?session ?source ORDER BY ?session ?source",
            uris::RETRIEVAL_GRAPH,
            tg::CORRELATION_ID,
            tg::SUBAGENT_SESSION_ID,
            prov::WAS_DERIVED_FROM,
            tg::CITES,
            tg::CONSULTED,
        );
        let bindings = [("correlation", Term::text(correlation.as_str()))];
        let options = QueryOptions::default();
        let found = self
            .counted_in()
            .select(&sparql, &bindings, options)
            .await?;
        for row in 0..found.rows.len() {
            let text = |name| found.text(row, name).unwrap_or_default();
            let of = |it: &&mut Completion| it.session.as_str() == text("session");
            if let Some(completion) = completions.iter_mut().find(of) {
                completion.sources.push(Source {
                    uri: text("source").to_owned(),
                    title: text("title").to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// What a fan-out's siblings belong to in the coordination dataset, so that they can be erased together. What
/// belongs to a run has its root there, too, as in the graph.
fn name_of((session, step): &Place) -> String {
    format!("{session}/{step}")
}

/// Writes completions. One that is no RDF is left out, so that others do not wait for it; the
/// graph-writer parks its copy.
async fn insert(graph: &dyn Graph, mut batches: Vec<Batch>) -> Result<(), Error> {
    if batches.is_empty() {
        return Ok(());
    }
    let Err(error) = graph.insert(batches.clone()).await else {
        return Ok(());
    };
    if error.retry().is_some() {
        return Err(error.into());
    }
    batches.retain(|batch| match agentfleet_graph::validate(batch) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "a completion is no RDF");
            false
        }
    });
    Ok(graph.insert(batches).await?)
}
