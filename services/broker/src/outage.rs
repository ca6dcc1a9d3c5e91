//! Something that fails for a while, told as one thing: when it begins, now and then while it lasts, and
//! when it is over; however many meet it, and however often they try.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often it is told that an outage lasts.
const AGAIN: Duration = Duration::from_secs(30);

/// What fails, and who meets it now.
#[derive(Debug)]
pub struct Outage {
    what: String,
    met: Mutex<Met>,
}

#[derive(Debug, Default)]
struct Met {
    /// Who met it and has not seen its end.
    by: HashSet<u64>,
    /// The first number that no witness has.
    next: u64,
    began: Option<Instant>,
    told: Option<Instant>,
    tries: u64,
}

/// What is to be told of an outage.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Nothing,
    Begins,
    Lasts(Duration, u64),
    Over(Duration, u64),
}

impl Outage {
    /// `what` is told as the one that fails, and that is back.
    pub fn new(what: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            what: what.into(),
            met: Mutex::default(),
        })
    }

    /// One of those who may meet it.
    pub fn witness(self: &Arc<Self>) -> Witness {
        let mut met = self.met();
        met.next += 1;
        Witness {
            number: met.next,
            outage: Arc::clone(self),
        }
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Met {
    fn failed(&mut self, witness: u64, now: Instant) -> Word {
        self.by.insert(witness);
        self.tries += 1;
        let Some(began) = self.began else {
            (self.began, self.told) = (Some(now), Some(now));
            return Word::Begins;
        };
        if self.told.is_some_and(|told| now - told < AGAIN) {
            return Word::Nothing;
        }
        self.told = Some(now);
        Word::Lasts(now - began, self.tries)
    }

    /// It is over when the last one who met it says so, or is gone.
    fn well(&mut self, witness: u64, now: Instant) -> Word {
        if !self.by.remove(&witness) || !self.by.is_empty() {
            return Word::Nothing;
        }
        let (began, tries) = (self.began.take(), std::mem::take(&mut self.tries));
        began.map_or(Word::Nothing, |began| Word::Over(now - began, tries))
    }
}

/// One who tries. It meets the outage no more when it is dropped.
#[derive(Debug)]
pub struct Witness {
    outage: Arc<Outage>,
    number: u64,
}

impl Witness {
    /// Of an outage that nobody else meets.
    pub fn of(what: impl Into<String>) -> Self {
        Outage::new(what).witness()
    }

    /// A try failed, and is made again.
    pub fn failed(&self, error: &dyn Display) {
        let word = self.outage.met().failed(self.number, Instant::now());
        let what = &self.outage.what;
        match word {
            Word::Begins => tracing::warn!(%error, "{what} fails; trying again"),
            Word::Lasts(time, tries) => {
                let seconds = time.as_secs();
                tracing::warn!(%error, "{what} still fails after {seconds} s and {tries} tries");
            }
            Word::Nothing | Word::Over(..) => {}
        }
    }

    /// A try went well.
    pub fn well(&self) {
        let word = self.outage.met().well(self.number, Instant::now());
        if let Word::Over(time, tries) = word {
            let (what, seconds) = (&self.outage.what, time.as_secs());
            tracing::warn!("{what} is back after {seconds} s and {tries} tries that failed");
        }
    }
}

impl Drop for Witness {
    /// What it met may go on for nobody, and is not told to be over then.
    fn drop(&mut self) {
        self.outage.met().well(self.number, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_at_both_ends_and_seldom_between() {
        let (mut met, began) = (Met::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(met.failed(1, at(0)), Word::Begins);
        assert_eq!(met.failed(2, at(0)), Word::Nothing);
        let told: Vec<Word> = (1..68).map(|second| met.failed(1, at(second))).collect();
        let told: Vec<&Word> = told.iter().filter(|word| **word != Word::Nothing).collect();
        let first = Word::Lasts(Duration::from_secs(30), 32);
        let second = Word::Lasts(Duration::from_secs(60), 62);
        assert_eq!(told, [&first, &second]);
        // Over when it is for all of them, and once.
        assert_eq!(met.well(1, at(68)), Word::Nothing);
        assert_eq!(met.failed(2, at(68)), Word::Nothing);
        let over = Word::Over(Duration::from_secs(68), 70);
        assert_eq!(met.well(2, at(68)), over);
        assert_eq!(met.well(2, at(69)), Word::Nothing);
        assert_eq!(met.failed(2, at(70)), Word::Begins, "another one");
    }

    #[test]
    fn who_is_gone_meets_nothing_any_more() {
        let outage = Outage::new("the queue");
        let (stays, goes) = (outage.witness(), outage.witness());
        goes.failed(&"refused");
        assert_eq!(outage.met().by.len(), 1);
        drop(goes);
        assert!(outage.met().by.is_empty() && outage.met().began.is_none());
        stays.failed(&"refused");
        assert!(outage.met().began.is_some());
        stays.well();
        assert!(outage.met().began.is_none());
    }
}
