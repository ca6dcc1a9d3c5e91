//! For tests that force one schedule: pick a message, stop a task at a point, crash, go on.
//!
//! Messages are named by what they are about: `r0 1` is step 1 of the work `r0`, `r0.2 0 completion`
//! the completion of its third subagent, `r0 1 join` the end of the wait for a fan-out at step 1.

use crate::effect::{Fault, Verb, When};
use crate::facts::Facts;
use crate::faults::Faults;
use crate::queues::{Message, Role, TaskId};
use crate::scenario::Scenario;
use crate::seams::Seam;
use crate::sim::{Engine, Sim, Stepped};
use crate::world::World;
use agentfleet_core::approval::Verdict;
use agentfleet_core::error::Code;
use agentfleet_runtime::{Drain, serve};
use agentfleet_schema::records::{
    AcceptedRecord, Activity, ApprovalAnswer, FanInRecord, PauseRecord, Publication, StepRecord,
};
use agentfleet_schema::topics::{DEAD_LETTER, property};
use agentfleet_schema::{AgentRequest, SessionId, Term, Triple, Triples, keys, uris};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A fleet under a test's own schedule: two processes of each role, and no fault that the test does
/// not ask for.
pub struct Stage {
    pub sim: Sim,
    workers: Vec<(Role, [u32; 2])>,
    producer: u32,
    gateway: u32,
    kept: Vec<(Arc<Message>, bool)>,
}

impl Stage {
    pub fn new(scenario: Scenario, engine: Engine) -> Self {
        let mut sim = Sim::new(1, scenario, engine, Faults::default());
        sim.with(|world| world.journal.keeping = true);
        let workers = Role::CONSUMERS
            .into_iter()
            .map(|role| (role, [sim.start(role, 100), sim.start(role, 100)]))
            .collect();
        let producer = sim.start(Role::Producer, 0);
        let gateway = sim.start(Role::Gateway, 0);
        Self {
            sim,
            workers,
            producer,
            gateway,
            kept: Vec::new(),
        }
    }

    /// A fleet that was asked for every root of the scenario.
    pub fn asked(scenario: Scenario, engine: Engine) -> Self {
        let mut stage = Self::new(scenario, engine);
        let roots = stage.sim.with(|world| world.scenario.roots.len());
        for root in 0..roots {
            stage.ask(root);
        }
        stage
    }

    pub fn ask(&mut self, root: usize) {
        let task = self.sim.ask(self.producer, root);
        self.sim.finish(task);
    }

    /// The first or second process of a role.
    pub fn worker(&self, role: Role, which: usize) -> u32 {
        self.workers
            .iter()
            .find(|(r, _)| *r == role)
            .expect("a consumer")
            .1[which]
    }

    /// What lies in a role's queue, by name; with who holds it.
    pub fn queued(&self, role: Role) -> Vec<(u64, String, bool)> {
        self.sim.with(|world| {
            let queue = world.queues.of(role);
            queue
                .entries
                .iter()
                .map(|(id, entry)| {
                    let property = |name: &str| {
                        entry
                            .message
                            .properties
                            .get(name)
                            .map_or("", String::as_str)
                    };
                    let name = format!(
                        "{} {} {} {}",
                        world.journal.named(property(property::SESSION)),
                        property(property::STEP),
                        property(property::KIND),
                        entry.message.id,
                    );
                    (*id, name, !entry.holders.is_empty())
                })
                .collect()
        })
    }

    fn find(&self, role: Role, about: &str, held: bool) -> u64 {
        let queued = self.queued(role);
        let about = format!("{about} ");
        let found = queued
            .iter()
            .find(|(_, name, is)| *is == held && name.starts_with(&about));
        match found {
            Some((id, _, _)) => *id,
            None => panic!(
                "no message `{about}` for {role}, held {held}: {queued:?}\n{}",
                self.story()
            ),
        }
    }

    pub fn has(&self, role: Role, about: &str) -> bool {
        let about = format!("{about} ");
        self.queued(role)
            .iter()
            .any(|(_, name, _)| name.starts_with(&about))
    }

