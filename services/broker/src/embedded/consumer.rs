//! The receiving end of an embedded subscription.

use crate::embedded::EmbeddedBroker;
use crate::embedded::dispatcher::Waiter;
use crate::embedded::store::Terms;
use crate::error::Error;
use crate::{Consumer, Delivery};
use async_trait::async_trait;
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
        Ok(answer.await.map_err(|_| Error::Closed)??.take())
    }
}

impl Drop for EmbeddedConsumer {
    fn drop(&mut self) {
        self.broker.state.let_go(self.id);
    }
}
