//! Attempts at a step, noted before its work where the broker cannot count deliveries.
//!
//! A note says until when its attempt is alive. One that works for longer says so again, so that a
//! duplicate of its message waits instead of asking the model as well. Safety never rests on this:
//! the record of the step decides.

use crate::error::Stop;
use agentfleet_documents::{Created, Documents};
use agentfleet_runtime::Host;
use agentfleet_schema::keys::{self, AttemptNote};
use agentfleet_schema::{Millis, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// `.../attempts/{k}`, and what follows it while the attempt is at work.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct AttemptRecord {
    nonce: String,
    lease_until: Millis,
}

/// What is noted of one attempt.
#[derive(Debug, Default)]
struct Noted {
    over: bool,
    /// A part of the fleet was away: it does not count.
    put_off: bool,
    /// How often it said that it is still at work.
    kept: u32,
}

/// An attempt that was noted.
#[derive(Debug)]
pub(crate) struct Begun {
    session: SessionId,
    step: u32,
    number: u32,
    nonce: String,
    /// How many there were that count, this one included.
    pub counted: u32,
    kept: AtomicU32,
}

/// Where attempts are noted, and for how long one note keeps others away.
pub(crate) struct Attempts<'a> {
    pub documents: &'a dyn Documents,
    pub host: &'a dyn Host,
    pub lease: Duration,
}

impl Attempts<'_> {
    /// Notes an attempt, and keeps out of another's way. `listed` are the keys of the step.
    pub(crate) async fn begin(
        &self,
        (session, step): (&SessionId, u32),
        listed: &[String],
        nonce: &str,
    ) -> Result<Begun, Stop> {
        let mut noted: BTreeMap<u32, Noted> = BTreeMap::new();
        for (number, note) in listed.iter().filter_map(|key| keys::attempt_note(key)) {
            let noted = noted.entry(number).or_default();
            match note {
                AttemptNote::Begun => {}
                AttemptNote::Over => noted.over = true,
                AttemptNote::PutOff => noted.put_off = true,
                AttemptNote::Kept(times) => noted.kept = noted.kept.max(times),
            }
        }
        if let Some((number, last)) = noted.last_key_value()
            && !last.over
            && !last.put_off
        {
            let key = match last.kept {
                0 => keys::attempt(session, step, *number),
                times => keys::attempt_kept(session, step, *number, times),
            };
            let left = self.lease_of(&key).await? - self.host.now();
            if left > 0 {
                return Err(Stop::Postpone {
                    reason: "another attempt is at work".into(),
                    after: Duration::from_millis(left.unsigned_abs()),
                });
            }
        }
        let put_off = noted.values().filter(|noted| noted.put_off).count() as u32;
        let mut number = noted.last_key_value().map_or(0, |(number, _)| *number);
        loop {
            number += 1;
            let key = keys::attempt(session, step, number);
            if self.documents.create(&key, self.note(nonce)).await? == Created::New {
                return Ok(Begun {
                    session: session.clone(),
                    step,
                    number,
                    nonce: nonce.to_owned(),
                    counted: number - put_off,
                    kept: AtomicU32::new(0),
                });
            }
        }
    }

    /// Says that an attempt is still at work.
    pub(crate) async fn keep(&self, begun: &Begun) {
        let times = begun.kept.fetch_add(1, Ordering::Relaxed) + 1;
        let key = keys::attempt_kept(&begun.session, begun.step, begun.number, times);
        if let Err(error) = self.documents.create(&key, self.note(&begun.nonce)).await {
            tracing::debug!(%error, "a duplicate may be worked beside this attempt");
        }
    }

    /// Says that an attempt is over, so that the next need not wait for its lease.
    pub(crate) async fn give_up(&self, begun: &Begun, counts: bool) {
        let over = if counts {
            keys::attempt_over
        } else {
            keys::attempt_put_off
        };
        let key = over(&begun.session, begun.step, begun.number);
        if let Err(error) = self.documents.create(&key, Vec::new()).await {
            tracing::debug!(%error, "the next try waits for this one's lease");
        }
    }

    fn note(&self, nonce: &str) -> Vec<u8> {
        let record = AttemptRecord {
            nonce: nonce.to_owned(),
            lease_until: self.host.now() + self.lease.as_millis() as Millis,
        };
        // Plain data: writing it as JSON cannot fail.
        serde_json::to_vec(&record).unwrap_or_default()
    }

    async fn lease_of(&self, key: &str) -> Result<Millis, Stop> {
        let Some(body) = self.documents.get(key).await? else {
            return Ok(0);
        };
        let record: AttemptRecord =
            serde_json::from_slice(&body).map_err(|error| Stop::unreadable(key, &error))?;
        Ok(record.lease_until)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use agentfleet_documents::EmbeddedDocuments;
    use agentfleet_storage::Database;
    use std::sync::atomic::AtomicI64;

    /// A clock that stands still.
    #[derive(Default)]
    struct Stopped(AtomicI64);

    impl Host for Stopped {
        fn now(&self) -> Millis {
            self.0.load(Ordering::Relaxed)
        }

        fn nonce(&self) -> String {
            "nonce".to_owned()
        }
    }

    #[test]
    fn a_key_of_an_attempt_says_what_it_was_made_for() {
        let session = SessionId::from("s");
        for (key, said) in [
            (keys::attempt(&session, 3, 2), Some((2, AttemptNote::Begun))),
            (
                keys::attempt_over(&session, 3, 2),
                Some((2, AttemptNote::Over)),
            ),
            (
                keys::attempt_put_off(&session, 3, 12),
                Some((12, AttemptNote::PutOff)),
            ),
            (
                keys::attempt_kept(&session, 3, 1, 7),
                Some((1, AttemptNote::Kept(7))),
            ),
            (keys::outcome(&session, 3), None),
            (keys::intent(&session, 3, 0), None),
        ] {
            assert_eq!(keys::attempt_note(&key), said, "{key}");
        }
    }

    #[tokio::test]
    async fn an_attempt_keeps_others_away_for_as_long_as_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let documents = EmbeddedDocuments::open(&database).unwrap();
        let host = Stopped::default();
        let attempts = Attempts {
            documents: &documents,
            host: &host,
            lease: Duration::from_secs(30),
        };
        let session = SessionId::from("s");
        let begin = async || {
            let listed = documents.list(&keys::step(&session, 0)).await.unwrap();
            attempts.begin((&session, 0), &listed, "nonce").await
        };
        let waits = |begun: Result<Begun, Stop>| match begun {
            Err(Stop::Postpone { after, .. }) => after.as_secs(),
            other => panic!("{other:?}"),
        };
        let at = |seconds: i64| host.0.store(seconds * 1000, Ordering::Relaxed);

        let first = begin().await.unwrap();
        assert_eq!(first.counted, 1);
        at(10);
        assert_eq!(waits(begin().await), 20);
        for seconds in [20, 40, 60] {
            at(seconds);
            attempts.keep(&first).await;
        }
        assert_eq!(waits(begin().await), 30);
        at(90);
        // It says nothing any more.
        let second = begin().await.unwrap();
        assert_eq!(second.counted, 2);
        // One that says that it is over does not keep the next waiting.
        attempts.give_up(&second, true).await;
        let third = begin().await.unwrap();
        assert_eq!(third.counted, 3);
        attempts.give_up(&third, false).await;
        // What was put off does not count.
        assert_eq!(begin().await.unwrap().counted, 3);
    }
}
