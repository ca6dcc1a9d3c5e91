//! The receiving end of a subscription: what its feeds brought, handed out on demand.
//!
//! A feed may fetch only as much as the consumer asked for (`room`), so that memory is bounded, and
//! no message waits here for a worker who is busy while another one is free. What comes although
//! there is no room (any more) goes back to the broker, which gives it to whoever has some.

use super::holdings::{Holdings, Terms};
use super::parcel::Arrived;
use crate::{Consumer, Delivery, Error};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Most messages to ask for at once.
const MAX_ROOM: usize = 1000;

/// Between the feeds of a subscription and its consumer.
#[derive(Debug)]
pub(super) struct Intake {
    arrived: Mutex<VecDeque<Arrived>>,
    ready: Notify,
    room: watch::Sender<usize>,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            arrived: Mutex::default(),
            ready: Notify::new(),
            room: watch::Sender::new(0),
        }
    }

    fn arrived(&self) -> MutexGuard<'_, VecDeque<Arrived>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many messages the consumer has room for; the feeds wake when it changes.
    pub(super) fn room(&self) -> watch::Receiver<usize> {
        self.room.subscribe()
    }

    pub(super) fn waiting(&self) -> usize {
        self.arrived().len()
    }

    pub(super) fn bring(&self, message: Arrived) {
        let mut arrived = self.arrived();
        if arrived.len() >= *self.room.borrow() && message.entry.is_single() {
            message.entry.give_back();
            return;
        }
        arrived.push_back(message);
        drop(arrived);
        self.ready.notify_one();
    }

    /// The consumer stopped waiting: what it did not take is for others.
    fn stop_waiting(&self) {
        let mut arrived = self.arrived();
        self.room.send_replace(0);
        // The rest of a pack stays: parts of it may be in somebody's hands.
        arrived.retain(|message| {
            let single = message.entry.is_single();
            if single {
                message.entry.give_back();
            }
            !single
        });
    }

    /// Drops what came over a stream that ended: it comes again.
    pub(super) fn lost(&self, stream: u64) {
        self.arrived()
            .retain(|message| message.entry.consumer != stream);
    }

    /// Takes what is there, and says how much more there is room for.
    fn take(&self, max: usize) -> Vec<Arrived> {
        let mut arrived = self.arrived();
        let count = arrived.len().min(max);
        self.room.send_replace(max - count);
        arrived.drain(..count).collect()
    }
}

/// Somebody waits, until this is dropped.
struct Waiting<'a>(&'a Intake);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

pub(super) struct PulsarConsumer {
    pub(super) intake: Arc<Intake>,
    pub(super) holdings: Arc<Holdings>,
    pub(super) terms: Arc<Terms>,
    pub(super) holder: u64,
    /// Cancelled when the broker is closed.
    pub(super) stop: CancellationToken,
    /// Keeps the broker open.
    pub(super) _broker: super::PulsarBroker,
}

#[async_trait]
impl Consumer for PulsarConsumer {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        let max = max.clamp(1, MAX_ROOM);
        let waiting = Waiting(&self.intake);
        loop {
            let ready = self.intake.ready.notified();
            let taken = self.intake.take(max);
            if !taken.is_empty() {
                std::mem::forget(waiting);
                let hand_out = |arrived| self.holdings.hand_out(arrived, &self.terms, self.holder);
                return Ok(taken.into_iter().map(hand_out).collect());
            }
            tokio::select! {
                () = ready => {}
                () = self.stop.cancelled() => return Err(Error::Closed),
            }
        }
    }
}

impl Drop for PulsarConsumer {
    fn drop(&mut self) {
        self.holdings.let_go(self.holder);
        self.stop.cancel();
    }
}
