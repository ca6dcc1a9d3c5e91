//! `ask`: publish a request and watch it being answered; `demo`, `attach` and `cancel` beside it.

use crate::cli::{Ask, Attach, Demo, Named};
use crate::error::{Exit, Failure};
use crate::fleet::{Engine, Store};
use crate::keeper::{Keeper, Worker};
use crate::settings::Settings;
use crate::ui::{self, Ui};
use agentfleet_aggregator::Ended;
use agentfleet_runtime::client::submit;
use agentfleet_schema::records::Termination;
use agentfleet_schema::{AgentRequest, CollectionName, RunLimits, SessionId};
use agentfleet_tools::dossier;
use agentfleet_tools::library::LoadOptions;
use std::io::Read as _;

/// The worked example.
const EXAMPLE: &str = "Assess the risk profile of Company X as a potential partner";

pub(crate) async fn demo(demo: Demo, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let library = super::library::open(&store, settings).await?;
    let collection = CollectionName::from(dossier::COLLECTION);
    library
        .load_memory(
            "dossier",
            dossier::files(),
            &LoadOptions::new(collection),
            &|_| {},
        )
        .await?;
    if !demo.output.json {
        eprintln!(
            "The dossier of the fictional Company X is loaded (collection `{}`).\nAsking: {EXAMPLE}\n",
            dossier::COLLECTION
        );
    }
    drop(library);
    let request = AgentRequest {
        question: EXAMPLE.to_owned(),
        collection: dossier::COLLECTION.into(),
        streaming: true,
        ..AgentRequest::default()
    };
    let id = uuid::Uuid::new_v4().to_string();
    let session = answer(&store, settings, ui, request, &id, demo.output.json).await?;
    if !demo.output.json {
        outln!(
            "\nThe trace, as a picture:\n  agentfleet trace {session} --format svg > trace.svg\n\
             A question of your own about your own folder:\n  \
             agentfleet load PATH --collection mine\n  \
             agentfleet ask \"...\" --collection mine"
        );
    }
    Ok(())
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
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let request = AgentRequest {
        question,
        pattern: ask.pattern.clone().unwrap_or_default(),
        task_type: ask.task_type.clone().unwrap_or_default(),
        framing: ask.framing.clone().unwrap_or_default(),
        group: (!ask.group.is_empty()).then(|| ask.group.clone()),
        collection: ask.collection.as_str().into(),
        conversation_id: ask.conversation.clone().unwrap_or_default().into(),
        user: ask.user.clone().unwrap_or_default(),
        streaming: true,
        limits: RunLimits {
            max_tokens: ask.max_tokens,
            ..RunLimits::default()
        },
        ..AgentRequest::default()
    };
    let id = ask
        .id
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    if ask.detach {
        let session = submit(&store.broker, request, &id, &[]).await?;
        if ask.output.json {
            return ui::json(&serde_json::json!({"session_id": session}));
        }
        outln!("{session}");
        eprintln!("Watch it with: agentfleet attach {session}");
        return Ok(());
    }
    answer(&store, settings, ui, request, &id, ask.output.json)
        .await
        .map(drop)
}

/// Publishes a request and watches it to its end, with a fleet of our own where none runs.
async fn answer(
    store: &Store,
    settings: &Settings,
    ui: Ui,
    request: AgentRequest,
    id: &str,
    json: bool,
) -> Result<SessionId, Failure> {
    let keeper = Keeper::start(store, settings).await?;
    if let (Worker::Own { model }, false) = (keeper.worker(), json) {
        eprintln!("{model}\n");
    }
    let session = submit(&store.broker, request, id, &[]).await?;
    let ended = super::watch::watch(store, &session, ui, json, keeper.receiver()).await;
    keeper.stop().await;
    ended.map(|()| session)
}

pub(crate) async fn attach(attach: Attach, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let session = SessionId::from(attach.session.as_str());
    let shown = super::sessions::show(&store, &session).await;
    let root = match &shown {
        Ok(shown) => SessionId::from(shown.root.as_str()),
        // It may not have begun yet; its responses come under its own name.
        Err(_) if store.knows(&session).await? => session,
        Err(failure) => return Err(failure.clone()),
    };
    let keeper = Keeper::start(&store, settings).await?;
    let ended = super::watch::watch(&store, &root, ui, attach.output.json, keeper.receiver()).await;
    keeper.stop().await;
    ended
}

pub(crate) async fn cancel(named: Named, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let session = SessionId::from(named.session.as_str());
    let shown = super::sessions::show(&store, &session).await?;
    if shown.root != shown.session {
        return Err(Failure::usage(format!(
            "session `{session}` is a subagent: cancel its root, `{}`",
            shown.root
        )));
    }
    let engine = Engine::open(store, settings, &|_, _| {}).await?;
    let by = std::env::var("USER").unwrap_or_default();
    let ended = engine
        .endings()
        .end(&session, Termination::Cancelled, "cancelled", &by)
        .await?;
    let says = match ended {
        Ended::Now => "cancelled",
        Ended::Before(_) => "had ended already",
        Ended::Unknown => "is closed; it had not begun",
    };
    if named.output.json {
        return ui::json(&serde_json::json!({"session_id": session, "result": says}));
    }
    outln!("{session} {says}");
    match ended {
        Ended::Before(_) => Err(Failure::new(Exit::Failed, "nothing to cancel")),
        Ended::Now | Ended::Unknown => Ok(()),
    }
}
