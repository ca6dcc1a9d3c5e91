//! A discrete-event simulation of a fleet. It knows times and numbers, no messages and no servers.
//!
//! A step arrives at one of the partitions, which serve their messages one after the other; waits
//! for a free slot of the orchestrators; and holds it for its rounds with the documents, the model,
//! its publishes, and its share of the processors. A run is so many steps, one after the other; runs come as a
//! Poisson stream. What comes out is measured after a warm-up.

use agentfleet_tests::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How long something takes, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    Fixed(f64),
    Exponential {
        mean: f64,
    },
    /// As latencies are: many are short, a few very long.
    LogNormal {
        median: f64,
        p95: f64,
    },
}

impl Time {
    pub(crate) fn mean(self) -> f64 {
        match self {
            Self::Fixed(time) | Self::Exponential { mean: time } => time,
            Self::LogNormal { median, p95 } => median * (sigma(median, p95).powi(2) / 2.0).exp(),
        }
    }

    fn draw(self, random: &mut Rng) -> f64 {
        match self {
            Self::Fixed(time) => time,
            Self::Exponential { mean } => -mean * unit(random).ln(),
            Self::LogNormal { median, p95 } => {
                // Box and Muller.
                let radius = (-2.0 * unit(random).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * unit(random)).cos();
                median * (sigma(median, p95) * normal).exp()
            }
        }
    }
}

/// 1.6449 is the normal distribution's 95th percentile.
fn sigma(median: f64, p95: f64) -> f64 {
    (p95 / median).ln() / 1.644_853_6
}

/// Above 0, up to 1.
fn unit(random: &mut Rng) -> f64 {
    ((random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) partitions: usize,
    /// How long a partition is busy with one step's messages.
    pub(crate) partition: Time,
    pub(crate) orchestrators: usize,
    /// Steps that one works at the same time.
    pub(crate) concurrency: usize,
    /// Processors of one orchestrator.
    pub(crate) processors: usize,
    /// Processor time of a step, taken half before the model and half after it.
    pub(crate) processor: Time,
    /// Rounds with the documents, one after the other, and how long one takes.
    pub(crate) rounds: usize,
    pub(crate) round: Time,
    /// Confirmed publishes at the end of a step, one after the other.
    pub(crate) publishes: usize,
    pub(crate) publish: Time,
    pub(crate) model: Time,
}

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) runs_a_second: f64,
    pub(crate) steps_a_run: usize,
    /// Simulated seconds that are measured, after half as many that are not.
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) steps_a_second: f64,
    /// Waiting for a slot, in seconds.
    pub(crate) wait_mean: f64,
    pub(crate) wait_p95: f64,
    /// Share of the steps that waited for a slot at all.
    pub(crate) waited: f64,
    /// Waiting for a partition, in seconds.
    pub(crate) partition_wait: f64,
    /// From request to answer, in seconds.
    pub(crate) run_p95: f64,
    /// Share of the slots that were held.
    pub(crate) held: f64,
    /// Share of the processors' time that was used.
    pub(crate) processors: f64,
}

/// Something that happens to a step, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A run asks its first question.
    Asked,
    /// A partition has handed a step's message over.
    Handed { partition: usize },
    /// The first rounds and the first half of the work are next.
    Read { step: Step },
    /// A processor is done with one half of a step's work.
    Computed { step: Step, half: Half },
    /// The model has answered.
    Answered { step: Step },
    /// The last round is over.
    Written { step: Step },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Half {
    First,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    run_began: f64,
    left: usize,
    came: f64,
    orchestrator: usize,
}

/// Events by time; those of one time in the order they were planned.
struct Planned {
    at: f64,
    number: u64,
    event: Event,
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let times = self.at.total_cmp(&other.at);
        times.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Planned {}

/// Runs a load on a fleet.
pub(crate) fn simulate(fleet: &Fleet, load: &Load) -> Outcome {
    let mut simulation = Simulation::new(*fleet, *load);
    simulation.plan(0.0, Event::Asked);
    let end = load.seconds * 1.5;
    while let Some(Reverse(Planned { at, event, .. })) = simulation.planned.pop() {
        if at > end {
            break;
        }
        simulation.now = at;
        simulation.happen(event);
    }
    simulation.outcome()
}

/// A queue before servers that are all alike.
struct Station {
    free: usize,
    waiting: VecDeque<(Step, Half)>,
}

struct Simulation {
    fleet: Fleet,
    load: Load,
    random: Rng,
    planned: BinaryHeap<Reverse<Planned>>,
    number: u64,
    now: f64,
    /// Of each partition: what it is handing over first.
    partitions: Vec<VecDeque<Step>>,
    /// Free slots of each orchestrator, and who waits for any.
    slots: Vec<usize>,
    waiting: VecDeque<Step>,
    processors: Vec<Station>,
    waits: Vec<f64>,
    partition_waits: Vec<f64>,
    runs: Vec<f64>,
    done: u64,
    held_time: f64,
    processor_time: f64,
}

impl Simulation {
    fn new(fleet: Fleet, load: Load) -> Self {
        let station = || Station {
            free: fleet.processors,
            waiting: VecDeque::new(),
        };
        Self {
            random: Rng::new(load.seed),
            planned: BinaryHeap::new(),
            number: 0,
            now: 0.0,
            partitions: vec![VecDeque::new(); fleet.partitions],
            slots: vec![fleet.concurrency; fleet.orchestrators],
            waiting: VecDeque::new(),
            processors: (0..fleet.orchestrators).map(|_| station()).collect(),
            waits: Vec::new(),
            partition_waits: Vec::new(),
            runs: Vec::new(),
            done: 0,
            held_time: 0.0,
            processor_time: 0.0,
            fleet,
            load,
        }
    }

