//! From a delivery to a request whose ids are settled.
//!
//! What a request does not say is filled in the same way on every redelivery, so that a duplicate
//! meets the records of its first delivery.

use agentfleet_broker::Delivery;
use agentfleet_core::{FleetLimits, Limits};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::topics::property;
use agentfleet_schema::{AgentRequest, Digest, Millis, SessionId};

/// A request as it was delivered.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    pub request: AgentRequest,
    pub digest: Digest,
}

/// Reads a delivery. `Err` says why it is no request.
pub(crate) fn read(delivery: &Delivery) -> Result<Intake, String> {
    let mut request: AgentRequest = serde_json::from_slice(&delivery.payload)
        .map_err(|error| format!("the message is not an `AgentRequest`: {error}"))?;
    if request.session_id.is_empty() {
        request.session_id = SessionId::unnamed(
            delivery.properties.get(property::ID).map(String::as_str),
            &request.user,
            delivery.topic.as_str(),
            delivery
                .properties
                .get(property::ORIGIN_MESSAGE)
                .unwrap_or(&delivery.message_id),
        );
    }
    if request.control.root.is_empty() {
        request.control.root = request.session_id.clone();
    }
    Ok(Intake {
        request,
        digest: Digest::of(&delivery.payload),
    })
}

/// When a message that was put back came first.
pub(crate) fn came_at(delivery: &Delivery) -> Option<Millis> {
    delivery.properties.get(property::SINCE)?.parse().ok()
}

/// Sets what a root carries from its acceptance on.
pub(crate) fn accept(
    request: &mut AgentRequest,
    snapshot: &Snapshot,
    fleet: &FleetLimits,
    now: Millis,
) {
    let control = &mut request.control;
    if control.started_at == 0 {
        control.started_at = now;
    }
    control.config_version.get_or_insert(snapshot.version);
    if control.hard_deadline == 0 {
        let limits = Limits::of(request, snapshot, fleet);
        request.control.hard_deadline = now + limits.run_timeout_ms as Millis;
    }
}
