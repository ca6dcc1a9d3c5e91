//! `restore` without a file: the servers of a fleet were restored by their own tools, but for the broker,
//! whose messages no backup has.
//!
//! What the runs in progress still have to hear follows from the records alone, because a step's record
//! holds all that it publishes: so the messages of every run that was not settled are published again, and
//! its provenance with them. Whoever heard them before takes no notice. Messages that nobody had begun to
//! work were the broker's own, and are gone.

use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use agentfleet_broker::Broker;
use agentfleet_core::commit::read_whole;
use agentfleet_documents::Documents;
use agentfleet_runtime::outgoing;
use agentfleet_schema::records::{AcceptedRecord, FanOutRecord, OutcomeKind, StepRecord};
use agentfleet_schema::{Millis, SessionId, keys};
use serde::de::DeserializeOwned;
use std::collections::HashSet;

/// Objects asked for at once.
const PAGE: usize = 200;
/// A run that ended so shortly before the newest record may not be told in the graph's backup, which is
/// the older one: it is told again.
const RECENT: Millis = 3_600_000;

pub(super) async fn retell(settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    // What is published before anybody subscribes is lost.
    store.prepare(settings).await?;
    let roots = unsettled(&*store.documents).await?;
    let messages = tell_again(&*store.documents, &*store.broker, &roots).await?;
    outln!(
        "{messages} messages of {} runs, in progress or ended within the last hour, were published again.",
        roots.len()
    );
    Ok(())
}

/// Calls `each` for every session, with the keys of its objects.
async fn sessions(
    documents: &dyn Documents,
    mut each: impl AsyncFnMut(SessionId, Vec<String>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut after, mut of, mut known) = (String::new(), String::new(), Vec::new());
    loop {
        let page = documents.entries(keys::SESSIONS, &after, PAGE).await?;
        let Some(last) = page.last() else {
            break;
        };
        after.clone_from(&last.key);
        for entry in page {
            let session = entry.key[keys::SESSIONS.len()..].split('/').next();
            let session = session.unwrap_or_default();
            if session != of && !known.is_empty() {
                each(SessionId::new(of.as_str()), std::mem::take(&mut known)).await?;
            }
            session.clone_into(&mut of);
            known.push(entry.key);
        }
    }
    if known.is_empty() {
        return Ok(());
    }
    each(SessionId::new(of), known).await
}

/// The steps that were committed of a session, of whose objects these are the keys, in order.
fn steps(known: &[String]) -> Vec<u32> {
    let steps = known.iter().filter_map(|key| keys::step_of(key));
    let mut steps: Vec<u32> = steps.map(|(_, step)| step).collect();
    steps.sort_unstable();
    steps
}

/// The roots whose runs are not settled: a session of theirs has not ended, or nobody above knows of
/// its end, or it ended shortly before the newest record.
async fn unsettled(documents: &dyn Documents) -> Result<HashSet<SessionId>, Failure> {
    let (mut roots, mut ended, mut newest) = (HashSet::new(), Vec::new(), 0);
    sessions(documents, async |session, known| {
        let Some(last) = steps(&known).pop() else {
            roots.insert(session);
            return Ok(());
        };
        let record: StepRecord = read(documents, &keys::outcome(&session, last)).await?;
        let concluded = match &record.parent {
            Some(parent) => {
                let verdict = keys::fan_in(&parent.session, parent.step);
                documents.get(&verdict).await?.is_some()
            }
            None => true,
        };
        newest = newest.max(record.committed_at);
        if !record.outcome.is_terminal() || !concluded {
            roots.insert(record.root);
        } else if record.committed_at >= newest - RECENT {
            ended.push((record.root, record.committed_at));
        }
        Ok(())
    })
    .await?;
    ended.retain(|(_, at)| *at >= newest - RECENT);
    roots.extend(ended.into_iter().map(|(root, _)| root));
    Ok(roots)
}

/// Publishes all that the runs of these roots ever published.
async fn tell_again(
    documents: &dyn Documents,
    broker: &dyn Broker,
    roots: &HashSet<SessionId>,
) -> Result<usize, Failure> {
    let mut count = 0;
    sessions(documents, async |session, known| {
        let steps = steps(&known);
        let mut publications = Vec::new();
        if steps.is_empty() && known.contains(&keys::accepted(&session)) {
            let accepted: AcceptedRecord = read(documents, &keys::accepted(&session)).await?;
            publications.push(accepted.publication);
        }
        for step in steps {
            let key = keys::outcome(&session, step);
            let body = documents.get(&key).await?.unwrap_or_default();
            let record = read_whole(&body).map_err(|error| unreadable(&key, &error))?;
            if !roots.contains(&record.root) {
                return Ok(());
            }
            publications.extend(record.publications);
            if record.outcome == OutcomeKind::FanOut
                && known.contains(&keys::fan_in(&session, step))
            {
                let fan_out: FanOutRecord = read(documents, &keys::fan_out(&session, step)).await?;
                publications.push(fan_out.synthesis);
            }
        }
        count += publications.len();
        Ok(broker
            .publish(publications.into_iter().map(outgoing).collect())
            .await?)
    })
    .await?;
    Ok(count)
}

async fn read<T: DeserializeOwned>(documents: &dyn Documents, key: &str) -> Result<T, Failure> {
    let body = documents.get(key).await?.unwrap_or_default();
    serde_json::from_slice(&body).map_err(|error| unreadable(key, &error))
}

fn unreadable(key: &str, error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Failed, format!("`{key}` cannot be read: {error}"))
}
