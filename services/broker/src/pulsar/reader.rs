//! A reader of one topic, and what positions in it are.
//!
//! A position is ledger, entry and place within the entry in one number: it grows along the topic, and
//! means the same to every process.

use super::cluster::{Cluster, failed};
use super::commands;
use super::link::{Arrival, Link};
use super::parcel;
use crate::{Error, Retained};
use pulsar::proto::MessageIdData;
use pulsar::proto::command_ack::AckType;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Bits of a position that are the place within an entry: 0 where the entry is one message, else from 1.
const PLACE_BITS: u32 = 6;
/// Bits of a position that are the entry within its ledger; the rest is the ledger.
const ENTRY_BITS: u32 = 24;
/// The most messages of an entry, so that each has a place.
pub(super) const MAX_PACKED: usize = (1 << PLACE_BITS) - 1;
/// Messages on their way to a reader.
const AHEAD: u32 = 500;

/// The position of a message; 0 lies before all of them. The index within its entry is negative where the
/// entry is one message.
pub(super) fn position(id: &MessageIdData) -> Option<i64> {
    // Before the first message, ledger and entry are -1.
    let (ledger, entry) = (
        i64::try_from(id.ledger_id).ok()?,
        i64::try_from(id.entry_id).ok()?,
    );
    let place = i64::from(id.batch_index() + 1).clamp(0, MAX_PACKED as i64);
    let fits = entry < 1 << ENTRY_BITS && ledger < i64::MAX >> (ENTRY_BITS + PLACE_BITS);
    fits.then(|| ((((ledger << ENTRY_BITS) | entry) << PLACE_BITS) | place) + 1)
}

/// Where a reader begins that wants what follows `position`. From a message that was packed with others
/// the broker begins with their entry, so its reader leaves out what is not behind the position.
pub(super) fn start_after(position: i64) -> MessageIdData {
    let packed = position - 1;
    let (place, entry) = (packed & MAX_PACKED as i64, packed >> PLACE_BITS);
    let (ledger, entry) = if position <= 0 {
        (-1, -1)
    } else {
        (entry >> ENTRY_BITS, entry & ((1 << ENTRY_BITS) - 1))
    };
    MessageIdData {
        ledger_id: ledger as u64,
        entry_id: entry as u64,
        batch_index: (position > 0 && place > 0).then_some(place as i32 - 1),
        ..MessageIdData::default()
    }
}

/// Behind the last message there is.
pub(super) fn latest() -> MessageIdData {
    MessageIdData {
        ledger_id: i64::MAX as u64,
        entry_id: i64::MAX as u64,
        ..MessageIdData::default()
    }
}

/// Reads a topic in order, and leaves nothing behind.
pub(super) struct Reader {
    topic: String,
    link: Arc<Link>,
    id: u64,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    permits: u32,
    /// The rest of the entry that came last.
    unread: VecDeque<Read>,
}

/// The position of a message, and what it is if it can be read.
type Read = (i64, Option<Retained>);

impl Reader {
    pub(super) async fn open(
        cluster: &Cluster,
        topic: &str,
        start: MessageIdData,
    ) -> Result<Self, Error> {
        let link = cluster.serving(topic).await?;
        let id = cluster.id();
        let lost = |fault| failed(topic, &link, fault);
        let arrivals = link.add_consumer(id).map_err(lost)?;
        let name = format!("agentfleet-reader-{}", uuid::Uuid::new_v4());
        let subscribe = |request| commands::read_from(request, id, topic, &name, start);
        if let Err(fault) = link.ask(subscribe).await {
            link.close_consumer(id);
            return Err(lost(fault));
        }
        link.send(commands::flow(id, AHEAD));
        Ok(Self {
            topic: topic.to_owned(),
            link,
            id,
            arrivals,
            permits: AHEAD,
            unread: VecDeque::new(),
        })
    }

    /// The position of the last message there is.
    pub(super) async fn last(&self) -> Result<i64, Error> {
        let answer = self
            .link
            .ask(|request| commands::last_message(request, self.id))
            .await;
        let answer = answer.map_err(|fault| failed(&self.topic, &self.link, fault))?;
        let last = answer
            .get_last_message_id_response
            .unwrap_or_default()
            .last_message_id;
        Ok(position(&last).unwrap_or(0))
    }

    /// The next message.
    pub(super) async fn next(&mut self) -> Result<Read, Error> {
        loop {
            if let Some(read) = self.unread.pop_front() {
                return Ok(read);
            }
            self.read_entry().await?;
        }
    }

    async fn read_entry(&mut self) -> Result<(), Error> {
        let Some(arrival) = self.arrivals.recv().await else {
            return Err(Error::Unreachable {
                url: self.link.url.clone(),
                reason: "the stream ended".to_owned(),
            });
        };
        let id = arrival.command.message_id.clone();
        let packed = arrival.payload.metadata.num_messages_in_batch;
        let count = packed.map_or(1, |count| u32::try_from(count).unwrap_or(1));
        self.permits = self.permits.saturating_sub(count);
        if self.permits <= AHEAD / 2 {
            self.link
                .send(commands::ack(self.id, id.clone(), AckType::Cumulative));
            self.link
                .send(commands::flow(self.id, AHEAD - self.permits));
            self.permits = AHEAD;
        }
        // What cannot be read is passed over.
        let opened = parcel::open(&self.link, self.id, arrival, false).unwrap_or_default();
        let mut opened = opened.into_iter();
        for index in 0..count as i32 {
            let id = MessageIdData {
                batch_index: packed.map(|_| index),
                ..id.clone()
            };
            let Some(position) = position(&id) else {
                return Err(Error::Refused {
                    topic: self.topic.clone(),
                    reason: format!("message {}:{} has no position", id.ledger_id, id.entry_id),
                });
            };
            let message = opened.next().map(|message| Retained {
                position,
                payload: message.payload,
                properties: message.properties,
            });
            self.unread.push_back((position, message));
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.link.close_consumer(self.id);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn id(ledger: i64, entry: i64) -> MessageIdData {
        MessageIdData {
            ledger_id: ledger as u64,
            entry_id: entry as u64,
            ..MessageIdData::default()
        }
    }

    #[test]
    fn positions_grow_along_the_topic_and_lead_back_to_it() {
        let packed = |index| MessageIdData {
            batch_index: Some(index),
            ..id(4, 1)
        };
        let along = [
            id(0, 0),
            id(0, 1),
            id(3, 0),
            id(3, 9_999_999),
            id(4, 0),
            packed(0),
            packed(MAX_PACKED as i32 - 1),
            id(4, 2),
            id(1 << 32, 7),
        ];
        let mut before = 0;
        for id in along {
            let at = position(&id).unwrap();
            assert!(at > before, "{id:?}");
            assert_eq!(start_after(at), id);
            before = at;
        }
        assert_eq!(position(&id(-1, -1)), None);
        assert_eq!(start_after(0), id(-1, -1));
        assert_eq!(position(&id(5, 1 << ENTRY_BITS)), None, "too many entries");
    }
}
