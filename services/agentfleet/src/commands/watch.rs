//! Watching a run: lanes for people, one event per line for programs.

use crate::error::{Exit, Failure};
use crate::fleet::Store;
use crate::keeper::Worker;
use crate::ui::Ui;
use agentfleet_console::markdown::MarkdownStream;
use agentfleet_runtime::client::{Event, Follow};
use agentfleet_schema::{AgentResponse, MessageId, MessageType, SessionId};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Follows a root session from its beginning to its end. Ctrl-C leaves it: the run is durable.
pub(crate) async fn watch(
    store: &Store,
    session: &SessionId,
    ui: Ui,
    json: bool,
    mut worker: watch::Receiver<Worker>,
) -> Result<(), Failure> {
    let (broker, documents) = (
        Arc::new(store.broker.clone()),
        Arc::new(store.documents.clone()),
    );
    let mut follow = Follow::new(broker, documents, session.clone(), 0);
    let mut lanes = (!json).then(|| Lanes::new(session.clone(), ui));
    loop {
        let followed = tokio::select! {
            followed = follow.next() => followed?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Err(left(session, &worker.borrow()));
            }
            Ok(()) = worker.changed() => {
                if let Worker::Failed(reason) = &*worker.borrow_and_update() {
                    let says = format!("nobody works the run: {reason}");
                    return Err(Failure::new(Exit::Unavailable, says)
                        .hint(format!("agentfleet attach {session}")));
                }
                continue;
            }
        };
        for event in followed.events {
            if let Some(lanes) = &mut lanes {
                lanes.show(&event);
            } else {
                let at = store.database.clock().now();
                outln!("{}", agentfleet_console::json::line(&event, at));
            }
            if let Event::End { error, .. } = event {
                if lanes.is_some() {
                    outln!("\nThe trace of this run:\n  agentfleet trace {session}");
                }
                return match error {
                    None => Ok(()),
                    Some(error) => {
                        let failure = Failure::new(Exit::Failed, error.message);
                        Err(match error.hint {
                            Some(hint) => failure.hint(hint),
                            None => failure,
                        })
                    }
                };
            }
        }
    }
}

fn left(session: &SessionId, worker: &Worker) -> Failure {
    let who = match worker {
        Worker::Other => "the run goes on",
        Worker::Own { .. } | Worker::Failed(_) => {
            "the run is kept, and goes on when a fleet runs (`agentfleet up`, or the next `ask` or \
             `attach`)"
        }
    };
    Failure::new(Exit::Left, format!("left before the end; {who}"))
        .hint(format!("agentfleet attach {session}"))
}

/// One lane for each session, and the root's answer below them as it arrives.
struct Lanes {
    root: SessionId,
    ui: Ui,
    board: MultiProgress,
    lanes: HashMap<SessionId, ProgressBar>,
    /// Whether lanes are redrawn in place; otherwise each change is a line.
    live: bool,
    answer: MarkdownStream,
    /// The message whose chunks were shown, and how much text that was.
    shown: Option<(MessageId, usize)>,
}

impl Lanes {
    fn new(root: SessionId, ui: Ui) -> Self {
        Self {
            root,
            ui,
            board: MultiProgress::new(),
            lanes: HashMap::new(),
            live: std::io::stderr().is_terminal(),
            answer: MarkdownStream::new(ui.look()),
            shown: None,
        }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Chunk {
                session,
                message_id,
                kind,
                text,
            } => {
                if *session == self.root && *kind == MessageType::Answer {
                    self.answer_piece(message_id, text);
                } else if self.live {
                    let doing = match kind {
                        MessageType::Answer => "answering",
                        _ => "thinking",
                    };
                    self.say(session, "", &format!("{doing}: {}", self.one_line(text)));
                }
            }
            Event::Message { text, response, .. } => {
                let what = match response.message_type {
                    MessageType::Thought => format!("thought: {}", self.one_line(text)),
                    MessageType::Observation => format!("observed: {}", self.one_line(text)),
                    MessageType::Answer => format!("answered: {}", self.one_line(text)),
                    MessageType::Error => format!("failed: {}", self.one_line(text)),
                    MessageType::Action
                    | MessageType::Explain
                    | MessageType::Status
                    | MessageType::Unknown => return,
                };
                self.say(&response.session_id, &response.subagent_goal, &what);
            }
            Event::Note(note) => self.note(note),
            Event::End { text, response, .. } => self.end(text, &response.message_id),
        }
    }

    fn note(&mut self, note: &AgentResponse) {
        let goal = &note.subagent_goal;
        if note.message_type == MessageType::Explain {
            // The first sign of a subagent.
            if self.live && !self.lanes.contains_key(&note.session_id) {
                self.say(&note.session_id, goal, "at work");
            }
            return;
        }
        self.say(&note.session_id, goal, &note.content);
        if note.content.starts_with("Completed")
            && let Some(lane) = self.lanes.get(&note.session_id)
        {
            lane.finish_with_message(note.content.clone());
        }
    }

    fn say(&mut self, session: &SessionId, goal: &str, what: &str) {
        if what.is_empty() {
            return;
        }
        let label = if *session == self.root {
            "root".to_owned()
        } else if goal.is_empty() {
            session.as_str().chars().take(8).collect()
        } else {
            super::sessions::short(goal, 28)
        };
        if !self.live {
            eprintln!("{label:<28}  {what}");
            return;
        }
        let board = &self.board;
        let lane = self.lanes.entry(session.clone()).or_insert_with(|| {
            let lane = board.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:28} {wide_msg}") {
                lane.set_style(style);
            }
            lane.enable_steady_tick(Duration::from_millis(120));
            lane.set_prefix(label.clone());
            lane
        });
        if !goal.is_empty() {
            lane.set_prefix(label);
        }
        lane.set_message(what.to_owned());
    }

    fn one_line(&self, text: &str) -> String {
        super::sessions::short(text, self.ui.width.saturating_sub(46).max(20))
    }

    fn answer_piece(&mut self, id: &MessageId, text: &str) {
        match &mut self.shown {
            Some((shown, length)) if shown == id => *length += text.len(),
            // Another attempt begins anew; what the dead one said is not taken back from a screen,
            // so the whole is printed once more at the end.
            Some(_) => return,
            None => {
                self.lanes_done();
                self.shown = Some((id.clone(), text.len()));
            }
        }
        out!("{}", self.answer.push(text));
    }

    fn end(&mut self, text: &str, id: &MessageId) {
        self.lanes_done();
        match &self.shown {
            Some((shown, length)) if shown == id && text.is_char_boundary(*length) => {
                let rest = text.get(*length..).unwrap_or_default();
                out!("{}", self.answer.push(rest));
            }
            Some(_) => {
                outln!("\n(The worker changed meanwhile; this is the committed answer.)\n");
                self.answer = MarkdownStream::new(self.ui.look());
                out!("{}", self.answer.push(text));
            }
            None => out!("{}", self.answer.push(text)),
        }
        outln!("{}", self.answer.finish());
    }

    fn lanes_done(&mut self) {
        for lane in self.lanes.values() {
            lane.finish();
        }
        if !self.lanes.is_empty() {
            outln!();
        }
        self.lanes.clear();
    }
}
