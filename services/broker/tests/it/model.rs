//! Random operations against a model small enough to be believed.

use crate::contract::Fixture;
use crate::support::{Embedded, START, embedded};
use agentfleet_broker::{
    Broker, Consumer, Delivery, Durability, EmbeddedBroker, Outgoing, Subscription,
};
use agentfleet_schema::topics::{DEAD_LETTER, Topic, subscription};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::{prop_oneof, proptest, test_runner::Config};
use std::collections::BTreeSet;
use std::time::Duration;

const LEASE: i64 = 10;
const TOPIC: Topic = Topic::fixed("modelled");

/// The two subscriptions: one gives up after three deliveries, one wants even messages only.
const LIMITS: [Option<u32>; 2] = [Some(3), None];

#[derive(Clone, Debug)]
enum Operation {
    Publish { delay: i64, even: bool },
    Receive { subscription: usize, max: usize },
    Ack(usize),
    Nack(usize, i64),
    Bury(usize),
    Extend(usize),
    Pass(i64),
    Reconnect { subscription: usize },
}

fn operation() -> impl Strategy<Value = Operation> {
    let receipt = 0_usize..1000;
    prop_oneof![
        4 => (prop_oneof![2 => 0_i64..1, 1 => -9_i64..0, 1 => 1_i64..20], any::<bool>())
            .prop_map(|(delay, even)| Operation::Publish { delay, even }),
        6 => (0_usize..2, 1_usize..4)
            .prop_map(|(subscription, max)| Operation::Receive { subscription, max }),
        3 => receipt.clone().prop_map(Operation::Ack),
        3 => (receipt.clone(), 0_i64..15).prop_map(|(receipt, delay)| Operation::Nack(receipt, delay)),
        1 => receipt.clone().prop_map(Operation::Bury),
        1 => receipt.prop_map(Operation::Extend),
        3 => (1_i64..8).prop_map(Operation::Pass),
        1 => (0_usize..2).prop_map(|subscription| Operation::Reconnect { subscription }),
    ]
}

/// One message as one subscription sees it.
#[derive(Clone, Debug)]
struct Pending {
    message: usize,
    subscription: usize,
    ready_at: i64,
    count: u32,
    held: bool,
}

#[derive(Default)]
struct Model {
    now: i64,
    published: usize,
    pending: Vec<Pending>,
    dead: Vec<usize>,
    /// What was handed out: message, subscription, count, and whether its consumer still knows it.
    receipts: Vec<(usize, usize, u32, bool)>,
}

impl Model {
    fn publish(&mut self, delay: i64, even: bool) {
        for subscription in 0..2 {
            if subscription == 0 || even {
                self.pending.push(Pending {
                    message: self.published,
                    subscription,
                    ready_at: self.now + delay.max(0),
                    count: 0,
                    held: false,
                });
            }
        }
        self.published += 1;
    }

    fn receive(&mut self, subscription: usize, max: usize) -> Vec<(usize, u32)> {
        let now = self.now;
        loop {
            self.pending
                .sort_by_key(|pending| (pending.ready_at, pending.message));
            let mine = |pending: &&mut Pending| {
                pending.subscription == subscription && pending.ready_at <= now
            };
            let mut taken = Vec::new();
            let mut given_up = Vec::new();
            let mut found = 0;
            for pending in self.pending.iter_mut().filter(mine).take(max) {
                found += 1;
                if LIMITS[subscription].is_some_and(|limit| pending.count >= limit) {
                    given_up.push(pending.message);
                    continue;
                }
                (pending.count, pending.held, pending.ready_at) =
                    (pending.count + 1, true, now + LEASE);
                taken.push((pending.message, pending.count));
            }
            self.pending.retain(|pending| {
                pending.subscription != subscription || !given_up.contains(&pending.message)
            });
            self.dead.extend(given_up);
            if !taken.is_empty() || found == 0 {
                let receipts = taken
                    .iter()
                    .map(|(message, count)| (*message, subscription, *count, true));
                self.receipts.extend(receipts);
                return taken;
            }
        }
    }

    /// The place of a receipt whose lease was not lost.
    fn place(&self, receipt: usize) -> Option<usize> {
        let (message, subscription, count, _) = self.receipts[receipt];
        self.pending.iter().position(|pending| {
            (pending.message, pending.subscription, pending.count) == (message, subscription, count)
                && pending.held
        })
    }

    fn hand_back(&mut self, receipt: usize, delay: i64) {
        if let Some(place) = self.place(receipt) {
            self.pending[place].held = false;
            self.pending[place].ready_at = self.now + delay;
        }
    }

    fn settle(&mut self, operation: &Operation, receipt: usize) {
        match operation {
            Operation::Ack(_) => {
                if let Some(place) = self.place(receipt) {
                    self.pending.remove(place);
                }
            }
            Operation::Nack(_, delay) => self.hand_back(receipt, *delay),
            Operation::Bury(_) => {
                if let Some(place) = self.place(receipt) {
                    let buried = self.pending.remove(place);
                    self.dead.push(buried.message);
                }
            }
            Operation::Extend(_) => {
                let known = self.receipts[receipt].3;
                if let Some(place) = self.place(receipt).filter(|_| known) {
                    self.pending[place].ready_at = self.now + LEASE;
                }
                return;
            }
            other => panic!("{other:?} settles nothing"),
        }
        self.receipts[receipt].3 = false;
    }

