//! A real Pulsar for the contract.
//!
//! Its time cannot be moved by hand. So a second of the checks lasts a fifth of one: leases, delays
//! and times of delivery are shortened on their way to the broker, and letting time pass is waiting.

use crate::contract::Fixture;
use crate::server::{Server, http};
use agentfleet_broker::{
    Broker, Consumer, Delivery, Error, Outgoing, PulsarBroker, Retained, Subscription, Waiting,
};
use agentfleet_schema::topics::Topic;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

const HURRY: u32 = 5;

/// What the client does between the broker's dispatch and a waiting receiver takes no longer.
const LOCAL: Duration = Duration::from_millis(150);

/// One broker for all tests of this process.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

pub(crate) struct Pulsar {
    pub(crate) broker: PulsarBroker,
    names: Mutex<Vec<String>>,
    http: reqwest::Client,
}

pub(crate) async fn pulsar() -> Pulsar {
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    let broker = PulsarBroker::connect(server.options()).await.unwrap();
    let retained = [agentfleet_schema::topics::AGENT_RESPONSE];
    broker.ensure(&retained, &[]).await.unwrap();
    Pulsar {
        broker,
        names: Mutex::default(),
        http: http(),
    }
}

impl Pulsar {
    fn is_ours(&self, name: &str) -> bool {
        let names = self.names.lock().unwrap();
        names
            .iter()
            .any(|own| name == own || name.starts_with(&format!("{own}-")))
    }

    async fn ask(&self, path: &str) -> Value {
        let answer = self.http.get(server().admin(path)).send().await.unwrap();
        answer.json().await.unwrap_or_default()
    }

    /// Whether something could be delivered now to who waits, on this fixture's topics.
    async fn deliverable(&self) -> bool {
        let topics = self.ask("persistent/public/default").await;
        for topic in topics
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let path = topic.replacen("://", "/", 1);
            if !self.is_ours(topic.rsplit('/').next().unwrap()) {
                continue;
            }
            let stats = self
                .ask(&format!("{path}/stats?getPreciseBacklog=true"))
                .await;
            for subscription in stats["subscriptions"].as_object().into_iter().flatten() {
                let subscription = subscription.1;
                let number = |field: &str| subscription[field].as_i64().unwrap_or(0);
                let waiting =
                    number("msgBacklog") - number("unackedMessages") - number("msgDelayed");
                let consumers = subscription["consumers"].as_array().into_iter().flatten();
                let mut permits = consumers.map(|one| one["availablePermits"].as_i64().unwrap());
                if waiting > 0 && permits.any(|permits| permits > 0) {
                    return true;
                }
            }
        }
        false
    }
}

#[async_trait]
impl Fixture for Pulsar {
    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(Hurried(self.broker.clone()))
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time / HURRY).await;
    }

    async fn settle(&self) {
        while self.deliverable().await {}
        tokio::time::sleep(LOCAL).await;
    }

    fn atomic(&self) -> bool {
        false
    }

    fn unique(&self, name: &str) -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.names.lock().unwrap().push(name.clone());
        name
    }
}

/// The broker, with every time a fifth of what it is asked for.
struct Hurried(PulsarBroker);

#[async_trait]
impl Broker for Hurried {
    async fn publish(&self, mut messages: Vec<Outgoing>) -> Result<(), Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_millis()).unwrap();
        for message in &mut messages {
            let at = message.deliver_at.as_mut();
            if let Some(at) = at.filter(|at| **at > now) {
                *at = now + (*at - now) / i64::from(HURRY);
            }
        }
        self.0.publish(messages).await
    }

    async fn subscribe(&self, mut subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        subscription.lease /= HURRY;
        self.0.subscribe(subscription).await
    }

    async fn ack(&self, delivery: &Delivery) -> Result<(), Error> {
        self.0.ack(delivery).await
    }

    async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<(), Error> {
        self.0.nack(delivery, delay / HURRY).await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<(), Error> {
        self.0.dead_letter(delivery, reason).await
    }

    async fn extend(&self, delivery: &Delivery) -> Result<(), Error> {
        self.0.extend(delivery).await
    }

    async fn read(
        &self,
        topic: &Topic,
        key: &str,
        after: i64,
        max: usize,
    ) -> Result<Vec<Retained>, Error> {
        self.0.read(topic, key, after, max).await
    }

    async fn mark(&self, topic: &Topic) -> Result<i64, Error> {
        self.0.mark(topic).await
    }

    async fn establish(&self, subscriptions: &[Subscription]) -> Result<(), Error> {
        self.0.establish(subscriptions).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.0.ready().await
    }

    async fn listen(&self, topic: &Topic) -> Result<mpsc::Receiver<Retained>, Error> {
        self.0.listen(topic).await
    }

    async fn reach(&self, topic: &Topic) -> Result<Option<u64>, Error> {
        self.0.reach(topic).await
    }

    fn is_own(&self, topic: &Topic) -> bool {
        self.0.is_own(topic)
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        self.0.waiting().await
    }
}