    /// Delivers a message that nobody holds, due or not.
    pub fn give(&mut self, role: Role, which: usize, about: &str) -> TaskId {
        let entry = self.find(role, about, false);
        let process = self.worker(role, which);
        self.sim.deliver(process, &[entry]).expect("a delivery")
    }

    /// Delivers a message that somebody already holds.
    pub fn give_again(&mut self, role: Role, which: usize, about: &str) -> TaskId {
        let entry = self.find(role, about, true);
        let process = self.worker(role, which);
        self.sim.deliver(process, &[entry]).expect("a delivery")
    }

    /// Delivers several messages as one batch.
    pub fn give_together(&mut self, role: Role, which: usize, about: &[&str]) -> TaskId {
        let entries: Vec<u64> = about
            .iter()
            .map(|about| self.find(role, about, false))
            .collect();
        let process = self.worker(role, which);
        self.sim.deliver(process, &entries).expect("a delivery")
    }

    /// Delivers a message and works it to its end.
    pub fn work(&mut self, role: Role, about: &str) -> Stepped {
        let task = self.give(role, 0, about);
        self.sim.finish(task)
    }

    pub fn run_to(&mut self, task: TaskId, when: When, verb: Verb, what: &str) {
        self.sim.run_to(task, when, verb, what);
    }

    pub fn finish(&mut self, task: TaskId) -> Stepped {
        self.sim.finish(task)
    }

    /// The process of a task dies; what it held is ready again at once.
    pub fn crash(&mut self, task: TaskId) {
        let process = self.sim.tasks[&task].process;
        self.sim.crash(process, 0);
    }

    /// The config changes: the version that comes has no tool `write`.
    pub fn change_config(&mut self) {
        self.sim.with(|world| world.config = 1);
    }

    /// The next such call fails like this.
    pub fn fail_next(&mut self, verb: Verb, what: &str, fault: Fault) {
        self.sim
            .with(|world| world.faults.forced.push((verb, what.to_owned(), fault)));
    }

    /// Works everything that is due for these roles, in order, without letting time pass.
    pub fn run(&mut self, roles: &[Role]) {
        for _ in 0..10_000 {
            let next = self.sim.with(|world| {
                let now = world.now;
                let mut queues = world
                    .queues
                    .list
                    .iter()
                    .filter(|queue| roles.contains(&queue.role));
                queues.find_map(|queue| queue.ready(now).next().map(|id| (queue.role, id)))
            });
            let Some((role, entry)) = next else { return };
            let process = self.worker(role, 0);
            if let Some(task) = self.sim.deliver(process, &[entry]) {
                self.finish(task);
            }
        }
        panic!("this never comes to rest\n{}", self.story());
    }

    /// Works everything that is due, without letting time pass.
    pub fn run_all(&mut self) {
        self.run(&Role::CONSUMERS);
    }

    /// Somebody cancels; the task is not run yet.
    pub fn cancel(&mut self, root: &SessionId) -> TaskId {
        self.sim.cancel(self.gateway, root.clone())
    }

    /// Somebody cancels the subagent at `index` of the fan-out that a session committed at `step`; the
    /// task is not run yet.
    pub fn cancel_child(&mut self, parent: &str, step: u32, index: u32) -> TaskId {
        let parent = self.session(parent);
        let child = self.child(&parent, step, index);
        let gateway = self.gateway;
        self.sim.cancel_child(gateway, (parent, step), child)
    }

    /// The lease of what a task works is kept.
    pub fn keep_lease(&mut self, task: TaskId) {
        let keeping = self.sim.keep(task).expect("a worker of single messages");
        self.sim.finish(keeping);
    }

    /// The call of a session that waits for a person, at a step.
    pub fn pause(&self, name: &str, step: u32) -> PauseRecord {
        let session = self.session(name);
        let body = self.document(&keys::pause(&session, step));
        let body = body.unwrap_or_else(|| panic!("no wait of `{name}`\n{}", self.story()));
        serde_json::from_str(&body).expect("a wait")
    }

