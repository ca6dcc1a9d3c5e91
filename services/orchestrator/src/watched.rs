//! Whether anybody still waits for the work of a step while it is at work.
//!
//! A step looks before it starts (BG-1). A call that takes long is looked after as well, each time its
//! message's lease is kept: where the tree was closed meanwhile, or a fan-out above concluded, the call
//! is dropped and the step ends. So a cancelled run stops within a third of the lease, and one whose time
//! is used up within a second.

use agentfleet_core::Finish;
use agentfleet_schema::AgentRequest;
use std::sync::OnceLock;
use tokio::sync::Notify;

/// A step at work.
#[derive(Debug)]
pub(crate) struct Watched {
    pub request: AgentRequest,
    stopped: OnceLock<(&'static str, Finish)>,
    told: Notify,
}

impl Watched {
    pub(crate) fn new(request: AgentRequest) -> Self {
        Self {
            request,
            stopped: OnceLock::new(),
            told: Notify::new(),
        }
    }

    /// Ends the step: `by` what, and how.
    pub(crate) fn stop(&self, by: &'static str, finish: Finish) {
        if self.stopped.set((by, finish)).is_ok() {
            // Kept for whoever is not waiting yet.
            self.told.notify_one();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Carries out a call for as long as somebody waits for it; `Err` is how the step ends instead.
    pub(crate) async fn while_wanted<T>(
        &self,
        calling: impl Future<Output = T>,
    ) -> Result<T, (&'static str, Finish)> {
        tokio::select! {
            biased;
            done = calling => Ok(done),
            stopped = self.stopped() => Err(stopped),
        }
    }

    async fn stopped(&self) -> (&'static str, Finish) {
        loop {
            if let Some(stopped) = self.stopped.get() {
                return stopped.clone();
            }
            self.told.notified().await;
        }
    }
}
