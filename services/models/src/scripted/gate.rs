//! Holds replies until a test lets them go, so that a test decides what happens at the same time.

use tokio::sync::watch;

/// A gate that calls wait at. Clones share the gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    open: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for everyone, now and later.
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// Waits until this many calls wait at the gate.
    pub async fn arrived(&self, calls: usize) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = waiting.wait_for(|now| *now >= calls).await;
    }

    /// Waits until the gate opens. A caller that gives up is no longer counted.
    pub(super) async fn pass(&self) {
        let mut open = self.open.subscribe();
        let _here = Waiting::new(&self.waiting);
        let _ = open.wait_for(|open| *open).await;
    }
}

struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|now| *now += 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|now| *now = now.saturating_sub(1));
    }
}
