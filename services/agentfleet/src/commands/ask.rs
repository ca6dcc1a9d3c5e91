//! `ask`: publish a request and watch it being answered; `demo`, `attach` and `cancel` beside it.

use super::records;
use super::watch::{Interrupt, Watch};
use crate::cli::{Ask, Named, Output};
use crate::engine::{Engine, choose_model, key_at_hand};
use crate::error::{Exit, Failure};
use crate::lock::{FleetLock, Holder};
use crate::settings::{Settings, Source};
use crate::signals::Signals;
use crate::standby::{Standby, Worker};
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_broker::{Broker as _, EmbeddedBroker};
use agentfleet_console::lanes::Hint;
use agentfleet_console::text;
use agentfleet_library::{LoadOptions, dossier};
use agentfleet_runs::{Ended, Started};
use agentfleet_runtime::Records;
use agentfleet_schema::topics;
use agentfleet_schema::{AgentRequest, CollectionName, RoutingContext, SessionId};
use std::io::Read as _;

/// The worked example.
const EXAMPLE: &str = "Assess the risk profile of Company X as a potential partner";

pub(crate) async fn demo(output: Output, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let library = super::library::open(&store, settings).await?;
    let collection = CollectionName::from(dossier::COLLECTION);
    let options = LoadOptions::new(collection.clone());
    library
        .load_memory("dossier", dossier::files(), &options, &|_| {})
        .await?;
    drop(library);
    if !output.json {
        errln!("The dossier of the fictional Company X is loaded (collection `{collection}`).");
    }
    let request = AgentRequest {
        question: EXAMPLE.to_owned(),
        collection,
        streaming: true,
        ..AgentRequest::default()
    };
    let program = settings.program();
    let hints = vec![
        Hint::new(
            "As a picture:",
            format!("{program} trace SESSION --format svg > trace.svg"),
        ),
        Hint::new(
            "Ask it something else:",
            format!("{program} ask \"...\" --collection {}", dossier::COLLECTION),
        ),
        Hint::new(
            "Load a folder of your own:",
            format!("{program} load PATH --collection mine"),
        ),
        Hint::new(
            "Ask about it:",
            format!("{program} ask \"...\" --collection mine"),
        ),
    ];
    let asking = Asking {
        request,
        json: output.json,
        hints,
        ..Asking::default()
    };
    asking.answered(&store, settings, ui).await
}

pub(crate) async fn ask(ask: Ask, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let question = match ask.question.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text.trim().to_owned()
        }
        text => text.to_owned(),
    };
    if question.trim().is_empty() {
        return Err(Failure::usage("the question is empty").hint("agentfleet ask \"...\""));
    }
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let request = AgentRequest {
        question,
        pattern: ask.pattern.unwrap_or_default(),
        task_type: ask.task_type.unwrap_or_default(),
        framing: ask.framing.unwrap_or_default(),
        tool_policy: ask.tool_policy.unwrap_or_default(),
        group: (!ask.group.is_empty()).then_some(ask.group),
        collection: ask.collection.as_str().into(),
        conversation_id: ask.conversation.unwrap_or_default().into(),
        user: ask.user.unwrap_or_default(),
        streaming: true,
        join: ask.join,
        state: ask.state.unwrap_or_default(),
        routing: RoutingContext {
            tenant_type: ask.tenant_type.unwrap_or_default(),
            active_services: ask.active_service,
            recent_topics: ask.recent_topic,
        },
        limits: settings.limits(),
        ..AgentRequest::default()
    };
    let loaded = super::library::collections(&store, settings).await?;
    agentfleet_gateway::check_collection(&request.collection, &loaded)?;
    if ask.detach {
        let works = can_be_had(settings, false).await?.is_some();
        return detached(&store, settings, request, ask.id, works, ask.output.json).await;
    }
    let asking = Asking {
        request,
        key: ask.id,
        json: ask.output.json,
        ..Asking::default()
    };
    asking.answered(&store, settings, ui).await
}

/// Publishes a request and leaves. `works` says whether a fleet of this data directory is there.
pub(crate) async fn detached(
    store: &Store,
    settings: &Settings,
    request: AgentRequest,
    key: Option<String>,
    works: bool,
    json: bool,
) -> Result<(), Failure> {
    let intake = store.intake();
    intake.check(&request).await?;
    let session = intake.take_in(request, key).await?.session;
    if json {
        return ui::json(&serde_json::json!({"session_id": session}));
    }
    outln!("{session}");
    let program = settings.program();
    errln!("Watch it with: {program} attach {session}");
    if !works && !settings.on_servers() {
        errln!("No fleet runs; it waits for `{program} up` or the next `attach`.");
    }
    Ok(())
}

/// Says who answers, where that is another process.
pub(crate) fn who_works(standby: &Standby, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    if standby.worker() == Worker::Other {
        ui.note(&who_answers(settings)?);
    }
    Ok(())
}

/// A request on its way to its answer.
#[derive(Default)]
pub(crate) struct Asking {
    pub request: AgentRequest,
    pub key: Option<String>,
    pub json: bool,
    pub hints: Vec<Hint>,
    /// The request names the model itself.
    pub model_travels: bool,
    /// Said once nothing is found wrong with the request.
    pub note: Option<String>,
}

