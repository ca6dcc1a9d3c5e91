//! A simulated fleet: processes of shipped workers, polled one step at a time.
//!
//! A process holds one shipped handler and up to a few deliveries. It can be crashed between any two
//! effects: its futures are dropped, and what it held is delivered again.

use crate::effect::{Point, Verb, When};
use crate::faults::Faults;
use crate::queues::{BrokerKind, Queues, Role, TaskId};
use crate::scenario::{Identity, Scenario, named_in, question};
use crate::seams::{Coordination, Seam, snapshots};
use crate::world::{Shared, Tracked, World};
use agentfleet_aggregator::{
    Answered, Approvals, Deadlines, Endings, FanIn, Found, Sweep, Undertaker, became,
};
use agentfleet_broker::{Broker, Delivery, Durability, Outgoing};
use agentfleet_core::FleetLimits;
use agentfleet_core::approval::Verdict;
use agentfleet_graph::Graph;
use agentfleet_graph_writer::GraphWriter;
use agentfleet_orchestrator::{Options, Orchestrator};
use agentfleet_runtime::{
    AtomicCommitter, BatchHandler, Committer, Disposition, Handler, SequentialCommitter, client,
};
use agentfleet_schema::records::PauseRecord;
use agentfleet_schema::topics::{AGENT_REQUEST, property};
use agentfleet_schema::{AgentRequest, Millis, SessionId};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What the fleet stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    pub broker: BrokerKind,
    /// One transaction for each commit; else the shipped sequence.
    pub atomic: bool,
}

impl Engine {
    /// As the embedded engine: counted, strict, transactional.
    pub const EMBEDDED: Self = Self {
        broker: BrokerKind {
            counts: true,
            strict: true,
        },
        atomic: true,
    };
    /// As a distributed one: no count, acknowledged by message id, in sequence.
    pub const DISTRIBUTED: Self = Self {
        broker: BrokerKind {
            counts: false,
            strict: false,
        },
        atomic: false,
    };
    /// Between the two.
    pub const MIXED: Self = Self {
        broker: BrokerKind {
            counts: true,
            strict: true,
        },
        atomic: false,
    };
}

#[derive(Clone)]
enum Worker {
    One(Arc<dyn Handler>),
    Many(Arc<dyn BatchHandler>),
    /// Consumes nothing.
    Idle,
}

pub struct Process {
    pub role: Role,
    pub incarnation: u32,
    /// Deliveries, or batches, it works at once.
    pub slots: usize,
    /// Finishes what it has and takes nothing new.
    pub draining: bool,
    worker: Worker,
}

pub struct Task {
    pub process: u32,
    /// How eagerly it is scheduled.
    pub weight: u32,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How a task stands after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    Going,
    Done,
    /// Its process died.
    Dead,
}

pub struct Sim {
    pub shared: Shared,
    pub processes: BTreeMap<u32, Process>,
    pub tasks: BTreeMap<TaskId, Task>,
    seam: Seam,
    orchestrator: agentfleet_orchestrator::Parts,
    aggregator: agentfleet_aggregator::Parts,
    options: Options,
    next_process: u32,
    next_task: TaskId,
}

