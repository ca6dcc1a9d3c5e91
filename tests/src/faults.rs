//! How often things go wrong. Drawn from the seed, so that runs range from none to storms.

use crate::effect::{Effect, Fault, Verb};
use crate::rng::Rng;

/// Rates in a thousand, by the kind of trouble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Off once the run is to come to its end.
    pub on: bool,
    pub refused: u32,
    pub reply_lost: u32,
    /// `Exists` for what was not stored, and for what this very call stored.
    pub false_exists: u32,
    pub doubled: u32,
    pub delayed: u32,
    pub model: u32,
    pub tool: u32,
    /// Per scheduling step.
    pub crash: u32,
    pub again: u32,
    pub early: u32,
    pub drain: u32,
    pub time: u32,
    /// What one call publishes becomes visible in order within each topic only.
    pub scattered: bool,
    /// Forced by a directed test: the next call that matches fails like this.
    pub forced: Vec<(Verb, String, Fault)>,
}

impl Faults {
    /// Nothing goes wrong, except for order and time.
    pub fn none() -> Self {
        Self {
            on: true,
            time: 5,
            ..Self::default()
        }
    }

    pub fn draw(rng: &mut Rng) -> Self {
        // A sixth of the runs know only order, duplicates and time.
        let calm = rng.per_mille(160);
        let mut rate = |most: i64| {
            // Each kind is absent from a third of the runs: what hides behind one shows without it.
            if rng.per_mille(333) {
                0
            } else {
                rng.between(0, most) as u32
            }
        };
        let scale = |rate: u32| if calm { 0 } else { rate };
        Self {
            on: true,
            refused: scale(rate(40)),
            reply_lost: scale(rate(40)),
            false_exists: scale(rate(40)),
            doubled: scale(rate(60)),
            delayed: scale(rate(60)),
            model: scale(rate(80)),
            tool: scale(rate(80)),
            crash: scale(rate(25)),
            again: rate(25),
            early: rate(25),
            drain: scale(rate(4)),
            time: rate(30),
            scattered: rng.per_mille(750),
            forced: Vec::new(),
        }
    }

    /// Whether this call goes wrong, and how.
    pub fn strike(&mut self, rng: &mut Rng, effect: &Effect) -> Option<Fault> {
        let forced = self.forced.iter().position(|(verb, what, _)| {
            *verb == effect.verb && effect.what.contains(what.as_str())
        });
        if let Some(at) = forced {
            return Some(self.forced.remove(at).2);
        }
        if !self.on {
            return None;
        }
        let mut hit = |rate: u32, fault: Fault| rng.per_mille(rate).then_some(fault);
        match effect.verb {
            Verb::Create => hit(self.refused, Fault::Refused)
                .or_else(|| hit(self.reply_lost, Fault::ReplyLost))
                .or_else(|| hit(self.false_exists, Fault::FalseExists))
                .or_else(|| hit(self.false_exists, Fault::OwnExists)),
            Verb::Publish => hit(self.refused, Fault::Refused)
                .or_else(|| hit(self.reply_lost, Fault::ReplyLost))
                .or_else(|| hit(self.doubled, Fault::Doubled)),
            Verb::Ack
            | Verb::Nack
            | Verb::DeadLetter
            | Verb::Insert
            | Verb::Erase
            | Verb::Commit => {
                hit(self.refused, Fault::Refused).or_else(|| hit(self.reply_lost, Fault::ReplyLost))
            }
            Verb::Read | Verb::List | Verb::Query | Verb::Config => {
                hit(self.refused / 4, Fault::Refused)
            }
            Verb::Chat => {
                hit(self.model, Fault::Refused).or_else(|| hit(self.model / 8, Fault::Permanent))
            }
            Verb::Call => hit(self.tool, Fault::Refused)
                .or_else(|| hit(self.tool, Fault::ReplyLost))
                .or_else(|| hit(self.tool, Fault::Permanent)),
        }
    }
}
