//! `chat`: a conversation in the terminal. Each line is a run of its own, which is shown what was said before.

use super::ask::{can_be_had, keep, who_works};
use super::watch::{Interrupt, Watch};
use crate::cli::{Chat, Cost, Output, Trace, TraceFormat};
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::signals::{Signals, Told};
use crate::standby::Standby;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_console::trace::Format;
use agentfleet_runs::{Asked, exchanges};
use agentfleet_schema::{AgentRequest, ConversationId, SessionId};
use nix::sys::termios::{SetArg, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use std::io::{ErrorKind, IsTerminal as _};
use tokio::sync::oneshot;

/// Exchanges that are recalled at the beginning, and by `/history`.
const RECALLED: usize = 5;
const HISTORY: usize = 50;
/// Characters of a question and of an answer in a list.
const SHOWN: usize = 100;

/// Takes back what the line editor asked of the terminal: to mark what is pasted.
const PASTE_OFF: &str = "\u{1b}[?2004l";

const HELP: &str = "\
/trace [SESSION]   who decided what in the last run, or in another one
/cost              what this conversation cost
/history           what was asked and answered before
/new               begin another conversation
/quit              leave; Ctrl-D does the same
Ctrl-C ends the run that is being worked. A space before the / asks the line as it is.";

type Reader = Box<Editor<(), MemHistory>>;
type Line = Result<String, ReadlineError>;

/// One conversation, and what it is talked with.
struct Talk<'a> {
    store: &'a Store,
    settings: &'a Settings,
    ui: Ui,
    standby: &'a Standby,
    request: AgentRequest,
    last: Option<SessionId>,
    /// Whether somebody types the lines.
    is_typed: bool,
    failed: u64,
}

pub(crate) async fn chat(chat: Chat, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    if chat
        .conversation
        .as_deref()
        .is_some_and(|id| id.trim().is_empty())
    {
        let says = "`--conversation` is empty: name one, or leave it out to begin a new one";
        return Err(Failure::usage(says));
    }
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let request = AgentRequest {
        conversation_id: chat.conversation.map_or_else(new, ConversationId::from),
        pattern: chat.pattern.unwrap_or_default(),
        task_type: chat.task_type.unwrap_or_default(),
        tool_policy: chat.tool_policy.unwrap_or_default(),
        collection: chat.collection.as_str().into(),
        user: chat.user.unwrap_or_default(),
        streaming: true,
        limits: settings.limits(),
        ..AgentRequest::default()
    };
    // What is wrong with the request or with the fleet is said before anything is asked.
    let tried = AgentRequest {
        question: "?".to_owned(),
        ..request.clone()
    };
    store.intake().check(&tried).await?;
    let loaded = super::library::collections(&store, settings).await?;
    agentfleet_gateway::check_collection(&request.collection, &loaded)?;
    can_be_had(settings, false).await?;
    let mut signals = Signals::new()?;
    let standby = keep(&store, settings, ui, false).await?;
    who_works(&standby, settings, ui)?;
    let mut talk = Talk {
        store: &store,
        settings,
        ui,
        standby: &standby,
        request,
        last: None,
        is_typed: std::io::stdin().is_terminal(),
        failed: 0,
    };
    let ended = talk.talk(&mut signals).await;
    signals.drained_or_left(standby.stop()).await;
    ended
}

fn new() -> ConversationId {
    let id = uuid::Uuid::new_v4().to_string();
    format!("chat-{}", &id[..8]).into()
}

