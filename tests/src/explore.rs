//! One run out of a seed: draws fleet, work and faults, schedules until faults stop, lets the run
//! come to rest without the help of any deadline, then lets time pass to the end.

use crate::faults::Faults;
use crate::generate;
use crate::queues::{Role, TaskId};
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::sim::{Engine, Sim};
use crate::world::World;
use agentfleet_core::approval::Verdict;
use agentfleet_schema::records::ApprovalAnswer;
use agentfleet_schema::{Millis, SessionId};
use oxigraph::model::Quad;
use std::collections::BTreeMap;
use std::time::Duration;

/// A run that takes longer than this many steps never ends. One whose model is away until its time is up, and whose
/// message was delivered twice now and then, takes some 45,000.
const MOST_STEPS: u64 = 60_000;
/// Sets what people do apart from everything else that a seed decides.
const PEOPLE: u64 = 0x0bad_cafe_0dd5_ba11;

/// How a run went.
#[derive(Debug, Default)]
pub struct Report {
    pub seed: u64,
    pub violation: Option<String>,
    pub steps: u64,
    /// Equal for equal runs.
    pub hash: u64,
    pub counts: BTreeMap<String, u64>,
    /// The provenance it left.
    pub quads: Vec<Quad>,
    /// Scenario, fleet and log; only if asked for.
    pub story: String,
}

/// Runs a seed. With `telling`, keeps the story.
pub fn run(seed: u64, telling: bool) -> Report {
    let mut rng = Rng::new(seed);
    let scenario =
        generate::with_people(generate::scenario(&mut rng), &mut Rng::new(seed ^ PEOPLE));
    let mut scenario = scenario;
    generate::lengthen(seed, &mut scenario);
    generate::hand_on(seed, &mut scenario);
    // Not drawn: each seed draws what it always drew.
    scenario.coordination = seed.count_ones().is_multiple_of(2);
    let engine = *rng.pick(&[
        Engine::DISTRIBUTED,
        Engine::DISTRIBUTED,
        Engine::MIXED,
        Engine::EMBEDDED,
    ]);
    let faults = Faults::draw(&mut rng);
    let mut explorer = Explorer::new(seed, scenario, engine, faults, &mut rng);
    explorer.sim.with(|world| world.journal.keeping = telling);
    let about = if telling {
        explorer.about(engine)
    } else {
        String::new()
    };
    explorer.play();
    explorer.report(seed, about)
}

pub struct Explorer {
    pub sim: Sim,
    rng: Rng,
    /// Steps after which faults stop.
    faults_until: u64,
    steps: u64,
    cancels: Vec<(u64, usize)>,
    gateway: u32,
    /// Decides what people do: seeds without calls for them go as before.
    people: Rng,
    speeds: BTreeMap<Role, u32>,
    fifo: bool,
}

impl Explorer {
    pub fn new(
        seed: u64,
        scenario: Scenario,
        engine: Engine,
        faults: Faults,
        rng: &mut Rng,
    ) -> Self {
        let roots = scenario.roots.len();
        let cancels = scenario
            .roots
            .iter()
            .enumerate()
            .filter_map(|(at, root)| root.cancel_after.map(|after| (after, at)))
            .collect();
        let mut sim = Sim::new(seed, scenario, engine, faults);
        for role in Role::CONSUMERS {
            for _ in 0..rng.between(1, if role == Role::Orchestrator { 3 } else { 2 }) {
                let slots = rng.between(1, 3) as usize;
                let process = sim.start(role, slots);
                // Clocks differ by as much as the protocol takes into account.
                let skew = *rng.pick(&[0, 0, 0, -2_000, 900, 2_000]);
                sim.with(|world| world.skews.insert(process, skew));
            }
        }
        let producer = sim.start(Role::Producer, 0);
        let gateway = sim.start(Role::Gateway, 0);
        for root in 0..roots {
            sim.ask(producer, root);
        }
        let speeds = Role::CONSUMERS
            .into_iter()
            // One in six roles is very slow; a graph-writer mostly is.
            .map(|role| {
                let slow = if role == Role::Writer { 600 } else { 160 };
                (role, if rng.per_mille(slow) { 2 } else { 100 })
            })
            .collect();
        Self {
            sim,
            rng: Rng::new(rng.next()),
            faults_until: rng.between(50, 1_500) as u64,
            steps: 0,
            cancels,
            gateway,
            people: Rng::new(seed ^ PEOPLE),
            speeds,
            fifo: rng.per_mille(200),
        }
    }

    fn about(&self, engine: Engine) -> String {
        self.sim
            .with(|world| format!("{engine:?}\n{:?}\n{:#?}\n", world.faults, world.scenario))
    }

    fn report(self, seed: u64, about: String) -> Report {
        let steps = self.steps;
        self.sim.with(|world| {
            let mut counts: BTreeMap<String, u64> = world
                .facts
                .counts
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect();
            for (fault, times) in &world.facts.faults {
                counts.insert(format!("fault: {fault:?}"), *times);
            }
            Report {
                seed,
                violation: world.violation.clone(),
                quads: world.graph.iter().flatten().collect(),
                steps,
                hash: world.journal.hash,
                counts,
                story: if world.journal.keeping {
                    format!("{about}{}", world.journal.tail(400))
                } else {
                    String::new()
                },
            }
        })
    }

