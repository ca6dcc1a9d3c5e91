//! The undertaker: dead-lettering is an outcome, not a place where runs are lost.
//!
//! It is the only consumer of the dead-letter topic. It ends the message's step as failed (or finds
//! it over), so that a parent's fan-in sees a terminal sibling and a caller gets an answer, and
//! parks the message for people.

use crate::{Error, Parts};
use agentfleet_broker::{Delivery, Durability, Outgoing, Properties};
use agentfleet_core::deadline::next_hop;
use agentfleet_core::error::Code;
use agentfleet_core::{FleetLimits, limits};
use agentfleet_runs::Endings;
use agentfleet_runtime::{Disposition, Handler};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::ParkedRecord;
use agentfleet_schema::tolerant::MOST_COUNTED;
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{AgentRequest, Ancestor, SessionId, hex, keys};
use async_trait::async_trait;
use serde_json::{Map, Value};

/// The worker of `dead-letter`.
#[derive(Clone, Debug)]
pub struct Undertaker {
    parts: Parts,
    endings: Endings,
    limits: FleetLimits,
}

impl Undertaker {
    pub fn new(parts: Parts, limits: FleetLimits) -> Self {
        Self {
            endings: Endings::new(parts.clone()),
            parts,
            limits,
        }
    }

    async fn bury(&self, delivery: &Delivery) -> Result<(), Error> {
        let property = |name: &str| delivery.properties.get(name).map(String::as_str);
        let reason = property(property::REASON).unwrap_or("delivered too often");
        let origin = property(property::ORIGIN).unwrap_or_default();
        let is_request = origin == topics::AGENT_REQUEST.as_str();
        let request = is_request.then(|| {
            request_of(
                &delivery.payload,
                &delivery.properties,
                &delivery.message_id,
            )
        });
        if let Some(request) = &request
            && self.parts.records().is_erased(request.root()).await?
        {
            // What was erased is not kept for people either.
            return Ok(());
        }
        // First, so that people see it whatever becomes of its run.
        self.park(delivery, origin, reason).await?;
        if Code::of_refusal(reason).0 == Code::NotAuthorized {
            // Nobody may end a run by a message that they may not send.
            return match &request {
                Some(request) => self.bound(&request.session_id, &delivery.payload).await,
                None => Ok(()),
            };
        }
        if let Some(request) = request {
            let properties = delivery.properties.clone();
            self.endings.fail(request, properties, reason).await?;
        }
        Ok(())
    }

    /// Sets the deadline of a run that a door took in and whose very message is dead: its first step would have
    /// set it. Until then people may send the message again, or end the run themselves.
    async fn bound(&self, session: &SessionId, message: &[u8]) -> Result<(), Error> {
        let records = self.parts.records();
        let Some(taken) = records.accepted(session).await? else {
            return Ok(());
        };
        let Some(mut asked) = taken.asked() else {
            return Ok(());
        };
        let is_it = taken.publication.body.as_bytes() == message;
        if !is_it || records.step(session, 0).await?.is_some() {
            return Ok(());
        }
        let from = taken.accepted_at;
        limits::accept(&mut asked, &Snapshot::default(), &self.limits, from);
        let due = asked.control.hard_deadline;
        let mut properties = taken.publication.properties;
        properties.insert(property::KIND.into(), property::KIND_UNBEGUN.into());
        properties.insert(property::DUE.into(), due.to_string());
        let deadline = Outgoing {
            topic: topics::DEADLINE,
            payload: b"{}".to_vec(),
            properties,
            deliver_at: Some(next_hop(self.parts.host.now(), due)),
            durability: Durability::Durable,
        };
        self.parts.broker.publish(vec![deadline]).await?;
        Ok(())
    }

    async fn park(&self, delivery: &Delivery, origin: &str, reason: &str) -> Result<(), Error> {
        let text = String::from_utf8(delivery.payload.to_vec());
        let binary = text.is_err();
        let body = text.unwrap_or_else(|error| hex(error.as_bytes()));
        // The message's own id: what was parked twice is there once.
        let id = delivery.properties.get(property::ORIGIN_MESSAGE);
        let id = id.filter(|id| id.len() <= property::MAX_ID);
        let id = id.unwrap_or(&delivery.message_id);
        let record = ParkedRecord {
            id: id.to_owned(),
            topic: origin.to_owned(),
            reason: reason.to_owned(),
            parked_at: self.parts.host.now(),
            properties: without_claim(&delivery.properties),
            body,
            binary,
            redriven_as: None,
        };
        let body = serde_json::to_vec(&record).unwrap_or_default();
        self.parts.documents.ensure(&keys::parked(id), body).await?;
        Ok(())
    }
}

