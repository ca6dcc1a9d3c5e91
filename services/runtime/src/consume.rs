//! The consume loop, and the one place that says what becomes of a delivery.
//!
//! Draining: stop receiving, let what is in flight finish within the grace period, hand back the
//! rest. Nothing is lost by it (DR-1): what was not committed is delivered again.

use crate::watchdog::{Leash, Watchdog};
use crate::{Error, metrics};
use agentfleet_broker::{Broker, Consumer, Delivery, Subscription, Witness};
use agentfleet_schema::topics::property;
use async_trait::async_trait;
use futures::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What becomes of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Acknowledged as part of a commit; nothing is left to do.
    Settled,
    Ack,
    /// Try again later; counts as a delivery.
    RetryAfter(Duration),
    /// Nobody can work it: the undertaker ends its step and parks it.
    DeadLetter(String),
}

/// Works one delivery at a time.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    async fn handle(&self, delivery: &Delivery) -> Disposition;

    /// Called three times within a lease while a delivery is being handled.
    async fn keep(&self, _delivery: &Delivery) {}

    /// Called about every second between that, for what cannot wait until the lease is kept.
    async fn look(&self, _delivery: &Delivery) {}

    /// Called when handling a delivery panicked, before the delivery is handed back.
    async fn panicked(&self, _delivery: &Delivery) {}

    /// Called when nothing is in flight any more, while the broker still knows who holds what: finishes
    /// what is left to do of deliveries that were handled.
    async fn drained(&self) {}
}

/// How long a message rests whose handler panicked.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Runs a handler; `Err` if it panicked. A panic in one message must not hold back the others of its
/// process, nor its own message for a whole lease.
async fn caught<T>(handled: impl Future<Output = T>) -> Result<T, String> {
    let caught = AssertUnwindSafe(handled).catch_unwind().await;
    caught.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("without a message").to_owned()
    })
}

fn tell_panic(delivery: &Delivery, panic: &str) {
    let session = delivery.properties.get(property::SESSION);
    let session = session.map_or("", String::as_str);
    tracing::error!(message = %delivery.message_id, topic = %delivery.topic, session, panic, "a worker panicked; the message is handed back");
}

/// How often a handler looks after what it handles.
const LOOK: Duration = Duration::from_secs(1);

/// Works deliveries together; all of them share the fate of the batch, unless it names others.
#[async_trait]
pub trait BatchHandler: Send + Sync + 'static {
    /// One disposition for each delivery, in order.
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Disposition>;
}

/// How long a worker may take to finish when it is asked to stop.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Cancelled when the worker should stop receiving.
    pub stop: CancellationToken,
    pub grace: Duration,
    /// Ends the process if a handler hangs.
    pub watchdog: Option<Watchdog>,
}

impl Drain {
    fn watch(&self, subscription: &str, delivery: &Delivery) -> Option<Leash> {
        let message = &delivery.message_id;
        let watchdog = self.watchdog.as_ref()?;
        Some(watchdog.hold(format!("message {message} of `{subscription}`")))
    }
}

/// Serves a subscription until `drain.stop`, with up to `concurrency` deliveries in flight.
pub async fn serve(
    broker: Arc<dyn Broker>,
    subscription: Subscription,
    handler: Arc<dyn Handler>,
    concurrency: usize,
    drain: Drain,
) -> Result<(), Error> {
    let lease = subscription.lease;
    let name = subscription.name.clone();
    let away = Witness::of(format!("receiving for `{name}`"));
    let mut consumer = open(&*broker, &subscription, &drain, &away).await?;
    let mut in_flight = JoinSet::new();
    loop {
        while in_flight.len() >= concurrency.max(1) {
            in_flight.join_next().await;
        }
        while in_flight.try_join_next().is_some() {}
        let room = concurrency.max(1) - in_flight.len();
        let received = tokio::select! {
            biased;
            () = drain.stop.cancelled() => break,
            received = consumer.receive(room) => received,
        };
        let deliveries = match received {
            Ok(deliveries) => {
                away.well();
                deliveries
            }
            Err(error) => {
                metrics::receive_failed(&name);
                away.failed(&error);
                if pause(&drain, Duration::from_secs(1)).await {
                    break;
                }
                consumer = open(&*broker, &subscription, &drain, &away).await?;
                continue;
            }
        };
        for delivery in deliveries {
            let (broker, handler) = (Arc::clone(&broker), Arc::clone(&handler));
            let name = name.clone();
            let leash = drain.watch(&name, &delivery);
            in_flight.spawn(async move {
                let _leash = leash;
                let _held = Held::new(&name);
                let disposition = work(&*broker, &*handler, &delivery, lease).await;
                metrics::delivered(&name, &disposition);
            });
        }
    }
    let finished = async {
        while in_flight.join_next().await.is_some() {}
        handler.drained().await;
    };
    if tokio::time::timeout(drain.grace, finished).await.is_err() {
        tracing::info!(
            subscription = %name,
            handed_back = in_flight.len(),
            "the grace period is over; what is in flight is handed back"
        );
        in_flight.shutdown().await;
    }
    // Not sooner: a broker gives a closed consumer's messages to others, and these are being worked.
    drop(consumer);
    Ok(())
}

