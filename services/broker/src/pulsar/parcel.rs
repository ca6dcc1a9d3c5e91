//! A message as Pulsar carries it, and as we hand it out.
//!
//! - Long entries are compressed with LZ4, and several messages may be packed into one entry; both is undone
//!   here. An entry is acknowledged when all of its messages are.
//! - A message that was handed back travels on as a copy. The copy says whose copy it is, when that
//!   was published, and how often it was handed back, in properties that nobody outside sees.

use super::commands;
use super::link::{Arrival, Link};
use crate::{Outgoing, Properties};
use agentfleet_schema::Millis;
use prost::Message as _;
use pulsar::proto::command_ack::AckType;
use pulsar::proto::{
    CompressionType, KeyValue, MessageIdData, MessageMetadata, SingleMessageMetadata,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes from which on a message is compressed. Any client of Pulsar undoes it.
const WORTH_PACKING: usize = 512;

const ATTEMPT: &str = "agentfleet-attempt";
const ORIGIN: &str = "agentfleet-message";
const PUBLISHED: &str = "agentfleet-published";

/// A message that came, not yet handed out or in somebody's hands.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) message_id: String,
    pub(super) payload: Arc<[u8]>,
    pub(super) properties: Properties,
    pub(super) published_at: Millis,
    /// How often it was handed back before.
    pub(super) attempt: u32,
    /// When its stream was opened again, if it was.
    pub(super) reopened_at: Option<Millis>,
    pub(super) entry: Arc<Entry>,
}

impl Arrived {
    /// What to publish so that it comes again, to this subscription.
    pub(super) fn again(&self, attempt: u32) -> (Vec<u8>, Properties) {
        let mut properties = self.properties.clone();
        properties.insert(ATTEMPT.to_owned(), attempt.to_string());
        properties.insert(ORIGIN.to_owned(), self.message_id.clone());
        properties.insert(PUBLISHED.to_owned(), self.published_at.to_string());
        (self.payload.to_vec(), properties)
    }
}

/// What lies on the broker: one message, or several that were packed together.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) link: Arc<Link>,
    pub(super) consumer: u64,
    id: MessageIdData,
    single: bool,
    unsettled: AtomicUsize,
}

impl Entry {
    /// Whether it is one message, and not several that were packed together.
    pub(super) fn is_single(&self) -> bool {
        self.single
    }

    /// Settles one of its messages.
    pub(super) fn settle(&self) {
        if self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.acknowledge();
        }
    }

    fn acknowledge(&self) {
        let id = self.id.clone();
        self.link
            .send(commands::ack(self.consumer, id, AckType::Individual));
    }

    /// Hands it back to the broker, which gives it to any consumer at once.
    pub(super) fn give_back(&self) {
        self.link
            .send(commands::redeliver(self.consumer, self.id.clone()));
    }
}

/// A message that cannot be handed out.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) reason: String,
    pub(super) arrived: Arrived,
}

/// Opens what arrived. `copies` says whether our own properties are to be believed.
pub(super) fn open(
    link: &Arc<Link>,
    consumer: u64,
    arrival: Arrival,
    copies: bool,
) -> Result<Vec<Arrived>, Box<Unreadable>> {
    let id = arrival.command.message_id;
    let metadata = arrival.payload.metadata;
    let packed = metadata
        .num_messages_in_batch
        .map(|count| usize::try_from(count).unwrap_or(0));
    let entry = Arc::new(Entry {
        link: Arc::clone(link),
        consumer,
        id: id.clone(),
        single: packed.is_none(),
        unsettled: AtomicUsize::new(packed.unwrap_or(1)),
    });
    let message = |payload: &[u8], properties: Vec<KeyValue>, index: Option<usize>| {
        let mut message = Arrived {
            message_id: text_of(&id, index),
            payload: payload.into(),
            properties: properties
                .into_iter()
                .map(|pair| (pair.key, pair.value))
                .collect(),
            published_at: Millis::try_from(metadata.publish_time).unwrap_or_default(),
            attempt: 0,
            reopened_at: None,
            entry: Arc::clone(&entry),
        };
        if copies {
            uncopy(&mut message);
        }
        message
    };
    let opened = match decompress(&metadata, &arrival.payload.data) {
        Ok(data) => match packed {
            None => Ok(vec![message(&data, metadata.properties.clone(), None)]),
            Some(count) => unpack(&data, count).map(|parts| {
                let parts = parts.into_iter().enumerate();
                parts
                    .map(|(index, (single, payload))| {
                        message(payload, single.properties, Some(index))
                    })
                    .collect()
            }),
        },
        Err(reason) => Err(reason),
    };
    opened.map_err(|reason| {
        entry.unsettled.store(1, Ordering::Release);
        let arrived = message(&arrival.payload.data, metadata.properties.clone(), None);
        Box::new(Unreadable { reason, arrived })
    })
}

