//! Archiving: runs that are over and cold leave the database, each as one object of a bucket. An `up` does
//! it beside deleting by age, in two passes: object and marks first, rows when the marks are old.

use super::purge::{older_than, runs};
use crate::error::Failure;
use crate::settings::Settings;
use crate::store::Store;
use agentfleet_documents::{SETTLE, Stage};
use agentfleet_graph::Graph;
use agentfleet_runtime::Records;
use agentfleet_schema::topics::property;
use agentfleet_schema::{Millis, SessionId, keys, millis};
use std::collections::HashSet;

/// Roots asked about in one read.
const SOME: usize = 500;

/// What must be there with what: a run is settled when all of it is.
const TOGETHER: [(&str, &str); 4] = [
    ("/accepted", "/accepted-published"),
    ("/outcome", "/published"),
    ("/fanout", "/fanin"),
    ("/fanin", "/fanin-published"),
];

/// Archives what is due, and says how many runs it were. `done` are the roots of which nothing is left to do.
pub(crate) async fn by_age(
    store: &Store,
    graph: &dyn Graph,
    settings: &Settings,
    done: &mut HashSet<SessionId>,
) -> Result<usize, Failure> {
    let Some(archived) = &store.archived else {
        return Ok(0);
    };
    let (now, after) = (store.now(), millis(settings.archive_after));
    let (which, bindings) = older_than(store, after);
    let mut roots = runs(graph, which, &bindings).await?;
    roots.retain(|root| !done.contains(root));
    let mut count = 0;
    for some in roots.chunks(SOME) {
        for (root, stage) in some.iter().zip(archived.stages(some).await?) {
            match stage {
                Stage::Rows => {
                    if let Some(sessions) = over(store, root, now - after).await? {
                        archived.archive(&sessions, now).await?;
                        count += 1;
                    }
                }
                Stage::Object(at) if at >= now - SETTLE => {}
                Stage::Object(_) => {
                    let folder = keys::session(root);
                    if !store.documents.entries(&folder, "", 1).await?.is_empty() {
                        let sessions = sessions(store, root).await?;
                        if let Err(error) = archived.drop_rows(&sessions).await {
                            tracing::warn!(%root, %error, "the rows of an archived run stay");
                        }
                    }
                    done.insert(root.clone());
                }
            }
        }
    }
    Ok(count)
}

/// The sessions of a run, the root first.
async fn sessions(store: &Store, root: &SessionId) -> Result<Vec<SessionId>, Failure> {
    let mut walk = Records::new(&*store.documents).walk(root);
    let mut sessions = Vec::new();
    while let Some(found) = walk.next().await? {
        sessions.push(found.session);
    }
    Ok(sessions)
}

/// The sessions of a run, the root first; none unless each of them has ended and is settled, and nothing of
/// the run is due after `before`: no end, no wait, no hard deadline.
async fn over(
    store: &Store,
    root: &SessionId,
    before: Millis,
) -> Result<Option<Vec<SessionId>>, Failure> {
    let mut walk = Records::new(&*store.documents).walk(root);
    let mut sessions = Vec::new();
    while let Some(found) = walk.next().await? {
        let Some(end) = found.end() else {
            return Ok(None);
        };
        let published = found.steps.iter().flat_map(|step| &step.publications);
        let due = published.filter_map(|message| message.properties.get(property::DUE));
        let due = due.filter_map(|due| due.parse::<Millis>().ok());
        let listed = store.documents.list(&keys::session(&found.session)).await?;
        if due.chain([end.committed_at]).any(|at| at >= before) || !is_settled(&listed) {
            return Ok(None);
        }
        sessions.push(found.session);
    }
    Ok(Some(sessions))
}

fn is_settled(listed: &[String]) -> bool {
    let there: HashSet<&str> = listed.iter().map(String::as_str).collect();
    let other = |key: &str, (one, with): (&str, &str)| {
        let of = key.strip_suffix(one)?;
        Some(format!("{of}{with}"))
    };
    listed.iter().all(|key| {
        let mut others = TOGETHER.into_iter().filter_map(|pair| other(key, pair));
        others.all(|other| there.contains(other.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_settled_when_all_that_it_says_is_published_and_decided() {
        let session = SessionId::new("s");
        let all = [
            keys::accepted(&session),
            keys::accepted_published(&session),
            keys::outcome(&session, 0),
            keys::published(&session, 0),
            keys::fan_out(&session, 0),
            keys::fan_in(&session, 0),
            keys::fan_in_published(&session, 0),
        ];
        assert!(is_settled(&all));
        assert!(is_settled(&[]));
        for missing in [1, 3, 5, 6] {
            let mut listed = all.to_vec();
            listed.remove(missing);
            assert!(!is_settled(&listed), "without {}", all[missing]);
        }
    }
}
