//! Reading what runs left behind: the one reader of records, for workers and for everybody who looks at
//! a run afterwards.
//!
//! Owns the keys, the decoding, and the walks from a step to its session and from a session to its tree.
//! What a record means is the core's. Nothing here writes.

use crate::Error;
use agentfleet_documents::Documents;
use agentfleet_schema::records::{
    AcceptedRecord, FanInRecord, FanOutRecord, OutcomeKind, PauseRecord, Publication, StepRecord,
};
use agentfleet_schema::{AgentRequest, SessionId, keys};
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::sync::Arc;

/// Objects that are asked for in one round trip.
pub const AT_ONCE: usize = 200;

/// Reads a record's body.
pub fn decode<T: DeserializeOwned>(key: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::unreadable(key, &error))
}

/// Reads the message that a step worked.
pub fn request_in(record: &StepRecord, message: &str) -> Result<AgentRequest, Error> {
    serde_json::from_str(message).map_err(|error| Error::Unreadable {
        key: keys::outcome(&record.session, record.step),
        reason: format!("its request: {error}"),
    })
}

/// The records of a documents store.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    documents: &'a dyn Documents,
}

impl std::fmt::Debug for Records<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl<'a> Records<'a> {
    pub fn new(documents: &'a dyn Documents) -> Self {
        Self { documents }
    }

    /// The record under a key.
    pub async fn read<T: DeserializeOwned>(self, key: &str) -> Result<Option<T>, Error> {
        let body = self.documents.get(key).await?;
        body.map(|body| decode(key, &body)).transpose()
    }

    /// Records of one kind in one round trip, in the order of their keys.
    pub async fn read_many<T: DeserializeOwned>(
        self,
        keys: &[String],
    ) -> Result<Vec<Option<T>>, Error> {
        let bodies = keys.iter().zip(self.documents.get_many(keys).await?);
        let read = bodies.map(|(key, body)| body.map(|body| decode(key, &body)).transpose());
        read.collect()
    }

    /// A record without which another one makes no sense; `what` says why it must be there.
    pub async fn needed<T: DeserializeOwned>(
        self,
        key: String,
        what: &'static str,
    ) -> Result<T, Error> {
        let found = self.read(&key).await?;
        found.ok_or(Error::Missing { key, what })
    }

    /// Whether something is stored under a key.
    pub async fn has(self, key: &str) -> Result<bool, Error> {
        Ok(self.documents.get(key).await?.is_some())
    }

    /// Whether a session was erased: of a root's tree nothing may come back.
    pub async fn is_erased(self, session: &SessionId) -> Result<bool, Error> {
        self.has(&keys::tombstone(session)).await
    }

    /// What a session was asked, if it came through a door.
    pub async fn accepted(self, session: &SessionId) -> Result<Option<AcceptedRecord>, Error> {
        self.read(&keys::accepted(session)).await
    }

    pub async fn step(self, session: &SessionId, step: u32) -> Result<Option<StepRecord>, Error> {
        self.read(&keys::outcome(session, step)).await
    }

    /// Whether everything of a step was published.
    pub async fn is_published(self, session: &SessionId, step: u32) -> Result<bool, Error> {
        self.has(&keys::published(session, step)).await
    }

    /// The fan-out that was committed at a step.
    pub async fn fan_out(
        self,
        session: &SessionId,
        step: u32,
    ) -> Result<Option<FanOutRecord>, Error> {
        self.read(&keys::fan_out(session, step)).await
    }

    /// The verdict on the fan-out that was committed at a step.
    pub async fn verdict(
        self,
        session: &SessionId,
        step: u32,
    ) -> Result<Option<FanInRecord>, Error> {
        self.read(&keys::fan_in(session, step)).await
    }

    /// The wait for a person that was committed at a step.
    pub async fn pause(self, session: &SessionId, step: u32) -> Result<Option<PauseRecord>, Error> {
        self.read(&keys::pause(session, step)).await
    }

    /// The record that ended a session, looked for from a step on.
    pub async fn end_from(
        self,
        session: &SessionId,
        mut step: u32,
    ) -> Result<Option<StepRecord>, Error> {
        while let Some(record) = self.step(session, step).await? {
            if record.outcome.is_terminal() {
                return Ok(Some(record));
            }
            step += 1;
        }
        Ok(None)
    }

    /// The record that ended a session: the newest of its steps.
    pub async fn end(self, session: &SessionId) -> Result<Option<StepRecord>, Error> {
        let Some(last) = self.committed(session).await?.pop() else {
            return Ok(None);
        };
        let newest = self.step(session, last).await?;
        Ok(newest.filter(|record| record.outcome.is_terminal()))
    }

