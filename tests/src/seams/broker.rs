//! The queue: publishing and settling. Receiving is the scheduler's.

use super::{Seam, busy};
use crate::effect::{Effect, Fault, Verb};
use agentfleet_broker::{
    Broker, Consumer, Delivery, Error, MAX_PAYLOAD, Outgoing, Retained, Subscription, Waiting,
};
use agentfleet_schema::topics::{AGENT_REQUEST, Topic, property};
use agentfleet_schema::{AgentRequest, Millis};
use async_trait::async_trait;
use std::time::Duration;

impl Seam {
    async fn settle(
        &self,
        effect: Effect,
        act: impl FnOnce(&mut crate::world::World),
    ) -> Result<(), Error> {
        self.act(effect, |world, fault| match fault {
            Some(Fault::Refused) => Err(Error::Storage(busy())),
            fault => {
                act(world);
                if fault == Some(Fault::ReplyLost) {
                    Err(Error::Storage(busy()))
                } else {
                    Ok(())
                }
            }
        })
        .await
    }
}

impl Seam {
    async fn publish_one(&self, message: Outgoing) -> Result<(), Error> {
        let messages = [message];
        let effect = Effect::publish(&messages);
        let [message] = messages;
        self.act(effect, |world, fault| {
            world.facts.count("publish calls");
            if fault == Some(Fault::Refused) {
                return Err(Error::Storage(busy()));
            }
            let nobody = names_nobody(&message);
            if nobody {
                world.facts.unnamed.insert(message.payload.clone());
            }
            let twice = fault == Some(Fault::Doubled) && !nobody;
            for _ in 0..=u8::from(twice) {
                world.publish(&message);
            }
            if fault == Some(Fault::ReplyLost) {
                Err(Error::Storage(busy()))
            } else {
                Ok(())
            }
        })
        .await
    }
}

#[async_trait]
impl Broker for Seam {
    async fn publish(&self, messages: Vec<Outgoing>) -> Result<(), Error> {
        if let Some(large) = messages.iter().find(|m| m.payload.len() > MAX_PAYLOAD) {
            return Err(Error::TooLarge {
                topic: large.topic.clone(),
                size: large.payload.len(),
                limit: MAX_PAYLOAD,
            });
        }
        // One effect each: a crash may leave some of a call, and so may an error.
        let messages = self.shared.with(|world| world.scatter(messages));
        let mut outcome = Ok(());
        for message in messages {
            let published = self.publish_one(message).await;
            outcome = outcome.and(published);
        }
        outcome
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        Ok(Box::new(Receiver {
            seam: self.clone(),
            subscription,
        }))
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), Error> {
        let receipt = delivery.receipt;
        let effect = Effect::new(Verb::Ack, &*delivery.message_id);
        self.settle(effect, |world| world.queues.ack(receipt)).await
    }

    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), Error> {
        let receipt = delivery.receipt;
        let effect = Effect::new(Verb::Nack, format!("{} for {delay:?}", delivery.message_id));
        let delay = delay.as_millis() as Millis;
        self.settle(effect, |world| {
            world.queues.nack(receipt, world.now + delay);
        })
        .await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), Error> {
        let receipt = delivery.receipt;
        let effect = Effect::new(
            Verb::DeadLetter,
            format!("{}: {reason}", delivery.message_id),
        );
        self.settle(effect, |world| {
            let now = world.now;
            world.queues.dead_letter(receipt, reason, now);
        })
        .await
    }

    /// Leases last as long as their task, unless the scheduler says otherwise.
    async fn extend(&self, _: &Delivery) -> Result<(), Error> {
        Ok(())
    }

    async fn read(&self, topic: &Topic, _: &str, _: i64, _: usize) -> Result<Vec<Retained>, Error> {
        Err(Error::NotRetained(topic.clone()))
    }

    async fn mark(&self, topic: &Topic) -> Result<i64, Error> {
        Err(Error::NotRetained(topic.clone()))
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        Ok(Vec::new())
    }
}

/// A consumer for the shipped consume loop.
struct Receiver {
    seam: Seam,
    subscription: Subscription,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Hands back what it did not settle.
        self.seam.shared.with(|world| {
            let now = world.now;
            world.queues.release(0, now);
        });
    }
}

#[async_trait]
impl Consumer for Receiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, Error> {
        loop {
            let received = self.seam.shared.with(|world| {
                let now = world.now;
                let queue = world.queues.list.iter().find(|queue| {
                    queue.subscription.topic == self.subscription.topic
                        && queue.subscription.name == self.subscription.name
                });
                let Some(queue) = queue else {
                    return Vec::new();
                };
                let role = queue.role;
                let ready: Vec<u64> = queue.ready(now).take(max).collect();
                ready
                    .into_iter()
                    .filter_map(|id| world.queues.claim(role, id, 0, now))
                    .collect()
            });
            if !received.is_empty() {
                return Ok(received);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A request that says in no way which request it is. Published twice, it is two, by contract.
fn names_nobody(message: &Outgoing) -> bool {
    let named = [property::ID, property::ORIGIN_MESSAGE];
    message.topic == AGENT_REQUEST
        && !named
            .iter()
            .any(|name| message.properties.contains_key(*name))
        && serde_json::from_slice::<AgentRequest>(&message.payload)
            .is_ok_and(|request| request.session_id.is_empty())
}
