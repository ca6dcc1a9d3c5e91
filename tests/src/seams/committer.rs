//! The one store below the shipped committer of the embedded engine.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb};
use crate::world::World;
use agentfleet_broker::{Delivery, Outgoing};
use agentfleet_documents::Created;
use agentfleet_runtime::{Error, Joint, Transaction, TransactionalStore};
use agentfleet_storage as storage;
use async_trait::async_trait;
use std::sync::Arc;

#[async_trait]
impl TransactionalStore for Seam {
    type Body = Vec<u8>;
    type Message = Outgoing;

    fn body(&self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn message(&self, message: Outgoing) -> Result<Outgoing, Error> {
        message.check()?;
        Ok(message)
    }

    async fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, Error> {
        Ok(agentfleet_documents::Documents::get(self, key).await?)
    }

    async fn transact<T, F>(&self, key: &str, act: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Joint<'_, Vec<u8>, Outgoing>) -> Result<T, storage::Error> + Send + 'static,
    {
        let effect = Effect::new(Verb::Commit, key);
        self.act(effect, |world, fault| match fault {
            Some(Fault::Refused) => Err(busy().into()),
            Some(Fault::ReplyLost) => {
                act(world)?;
                Err(busy().into())
            }
            _ => Ok(act(world)?),
        })
        .await
    }
}

/// Nothing happens between the calls of a transaction, and none of them fails.
impl Transaction for World {
    type Body = Vec<u8>;
    type Message = Outgoing;

    fn get(&self, key: &str) -> Result<Option<Arc<[u8]>>, storage::Error> {
        Ok(self.documents.get(key).cloned())
    }

    fn create(&mut self, key: &str, body: &Vec<u8>) -> Result<Created, storage::Error> {
        Ok(World::create(self, key, body.clone()))
    }

    fn publish(&mut self, messages: &[Outgoing]) -> Result<(), storage::Error> {
        for message in messages {
            World::publish(self, message);
        }
        Ok(())
    }

    fn acknowledge(&mut self, delivery: &Delivery) -> Result<(), storage::Error> {
        self.queues.ack(delivery.receipt);
        Ok(())
    }
}