/// Makes of a copy what it is a copy of.
fn uncopy(message: &mut Arrived) {
    let properties = &mut message.properties;
    if let Some(attempt) = properties.remove(ATTEMPT) {
        message.attempt = attempt.parse().unwrap_or_default();
    }
    if let Some(origin) = properties.remove(ORIGIN) {
        message.message_id = origin;
    }
    if let Some(published) = properties.remove(PUBLISHED) {
        message.published_at = published.parse().unwrap_or(message.published_at);
    }
}

fn text_of(id: &MessageIdData, index: Option<usize>) -> String {
    let mut text = format!("{}:{}", id.ledger_id, id.entry_id);
    if let Some(index) = index {
        text.push_str(&format!(":{index}"));
    }
    text
}

fn decompress(metadata: &MessageMetadata, data: &[u8]) -> Result<Vec<u8>, String> {
    if !metadata.encryption_keys.is_empty() {
        return Err("it is encrypted, which is not supported".to_owned());
    }
    if metadata
        .num_chunks_from_msg
        .is_some_and(|chunks| chunks > 1)
    {
        return Err("it is a chunk of a larger message, which is not supported".to_owned());
    }
    let size = metadata.uncompressed_size.unwrap_or_default() as usize;
    match metadata.compression.map(CompressionType::try_from) {
        None | Some(Ok(CompressionType::None)) => Ok(data.to_vec()),
        Some(Ok(CompressionType::Lz4)) if size <= crate::MAX_PAYLOAD * 16 => {
            lz4_flex::block::decompress(data, size)
                .map_err(|error| format!("it cannot be decompressed: {error}"))
        }
        Some(kind) => {
            let name = kind.map_or("an unknown method", |kind| kind.as_str_name());
            Err(format!("it is compressed with {name}: use LZ4 or none"))
        }
    }
}

/// The messages packed into one entry.
fn unpack(mut data: &[u8], count: usize) -> Result<Vec<(SingleMessageMetadata, &[u8])>, String> {
    let broken = || "it holds fewer messages than it says".to_owned();
    let mut parts = Vec::new();
    for _ in 0..count {
        let (length, rest) = data.split_first_chunk::<4>().ok_or_else(broken)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (head, rest) = rest.split_at_checked(length).ok_or_else(broken)?;
        let single = SingleMessageMetadata::decode(head).map_err(|error| error.to_string())?;
        let size = usize::try_from(single.payload_size).map_err(|_| broken())?;
        let (payload, rest) = rest.split_at_checked(size).ok_or_else(broken)?;
        parts.push((single, payload));
        data = rest;
    }
    Ok(parts)
}

/// Metadata and data of an entry to publish, compressed where that makes it smaller; its producer adds
/// its name and sequence. Several messages are packed as any client of Pulsar unpacks them.
pub(super) fn pack(mut messages: Vec<Outgoing>, now: Millis) -> (MessageMetadata, Vec<u8>) {
    let mut metadata = MessageMetadata {
        publish_time: u64::try_from(now).unwrap_or_default(),
        ..MessageMetadata::default()
    };
    let data = match messages.pop() {
        Some(message) if messages.is_empty() => {
            metadata.properties = pairs(&message.properties);
            metadata.deliver_at_time = message.deliver_at.filter(|at| *at > now);
            message.payload
        }
        last => {
            messages.extend(last);
            metadata.num_messages_in_batch = i32::try_from(messages.len()).ok();
            messages.iter().fold(Vec::new(), |mut data, message| {
                put(&mut data, message);
                data
            })
        }
    };
    let Ok(size) = u32::try_from(data.len()) else {
        return (metadata, data);
    };
    if data.len() >= WORTH_PACKING {
        let packed = lz4_flex::block::compress(&data);
        if packed.len() < data.len() {
            metadata.compression = Some(CompressionType::Lz4 as i32);
            metadata.uncompressed_size = Some(size);
            return (metadata, packed);
        }
    }
    (metadata, data)
}