impl Sim {
    pub fn new(seed: u64, scenario: Scenario, engine: Engine, faults: Faults) -> Self {
        let configs = snapshots(scenario.policy, scenario.parallel, scenario.approval_ms);
        let options = Options {
            limits: FleetLimits {
                max_iterations: scenario.max_iterations,
                max_depth: scenario.max_depth,
                max_rounds: scenario.max_rounds,
                subagent_timeout_ms: scenario.subagent_timeout_ms,
                run_timeout_ms: scenario.run_timeout_ms,
                context_window: scenario.context_window,
                ..FleetLimits::default()
            },
            max_attempts: scenario.max_attempts,
            ..Options::new(Arc::clone(&configs[0]))
        };
        let queues = Queues::new(engine.broker, options.subscription());
        let shared = Shared::new(World::new(seed, scenario, faults, queues, configs));
        shared.with(|world| world.sees_deaths = engine.atomic);
        let seam = Seam::new(&shared);
        let any = Arc::new(seam.clone());
        let committer: Arc<dyn Committer> = if engine.atomic {
            Arc::new(AtomicCommitter::over(seam.clone()))
        } else {
            Arc::new(SequentialCommitter::new(any.clone(), any.clone()))
        };
        let orchestrator = agentfleet_orchestrator::Parts {
            broker: any.clone(),
            documents: any.clone(),
            committer: Arc::clone(&committer),
            config: any.clone(),
            model: any.clone(),
            tools: any.clone(),
            host: any.clone(),
        };
        let is_apart = shared.with(|world| world.scenario.coordination);
        let coordination = is_apart.then(|| Arc::new(Coordination(seam.clone())) as Arc<dyn Graph>);
        let aggregator = agentfleet_aggregator::Parts {
            broker: any.clone(),
            documents: any.clone(),
            committer,
            graph: any.clone(),
            coordination,
            host: any,
            reply_topics: agentfleet_core::ReplyTopics::default(),
        };
        Self {
            shared,
            processes: BTreeMap::new(),
            tasks: BTreeMap::new(),
            seam,
            orchestrator,
            aggregator,
            options,
            next_process: 1,
            next_task: 1,
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What shipped workers stand on here.
    pub fn parts(&self) -> (agentfleet_orchestrator::Parts, agentfleet_aggregator::Parts) {
        (self.orchestrator.clone(), self.aggregator.clone())
    }

    /// A shipped orchestrator on these seams.
    pub fn orchestrator(&self) -> Arc<dyn Handler> {
        Arc::new(Orchestrator::new(
            self.orchestrator.clone(),
            self.options.clone(),
        ))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        self.shared.with(act)
    }

    fn worker(&self, role: Role) -> Worker {
        let parts = || self.aggregator.clone();
        match role {
            Role::Orchestrator => Worker::One(self.orchestrator()),
            Role::FanIn => Worker::Many(Arc::new(FanIn::new(parts()))),
            Role::Deadlines => Worker::One(Arc::new(Deadlines::new(parts()))),
            Role::Writer => Worker::Many(Arc::new(GraphWriter::new(
                Arc::new(self.seam.clone()),
                Arc::new(self.seam.clone()),
                Arc::new(self.seam.clone()),
            ))),
            Role::Undertaker => {
                let limits = self.options.limits.clone();
                Worker::One(Arc::new(Undertaker::new(parts(), limits)))
            }
            Role::Producer | Role::Gateway => Worker::Idle,
        }
    }

    /// Starts a process.
    pub fn start(&mut self, role: Role, slots: usize) -> u32 {
        let id = self.next_process;
        self.next_process += 1;
        let worker = self.worker(role);
        let process = Process {
            role,
            incarnation: 1,
            slots,
            draining: false,
            worker,
        };
        self.processes.insert(id, process);
        id
    }

    /// Gives messages to a process: one, or a batch to those that take batches.
    pub fn deliver(&mut self, process: u32, entries: &[u64]) -> Option<TaskId> {
        let id = self.next_task;
        let Process { role, worker, .. } = &self.processes[&process];
        let (role, worker) = (*role, worker.clone());
        let deliveries: Vec<Delivery> = self.with(|world| {
            let now = world.now;
            let buried = world.queues.of(Role::Undertaker).entries.len();
            let claimed: Vec<_> = entries
                .iter()
                .filter_map(|entry| world.queues.claim(role, *entry, id, now))
                .collect();
            if world.queues.of(Role::Undertaker).entries.len() > buried {
                world.facts.count("dead letters by delivery limit");
            }
            claimed
        });
        if deliveries.is_empty() {
            return None;
        }
        let seam = self.seam.clone();
        let given = deliveries.clone();
        let future: Pin<Box<dyn Future<Output = ()> + Send>> = match worker {
            Worker::One(handler) => Box::pin(async move {
                for delivery in given {
                    let disposition = handler.handle(&delivery).await;
                    settle(&seam, &delivery, disposition).await;
                }
            }),
            Worker::Many(handler) => Box::pin(async move {
                let dispositions = handler.handle(&given).await;
                for (delivery, disposition) in given.iter().zip(dispositions) {
                    settle(&seam, delivery, disposition).await;
                }
            }),
            Worker::Idle => return None,
        };
        Some(self.spawn(process, deliveries, future))
    }

    fn spawn(
        &mut self,
        process: u32,
        deliveries: Vec<Delivery>,
        future: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> TaskId {
        let id = self.next_task;
        self.next_task += 1;
        let Process {
            role, incarnation, ..
        } = self.processes[&process];
        let name = format!("{role} {process}.{incarnation}");
        self.with(|world| {
            let request = deliveries
                .first()
                .and_then(|d| World::request_in(&d.payload));
            world.journal.note(world.now, || {
                let brief: Vec<String> = deliveries
                    .iter()
                    .map(|d| {
                        let get = |name: &str| d.properties.get(name).map_or("", String::as_str);
                        let step = get(property::STEP);
                        let (session, kind) = (get(property::SESSION), get(property::KIND));
                        format!("{} {} {session} {step} {kind}", d.message_id, d.topic)
                    })
                    .collect();
                format!("{name} #{id} <- {}", brief.join(", "))
            });
            world.tasks.insert(
                id,
                Tracked {
                    name,
                    role,
                    process,
                    point: None,
                    deliveries,
                    request: request.filter(|request| named_in(&request.question).is_some()),
                    stop_seen: None,
                    unknown_seen: false,
                    stuck: false,
                },
            );
        });
        self.tasks.insert(
            id,
            Task {
                process,
                weight: 100,
                future,
            },
        );
        id
    }

    /// The lease of what a task works is kept, as the consume loop does from time to time.
    pub fn keep(&mut self, of: TaskId) -> Option<TaskId> {
        let process = self.tasks.get(&of)?.process;
        let Worker::One(handler) = self.processes[&process].worker.clone() else {
            return None;
        };
        let deliveries = self.with(|world| {
            let tracked = world.tasks.get(&of);
            tracked.map(|tracked| tracked.deliveries.clone())
        })?;
        let future = Box::pin(async move {
            for delivery in &deliveries {
                handler.keep(delivery).await;
            }
        });
        Some(self.spawn(process, Vec::new(), future))
    }

    /// Somebody asks for a piece of work: published until a receipt comes, as producers do.
    pub fn ask(&mut self, process: u32, index: usize) -> TaskId {
        let seam = self.seam.clone();
        let scenario = self.with(|world| Arc::clone(&world.scenario));
        let future = Box::pin(async move {
            let root = &scenario.roots[index];
            let mut request = AgentRequest {
                question: question(&root.work),
                pattern: root.pattern.clone(),
                streaming: root.streaming,
                limits: root.limits.clone(),
                user: "somebody".into(),
                // All at once: whoever begins is shown those that have ended.
                conversation_id: "talk".into(),
                ..AgentRequest::default()
            };
            if scenario.policy != agentfleet_schema::config::JoinPolicy::All {
                request.task_type = "quorum".into();
            }
            let caller = format!("caller-{index}");
            loop {
                let published = match root.identity {
                    Identity::Session => {
                        let mut request = request.clone();
                        request.session_id = SessionId::new(format!("session-{index}"));
                        client::submit(&seam, request, &caller, &[])
                            .await
                            .map(drop)
                            .is_ok()
                    }
                    Identity::Id => client::submit(&seam, request.clone(), &caller, &[])
                        .await
                        .is_ok(),
                    Identity::Nothing => {
                        let message = Outgoing {
                            topic: AGENT_REQUEST,
                            payload: serde_json::to_vec(&request).expect("plain data"),
                            properties: BTreeMap::new(),
                            deliver_at: None,
                            durability: Durability::Durable,
                        };
                        let payload = message.payload.clone();
                        drop(seam.publish(vec![message]).await);
                        // Publishing again would be asking again, if the first has arrived.
                        seam.shared.with(|w| w.facts.unnamed.contains(&payload))
                    }
                };
                if published {
                    return;
                }
            }
        });
        self.spawn(process, Vec::new(), future)
    }

    /// Somebody cancels a subagent that may have no record yet, knowing who started it.
    pub fn cancel_child(
        &mut self,
        process: u32,
        (parent, step): (SessionId, u32),
        child: SessionId,
    ) -> TaskId {
        let endings = Endings::new(self.aggregator.clone());
        let future = Box::pin(async move {
            let ending = endings.end_child((&parent, step), &child, "cancelled", "somebody");
            Box::pin(ending).await.ok();
        });
        self.spawn(process, Vec::new(), future)
    }

    /// Somebody cancels a run.
    pub fn cancel(&mut self, process: u32, root: SessionId) -> TaskId {
        let endings = Endings::new(self.aggregator.clone());
        let shared = self.shared.clone();
        let future = Box::pin(async move {
            let ended = endings.end(&root, "cancelled", "somebody").await;
            shared.with(|world| {
                if ended.is_ok() {
                    world.facts.count("cancels that came through");
                }
            });
        });
        self.spawn(process, Vec::new(), future)
    }

    /// Somebody answers a call that waits.
    pub fn decide(&mut self, process: u32, pause: PauseRecord, verdict: Verdict) -> TaskId {
        let approvals = Approvals::new(self.aggregator.clone());
        let shared = self.shared.clone();
        let future = Box::pin(async move {
            let by = verdict.by.clone();
            let answered = Box::pin(approvals.answer(&pause, verdict, None)).await;
            shared.with(|world| {
                let told = match answered {
                    Ok(Answered::Now(_)) => "counts".to_owned(),
                    Ok(Answered::Before(after)) => became(&after),
                    Ok(Answered::TooLate(reason)) => format!("too late: {reason}"),
                    Ok(Answered::Refused(refused)) => refused.to_string(),
                    Err(error) => format!("fault: {error}"),
                };
                world.facts.told.push((by, told));
            });
        });
        self.spawn(process, Vec::new(), future)
    }

    /// Somebody looks at what waits, and answers one of it.
    pub fn answer_some(&mut self, process: u32, which: usize, verdict: Verdict) -> TaskId {
        let approvals = Approvals::new(self.aggregator.clone());
        let shared = self.shared.clone();
        let future = Box::pin(async move {
            let Ok(open) = approvals.open().await else {
                return;
            };
            if open.is_empty() {
                return;
            }
            let pause = &open[which % open.len()];
            let found = approvals.find(pause.asked.id.as_str()).await;
            let answered = Box::pin(approvals.answer(pause, verdict, None)).await;
            shared.with(|world| {
                // The graph may not know yet of one that was answered just now.
                let after = (pause.session.clone(), pause.step + 1);
                let waits = !world.facts.records.contains_key(&after);
                if waits && let Ok(Found::Unknown | Found::Several(_)) = found {
                    world.violate(format!(
                        "approval {} is listed and not found",
                        pause.asked.id
                    ));
                }
                world.facts.count(match answered {
                    Ok(Answered::Now(_)) => "answers that count",
                    Ok(Answered::Before(_)) => "answers that came second",
                    Ok(Answered::TooLate(_)) => "answers that came too late",
                    Ok(Answered::Refused(_)) => "answers that are none",
                    Err(_) => "answers that met a fault",
                });
            });
        });
        self.spawn(process, Vec::new(), future)
    }

    /// An aggregator looks for fan-outs that are overdue.
    pub fn sweep(&mut self, process: u32) -> TaskId {
        let sweep = Sweep::new(self.aggregator.clone());
        let shared = self.shared.clone();
        let future = Box::pin(async move {
            let swept = sweep.once().await;
            shared.with(|world| {
                for _ in 0..swept.unwrap_or_default() {
                    world.facts.count("overdue fan-outs");
                }
            });
        });
        self.spawn(process, Vec::new(), future)
    }

    /// Checks what must be true at the very end, and that a sweep leaves nothing to count.
    pub fn end(&mut self, process: u32) {
        self.with(World::check_end);
        if self.with(|world| !world.counted.is_empty()) {
            let sweep = self.sweep(process);
            self.finish(sweep);
            self.with(World::check_swept);
        }
    }

    /// Lets a task go on to its next stop.
    pub fn step(&mut self, id: TaskId) -> Stepped {
        let Some(task) = self.tasks.get_mut(&id) else {
            return Stepped::Done;
        };
        self.shared.with(|world| {
            world.tick += 1;
            world.current = Some(id);
        });
        let mut context = Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut context)));
        let dying = self.shared.with(|world| {
            world.current = None;
            std::mem::take(&mut world.dying)
        });
        let process = task.process;
        let done = match polled {
            Ok(polled) => polled == Poll::Ready(()),
            Err(panic) => {
                let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                self.with(|world| world.violate(format!("a worker panicked: {what}")));
                true
            }
        };
        if dying.contains(&id) {
            self.crash(process, 0);
            return Stepped::Dead;
        }
        if done {
            self.tasks.remove(&id);
            self.with(|world| {
                world.tasks.remove(&id);
                // What could not be settled comes again when its lease has run out.
                let later = world.now + 30_000;
                world.queues.release(id, later);
            });
            self.restart_drained(process);
            return Stepped::Done;
        }
        Stepped::Going
    }

