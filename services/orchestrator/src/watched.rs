//! Whether anybody still waits for the work of a step while it is at work.
//!
//! A step looks before it starts (BG-1). A call that takes long is looked after as well, as often as the
//! options say: where the tree was closed meanwhile, or a fan-out above concluded, the call is dropped and
//! the step ends. One whose time is used up ends within a second.

use agentfleet_core::Overruled;
use agentfleet_schema::{AgentRequest, Millis};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::Notify;

/// A step at work.
#[derive(Debug)]
pub(crate) struct Watched {
    pub request: AgentRequest,
    stopped: OnceLock<Overruled>,
    told: Notify,
    /// When it was last looked whether the step is still wanted.
    looked: AtomicI64,
}

impl Watched {
    pub(crate) fn new(request: AgentRequest, now: Millis) -> Self {
        Self {
            request,
            stopped: OnceLock::new(),
            told: Notify::new(),
            looked: AtomicI64::new(now),
        }
    }

    /// Ends the step.
    pub(crate) fn stop(&self, over: Overruled) {
        if self.stopped.set(over).is_ok() {
            // Kept for whoever is not waiting yet.
            self.told.notify_one();
        }
    }

    pub(crate) fn look(&self, now: Millis) {
        self.looked.store(now, Ordering::Relaxed);
    }

    pub(crate) fn looked_ago(&self, now: Millis) -> Millis {
        now - self.looked.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Carries out a call for as long as somebody waits for it; `Err` is how the step ends instead.
    pub(crate) async fn while_wanted<T>(
        &self,
        calling: impl Future<Output = T>,
    ) -> Result<T, Overruled> {
        tokio::select! {
            biased;
            done = calling => Ok(done),
            stopped = self.stopped() => Err(stopped),
        }
    }

    async fn stopped(&self) -> Overruled {
        loop {
            if let Some(stopped) = self.stopped.get() {
                return stopped.clone();
            }
            self.told.notified().await;
        }
    }
}