/// Adds a message to those of an entry: the length of what describes it, that, and its payload.
fn put(data: &mut Vec<u8>, message: &Outgoing) {
    let single = SingleMessageMetadata {
        properties: pairs(&message.properties),
        // A message may have 5 MiB at most.
        payload_size: message.payload.len() as i32,
        ..SingleMessageMetadata::default()
    };
    let described = single.encode_to_vec();
    data.extend((described.len() as u32).to_be_bytes());
    data.extend(described);
    data.extend(&message.payload);
}

fn pairs(properties: &Properties) -> Vec<KeyValue> {
    let pairs = properties.iter();
    pairs
        .map(|(key, value)| KeyValue {
            key: key.clone(),
            value: value.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Durability;
    use agentfleet_schema::topics::AGENT_RESPONSE;

    fn message(name: &str, payload: &[u8]) -> Outgoing {
        Outgoing {
            topic: AGENT_RESPONSE,
            payload: payload.to_vec(),
            properties: [("name".to_owned(), name.to_owned())].into(),
            deliver_at: None,
            durability: Durability::Durable,
        }
    }

    fn packed(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let messages = parts.iter().map(|(name, payload)| message(name, payload));
        let (metadata, data) = pack(messages.collect(), 7);
        assert_eq!(metadata.num_messages_in_batch, Some(parts.len() as i32));
        decompress(&metadata, &data).unwrap()
    }

    #[test]
    fn packed_messages_are_unpacked_in_order() {
        let data = packed(&[("one", b"1"), ("two", b""), ("three", b"333")]);
        let parts = unpack(&data, 3).unwrap();
        let shown: Vec<_> = parts
            .iter()
            .map(|(single, payload)| (single.properties[0].value.as_str(), *payload))
            .collect();
        assert_eq!(shown, [("one", &b"1"[..]), ("two", b""), ("three", b"333")]);
    }

    #[test]
    fn a_broken_pack_is_an_error_wherever_it_breaks() {
        let data = packed(&[("one", b"1"), ("two", b"2")]);
        for length in 0..data.len() {
            assert!(unpack(&data[..length], 2).is_err(), "{length} bytes");
        }
        assert!(unpack(&data, 3).is_err());
    }

    #[test]
    fn what_is_published_is_compressed_where_that_helps_and_opens_as_it_was() {
        let long = b"again and again and again and again".repeat(90);
        let short = b"once".to_vec();
        for (payload, is_packed) in [(long, true), (short, false), (Vec::new(), false)] {
            let (metadata, data) = pack(vec![message("one", &payload)], 7);
            assert_eq!(metadata.num_messages_in_batch, None);
            assert_eq!(metadata.compression.is_some(), is_packed);
            assert_eq!(data.len() < payload.len(), is_packed);
            assert_eq!(decompress(&metadata, &data).unwrap(), payload);
        }
    }

    #[test]
    fn compressed_messages_are_opened_or_refused_by_name() {
        let text = b"again and again and again and again".repeat(9);
        let compressed = lz4_flex::block::compress(&text);
        let mut metadata = MessageMetadata {
            compression: Some(CompressionType::Lz4 as i32),
            uncompressed_size: Some(u32::try_from(text.len()).unwrap()),
            ..MessageMetadata::default()
        };
        assert_eq!(decompress(&metadata, &compressed).unwrap(), text);
        assert!(decompress(&metadata, b"nonsense").is_err());
        metadata.compression = Some(CompressionType::Zstd as i32);
        assert!(
            decompress(&metadata, &compressed)
                .unwrap_err()
                .contains("ZSTD")
        );
    }
}
