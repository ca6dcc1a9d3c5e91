//! A model that cannot answer now: overloaded, limited in its rate, or out of reach.
//!
//! Its step is put back, uncounted, and asks again after pauses that grow, until the model answers or the
//! run's own time is up. How long it has waited travels with the message, for workers keep nothing. A call
//! that fails only after long is no wait but a try, of which there are few: nobody wants to pay and wait
//! for it for an hour.

use agentfleet_broker::Delivery;
use agentfleet_core::say;
use agentfleet_models::{Error, Kind};
use agentfleet_schema::records::ModelWait;
use agentfleet_schema::topics::property;
use agentfleet_schema::{Digest, Millis, millis, redacted};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A call that fails after this long counts as a try.
const SLOW: Duration = Duration::from_secs(30);
/// The first pause. Each one after it is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Millis = 1_000;
const LONGEST_PAUSE: Millis = 30_000;
/// Who waits for very long asks ever more rarely: after this part of what was waited, up to a bound.
const PART_OF_WAIT: Millis = 30;
const RAREST: Millis = 600_000;
/// Longest wait in all, whatever the setting says, where the run has more time than that, or no end.
pub const LONGEST_WAIT: Millis = 24 * 3_600_000;
/// Less than this before the end, another try would come to nothing.
const LAST_CHANCE: Millis = 2_000;
/// Longest reason that travels with a message, in characters.
const LONGEST_REASON: usize = 300;

/// A wait for a model, as a message carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Away {
    /// When the model failed first.
    since: Millis,
    /// How often the step was put back.
    times: u32,
    /// For how long in all. Calls that came to nothing between the pauses are tries, and no wait.
    paused: Millis,
    /// What the provider said last.
    pub(crate) reason: String,
    /// Whether the try after this wait is the last one. A worker whose clock is behind is given the
    /// message at once, and would try without a pause until its own clock reaches the end.
    is_last: bool,
}

/// A step that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub(crate) away: Away,
    pub(crate) again_at: Millis,
    /// What is told to whoever watches.
    pub(crate) told: String,
    /// Of the attempt that puts it back.
    pub(crate) nonce: String,
}

/// When a call failed, and until when the step may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time<'a> {
    pub now: Millis,
    pub hard_deadline: Millis,
    pub nonce: &'a str,
    /// Longest wait in all.
    pub longest: Millis,
    /// Whether who asked reads what the provider said.
    pub is_told_why: bool,
}

/// How long a model wants to be left alone that is away. `None` where the failure is of another kind, or
/// came after `ms` that are too long to go on like this.
pub(crate) fn pause_asked(error: &Error, ms: u64) -> Option<Duration> {
    let after = error.retry()?;
    let is_away = match error.kind() {
        Kind::RateLimited | Kind::Unavailable | Kind::Unreachable | Kind::ConnectTimeout => true,
        // A reply that did not come in time may have cost as much as one that did.
        Kind::Timeout
        | Kind::NotAllowed
        | Kind::Refused
        | Kind::Declined
        | Kind::InvalidReply
        | Kind::Misconfigured
        | Kind::UnknownOption => false,
    };
    (is_away && Duration::from_millis(ms) < SLOW).then_some(after)
}

impl Away {
    /// The wait that a message was put back for.
    pub(crate) fn of(delivery: &Delivery) -> Option<Self> {
        let told = delivery.properties.get(property::MODEL_AWAY)?;
        serde_json::from_str(told).ok()
    }

