//! The log of a run: every effect, in order. Kept only when a failure is told, because the same
//! seed makes the same run again.

use agentfleet_schema::{Millis, SessionId};
use std::collections::BTreeMap;

/// The log.
#[derive(Debug, Default)]
pub struct Journal {
    pub keeping: bool,
    lines: Vec<(Millis, String)>,
    /// Session ids by the names people know them by.
    names: BTreeMap<String, String>,
    /// A running hash of everything logged or not: equal seeds give equal hashes.
    pub hash: u64,
}

impl Journal {
    pub fn note(&mut self, now: Millis, line: impl FnOnce() -> String) {
        if self.keeping {
            self.lines.push((now, line()));
        }
    }

    /// Mixes a step of the run into its hash.
    pub fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(17);
    }

    pub fn name(&mut self, session: &str, name: &str) {
        if self.keeping && !session.is_empty() {
            self.names
                .entry(session.to_owned())
                .or_insert_with(|| name.to_owned());
        }
    }

    /// The name of a session; the session itself if it has none.
    pub fn named<'a>(&'a self, session: &'a str) -> &'a str {
        self.names.get(session).map_or(session, String::as_str)
    }

    pub fn session_of(&self, name: &str) -> Option<SessionId> {
        let found = self.names.iter().find(|(_, known)| known.as_str() == name);
        found.map(|(session, _)| SessionId::from(session.as_str()))
    }

    /// The last lines, with sessions by name.
    pub fn tail(&self, most: usize) -> String {
        let from = self.lines.len().saturating_sub(most);
        let mut out = String::new();
        if from > 0 {
            out.push_str(&format!("... {from} earlier\n"));
        }
        for (at, line) in &self.lines[from..] {
            let mut line = line.clone();
            for (id, name) in &self.names {
                if line.contains(id.as_str()) {
                    line = line.replace(id.as_str(), name);
                }
            }
            let (seconds, millis) = (at.div_euclid(1000), at.rem_euclid(1000));
            out.push_str(&format!("{seconds:>6}.{millis:03}  {line}\n"));
        }
        out
    }
}
