//! For tests that force one schedule: pick a message, stop a task at a point, crash, go on.
//!
//! Messages are named by what they are about: `r0 1` is step 1 of the work `r0`, `r0.2 0 completion`
//! the completion of its third subagent, `r0 1 join` the end of the wait for a fan-out at step 1.

use crate::effect::{Fault, Verb, When};
use crate::faults::Faults;
use crate::queues::{Role, TaskId};
use crate::scenario::Scenario;
use crate::sim::{Engine, Sim, Stepped};
use agentfleet_schema::records::{FanInRecord, StepRecord};
use agentfleet_schema::topics::property;
use agentfleet_schema::{SessionId, uris};
use std::sync::Arc;
use std::time::Duration;

/// A fleet under a test's own schedule: two processes of each role, and no fault that the test does
/// not ask for.
pub struct Stage {
    pub sim: Sim,
    workers: Vec<(Role, [u32; 2])>,
    producer: u32,
    gateway: u32,
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
        Self { sim, workers, producer, gateway }
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
        self.workers.iter().find(|(r, _)| *r == role).expect("a consumer").1[which]
    }

    /// What lies in a role's queue, by name; with who holds it.
    pub fn queued(&self, role: Role) -> Vec<(u64, String, bool)> {
        self.sim.with(|world| {
            let queue = world.queues.of(role);
            queue
                .entries
                .iter()
                .map(|(id, entry)| {
                    let property =
                        |name: &str| entry.message.properties.get(name).map_or("", String::as_str);
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
        let found = queued.iter().find(|(_, name, is)| *is == held && name.starts_with(&about));
        match found {
            Some((id, _, _)) => *id,
            None => panic!("no message `{about}` for {role}, held {held}: {queued:?}\n{}", self.story()),
        }
    }

    pub fn has(&self, role: Role, about: &str) -> bool {
        let about = format!("{about} ");
        self.queued(role).iter().any(|(_, name, _)| name.starts_with(&about))
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
        let entries: Vec<u64> = about.iter().map(|about| self.find(role, about, false)).collect();
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

    /// The next such call fails like this.
    pub fn fail_next(&mut self, verb: Verb, what: &str, fault: Fault) {
        self.sim.with(|world| world.faults.forced.push((verb, what.to_owned(), fault)));
    }

    /// Works everything that is due for these roles, in order, without letting time pass.
    pub fn run(&mut self, roles: &[Role]) {
        for _ in 0..10_000 {
            let next = self.sim.with(|world| {
                let now = world.now;
                let queues = world.queues.list.iter().filter(|queue| roles.contains(&queue.role));
                queues.filter_map(|queue| queue.ready(now).next().map(|id| (queue.role, id))).next()
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
                self.sim.with(|world| world.check_calm());
            }
            if self.pass_to_next() {
                continue;
            }
            match self.sim.tasks.values().next().map(|task| task.process) {
                Some(hung) => self.sim.crash(hung, 0),
                None => break,
            }
        }
        self.sim.with(|world| world.check_end());
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

    pub fn record(&self, name: &str, step: u32) -> Option<Arc<StepRecord>> {
        let session = self.session(name);
        self.sim.with(|world| world.facts.records.get(&(session, step)).cloned())
    }

    pub fn verdict(&self, name: &str, step: u32) -> Option<FanInRecord> {
        let session = self.session(name);
        self.sim.with(|world| world.facts.verdicts.get(&(session, step)).cloned())
    }

    pub fn document(&self, key: &str) -> Option<String> {
        self.sim.with(|world| {
            world.documents.get(key).map(|body| String::from_utf8_lossy(body).into_owned())
        })
    }

    /// The text a session ended with.
    pub fn answer(&self, name: &str) -> Option<String> {
        let session = self.session(name);
        self.document(&agentfleet_schema::keys::document(&uris::answer_document(&session)))
    }

    pub fn count(&self, what: &str) -> u64 {
        self.sim.with(|world| world.facts.counts.get(what).copied().unwrap_or_default())
    }

    /// Messages published so far, chunks and repeats included.
    pub fn published(&self) -> u64 {
        self.count("published")
    }

    /// Starts of calls with side effects.
    pub fn starts(&self) -> u64 {
        self.count("side effects")
    }
}
