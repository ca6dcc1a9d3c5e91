//! The messages in consumers' hands, and how long they may stay there.
//!
//! Pulsar knows no leases: a message stays with a consumer for as long as the connection lives. So
//! the lease is kept here, by the process that holds the message: what is held for too long is
//! handed back like any other, and counts as an attempt. A process that hangs altogether must be
//! ended from outside; then the broker hands its messages to others.

use super::parcel::Arrived;
use crate::{Delivery, Receipt};
use agentfleet_schema::topics::Topic;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What holds for every message of a subscription.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) topic: Topic,
    /// Where to put what is handed back.
    pub(super) retry: String,
    pub(super) lease: Duration,
    pub(super) max_deliveries: Option<u32>,
}

/// A message in somebody's hands.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) arrived: Arrived,
    pub(super) terms: Arc<Terms>,
    holder: u64,
    expires: Instant,
}

#[derive(Debug, Default)]
struct Table {
    held: HashMap<i64, Held>,
    next: i64,
    /// What the watch waits for; earlier ones wake it.
    watched: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Holdings {
    table: Mutex<Table>,
    sooner: Notify,
}

impl Holdings {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message into a consumer's hands.
    pub(super) fn hand_out(&self, arrived: Arrived, terms: &Arc<Terms>, holder: u64) -> Delivery {
        let mut table = self.table();
        table.next += 1;
        let serial = table.next;
        let delivery = Delivery {
            message_id: arrived.message_id.clone(),
            topic: terms.topic.clone(),
            payload: Arc::clone(&arrived.payload),
            properties: arrived.properties.clone(),
            // What was handed back is counted, but neither the broker nor we know how often a
            // message was lost with its holder: no count is better than one that is too low.
            deliveries: None,
            published_at: arrived.published_at,
            first_at: None,
            reopened_at: arrived.reopened_at,
            receipt: Receipt {
                delivery: serial,
                lease: 0,
            },
        };
        let expires = Instant::now() + terms.lease;
        if table.watched.is_none_or(|watched| expires < watched) {
            self.sooner.notify_one();
        }
        let terms = Arc::clone(terms);
        let held = Held {
            arrived,
            terms,
            holder,
            expires,
        };
        table.held.insert(serial, held);
        delivery
    }

    /// Takes a message out of the holder's hands; nothing if it is not there any more.
    pub(super) fn take(&self, receipt: Receipt) -> Option<Held> {
        self.table().held.remove(&receipt.delivery)
    }

    /// Puts back what was taken but could not be settled.
    pub(super) fn put_back(&self, receipt: Receipt, held: Held) {
        // What was lost meanwhile is with another already.
        if held.arrived.entry.link.alive() {
            self.table().held.insert(receipt.delivery, held);
            self.sooner.notify_one();
        }
    }

    pub(super) fn extend(&self, receipt: Receipt) {
        if let Some(held) = self.table().held.get_mut(&receipt.delivery) {
            held.expires = Instant::now() + held.terms.lease;
        }
    }

    /// Forgets what a consumer holds that is closed: the broker hands it to others.
    pub(super) fn let_go(&self, holder: u64) {
        self.table().held.retain(|_, held| held.holder != holder);
    }

    /// Forgets what came over a consumer's stream that ended: the broker hands it to others.
    pub(super) fn lost(&self, stream: u64) {
        let mut table = self.table();
        table
            .held
            .retain(|_, held| held.arrived.entry.consumer != stream);
    }

    /// Waits until leases have run out, and takes what they were for.
    pub(super) async fn expired(&self) -> Vec<Held> {
        loop {
            let now = Instant::now();
            let next = {
                let mut table = self.table();
                let expired = table.held.extract_if(|_, held| held.expires <= now);
                let expired: Vec<Held> = expired.map(|(_, held)| held).collect();
                if !expired.is_empty() {
                    return expired;
                }
                table.watched = table.held.values().map(|held| held.expires).min();
                table.watched
            };
            match next {
                Some(next) => tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = self.sooner.notified() => {}
                },
                None => self.sooner.notified().await,
            }
        }
    }
}
