//! Topics and their subscriptions, kept in memory between transactions.
//!
//! Any process may add to them, so the first use in a transaction compares a version that every
//! change replaces by a random one.

use crate::Properties;
use crate::embedded::tables::MAX_SUBSCRIPTION;
use crate::error::Error;
use agentfleet_schema::topics::Topic;
use agentfleet_storage::{self as storage, Unit};
use rusqlite::Connection;
use std::collections::HashMap;

/// A topic with who waits for its messages.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicEntry {
    pub(super) id: i64,
    pub(super) subscriptions: Vec<SubscriptionEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct SubscriptionEntry {
    pub(super) id: i64,
    filter: Option<(String, String)>,
}

impl SubscriptionEntry {
    pub(super) fn wants(&self, properties: &Properties) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|(key, value)| properties.get(key).is_none_or(|found| found == value))
    }
}

#[derive(Debug, Default)]
pub(super) struct Topology {
    /// The transaction in which this was last found to be current.
    transaction: u64,
    /// The last transaction that changed it. Its operations may still be rolled back one by one, so
    /// in it every use compares.
    changed_in: u64,
    version: Option<i64>,
    topics: HashMap<String, TopicEntry>,
    /// The topic of each subscription.
    subscriptions: HashMap<i64, i64>,
}

impl Topology {
    /// The entry of a topic, created if it is new.
    pub(super) fn topic(
        &mut self,
        unit: &Unit<'_>,
        topic: &Topic,
    ) -> Result<&TopicEntry, storage::Error> {
        self.refresh(unit)?;
        if !self.topics.contains_key(topic.as_str()) {
            unit.tx()
                .execute("INSERT INTO topics(name) VALUES (?1)", [topic.as_str()])?;
            self.changed(unit)?;
        }
        Ok(self.topics.entry(topic.as_str().to_owned()).or_default())
    }

    /// The topic of a subscription, if both exist.
    pub(super) fn topic_of(
        &mut self,
        unit: &Unit<'_>,
        subscription: i64,
    ) -> Result<Option<i64>, storage::Error> {
        self.refresh(unit)?;
        Ok(self.subscriptions.get(&subscription).copied())
    }

    /// All subscriptions with their topics.
    pub(super) fn subscriptions(
        &mut self,
        unit: &Unit<'_>,
    ) -> Result<Vec<(i64, i64)>, storage::Error> {
        self.refresh(unit)?;
        Ok(self
            .subscriptions
            .iter()
            .map(|(subscription, topic)| (*subscription, *topic))
            .collect())
    }

    /// Creates a subscription if it is new and returns its id and that of its topic. The newest
    /// filter holds for what is published from now on.
    pub(super) fn subscribe(
        &mut self,
        unit: &Unit<'_>,
        topic: &Topic,
        name: &str,
        filter: Option<&(String, String)>,
    ) -> Result<(i64, i64), storage::Error> {
        let topic_id = self.topic(unit, topic)?.id;
        let (key, value) = filter.map(|(key, value)| (key, value)).unzip();
        let changed = unit.tx().execute(
            "INSERT INTO subscriptions(topic, name, filter_key, filter_value)
             VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT(topic, name) DO UPDATE
             SET filter_key = excluded.filter_key, filter_value = excluded.filter_value
             WHERE filter_key IS NOT excluded.filter_key
                OR filter_value IS NOT excluded.filter_value",
            (topic_id, name, key, value),
        )?;
        let id = unit.tx().query_row(
            "SELECT id FROM subscriptions WHERE topic = ?1 AND name = ?2",
            (topic_id, name),
            |row| row.get(0),
        )?;
        if id > MAX_SUBSCRIPTION {
            let full = format!("{topic}/{name}");
            return Err(Error::TooManySubscriptions(full, MAX_SUBSCRIPTION).into());
        }
        if changed > 0 {
            self.changed(unit)?;
        }
        Ok((id, topic_id))
    }

    /// Removes a subscription that nothing is to be delivered to any more.
    pub(super) fn unsubscribe(&mut self, unit: &Unit<'_>, id: i64) -> Result<(), storage::Error> {
        unit.tx()
            .execute("DELETE FROM subscriptions WHERE id = ?1", [id])?;
        self.changed(unit)
    }

    fn changed(&mut self, unit: &Unit<'_>) -> Result<(), storage::Error> {
        self.changed_in = unit.transaction();
        unit.tx()
            .execute("UPDATE topology SET version = random()", [])?;
        self.load(unit.tx())
    }

    fn refresh(&mut self, unit: &Unit<'_>) -> Result<(), storage::Error> {
        let current = unit.transaction();
        if self.transaction == current && self.changed_in != current && self.version.is_some() {
            return Ok(());
        }
        let version = version(unit.tx())?;
        if self.version != Some(version) {
            self.load(unit.tx())?;
        }
        self.transaction = current;
        Ok(())
    }

    fn load(&mut self, connection: &Connection) -> Result<(), storage::Error> {
        self.version = None;
        self.topics.clear();
        self.subscriptions.clear();
        let mut by_id = HashMap::new();
        let mut statement = connection.prepare_cached("SELECT id, name FROM topics")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
            self.topics.insert(
                name.clone(),
                TopicEntry {
                    id,
                    subscriptions: Vec::new(),
                },
            );
            by_id.insert(id, name);
        }
        let mut statement = connection
            .prepare_cached("SELECT id, topic, filter_key, filter_value FROM subscriptions")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (id, topic) = (row.get(0)?, row.get(1)?);
            let filter = Option::zip(row.get(2)?, row.get(3)?);
            self.subscriptions.insert(id, topic);
            if let Some(entry) = by_id.get(&topic).and_then(|name| self.topics.get_mut(name)) {
                entry.subscriptions.push(SubscriptionEntry { id, filter });
            }
        }
        self.version = Some(version(connection)?);
        Ok(())
    }
}

fn version(connection: &Connection) -> Result<i64, rusqlite::Error> {
    connection
        .prepare_cached("SELECT version FROM topology")?
        .query_row([], |row| row.get(0))
}
