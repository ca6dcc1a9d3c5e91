//! Messages that are put back: waiting for somebody else must not use up the tries of a step.

use crate::attempts::waited_for;
use crate::away::Wait;
use crate::handle::Orchestrator;
use crate::intake;
use crate::stream::Attempt;
use crate::watched::Watched;
use agentfleet_broker::{Delivery, Durability, Outgoing};
use agentfleet_runtime::{CLOCK_SKEW, Disposition};
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{Millis, millis};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest between two looks whether a part of the fleet is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Shortest: what must be put back at once comes again at once, and is no storm.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

impl Orchestrator {
    /// Puts a message back as a new, delayed one: waiting for others must not use up its tries.
    pub(crate) async fn postpone(
        &self,
        delivery: &Delivery,
        mut after: Duration,
        waits_for: Option<String>,
    ) -> Disposition {
        let mut properties = delivery.properties.clone();
        let at_once = after.is_zero();
        if let Some(attempt) = waits_for {
            // Once for each sign of life.
            let waited = waited_for(properties.get(property::WAITED_FOR), &attempt);
            properties.insert(property::WAITED_FOR.to_owned(), waited);
        } else if !at_once {
            // Ever more rarely: what is away for long comes back to a queue, not to a storm.
            let waited = intake::came_at(delivery).map_or(0, |since| self.parts.host.now() - since);
            let pause = Duration::from_millis(waited.max(0).unsigned_abs() / 4);
            after = after.max(pause.min(LONGEST_PAUSE));
        }
        after = after.max(SHORTEST_PAUSE);
        if !at_once {
            // A clock that is behind the broker's must not make the pause none.
            after += CLOCK_SKEW;
        }
        let at = self.parts.host.now() + millis(after);
        let again = self.again(delivery, properties, at);
        self.put_back(vec![again], after).await
    }

    /// Puts a message back until its model may answer, and tells whoever watches.
    pub(crate) async fn wait_for_model(
        &self,
        delivery: &Delivery,
        wait: &Wait,
        watched: Option<&Watched>,
    ) -> Disposition {
        let mut properties = delivery.properties.clone();
        properties.insert(property::MODEL_AWAY.to_owned(), wait.away.property());
        let mut messages = vec![self.again(delivery, properties, wait.again_at)];
        if let Some(watched) = watched {
            let topic = self.options.reply_topics.of(&delivery.properties);
            let attempt = Attempt {
                request: &watched.request,
                properties: &delivery.properties,
                nonce: &wait.nonce,
                responses: &topic.unwrap_or(topics::AGENT_RESPONSE),
            };
            messages.push(attempt.status("waits-for-model", &wait.told));
        }
        let left = wait.again_at - self.parts.host.now();
        let after = Duration::from_millis(left.max(1_000).unsigned_abs());
        self.put_back(messages, after).await
    }

    /// A message once more, at some time.
    fn again(
        &self,
        delivery: &Delivery,
        mut properties: BTreeMap<String, String>,
        at: Millis,
    ) -> Outgoing {
        // A request that names no session is known by its first message.
        properties
            .entry(property::ORIGIN_MESSAGE.to_owned())
            .or_insert_with(|| delivery.message_id.clone());
        properties
            .entry(property::SINCE.to_owned())
            .or_insert_with(|| {
                let first = delivery.first_at;
                first.unwrap_or_else(|| self.parts.host.now()).to_string()
            });
        Outgoing {
            topic: delivery.topic.clone(),
            payload: delivery.payload.to_vec(),
            properties,
            deliver_at: Some(at),
            durability: Durability::Durable,
        }
    }

    async fn put_back(&self, messages: Vec<Outgoing>, after: Duration) -> Disposition {
        match self.parts.broker.publish(messages).await {
            Ok(()) => Disposition::Ack,
            Err(error) => {
                tracing::warn!(%error, "cannot put a message back");
                Disposition::RetryAfter(after)
            }
        }
    }
}
