//! A queue on which the fleet's own requests are known from those of others.
//!
//! Whoever may publish to the topic of requests could write a request as a worker writes the next step of a run, and
//! say in it for whom it is. So the fleet signs what it publishes there, with a secret that its processes share.

use crate::{
    Broker, Consumer, Delivery, Error, Outgoing, Properties, Retained, Subscription, Waiting,
};
use agentfleet_schema::topics::{self, Topic, property};
use async_trait::async_trait;
use ring::hmac;
use std::sync::Arc;
use std::time::Duration;

/// Least bytes of a secret.
pub const LEAST_SECRET: usize = 32;

/// Properties that say what a request does. Others may be added on the way.
const COVERED: [&str; 13] = [
    property::ID,
    property::SESSION,
    property::STEP,
    property::ROOT,
    property::KIND,
    property::BY,
    property::REPLY_TO,
    property::CLAIM,
    property::SINCE,
    property::WAITED_FOR,
    property::MODEL_AWAY,
    property::PARENT,
    property::CORRELATION,
];

/// What the processes of a fleet share, and nobody else knows.
#[derive(Clone, Debug)]
pub struct FleetSecret(hmac::Key);

impl FleetSecret {
    /// `None` where the text is too short to be a secret.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        (text.len() >= LEAST_SECRET).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, text)))
    }

    /// Each part with its length, so that no two messages are written alike.
    fn written(payload: &[u8], properties: &Properties) -> Vec<u8> {
        let mut written = Vec::with_capacity(payload.len() + 256);
        let mut part = |bytes: Option<&[u8]>| {
            // What is not there differs from what is empty.
            let length = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
            written.extend_from_slice(&length.to_be_bytes());
            written.extend_from_slice(bytes.unwrap_or_default());
        };
        for name in COVERED {
            part(properties.get(name).map(String::as_bytes));
        }
        part(Some(payload));
        written
    }

    fn sign(&self, message: &mut Outgoing) {
        let written = Self::written(&message.payload, &message.properties);
        let tag = hmac::sign(&self.0, &written);
        let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
        let signature = digits.collect();
        message
            .properties
            .insert(property::SIGNATURE.to_owned(), signature);
    }

    /// By which processes see that they have the same secret, and nobody learns it.
    pub fn fingerprint(&self) -> String {
        let tag = hmac::sign(&self.0, b"agentfleet: the same secret");
        let digits = tag.as_ref().iter().take(16);
        digits.map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the fleet itself published a message.
    pub fn is_ours(&self, delivery: &Delivery) -> bool {
        self.fits(&delivery.payload, &delivery.properties)
    }

    /// The same of a message by its parts.
    pub fn fits(&self, payload: &[u8], properties: &Properties) -> bool {
        let Some(signature) = properties.get(property::SIGNATURE) else {
            return false;
        };
        let Some(tag) = bytes_of(signature) else {
            return false;
        };
        let written = Self::written(payload, properties);
        hmac::verify(&self.0, &written, &tag).is_ok()
    }
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// A broker that signs the requests which go through it.
pub struct SignedBroker {
    broker: Arc<dyn Broker>,
    secret: FleetSecret,
}

impl SignedBroker {
    pub fn new(broker: Arc<dyn Broker>, secret: FleetSecret) -> Self {
        Self { broker, secret }
    }
}

impl std::fmt::Debug for SignedBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedBroker").finish_non_exhaustive()
    }
}

#[async_trait]
impl Broker for SignedBroker {
    async fn publish(&self, mut messages: Vec<Outgoing>) -> Result<(), Error> {
        let requests = messages
            .iter_mut()
            .filter(|message| message.topic == topics::AGENT_REQUEST);
        for message in requests {
            self.secret.sign(message);
        }
        self.broker.publish(messages).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        self.broker.subscribe(subscription).await
    }

    async fn establish(&self, subscriptions: &[Subscription]) -> Result<(), Error> {
        self.broker.establish(subscriptions).await
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), Error> {
        self.broker.ack(delivery).await
    }

    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), Error> {
        self.broker.nack(delivery, delay).await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), Error> {
        self.broker.dead_letter(delivery, reason).await
    }

    async fn extend(&self, delivery: &Delivery) -> Result<(), Error> {
        self.broker.extend(delivery).await
    }

    async fn read(
        &self,
        topic: &Topic,
        key: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error> {
        self.broker.read(topic, key, after, max).await
    }

    async fn mark(&self, topic: &Topic) -> Result<i64, Error> {
        self.broker.mark(topic).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.broker.ready().await
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        self.broker.waiting().await
    }

    async fn consumers(
        &self,
        subscriptions: &[Subscription],
    ) -> Result<Option<Vec<(String, Vec<String>)>>, Error> {
        self.broker.consumers(subscriptions).await
    }

    async fn backlog(&self) -> Result<Vec<(String, u64)>, Error> {
        self.broker.backlog().await
    }

    async fn close(&self) {
        self.broker.close().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Durability, Receipt};

    fn signed(payload: &[u8], properties: &[(&str, &str)]) -> Delivery {
        let mut message = Outgoing {
            topic: topics::AGENT_REQUEST,
            payload: payload.to_vec(),
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            deliver_at: None,
            durability: Durability::Durable,
        };
        secret('a').sign(&mut message);
        Delivery {
            message_id: "1".into(),
            topic: message.topic,
            payload: message.payload.into(),
            properties: message.properties,
            deliveries: None,
            published_at: 0,
            first_at: None,
            reopened_at: None,
            receipt: Receipt::default(),
        }
    }

    fn secret(letter: char) -> FleetSecret {
        FleetSecret::new(&letter.to_string().repeat(LEAST_SECRET)).unwrap()
    }

    #[test]
    fn a_message_counts_as_it_was_signed_only() {
        assert!(FleetSecret::new("short").is_none());
        let ours = signed(
            b"{\"question\": \"why?\"}",
            &[("session", "s"), ("step", "1")],
        );
        assert!(secret('a').is_ours(&ours));
        assert!(!secret('b').is_ours(&ours));
        assert_eq!(secret('a').fingerprint(), secret('a').fingerprint());
        assert_ne!(secret('a').fingerprint(), secret('b').fingerprint());
        let mut on_the_way = ours.clone();
        on_the_way
            .properties
            .insert("traceparent".into(), "00-x".into());
        assert!(secret('a').is_ours(&on_the_way));
        let change = |what: &dyn Fn(&mut Delivery)| {
            let mut changed = ours.clone();
            what(&mut changed);
            assert!(!secret('a').is_ours(&changed), "{changed:?}");
        };
        change(&|one| one.payload = b"{\"question\": \"how?\"}".as_slice().into());
        change(&|one| drop(one.properties.remove("step")));
        change(&|one| drop(one.properties.insert("kind".into(), "cancel".into())));
        change(&|one| drop(one.properties.insert("by".into(), String::new())));
        change(&|one| drop(one.properties.remove(property::SIGNATURE)));
        for wrong in ["", "zz", "00"] {
            change(&|one| {
                drop(
                    one.properties
                        .insert(property::SIGNATURE.into(), wrong.into()),
                );
            });
        }
    }
}
