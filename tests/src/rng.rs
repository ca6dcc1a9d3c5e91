//! A small seeded generator (SplitMix64). Every choice of a simulated run comes from one of these,
//! so a seed is a run.

/// A source of choices.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for an `n` of 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            0
        } else {
            (self.next() % n as u64) as usize
        }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    /// True this often in a thousand.
    pub fn per_mille(&mut self, often: u32) -> bool {
        often > 0 && self.below(1000) < often as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A position, each with its weight; `None` if all weights are 0.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> Option<usize> {
        let total: u64 = weights.clone().map(u64::from).sum();
        if total == 0 {
            return None;
        }
        let mut at = self.next() % total;
        for (position, weight) in weights.enumerate() {
            if at < u64::from(weight) {
                return Some(position);
            }
            at -= u64::from(weight);
        }
        None
    }
}
