//! What the broker does to its tables, inside a transaction: publish, claim, settle, give up.

use crate::embedded::State;
use crate::embedded::tables::{delivery_id, message_of, subscription_of};
use crate::error::Error;
use crate::{Delivery, Outgoing, Properties, Receipt};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{DEAD_LETTER, Topic, property};
use agentfleet_storage::{self as storage, Packed, Unit};
use rusqlite::{OptionalExtension, Row};
use std::sync::Arc;
use std::time::Duration;

/// Whose claim it is, and on what terms.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) subscription: i64,
    pub(super) topic: Topic,
    pub(super) lease: Millis,
    pub(super) max_deliveries: Option<u32>,
    pub(super) max: usize,
}

pub(super) fn publish(
    state: &Arc<State>,
    unit: &mut Unit<'_>,
    parcels: &[Parcel],
) -> Result<(), storage::Error> {
    parcels
        .iter()
        .try_for_each(|parcel| insert(state, unit, parcel))
}

/// A message ready to be stored: everything that takes time is done before the unit begins.
#[derive(Clone, Debug)]
pub struct Parcel {
    topic: Topic,
    payload: Packed,
    properties: Properties,
    encoded: String,
    deliver_at: Option<Millis>,
}

impl Parcel {
    /// Refuses what is too large.
    pub fn of(message: Outgoing) -> Result<Self, Error> {
        message.check()?;
        Ok(Self {
            topic: message.topic,
            payload: Packed::of(&message.payload),
            encoded: encode(&message.properties),
            properties: message.properties,
            deliver_at: message.deliver_at,
        })
    }
}

