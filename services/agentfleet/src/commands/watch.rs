//! Watching a run: lanes for people, one event per line for programs.
//!
//! Leaving changes nothing: the run is in the queue and its answer will be in the records.

use super::person;
use super::records;
use crate::engine::Engine;
use crate::error::{Exit, Failure};
use crate::log::Held;
use crate::settings::Settings;
use crate::signals::{Signals, Told};
use crate::standby::{self, Standby, Worker};
use crate::store::Store;
use crate::ui::{Answer, Heedless, Ui};
use agentfleet_console::lanes::{Closing, Hint, LaneBoard, Painter};
use agentfleet_core::approval;
use agentfleet_runs::Ended;
use agentfleet_runtime::Records;
use agentfleet_runtime::client::{self, Event, Follow};
use agentfleet_schema::{AgentResponse, ErrorBody, SessionId, keys};
use std::io::{Stderr, Write as _, stderr, stdout};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Between two drawings, for the time that passes.
const TICK: Duration = Duration::from_millis(100);
/// How long a run that has ended may stay silent before its end is told from its records instead:
/// its responses are no longer kept.
const QUIET: Duration = Duration::from_millis(500);
/// How long nothing may be heard of a run before it is said that perhaps nobody works.
const UNHEARD: Duration = Duration::from_secs(10);

/// What is watched, and how it is shown.
pub(crate) struct Watch<'a> {
    pub store: &'a Store,
    pub session: SessionId,
    pub question: &'a str,
    pub ui: Ui,
    pub json: bool,
    /// How this program is called, for commands to copy.
    pub program: String,
    pub hints: Vec<Hint>,
    pub interrupt: Interrupt<'a>,
}

/// What Ctrl-C does.
#[derive(Clone, Copy)]
pub(crate) enum Interrupt<'a> {
    /// Leaves the run to others.
    Leaves,
    /// Ends the run, with what is needed for that; a second one leaves.
    Cancels(&'a Settings),
}

impl Watch<'_> {
    /// Follows the root session from its beginning to its end, or until told to leave.
    pub(crate) async fn run(
        &self,
        standby: &Standby,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let (broker, documents) = (
            Arc::clone(&self.store.broker),
            Arc::clone(&self.store.documents),
        );
        let mut follow = Follow::new(broker, documents, self.session.clone(), 0);
        let mut worker = standby.receiver();
        let mut known = worker.borrow().clone();
        let mut show = Show::new(self);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let ended = self.ended().await?;
        let mut quiet = Instant::now() + QUIET;
        let unheard = Instant::now() + UNHEARD;
        let mut is_cancelled = false;
        let mut unheard = (ended.is_none() && *worker.borrow() == Worker::Other).then_some(unheard);
        loop {
            let events = {
                // One read over many ticks: a long past is not read again from its beginning at each.
                let next = follow.next();
                tokio::pin!(next);
                loop {
                    tokio::select! {
                        followed = &mut next => break followed?.events,
                        told = signals.next() => {
                            show.leave()?;
                            match self.interrupt {
                                Interrupt::Cancels(settings)
                                    if told == Told::Interrupt && !is_cancelled =>
                                {
                                    is_cancelled = true;
                                    self.ui.note("Ending the run; Ctrl-C again leaves.");
                                    Box::pin(end(self.store, settings, &self.session)).await?;
                                }
                                Interrupt::Cancels(_) | Interrupt::Leaves => {
                                    return Err(self.left(&worker.borrow()));
                                }
                            }
                        }
                        _ = tick.tick() => show.tick()?,
                        Ok(()) = worker.changed() => {
                            let now = worker.borrow_and_update().clone();
                            if now != known {
                                show.leave()?;
                                self.took_over(&now)?;
                                known = now;
                            }
                        }
                        () = tokio::time::sleep_until(quiet), if ended.is_some() => {
                            break ended.clone().into_iter().collect();
                        }
                        () = tokio::time::sleep_until(unheard.unwrap_or(quiet)), if unheard.is_some() => {
                            unheard = None;
                            show.leave()?;
                            self.ui.note(&self.nobody());
                        }
                    }
                }
            };
            quiet = Instant::now() + QUIET;
            unheard = unheard.filter(|_| events.is_empty());
            for event in events {
                show.event(&event).await?;
                if let Event::End { error, text, .. } = event {
                    return self.over(show, &text, error).await;
                }
            }
        }
    }

    /// The process that was to work has gone.
    fn took_over(&self, worker: &Worker) -> Result<(), Failure> {
        match worker {
            Worker::Other => {}
            Worker::Own { .. } if self.json => {}
            Worker::Own { model } => self.ui.note(&standby::has_taken_over(model)),
            Worker::Failed(reason) => {
                let says = format!("nobody works the run: {reason}");
                return Err(Failure::new(Exit::Unavailable, says)
                    .hint(format!("{} attach {}", self.program, self.session)));
            }
        }
        Ok(())
    }

    /// Where another process is to work, and nothing is heard of it.
    fn nobody(&self) -> String {
        let (seconds, program) = (UNHEARD.as_secs(), &self.program);
        format!(
            "Nothing was heard of the run for {seconds} s. If no worker runs it waits: `{program} doctor` \
             says who works, `{program} up` works it."
        )
    }

    async fn over(
        &self,
        show: Show<'_>,
        answer: &str,
        error: Option<ErrorBody>,
    ) -> Result<(), Failure> {
        if let Show::Lanes { .. } = &show {
            let trace = records::trace(&*self.store.documents, &self.session).await?;
            let mut hints = Vec::new();
            if matches!(self.interrupt, Interrupt::Leaves) {
                hints.push(Hint::new(
                    "How it came about:",
                    format!("{} trace {}", self.program, self.session),
                ));
            }
            hints.extend(self.hints.iter().cloned());
            show.close(&Closing::of(&trace, &self.session, answer, hints))?;
            return match error {
                None => Ok(()),
                Some(_) => Err(Failure::told(Exit::Failed)),
            };
        }
        match error {
            None => Ok(()),
            Some(error) => Err(Failure {
                hint: error.hint,
                ..Failure::new(Exit::Failed, error.message)
            }),
        }
    }

    /// The end of a run that is over, from its records.
    async fn ended(&self) -> Result<Option<Event>, Failure> {
        let records = Records::new(&*self.store.documents);
        let Some(record) = records.end(&self.session).await? else {
            return Ok(None);
        };
        let told = client::recalled(&*self.store.documents, &record).await?;
        let mut told = told.into_iter().rev();
        let end = told.find(|(response, _)| response.end_of_dialog);
        Ok(end.map(|(response, text)| Event::End {
            text,
            error: response.error.clone(),
            response: Box::new(response),
        }))
    }

    fn left(&self, worker: &Worker) -> Failure {
        let goes_on = match worker {
            Worker::Other => "the run goes on",
            Worker::Own { .. } | Worker::Failed(_) => {
                "the run is kept, and goes on when a fleet runs (`agentfleet up`, or the next `ask` \
                 or `attach`)"
            }
        };
        self.ui.note(&format!(
            "Left before the end; {goes_on}. Come back to it with:"
        ));
        errln!("  {} attach {}", self.program, self.session);
        if let Worker::Own { .. } = worker {
            self.ui
                .note("Finishing what is in flight; Ctrl-C again leaves at once.");
        }
        Failure::told(Exit::Left)
    }
}