    /// Somebody answers the call of a session that waits; the task is not run yet.
    pub fn decide(&mut self, name: &str, step: u32, by: &str, answer: ApprovalAnswer) -> TaskId {
        let verdict = Verdict {
            answer,
            by: by.to_owned(),
            reason: format!("{by} says so"),
            arguments: (answer == ApprovalAnswer::Edit)
                .then(|| [("item".to_owned(), "another".to_owned())].into()),
        };
        let pause = self.pause(name, step);
        self.sim.decide(self.gateway, pause, verdict)
    }

    /// What a person was told of the answer.
    pub fn told(&self, by: &str) -> Option<String> {
        self.sim.with(|world| {
            let told = world.facts.told.iter().rev();
            let mut own = told.filter(|(who, _)| who == by);
            own.next().map(|(_, told)| told.clone())
        })
    }

    /// What is listed as waiting for a person.
    pub fn listed(&self) -> usize {
        self.keys_below(keys::APPROVALS).len()
    }

    /// Calls of a tool with side effects that were carried out, with their arguments.
    pub fn made(&self, tool: &str) -> Vec<String> {
        self.sim.with(|world| {
            let made = world.executed.iter().filter(|call| call.tool == tool);
            made.map(|call| call.arguments["item"].clone()).collect()
        })
    }

    /// Looks for overdue fan-outs, to the end.
    pub fn sweep(&mut self) {
        let sweep = self.sim.sweep(self.gateway);
        self.sim.finish(sweep);
    }

    /// The broker loses a message, as one does that deletes what waits too long.
    pub fn lose(&mut self, role: Role, about: &str) {
        let entry = self.find(role, about, false);
        self.sim.with(|world| {
            let queues = &mut world.queues.list;
            for queue in queues.iter_mut().filter(|queue| queue.role == role) {
                queue.entries.remove(&entry);
            }
        });
    }

    /// How long the first message that waits for something is delayed from now.
    pub fn delay(&self, role: Role, about: &str) -> Duration {
        let about = format!("{about} ");
        let waiting = self.queued(role).into_iter();
        let waiting = waiting.filter(|(_, name, held)| !held && name.starts_with(&about));
        self.sim.with(|world| {
            let entries = &world.queues.of(role).entries;
            let soonest = waiting.map(|(id, _, _)| entries[&id].ready_at).min();
            let left = soonest.expect("a message") - world.now;
            Duration::from_millis(u64::try_from(left).unwrap_or_default())
        })
    }

    pub fn pass(&mut self, time: Duration) {
        self.sim.pass(time);
    }

    /// Moves the clock to whatever comes due next.
    pub fn pass_to_next(&mut self) -> bool {
        self.sim.with(|world| {
            let next = world.queues.next_due(world.now, |_| true);
            if let Some(at) = next {
                world.now = at;
            }
            next.is_some()
        })
    }

    /// Lets everything happen that still can, checks every invariant, and panics if one is broken.
    pub fn end(&mut self) {
        let mut checked = false;
        for _ in 0..1_000 {
            let open: Vec<TaskId> = self.sim.tasks.keys().copied().collect();
            for task in open {
                if self.sim.tasks.contains_key(&task) {
                    self.sim.finish(task);
                }
            }
            self.run_all();
            if !checked && self.sim.with(|world| world.is_calm()) {
                checked = true;
                self.sim.with(World::check_calm);
            }
            if self.pass_to_next() {
                continue;
            }
            match self.sim.tasks.values().next().map(|task| task.process) {
                Some(hung) => self.sim.crash(hung, 0),
                None => break,
            }
        }
        self.sim.end(self.gateway);
        self.hold();
    }

    /// Panics if an invariant was broken so far.
    pub fn hold(&self) {
        if let Some(violation) = self.sim.violation() {
            panic!("{violation}\n{}", self.story());
        }
    }

    pub fn story(&self) -> String {
        self.sim.with(|world| world.journal.tail(150))
    }