/// Stores one message and what delivers it. With nobody to deliver it to and nothing that retains
/// it, there is nothing to store.
fn insert(state: &Arc<State>, unit: &mut Unit<'_>, parcel: &Parcel) -> Result<(), storage::Error> {
    let ready_at = parcel.deliver_at.unwrap_or(0).max(unit.now());
    let (topic, properties) = (&parcel.topic, &parcel.properties);
    let mut topology = state.topology();
    let entry = topology.topic(unit, topic)?;
    let key = state
        .retains(topic)
        .then(|| properties.get(property::ROOT).map_or("", String::as_str));
    let mut wanted = entry
        .subscriptions
        .iter()
        .filter(|one| one.wants(properties))
        .peekable();
    if key.is_none() && wanted.peek().is_none() {
        return Ok(());
    }
    let id: i64 = {
        let mut statement = unit.tx().prepare_cached(
            "INSERT INTO messages(topic, key, published_at, properties, payload)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let payload = parcel.payload.as_bytes();
        statement.insert((entry.id, key, unit.now(), &parcel.encoded, payload))?
    };
    let mut statement = unit.tx().prepare_cached(
        "INSERT INTO deliveries(id, subscription, ready_at, count, owner) VALUES (?1, ?2, ?3, 0, 0)",
    )?;
    for subscription in wanted {
        statement.execute((delivery_id(id, subscription.id), subscription.id, ready_at))?;
    }
    unit.touched(entry.id);
    if let Some(key) = key {
        let (state, topic, key) = (Arc::clone(state), topic.clone(), key.to_owned());
        unit.after_commit(move || state.listeners.notify(&topic, &key));
    }
    Ok(())
}

/// Hands out up to `terms.max` ready messages; those delivered too often die instead.
pub(super) fn claim(
    state: &Arc<State>,
    unit: &mut Unit<'_>,
    terms: &Terms,
) -> Result<Vec<Delivery>, storage::Error> {
    loop {
        let ready = ready(unit, terms)?;
        let found = ready.len();
        let mut claimed = Vec::with_capacity(found);
        let mut update = unit.tx().prepare_cached(
            "UPDATE deliveries SET ready_at = ?2, count = count + 1, owner = ?3,
                    first_at = coalesce(first_at, ?4)
             WHERE id = ?1",
        )?;
        for mut delivery in ready {
            // The dead-letter topic is the end: from there nothing goes further.
            let limit = terms.max_deliveries.filter(|_| terms.topic != DEAD_LETTER);
            let before = delivery.deliveries.unwrap_or(0);
            if limit.is_some_and(|limit| before >= limit) {
                let reason = format!("delivered {before} times without being acknowledged");
                bury(state, unit, &delivery, &reason)?;
                continue;
            }
            update.execute((
                delivery.receipt.delivery,
                unit.now() + terms.lease,
                state.own(),
                unit.now(),
            ))?;
            delivery.deliveries = Some(before + 1);
            delivery.receipt.lease += 1;
            claimed.push(delivery);
        }
        if !claimed.is_empty() || found == 0 {
            return Ok(claimed);
        }
    }
}

/// The messages ready now, as they lie: with their counts so far.
fn ready(unit: &Unit<'_>, terms: &Terms) -> Result<Vec<Delivery>, storage::Error> {
    let mut statement = unit.tx().prepare_cached(
        "SELECT deliveries.id, count, published_at, properties, payload, first_at
         FROM deliveries CROSS JOIN messages ON messages.id = deliveries.id >> 16
         WHERE subscription = ?1 AND ready_at <= ?2
         ORDER BY ready_at, deliveries.id LIMIT ?3",
    )?;
    let max = i64::try_from(terms.max).unwrap_or(i64::MAX);
    let mut rows = statement.query((terms.subscription, unit.now(), max))?;
    let mut ready = Vec::new();
    while let Some(row) = rows.next()? {
        ready.push(delivery(row, &terms.topic)?);
    }
    Ok(ready)
}

fn delivery(row: &Row<'_>, topic: &Topic) -> Result<Delivery, storage::Error> {
    let (id, count): (i64, u32) = (row.get(0)?, row.get(1)?);
    let message_id = message_of(id).to_string();
    Ok(Delivery {
        properties: decode(
            &message_id,
            row.get_ref(3)?.as_bytes().map_err(rusqlite::Error::from)?,
        )?,
        message_id,
        topic: topic.clone(),
        payload: Arc::from(row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?),
        deliveries: Some(count),
        published_at: row.get(2)?,
        first_at: row.get(5)?,
        reopened_at: None,
        receipt: Receipt {
            delivery: id,
            lease: i64::from(count),
        },
    })
}

/// When the next message of a subscription is ready, or was.
pub(super) fn first_ready(
    connection: &rusqlite::Connection,
    subscription: i64,
) -> Result<Option<Millis>, storage::Error> {
    let mut statement = connection.prepare_cached(
        "SELECT ready_at FROM deliveries WHERE subscription = ?1 ORDER BY ready_at LIMIT 1",
    )?;
    Ok(statement
        .query_row([subscription], |row| row.get(0))
        .optional()?)
}

/// Settles a delivery for good; nothing happens if its lease was lost.
pub(super) fn ack(unit: &Unit<'_>, receipt: Receipt) -> Result<(), storage::Error> {
    let deleted = unit
        .tx()
        .prepare_cached("DELETE FROM deliveries WHERE id = ?1 AND count = ?2 AND owner <> 0")?
        .execute((receipt.delivery, receipt.lease))?;
    if deleted > 0 {
        forget(unit, message_of(receipt.delivery))?;
    }
    Ok(())
}

/// Whether the lease of a receipt was not lost.
pub(super) fn holds(unit: &Unit<'_>, receipt: Receipt) -> Result<bool, storage::Error> {
    let mut statement = unit
        .tx()
        .prepare_cached("SELECT 1 FROM deliveries WHERE id = ?1 AND count = ?2 AND owner <> 0")?;
    Ok(statement.exists((receipt.delivery, receipt.lease))?)
}

/// Deletes a message that nobody waits for any more, unless it is retained.
pub(super) fn forget(unit: &Unit<'_>, message: i64) -> Result<(), storage::Error> {
    unit.tx()
        .prepare_cached(
            "DELETE FROM messages WHERE id = ?1 AND key IS NULL
             AND NOT EXISTS (SELECT 1 FROM deliveries WHERE id BETWEEN ?2 AND ?3)",
        )?
        .execute((
            message,
            delivery_id(message, 0),
            delivery_id(message + 1, 0) - 1,
        ))?;
    Ok(())
}

/// Deletes messages of a root that somebody would still get.
pub(super) fn drop_waiting(unit: &Unit<'_>, root: &str) -> Result<(), storage::Error> {
    let of_root = format!(
        "SELECT id FROM messages WHERE key IS NULL AND json_extract(properties, '$.\"{}\"') = ?1",
        property::ROOT
    );
    let tx = unit.tx();
    let messages = tx
        .prepare_cached(&of_root)?
        .query_map([root], |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    for message in messages {
        tx.prepare_cached("DELETE FROM deliveries WHERE id BETWEEN ?1 AND ?2")?
            .execute((delivery_id(message, 0), delivery_id(message + 1, 0) - 1))?;
        forget(unit, message)?;
    }
    Ok(())
}

/// Hands a delivery back, to come again after `delay`. A claim that nobody has seen is not counted.
pub(super) fn nack(
    state: &State,
    unit: &mut Unit<'_>,
    receipt: Receipt,
    delay: Duration,
    is_seen: bool,
) -> Result<(), storage::Error> {
    let handed_back = unit
        .tx()
        .prepare_cached(
            "UPDATE deliveries SET ready_at = ?3, owner = 0, count = count - ?4
             WHERE id = ?1 AND count = ?2 AND owner <> 0",
        )?
        .execute((
            receipt.delivery,
            receipt.lease,
            unit.now().saturating_add(millis(delay)),
            i64::from(!is_seen),
        ))?;
    let topic = state
        .topology()
        .topic_of(unit, subscription_of(receipt.delivery))?;
    if let (1.., Some(topic)) = (handed_back, topic) {
        unit.touched(topic);
    }
    Ok(())
}

/// Holds on to a delivery for another lease.
pub(super) fn extend(
    unit: &Unit<'_>,
    receipt: Receipt,
    lease: Millis,
) -> Result<(), storage::Error> {
    unit.tx()
        .prepare_cached(
            "UPDATE deliveries SET ready_at = ?3 WHERE id = ?1 AND count = ?2 AND owner <> 0",
        )?
        .execute((receipt.delivery, receipt.lease, unit.now() + lease))?;
    Ok(())
}

/// Moves a delivery that is still held to the dead-letter topic.
pub(super) fn dead_letter(
    state: &Arc<State>,
    unit: &mut Unit<'_>,
    delivery: &Delivery,
    reason: &str,
) -> Result<(), storage::Error> {
    if delivery.topic == DEAD_LETTER {
        return Err(Error::AlreadyDead.into());
    }
    if holds(unit, delivery.receipt)? {
        bury(state, unit, delivery, reason)?;
    }
    Ok(())
}

fn bury(
    state: &Arc<State>,
    unit: &mut Unit<'_>,
    delivery: &Delivery,
    reason: &str,
) -> Result<(), storage::Error> {
    let mut properties = delivery.properties.clone();
    properties.insert(property::REASON.to_owned(), reason.to_owned());
    properties.insert(property::ORIGIN.to_owned(), delivery.topic.to_string());
    properties
        .entry(property::ORIGIN_MESSAGE.to_owned())
        .or_insert_with(|| delivery.message_id.clone());
    let message = message_of(delivery.receipt.delivery);
    let stored = unit
        .tx()
        .prepare_cached("SELECT payload FROM messages WHERE id = ?1")?
        .query_row([message], |row| {
            Ok(Packed::stored(row.get_ref(0)?.as_blob()?))
        })?;
    let parcel = Parcel {
        topic: DEAD_LETTER,
        payload: stored,
        encoded: encode(&properties),
        properties,
        deliver_at: None,
    };
    insert(state, unit, &parcel)?;
    unit.tx()
        .prepare_cached("DELETE FROM deliveries WHERE id = ?1")?
        .execute([delivery.receipt.delivery])?;
    forget(unit, message)?;
    tracing::warn!(
        topic = %delivery.topic,
        message = delivery.message_id,
        reason,
        "message moved to the dead-letter topic"
    );
    Ok(())
}

/// Lets go of every lease whose holder's process is dead.
pub(super) fn release_dead(state: &State, unit: &mut Unit<'_>) -> Result<(), storage::Error> {
    let subscriptions = state.topology().subscriptions(unit)?;
    for (subscription, topic) in subscriptions {
        // What is held and not expired is ready in the future, beyond the whole backlog.
        let mut statement = unit.tx().prepare_cached(
            "SELECT id, owner FROM deliveries
             WHERE subscription = ?1 AND ready_at > ?2 AND owner <> 0",
        )?;
        let held = statement
            .query_map((subscription, unit.now()), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<Vec<(i64, i64)>, _>>()?;
        let mut known = std::collections::HashMap::new();
        for (delivery, owner) in held {
            if *known
                .entry(owner)
                .or_insert_with(|| state.instances.alive(owner))
            {
                continue;
            }
            unit.tx()
                .prepare_cached("UPDATE deliveries SET ready_at = ?2, owner = 0 WHERE id = ?1")?
                .execute((delivery, unit.now()))?;
            unit.touched(topic);
        }
    }
    Ok(())
}

pub(super) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

fn encode(properties: &Properties) -> String {
    // A map from text to text always has a form in JSON.
    serde_json::to_string(properties).unwrap_or_default()
}

pub(super) fn decode(message_id: &str, properties: &[u8]) -> Result<Properties, storage::Error> {
    serde_json::from_slice(properties).map_err(|_| Error::Properties(message_id.to_owned()).into())
}