async fn open(
    broker: &dyn Broker,
    subscription: &Subscription,
    drain: &Drain,
    away: &Witness,
) -> Result<Box<dyn Consumer>, Error> {
    let mut has_failed = false;
    loop {
        match broker.subscribe(subscription.clone()).await {
            Ok(consumer) => {
                // Where it is receiving that fails, an open consumer alone is not the end of it.
                if has_failed {
                    away.well();
                }
                return Ok(consumer);
            }
            Err(error) => {
                has_failed = true;
                away.failed(&error);
                if pause(drain, Duration::from_secs(1)).await {
                    return Err(error.into());
                }
            }
        }
    }
}

/// Waits; `true` if the worker was asked to stop meanwhile.
async fn pause(drain: &Drain, time: Duration) -> bool {
    tokio::select! {
        () = drain.stop.cancelled() => true,
        () = tokio::time::sleep(time) => false,
    }
}

/// Counts a delivery as in flight until it is dropped, however that comes about.
struct Held<'a>(&'a str);

impl<'a> Held<'a> {
    fn new(subscription: &'a str) -> Self {
        metrics::in_flight(subscription, 1.0);
        Self(subscription)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        metrics::in_flight(self.0, -1.0);
    }
}

/// Works one delivery while its lease is kept, then settles it.
async fn work(
    broker: &dyn Broker,
    handler: &dyn Handler,
    delivery: &Delivery,
    lease: Duration,
) -> Disposition {
    let keeping = async {
        let mut kept = Instant::now();
        loop {
            tokio::time::sleep(LOOK.min((lease / 3).saturating_sub(kept.elapsed()))).await;
            if kept.elapsed() >= lease / 3 {
                kept = Instant::now();
                if let Err(error) = broker.extend(delivery).await {
                    tracing::warn!(message = %delivery.message_id, %error, "cannot keep the lease");
                }
                handler.keep(delivery).await;
            } else {
                handler.look(delivery).await;
            }
        }
    };
    let handled = tokio::select! {
        handled = caught(handler.handle(delivery)) => handled,
        never = keeping => never,
    };
    let disposition = match handled {
        Ok(disposition) => disposition,
        Err(panic) => {
            tell_panic(delivery, &panic);
            handler.panicked(delivery).await;
            Disposition::RetryAfter(AFTER_PANIC)
        }
    };
    settle(broker, delivery, &disposition).await;
    disposition
}

async fn settle(broker: &dyn Broker, delivery: &Delivery, disposition: &Disposition) {
    let settled = match disposition {
        Disposition::Settled => return,
        Disposition::Ack => broker.ack(delivery).await,
        Disposition::RetryAfter(delay) => broker.nack(delivery, *delay).await,
        // The broker tells of it, as of what was delivered too often.
        Disposition::DeadLetter(reason) => broker.dead_letter(delivery, reason).await,
    };
    if let Err(error) = settled {
        // The lease runs out and the message comes again; every handler can take that.
        tracing::warn!(message = %delivery.message_id, ?disposition, %error, "cannot settle");
    }
}

/// Handles a batch. If that panics each delivery is handled alone, so that one does not stop the others.
async fn handle_batch(handler: &dyn BatchHandler, deliveries: &[Delivery]) -> Vec<Disposition> {
    if let Ok(dispositions) = caught(handler.handle(deliveries)).await {
        return dispositions;
    }
    let mut dispositions = Vec::new();
    for delivery in deliveries {
        let alone = caught(handler.handle(std::slice::from_ref(delivery))).await;
        dispositions.extend(alone.unwrap_or_else(|panic| {
            tell_panic(delivery, &panic);
            vec![Disposition::RetryAfter(AFTER_PANIC)]
        }));
    }
    dispositions
}