    /// The session of a piece of work.
    pub fn session(&self, name: &str) -> SessionId {
        let found = self.sim.with(|world| world.journal.session_of(name));
        found.unwrap_or_else(|| panic!("no session `{name}`\n{}", self.story()))
    }

    /// The subagent at `index` of the fan-out that a session committed at `step`; one that nobody started,
    /// where there is no fan-out.
    fn child(&self, parent: &SessionId, step: u32, index: u32) -> SessionId {
        let of = (parent.clone(), step);
        let record = self.sim.with(|world| world.facts.records.get(&of).cloned());
        let children = match record.as_deref().map(|record| &record.activity) {
            Some(Activity::FannedOut(fan_out)) => &fan_out.children[..],
            _ => &[],
        };
        match children.get(index as usize) {
            Some(child) => child.session.clone(),
            None => SessionId::child(parent, step, index, "of nobody"),
        }
    }

    pub fn record(&self, name: &str, step: u32) -> Option<Arc<StepRecord>> {
        let session = self.session(name);
        self.sim
            .with(|world| world.facts.records.get(&(session, step)).cloned())
    }

    pub fn verdict(&self, name: &str, step: u32) -> Option<FanInRecord> {
        let session = self.session(name);
        self.sim
            .with(|world| world.facts.verdicts.get(&(session, step)).cloned())
    }

    pub fn document(&self, key: &str) -> Option<String> {
        self.sim.with(|world| {
            world
                .documents
                .get(key)
                .map(|body| String::from_utf8_lossy(body).into_owned())
        })
    }

    /// The text a session ended with.
    pub fn answer(&self, name: &str) -> Option<String> {
        let session = self.session(name);
        self.document(&agentfleet_schema::keys::document(&uris::answer_document(
            &session,
        )))
    }

    pub fn count(&self, what: &str) -> u64 {
        self.sim
            .with(|world| world.facts.counts.get(what).copied().unwrap_or_default())
    }

    /// Starts of calls with side effects.
    pub fn starts(&self) -> u64 {
        self.count("side effects")
    }

    pub fn objects(&self, subject: &str, predicate: &str) -> Vec<String> {
        self.sim.with(|world| world.objects(subject, predicate))
    }

    /// Whether the end of a session has reached the graph.
    pub fn is_counted(&self, name: &str) -> bool {
        self.sim.with(|world| {
            let session = world.journal.session_of(name);
            session.is_some_and(|s| world.facts.inserted.contains(&uris::answer(&s)))
        })
    }

    pub fn quads(&self) -> usize {
        self.sim.with(|world| world.graph.len().expect("a count"))
    }

    /// The request in a message.
    pub fn request(&self, role: Role, about: &str) -> AgentRequest {
        let entry = self.find(role, about, false);
        self.sim.with(|world| {
            let message = &world.queues.of(role).entries[&entry].message;
            serde_json::from_slice(&message.payload).expect("a request")
        })
    }

    /// Delivers whatever nobody holds, due or not.
    pub fn give_any(&mut self, role: Role, which: usize) -> TaskId {
        let entry = self
            .queued(role)
            .into_iter()
            .find(|(_, _, held)| !held)
            .expect("a message")
            .0;
        let process = self.worker(role, which);
        self.sim.deliver(process, &[entry]).expect("a delivery")
    }

    /// Works a child that ends in one step, and its completion.
    pub fn run_to_answer(&mut self, parent: &str, child: usize) {
        let name = format!("{parent}.{child} 0");
        self.work(Role::Orchestrator, &name);
        self.work(Role::FanIn, &format!("{name} completion"));
    }

    fn replace(&mut self, role: Role, about: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) {
        let entry = self.find(role, about, false);
        self.sim.with(|world| {
            let queue = world
                .queues
                .list
                .iter_mut()
                .find(|queue| queue.role == role);
            let entry = queue
                .and_then(|queue| queue.entries.get_mut(&entry))
                .expect("a message");
            let old = &entry.message;
            entry.message = Arc::new(Message {
                id: old.id.clone(),
                topic: old.topic.clone(),
                payload: change(&old.payload).into(),
                properties: old.properties.clone(),
                published_at: old.published_at,
            });
        });
    }

