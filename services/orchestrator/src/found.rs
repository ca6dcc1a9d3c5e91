//! What the records say of a step before it is worked, and of everything above it.

use crate::error::Stop;
use agentfleet_core::{Overruled, fan_in, say};
use agentfleet_documents::Documents;
use agentfleet_schema::records::{ClosedRecord, EndedBy, FanInRecord};
use agentfleet_schema::{AgentRequest, keys};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// What the store knows of a step before it is worked.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub tombstone: bool,
    pub outcome: Option<Arc<[u8]>>,
    pub published: bool,
    pub closed: Option<ClosedRecord>,
    /// A fan-out above this session has its verdict: nobody waits for this work.
    pub decided_above: bool,
    pub fan_in: Option<FanInRecord>,
    /// An attempt before this one began to call something, or not to.
    pub called: bool,
    /// An attempt before this one debited something.
    pub debited: bool,
    /// The keys of the step, if they were listed.
    pub listed: Vec<String>,
}

/// What is asked about everything above a step.
pub(crate) fn above(request: &AgentRequest) -> Vec<String> {
    let root = request.root();
    let own = verdict_key(request);
    let ancestors = request.control.ancestors.iter();
    let ancestors = ancestors.map(|above| keys::fan_in(&above.session, above.step));
    [keys::tombstone(root), keys::closed(root)]
        .into_iter()
        .chain(ancestors)
        .chain(own)
        .collect()
}

/// How many of the keys [`asked`] are of the step.
const OF_STEP: usize = 4;

/// Everything that the protocol asks before a step is worked. The verdict that a synthesis answers is the
/// last, and the only one that may be there before a step that nobody began.
pub(crate) fn asked(request: &AgentRequest) -> Vec<String> {
    let (session, step) = (&request.session_id, request.step);
    let own: [String; OF_STEP] = [
        keys::outcome(session, step),
        keys::published(session, step),
        keys::intent(session, step, 0),
        keys::debit(session, step, 1),
    ];
    own.into_iter().chain(above(request)).collect()
}

/// How many of the keys [`asked`] keep a step from being begun, if one of them is there.
pub(crate) fn bars(asked: &[String], request: &AgentRequest) -> usize {
    asked.len() - usize::from(request.control.fan_in_step.is_some())
}

/// Where the verdict lies that a synthesis answers.
fn verdict_key(request: &AgentRequest) -> Option<String> {
    Some(keys::fan_in(
        fan_in::session_of(request),
        request.control.fan_in_step?,
    ))
}

impl Found {
    /// Reads what was found for [`above`].
    pub(crate) fn above(
        request: &AgentRequest,
        bodies: &[Option<Arc<[u8]>>],
    ) -> Result<Self, Stop> {
        let body = |at: usize| bodies.get(at).and_then(Option::as_ref);
        let ancestors = 2..2 + request.control.ancestors.len();
        let closed = keys::closed(request.root());
        let fan_in = verdict_key(request);
        Ok(Self {
            tombstone: body(0).is_some(),
            closed: body(1).map(|body| decode(&closed, body)).transpose()?,
            decided_above: ancestors.clone().any(|at| body(at).is_some()),
            fan_in: match (fan_in, body(ancestors.end)) {
                (Some(key), Some(body)) => Some(fan_in::read_by(request, decode(&key, body)?)),
                _ => None,
            },
            ..Self::default()
        })
    }

    /// Whether nobody waits for this step any more, and how it then ends.
    pub(crate) fn unwanted(&self) -> Option<Overruled> {
        if let Some(closed) = &self.closed {
            let (reason, termination) = say::tree_closed(closed);
            return Some(Overruled {
                by: EndedBy::Closed,
                finish: say::cancelled(&reason, termination),
            });
        }
        self.decided_above.then(|| {
            let (reason, termination) = say::decided_above();
            Overruled {
                by: EndedBy::DecidedAbove,
                finish: say::cancelled(&reason, termination),
            }
        })
    }

    /// Reads what was found for [`asked`].
    pub(crate) fn of_asked(
        request: &AgentRequest,
        bodies: &[Option<Arc<[u8]>>],
    ) -> Result<Self, Stop> {
        let (of_step, of_tree) = bodies.split_at(OF_STEP.min(bodies.len()));
        let is_there = |at: usize| of_step.get(at).is_some_and(Option::is_some);
        Ok(Self {
            outcome: of_step.first().cloned().flatten(),
            published: is_there(1),
            called: is_there(2),
            debited: is_there(3),
            ..Self::above(request, of_tree)?
        })
    }

    /// Looks up a step that was begun before: what there is of it is listed, its attempts with the rest.
    pub(crate) async fn list(
        documents: &dyn Documents,
        request: &AgentRequest,
    ) -> Result<Self, Stop> {
        let (session, step) = (&request.session_id, request.step);
        let (folder, wanted) = (keys::step(session, step), above(request));
        let (listed, of_tree) =
            tokio::try_join!(documents.list(&folder), documents.get_many(&wanted))?;
        let outcome = keys::outcome(session, step);
        Ok(Self {
            outcome: if listed.contains(&outcome) {
                documents.get(&outcome).await?
            } else {
                None
            },
            published: listed.contains(&keys::published(session, step)),
            called: listed.contains(&keys::intent(session, step, 0)),
            debited: listed.contains(&keys::debit(session, step, 1)),
            listed,
            ..Self::above(request, &of_tree)?
        })
    }
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, body: &[u8]) -> Result<T, Stop> {
    serde_json::from_slice(body).map_err(|error| Stop::unreadable(key, &error))
}
