//! What an embedded broker holds, to be given to another broker.

use super::store::decode;
use super::tables::delivery_id;
use crate::embedded::EmbeddedBroker;
use crate::error::Error;
use crate::{Durability, Outgoing};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{AGENT_REQUEST, Topic, property};
use agentfleet_storage as storage;

/// A message that somebody still has to work, or that is retained.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Grows from message to message.
    pub id: i64,
    pub message: Outgoing,
}

impl EmbeddedBroker {
    /// Up to `max` of the messages after `after`, in their order. What is put off stays put off. What
    /// was in somebody's hands comes at once: nobody may be at work while this is asked.
    pub async fn kept(&self, after: i64, max: usize) -> Result<Vec<Kept>, Error> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let now = self.database.clock().now();
        let kept = self.database.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT messages.id, name, properties, payload FROM messages
                 JOIN topics ON topics.id = topic WHERE messages.id > ?1 ORDER BY messages.id LIMIT ?2",
            )?;
            let mut waits = connection.prepare_cached(
                "SELECT max(ready_at) FROM deliveries WHERE id >= ?1 AND id < ?2 AND owner = 0",
            )?;
            let mut rows = statement.query((after, max))?;
            let mut kept = Vec::new();
            while let Some(row) = rows.next()? {
                let (id, topic): (i64, String) = (row.get(0)?, row.get(1)?);
                let message_id = id.to_string();
                let properties = row.get_ref(2)?.as_bytes().map_err(rusqlite::Error::from)?;
                let mut properties = decode(&message_id, properties)?;
                let topic = Topic::named(topic);
                if topic == AGENT_REQUEST {
                    // A request that names no session is known by its first message.
                    properties
                        .entry(property::ORIGIN_MESSAGE.to_owned())
                        .or_insert(message_id);
                }
                let payload = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
                let ends = (delivery_id(id, 0), delivery_id(id + 1, 0));
                let ready_at: Option<Millis> = waits.query_row(ends, |row| row.get(0))?;
                kept.push(Kept {
                    id,
                    message: Outgoing {
                        topic,
                        payload: storage::unpack(payload)?.to_vec(),
                        properties,
                        deliver_at: ready_at.filter(|ready_at| *ready_at > now),
                        durability: Durability::Durable,
                    },
                });
            }
            Ok(kept)
        });
        Ok(kept.await?)
    }
}