/// Ends a run.
pub(crate) async fn end(
    store: &Store,
    settings: &Settings,
    session: &SessionId,
) -> Result<Ended, Failure> {
    let engine = Engine::open(store.clone(), settings, &|_, _| {}).await?;
    let by = person::of_system().unwrap_or_default();
    Ok(engine.endings().end(session, "cancelled", &by).await?)
}

/// Where events go.
enum Show<'a> {
    Json(&'a Store),
    Lanes {
        store: &'a Store,
        ui: Ui,
        painter: Box<Painter<Heedless<Stderr>, Answer>>,
        program: String,
        log: Option<Held>,
    },
}

/// Whether nothing came after the step that a response is of. Whoever comes late is told of waits, too,
/// that were decided or ended long ago.
async fn still_waits(store: &Store, response: &AgentResponse) -> Result<bool, Failure> {
    let Some(step) = response.step else {
        return Ok(true);
    };
    let after = keys::outcome(&response.session_id, step + 1);
    Ok(!Records::new(&*store.documents).has(&after).await?)
}

impl<'a> Show<'a> {
    fn new(watch: &Watch<'a>) -> Self {
        if watch.json {
            return Self::Json(watch.store);
        }
        let now = watch.store.now();
        let board = LaneBoard::new(watch.session.clone(), watch.question, now);
        let settings = watch.ui.settings();
        Self::Lanes {
            store: watch.store,
            ui: watch.ui,
            painter: Box::new(Painter::new(
                board,
                settings,
                Heedless(stderr()),
                Answer(stdout()),
            )),
            program: watch.program.clone(),
            log: settings.live.then(Held::new),
        }
    }

    async fn event(&mut self, event: &Event) -> Result<(), Failure> {
        match self {
            Self::Json(store) => {
                let at = store.now();
                let trace = match event {
                    Event::End { response, .. } => {
                        let trace = records::trace(&*store.documents, &response.session_id);
                        Some(Box::pin(trace).await?)
                    }
                    Event::Chunk { .. } | Event::Message { .. } | Event::Note(_) => None,
                };
                outln!(
                    "{}",
                    agentfleet_console::json::line(event, at, trace.as_ref())
                );
            }
            Self::Lanes {
                store,
                ui,
                painter,
                program,
                ..
            } => {
                painter.event(event, store.now(), ui.screen())?;
                if let Event::Note(response) = event
                    && let Some(id) = approval::waits_for(&response.content)
                    && still_waits(store, response).await?
                {
                    // A lane is too short for it.
                    painter.clear(ui.screen())?;
                    ui.note("A call waits for a person. In another terminal:");
                    errln!("  {program} approvals show {id}");
                    let who = person::to_say();
                    errln!("  {program} approvals approve {id}{who}");
                    errln!("  {program} approvals deny {id}{who} --reason \"...\"");
                }
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Failure> {
        if let Self::Lanes {
            store,
            ui,
            painter,
            log: Some(log),
            ..
        } = self
        {
            let lines = log.take();
            if !lines.is_empty() {
                painter.clear(ui.screen())?;
                Heedless(stderr()).write_all(&lines)?;
            }
            painter.tick(store.now(), ui.screen())?;
        }
        Ok(())
    }

    /// Takes down what is drawn.
    fn leave(&mut self) -> Result<(), Failure> {
        if let Self::Lanes { ui, painter, .. } = self {
            painter.leave(ui.screen())?;
        }
        Ok(())
    }

    fn close(self, closing: &Closing) -> Result<(), Failure> {
        if let Self::Lanes {
            ui, mut painter, ..
        } = self
        {
            painter.finish(closing, ui.screen())?;
        }
        Ok(())
    }
}