    /// The numbers of a session's committed steps, in order.
    pub async fn committed(self, session: &SessionId) -> Result<Vec<u32>, Error> {
        let listed = self.documents.list(&keys::steps(session)).await?;
        let steps = listed.iter().filter_map(|key| keys::step_of(key));
        let mut steps: Vec<u32> = steps.map(|(_, step)| step).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    /// The committed steps of a session, in order. One that is missing before another, or cannot be
    /// read, is an error.
    pub async fn steps(self, session: &SessionId) -> Result<Vec<StepRecord>, Error> {
        let (steps, wrong) = self.readable(session).await?;
        wrong.map_or(Ok(steps), Err)
    }

    /// The steps that can be read, with what is wrong with the first of the others.
    pub async fn readable(
        self,
        session: &SessionId,
    ) -> Result<(Vec<StepRecord>, Option<Error>), Error> {
        let numbers = self.committed(session).await?;
        let hole = (0..).zip(&numbers).find(|(n, step)| n != *step);
        let mut wrong = hole.map(|(missing, _)| Error::Missing {
            key: keys::outcome(session, missing),
            what: "a later step of the session is there",
        });
        let mut steps = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(AT_ONCE) {
            let keys: Vec<String> = some.iter().map(|n| keys::outcome(session, *n)).collect();
            for (key, body) in keys.iter().zip(self.documents.get_many(&keys).await?) {
                match body.map(|body| decode(key, &body)) {
                    Some(Ok(record)) => steps.push(record),
                    Some(Err(error)) => wrong = wrong.or(Some(error)),
                    // Erased since it was listed.
                    None => {}
                }
            }
        }
        Ok((steps, wrong))
    }

    /// The request that a committed step released for the next step of its session, or will release.
    pub async fn released(self, record: &StepRecord) -> Result<Option<Publication>, Error> {
        let (session, step) = (&record.session, record.step);
        Ok(match record.outcome {
            OutcomeKind::FanOut => self.fan_out(session, step).await?.map(|it| it.synthesis),
            OutcomeKind::Pause => self.pause(session, step).await?.map(|it| it.resume),
            OutcomeKind::Continue
            | OutcomeKind::Answer
            | OutcomeKind::Cancelled
            | OutcomeKind::Fail => record.request_for(session).cloned(),
        })
    }

    /// The message that a committed step worked.
    pub async fn request_of(self, record: &StepRecord) -> Result<String, Error> {
        if let Some(request) = &record.worked.request {
            return Ok(request.clone());
        }
        let session = &record.session;
        let (key, what) = match (&record.parent, record.step) {
            (Some(parent), 0) => (
                keys::outcome(&parent.session, parent.step),
                "the fan-out that started this subagent",
            ),
            (None, 0) => {
                let what = "it holds what the session was asked";
                let accepted = self.needed::<AcceptedRecord>(keys::accepted(session), what);
                return Ok(accepted.await?.publication.body);
            }
            (_, step) => (keys::outcome(session, step - 1), "the step before"),
        };
        let before: StepRecord = self.needed(key.clone(), what).await?;
        let released = if before.session == *session {
            self.released(&before).await?
        } else {
            before.request_for(session).cloned()
        };
        let body = released.map(|publication| publication.body);
        body.ok_or_else(|| Error::Unreadable {
            key,
            reason: format!("it releases no request for session `{session}`"),
        })
    }

    /// The same, read.
    pub async fn asked_of(self, record: &StepRecord) -> Result<AgentRequest, Error> {
        request_in(record, &self.request_of(record).await?)
    }

    /// A session and all below it, as one would tell of them: each before its subagents, siblings in the
    /// order of their goals.
    pub fn walk(self, top: &SessionId) -> Walk<'a> {
        Walk {
            records: self,
            open: vec![(top.clone(), None, 0)],
            seen: HashSet::from([top.clone()]),
        }
    }

    /// Texts of the librarian by their URIs, in one round trip and in their order; `None` where there is
    /// none.
    pub async fn texts<U: AsRef<str>>(self, uris: &[U]) -> Result<Vec<Option<String>>, Error> {
        let keys: Vec<String> = uris
            .iter()
            .map(|uri| keys::document(uri.as_ref()))
            .collect();
        let text = |body: Arc<[u8]>| String::from_utf8_lossy(&body).into_owned();
        let bodies = self.documents.get_many(&keys).await?;
        Ok(bodies.into_iter().map(|body| body.map(text)).collect())
    }

    pub async fn text(self, uri: &str) -> Result<Option<String>, Error> {
        Ok(self.texts(&[uri]).await?.pop().flatten())
    }
}