    /// A process dies with everything in its hands; its successor starts at once.
    pub fn crash(&mut self, process: u32, redelivered_after: Millis) {
        let lost: Vec<TaskId> = self
            .tasks
            .iter()
            .filter(|(_, t)| t.process == process)
            .map(|(id, _)| *id)
            .collect();
        let futures: Vec<Task> = lost.iter().filter_map(|id| self.tasks.remove(id)).collect();
        drop(futures);
        self.with(|world| {
            world.facts.count("crashes");
            world
                .journal
                .note(world.now, || format!("process {process} dies"));
            for id in lost {
                world.tasks.remove(&id);
                world.killed.insert(id);
                let at = world.now + redelivered_after;
                world.queues.release(id, at);
            }
        });
        self.succeed(process);
    }

    fn succeed(&mut self, process: u32) {
        let role = self.processes[&process].role;
        let worker = self.worker(role);
        if let Some(process) = self.processes.get_mut(&process) {
            process.incarnation += 1;
            process.draining = false;
            process.worker = worker;
        }
    }

    /// A process that was asked to stop, and has finished, is replaced.
    fn restart_drained(&mut self, process: u32) {
        if self.processes[&process].draining && self.busy(process) == 0 {
            self.succeed(process);
        }
    }

    /// Asks a process to finish what it has and take nothing new (DR-1).
    pub fn drain(&mut self, process: u32) {
        self.with(|world| world.facts.count("drains"));
        if let Some(process) = self.processes.get_mut(&process) {
            process.draining = true;
        }
        self.restart_drained(process);
    }

