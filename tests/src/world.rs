//! The simulated world: time, stores, queues, what was asked, and what has been seen so far. Shipped
//! code reaches it through the seams only.

use crate::effect::{Effect, Fault, Point, Verb, When};
use crate::facts::Facts;
use crate::faults::Faults;
use crate::journal::Journal;
use crate::queues::{Queues, Role, TaskId};
use crate::rng::Rng;
use crate::scenario::{Scenario, Trouble, named_in};
use agentfleet_broker::{Delivery, Outgoing};
use agentfleet_documents::Created;
use agentfleet_graph::Batch;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::topics::{AGENT_REQUEST, AGENT_RESPONSE, property};
use agentfleet_schema::{AgentRequest, AgentResponse, Millis};
use oxigraph::store::Store;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// When every simulated run begins.
pub const START: Millis = 1_700_000_000_000;

/// What is known of a task while it runs.
#[derive(Debug)]
pub struct Tracked {
    pub name: String,
    pub role: Role,
    pub process: u32,
    pub point: Option<Point>,
    pub deliveries: Vec<Delivery>,
    /// The request it works, if it works one.
    pub request: Option<AgentRequest>,
    /// Why it may start nothing more, as far as it was told (BG-1).
    pub stop_seen: Option<String>,
    /// It was told that nobody knows whether an equal call took effect.
    pub unknown_seen: bool,
    /// It waits for something that never comes.
    pub stuck: bool,
}

/// A call of a tool that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    pub key: String,
    pub tool: String,
    pub arguments: BTreeMap<String, String>,
    pub content: String,
}

pub struct World {
    /// Counts scheduling steps.
    pub tick: u64,
    pub now: Millis,
    /// How far the clock of a process is off.
    pub skews: BTreeMap<u32, Millis>,
    pub rng: Rng,
    pub faults: Faults,
    pub scenario: Arc<Scenario>,
    pub configs: Vec<Arc<Snapshot>>,
    /// The newest config version.
    pub config: usize,
    pub queues: Queues,
    pub documents: BTreeMap<String, Arc<[u8]>>,
    /// Responses, by root.
    pub responses: Vec<(String, AgentResponse)>,
    pub graph: Store,
    /// The coordination dataset: what is counted, by fan-out.
    pub counted: BTreeMap<String, Vec<Batch>>,
    /// Starts of calls with side effects, by idempotency key.
    pub starts: BTreeMap<String, u32>,
    pub executed: Vec<Executed>,
    /// How often the model was asked the same.
    pub asked: BTreeMap<String, u32>,
    pub tasks: BTreeMap<TaskId, Tracked>,
    pub current: Option<TaskId>,
    /// Who made each nonce.
    makers: BTreeMap<String, TaskId>,
    /// Tasks whose process died.
    pub killed: BTreeSet<TaskId>,
    /// Whether processes see which others live, as those of one data directory do.
    pub sees_deaths: bool,
    /// Tasks at whose step their process dies.
    pub dying: Vec<TaskId>,
    pub facts: Facts,
    pub journal: Journal,
    pub violation: Option<String>,
    nonces: u64,
}

