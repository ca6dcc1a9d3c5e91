//! `dlq`: messages that no worker could work, and sending them again.

use crate::cli::Dlq;
use crate::error::{Exit, Failure};
use crate::settings::Settings;
use crate::store::Store;
use crate::ui::{self, Ui};
use agentfleet_aggregator::session_of;
use agentfleet_broker::{Durability, FleetSecret, Outgoing};
use agentfleet_console::text;
use agentfleet_core::error::Code;
use agentfleet_core::provenance::date_time;
use agentfleet_runtime::Records;
use agentfleet_runtime::client::submit;
use agentfleet_schema::records::ParkedRecord;
use agentfleet_schema::topics::{self, Topic, property};
use agentfleet_schema::{AgentRequest, SessionId, keys};
use serde::Serialize;

pub(crate) async fn run(command: Dlq, settings: &Settings, ui: Ui) -> Result<(), Failure> {
    let store = Store::open(settings).await?;
    store.prepare(settings).await?;
    match command {
        Dlq::List { output } => {
            let parked = all(&store).await?;
            if output.json {
                let shown: Vec<Shown<'_>> = parked.iter().map(Shown::of).collect();
                return ui::json(&shown);
            }
            if parked.is_empty() {
                outln!("No parked message.");
                return Ok(());
            }
            let rows = parked.iter().map(|parked| {
                vec![
                    parked.id.clone(),
                    session_of(parked).unwrap_or_default().to_string(),
                    parked.topic.clone(),
                    date_time(parked.parked_at),
                    parked.reason.clone(),
                ]
            });
            ui.table(&["ID", "SESSION", "TOPIC", "PARKED AT", "REASON"], 2, rows);
            Ok(())
        }
        Dlq::Show { id } => ui::json(&Shown::of(&one(&store, &id).await?)),
        Dlq::Redrive {
            ids,
            all: everything,
        } => {
            let parked = if everything {
                all(&store).await?
            } else {
                let mut parked = Vec::new();
                for id in ids {
                    parked.push(one(&store, &id).await?);
                }
                parked
            };
            let mut kept = 0;
            for parked in &parked {
                if let Err(failure) = redrive(&store, parked).await {
                    errln!("error: {failure}");
                    kept += 1;
                }
            }
            match kept {
                0 => Ok(()),
                kept => Err(Failure::new(
                    Exit::Failed,
                    format!(
                        "{kept} of {} stay parked",
                        text::counted(parked.len() as u64, "message")
                    ),
                )),
            }
        }
    }
}

/// A message with the session that it was to work.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(skip_serializing_if = "SessionId::is_empty")]
    session: SessionId,
    #[serde(flatten)]
    parked: &'a ParkedRecord,
}

impl<'a> Shown<'a> {
    fn of(parked: &'a ParkedRecord) -> Self {
        let session = session_of(parked).unwrap_or_default();
        Self { session, parked }
    }
}

pub(super) async fn all(store: &Store) -> Result<Vec<ParkedRecord>, Failure> {
    let keys = store.documents.list(&keys::parked("")).await?;
    let bodies = store.documents.get_many(&keys).await?;
    let mut parked: Vec<ParkedRecord> = bodies
        .into_iter()
        .flatten()
        .filter_map(|body| serde_json::from_slice(&body).ok())
        .collect();
    parked.sort_by_key(|parked| parked.parked_at);
    Ok(parked)
}

async fn one(store: &Store, id: &str) -> Result<ParkedRecord, Failure> {
    let key = keys::parked(id);
    let parked = Records::new(&*store.documents).read(&key).await?;
    parked.ok_or_else(|| {
        Failure::not_found(format!("there is no parked message `{id}`"))
            .hint("`agentfleet dlq list` shows what there is")
    })
}

/// Publishes a parked message again and forgets it. The step it asked for has ended, so a request
/// of a root becomes a new run; a subagent's cannot come to anything and is refused.
async fn redrive(store: &Store, parked: &ParkedRecord) -> Result<(), Failure> {
    if parked.binary {
        return Err(Failure::usage(format!(
            "message `{}` is no text and cannot be worked again: {}",
            parked.id, parked.reason
        )));
    }
    if Code::of_refusal(&parked.reason).0 == Code::NotAuthorized {
        let is_ours =
            |secret: &FleetSecret| secret.fits(parked.body.as_bytes(), &parked.properties);
        if store.secret.as_ref().is_some_and(is_ours) {
            // A process with another secret had refused it: the step goes on as if it had not.
            refuse_ended(store, parked).await?;
            return publish_again(store, parked).await;
        }
        // Sent again by the fleet it would count as the fleet's own.
        return Err(Failure::usage(format!(
            "message `{}` was refused because nothing shows who sent it: its sender has to publish it again, with a claim that counts",
            parked.id
        )));
    }
    if parked.topic == topics::AGENT_REQUEST.as_str() {
        let mut request: AgentRequest = serde_json::from_str(&parked.body).map_err(|error| {
            Failure::usage(format!(
                "message `{}` is still no `AgentRequest`: {error}",
                parked.id
            ))
        })?;
        if request.is_subagent() {
            return Err(Failure::usage(format!(
                "message `{}` belongs to a subagent whose fan-out is over: ask the root's question again",
                parked.id
            )));
        }
        // Derived from the message, so that sending it twice asks once.
        let session = SessionId::derive(&["redriven", &parked.id]);
        request.session_id = session.clone();
        request.step = 0;
        request.history.clear();
        // For whom it is asked is not for whoever sends it again to change.
        request.control = agentfleet_schema::RunControl {
            principal: request.control.principal.take(),
            ..agentfleet_schema::RunControl::default()
        };
        if !request.task_type.is_empty() {
            // It had been routed: let it be routed again.
            request.pattern.clear();
            request.task_type.clear();
            request.framing.clear();
        }
        let id = parked
            .properties
            .get(property::ID)
            .cloned()
            .unwrap_or_default();
        submit(&*store.broker, request, &id, &[]).await?;
        outln!("{} is asked again as session {session}", parked.id);
    } else {
        return publish_again(store, parked).await;
    }
    store.documents.delete(&[keys::parked(&parked.id)]).await?;
    Ok(())
}

/// Refuses a message whose run was cancelled or ran out of time while it was parked: no worker would work it.
async fn refuse_ended(store: &Store, parked: &ParkedRecord) -> Result<(), Failure> {
    let Some(session) = session_of(parked) else {
        return Ok(());
    };
    let Some(end) = Records::new(&*store.documents).end(&session).await? else {
        return Ok(());
    };
    let outcome = end.outcome.as_str();
    Err(Failure::usage(format!(
        "message `{}` belongs to session `{session}`, which has ended (`{outcome}`): ask its question again",
        parked.id
    )))
}

/// Publishes a parked message as it was, and forgets it.
async fn publish_again(store: &Store, parked: &ParkedRecord) -> Result<(), Failure> {
    store
        .broker
        .publish(vec![Outgoing {
            topic: Topic::named(parked.topic.clone()),
            payload: parked.body.clone().into_bytes(),
            properties: parked.properties.clone(),
            deliver_at: None,
            durability: Durability::Durable,
        }])
        .await?;
    outln!("{} was published again to {}", parked.id, parked.topic);
    store.documents.delete(&[keys::parked(&parked.id)]).await?;
    Ok(())
}
