//! `ask`: publish a request and watch it being answered; `demo`, `attach` and `cancel` beside it.

use crate::cli::Ask;
use crate::error::{Exit, Failure};
use crate::fleet::Store;
use crate::keeper::{Keeper, Worker};
use crate::settings::Settings;
use agentfleet_runtime::client::{Event, Follow, submit};
use agentfleet_schema::{AgentRequest, RunLimits, SessionId};
use std::sync::Arc;

pub(crate) async fn ask(ask: Ask, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(settings)?;
    store.prepare(settings).await?;
    let keeper = Keeper::start(&store, settings).await?;
    if let Worker::Own { model } = keeper.worker() {
        eprintln!("{model}");
    }
    let request = request(&ask);
    let id = ask.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let session = submit(&store.broker, request, &id, &[]).await?;
    let ended = watch(&store, session).await;
    keeper.stop().await;
    ended
}

fn request(ask: &Ask) -> AgentRequest {
    AgentRequest {
        question: ask.question.clone(),
        pattern: ask.pattern.clone().unwrap_or_default(),
        task_type: ask.task_type.clone().unwrap_or_default(),
        framing: ask.framing.clone().unwrap_or_default(),
        group: (!ask.group.is_empty()).then(|| ask.group.clone()),
        collection: ask.collection.as_str().into(),
        conversation_id: ask.conversation.clone().unwrap_or_default().into(),
        user: ask.user.clone().unwrap_or_default(),
        streaming: true,
        limits: RunLimits { max_tokens: ask.max_tokens, ..RunLimits::default() },
        ..AgentRequest::default()
    }
}

async fn watch(store: &Store, session: SessionId) -> Result<(), Failure> {
    let (broker, documents) = (Arc::new(store.broker.clone()), Arc::new(store.documents.clone()));
    let mut follow = Follow::new(broker, documents, session, 0);
    loop {
        let followed = follow.next().await?;
        for event in followed.events {
            match event {
                Event::Chunk { session, text, .. } => eprintln!("{session} … {text}"),
                Event::Message { text, response, .. } => {
                    eprintln!("{} {:?}: {text}", response.session_id, response.message_type);
                }
                Event::Note(note) => eprintln!("{} {}", note.session_id, note.content),
                Event::End { text, error, .. } => {
                    println!("{text}");
                    return match error {
                        Some(error) => Err(Failure::new(Exit::Failed, error.message)),
                        None => Ok(()),
                    };
                }
            }
        }
    }
}
