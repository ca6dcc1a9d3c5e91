//! `chat`: a conversation in the terminal. Each line is a run of its own, which is shown what was said before.

use super::ask::{can_be_had, keep, who_works};
use super::watch::{Interrupt, Watch};
use crate::cli::{Chat, Cost, Output, Trace, TraceFormat};
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::signals::Signals;
use crate::standby::Standby;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_console::text;
use agentfleet_console::trace::Format;
use agentfleet_runs::{Asked, exchanges};
use agentfleet_schema::{AgentRequest, ConversationId, SessionId};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};
use std::io::IsTerminal as _;

/// Exchanges that are recalled at the beginning, and by `/history`.
const RECALLED: usize = 5;
const HISTORY: usize = 50;
/// Characters of a question and of an answer in a list.
const SHOWN: usize = 100;

const HELP: &str = "\
/trace [SESSION]   who decided what in the last run, or in a run of this conversation
/cost              what this conversation cost
/history           what was asked and answered before
/new               begin another conversation
/quit              leave; Ctrl-D does the same
Ctrl-C ends the run that is being worked.";

type Line = Result<String, ReadlineError>;

/// One conversation, and what it is talked with.
struct Talk<'a> {
    store: &'a Store,
    settings: &'a Settings,
    ui: Ui,
    standby: &'a Standby,
    request: AgentRequest,
    last: Option<SessionId>,
}

pub(crate) async fn chat(chat: Chat, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let request = AgentRequest {
        conversation_id: chat.conversation.map_or_else(new, ConversationId::from),
        pattern: chat.pattern.unwrap_or_default(),
        task_type: chat.task_type.unwrap_or_default(),
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
        let mut editor = Box::new(editor()?);
        self.begun(&mut editor).await?;
        loop {
            let (line, back) = read(editor).await?;
            editor = back;
            let line = match line {
                Ok(line) => line.trim().to_owned(),
                Err(ReadlineError::Interrupted) => {
                    self.ui.note("Ctrl-D leaves.");
                    continue;
                }
                Err(ReadlineError::Eof) => return self.left(),
                Err(error) => return Err(std::io::Error::other(error).into()),
            };
            if line.is_empty() {
                continue;
            }
            drop(editor.add_history_entry(&line));
            if matches!(line.as_str(), "/quit" | "/exit") {
                return self.left();
            }
            match line.strip_prefix('/') {
                None => self.ask(line, signals).await?,
                Some("new") => {
                    self.request.conversation_id = new();
                    self.last = None;
                    self.begun(&mut editor).await?;
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
        self.list(&before);
        Ok(())
    }

    fn left(&self) -> Result<(), Failure> {
        let (program, id) = (self.settings.program(), &self.request.conversation_id);
        if self.last.is_some() {
            let id = ui::shell_word(id.as_str());
            self.ui
                .note(&format!("Go on with: {program} chat --conversation {id}"));
        }
        Ok(())
    }

    /// The newest exchanges, the oldest of them first.
    async fn exchanges(&self, most: usize) -> Result<Vec<Asked>, Failure> {
        let documents = &*self.store.documents;
        let found = exchanges(documents, &self.request.conversation_id, "", most).await;
        let mut found = found.map_err(agentfleet_runtime::Error::from)?;
        found.reverse();
        Ok(found)
    }

    fn list(&self, exchanges: &[Asked]) {
        for asked in exchanges {
            errln!("  > {}", text::preview(&asked.question, SHOWN));
            let answer = asked.answer.as_deref().unwrap_or("(not answered yet)");
            errln!("    {}", text::preview(answer, SHOWN));
        }
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
                return Ok(());
            }
        };
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
            "history" => self.list(&self.exchanges(HISTORY).await?),
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

fn editor() -> Result<Editor<(), MemHistory>, Failure> {
    let config = Config::builder().auto_add_history(false).build();
    let history = MemHistory::with_config(&config);
    let editor = Editor::with_history(config, history);
    Ok(editor.map_err(std::io::Error::other)?)
}

/// The next line. Reading one blocks, so it is done on a thread of its own.
async fn read(
    mut editor: Box<Editor<(), MemHistory>>,
) -> Result<(Line, Box<Editor<(), MemHistory>>), Failure> {
    let prompt = if std::io::stdin().is_terminal() {
        "> "
    } else {
        ""
    };
    let reading = tokio::task::spawn_blocking(move || {
        let line = editor.readline(prompt);
        (line, editor)
    });
    Ok(reading.await.map_err(std::io::Error::from)?)
}
