//! Attempts at a step, noted before its work where the broker cannot count deliveries.
//!
//! A note says which message its attempt works. An attempt at work renews its note. Who comes to the step
//! meanwhile waits, so that no model is asked twice for one step:
//! - The same message comes again when its holder lost it: the attempt is dead, and nobody waits. The
//!   exception is a broker that was away, which hands out what living workers hold.
//! - Another message of the same step waits for one lease. If the note was not renewed by then, the attempt
//!   is dead. No clocks are compared.
//!
//! Safety never rests on this: the record of the step decides, and the fences of its calls.

use crate::error::Stop;
use agentfleet_broker::Delivery;
use agentfleet_documents::Documents;
use agentfleet_runtime::{CLOCK_SKEW, Host};
use agentfleet_schema::keys::{self, AttemptNote};
use agentfleet_schema::topics::property;
use agentfleet_schema::{Millis, SessionId, millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

/// Longest time that a note keeps others away without being renewed. It is renewed every second. A run whose
/// worker dies in a call with side effects is held up for this and `CLOCK_SKEW`: for less than five seconds.
pub(crate) const LEASE: Duration = Duration::from_millis(2_750);

/// Attempts whose signs of life a message carries: more than die at one step.
const MOST_WAITED: usize = 100;

/// `.../attempts/{k}`, and what follows it while the attempt is at work.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct AttemptRecord {
    nonce: String,
    /// The message that is worked.
    message: String,
    /// When the attempt began.
    since: Millis,
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
    pub nonce: String,
    message: String,
    since: Millis,
    /// When the first one began, if that was another.
    pub first_at: Option<Millis>,
    /// How many there were that count, this one included.
    pub counted: u32,
    kept: AtomicU32,
    kept_at: AtomicI64,
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
        delivery: &Delivery,
    ) -> Result<Begun, Stop> {
        let noted = noted(listed);
        // Those after it said that they are over; it did not.
        let silent = |(_, noted): &(&u32, &Noted)| !noted.over && !noted.put_off;
        if let Some((number, last)) = noted.iter().rev().find(silent) {
            self.wait_for((session, step), *number, last, delivery)
                .await?;
        }
        let put_off = noted.values().filter(|noted| noted.put_off).count() as u32;
        let number = noted.last_key_value().map_or(0, |(number, _)| *number) + 1;
        let first_at = match number {
            1 => None,
            _ => self.read(&keys::attempt(session, step, 1)).await?,
        };
        let begun = Begun {
            first_at: first_at.map(|first| first.since).filter(|since| *since > 0),
            number,
            counted: number - put_off,
            ..self.first((session, step), nonce, delivery)
        };
        let key = keys::attempt(session, step, number);
        match self.documents.create_or_get(&key, Self::note(&begun)).await {
            Ok(None) => Ok(begun),
            // It began after the keys were listed.
            Ok(Some(_)) => Err(Stop::Behind {
                attempt: mark(number, 0),
                after: self.lease,
            }),
            Err(error) => {
                // The note may be there although the store did not say so, and nobody works under it.
                self.give_up(&begun, false).await;
                Err(error.into())
            }
        }
    }

    /// The first attempt at a step, to be noted by whoever begins it.
    pub(crate) fn first(
        &self,
        (session, step): (&SessionId, u32),
        nonce: &str,
        delivery: &Delivery,
    ) -> Begun {
        let now = self.host.now();
        Begun {
            session: session.clone(),
            step,
            number: 1,
            nonce: nonce.to_owned(),
            message: delivery.message_id.clone(),
            since: now,
            first_at: None,
            counted: 1,
            kept: AtomicU32::new(0),
            kept_at: AtomicI64::new(now),
        }
    }

    /// Waits for the attempt with a nonce, unless it is dead; `false` if no such attempt is noted.
    pub(crate) async fn wait_for_owner(
        &self,
        (session, step): (&SessionId, u32),
        nonce: &str,
        delivery: &Delivery,
    ) -> Result<bool, Stop> {
        let listed = self.documents.list(&keys::step(session, step)).await?;
        for (number, noted) in noted(&listed) {
            let key = keys::attempt(session, step, number);
            if self
                .read(&key)
                .await?
                .is_some_and(|note| note.nonce == nonce)
            {
                // A call that it made may still come to an end, although its message was lost.
                let other = Delivery {
                    message_id: String::new(),
                    ..delivery.clone()
                };
                self.wait_for((session, step), number, &noted, &other)
                    .await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Waits for an attempt that may be alive.
    async fn wait_for(
        &self,
        (session, step): (&SessionId, u32),
        number: u32,
        noted: &Noted,
        delivery: &Delivery,
    ) -> Result<(), Stop> {
        let mark = mark(number, noted.kept);
        if noted.over || noted.put_off || has_waited_for(delivery, &mark) {
            return Ok(());
        }
        let key = match noted.kept {
            0 => keys::attempt(session, step, number),
            times => keys::attempt_kept(session, step, number, times),
        };
        let Some(note) = self.read(&key).await? else {
            return Ok(());
        };
        let skew = millis(CLOCK_SKEW);
        let handed_out_again = delivery.reopened_at.map(|at| at + skew);
        let is_lost = !note.message.is_empty() && note.message == delivery.message_id;
        if is_lost && handed_out_again.is_none_or(|at| note.since > at) {
            return Ok(());
        }
        // By no clock: whoever lives says so within this time, and then the mark is another.
        Err(Stop::Behind {
            attempt: mark,
            after: self.lease,
        })
    }

    /// Says that an attempt is still at work, if it is time to.
    pub(crate) async fn keep(&self, begun: &Begun) {
        let now = self.host.now();
        let since = now - begun.kept_at.load(Ordering::Relaxed);
        // With every look, which comes about three times within it.
        if since < millis(self.lease / 4) {
            return;
        }
        begun.kept_at.store(now, Ordering::Relaxed);
        let times = begun.kept.fetch_add(1, Ordering::Relaxed) + 1;
        let key = keys::attempt_kept(&begun.session, begun.step, begun.number, times);
        if let Err(error) = self.documents.create(&key, Self::note(begun)).await {
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

    /// The same of an attempt whose note may be there although the store did not say so: nobody works under
    /// it. One of that number may be another's, who does.
    pub(crate) async fn give_up_unanswered(&self, begun: &Begun) {
        let key = keys::attempt(&begun.session, begun.step, begun.number);
        let there = self.read(&key).await.ok().flatten();
        if there.is_some_and(|note| note.nonce == begun.nonce) {
            self.give_up(begun, false).await;
        }
    }

    pub(crate) fn note(begun: &Begun) -> Vec<u8> {
        let record = AttemptRecord {
            nonce: begun.nonce.clone(),
            message: begun.message.clone(),
            since: begun.since,
        };
        // Plain data: writing it as JSON cannot fail.
        serde_json::to_vec(&record).unwrap_or_default()
    }

    async fn read(&self, key: &str) -> Result<Option<AttemptRecord>, Stop> {
        let body = self.documents.get(key).await?;
        let read = body.map(|body| serde_json::from_slice(&body));
        read.transpose()
            .map_err(|error| Stop::unreadable(key, &error))
    }
}

/// What an attempt said last, as a message carries it that waits for it.
fn mark(number: u32, kept: u32) -> String {
    format!("{number}.{kept}")
}

/// Whether a message has waited for what an attempt said last.
fn has_waited_for(delivery: &Delivery, mark: &str) -> bool {
    let waited = delivery.properties.get(property::WAITED_FOR);
    waited.is_some_and(|waited| waited.split(',').any(|one| one == mark))
}

/// What a message has waited for that waits for one more. All of it is kept, or a step with several dead
/// attempts would be waited for without end, now for one of them and now for another; of one attempt only
/// what it said last.
pub(crate) fn waited_for(waited: Option<&String>, mark: &str) -> String {
    let number = |mark: &str| mark.split('.').next().map(str::to_owned);
    let before = waited.map_or("", String::as_str).split(',');
    let others = before.filter(|one| !one.is_empty() && number(one) != number(mark));
    let all: Vec<&str> = others.chain([mark]).collect();
    // A message may carry so much; whoever is dropped is waited for once more.
    all[all.len().saturating_sub(MOST_WAITED)..].join(",")
}

/// The attempts at a step, by number.
fn noted(listed: &[String]) -> BTreeMap<u32, Noted> {
    let mut all: BTreeMap<u32, Noted> = BTreeMap::new();
    for (number, note) in listed.iter().filter_map(|key| keys::attempt_note(key)) {
        let noted = all.entry(number).or_default();
        match note {
            AttemptNote::Begun => {}
            AttemptNote::Over => noted.over = true,
            AttemptNote::PutOff => noted.put_off = true,
            AttemptNote::Kept(times) => noted.kept = noted.kept.max(times),
        }
    }
    all
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

    fn delivery(message: &str, waited_for: Option<&str>, reopened_at: Option<Millis>) -> Delivery {
        let waited = waited_for.map(|mark| (property::WAITED_FOR.to_owned(), mark.to_owned()));
        Delivery {
            message_id: message.to_owned(),
            topic: agentfleet_schema::topics::AGENT_REQUEST,
            payload: Vec::new().into(),
            properties: waited.into_iter().collect(),
            deliveries: None,
            published_at: 0,
            first_at: None,
            reopened_at,
            receipt: agentfleet_broker::Receipt::default(),
        }
    }

    /// Attempts at one step, and when they are made.
    struct Stage {
        _directory: tempfile::TempDir,
        documents: EmbeddedDocuments,
        host: Stopped,
        session: SessionId,
    }

    impl Stage {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let database = Database::open(directory.path()).unwrap();
            Self {
                documents: EmbeddedDocuments::open(&database).unwrap(),
                _directory: directory,
                host: Stopped::default(),
                session: SessionId::from("s"),
            }
        }

        fn at(&self, seconds: i64) -> Attempts<'_> {
            self.host.0.store(seconds * 1000, Ordering::Relaxed);
            Attempts {
                documents: &self.documents,
                host: &self.host,
                lease: LEASE,
            }
        }

        async fn begin(&self, seconds: i64, delivery: &Delivery) -> Result<Begun, Stop> {
            let step = (&self.session, 0);
            let listed = self.documents.list(&keys::step(step.0, step.1)).await;
            let attempts = self.at(seconds);
            let nonce = format!("{} at {seconds}", delivery.message_id);
            attempts
                .begin(step, &listed.unwrap(), &nonce, delivery)
                .await
        }

        /// Whom a message waits for, and how long.
        async fn waits(&self, seconds: i64, delivery: &Delivery) -> (String, Duration) {
            match self.begin(seconds, delivery).await {
                Err(Stop::Behind { attempt, after }) => (attempt, after),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn an_attempt_keeps_other_messages_away_for_as_long_as_it_says() {
        let stage = Stage::new();
        let (one, other) = (delivery("1", None, None), delivery("2", None, None));
        let first = stage.begin(0, &one).await.unwrap();
        assert_eq!(first.counted, 1);
        assert_eq!(stage.waits(1, &other).await, ("1.0".into(), LEASE));
        for seconds in [3, 6, 9] {
            stage.at(seconds).keep(&first).await;
        }
        assert_eq!(stage.waits(9, &other).await, ("1.3".into(), LEASE));
        // It says nothing any more.
        let waited = delivery("3", Some("1.3"), None);
        let second = stage.begin(14, &waited).await.unwrap();
        assert_eq!(second.counted, 2);
        // One that says that it is over does not keep the next waiting.
        stage.at(14).give_up(&second, true).await;
        let third = stage.begin(14, &one).await.unwrap();
        assert_eq!(third.counted, 3);
        stage.at(14).give_up(&third, false).await;
        // What was put off does not count.
        assert_eq!(stage.begin(14, &one).await.unwrap().counted, 3);
    }

    #[tokio::test]
    async fn two_dead_attempts_are_waited_for_once_each() {
        let stage = Stage::new();
        let one = delivery("1", None, None);
        stage.begin(0, &one).await.unwrap();
        let owner = "1 at 0";
        stage.begin(1, &one).await.unwrap();
        let step = (&stage.session, 0);
        let mut waited = None;
        for expected in ["2.0", "1.0"] {
            let copy = delivery("2", waited.as_deref(), None);
            let waits = match stage.begin(5, &copy).await {
                Ok(begun) => {
                    stage.at(5).give_up(&begun, false).await;
                    stage
                        .at(5)
                        .wait_for_owner(step, owner, &copy)
                        .await
                        .map(drop)
                }
                Err(stop) => Err(stop),
            };
            let Err(Stop::Behind { attempt, .. }) = waits else {
                panic!("{waits:?}");
            };
            assert_eq!(attempt, expected);
            waited = Some(waited_for(waited.as_ref(), &attempt));
        }
        assert_eq!(waited.as_deref(), Some("2.0,1.0"));
        let copy = delivery("3", waited.as_deref(), None);
        stage.begin(9, &copy).await.unwrap();
        let is_noted = stage.at(9).wait_for_owner(step, owner, &copy).await;
        assert!(is_noted.unwrap());
        // A later sign of life takes the place of an earlier one.
        assert_eq!(waited_for(waited.as_ref(), "2.1"), "1.0,2.1");
    }

    #[tokio::test]
    async fn a_message_that_its_holder_lost_waits_for_nobody() {
        let stage = Stage::new();
        stage.begin(0, &delivery("1", None, None)).await.unwrap();
        let again = stage.begin(1, &delivery("1", None, None)).await;
        assert_eq!(again.unwrap().counted, 2);
    }

    #[tokio::test]
    async fn what_a_broker_that_was_away_hands_out_again_may_be_in_living_hands() {
        let stage = Stage::new();
        stage.begin(10, &delivery("1", None, None)).await.unwrap();
        let again = delivery("1", None, Some(11_000));
        assert_eq!(stage.waits(11, &again).await, ("1.0".into(), LEASE));
        let waited = delivery("1", Some("1.0"), Some(11_000));
        let second = stage.begin(16, &waited).await.unwrap();
        assert_eq!(second.counted, 2);
        // The one that began after the broker was back was lost since.
        assert_eq!(stage.begin(17, &again).await.unwrap().counted, 3);
    }

    #[tokio::test]
    async fn whatever_clocks_say_an_attempt_is_waited_for_once() {
        let stage = Stage::new();
        stage.begin(120, &delivery("1", None, None)).await.unwrap();
        for seconds in [0, 119, 121, 124, 1_000] {
            let waits = stage.waits(seconds, &delivery("2", None, None)).await;
            assert_eq!(waits, ("1.0".into(), LEASE));
        }
        let waited = delivery("3", Some("1.0"), None);
        assert_eq!(stage.begin(7, &waited).await.unwrap().counted, 2);
    }

    #[tokio::test]
    async fn a_call_waits_for_its_owner_while_that_is_alive() {
        let stage = Stage::new();
        let one = delivery("1", None, None);
        stage.begin(0, &one).await.unwrap();
        let step = (&stage.session, 0);
        let owner = "1 at 0";
        // Also where its message was lost: the call may still come to its end.
        let waits = stage.at(2).wait_for_owner(step, owner, &one).await;
        assert!(matches!(waits, Err(Stop::Behind { after, .. }) if after == LEASE));
        let waited = delivery("2", Some("1.0"), None);
        let is_noted = stage.at(5).wait_for_owner(step, owner, &waited).await;
        assert!(is_noted.unwrap());
        // A broker that counts deliveries has no notes.
        let unknown = stage.at(5).wait_for_owner(step, "nobody", &one).await;
        assert!(!unknown.unwrap());
    }

    /// A store that loses the reply to the first create of an attempt, and stores it.
    struct Late(EmbeddedDocuments);

    #[async_trait::async_trait]
    impl Documents for Late {
        async fn create(
            &self,
            key: &str,
            body: Vec<u8>,
        ) -> Result<agentfleet_documents::Created, agentfleet_documents::Error> {
            self.0.create(key, body.clone()).await?;
            // The repeated create finds its own object.
            self.0.create(key, body).await
        }
        async fn get(
            &self,
            key: &str,
        ) -> Result<Option<std::sync::Arc<[u8]>>, agentfleet_documents::Error> {
            self.0.get(key).await
        }
        async fn get_many(
            &self,
            keys: &[String],
        ) -> Result<Vec<Option<std::sync::Arc<[u8]>>>, agentfleet_documents::Error> {
            self.0.get_many(keys).await
        }
        async fn list(&self, prefix: &str) -> Result<Vec<String>, agentfleet_documents::Error> {
            self.0.list(prefix).await
        }
        async fn entries(
            &self,
            prefix: &str,
            after: &str,
            max: usize,
        ) -> Result<Vec<agentfleet_documents::Entry>, agentfleet_documents::Error> {
            self.0.entries(prefix, after, max).await
        }
        async fn delete(&self, keys: &[String]) -> Result<(), agentfleet_documents::Error> {
            self.0.delete(keys).await
        }
    }

    #[tokio::test]
    async fn who_waits_for_an_attempt_waits_for_it_beside_later_ones_that_gave_up() {
        let stage = Stage::new();
        stage.begin(0, &delivery("1", None, None)).await.unwrap();
        let again = stage.begin(1, &delivery("1", None, None)).await.unwrap();
        stage.at(1).give_up(&again, false).await;
        let put_back = delivery("2", None, None);
        assert_eq!(stage.waits(2, &put_back).await, ("1.0".into(), LEASE));
    }

    #[tokio::test]
    async fn a_late_reply_of_the_store_is_no_attempt_of_another() {
        let stage = Stage::new();
        let late = Late(stage.documents.clone());
        let attempts = Attempts {
            documents: &late,
            ..stage.at(0)
        };
        let step = (&stage.session, 0);
        let one = delivery("1", None, None);
        let begun = attempts.begin(step, &[], "nonce", &one).await.unwrap();
        assert_eq!((begun.number, begun.counted), (1, 1));
        let listed = late.list(&keys::step(step.0, step.1)).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
    }
}