    /// Plays the run to its end, or to the first violation.
    pub fn play(&mut self) {
        while self.steps < self.faults_until && self.going() {
            self.storm();
        }
        self.sim.with(|world| {
            world.faults.on = false;
            world.journal.note(world.now, || "faults stop".to_owned());
        });
        for task in self.sim.tasks.values_mut() {
            task.weight = 100;
        }
        self.speeds.values_mut().for_each(|speed| *speed = 100);
        self.cancels.clear();
        let mut calm_checked = false;
        while self.going() {
            if self.ordinary() {
                continue;
            }
            if !calm_checked && self.sim.with(|world| world.is_calm()) {
                calm_checked = true;
                self.sim.with(World::check_calm);
                continue;
            }
            if self.pass_to_next() {
                continue;
            }
            // Only hung workers are left: their time is up.
            let hung: Vec<u32> = self.sim.tasks.values().map(|task| task.process).collect();
            match hung.first() {
                Some(process) => self.sim.crash(*process, 0),
                None => break,
            }
        }
        if self.sim.violation().is_none() {
            if self.steps >= MOST_STEPS {
                self.sim
                    .with(|world| world.violate("LV-1: the run never comes to rest"));
            } else {
                self.sim.end(self.gateway);
            }
        }
    }

    fn going(&self) -> bool {
        self.steps < MOST_STEPS && self.sim.violation().is_none()
    }

    /// One step in which anything may happen.
    fn storm(&mut self) {
        self.steps += 1;
        self.cancel_when_due();
        self.answer_now_and_then();
        let faults = self.sim.with(|world| world.faults.clone());
        let roll = self.rng.below(1000) as u32;
        let mut edge = faults.crash;
        if roll < edge {
            return self.kill_one();
        }
        edge += faults.again;
        if roll < edge {
            return self.deliver_again();
        }
        edge += faults.early;
        if roll < edge {
            return self.deliver_early();
        }
        edge += faults.drain;
        if roll < edge {
            let process = *self
                .rng
                .pick(&self.sim.processes.keys().copied().collect::<Vec<_>>());
            return self.sim.drain(process);
        }
        edge += faults.time;
        if roll < edge {
            return self.let_time_pass();
        }
        if (985..999).contains(&roll) {
            return self.keep_one();
        }
        if roll == 999 {
            self.sim.with(|world| world.config = 1);
        }
        if !self.ordinary() {
            self.pass_to_next();
        }
    }

    fn cancel_when_due(&mut self) {
        let due = self
            .cancels
            .iter()
            .position(|(after, _)| *after <= self.steps);
        let Some(at) = due else { return };
        let (_, root) = self.cancels[at];
        let session = self.sim.with(|world| {
            let name = &world.scenario.roots[root].work;
            world
                .facts
                .sessions
                .get(name)
                .and_then(|s| s.first().cloned())
        });
        // Whoever cancels has the id from the answer to the request, or from the first response.
        let session = session.or_else(|| {
            (self.sim.with(|w| w.scenario.roots[root].identity)
                == crate::scenario::Identity::Session)
                .then(|| SessionId::new(format!("session-{root}")))
        });
        if let Some(mut session) = session {
            self.cancels.remove(at);
            if self.rng.per_mille(300) {
                // Of the whole tree only one subagent.
                let below: Vec<SessionId> = self.sim.with(|world| {
                    let sessions = world.facts.sessions.values().flatten();
                    sessions.cloned().collect()
                });
                if !below.is_empty() {
                    session = self.rng.pick(&below).clone();
                }
            }
            self.sim.cancel(self.gateway, session);
        }
    }

    /// The lease of one message at work is kept.
    fn keep_one(&mut self) {
        let at_work: Vec<TaskId> = self.sim.tasks.keys().copied().collect();
        if at_work.is_empty() {
            return;
        }
        let task = *self.rng.pick(&at_work);
        let role = self.sim.processes[&self.sim.tasks[&task].process].role;
        if role == Role::Orchestrator && self.sim.keep(task).is_some() {
            self.sim.with(|world| world.facts.count("leases kept"));
        }
    }

    /// A person answers something, or nobody ever does.
    fn answer_now_and_then(&mut self) {
        if !self.sim.with(|world| world.waiting().next().is_some()) || !self.people.per_mille(30) {
            return;
        }
        let answer = *self.people.pick(&ApprovalAnswer::ALL);
        let verdict = Verdict {
            answer,
            by: (*self.people.pick(&["ada", "ben"])).to_owned(),
            reason: "seen".to_owned(),
            arguments: (answer == ApprovalAnswer::Edit)
                .then(|| BTreeMap::from([("item".to_owned(), "another".to_owned())])),
        };
        let which = self.people.below(8);
        self.sim.answer_some(self.gateway, which, verdict);
    }