/// A token is kept nowhere: who reads dead letters could come in with it.
fn without_claim(properties: &Properties) -> Properties {
    let mut properties = properties.clone();
    if let Some(claim) = properties.get_mut(property::CLAIM) {
        "(taken out)".clone_into(claim);
    }
    properties
}

/// The session of a parked message, also of one that cannot be read: the one that was ended for it, which
/// stands in the response and among the sessions. `None` where it has none.
pub fn session_of(parked: &ParkedRecord) -> Option<SessionId> {
    let session = if parked.topic == topics::AGENT_REQUEST.as_str() {
        let body = if parked.binary { "" } else { &*parked.body };
        request_of(body.as_bytes(), &parked.properties, &parked.id).session_id
    } else {
        SessionId::from(parked.properties.get(property::SESSION)?.as_str())
    };
    Some(session).filter(|session| !session.is_empty())
}

/// The request of a dead letter: from its body, or from its properties where the body cannot be
/// read. `id` is that of the message.
fn request_of(body: &[u8], properties: &Properties, id: &str) -> AgentRequest {
    let property = |name: &str| properties.get(name).map(String::as_str);
    let mut request = serde_json::from_slice(body).unwrap_or_else(|_| stand_in(body, properties));
    // What is no session would become part of keys that a store refuses.
    let control = &mut request.control;
    control.ancestors.retain(|one| one.session.is_well_formed());
    for id in [
        &mut control.root,
        &mut control.fan_in_session,
        &mut request.parent_session_id,
    ] {
        if !id.is_well_formed() {
            *id = SessionId::default();
        }
    }
    if !request.session_id.is_well_formed() {
        request.session_id = SessionId::unnamed(
            property(property::ID),
            &request.user,
            topics::AGENT_REQUEST.as_str(),
            property(property::ORIGIN_MESSAGE).unwrap_or(id),
        );
    }
    request
}

/// What can be known of a request that cannot be read: who asked, and whom an answer reaches.
fn stand_in(body: &[u8], properties: &Properties) -> AgentRequest {
    let fields: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let property = |name: &str| properties.get(name).map(String::as_str);
    let session = |name: &str| {
        let session = SessionId::from(property(name).unwrap_or_default());
        if session.is_well_formed() {
            session
        } else {
            SessionId::default()
        }
    };
    let number = |name| {
        property(name)
            .and_then(|n| n.parse().ok())
            .map_or(0, |n: u32| n.min(MOST_COUNTED))
    };
    let mut request = AgentRequest {
        session_id: session(property::SESSION),
        correlation_id: property(property::CORRELATION).unwrap_or_default().into(),
        parent_session_id: session(property::PARENT),
        step: number(property::STEP),
        user: field("user").to_owned(),
        conversation_id: field("conversation_id").into(),
        ..AgentRequest::default()
    };
    if request.session_id.is_empty() {
        request.session_id = field("session_id").into();
    }
    request.control.root = session(property::ROOT);
    request.control.index = number(property::INDEX);
    if !request.parent_session_id.is_empty() {
        request.control.ancestors = vec![Ancestor {
            session: request.parent_session_id.clone(),
            step: number(property::PARENT_STEP),
        }];
    }
    request
}

#[async_trait]
impl Handler for Undertaker {
    async fn handle(&self, delivery: &Delivery) -> Disposition {
        match self.bury(delivery).await {
            Ok(()) => Disposition::Ack,
            Err(error) if error.is_too_large() => {
                // Parked already; to try again would come to the same.
                tracing::error!(message = %delivery.message_id, %error, "a run ends untold");
                Disposition::Ack
            }
            Err(error) => {
                tracing::warn!(message = %delivery.message_id, %error, "dead letter put off");
                error.disposition()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parked_message_is_of_the_session_that_was_ended_for_it() {
        let parked = |topic: &str, body: &str, told: &str| ParkedRecord {
            id: "m".to_owned(),
            topic: topic.to_owned(),
            body: body.to_owned(),
            properties: [(property::SESSION.to_owned(), told.to_owned())].into(),
            ..ParkedRecord::default()
        };
        let requests = topics::AGENT_REQUEST;
        let request = requests.as_str();
        let unnamed = SessionId::unnamed(None, "", request, "m").to_string();
        for (topic, body, told, expected) in [
            (request, r#"{"session_id": "own"}"#, "told", Some("own")),
            (request, "no JSON", "told", Some("told")),
            (
                request,
                r#"{"session_id": "own", "step": "x"}"#,
                "no/session",
                Some("own"),
            ),
            (request, "no JSON", "no/session", Some(&*unnamed)),
            ("explainability", "{}", "told", Some("told")),
            ("explainability", "{}", "", None),
        ] {
            let session = session_of(&parked(topic, body, told));
            assert_eq!(
                session.as_ref().map(SessionId::as_str),
                expected,
                "{topic} {body}"
            );
        }
    }
}