    /// Makes a message come once more.
    pub fn repeat(&mut self, role: Role, about: &str) {
        let entry = self.find(role, about, false);
        self.sim.with(|world| world.queues.repeat(role, entry));
    }

    /// Lets a task go on for so many steps, and kills its process. True if it had ended before.
    pub fn go_on_and_die(&mut self, task: TaskId, steps: usize) -> bool {
        for _ in 0..steps {
            if self.sim.step(task) != Stepped::Going {
                return true;
            }
        }
        self.crash(task);
        false
    }

    /// Makes the body of a message unreadable.
    pub fn damage(&mut self, role: Role, about: &str) {
        self.replace(role, about, |_| b"\xff no json".to_vec());
    }

    /// Puts a statement that is no RDF into a message of triples.
    pub fn spoil(&mut self, role: Role, about: &str) {
        self.replace(role, about, |body| {
            let mut message: Triples = serde_json::from_slice(body).expect("triples");
            message
                .triples
                .push(Triple::new("no iri", "neither", Term::text("x")));
            serde_json::to_vec(&message).expect("plain data")
        });
    }

    /// The broker gives up on a message, whoever has it.
    pub fn bury(&mut self, role: Role, about: &str) {
        let about = format!("{about} ");
        let found = self
            .queued(role)
            .into_iter()
            .find(|(_, name, _)| name.starts_with(&about));
        let entry = found.expect("a message").0;
        self.sim.with(|world| {
            let queue = world
                .queues
                .list
                .iter_mut()
                .find(|queue| queue.role == role);
            if let Some(entry) = queue.and_then(|queue| queue.entries.get_mut(&entry)) {
                entry.count = u32::MAX;
            }
            let now = world.now;
            assert!(
                world.queues.claim(role, entry, 0, now).is_none(),
                "the broker gives up"
            );
        });
    }

    /// The first message of a run that a door took in is refused: nothing shows who sent it.
    pub fn refuse(&mut self, about: &str) {
        let entry = self.find(Role::Orchestrator, about, false);
        self.sim.with(|world| {
            let mut queues = world.queues.list.iter_mut();
            let queue = queues.find(|queue| queue.role == Role::Orchestrator);
            let entry = queue.and_then(|queue| queue.entries.remove(&entry));
            let message = entry.expect("a message").message;
            let body = String::from_utf8_lossy(&message.payload).into_owned();
            let request: AgentRequest = serde_json::from_str(&body).expect("a request");
            let session = request.session_id;
            // As a door writes them.
            let mut properties = message.properties.clone();
            for name in [property::SESSION, property::ROOT] {
                properties.insert(name.to_owned(), session.to_string());
            }
            properties.insert(property::STEP.to_owned(), "0".to_owned());
            let accepted = AcceptedRecord {
                session: session.clone(),
                user: request.user,
                id: properties.get(property::ID).cloned().unwrap_or_default(),
                accepted_at: world.now,
                publication: Publication {
                    topic: message.topic.to_string(),
                    properties: properties.clone(),
                    deliver_at: None,
                    body,
                },
                ..AcceptedRecord::default()
            };
            let body = serde_json::to_vec(&accepted).expect("plain data");
            world.create(&keys::accepted(&session), body);
            properties.insert(property::ORIGIN.to_owned(), message.topic.to_string());
            let reason = Code::NotAuthorized.refusal("nothing shows who sent it");
            properties.insert(property::REASON.to_owned(), reason);
            let (now, payload) = (world.now, Arc::clone(&message.payload));
            (world.queues).publish(&DEAD_LETTER, payload, &properties, now, now);
        });
    }

