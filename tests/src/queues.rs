//! The simulated queue: what lies where, who holds what. Keeps the broker's contract and nothing
//! beyond it: no order, at least once, and under faults the same message in several hands.

use agentfleet_broker::{Delivery, Properties, Receipt, Subscription};
use agentfleet_schema::Millis;
use agentfleet_schema::topics::{DEAD_LETTER, Topic, property};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A task of the simulation, by number.
pub type TaskId = u64;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Orchestrator,
    FanIn,
    Deadlines,
    Writer,
    Undertaker,
    /// Publishes requests.
    Producer,
    /// Cancels runs.
    Gateway,
}

impl Role {
    /// Those that consume a queue, in the order of [`Queues::list`].
    pub const CONSUMERS: [Self; 5] = [
        Self::Orchestrator,
        Self::FanIn,
        Self::Deadlines,
        Self::Writer,
        Self::Undertaker,
    ];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Orchestrator => "orchestrator",
            Self::FanIn => "fan-in",
            Self::Deadlines => "deadlines",
            Self::Writer => "graph-writer",
            Self::Undertaker => "undertaker",
            Self::Producer => "producer",
            Self::Gateway => "gateway",
        })
    }
}

/// How a broker differs from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerKind {
    /// Says how often it delivered a message, and gives up at the subscription's limit.
    pub counts: bool,
    /// Only who holds a message can settle it; otherwise whoever had it can.
    pub strict: bool,
}

#[derive(Debug)]
pub struct Message {
    pub id: String,
    pub topic: Topic,
    pub payload: Arc<[u8]>,
    pub properties: Properties,
    pub published_at: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    pub task: TaskId,
    pub lease: i64,
}

/// A message of one subscription, until it is settled.
#[derive(Debug)]
pub struct Entry {
    pub message: Arc<Message>,
    pub count: u32,
    pub ready_at: Millis,
    pub holders: Vec<Holder>,
}

#[derive(Debug)]
pub struct Queue {
    pub role: Role,
    pub subscription: Subscription,
    pub entries: BTreeMap<u64, Entry>,
}

impl Queue {
    fn wants(&self, topic: &Topic, properties: &Properties) -> bool {
        self.subscription.topic == *topic
            && self
                .subscription
                .only
                .as_ref()
                .is_none_or(|(name, value)| properties.get(name) == Some(value))
    }

    /// Entries that nobody holds and that are due.
    pub fn ready(&self, now: Millis) -> impl Iterator<Item = u64> + '_ {
        self.entries
            .iter()
            .filter(move |(_, entry)| entry.holders.is_empty() && entry.ready_at <= now)
            .map(|(id, _)| *id)
    }

    /// Entries that nobody holds and that are not due yet.
    pub fn delayed(&self, now: Millis) -> impl Iterator<Item = (u64, Millis)> + '_ {
        self.entries
            .iter()
            .filter(move |(_, entry)| entry.holders.is_empty() && entry.ready_at > now)
            .map(|(id, entry)| (*id, entry.ready_at))
    }

    /// Entries in somebody's hands.
    pub fn held(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries
            .iter()
            .filter(|(_, entry)| !entry.holders.is_empty())
            .map(|(id, _)| *id)
    }
}

/// Every subscription of the fleet.
#[derive(Debug)]
pub struct Queues {
    pub kind: BrokerKind,
    pub list: Vec<Queue>,
    next_entry: u64,
    next_message: u64,
}

impl Queues {
    pub fn new(kind: BrokerKind, orchestrator: Subscription) -> Self {
        let subscriptions = [
            orchestrator,
            agentfleet_aggregator::completions(),
            agentfleet_aggregator::deadlines(),
            agentfleet_graph_writer::explainability(),
            agentfleet_aggregator::dead_letters(),
        ];
        let list = Role::CONSUMERS
            .into_iter()
            .zip(subscriptions)
            .map(|(role, subscription)| Queue {
                role,
                subscription,
                entries: BTreeMap::new(),
            })
            .collect();
        Self {
            kind,
            list,
            next_entry: 1,
            next_message: 1,
        }
    }

    pub fn of(&self, role: Role) -> &Queue {
        let at = Role::CONSUMERS
            .iter()
            .position(|r| *r == role)
            .expect("a consumer");
        &self.list[at]
    }

    pub fn publish(
        &mut self,
        topic: &Topic,
        payload: Arc<[u8]>,
        properties: &Properties,
        ready_at: Millis,
        now: Millis,
    ) {
        let id = format!("m{}", self.next_message);
        self.next_message += 1;
        let message = Arc::new(Message {
            id,
            topic: topic.clone(),
            payload,
            properties: properties.clone(),
            published_at: now,
        });
        for queue in &mut self.list {
            if queue.wants(topic, properties) {
                let message = Arc::clone(&message);
                let entry = Entry {
                    message,
                    count: 0,
                    ready_at,
                    holders: Vec::new(),
                };
                queue.entries.insert(self.next_entry, entry);
                self.next_entry += 1;
            }
        }
    }

