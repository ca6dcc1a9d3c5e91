//! The tables of the embedded broker, and how a delivery's id is made.
//!
//! - A message lies once in `messages`, and is waited for by one row of `deliveries` for each
//!   subscription. It goes when the last of those rows goes, unless its topic retains it.
//! - `key` is set on retained messages only: their `root` property, or empty.
//! - `ready_at` is when a delivery may be handed out: at publication, after a delay, or when the
//!   lease of its holder ends. `owner` is the instance that holds it, 0 if nobody does.
//! - `first_at` is when it was first handed out.
//! - `count` is how often it was handed out, and so also names the lease: a receipt with another
//!   count, or for a row that nobody holds, is stale.

pub(super) const PART: &str = "broker";

pub(super) const TABLES: &[&str] = &["CREATE TABLE topology(version INTEGER NOT NULL);
     INSERT INTO topology VALUES (0);

     CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

     CREATE TABLE subscriptions(
       id INTEGER PRIMARY KEY,
       topic INTEGER NOT NULL,
       name TEXT NOT NULL,
       filter_key TEXT,
       filter_value TEXT,
       UNIQUE(topic, name));

     -- AUTOINCREMENT: a message id names a message for ever, so it is never used again.
     CREATE TABLE messages(
       id INTEGER PRIMARY KEY AUTOINCREMENT,
       topic INTEGER NOT NULL,
       key TEXT,
       published_at INTEGER NOT NULL,
       properties TEXT NOT NULL,
       payload BLOB NOT NULL);
     CREATE INDEX retained ON messages(topic, key) WHERE key IS NOT NULL;

     CREATE TABLE deliveries(
       id INTEGER PRIMARY KEY,
       subscription INTEGER NOT NULL,
       ready_at INTEGER NOT NULL,
       count INTEGER NOT NULL,
       owner INTEGER NOT NULL,
       first_at INTEGER);
     CREATE INDEX ready ON deliveries(subscription, ready_at);

     -- Dead letters must not be lost because nobody has asked for them yet.
     INSERT INTO topics VALUES (1, 'dead-letter');
     INSERT INTO subscriptions VALUES (1, 1, 'undertaker', NULL, NULL);"];

/// Bits of a delivery's id that hold its subscription; the others hold its message. So the
/// deliveries of a message lie side by side and need no index.
const SUBSCRIPTION_BITS: u32 = 16;

/// The largest id of a subscription.
pub(super) const MAX_SUBSCRIPTION: i64 = (1 << SUBSCRIPTION_BITS) - 1;

pub(super) const fn delivery_id(message: i64, subscription: i64) -> i64 {
    (message << SUBSCRIPTION_BITS) | subscription
}

pub(super) const fn message_of(delivery: i64) -> i64 {
    delivery >> SUBSCRIPTION_BITS
}

pub(super) const fn subscription_of(delivery: i64) -> i64 {
    delivery & MAX_SUBSCRIPTION
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentfleet_schema::topics::{DEAD_LETTER, subscription};

    #[test]
    fn a_delivery_id_holds_its_message_and_subscription() {
        for (message, subscription) in [(1, 1), (7, MAX_SUBSCRIPTION), (1 << 40, 3)] {
            let id = delivery_id(message, subscription);
            assert_eq!(
                (message_of(id), subscription_of(id)),
                (message, subscription)
            );
        }
    }

    #[test]
    fn the_first_tables_name_the_dead_letter_topic_and_its_consumer() {
        assert!(TABLES[0].contains(&format!("'{DEAD_LETTER}'")));
        assert!(TABLES[0].contains(&format!("'{}'", subscription::UNDERTAKER)));
    }
}
