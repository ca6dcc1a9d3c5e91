//! The receiving end of an embedded subscription.

use crate::embedded::EmbeddedBroker;
use crate::embedded::dispatcher::Waiter;
use crate::embedded::store::Terms;
use crate::error::Error;
use crate::{Consumer, Delivery};
use agentfleet_storage as storage;
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The most messages of one batch: they are claimed and decoded while other work waits.
const BATCH: usize = 1000;

pub(super) struct EmbeddedConsumer {
    pub(super) broker: EmbeddedBroker,
    pub(super) terms: Terms,
    pub(super) topic_id: i64,
    pub(super) id: u64,
}

#[async_trait]
impl Consumer for EmbeddedConsumer {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        let (reply, answer) = oneshot::channel();
        let terms = Terms {
            max: max.clamp(1, BATCH),
            ..self.terms.clone()
        };
        let waiter = Waiter {
            terms,
            topic_id: self.topic_id,
            consumer: self.id,
            reply,
        };
        self.broker.state.wait(waiter);
        // Nothing may be awaited after this: what arrived is returned, or dropped and so handed back.
        let mut claimed = answer.await.map_err(|_| Error::Closed)??.take();
        for delivery in &mut claimed {
            // One that is damaged is delivered empty: whoever works it finds it unreadable, and a
            // message that nobody can read has an end like any other.
            delivery.payload = storage::unpack(&delivery.payload).unwrap_or_else(|error| {
                tracing::error!(message = %delivery.message_id, %error, "a message is damaged");
                Arc::from([])
            });
        }
        Ok(claimed)
    }
}

impl Drop for EmbeddedConsumer {
    fn drop(&mut self) {
        self.broker.state.let_go(self.id);
    }
}