    /// Gives a message to a task. `None` if it had been delivered too often, and was buried.
    pub fn claim(&mut self, role: Role, entry: u64, task: TaskId, now: Millis) -> Option<Delivery> {
        let counts = self.kind.counts;
        let queue = self.list.iter_mut().find(|q| q.role == role)?;
        let limit = queue
            .subscription
            .max_deliveries
            .filter(|_| counts && role != Role::Undertaker);
        let entries = &mut queue.entries;
        let before = entries.get(&entry)?.count;
        if limit.is_some_and(|limit| before >= limit) {
            let entry = entries.remove(&entry)?;
            let reason = format!("delivered {before} times without being acknowledged");
            self.bury(&entry.message, &reason, now);
            return None;
        }
        let found = entries.get_mut(&entry)?;
        found.count += 1;
        found.holders.push(Holder {
            task,
            lease: i64::from(found.count),
        });
        let message = &found.message;
        Some(Delivery {
            message_id: message.id.clone(),
            topic: message.topic.clone(),
            payload: Arc::clone(&message.payload),
            properties: message.properties.clone(),
            deliveries: counts.then_some(found.count),
            published_at: message.published_at,
            first_at: None,
            reopened_at: None,
            receipt: Receipt {
                delivery: entry as i64,
                lease: i64::from(found.count),
            },
        })
    }

    /// The same message once more, as brokers may deliver it.
    pub fn repeat(&mut self, role: Role, entry: u64) {
        let Some(queue) = self.list.iter_mut().find(|queue| queue.role == role) else {
            return;
        };
        if let Some(Entry {
            message, ready_at, ..
        }) = queue.entries.get(&entry)
        {
            let (message, ready_at) = (Arc::clone(message), *ready_at);
            let repeated = Entry {
                message,
                count: 0,
                ready_at,
                holders: Vec::new(),
            };
            queue.entries.insert(self.next_entry, repeated);
            self.next_entry += 1;
        }
    }

    fn entry(&mut self, receipt: Receipt) -> Option<(&mut BTreeMap<u64, Entry>, u64)> {
        let id = receipt.delivery as u64;
        let strict = self.kind.strict;
        let queue = self.list.iter_mut().find(|q| q.entries.contains_key(&id))?;
        let entry = &queue.entries[&id];
        let holds = entry.holders.iter().any(|h| h.lease == receipt.lease);
        let newest = i64::from(entry.count) == receipt.lease;
        (!strict || (holds && newest)).then_some((&mut queue.entries, id))
    }

    pub fn ack(&mut self, receipt: Receipt) {
        if let Some((entries, id)) = self.entry(receipt) {
            entries.remove(&id);
        }
    }

    pub fn nack(&mut self, receipt: Receipt, ready_at: Millis) {
        if let Some((entries, id)) = self.entry(receipt)
            && let Some(entry) = entries.get_mut(&id)
        {
            entry.ready_at = ready_at;
            entry.holders.retain(|holder| holder.lease != receipt.lease);
        }
    }

    pub fn dead_letter(&mut self, receipt: Receipt, reason: &str, now: Millis) {
        let buried = self
            .entry(receipt)
            .and_then(|(entries, id)| entries.remove(&id));
        if let Some(entry) = buried {
            self.bury(&entry.message, reason, now);
        }
    }

    fn bury(&mut self, message: &Message, reason: &str, now: Millis) {
        let mut properties = message.properties.clone();
        properties.insert(property::REASON.to_owned(), reason.to_owned());
        properties.insert(property::ORIGIN.to_owned(), message.topic.to_string());
        properties
            .entry(property::ORIGIN_MESSAGE.to_owned())
            .or_insert_with(|| message.id.clone());
        self.publish(
            &DEAD_LETTER,
            Arc::clone(&message.payload),
            &properties,
            now,
            now,
        );
    }

    /// Takes back what a task still holds: it ended without settling, or died.
    pub fn release(&mut self, task: TaskId, ready_at: Millis) {
        for queue in &mut self.list {
            for entry in queue.entries.values_mut() {
                let before = entry.holders.len();
                entry.holders.retain(|holder| holder.task != task);
                if entry.holders.len() < before && entry.holders.is_empty() {
                    entry.ready_at = ready_at;
                }
            }
        }
    }

    /// When the next message comes due, among the roles asked for.
    pub fn next_due(&self, now: Millis, roles: impl Fn(Role) -> bool) -> Option<Millis> {
        self.list
            .iter()
            .filter(|queue| roles(queue.role))
            .flat_map(|queue| queue.delayed(now).map(|(_, at)| at))
            .min()
    }
}
