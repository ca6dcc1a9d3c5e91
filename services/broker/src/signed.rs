//! A queue on which the fleet's own requests are known from those of others.
//!
//! Whoever may publish to the topic of requests could write a request as a worker writes the next step of a run, and
//! say in it for whom it is. So the fleet signs what it publishes there, with a secret that its processes share.

use crate::{Delivery, Outgoing, Properties};
use agentfleet_schema::hex;
use agentfleet_schema::topics::{self, property};
use ring::hmac;

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

    /// Signs the requests among messages that the fleet publishes.
    pub(crate) fn sign(&self, messages: &mut [Outgoing]) {
        let is_request = |message: &&mut Outgoing| message.topic == topics::AGENT_REQUEST;
        for message in messages.iter_mut().filter(is_request) {
            let written = Self::written(&message.payload, &message.properties);
            let signature = hex(hmac::sign(&self.0, &written).as_ref());
            message
                .properties
                .insert(property::SIGNATURE.to_owned(), signature);
        }
    }

    /// By which processes see that they have the same secret, and nobody learns it.
    pub fn fingerprint(&self) -> String {
        let tag = hmac::sign(&self.0, b"agentfleet: the same secret");
        hex(&tag.as_ref()[..16])
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Durability, Receipt};

    fn signed(payload: &[u8], properties: &[(&str, &str)]) -> Delivery {
        let message = Outgoing {
            topic: topics::AGENT_REQUEST,
            payload: payload.to_vec(),
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            deliver_at: None,
            durability: Durability::Durable,
        };
        let mut messages = [message];
        secret('a').sign(&mut messages);
        let [message] = messages;
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
