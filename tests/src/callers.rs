//! Those who ask a fleet over Pulsar: they publish requests without waiting, and read every raw
//! response, repeats included. They follow `docs/protocol.md` and nothing else: what has no receipt
//! is published again under the same id.

use agentfleet_broker::{
    Broker, Consumer, Delivery, Durability, Outgoing, Properties, PulsarBroker, PulsarOptions,
    Subscription,
};
use agentfleet_schema::topics::{AGENT_REQUEST, AGENT_RESPONSE, property};
use agentfleet_schema::{AgentResponse, Millis};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Nothing at all is heard for so long: whoever still waits, waits in vain. It is more than any lease,
/// back-off and redelivery.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nothing is heard for so long: a person looks whether something waits for one.
const QUIET: Duration = Duration::from_secs(15);

/// A last message that ends a run.
#[derive(Clone, Debug)]
pub struct End {
    pub message_id: String,
    pub error: Option<String>,
    pub published_at: Millis,
}

/// A response of a recorded step: something was committed.
#[derive(Clone, Debug)]
pub struct Progress {
    pub root: String,
    pub published_at: Millis,
    pub heard_at: Millis,
    pub ends: bool,
}

/// Everything that was heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// Ends of every root session, as often as they were published.
    pub ends: BTreeMap<String, Vec<End>>,
    /// The root session of every `id`.
    pub roots: BTreeMap<String, BTreeSet<String>>,
    pub progress: Vec<Progress>,
    /// Roots of which a part of a text was heard: a model answers, or answered.
    pub talking: BTreeSet<String>,
    pub responses: usize,
    /// Published again by the fleet: equal to an earlier one, under another id of the broker's.
    pub repeats: usize,
    /// Delivered again by the broker.
    pub redelivered: usize,
    broker_ids: BTreeSet<String>,
    parts: BTreeSet<(String, Option<u32>, bool)>,
}

/// A request, and when its receipt came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: Option<String>,
    /// Known at once where somebody else published it.
    pub root: Option<String>,
    pub at: Millis,
}

/// Callers that share a connection, and read what all of them are told.
#[derive(Debug)]
pub struct Callers {
    runtime: Runtime,
    broker: PulsarBroker,
    heard: Arc<Mutex<Heard>>,
    asked: Mutex<Vec<Asked>>,
    news: watch::Receiver<usize>,
}

pub fn now() -> Millis {
    let elapsed = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    elapsed.as_millis() as Millis
}

/// A message under an id of its own, noted as asked.
fn noted(asked: &mut Vec<Asked>, payload: Vec<u8>, mut properties: Properties) -> Outgoing {
    let id = format!("asked-{}", asked.len());
    properties.insert(property::ID.to_owned(), id.clone());
    asked.push(Asked {
        id: Some(id),
        root: None,
        at: now(),
    });
    Outgoing {
        topic: AGENT_REQUEST,
        payload,
        properties,
        deliver_at: None,
        durability: Durability::Durable,
    }
}

impl Callers {
    /// Begins to listen; whatever is published from now on is heard.
    pub fn listen(pulsar: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let mut options = PulsarOptions::new(pulsar);
        // A broker that starts on a busy machine needs a while.
        options.publish_timeout = PATIENCE;
        let broker = runtime.block_on(PulsarBroker::connect(options)).unwrap();
        let subscription = Subscription {
            topic: AGENT_RESPONSE,
            name: "callers".to_owned(),
            only: None,
            lease: Duration::from_secs(60),
            max_deliveries: None,
        };
        let consumer = runtime.block_on(broker.subscribe(subscription)).unwrap();
        let heard = Arc::<Mutex<Heard>>::default();
        let (tell, news) = watch::channel(0);
        runtime.spawn(hear(broker.clone(), consumer, Arc::clone(&heard), tell));
        Self {
            runtime,
            broker,
            heard,
            asked: Mutex::default(),
            news,
        }
    }

    /// Publishes a request for each question, all at once, and returns when the broker has them.
    pub fn ask(&self, questions: &[String]) {
        let mut asked = self.asked.lock().unwrap();
        let messages: Vec<Outgoing> = questions
            .iter()
            .map(|question| {
                let payload = json!({"question": question, "streaming": true}).to_string();
                noted(&mut asked, payload.into_bytes(), Properties::new())
            })
            .collect();
        let receipts = async {
            while let Err(error) = self.broker.publish(messages.clone()).await {
                println!("asking again under the same ids: {error}");
            }
        };
        self.runtime.block_on(receipts);
    }

    /// Publishes what may be no request.
    pub fn publish(&self, payload: Vec<u8>, properties: Properties) {
        let message = noted(&mut self.asked.lock().unwrap(), payload, properties);
        self.block_on(self.broker.publish(vec![message])).unwrap();
    }

    /// Counts a request that was asked by other means.
    pub fn also_asked(&self, root: &str) {
        self.asked.lock().unwrap().push(Asked {
            id: None,
            root: Some(root.to_owned()),
            at: now(),
        });
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap()
    }

