//! Subagents that have no record yet: only the fan-out that started one knows it then. The graph cannot be
//! asked, since it hears of a subagent with its first record.

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_runtime::records::AT_ONCE;
use agentfleet_schema::records::{Child, FanOutRecord};
use agentfleet_schema::{SessionId, keys};
use std::collections::HashSet;

/// Keys that are listed at once, so that a search holds few of them.
const PAGE: usize = 5_000;

/// A subagent that has no record yet, with the step that started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub child: Child,
    pub parent: SessionId,
    pub step: u32,
    pub root: SessionId,
}

/// The subagents whose ids begin so, of all fan-outs that wait. It goes through the keys of every session,
/// so it is for what is found nowhere else.
pub async fn started(documents: &dyn Documents, begin: &str) -> Result<Vec<Started>, Error> {
    let waiting = waiting(documents).await?;
    let mut started = Vec::new();
    for some in waiting.chunks(AT_ONCE) {
        let found = documents.get_many(some).await?;
        let found = found.iter().flatten();
        for fan_out in found.filter_map(|body| serde_json::from_slice(body).ok()) {
            let FanOutRecord {
                session,
                step,
                root,
                children,
                ..
            } = fan_out;
            let fitting = children
                .into_iter()
                .filter(|child| child.session.as_str().starts_with(begin));
            started.extend(fitting.map(|child| Started {
                child,
                parent: session.clone(),
                step,
                root: root.clone(),
            }));
        }
    }
    Ok(started)
}

/// The keys of the fan-outs that no step of their session came after.
async fn waiting(documents: &dyn Documents) -> Result<Vec<String>, Error> {
    let mut fan_outs = Vec::new();
    let mut done: HashSet<(SessionId, u32)> = HashSet::new();
    let mut after = String::new();
    loop {
        let page = documents.entries(keys::SESSIONS, &after, PAGE).await?;
        let is_whole = page.len() < PAGE;
        for entry in page {
            after.clone_from(&entry.key);
            match fan_out_of(&entry.key) {
                Some((session, step)) => fan_outs.push((entry.key, session, step)),
                None => done.extend(keys::step_of(&entry.key)),
            }
        }
        if is_whole {
            break;
        }
    }
    let waits = fan_outs
        .into_iter()
        .filter(|(_, session, step)| !done.contains(&(session.clone(), step + 1)));
    Ok(waits.map(|(key, ..)| key).collect())
}

/// Session and step of the key of a fan-out.
fn fan_out_of(key: &str) -> Option<(SessionId, u32)> {
    let step = key.strip_suffix("/fanout")?;
    keys::step_of(&format!("{step}/outcome"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_storage::Database;

    #[tokio::test]
    async fn a_fan_out_waits_until_the_next_step_of_its_session_is_there() {
        let data = tempfile::tempdir().unwrap();
        let documents = EmbeddedDocuments::open(&Database::open(data.path()).unwrap()).unwrap();
        let (first, other) = (SessionId::new("first"), SessionId::new("other"));
        for (key, session, step) in [
            (keys::outcome(&first, 0), &first, 0),
            (keys::fan_out(&first, 0), &first, 0),
            (keys::outcome(&first, 1), &first, 1),
            (keys::fan_out(&first, 1), &first, 1),
            (keys::outcome(&other, 0), &other, 0),
            (keys::fan_out(&other, 0), &other, 0),
            (keys::fan_in(&other, 0), &other, 0),
        ] {
            let child = Child {
                session: SessionId::new(format!("child-of-{session}-{step}")),
                ..Child::default()
            };
            let record = FanOutRecord {
                session: session.clone(),
                step,
                root: first.clone(),
                children: vec![child],
                ..FanOutRecord::default()
            };
            let body = serde_json::to_vec(&record).unwrap();
            documents.create(&key, body).await.unwrap();
        }
        let names = async |begin: &str| {
            let found = started(&documents, begin).await.unwrap();
            let name = |one: Started| (one.child.session.to_string(), one.parent, one.step);
            found.into_iter().map(name).collect::<Vec<_>>()
        };
        let expected = [
            ("child-of-first-1".to_owned(), first, 1),
            ("child-of-other-0".to_owned(), other, 0),
        ];
        assert_eq!(names("child-of-").await, expected);
        assert_eq!(names("child-of-other-0").await, expected[1..]);
        assert_eq!(names("child-of-first-0").await, []);
    }
}
