//! Reading runs from their records, which are there before any triple is.

use crate::error::Failure;
use crate::store::Store;
use agentfleet_console::trace::Trace;
use agentfleet_documents::Documents;
use agentfleet_schema::records::{FanOutRecord, StepRecord};
use agentfleet_schema::topics::EXPLAINABILITY;
use agentfleet_schema::{SessionId, Triples, keys, uris};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::sync::Arc;

/// Fewest characters of a session id that may stand for all of it.
const SHORTEST: usize = 6;
/// Most sessions named where a beginning fits several.
const NAMED: usize = 5;

/// The session of an id, of its beginning where that fits one alone, or of a URI of the session. What
/// fits none stays as it is.
pub(crate) async fn session(store: &Store, text: &str) -> Result<SessionId, Failure> {
    let text = text.trim();
    let given = uris::session_of(text).unwrap_or_else(|| SessionId::new(text));
    let begin = given.as_str();
    if begin.len() < SHORTEST {
        return Ok(given);
    }
    let keys = store.documents.list(&format!("sessions/{begin}")).await?;
    let mut found: Vec<&str> = keys
        .iter()
        .filter_map(|key| key.split('/').nth(1))
        .collect();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(SessionId::new(*one)),
        [] => Ok(given),
        several if several.contains(&begin) => Ok(given),
        several => {
            let named: Vec<String> = several
                .iter()
                .take(NAMED)
                .map(|id| format!("`{id}`"))
                .collect();
            let more = if several.len() > NAMED { ", ..." } else { "" };
            Err(Failure::usage(format!(
                "`{begin}` is the beginning of {} sessions: {}{more}",
                several.len(),
                named.join(", ")
            )))
        }
    }
}

/// What one session left behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// Its steps, in order.
    pub steps: Vec<StepRecord>,
    pub fan_outs: Vec<FanOutRecord>,
}

impl Run {
    pub(crate) async fn read(
        documents: &dyn Documents,
        session: &SessionId,
    ) -> Result<Self, Failure> {
        let mut run = Self::default();
        loop {
            let step = run.steps.len() as u32;
            let wanted = [keys::outcome(session, step), keys::fan_out(session, step)];
            let found = documents.get_many(&wanted).await?;
            let Some(record) = decoded(&found, 0) else {
                return Ok(run);
            };
            run.steps.push(record);
            run.fan_outs.extend(decoded::<FanOutRecord>(&found, 1));
        }
    }

    /// The step that ended it.
    pub(crate) fn end(&self) -> Option<&StepRecord> {
        self.steps
            .last()
            .filter(|record| record.outcome.is_terminal())
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = SessionId> {
        let children = self.fan_outs.iter().flat_map(|fan_out| &fan_out.children);
        children.map(|child| child.session.clone())
    }
}

fn decoded<T: DeserializeOwned>(found: &[Option<Arc<[u8]>>], at: usize) -> Option<T> {
    serde_json::from_slice(found.get(at)?.as_ref()?).ok()
}

/// A session and all below it, each after its parent.
pub(crate) async fn tree(
    documents: &dyn Documents,
    root: &SessionId,
) -> Result<Vec<(SessionId, Run)>, Failure> {
    let mut tree = Vec::new();
    let mut seen = HashSet::from([root.clone()]);
    let mut open = vec![root.clone()];
    while let Some(session) = open.pop() {
        let run = Run::read(documents, &session).await?;
        open.extend(run.children().filter(|child| seen.insert(child.clone())));
        tree.push((session, run));
    }
    Ok(tree)
}

/// The provenance of a tree, as its records state it: the graph may be behind them.
pub(crate) async fn trace(documents: &dyn Documents, root: &SessionId) -> Result<Trace, Failure> {
    let tree = tree(documents, root).await?;
    let steps = tree.iter().flat_map(|(_, run)| &run.steps);
    let triples: Vec<_> = steps
        .flat_map(|record| &record.publications)
        .filter(|publication| publication.topic == EXPLAINABILITY.as_str())
        .filter_map(|publication| serde_json::from_str::<Triples>(&publication.body).ok())
        .flat_map(|message| message.triples)
        .collect();
    Ok(Trace::from_triples(&triples))
}