impl Asking {
    /// Publishes the request and watches it to its end, with a fleet of our own where none runs.
    pub(crate) async fn answered(
        mut self,
        store: &Store,
        settings: &Settings,
        ui: Ui,
    ) -> Result<(), Failure> {
        let mut signals = Signals::new()?;
        let question = self.request.question.clone();
        let intake = store.intake();
        // What is wrong with the request or with the fleet is said before anything is asked.
        intake.check(&self.request).await?;
        can_be_had(settings, self.model_travels).await?;
        if let (Some(note), false) = (&self.note, self.json) {
            ui.note(note);
        }
        let collection = self.request.collection.clone();
        let standby = keep(store, settings, ui, self.json).await?;
        if !self.model_travels && !self.json {
            who_works(&standby, settings, ui)?;
        }
        let taken = intake.take_in(self.request, self.key).await;
        let taken = match taken {
            Ok(taken) => taken,
            Err(problem) => {
                standby.stop().await;
                return Err(problem.into());
            }
        };
        if taken.repeated && !self.json {
            ui.note("This was asked before; here is what became of it.");
        }
        if !self.json
            && let Some(note) = emptiness(store, &collection, settings).await?
        {
            ui.note(&note);
        }
        for hint in &mut self.hints {
            hint.command = hint.command.replace("SESSION", taken.session.as_str());
        }
        let watch = Watch {
            store,
            session: taken.session,
            question: &question,
            ui,
            json: self.json,
            program: settings.program(),
            hints: self.hints,
            interrupt: Interrupt::Leaves,
        };
        let ended = watch.run(&standby, &mut signals).await;
        signals.drained_or_left(standby.stop()).await;
        ended
    }
}

/// Says so where there is nothing to find.
async fn emptiness(
    store: &Store,
    collection: &CollectionName,
    settings: &Settings,
) -> Result<Option<String>, Failure> {
    let loaded = super::library::collections(store, settings).await?;
    if loaded.iter().any(|known| known == collection.as_str()) {
        return Ok(None);
    }
    let others = match loaded.as_slice() {
        [] => String::new(),
        some => format!(" Loaded are {}.", some.join(", ")),
    };
    Ok(Some(format!(
        "Nothing has been loaded into collection `{collection}`: {} load PATH --collection {}.{others}",
        settings.program(),
        ui::shell_word(collection.as_str())
    )))
}

/// Settings that only the process that works a run can take.
const OF_THE_WORKER: [&str; 7] = [
    "concurrency",
    "max_attempts",
    "model_timeout",
    "model_wait",
    "tool_timeout",
    "lease",
    "max_quads",
];

/// Refuses what was asked for on this side and is not to be had, because another process works the
/// data directory: a question must not go to a model that its asker did not choose.
///
/// A model that travels with the request needs no more than a worker with the same provider.
pub(crate) async fn can_be_had(
    settings: &Settings,
    model_travels: bool,
) -> Result<Option<Holder>, Failure> {
    let of_a_worker = |names: &[&str], who: &str| {
        let given = |name: &&&str| settings.source(name) == Source::Flag;
        match names.iter().find(given) {
            None => Ok(()),
            Some(name) => Err(Failure::usage(format!(
                "{} is for the process that works the run, which is another{who}",
                Source::Flag.of(name)
            ))
            .hint("give it to that one, or leave it out")),
        }
    };
    if settings.on_servers() {
        of_a_worker(&OF_THE_WORKER, "")?;
        let of_the_model = ["model", "base_url"];
        let skipped = usize::from(model_travels);
        of_a_worker(&of_the_model[skipped..], "")?;
        return Ok(None);
    }
    let Some(holder) = FleetLock::holder(settings)? else {
        return Ok(None);
    };
    let data = settings.data.display();
    let pid = holder.pid;
    of_a_worker(&OF_THE_WORKER, &format!(" (process {pid})"))?;
    let base_url = settings.source("base_url");
    let name = if base_url == Source::Default {
        "model"
    } else {
        "base_url"
    };
    let any = settings.model == "auto" && settings.base_url.is_none();
    if any || (settings.model == holder.asked && settings.base_url == holder.base_url) {
        return Ok(Some(holder));
    }
    let provider = |model: &str| model.split(':').next().unwrap_or_default().to_owned();
    let same_provider = provider(&settings.model) == provider(&holder.model);
    // What one script says another one does not.
    let is_script = provider(&settings.model) == "scripted";
    if model_travels && same_provider && !is_script && settings.base_url == holder.base_url {
        return Ok(Some(holder));
    }
    let ours = if is_script {
        settings.model.clone()
    } else {
        choose_model(settings).await?.model.describe()
    };
    if ours == holder.model && settings.base_url == holder.base_url {
        return Ok(Some(holder));
    }
    let theirs = match holder.model.as_str() {
        "" => "a model it is still choosing",
        model => model,
    };
    Err(Failure::usage(format!(
        "another process (process {pid}) works `{data}` with {theirs}, and {} asks for {ours}",
        settings.source(name).of(name)
    ))
    .hint("leave it out, stop that process, or ask on another data directory with `--data`"))
}