    fn plan(&mut self, after: f64, event: Event) {
        self.number += 1;
        self.planned.push(Reverse(Planned {
            at: self.now + after,
            number: self.number,
            event,
        }));
    }

    fn measured(&self) -> bool {
        self.now >= self.load.seconds / 2.0
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Asked => {
                let mean = 1.0 / self.load.runs_a_second;
                let next = Time::Exponential { mean }.draw(&mut self.random);
                self.plan(next, Event::Asked);
                self.publish(self.now, self.load.steps_a_run);
            }
            Event::Handed { partition } => self.handed(partition),
            Event::Read { step } => self.compute(step, Half::First),
            Event::Computed { step, half } => {
                self.next_in_line(step.orchestrator);
                match half {
                    Half::First => {
                        let model = self.fleet.model.draw(&mut self.random);
                        self.plan(model, Event::Answered { step });
                    }
                    Half::Second => {
                        let rounds = self.rounds(self.fleet.rounds.div_ceil(2));
                        let publish = self.fleet.publish;
                        let publishes: f64 = (0..self.fleet.publishes)
                            .map(|_| publish.draw(&mut self.random))
                            .sum();
                        self.plan(rounds + publishes, Event::Written { step });
                    }
                }
            }
            Event::Answered { step } => self.compute(step, Half::Second),
            Event::Written { step } => self.written(step),
        }
    }

    /// A step's message goes to a partition.
    fn publish(&mut self, run_began: f64, left: usize) {
        let partition = self.random.below(self.fleet.partitions);
        self.partitions[partition].push_back(Step {
            run_began,
            left,
            came: self.now,
            orchestrator: 0,
        });
        if self.partitions[partition].len() == 1 {
            self.hand(partition);
        }
    }

    /// A partition begins with the first of its messages.
    fn hand(&mut self, partition: usize) {
        if let Some(step) = self.partitions[partition].front() {
            let waited = self.now - step.came;
            if self.measured() {
                self.partition_waits.push(waited);
            }
            let busy = self.fleet.partition.draw(&mut self.random);
            self.plan(busy, Event::Handed { partition });
        }
    }

    fn handed(&mut self, partition: usize) {
        if let Some(mut step) = self.partitions[partition].pop_front() {
            step.came = self.now;
            self.waiting.push_back(step);
        }
        self.hand(partition);
        self.take();
    }

    /// Whoever waits longest gets a slot of the orchestrator with the most free ones, as its
    /// consumer asks for the most messages.
    fn take(&mut self) {
        let most = (0..self.slots.len()).max_by_key(|at| (self.slots[*at], Reverse(*at)));
        let Some(orchestrator) = most.filter(|at| self.slots[*at] > 0) else {
            return;
        };
        let Some(mut step) = self.waiting.pop_front() else {
            return;
        };
        self.slots[orchestrator] -= 1;
        if self.measured() {
            self.waits.push(self.now - step.came);
        }
        step.orchestrator = orchestrator;
        step.came = self.now;
        let rounds = self.rounds(self.fleet.rounds / 2);
        self.plan(rounds, Event::Read { step });
    }

    fn rounds(&mut self, many: usize) -> f64 {
        let round = self.fleet.round;
        (0..many).map(|_| round.draw(&mut self.random)).sum()
    }

    fn compute(&mut self, step: Step, half: Half) {
        let station = &mut self.processors[step.orchestrator];
        station.waiting.push_back((step, half));
        if station.free > 0 {
            station.free -= 1;
            self.begin(step.orchestrator);
        }
    }

    /// A processor that is free goes on with who waits for it.
    fn next_in_line(&mut self, orchestrator: usize) {
        if self.processors[orchestrator].waiting.is_empty() {
            self.processors[orchestrator].free += 1;
        } else {
            self.begin(orchestrator);
        }
    }

    fn begin(&mut self, orchestrator: usize) {
        if let Some((step, half)) = self.processors[orchestrator].waiting.pop_front() {
            let time = self.fleet.processor.draw(&mut self.random) / 2.0;
            if self.measured() {
                self.processor_time += time;
            }
            self.plan(time, Event::Computed { step, half });
        }
    }

    fn written(&mut self, step: Step) {
        self.slots[step.orchestrator] += 1;
        if self.measured() {
            self.done += 1;
            // Of steps that began earlier, only what they held since is counted.
            self.held_time += self.now - step.came.max(self.load.seconds / 2.0);
        }
        if step.left > 1 {
            self.publish(step.run_began, step.left - 1);
        } else if self.measured() {
            self.runs.push(self.now - step.run_began);
        }
        self.take();
    }

    fn outcome(mut self) -> Outcome {
        let seconds = self.load.seconds;
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let waited = self.waits.iter().filter(|wait| **wait > 0.0).count();
        let slots = (self.fleet.orchestrators * self.fleet.concurrency) as f64;
        let processors = (self.fleet.orchestrators * self.fleet.processors) as f64;
        Outcome {
            steps_a_second: self.done as f64 / seconds,
            wait_mean: mean(&self.waits),
            waited: waited as f64 / self.waits.len().max(1) as f64,
            wait_p95: p95(&mut self.waits),
            partition_wait: mean(&self.partition_waits),
            run_p95: p95(&mut self.runs),
            held: self.held_time / seconds / slots,
            processors: self.processor_time / seconds / processors,
        }
    }
}

fn p95(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    let rank = (times.len() as f64 * 0.95).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}