impl Talk<'_> {
    async fn talk(&mut self, signals: &mut Signals) -> Result<(), Failure> {
        let mut reader: Reader = Box::new(editor()?);
        // Whoever ends the process at its prompt finds the terminal as it was.
        let terminal = tcgetattr(std::io::stdin()).ok();
        self.begun(&mut reader).await?;
        loop {
            let reading = read(reader, self.is_typed)?;
            let read = tokio::select! {
                read = reading => read.map_err(std::io::Error::other)?,
                () = terminated(signals) => {
                    if let Some(terminal) = &terminal {
                        tcsetattr(std::io::stdin(), SetArg::TCSANOW, terminal).ok();
                        if std::io::stdout().is_terminal() {
                            ui::painted(PASTE_OFF);
                        }
                        errln!();
                    }
                    return self.left();
                }
            };
            reader = read.1;
            let line = match read.0 {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => {
                    self.ui.note("Ctrl-D leaves.");
                    continue;
                }
                Err(ReadlineError::Eof) => return self.left(),
                Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                    errln!("error: the line is no UTF-8, and was not asked");
                    self.failed += 1;
                    continue;
                }
                Err(error) => return Err(std::io::Error::other(error).into()),
            };
            let text = line.trim();
            if text.is_empty() {
                continue;
            }
            drop(reader.add_history_entry(text));
            match line.strip_prefix('/').map(str::trim_end) {
                None => self.ask(text.to_owned(), signals).await?,
                Some("quit" | "exit") => return self.left(),
                Some("new") => {
                    self.request.conversation_id = new();
                    self.last = None;
                    self.begun(&mut reader).await?;
                }
                Some(command) => {
                    if let Err(failure) = self.command(command).await {
                        errln!("error: {failure}");
                    }
                }
            }
        }
    }

    /// Says which conversation it is, and what was said last.
    async fn begun(&self, editor: &mut Editor<(), MemHistory>) -> Result<(), Failure> {
        let id = &self.request.conversation_id;
        let before = self.exchanges(RECALLED).await?;
        self.ui.note(&format!(
            "Conversation `{id}`. `/help` says what else there is."
        ));
        for asked in &before {
            drop(editor.add_history_entry(&asked.question));
        }
        list(&before);
        Ok(())
    }

    fn left(&self) -> Result<(), Failure> {
        let (program, id) = (self.settings.program(), &self.request.conversation_id);
        if self.last.is_some() {
            let id = ui::shell_word(id.as_str());
            self.ui
                .note(&format!("Go on with: {program} chat --conversation {id}"));
        }
        match self.failed {
            // Whoever types has seen it.
            0 => Ok(()),
            _ if self.is_typed => Ok(()),
            failed => {
                let lines = text::counted(failed, "line");
                Err(Failure::new(Exit::Failed, format!("not answered: {lines}")))
            }
        }
    }

    /// The newest exchanges, the oldest of them first.
    async fn exchanges(&self, most: usize) -> Result<Vec<Asked>, Failure> {
        let documents = &*self.store.documents;
        let found = exchanges(documents, "", &self.request.conversation_id, "", most).await;
        let mut found = found.map_err(agentfleet_runtime::Error::from)?;
        found.reverse();
        Ok(found)
    }

    /// Asks, and watches the answer come. A run that fails ends no conversation.
    async fn ask(&mut self, question: String, signals: &mut Signals) -> Result<(), Failure> {
        let request = AgentRequest {
            question: question.clone(),
            ..self.request.clone()
        };
        let intake = self.store.intake();
        let taken = match intake.check(&request).await {
            Ok(()) => intake.take_in(request, None).await,
            Err(problem) => Err(problem),
        };
        let session = match taken {
            Ok(taken) => taken.session,
            Err(problem) => {
                errln!("error: {}", Failure::from(problem));
                self.failed += 1;
                return Ok(());
            }
        };
        if self.last.is_some() {
            // Between two answers.
            outln!();
        }
        self.last = Some(session.clone());
        let watch = Watch {
            store: self.store,
            session,
            question: &question,
            ui: self.ui,
            json: false,
            program: self.settings.program(),
            hints: Vec::new(),
            interrupt: Interrupt::Cancels(self.settings),
        };
        match watch.run(self.standby, signals).await {
            Err(failure) if matches!(failure.exit, Exit::Left | Exit::Unavailable) => Err(failure),
            Err(failure) => {
                self.failed += 1;
                if !failure.message.is_empty() {
                    errln!("error: {failure}");
                }
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    async fn command(&self, command: &str) -> Result<(), Failure> {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        match name {
            "help" => errln!("{HELP}"),
            "history" => match self.exchanges(HISTORY).await? {
                none if none.is_empty() => errln!("nothing was asked yet"),
                some => list(&some),
            },
            "trace" => {
                let id = match (rest.trim(), &self.last) {
                    ("", Some(last)) => last.to_string(),
                    ("", None) => return Err(Failure::usage("nothing was asked yet")),
                    (id, _) => id.to_owned(),
                };
                let args = Trace {
                    id,
                    format: TraceFormat::Drawn(Format::Tree),
                    step: None,
                    raw: false,
                };
                Box::pin(super::trace::run(args, self.settings, self.ui)).await?;
            }
            "cost" => {
                let args = Cost {
                    id: None,
                    session: None,
                    conversation: Some(self.request.conversation_id.to_string()),
                    collection: None,
                    since: None,
                    by: None,
                    output: Output::default(),
                };
                Box::pin(super::cost::run(args, self.settings, self.ui)).await?;
            }
            _ => {
                let says = format!("there is no `/{name}`");
                return Err(Failure::usage(says).hint("`/help` lists what there is"));
            }
        }
        Ok(())
    }
}

fn list(exchanges: &[Asked]) {
    for asked in exchanges {
        errln!("  > {}", text::preview(&asked.question, SHOWN));
        let end = asked.text.as_deref().map(|end| text::preview(end, SHOWN));
        match (asked.is_answered, end) {
            (true, Some(answer)) => errln!("    {answer}"),
            (_, Some(reason)) => errln!("    (not answered: {reason})"),
            (_, None) => errln!("    (not answered yet)"),
        }
    }
}

fn editor() -> Result<Editor<(), MemHistory>, Failure> {
    let config = Config::builder().auto_add_history(false).build();
    let history = MemHistory::with_config(&config);
    let editor = Editor::with_history(config, history);
    Ok(editor.map_err(std::io::Error::other)?)
}

/// The next line. Reading one blocks, so it is done on a thread of its own, which nobody waits for at the end.
fn read(mut reader: Reader, is_typed: bool) -> Result<oneshot::Receiver<(Line, Reader)>, Failure> {
    let prompt = if is_typed { "> " } else { "" };
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new()
        .name("chat-line".to_owned())
        .spawn(move || {
            let line = reader.readline(prompt);
            drop(tell.send((line, reader)));
        })?;
    Ok(told)
}

/// Waits until the process is to end.
async fn terminated(signals: &mut Signals) {
    while signals.next().await != Told::Terminate {}
}