/// A handle on the world; clones share it.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub fn new(world: World) -> Self {
        Self(Arc::new(Mutex::new(world)))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl World {
    pub fn new(
        seed: u64,
        scenario: Scenario,
        faults: Faults,
        queues: Queues,
        configs: Vec<Arc<Snapshot>>,
    ) -> Self {
        Self {
            tick: 0,
            now: START,
            skews: BTreeMap::new(),
            rng: Rng::new(seed),
            faults,
            scenario: Arc::new(scenario),
            configs,
            config: 0,
            queues,
            documents: BTreeMap::new(),
            responses: Vec::new(),
            graph: Store::new().expect("a store in memory"),
            counted: BTreeMap::new(),
            starts: BTreeMap::new(),
            executed: Vec::new(),
            asked: BTreeMap::new(),
            tasks: BTreeMap::new(),
            current: None,
            makers: BTreeMap::new(),
            killed: BTreeSet::new(),
            sees_deaths: false,
            dying: Vec::new(),
            facts: Facts::default(),
            journal: Journal::default(),
            violation: None,
            nonces: 0,
        }
    }

    /// The first thing that must never happen is the one that is told.
    pub fn violate(&mut self, what: impl Into<String>) {
        if self.violation.is_none() {
            let what = what.into();
            self.journal.note(self.now, || format!("VIOLATION {what}"));
            self.violation = Some(what);
        }
    }

    pub fn task(&mut self) -> Option<&mut Tracked> {
        let current = self.current?;
        self.tasks.get_mut(&current)
    }

    fn task_name(&self) -> String {
        self.current
            .and_then(|id| self.tasks.get(&id).map(|t| format!("{} #{id}", t.name)))
            .unwrap_or_default()
    }

    /// A task stops here until it is picked again; some never are.
    pub fn arrive(&mut self, point: Point) {
        let Some(current) = self.current else { return };
        let doomed = point.when == When::Before && self.doomed(&point.effect);
        if let Some(task) = self.tasks.get_mut(&current) {
            task.point = Some(point);
        }
        if doomed {
            self.dying.push(current);
        }
    }

    /// Whether the work at hand kills its process here.
    fn doomed(&self, effect: &Effect) -> bool {
        let Some(task) = self.current.and_then(|id| self.tasks.get(&id)) else {
            return false;
        };
        if task.role != Role::Orchestrator {
            return false;
        }
        let Some(name) = task.request.as_ref().and_then(|r| named_in(&r.question)) else {
            return false;
        };
        match self.scenario.trouble_of(name) {
            Trouble::Poison => effect.verb == Verb::Chat,
            // Nothing counts it then but the broker.
            Trouble::Deadly => effect.verb == Verb::Read && self.queues.kind.counts,
            Trouble::None | Trouble::Stuck | Trouble::Refused | Trouble::Unavailable => false,
        }
    }

    /// Whether this call goes wrong. Death takes the task's process after the call took effect.
    pub fn strike(&mut self, effect: &Effect) -> Option<Fault> {
        let fault = self.faults.strike(&mut self.rng, effect);
        if let Some(fault) = fault {
            *self.facts.faults.entry(fault).or_default() += 1;
            if fault == Fault::Death {
                self.dying.extend(self.current);
                return None;
            }
        }
        fault
    }

    pub fn log(&mut self, effect: &Effect, fault: Option<Fault>) {
        let tag = effect.verb as u64 * 16 + fault.map_or(0, |f| f as u64 + 1);
        self.journal
            .mix(tag ^ (effect.what.len() as u64) << 16 ^ self.current.unwrap_or(0) << 32);
        let name = self.task_name();
        self.journal.note(self.now, || match fault {
            Some(fault) => format!("{name}: {effect}  !! {fault:?}"),
            None => format!("{name}: {effect}"),
        });
    }

    /// The time as the process at work sees it.
    pub fn time(&self) -> Millis {
        let process = self
            .current
            .and_then(|id| self.tasks.get(&id))
            .map(|task| task.process);
        self.now
            + process
                .and_then(|id| self.skews.get(&id))
                .copied()
                .unwrap_or_default()
    }

    pub fn nonce(&mut self) -> String {
        self.nonces += 1;
        let nonce = format!("nonce-{}", self.nonces);
        self.makers
            .extend(self.current.map(|task| (nonce.clone(), task)));
        nonce
    }

    /// Whether the process that made a nonce died, where processes see that of each other.
    pub fn is_gone(&self, nonce: &str) -> bool {
        let maker = self.makers.get(nonce);
        self.sees_deaths && maker.is_some_and(|maker| self.killed.contains(maker))
    }

    /// Stores an object if there is none by that key.
    pub fn create(&mut self, key: &str, body: Vec<u8>) -> Created {
        if self.documents.contains_key(key) {
            return Created::Exists;
        }
        let mut folders = key.match_indices('/').map(|(end, _)| &key[..end]);
        let above = folders.find(|folder| self.documents.contains_key(*folder));
        let folder = format!("{key}/");
        let mut later = self.documents.range(folder.clone()..);
        let below = later.next().filter(|(key, _)| key.starts_with(&folder));
        let nested =
            above.map_or_else(|| below.map(|(key, _)| key.clone()), |key| Some(key.into()));
        if let Some(other) = nested {
            self.violate(format!("`{key}` and `{other}` lie one below the other"));
        }
        let body: Arc<[u8]> = body.into();
        self.documents.insert(key.to_owned(), Arc::clone(&body));
        self.on_created(key, &body);
        Created::New
    }

    /// Puts a message on its topic.
    /// The order in which the messages of one call become visible: kept within each topic, chance
    /// between them.
    pub fn scatter(&mut self, messages: Vec<Outgoing>) -> Vec<Outgoing> {
        if !self.faults.scattered {
            return messages;
        }
        let mut topics: Vec<VecDeque<Outgoing>> = Vec::new();
        for message in messages {
            let same = |of: &&mut VecDeque<Outgoing>| of[0].topic == message.topic;
            match topics.iter_mut().find(same) {
                Some(of) => of.push_back(message),
                None => topics.push(VecDeque::from([message])),
            }
        }
        let mut order = Vec::new();
        while !topics.is_empty() {
            let at = self.rng.below(topics.len());
            order.extend(topics[at].pop_front());
            if topics[at].is_empty() {
                topics.remove(at);
            }
        }
        order
    }

    pub fn publish(&mut self, message: &Outgoing) {
        self.on_publish(message);
        let payload: Arc<[u8]> = message.payload.clone().into();
        if message.topic == AGENT_RESPONSE {
            if let Ok(response) = serde_json::from_slice::<AgentResponse>(&payload) {
                let root = message
                    .properties
                    .get(property::ROOT)
                    .cloned()
                    .unwrap_or_default();
                self.on_response(&root, &response);
                self.responses.push((root, response));
            }
            return;
        }
        if message.topic == AGENT_REQUEST
            && let Ok(request) = serde_json::from_slice::<AgentRequest>(&payload)
            && let Some(name) = named_in(&request.question)
        {
            self.journal.name(request.session_id.as_str(), name);
        }
        let mut ready_at = message.deliver_at.unwrap_or(0).max(self.now);
        if self.faults.on && self.rng.per_mille(self.faults.delayed) {
            ready_at += *self.rng.pick(&[50, 1_000, 31_000, 400_000]);
        }
        self.queues.publish(
            &message.topic,
            payload,
            &message.properties,
            ready_at,
            self.now,
        );
    }
}
