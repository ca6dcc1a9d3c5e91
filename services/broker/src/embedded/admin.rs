//! What operators ask of the embedded broker, and what retention does to it.

use crate::embedded::EmbeddedBroker;
use crate::embedded::listening::PREFIX;
use crate::embedded::store::{self, millis};
use crate::embedded::tables::{MAX_SUBSCRIPTION, delivery_id};
use crate::error::Error;
use agentfleet_schema::Millis;
use agentfleet_schema::topics::Topic;
use agentfleet_storage::{self as storage, Durability, Unit};
use rusqlite::{Connection, OptionalExtension};

/// Messages looked at in one transaction: others must get their turn.
const SOME: i64 = 1000;

/// One subscription, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionStats {
    pub topic: String,
    pub subscription: String,
    /// Ready, in nobody's hands.
    pub waiting: u64,
    /// Not ready yet.
    pub delayed: u64,
    /// In a consumer's hands.
    pub in_flight: u64,
    /// When the oldest message that is ready and waits was published.
    pub oldest: Option<Millis>,
}

impl EmbeddedBroker {
    /// All subscriptions but those of listeners, counted at one instant, sorted by topic and name.
    pub async fn stats(&self) -> Result<Vec<SubscriptionStats>, Error> {
        let now = self.database.clock().now();
        Ok(self
            .database
            .read(move |connection| stats(connection, now))
            .await?)
    }

    /// Deletes what the topics retained for longer than they should, and says how much. To be
    /// called now and then.
    pub async fn purge(&self) -> Result<u64, Error> {
        let mut purged = 0;
        for (topic, age) in &self.state.retain {
            let before = self.database.clock().now().saturating_sub(millis(*age));
            purged += self.purge_topic(topic.clone(), before).await?;
        }
        Ok(purged)
    }

    /// Deletes what all topics hold of a root: what they retained, and what still waits for somebody.
    /// Says how much was retained. For erasure.
    pub async fn forget(&self, key: &str) -> Result<u64, Error> {
        let key = key.to_owned();
        let forgotten = self.database.write(Durability::Durable, move |unit| {
            let mut statement = unit
                .tx()
                .prepare_cached("SELECT id FROM messages WHERE topic = ?1 AND key = ?2")?;
            let mut topics = unit.tx().prepare_cached("SELECT id FROM topics")?;
            let mut found: Vec<i64> = Vec::new();
            for topic in topics.query_map([], |row| row.get::<_, i64>(0))? {
                for id in statement.query_map((topic?, &key), |row| row.get(0))? {
                    found.push(id?);
                }
            }
            for id in &found {
                release(unit, *id)?;
            }
            store::drop_waiting(unit, &key)?;
            Ok(found.len() as u64)
        });
        Ok(forgotten.await?)
    }

    async fn purge_topic(&self, topic: Topic, before: Millis) -> Result<u64, Error> {
        // Ids grow with time, so the age of a message is found by its id, in a few steps.
        let end = self
            .database
            .read(move |connection| first_since(connection, before))
            .await?;
        let mut purged = 0;
        let mut from = 0;
        loop {
            let topic = topic.clone();
            let some = self.database.write(Durability::Process, move |unit| {
                let mut statement = unit.tx().prepare_cached(
                    "SELECT id, key IS NOT NULL AND topic = (SELECT id FROM topics WHERE name = ?3)
                     FROM messages WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?4",
                )?;
                let rows = statement
                    .query_map((from, end, topic.as_str(), SOME), |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })?
                    .collect::<Result<Vec<(i64, bool)>, _>>()?;
                let mut purged = 0;
                for (id, _) in rows.iter().filter(|(_, retained)| *retained) {
                    release(unit, *id)?;
                    purged += 1;
                }
                Ok((purged, rows.last().map(|(id, _)| *id)))
            });
            let (some, last) = some.await?;
            purged += some;
            match last {
                Some(last) => from = last + 1,
                None => return Ok(purged),
            }
        }
    }
}

fn stats(connection: &Connection, now: Millis) -> Result<Vec<SubscriptionStats>, storage::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT topics.name, subscriptions.name,
           coalesce(sum(ready_at <= ?1), 0),
           coalesce(sum(ready_at > ?1 AND owner = 0), 0),
           coalesce(sum(ready_at > ?1 AND owner <> 0), 0),
           min(CASE WHEN ready_at <= ?1 THEN deliveries.id END)
         FROM subscriptions
         JOIN topics ON topics.id = subscriptions.topic
         LEFT JOIN deliveries ON deliveries.subscription = subscriptions.id
         WHERE subscriptions.name NOT GLOB ?2 || '*'
         GROUP BY subscriptions.id ORDER BY topics.name, subscriptions.name",
    )?;
    let mut published =
        connection.prepare_cached("SELECT published_at FROM messages WHERE id = ?1 >> 16")?;
    let mut all = Vec::new();
    let mut rows = statement.query((now, PREFIX))?;
    while let Some(row) = rows.next()? {
        let oldest: Option<i64> = row.get(5)?;
        let oldest = match oldest {
            Some(delivery) => published
                .query_row([delivery], |row| row.get(0))
                .optional()?,
            None => None,
        };
        all.push(SubscriptionStats {
            topic: row.get(0)?,
            subscription: row.get(1)?,
            waiting: count(row.get(2)?),
            delayed: count(row.get(3)?),
            in_flight: count(row.get(4)?),
            oldest,
        });
    }
    Ok(all)
}

/// The id of the first message published at or after an instant.
fn first_since(connection: &Connection, instant: Millis) -> Result<i64, storage::Error> {
    let bounds = connection.query_row("SELECT min(id), max(id) + 1 FROM messages", [], |row| {
        Ok(Option::zip(
            row.get::<_, Option<i64>>(0)?,
            row.get::<_, Option<i64>>(1)?,
        ))
    })?;
    let Some((mut low, mut high)) = bounds else {
        return Ok(0);
    };
    let mut next = connection.prepare_cached(
        "SELECT id, published_at FROM messages WHERE id >= ?1 ORDER BY id LIMIT 1",
    )?;
    while low < high {
        let middle = low + (high - low) / 2;
        let found = next
            .query_row([middle], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Millis>(1)?))
            })
            .optional()?;
        match found {
            Some((id, published)) if published < instant => low = id + 1,
            // Between the middle and the message found there is nothing.
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// Ends the retention of a message: it goes now, or with its last delivery.
fn release(unit: &Unit<'_>, id: i64) -> Result<(), storage::Error> {
    let (first, last) = (delivery_id(id, 0), delivery_id(id, MAX_SUBSCRIPTION));
    let deleted = unit
        .tx()
        .prepare_cached(
            "DELETE FROM messages WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM deliveries WHERE id BETWEEN ?2 AND ?3)",
        )?
        .execute((id, first, last))?;
    if deleted == 0 {
        unit.tx()
            .prepare_cached("UPDATE messages SET key = NULL WHERE id = ?1")?
            .execute([id])?;
    }
    Ok(())
}

fn count(counted: i64) -> u64 {
    u64::try_from(counted).unwrap_or(0)
}
