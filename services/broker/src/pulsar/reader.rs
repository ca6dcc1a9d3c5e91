//! A reader of one topic, and what positions in it are.
//!
//! A position is ledger and entry in one number: it grows along the topic, and means the same to
//! every process.

use super::cluster::{Cluster, failed};
use super::commands;
use super::link::{Arrival, Link};
use super::parcel;
use crate::{Error, Retained};
use agentfleet_schema::topics::property;
use pulsar::proto::MessageIdData;
use pulsar::proto::command_ack::AckType;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Bits of a position that are the entry within its ledger; the rest is the ledger.
const ENTRY_BITS: u32 = 28;
/// Messages on their way to a reader.
const AHEAD: u32 = 500;

/// The position of a message; 0 lies before all of them.
pub(super) fn position(id: &MessageIdData) -> Option<i64> {
    // Before the first message, ledger and entry are -1.
    let (ledger, entry) = (
        i64::try_from(id.ledger_id).ok()?,
        i64::try_from(id.entry_id).ok()?,
    );
    let fits = entry < 1 << ENTRY_BITS && ledger < i64::MAX >> ENTRY_BITS;
    fits.then(|| ((ledger << ENTRY_BITS) | entry) + 1)
}

/// Where a reader begins that wants what follows `position`.
pub(super) fn start_after(position: i64) -> MessageIdData {
    let (ledger, entry) = if position <= 0 {
        (-1, -1)
    } else {
        let packed = position - 1;
        (packed >> ENTRY_BITS, packed & ((1 << ENTRY_BITS) - 1))
    };
    MessageIdData {
        ledger_id: ledger as u64,
        entry_id: entry as u64,
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
}

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

    /// The next message: its position, and what it is if it has a key and can be read.
    pub(super) async fn next(&mut self) -> Result<(i64, Option<(String, Retained)>), Error> {
        let Some(arrival) = self.arrivals.recv().await else {
            return Err(Error::Unreachable {
                url: self.link.url.clone(),
                reason: "the stream ended".to_owned(),
            });
        };
        self.permits = self.permits.saturating_sub(1);
        let id = arrival.command.message_id.clone();
        if self.permits <= AHEAD / 2 {
            self.link
                .send(commands::ack(self.id, id.clone(), AckType::Cumulative));
            self.link
                .send(commands::flow(self.id, AHEAD - self.permits));
            self.permits = AHEAD;
        }
        let Some(position) = position(&id) else {
            return Err(Error::Refused {
                topic: self.topic.clone(),
                reason: format!("message {}:{} has no position", id.ledger_id, id.entry_id),
            });
        };
        // Only the fleet writes here, one message an entry.
        let opened = parcel::open(&self.link, self.id, arrival, false);
        let message = opened
            .ok()
            .and_then(|mut opened| opened.pop())
            .and_then(|message| {
                let key = message.properties.get(property::ROOT)?.clone();
                let retained = Retained {
                    position,
                    payload: message.payload,
                    properties: message.properties,
                };
                Some((key, retained))
            });
        Ok((position, message))
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
        let along = [
            id(0, 0),
            id(0, 1),
            id(3, 0),
            id(3, 9_999_999),
            id(4, 0),
            id(1 << 34, 7),
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
