//! What an attempt at a step debits before each of its calls, on the account of the step.

use crate::error::Stop;
use agentfleet_documents::Documents;
use agentfleet_runtime::account;
use agentfleet_schema::records::DebitRecord;
use agentfleet_schema::{SessionId, Spent};
use std::time::Duration;

/// How long a step is left to another attempt that debits.
const OTHERS_WORK: Duration = Duration::from_secs(2);

/// The debits of one attempt.
pub(crate) struct Debits<'a> {
    pub documents: &'a dyn Documents,
    pub step: (SessionId, u32),
    pub nonce: String,
    /// Whether model calls are debited: somebody pays for them, or a budget bounds the session.
    pub of_models: bool,
    /// Whether tool calls are: a budget bounds them.
    pub of_tools: bool,
    /// The place of the last debit that this attempt knows of.
    pub last: u32,
    /// What was debited for the first call already, when the step was begun.
    pub ahead: Option<Spent>,
    /// What is reserved for a call whose end is not known yet.
    pub open: Option<Spent>,
    /// Whether this attempt debited anything.
    pub any: bool,
}

impl Debits<'_> {
    /// Notes what the next call may come to, before it is made; `settled` is what the calls before it
    /// came to. Whoever finds another attempt's debit there leaves the step to it: both would pay for
    /// the same work.
    pub(crate) async fn reserve(&mut self, settled: Spent, reserved: Spent) -> Result<(), Stop> {
        let ahead = self.ahead.take();
        if settled.is_nothing() && ahead == Some(reserved) {
            self.open = ahead;
            return Ok(());
        }
        while let Some(there) = self.put(settled, reserved).await? {
            if !there.reserved.is_nothing() {
                return Err(Stop::Postpone {
                    reason: "another attempt is at work".into(),
                    after: OTHERS_WORK,
                });
            }
            // One that gave up, and said what it had spent.
            self.last += 1;
        }
        self.open = Some(reserved);
        self.any = true;
        Ok(())
    }

    /// Notes what the calls came to of an attempt that gives up by itself.
    pub(crate) async fn settle(&mut self, settled: Spent) {
        if !self.any {
            return;
        }
        self.open = None;
        loop {
            match self.put(settled, Spent::default()).await {
                Ok(None) => return,
                // Somebody else debits too: behind it, then.
                Ok(Some(_)) => self.last += 1,
                Err(error) => {
                    tracing::debug!(%error, "the last call counts as it was reserved");
                    return;
                }
            }
        }
    }

    /// Puts a debit behind the last one; answers with another's that stands there, if so.
    async fn put(&mut self, settled: Spent, reserved: Spent) -> Result<Option<DebitRecord>, Stop> {
        let record = DebitRecord {
            nonce: self.nonce.clone(),
            settled,
            reserved,
        };
        let step = (&self.step.0, self.step.1);
        let place = self.last + 1;
        let other = account::debit(self.documents, step, place, &record).await?;
        if other.is_none() {
            self.last = place;
        }
        Ok(other)
    }
}