    /// How many requests have no end yet.
    pub fn open(&self) -> usize {
        let heard = self.heard();
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|one| heard.end(one).is_none()).count()
    }

    /// Returns when every request has its end, or when nothing has been heard for long.
    pub fn until_all_ended(&self) {
        self.until(PATIENCE, || self.open() == 0);
    }

    /// The same where a person is asked what becomes of calls of which nobody knows whether they took effect:
    /// `answers` returns how many it answered.
    pub fn until_all_ended_with(&self, mut answers: impl FnMut() -> usize) {
        loop {
            self.until(QUIET, || self.open() == 0);
            if self.open() == 0 || answers() == 0 {
                break;
            }
        }
        self.until_all_ended();
    }

    /// Returns when a model talks in each of the last requests, or when nothing has been heard for long.
    pub fn until_talking(&self, count: usize) {
        self.until(PATIENCE, || {
            let (asked, heard) = (self.asked(), self.heard());
            let last = &asked[asked.len() - count..];
            let talks = |one| {
                heard
                    .root(one)
                    .is_some_and(|root| heard.talking.contains(&root))
            };
            last.iter().all(talks)
        });
    }

    fn until(&self, patience: Duration, is_so: impl Fn() -> bool) {
        let mut news = self.news.clone();
        self.runtime.block_on(async {
            while !is_so() {
                let changed = tokio::time::timeout(patience, news.changed());
                if changed.await.is_err() {
                    break;
                }
            }
        });
    }

    /// Keeps `count` requests open until told that it is over: a load.
    pub fn keep_open(&self, count: usize, over: &AtomicBool, mut question: impl FnMut() -> String) {
        let mut news = self.news.clone();
        while !over.load(Ordering::Relaxed) {
            news.mark_unchanged();
            let questions: Vec<String> = (self.open()..count).map(|_| question()).collect();
            self.ask(&questions);
            let changed = async { tokio::time::timeout(PATIENCE, news.changed()).await };
            let changed = self.runtime.block_on(changed);
            changed.expect("the fleet is stuck").unwrap();
        }
    }

    /// Returns when everything that was published before has been heard.
    pub fn until_all_heard(&self) {
        // Another one each time: those of before have been heard.
        let asked = |id: &&String| id.starts_with(LAST);
        let before = self.heard().roots.keys().filter(asked).count();
        let id = format!("{LAST} {before}");
        let last = Outgoing {
            topic: AGENT_RESPONSE,
            payload: b"{}".to_vec(),
            properties: Properties::from([(property::ID.to_owned(), id.clone())]),
            deliver_at: None,
            durability: Durability::Durable,
        };
        let mut news = self.news.clone();
        self.runtime.block_on(async {
            self.broker.publish(vec![last]).await.unwrap();
            while !self.heard().roots.contains_key(&id) {
                let changed = tokio::time::timeout(PATIENCE, news.changed());
                changed.await.expect("a response is lost").unwrap();
            }
        });
    }

    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

/// Begins the ids of messages that nobody asked for, to know that all before it were heard.
const LAST: &str = "last";

async fn hear(
    broker: PulsarBroker,
    mut consumer: Box<dyn Consumer>,
    heard: Arc<Mutex<Heard>>,
    tell: watch::Sender<usize>,
) {
    while let Ok(deliveries) = consumer.receive(1000).await {
        for delivery in deliveries {
            heard.lock().unwrap().take(&delivery);
            // Lost with its connection, it comes again.
            drop(broker.ack(&delivery).await);
        }
        tell.send_modify(|count| *count += 1);
    }
}

impl Heard {
    fn take(&mut self, delivery: &Delivery) {
        if !self.broker_ids.insert(delivery.message_id.clone()) {
            self.redelivered += 1;
            return;
        }
        let property = |name: &str| delivery.properties.get(name).cloned().unwrap_or_default();
        let (id, root) = (property(property::ID), property(property::ROOT));
        let is_last = id.starts_with(LAST);
        self.roots.entry(id).or_default().insert(root.clone());
        if is_last {
            return;
        }
        let response: AgentResponse = serde_json::from_slice(&delivery.payload).unwrap();
        self.responses += 1;
        let name = match &response.explain_id {
            Some(node) => node.clone(),
            None => response.message_id.as_str().to_owned(),
        };
        let part = (name, response.seq, response.end_of_message);
        self.repeats += usize::from(!self.parts.insert(part));
        if response.end_of_dialog {
            self.ends.entry(root.clone()).or_default().push(End {
                message_id: response.message_id.as_str().to_owned(),
                error: response
                    .error
                    .map(|error| format!("{}: {}", error.code, error.message)),
                published_at: delivery.published_at,
            });
        }
        // Chunks come before the commit, everything else after it.
        if response.end_of_message || response.explain_id.is_some() {
            self.progress.push(Progress {
                root,
                published_at: delivery.published_at,
                heard_at: now(),
                ends: response.end_of_dialog,
            });
        } else {
            self.talking.insert(root);
        }
    }

    /// The root session of a request; it has one, whatever happens.
    pub fn root(&self, asked: &Asked) -> Option<String> {
        let Some(id) = &asked.id else {
            return asked.root.clone();
        };
        let roots = self.roots.get(id)?;
        assert_eq!(roots.len(), 1, "request {id} ran as {roots:?}");
        roots.first().cloned()
    }

    /// The first end of a request.
    pub fn end(&self, asked: &Asked) -> Option<&End> {
        self.ends.get(&self.root(asked)?)?.first()
    }

    /// Distinct last messages of a request.
    pub fn distinct_ends(&self, asked: &Asked) -> BTreeSet<&str> {
        let ends = self.root(asked).and_then(|root| self.ends.get(&root));
        let ends = ends.into_iter().flatten();
        ends.map(|end| end.message_id.as_str()).collect()
    }
}