    pub fn busy(&self, process: u32) -> usize {
        self.tasks
            .values()
            .filter(|task| task.process == process)
            .count()
    }

    /// Where a task stands.
    pub fn point(&self, id: TaskId) -> Option<Point> {
        self.with(|world| world.tasks.get(&id).and_then(|task| task.point.clone()))
    }

    pub fn is_stuck(&self, id: TaskId) -> bool {
        self.with(|world| world.tasks.get(&id).is_some_and(|task| task.stuck))
    }

    pub fn violation(&self) -> Option<String> {
        self.with(|world| world.violation.clone())
    }

    /// Moves the clock.
    pub fn pass(&self, time: Duration) {
        self.with(|world| world.now += time.as_millis() as Millis);
    }

    /// Lets a task go on until it stands before or after such a call. Panics if it ends before.
    pub fn run_to(&mut self, id: TaskId, when: When, verb: Verb, what: &str) {
        for _ in 0..10_000 {
            if self
                .point(id)
                .is_some_and(|point| point.is(when, verb, what))
            {
                return;
            }
            let stepped = self.step(id);
            assert_eq!(
                stepped,
                Stepped::Going,
                "task {id} ended before it came to {when:?} {verb:?} `{what}`\n{}",
                self.with(|world| world.journal.tail(80))
            );
        }
        panic!("task {id} never came to {when:?} {verb:?} `{what}`");
    }

    /// Lets a task go on to its end.
    pub fn finish(&mut self, id: TaskId) -> Stepped {
        for _ in 0..100_000 {
            if self.is_stuck(id) {
                return Stepped::Going;
            }
            match self.step(id) {
                Stepped::Going => {}
                ended => return ended,
            }
        }
        panic!("task {id} never ended");
    }
}

/// What the shipped consume loop does with a disposition.
async fn settle(seam: &Seam, delivery: &Delivery, disposition: Disposition) {
    let settled = match disposition {
        Disposition::Settled => return,
        Disposition::Ack => seam.ack(delivery).await,
        Disposition::RetryAfter(delay) => seam.nack(delivery, delay).await,
        Disposition::DeadLetter(reason) => seam.dead_letter(delivery, &reason).await,
    };
    // If it fails the lease runs out and the message comes again.
    drop(settled);
}