/// One session of a tree.
#[derive(Clone, Debug, Default)]
pub struct SessionSteps {
    pub session: SessionId,
    pub parent: Option<SessionId>,
    /// How many sessions are above it in the walk.
    pub depth: usize,
    pub steps: Vec<StepRecord>,
}

impl SessionSteps {
    /// The step that ended it.
    pub fn end(&self) -> Option<&StepRecord> {
        let newest = self.steps.last();
        newest.filter(|record| record.outcome.is_terminal())
    }
}

/// A walk through a tree; see [`Records::walk`].
#[derive(Debug)]
pub struct Walk<'a> {
    records: Records<'a>,
    open: Vec<(SessionId, Option<SessionId>, usize)>,
    seen: HashSet<SessionId>,
}

impl Walk<'_> {
    /// The next session. A subagent that has not begun has no steps. Where a record is wrong the walk
    /// ends with that.
    pub async fn next(&mut self) -> Result<Option<SessionSteps>, Error> {
        match self.next_readable().await? {
            Some((_, Some(wrong))) => Err(wrong),
            found => Ok(found.map(|(found, _)| found)),
        }
    }

    /// The next session, with the steps of it that can be read, and what is wrong with the first of the
    /// others.
    pub async fn next_readable(&mut self) -> Result<Option<(SessionSteps, Option<Error>)>, Error> {
        let Some((session, parent, depth)) = self.open.pop() else {
            return Ok(None);
        };
        let (steps, wrong) = self.records.readable(&session).await?;
        let below = steps.iter().flat_map(StepRecord::children);
        let first = self.open.len();
        for child in below.map(|child| &child.session) {
            if self.seen.insert(child.clone()) {
                let entry = (child.clone(), Some(session.clone()), depth + 1);
                self.open.push(entry);
            }
        }
        self.open[first..].reverse();
        let found = SessionSteps {
            session,
            parent,
            depth,
            steps,
        };
        Ok(Some((found, wrong)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_schema::records::{Activity, Child, FannedOut};
    use agentfleet_storage::Database;

    async fn put(documents: &EmbeddedDocuments, session: &str, step: u32, children: &[&str]) {
        let children = children.iter().map(|child| Child {
            session: (*child).into(),
            ..Child::default()
        });
        let record = StepRecord {
            session: session.into(),
            step,
            activity: Activity::FannedOut(FannedOut {
                children: children.collect(),
                ..FannedOut::default()
            }),
            ..StepRecord::default()
        };
        let body = serde_json::to_vec(&record).unwrap();
        let key = keys::outcome(&session.into(), step);
        documents.create(&key, body).await.unwrap();
    }

    #[tokio::test]
    async fn a_hole_or_a_damaged_step_is_named_and_the_others_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        for step in [0, 1, 3, 11] {
            put(&documents, "hole", step, &[]).await;
        }
        let session = SessionId::from("spoilt");
        put(&documents, "spoilt", 0, &[]).await;
        let key = keys::outcome(&session, 1);
        documents.create(&key, b"{".to_vec()).await.unwrap();
        let records = Records::new(&documents);
        for (session, expected, read) in [
            (
                "hole",
                "`sessions/hole/steps/2/outcome` is missing",
                vec![0, 1, 3, 11],
            ),
            (
                "spoilt",
                "`sessions/spoilt/steps/1/outcome` cannot be read",
                vec![0],
            ),
        ] {
            let session = session.into();
            let wrong = records.steps(&session).await.unwrap_err().to_string();
            assert!(wrong.contains(expected), "{wrong}");
            let (steps, wrong) = records.readable(&session).await.unwrap();
            assert!(wrong.is_some());
            assert_eq!(steps.iter().map(|one| one.step).collect::<Vec<_>>(), read);
        }
        assert!(records.steps(&"nobody".into()).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_walk_tells_each_session_once_before_its_subagents_in_the_order_of_their_goals() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        put(&documents, "root", 0, &["a", "b"]).await;
        put(&documents, "root", 1, &["c", "a"]).await;
        put(&documents, "a", 0, &["below"]).await;
        let mut walk = Records::new(&documents).walk(&"root".into());
        let mut told = Vec::new();
        while let Some(found) = walk.next().await.unwrap() {
            let parent = found.parent.map(|parent| parent.to_string());
            told.push(format!(
                "{}{} of {}, {} steps",
                " ".repeat(found.depth),
                found.session,
                parent.unwrap_or_default(),
                found.steps.len()
            ));
        }
        let expected = [
            "root of , 2 steps",
            " a of root, 1 steps",
            "  below of a, 0 steps",
            " b of root, 0 steps",
            " c of root, 0 steps",
        ];
        assert_eq!(told, expected);
    }
}