    fn reconnect(&mut self, subscription: usize) {
        for receipt in 0..self.receipts.len() {
            if self.receipts[receipt].1 == subscription && self.receipts[receipt].3 {
                self.hand_back(receipt, 0);
                self.receipts[receipt].3 = false;
            }
        }
    }
}

async fn connect(broker: &EmbeddedBroker, index: usize) -> Box<dyn Consumer> {
    let even = || ("even".to_owned(), "true".to_owned());
    let subscription = Subscription {
        topic: TOPIC,
        name: format!("{index}"),
        only: (index == 1).then(even),
        lease: Duration::from_secs(LEASE as u64),
        max_deliveries: LIMITS[index],
    };
    broker.subscribe(subscription).await.unwrap()
}

/// Receives what is there, without waiting.
async fn receive(fixture: &Embedded, consumer: &mut dyn Consumer, max: usize) -> Vec<Delivery> {
    tokio::select! {
        biased;
        batch = consumer.receive(max) => batch.unwrap(),
        () = fixture.settle() => Vec::new(),
    }
}

fn name(delivery: &Delivery) -> usize {
    std::str::from_utf8(&delivery.payload)
        .unwrap()
        .parse()
        .unwrap()
}

async fn run(operations: Vec<Operation>) {
    let fixture = embedded(1);
    let broker = fixture.brokers[0].clone();
    let mut consumers = [connect(&broker, 0).await, connect(&broker, 1).await];
    let mut model = Model::default();
    let mut deliveries: Vec<Delivery> = Vec::new();
    for operation in operations {
        match &operation {
            Operation::Publish { delay, even } => {
                let outgoing = Outgoing {
                    topic: TOPIC,
                    payload: model.published.to_string().into_bytes(),
                    properties: [("even".to_owned(), even.to_string())].into(),
                    deliver_at: Some(START + (model.now + delay) * 1000),
                    durability: Durability::Process,
                };
                broker.publish(vec![outgoing]).await.unwrap();
                model.publish(*delay, *even);
            }
            Operation::Receive { subscription, max } => {
                let received = receive(&fixture, consumers[*subscription].as_mut(), *max).await;
                let found: Vec<_> = received
                    .iter()
                    .map(|one| (name(one), one.deliveries.unwrap()))
                    .collect();
                assert_eq!(found, model.receive(*subscription, *max));
                deliveries.extend(received);
            }
            Operation::Ack(receipt)
            | Operation::Nack(receipt, _)
            | Operation::Bury(receipt)
            | Operation::Extend(receipt) => {
                if deliveries.is_empty() {
                    continue;
                }
                let receipt = receipt % deliveries.len();
                let delivery = &deliveries[receipt];
                let settled = match &operation {
                    Operation::Ack(_) => broker.ack(delivery).await,
                    Operation::Nack(_, delay) => {
                        broker
                            .nack(delivery, Duration::from_secs(*delay as u64))
                            .await
                    }
                    Operation::Bury(_) => broker.dead_letter(delivery, "modelled").await,
                    _ => broker.extend(delivery).await,
                };
                settled.unwrap();
                model.settle(&operation, receipt);
            }
            Operation::Pass(seconds) => {
                fixture.clock.advance(Duration::from_secs(*seconds as u64));
                model.now += seconds;
            }
            Operation::Reconnect { subscription } => {
                consumers[*subscription] = connect(&broker, *subscription).await;
                fixture.settle().await;
                model.reconnect(*subscription);
            }
        }
    }
    // In the end every message is where the model has it, and nothing lies about.
    let undertaker = Subscription {
        topic: DEAD_LETTER,
        name: subscription::UNDERTAKER.to_owned(),
        only: None,
        lease: Duration::from_hours(1),
        max_deliveries: None,
    };
    let mut undertaker = broker.subscribe(undertaker).await.unwrap();
    let dead = receive(&fixture, undertaker.as_mut(), 1000).await;
    let mut found: Vec<_> = dead.iter().map(name).collect();
    found.sort_unstable();
    model.dead.sort_unstable();
    assert_eq!(found, model.dead);
    let left: BTreeSet<_> = model
        .pending
        .iter()
        .map(|pending| pending.message)
        .collect();
    let counts = broker.database().read(|connection| {
        let sql = "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM deliveries)";
        Ok(connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    });
    let (messages, rows): (isize, isize) = counts.await.unwrap();
    assert_eq!(messages.cast_unsigned(), left.len() + dead.len());
    assert_eq!(rows.cast_unsigned(), model.pending.len() + dead.len());
}

proptest! {
    #![proptest_config(Config { cases: 64, max_shrink_iters: 2000, ..Config::default() })]

    #[test]
    fn the_broker_does_what_the_model_does(operations in vec(operation(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(operations));
    }
}
