//! How full the graph may be, how full it is, and what to tell people about it.

use super::{GraphOptions, Inner, QUERIES_APART, lock, memory};
use crate::error::Error;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest start that nobody need hear about.
const QUIET_REBUILD: Duration = Duration::from_secs(10);
const WAY_OUT: &str = "erase old sessions, or use a SPARQL server";

/// What the graph may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    ram: u64,
    pub(crate) max_quads: u64,
    pub(crate) max_query_bytes: u64,
}

impl Limits {
    pub(crate) fn new(options: GraphOptions) -> Self {
        Self::with_memory(options, memory::total())
    }

    fn with_memory(options: GraphOptions, ram: u64) -> Self {
        // While the log is read anew there are two copies, and the rest of the process needs room.
        let max_quads = options
            .max_quads
            .unwrap_or(ram * 2 / 5 / memory::BYTES_A_QUAD);
        Self {
            ram,
            max_quads,
            // All that may run at once have a quarter.
            max_query_bytes: options
                .max_query_bytes
                .unwrap_or(ram / 4 / QUERIES_APART as u64),
        }
    }

    /// Refuses more quads than there may be.
    pub(crate) fn check(&self, quads: u64) -> Result<(), Error> {
        self.within(quads, self.max_quads)
    }

    /// The limit for what others have put already, with some room for races.
    pub(crate) fn hard(&self) -> u64 {
        self.max_quads
            .saturating_add(self.max_quads / 8)
            .saturating_add(10_000)
    }

    /// Refuses to hold what others put beyond the limit.
    pub(crate) fn check_hard(&self, quads: u64) -> Result<(), Error> {
        self.within(quads, self.hard())
    }

    fn within(&self, quads: u64, most: u64) -> Result<(), Error> {
        let max = self.max_quads;
        if quads > most {
            return Err(Error::Full { quads, max });
        }
        Ok(())
    }

    fn level(&self, quads: u64, rebuild: Duration) -> Level {
        if quads >= self.max_quads {
            Level::Full
        } else if quads * memory::BYTES_A_QUAD >= self.ram / 4
            || quads >= self.max_quads / 4 * 3
            || rebuild > QUIET_REBUILD
        {
            Level::Large
        } else {
            Level::Fine
        }
    }
}

/// How full the graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Fine,
    /// It takes much of the memory, or starting takes long.
    Large,
    /// Inserts are refused.
    Full,
}

/// The state of the graph, for `doctor` and probes.
#[derive(Clone, Debug)]
pub struct Health {
    pub level: Level,
    /// What to do about it; empty while all is fine.
    pub advice: String,
    pub quads: u64,
    pub max_quads: u64,
}

impl Inner {
    pub(super) fn health(&self) -> Health {
        let quads = self.current().quads();
        let rebuild = lock(&self.rate).estimate(quads);
        let level = self.limits.level(quads, rebuild);
        let advice = match level {
            Level::Fine => String::new(),
            Level::Large => format!(
                "the graph holds {quads} quads ({} MB of memory, {:.0} s to read at start): {WAY_OUT}",
                (quads * memory::BYTES_A_QUAD) >> 20,
                rebuild.as_secs_f64()
            ),
            Level::Full => format!(
                "the graph holds {quads} of at most {} quads, and inserts are refused: {WAY_OUT}, or allow more quads",
                self.limits.max_quads
            ),
        };
        Health {
            level,
            advice,
            quads,
            max_quads: self.limits.max_quads,
        }
    }

    /// Tells people when the graph has become fuller, once for each level.
    pub(super) fn tell(&self) {
        let quads = self.current().quads();
        let level = self.limits.level(quads, lock(&self.rate).estimate(quads));
        let told = self.told.swap(level as u8, Ordering::Relaxed);
        if level as u8 > told {
            tracing::warn!(quads, "{}", self.health().advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_follows_memory_limit_and_start_time() {
        let limits = Limits::with_memory(GraphOptions::default(), 10 << 30);
        assert!(limits.max_quads > 10_000_000, "{}", limits.max_quads);
        let quarter = (10 << 30) / 4 / memory::BYTES_A_QUAD;
        let (quick, slow) = (Duration::from_secs(1), Duration::from_secs(11));
        let table = [
            (0, quick, Level::Fine),
            (quarter - 1, quick, Level::Fine),
            (quarter + 1, quick, Level::Large),
            (1, slow, Level::Large),
            (limits.max_quads, quick, Level::Full),
        ];
        for (quads, rebuild, level) in table {
            assert_eq!(limits.level(quads, rebuild), level, "{quads} {rebuild:?}");
        }
    }

    #[test]
    fn a_full_graph_would_fit_into_memory_twice() {
        for ram in [1 << 30, 8 << 30, 64 << 30] {
            let limits = Limits::with_memory(GraphOptions::default(), ram);
            assert!(limits.max_quads * memory::BYTES_A_QUAD * 2 < ram);
        }
    }
}
