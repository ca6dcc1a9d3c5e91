//! Hands messages to waiting consumers, in the same transaction that made them ready.
//!
//! Runs on the writer thread, around every commit. A consumer that finds nothing is parked here and
//! tried again when its topic was touched, when another process committed, or when the next message
//! comes due: a delay or a lease that ends. So waiting costs nothing, and a next step that is
//! published by a worker which already waits costs no transaction of its own.

use crate::embedded::State;
use crate::embedded::store::{self, Terms};
use crate::error::Error;
use crate::{Delivery, Receipt};
use agentfleet_schema::Millis;
use agentfleet_storage::{self as storage, CommitHook, Nudge, Unit};
use rusqlite::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A consumer that waits for messages.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) terms: Terms,
    pub(super) topic_id: i64,
    pub(super) consumer: u64,
    pub(super) reply: oneshot::Sender<Result<Claimed, Error>>,
}

/// A delivery that comes back without having been settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Returned {
    pub(super) receipt: Receipt,
    /// Its consumer was dropped; otherwise it stopped waiting before it arrived.
    pub(super) is_seen: bool,
}

/// Messages on their way to a consumer: if they do not arrive, they go back.
#[derive(Debug)]
pub(super) struct Claimed {
    state: Arc<State>,
    deliveries: Vec<Delivery>,
}

impl Claimed {
    pub(super) fn take(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if !self.deliveries.is_empty() {
            let unseen = self.deliveries.drain(..).map(|delivery| Returned {
                receipt: delivery.receipt,
                is_seen: false,
            });
            self.state.hand_back(unseen.collect());
        }
    }
}

/// The waiting consumers of one subscription.
#[derive(Default)]
struct Parked {
    topic_id: i64,
    waiters: VecDeque<Waiter>,
    /// Something may be ready: try in the next transaction.
    look: bool,
    /// When something will be ready by itself.
    wake: Option<Millis>,
}

pub(super) struct Dispatcher {
    state: Arc<State>,
    parked: BTreeMap<i64, Parked>,
    returned: Vec<Returned>,
    release_dead: bool,
    served: Vec<(Waiter, Vec<Delivery>)>,
}

impl Dispatcher {
    pub(super) fn new(state: Arc<State>) -> Self {
        // At the start it may be another process's death that made this one start.
        Self {
            state,
            parked: BTreeMap::new(),
            returned: Vec::new(),
            release_dead: true,
            served: Vec::new(),
        }
    }

    fn collect_mail(&mut self) {
        let mut mail = self.state.mailbox();
        self.returned.append(&mut mail.returned);
        for waiter in mail.waiters.drain(..) {
            let parked = self.parked.entry(waiter.terms.subscription).or_default();
            // A consumer may stop waiting and start again any number of times.
            parked.waiters.retain(|waiter| !waiter.reply.is_closed());
            parked.topic_id = waiter.topic_id;
            parked.look = true;
            parked.waiters.push_back(waiter);
        }
    }

    fn take_back(&self, unit: &mut Unit<'_>) -> Result<(), storage::Error> {
        for returned in &self.returned {
            let Returned { receipt, is_seen } = *returned;
            store::nack(&self.state, unit, receipt, Duration::ZERO, is_seen)?;
        }
        Ok(())
    }

    /// Serves who waits for what is ready, until nobody who waits has anything ready.
    fn dispatch(&mut self, unit: &mut Unit<'_>) -> Result<(), storage::Error> {
        let mut seen = 0;
        loop {
            // Giving up on a message touches the dead-letter topic: hence once more.
            let touched = unit.touched_topics().get(seen..).unwrap_or_default();
            for parked in self.parked.values_mut() {
                parked.look |= touched.contains(&parked.topic_id);
                parked.look |= parked.wake.is_some_and(|wake| wake <= unit.now());
            }
            seen = unit.touched_topics().len();
            let mut looked = false;
            for parked in self.parked.values_mut().filter(|parked| parked.look) {
                serve(&self.state, unit, parked, &mut self.served)?;
                looked = true;
            }
            if !looked {
                return Ok(());
            }
        }
    }
}

fn serve(
    state: &Arc<State>,
    unit: &mut Unit<'_>,
    parked: &mut Parked,
    served: &mut Vec<(Waiter, Vec<Delivery>)>,
) -> Result<(), storage::Error> {
    while let Some(waiter) = parked.waiters.pop_front() {
        if waiter.reply.is_closed() {
            continue;
        }
        // If the claim fails the waiter must not be lost: it is told with the others.
        served.push((waiter, Vec::new()));
        let Some((waiter, claimed)) = served.last_mut() else {
            break;
        };
        *claimed = store::claim(state, unit, &waiter.terms)?;
        if claimed.is_empty() {
            let next = store::first_ready(unit.tx(), waiter.terms.subscription)?;
            parked.wake = next.filter(|next| *next > unit.now());
            parked
                .waiters
                .extend(served.pop().map(|(waiter, _)| waiter));
            parked.waiters.rotate_right(1);
            parked.look = false;
            return Ok(());
        }
    }
    parked.wake = None;
    parked.look = false;
    Ok(())
}

impl CommitHook for Dispatcher {
    fn nudged(&mut self, nudge: Nudge) {
        match nudge {
            Nudge::Committed => {
                self.parked
                    .values_mut()
                    .for_each(|parked| parked.look = true);
                self.state.listeners.notify_all();
            }
            Nudge::Died => self.release_dead = true,
        }
    }

    fn due(&mut self, connection: &Connection, now: Millis) -> Result<bool, storage::Error> {
        self.collect_mail();
        let mut due = self.release_dead || !self.returned.is_empty();
        for (subscription, parked) in &mut self.parked {
            if parked.waiters.is_empty() {
                (parked.look, parked.wake) = (false, None);
            } else if parked.look || parked.wake.is_some_and(|wake| wake <= now) {
                parked.wake = store::first_ready(connection, *subscription)?;
                parked.look = parked.wake.is_some_and(|wake| wake <= now);
                due |= parked.look;
            }
        }
        Ok(due)
    }

    fn before_commit(&mut self, unit: &mut Unit<'_>) -> Result<(), storage::Error> {
        self.collect_mail();
        self.take_back(unit)?;
        if self.release_dead {
            store::release_dead(&self.state, unit)?;
        }
        self.dispatch(unit)
    }

    fn after_commit(&mut self, outcome: Result<(), &storage::Error>) {
        match outcome {
            Ok(()) => {
                self.returned.clear();
                self.release_dead = false;
                for (waiter, deliveries) in self.served.drain(..) {
                    self.state
                        .hold(waiter.consumer, waiter.terms.lease, &deliveries);
                    let claimed = Claimed {
                        state: Arc::clone(&self.state),
                        deliveries,
                    };
                    // If nobody waits any more, dropping it hands it back.
                    drop(waiter.reply.send(Ok(claimed)));
                }
            }
            Err(error) => {
                for (waiter, _) in self.served.drain(..) {
                    drop(waiter.reply.send(Err(Error::from(error.clone()))));
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Millis> {
        let waiting = self
            .parked
            .values()
            .filter(|parked| !parked.waiters.is_empty());
        waiting.filter_map(|parked| parked.wake).min()
    }
}
