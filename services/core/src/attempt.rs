//! One attempt at a step: what it is taken up with, and what its end comes to.
//!
//! Workers, who ends a step from outside, and replay all go this way from a request to its commit.

use crate::commit::{Assembled, Commit, Streamed, assemble};
use crate::order::Finish;
use crate::say;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{Call, EndedBy, Publication, Worked};
use agentfleet_schema::topics::{self, Topic};
use agentfleet_schema::{AgentRequest, Digest, Millis, Spent};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A step that was taken up.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The request, its session and limits settled. What it has spent counts what was wasted on it.
    pub request: AgentRequest,
    pub request_digest: Digest,
    /// The properties it came with.
    pub properties: BTreeMap<String, String>,
    /// Identifies this attempt.
    pub nonce: String,
    /// Its number among those at this step.
    pub attempt: u32,
    pub config_version: u64,
    /// The config the step is worked under.
    pub snapshot: Arc<Snapshot>,
    pub started_at: Millis,
    /// What the session had spent before this step.
    pub spent_before: Spent,
    /// What other attempts at this step spent.
    pub wasted: Spent,
    /// Where the responses go.
    pub responses: Topic,
    /// What the record keeps of how the step is worked.
    pub worked: Box<Worked>,
}

/// An end over the head of the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Overruled {
    pub by: EndedBy,
    pub finish: Finish,
}

/// How a step ended, and what it did until then.
#[derive(Clone, Debug)]
pub struct Ending {
    pub finish: Finish,
    /// Set where the step did not end by its own turn.
    pub by: Option<EndedBy>,
    pub calls: Vec<Call>,
    pub streamed: Streamed,
    /// The message, parked for people with the record that refuses it.
    pub parked: Option<Publication>,
}

impl Ending {
    /// Of a step that did nothing.
    pub fn over(over: Overruled) -> Self {
        Self {
            finish: over.finish,
            by: Some(over.by),
            calls: Vec::new(),
            streamed: Streamed::default(),
            parked: None,
        }
    }
}

impl Prepared {
    /// Counts what another attempt at this step spent.
    pub fn waste(&mut self, spent: Spent) {
        self.wasted = self.wasted + spent;
        self.request.control.spent = self.spent_before + self.wasted;
    }

    /// What is committed of the step. `refuse` looks at it before, and says how the step ends instead if
    /// that cannot be published: afterwards it could only be tried for ever.
    pub fn end(
        self,
        mut ending: Ending,
        now: Millis,
        refuse: impl FnOnce(&Assembled) -> Option<Overruled>,
    ) -> Assembled {
        let (by, parked) = (ending.by, ending.parked.take());
        let mut commit = self.commit(ending, now);
        tell_end(&mut commit, by);
        let mut assembled = assemble(&commit);
        assembled.record.publications.extend(parked);
        let Some(over) = refuse(&assembled) else {
            return assembled;
        };
        commit.finish = over.finish;
        commit.streamed = Streamed::default();
        tell_end(&mut commit, Some(over.by));
        assemble(&commit)
    }

    /// The same again, from a record that tells how the step ended.
    pub fn end_as_told(self, ending: Ending, now: Millis) -> Assembled {
        assemble(&self.commit(ending, now))
    }

    fn commit(self, ending: Ending, now: Millis) -> Commit {
        Commit {
            request: self.request,
            request_digest: self.request_digest,
            properties: self.properties,
            nonce: self.nonce,
            attempt: self.attempt,
            config_version: self.config_version,
            snapshot: self.snapshot,
            started_at: self.started_at,
            now,
            finish: ending.finish,
            wasted: self.wasted,
            calls: ending.calls,
            streamed: ending.streamed,
            responses: self.responses,
            worked: self.worked,
        }
    }
}

/// Notes in the record how the step came to its end, and where that is told.
fn tell_end(commit: &mut Commit, by: Option<EndedBy>) {
    let worked = &mut commit.worked;
    worked.responses = if commit.responses == topics::AGENT_RESPONSE {
        String::new()
    } else {
        commit.responses.as_str().to_owned()
    };
    worked.streamed = commit.streamed.noted();
    worked.ended = by.and_then(|by| say::from_outside(by, &commit.finish));
}
