//! Reading runs from their records, which are there before any triple is.

use crate::error::Failure;
use crate::store::Store;
use agentfleet_console::trace::Trace;
use agentfleet_core::provenance::{date_time, tell};
use agentfleet_documents::Documents;
use agentfleet_gateway::roots_of;
use agentfleet_graph::Graph;
use agentfleet_runs::{Started, started};
use agentfleet_runtime::Records;
use agentfleet_schema::records::Tombstone;
use agentfleet_schema::{SessionId, keys, uris};
use std::time::{Duration, Instant};

/// How long the graph may be behind a session that somebody asks for, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);

/// Fewest characters of a session id that may stand for all of it.
const SHORTEST: usize = 6;
/// Most sessions named where a beginning fits several.
const NAMED: usize = 5;

/// Whether a text is too short to stand for the id that it begins.
pub(crate) fn is_too_short(text: &str) -> bool {
    text.trim().len() < SHORTEST
}

/// How to name a run, where `given` names none.
pub(crate) fn how_to_name(given: &str) -> &'static str {
    if is_too_short(given) {
        "give at least 6 characters of its id: `agentfleet sessions list` shows the runs"
    } else {
        "`agentfleet sessions list` shows the runs"
    }
}

/// Says that there is no such run, or when it was erased.
pub(crate) async fn missing(store: &Store, session: &SessionId) -> Result<Failure, Failure> {
    let erased = erased(store, session).await?;
    Ok(erased.unwrap_or_else(|| {
        Failure::not_found(format!("there is no session `{session}`"))
            .hint(how_to_name(session.as_str()))
    }))
}

/// As [`session`], of what was not erased.
pub(crate) async fn kept(store: &Store, text: &str) -> Result<SessionId, Failure> {
    let session = session(store, text).await?;
    match erased(store, &session).await? {
        Some(failure) => Err(failure),
        None => Ok(session),
    }
}

/// The roots of the trees that an id belongs to, at least one. The graph is told of a session a moment after
/// it began, so one that has a record is waited for.
pub(crate) async fn roots_told(
    store: &Store,
    graph: &dyn Graph,
    given: &str,
) -> Result<Vec<SessionId>, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let roots = roots_of(graph, given).await?;
        if !roots.is_empty() {
            return Ok(roots);
        }
        let session = session(store, given).await?;
        let wanted = [keys::tombstone(&session), keys::outcome(&session, 0)];
        let found = store.documents.get_many(&wanted).await?;
        let is_behind = matches!(found.as_slice(), [None, Some(_)]);
        if !is_behind || Instant::now() >= until {
            return Err(untold(store, given).await?);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why the graph tells nothing of what somebody named.
pub(crate) async fn untold(store: &Store, given: &str) -> Result<Failure, Failure> {
    let (session, started) = session_or_started(store, given).await?;
    if let Some(erased) = erased(store, &session).await? {
        return Ok(erased);
    }
    let wanted = [keys::outcome(&session, 0), keys::accepted(&session)];
    let found = store.documents.get_many(&wanted).await?;
    let is_known = started.is_some() || found.iter().any(Option::is_some);
    let says = match found.first() {
        Some(Some(_)) => format!("the graph is behind: it was not told of `{session}` yet"),
        _ if is_known => format!(
            "nothing is committed of `{session}` yet: it is queued, or at work in its first step"
        ),
        _ => {
            let says = format!("the graph knows no session or correlation `{given}`");
            return Ok(Failure::not_found(says).hint(how_to_name(given)));
        }
    };
    Ok(Failure::not_found(says).hint(format!("`agentfleet sessions show {session}`")))
}

/// Says that a run was erased, if it was.
pub(crate) async fn erased(store: &Store, session: &SessionId) -> Result<Option<Failure>, Failure> {
    let tombstone = store.documents.get(&keys::tombstone(session)).await?;
    Ok(tombstone.map(|body| {
        let when = match Tombstone::read(&body).erased_at {
            0 => String::new(),
            at => format!(" at {}", date_time(at)),
        };
        Failure::not_found(format!("session `{session}` was erased{when}"))
    }))
}

/// The session of an id, of its beginning where that fits one alone, or of a URI of the session. What
/// fits none stays as it is.
pub(crate) async fn session(store: &Store, text: &str) -> Result<SessionId, Failure> {
    let text = text.trim();
    let given = uris::session_of(text).unwrap_or_else(|| SessionId::new(text));
    let begin = given.as_str();
    if begin.len() < SHORTEST {
        return Ok(given);
    }
    let mut keys = store.documents.list(&format!("sessions/{begin}")).await?;
    if keys.is_empty() {
        // Of what was erased a tombstone is left.
        keys = store.documents.list(&format!("trees/{begin}")).await?;
    }
    let mut found: Vec<&str> = keys
        .iter()
        .filter_map(|key| key.split('/').nth(1))
        .collect();
    found.dedup();
    match found.as_slice() {
        [one] => Ok(SessionId::new(*one)),
        [] => Ok(given),
        several if several.contains(&begin) => Ok(given),
        several => Err(ambiguous(begin, several)),
    }
}

fn ambiguous(begin: &str, several: &[&str]) -> Failure {
    let named: Vec<String> = several
        .iter()
        .take(NAMED)
        .map(|id| format!("`{id}`"))
        .collect();
    let more = if several.len() > NAMED { ", ..." } else { "" };
    Failure::usage(format!(
        "`{begin}` is the beginning of {} sessions: {}{more}",
        several.len(),
        named.join(", ")
    ))
}

/// As [`session`], for subagents too that have no record yet: only the fan-out that started one knows
/// it then. Looked for where nothing else fits, because every fan-out that waits is read.
pub(crate) async fn session_or_started(
    store: &Store,
    text: &str,
) -> Result<(SessionId, Option<Started>), Failure> {
    let given = session(store, text).await?;
    let wanted = [keys::outcome(&given, 0), keys::accepted(&given)];
    let found = store.documents.get_many(&wanted).await?;
    if is_too_short(given.as_str()) || found.iter().any(Option::is_some) {
        return Ok((given, None));
    }
    let mut started = started(&*store.documents, given.as_str()).await?;
    if let Some(whole) = started.iter().position(|one| one.child.session == given) {
        started = vec![started.swap_remove(whole)];
    }
    if started.len() > 1 {
        let several: Vec<&str> = started
            .iter()
            .map(|one| one.child.session.as_str())
            .collect();
        return Err(ambiguous(given.as_str(), &several));
    }
    Ok(match started.pop() {
        Some(one) => (one.child.session.clone(), Some(one)),
        None => (given, None),
    })
}

/// The provenance of a tree, as its records state it: the graph may be behind them.
pub(crate) async fn trace(documents: &dyn Documents, root: &SessionId) -> Result<Trace, Failure> {
    let mut triples = Vec::new();
    let mut walk = Records::new(documents).walk(root);
    while let Some(found) = walk.next().await? {
        triples.extend(found.steps.iter().flat_map(|step| tell(step).triples));
    }
    Ok(Trace::from_triples(&triples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_gives_too_little_of_an_id_is_told_how_much_it_takes() {
        assert!(how_to_name("c3541").starts_with("give at least 6 characters"));
        assert!(!how_to_name("c3541f").contains("at least"));
    }
}