    pub(crate) fn property(&self) -> String {
        // Plain data: writing it as JSON cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As the record of the step tells it.
    pub(crate) fn waited(&self) -> ModelWait {
        ModelWait {
            times: self.times,
            ms: self.paused.unsigned_abs(),
            reason: self.reason.clone(),
        }
    }

    /// Waits on after another failure; `Err` says why that is of no use.
    pub(crate) fn wait(
        before: Option<Self>,
        error: &Error,
        asked: Duration,
        time: Time<'_>,
    ) -> Result<Wait, String> {
        let Time { now, nonce, .. } = time;
        let said = say::in_one_line(&redacted(&error.to_string()));
        let before = before.unwrap_or_else(|| Self {
            since: now,
            ..Self::default()
        });
        let since = before.since.clamp(0, now);
        let until = time
            .hard_deadline
            .min(since.saturating_add(time.longest.min(LONGEST_WAIT)));
        let (asked, left) = (millis(asked), until - now);
        if asked >= left && asked > LONGEST_PAUSE {
            return Err(format!(
                "{said}; it may be asked again in {} s, and the wait for it ends in {} s",
                asked / 1_000,
                left.max(0) / 1_000
            ));
        }
        if left < LAST_CHANCE || before.is_last {
            return Err(format!(
                "{said}; it was asked {} times in {} s, until the wait for it was over",
                before.times.saturating_add(1),
                (now - since) / 1_000
            ));
        }
        let wanted = asked.max(pause(before.times, now - since, nonce));
        let pause = wanted.min(left - LAST_CHANCE / 2);
        let mut told = format!(
            "Trying again in {} s, waiting until {} UTC at the longest",
            (pause + 500) / 1_000,
            time_of_day(until, now)
        );
        if time.is_told_why {
            told.push_str(": ");
            told.push_str(&said);
        }
        Ok(Wait {
            away: Self {
                since,
                times: before.times.saturating_add(1),
                paused: before.paused.saturating_add(pause),
                reason: said.chars().take(LONGEST_REASON).collect(),
                is_last: pause < wanted,
            },
            again_at: now + pause,
            told,
            nonce: nonce.to_owned(),
        })
    }
}

/// A pause that grows, less up to a quarter that differs by attempt: those who were turned away together
/// do not come back together.
fn pause(times: u32, waited: Millis, nonce: &str) -> Millis {
    let rarely = (waited / PART_OF_WAIT).min(RAREST);
    let growing = (FIRST_PAUSE << times.min(10)).min(LONGEST_PAUSE);
    let whole = growing.max(rarely);
    let digest = Digest::of(nonce.as_bytes());
    let first = digest.as_str().bytes().take(4);
    let spread = first.map(Millis::from).sum::<Millis>() % 26;
    whole - whole * spread / 100
}

/// An instant by the time of day, with its day where that is another one.
fn time_of_day(at: Millis, now: Millis) -> String {
    let (at, now) = (
        agentfleet_core::provenance::date_time(at),
        agentfleet_core::provenance::date_time(now),
    );
    let (day, time) = (at.get(..10), at.get(11..19).unwrap_or_default());
    if day == now.get(..10) {
        return time.to_owned();
    }
    format!("{} {time}", day.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn busy(asked: u64) -> Error {
        Error::new(Kind::RateLimited, "OpenAI limits the rate of requests")
            .after(Duration::from_secs(asked))
    }

    /// From a failure at `now`, all in seconds.
    fn wait(before: Option<Away>, asked: u64, now: i64, deadline: i64) -> Result<Wait, String> {
        let time = Time {
            now: now * 1_000,
            hard_deadline: deadline * 1_000,
            nonce: "nonce",
            longest: LONGEST_WAIT,
            is_told_why: true,
        };
        Away::wait(before, &busy(asked), Duration::from_secs(asked), time)
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ_by_attempt() {
        let mut away = None;
        let mut now = 1_000_000;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let time = Time {
                now,
                hard_deadline: now + 3_600_000,
                nonce: "nonce",
                longest: LONGEST_WAIT,
                is_told_why: true,
            };
            let waits = Away::wait(away, &busy(0), Duration::ZERO, time).unwrap();
            pauses.push(waits.again_at - now);
            now = waits.again_at;
            away = Some(waits.away);
        }
        for (pause, most) in pauses.iter().zip([1, 2, 4, 8, 16, 30, 30, 30]) {
            let most = most * 1_000;
            assert!((most * 3 / 4..=most).contains(pause), "{pauses:?}");
        }
        // However long the last try took.
        let told = away.unwrap().waited();
        assert_eq!((told.times, told.ms), (8, now.unsigned_abs() - 1_000_000));
        let spread: std::collections::HashSet<Millis> = (0..40)
            .map(|n| pause(5, 0, &format!("nonce {n}")))
            .collect();
        assert!(spread.len() > 5);
        // After an hour every two minutes, in the end every ten.
        for (waited, most) in [(3_600_000, 120_000), (LONGEST_WAIT, RAREST)] {
            let pause = pause(200, waited, "nonce");
            assert!((most * 3 / 4..=most).contains(&pause), "{pause}");
        }
    }

    #[test]
    fn what_the_provider_asks_for_is_kept_and_what_lies_beyond_the_end_is_said_at_once() {
        let waits = wait(None, 7, 100, 3_600).unwrap();
        assert_eq!(waits.again_at, 107_000);
        let told = "Trying again in 7 s, waiting until 01:00:00 UTC at the longest: OpenAI limits the \
                    rate of requests";
        assert_eq!(waits.told, told);
        let why = wait(None, 4_000, 100, 3_600).unwrap_err();
        assert!(
            why.ends_with("asked again in 4000 s, and the wait for it ends in 3500 s"),
            "{why}"
        );
        // Shortly before the end there is one more try, and then none.
        let last = wait(Some(waits.away), 20, 3_585, 3_600).unwrap();
        assert_eq!(last.again_at, 3_599_000);
        // Also for a worker whose clock did not move since.
        let why = wait(Some(last.away.clone()), 1, 3_585, 3_600).unwrap_err();
        assert!(why.ends_with("until the wait for it was over"), "{why}");
        let why = wait(Some(last.away), 1, 3_599, 3_600).unwrap_err();
        assert!(
            why.ends_with("asked 3 times in 3499 s, until the wait for it was over"),
            "{why}"
        );
    }

    #[test]
    fn the_setting_ends_a_wait_before_the_run_does_and_people_are_not_told_why() {
        let time = |now: i64| Time {
            now: now * 1_000,
            hard_deadline: 3_600_000,
            nonce: "nonce",
            longest: 60_000,
            is_told_why: false,
        };
        let busy = busy(1);
        let wait = |before, now| Away::wait(before, &busy, Duration::from_secs(1), time(now));
        let first = wait(None, 100).unwrap();
        let told = "Trying again in 1 s, waiting until 00:02:40 UTC at the longest";
        assert_eq!(first.told, told);
        assert!(wait(Some(first.away.clone()), 150).is_ok());
        let why = wait(Some(first.away), 160).unwrap_err();
        assert!(why.contains("OpenAI limits the rate"), "{why}");
    }

    #[test]
    fn a_run_without_an_end_does_not_wait_for_ever() {
        let first = wait(None, 1, 0, i64::from(i32::MAX)).unwrap();
        assert!(
            first.told.contains("1970-01-02 00:00:00 UTC"),
            "{}",
            first.told
        );
        assert!(
            wait(
                Some(first.away),
                1,
                LONGEST_WAIT / 1_000,
                i64::from(i32::MAX)
            )
            .is_err()
        );
    }

    #[test]
    fn a_model_is_waited_for_only_where_it_is_away_and_says_so_soon() {
        let slow = SLOW.as_millis() as u64;
        let failed = |kind| Error::new(kind, "it failed").after(Duration::from_secs(2));
        for (error, ms, expected) in [
            (failed(Kind::ConnectTimeout), 10, Some(2)),
            (failed(Kind::Timeout), 10, None),
            (busy(3), 10, Some(3)),
            (busy(3), slow, None),
            (failed(Kind::InvalidReply), 10, None),
            (Error::new(Kind::Refused, "no"), 10, None),
        ] {
            let asked = pause_asked(&error, ms).map(|asked| asked.as_secs());
            assert_eq!(asked, expected, "{error}");
        }
    }
}