/// Serves a subscription in batches of up to `max`, one batch at a time. Between the beginnings of two lies
/// `linger`, in which messages gather, unless more than a batch waits. The first after silence waits for
/// nothing.
pub async fn serve_batches(
    broker: Arc<dyn Broker>,
    subscription: Subscription,
    handler: Arc<dyn BatchHandler>,
    max: usize,
    linger: Duration,
    drain: Drain,
) -> Result<(), Error> {
    let name = subscription.name.clone();
    let away = Witness::of(format!("receiving for `{name}`"));
    let mut consumer = open(&*broker, &subscription, &drain, &away).await?;
    loop {
        let received = tokio::select! {
            biased;
            () = drain.stop.cancelled() => return Ok(()),
            received = consumer.receive(max) => received,
        };
        match received {
            Ok(deliveries) => {
                away.well();
                let next = Instant::now() + linger;
                let leash = deliveries.first().map(|first| drain.watch(&name, first));
                let dispositions = handle_batch(&*handler, &deliveries).await;
                drop(leash);
                let mut acks = Vec::new();
                for (delivery, disposition) in deliveries.iter().zip(dispositions) {
                    metrics::delivered(&name, &disposition);
                    if disposition == Disposition::Ack {
                        acks.push(broker.ack(delivery));
                    } else {
                        settle(&*broker, delivery, &disposition).await;
                    }
                }
                // Together, so that they share a transaction.
                for settled in futures::future::join_all(acks).await {
                    if let Err(error) = settled {
                        tracing::warn!(subscription = %name, %error, "cannot acknowledge");
                    }
                }
                let left = next.saturating_duration_since(Instant::now());
                if deliveries.len() < max && !left.is_zero() && pause(&drain, left).await {
                    return Ok(());
                }
            }
            Err(error) => {
                metrics::receive_failed(&name);
                away.failed(&error);
                if pause(&drain, Duration::from_secs(1)).await {
                    return Ok(());
                }
                consumer = open(&*broker, &subscription, &drain, &away).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use agentfleet_broker::{Durability, EmbeddedBroker, Options, Outgoing, Properties};
    use agentfleet_schema::topics::AGENT_REQUEST;
    use agentfleet_storage::Database;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Panics at the first delivery, and ends the test at the second.
    struct Once {
        stop: CancellationToken,
        deliveries: AtomicU32,
        cleaned_up: AtomicU32,
    }

    #[async_trait]
    impl Handler for Once {
        async fn handle(&self, _: &Delivery) -> Disposition {
            let before = self.deliveries.fetch_add(1, Ordering::Relaxed);
            assert_ne!(before, 0, "as it is meant to");
            self.stop.cancel();
            Disposition::Ack
        }

        async fn panicked(&self, _: &Delivery) {
            self.cleaned_up.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_message_whose_handler_panics_comes_again_before_its_lease_is_over() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let broker = EmbeddedBroker::open(&database, Options::default()).unwrap();
        let lease = Duration::from_secs(3_600);
        let subscription = Subscription {
            topic: AGENT_REQUEST,
            name: "workers".to_owned(),
            only: None,
            lease,
            max_deliveries: None,
        };
        let broker: Arc<dyn Broker> = Arc::new(broker);
        broker
            .establish(std::slice::from_ref(&subscription))
            .await
            .unwrap();
        let message = Outgoing {
            topic: AGENT_REQUEST,
            payload: b"{}".to_vec(),
            properties: Properties::new(),
            deliver_at: None,
            durability: Durability::Process,
        };
        broker.publish(vec![message]).await.unwrap();
        let stop = CancellationToken::new();
        let handler = Arc::new(Once {
            stop: stop.clone(),
            deliveries: AtomicU32::new(0),
            cleaned_up: AtomicU32::new(0),
        });
        let drain = Drain {
            stop,
            grace: Duration::from_secs(10),
            watchdog: None,
        };
        let served = serve(broker, subscription, handler.clone(), 1, drain);
        tokio::time::timeout(Duration::from_secs(60), served)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(handler.deliveries.load(Ordering::Relaxed), 2);
        assert_eq!(handler.cleaned_up.load(Ordering::Relaxed), 1);
    }
}