/// A fleet for as long as somebody watches.
pub(crate) async fn keep(
    store: &Store,
    settings: &Settings,
    ui: Ui,
    json: bool,
) -> Result<Standby, Failure> {
    // Before it works any of it.
    let left = match &store.embedded {
        Some(queue) => left(queue).await?,
        // On servers whoever asks works nothing.
        None => 0,
    };
    let standby = Standby::start(store, settings, None).await?;
    if let (Worker::Own { model }, false) = (standby.worker(), json) {
        ui.note(&model);
        if left > 0 {
            let left = text::counted(left, "message");
            ui.note(&format!(
                "Waiting here of other runs: {left}. This process works them too, with this model."
            ));
        }
        errln!();
    }
    Ok(standby)
}

/// Messages of runs that wait for a worker.
async fn left(broker: &EmbeddedBroker) -> Result<u64, Failure> {
    let queue = format!("{}/", topics::AGENT_REQUEST.as_str());
    let waiting = broker.waiting().await?;
    let requests = waiting.iter().filter(|one| one.queue.starts_with(&queue));
    Ok(requests.map(|one| one.ready + one.delayed).sum())
}

/// Which model answers where another process works the run, and that a key set here is none of its.
fn who_answers(settings: &Settings) -> Result<String, Failure> {
    let holder = if settings.on_servers() {
        None
    } else {
        FleetLock::holder(settings)?
    };
    let (mut says, model) = match holder {
        Some(Holder {
            pid, model, reason, ..
        }) if !model.is_empty() => {
            let says =
                format!("Process {pid} works this data directory and answers. It says: {reason}");
            (says, model)
        }
        Some(Holder { pid, model, .. }) => {
            let says = "works this data directory and answers, with a model it is still choosing";
            (format!("Process {pid} {says}."), model)
        }
        None => {
            let says =
                "The workers of the servers answer, with the model each of them was started with.";
            (says.to_owned(), String::new())
        }
    };
    if let Some((provider, key)) = key_at_hand()
        && model.split(':').next() != Some(provider)
    {
        says.push_str(&format!(
            " `{key}` is set here and has no effect: it counts where the worker is started."
        ));
    }
    let bounds = settings.bounds_of_fleets();
    if !bounds.is_empty() {
        says.push_str(&format!(
            " Set here and without effect, since they count where the worker is started: {}. Their flags \
             bound this run.",
            bounds.join(", ")
        ));
    }
    Ok(says)
}

pub(crate) async fn attach(named: Named, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let (known, started) = records::session_or_started(&store, &named.session).await?;
    let (session, question) = root_of(&store, &known, started.as_ref()).await?;
    let watch = Watch {
        store: &store,
        session,
        question: &question,
        ui,
        json: named.output.json,
        program: settings.program(),
        hints: Vec::new(),
        interrupt: Interrupt::Leaves,
    };
    let standby = keep(&store, settings, ui, watch.json).await?;
    let ended = watch.run(&standby, &mut signals).await;
    signals.drained_or_left(standby.stop()).await;
    ended
}

/// The root of a session's tree, and what it was asked.
async fn root_of(
    store: &Store,
    session: &SessionId,
    started: Option<&Started>,
) -> Result<(SessionId, String), Failure> {
    let records = Records::new(&*store.documents);
    let root = match (records.step(session, 0).await?, started) {
        (Some(record), _) => record.root,
        (None, Some(started)) => started.root.clone(),
        (None, None) => session.clone(),
    };
    let accepted = records.accepted(&root).await?;
    if let Some(request) = accepted.and_then(|accepted| accepted.asked()) {
        return Ok((root, request.question));
    }
    // It came through no door, straight from the queue.
    let shown = super::sessions::show(store, &root, None).await?;
    Ok((root, shown.question))
}

pub(crate) async fn cancel(named: Named, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    let (session, started) = records::session_or_started(&store, &named.session).await?;
    // Whoever mistypes an id closes no tree of the future.
    super::sessions::show(&store, &session, started.as_ref()).await?;
    let engine = Engine::open(store.clone(), settings, &|_, _| {}).await?;
    let by = super::person::of_system().unwrap_or_default();
    let endings = engine.endings();
    let ended = match &started {
        None => endings.end(&session, "cancelled", &by).await?,
        Some(Started { parent, step, .. }) => {
            let parent = (parent, *step);
            let ending = endings.end_child(parent, &session, "cancelled", &by);
            Box::pin(ending).await?
        }
    };
    let says = match ended {
        Ended::Now => "cancelled",
        Ended::Before(_) => "had ended already",
        // Erased in between.
        Ended::Unknown => return Err(records::missing(&store, &session).await?),
    };
    super::audit::note(&store, &by, "cancel", session.as_str()).await?;
    if named.output.json {
        return ui::json(&serde_json::json!({"session_id": session, "result": says}));
    }
    outln!("{session} {says}");
    match ended {
        Ended::Before(_) => Err(Failure::new(Exit::Failed, "nothing to cancel")),
        Ended::Now | Ended::Unknown => Ok(()),
    }
}