    fn kill_one(&mut self) {
        let busy: Vec<u32> = self.sim.tasks.values().map(|task| task.process).collect();
        if busy.is_empty() {
            return;
        }
        let process = *self.rng.pick(&busy);
        if self.sim.processes[&process].role == Role::Producer {
            // A producer that dies has asked for nothing.
            return;
        }
        let after = *self.rng.pick(&[0, 0, 30_000]);
        self.sim.crash(process, after);
    }

    /// The same message to a second worker while the first still has it.
    fn deliver_again(&mut self) {
        let held: Vec<(Role, u64)> = self.sim.with(|world| {
            let queues = world.queues.list.iter();
            queues
                .flat_map(|queue| queue.held().map(|id| (queue.role, id)))
                .collect()
        });
        if held.is_empty() {
            return;
        }
        let (role, entry) = *self.rng.pick(&held);
        self.sim.with(|world| world.facts.count("delivered again"));
        self.give(role, vec![entry]);
    }

    fn deliver_early(&mut self) {
        let delayed: Vec<(Role, u64)> = self.sim.with(|world| {
            let now = world.now;
            let queues = world.queues.list.iter();
            queues
                .flat_map(|queue| queue.delayed(now).map(|(id, _)| (queue.role, id)))
                .collect()
        });
        if delayed.is_empty() {
            return;
        }
        let (role, entry) = *self.rng.pick(&delayed);
        self.sim.with(|world| world.facts.count("delivered early"));
        self.give(role, vec![entry]);
    }

    fn let_time_pass(&mut self) {
        if self.rng.per_mille(250) {
            self.pass_to_next();
        } else {
            let time = *self.rng.pick(&[1, 40, 60, 900, 5_000]);
            self.sim.pass(Duration::from_millis(time));
        }
    }

    /// Gives messages to some process of a role that has room, or to any if none has.
    fn give(&mut self, role: Role, entries: Vec<u64>) {
        let of_role: Vec<u32> = self
            .sim
            .processes
            .iter()
            .filter(|(_, process)| process.role == role && !process.draining)
            .map(|(id, _)| *id)
            .collect();
        let free: Vec<u32> = of_role
            .iter()
            .copied()
            .filter(|id| self.sim.busy(*id) < self.sim.processes[id].slots)
            .collect();
        let Some(process) = (!free.is_empty()).then(|| *self.rng.pick(&free)) else {
            return;
        };
        if let Some(task) = self.sim.deliver(process, &entries)
            && self.rng.per_mille(150)
            && self.sim.with(|world| world.faults.on)
            && let Some(task) = self.sim.tasks.get_mut(&task)
        {
            // Now and then a worker is very slow, and is overtaken.
            task.weight = 1;
        }
    }

    /// Lets a task go on, or delivers what is ready. False if there is nothing to do.
    fn ordinary(&mut self) -> bool {
        self.steps += 1;
        let mut choices: Vec<(u32, Choice)> = Vec::new();
        for (id, task) in &self.sim.tasks {
            let role = self.sim.processes[&task.process].role;
            let speed = self.speeds.get(&role).copied().unwrap_or(100);
            if !self.sim.is_stuck(*id) {
                choices.push((task.weight * speed, Choice::Step(*id)));
            }
        }
        let ready: Vec<(Role, Vec<u64>)> = self.sim.with(|world| {
            let now = world.now;
            let queues = world.queues.list.iter();
            queues
                .map(|queue| (queue.role, queue.ready(now).collect()))
                .collect()
        });
        for (role, entries) in &ready {
            let room = self.sim.processes.iter().any(|(id, process)| {
                process.role == *role && !process.draining && self.sim.busy(*id) < process.slots
            });
            if room && !entries.is_empty() {
                let speed = self.speeds.get(role).copied().unwrap_or(100);
                choices.push((speed * 60, Choice::Deliver(*role)));
            }
        }
        let weights = choices.iter().map(|(weight, _)| *weight);
        let Some(at) = self.rng.weighted(weights) else {
            return false;
        };
        match choices[at].1 {
            Choice::Step(id) => {
                self.sim.step(id);
            }
            Choice::Deliver(role) => {
                let (_, mut entries) = ready
                    .into_iter()
                    .find(|(r, _)| *r == role)
                    .unwrap_or((role, Vec::new()));
                let batch = match role {
                    Role::FanIn | Role::Writer => self.rng.between(1, 6) as usize,
                    _ => 1,
                };
                let mut chosen = Vec::new();
                while chosen.len() < batch && !entries.is_empty() {
                    let at = if self.fifo {
                        0
                    } else {
                        self.rng.below(entries.len())
                    };
                    chosen.push(entries.remove(at));
                }
                self.give(role, chosen);
            }
        }
        true
    }

    /// Moves the clock to whatever comes due next.
    fn pass_to_next(&mut self) -> bool {
        let next: Option<Millis> = self
            .sim
            .with(|world| world.queues.next_due(world.now, |_| true));
        match next {
            Some(at) => {
                self.sim.with(|world| world.now = world.now.max(at));
                true
            }
            None => false,
        }
    }
}

#[derive(Clone, Copy)]
enum Choice {
    Step(TaskId),
    Deliver(Role),
}
