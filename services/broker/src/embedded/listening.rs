//! Listening to a topic: a subscription of one process, which ends with it. What a killed process left is removed
//! by whoever listens next.

use super::State;
use super::store;
use super::tables::message_of;
use crate::embedded::EmbeddedBroker;
use crate::{Broker as _, Consumer, Error, Retained, Subscription};
use agentfleet_schema::topics::Topic;
use agentfleet_storage::{self as storage, Durability, Unit};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;

/// What the names of these subscriptions begin with; the instance that listens follows.
pub(super) const PREFIX: &str = "listener-";
/// Messages on their way to who listens.
const AHEAD: usize = 64;
/// How long a message may take from the table to who listens, before it is passed on again.
const LEASE: Duration = Duration::from_secs(60);

pub(super) async fn listen(
    broker: &EmbeddedBroker,
    topic: &Topic,
) -> Result<mpsc::Receiver<Retained>, Error> {
    let dead =
        |state: &State, name: &str| !instance(name).is_some_and(|id| state.instances.alive(id));
    remove(broker, dead).await?;
    let number = broker.state.consumers.fetch_add(1, Ordering::Relaxed);
    let subscription = Subscription {
        topic: topic.clone(),
        name: format!("{PREFIX}{}-{number}", broker.state.own()),
        only: None,
        lease: LEASE,
        max_deliveries: None,
    };
    let name = subscription.name.clone();
    let consumer = broker.subscribe(subscription).await?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let broker = broker.clone();
    tokio::spawn(async move {
        pass_on(&broker, consumer, sender).await;
        if let Err(error) = remove(&broker, move |_, other| other == name).await {
            tracing::debug!(%error, "a listener stays until somebody else listens");
        }
    });
    Ok(receiver)
}

async fn pass_on(
    broker: &EmbeddedBroker,
    mut consumer: Box<dyn Consumer>,
    sender: mpsc::Sender<Retained>,
) {
    loop {
        let received = tokio::select! {
            received = consumer.receive(AHEAD) => received,
            () = sender.closed() => return,
        };
        let Ok(deliveries) = received else {
            return;
        };
        for delivery in deliveries {
            let acknowledged = broker.ack(&delivery).await;
            let passed = sender.send(Retained {
                position: message_of(delivery.receipt.delivery),
                payload: delivery.payload,
                properties: delivery.properties,
            });
            if acknowledged.is_err() || passed.await.is_err() {
                return;
            }
        }
    }
}

/// The instance whose listener has this name.
fn instance(name: &str) -> Option<i64> {
    let (id, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    id.parse().ok()
}

/// Removes the listeners of this process.
pub(super) async fn leave(broker: &EmbeddedBroker) -> Result<(), Error> {
    remove(broker, |state, name| instance(name) == Some(state.own())).await
}

/// Removes listeners with what they were to be given.
async fn remove(
    broker: &EmbeddedBroker,
    is_meant: impl Fn(&State, &str) -> bool + Send + 'static,
) -> Result<(), Error> {
    let looked = broker.database.read(all);
    if looked.await?.is_empty() {
        return Ok(());
    }
    broker
        .write(Durability::Process, move |state, unit| {
            for (id, name) in all(unit.tx())? {
                if is_meant(state, &name) {
                    remove_one(state, unit, id)?;
                }
            }
            Ok(())
        })
        .await
}

fn all(connection: &rusqlite::Connection) -> Result<Vec<(i64, String)>, storage::Error> {
    let mut statement = connection
        .prepare_cached("SELECT id, name FROM subscriptions WHERE name GLOB ?1 || '*'")?;
    let found = statement.query_map([PREFIX], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn remove_one(state: &Arc<State>, unit: &Unit<'_>, id: i64) -> Result<(), storage::Error> {
    let mut statement = unit
        .tx()
        .prepare_cached("DELETE FROM deliveries WHERE subscription = ?1 RETURNING id")?;
    let deleted = statement.query_map([id], |row| row.get(0))?;
    for delivery in deleted.collect::<Result<Vec<i64>, _>>()? {
        store::forget(unit, message_of(delivery))?;
    }
    state.topology().unsubscribe(unit, id)
}