    /// Remembers a message, to bring it back later.
    pub fn keep(&mut self, role: Role, about: &str) {
        let entry = self.find(role, about, false);
        let message = self
            .sim
            .with(|world| Arc::clone(&world.queues.of(role).entries[&entry].message));
        self.kept.push((message, false));
    }

    /// Remembers a message, to bring it back as a dead letter.
    pub fn keep_dead(&mut self, role: Role, about: &str) {
        self.keep(role, about);
        if let Some(last) = self.kept.last_mut() {
            last.1 = true;
        }
    }

    /// Publishes what was kept.
    pub fn bring_back(&mut self) {
        for (message, dead) in std::mem::take(&mut self.kept) {
            self.sim.with(|world| {
                let (mut topic, mut properties) =
                    (message.topic.clone(), message.properties.clone());
                if dead {
                    properties.insert(property::ORIGIN.to_owned(), topic.to_string());
                    topic = DEAD_LETTER;
                }
                let now = world.now;
                let payload = Arc::clone(&message.payload);
                world.queues.publish(&topic, payload, &properties, now, now);
            });
        }
    }

    /// Erases the tree of a root, as retention does: everything goes, a tombstone stays.
    pub fn erase(&mut self, root: &str) {
        let session = self.session(root);
        self.sim.with(|world| {
            world.documents.clear();
            world.graph.clear().expect("a store in memory");
            world.facts = Facts::default();
            world.create(&keys::tombstone(&session), Vec::new());
        });
    }

    pub fn keys_below(&self, prefix: &str) -> Vec<String> {
        self.sim.with(|world| {
            world
                .documents
                .keys()
                .filter(|key| key.starts_with(prefix))
                .cloned()
                .collect()
        })
    }

    pub fn responses(&self) -> usize {
        self.sim.with(|world| world.responses.len())
    }

    /// Ids under which a dialog was ended.
    pub fn ends(&self, root: &str) -> usize {
        let session = self.session(root);
        self.sim
            .with(|world| world.facts.ends.get(&session).map_or(0, BTreeSet::len))
    }

    pub fn end_responses(&self, root: &str) -> usize {
        let session = self.session(root);
        self.sim.with(|world| {
            let of_root = world
                .responses
                .iter()
                .filter(|(root, _)| root == session.as_str());
            of_root
                .filter(|(_, response)| response.end_of_dialog)
                .count()
        })
    }

    /// How many sessions a request became.
    pub fn sessions(&self, root: &str) -> usize {
        self.sim
            .with(|world| world.facts.sessions.get(root).map_or(0, BTreeSet::len))
    }

    /// Runs the shipped consume loop of one orchestrator until a message is being worked, asks it to
    /// stop, and lets it finish. Returns how often the message was delivered meanwhile.
    pub async fn drain_shipped_loop(&self) -> u32 {
        let seam = Seam::new(&self.sim.shared);
        let stop = CancellationToken::new();
        let drain = Drain {
            stop: stop.clone(),
            grace: Duration::from_secs(60),
            watchdog: None,
        };
        let serving = serve(
            Arc::new(seam),
            self.sim.options().subscription(),
            self.sim.orchestrator(),
            2,
            drain,
        );
        let shared = self.sim.shared.clone();
        // Instead of the scheduler: every waiting call goes on at every turn.
        let turning = async {
            let mut given_away = 0;
            loop {
                tokio::task::yield_now().await;
                let free = shared.with(|world| {
                    world.tick += 1;
                    if world.facts.counts.contains_key("model calls") {
                        stop.cancel();
                    }
                    let queue = world.queues.of(Role::Orchestrator);
                    queue
                        .entries
                        .values()
                        .filter(|e| e.count > 0 && e.holders.is_empty())
                        .count()
                });
                given_away = given_away.max(free as u32);
                if given_away > 1_000 {
                    return given_away;
                }
                shared.with(|world| {
                    *world.facts.counts.entry("given away").or_default() = u64::from(given_away);
                });
            }
        };
        tokio::select! {
            served = serving => served.expect("it ends in order"),
            _ = turning => {}
        }
        1 + self.count("given away") as u32
    }
}
