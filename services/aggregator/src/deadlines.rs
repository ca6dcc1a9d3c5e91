//! Deadlines: delayed messages that come due. They fire even if no sibling ever finished (LV-1).
//!
//! A wait of more than some minutes is made in hops. What nobody waits for any more goes no further.

use crate::completion::{Place, place};
use crate::fan_in::FanIn;
use crate::{Error, Parts};
use agentfleet_broker::{Delivery, Durability, Outgoing, Properties};
use agentfleet_core::deadline::next_hop;
use agentfleet_runs::{Approvals, Endings};
use agentfleet_runtime::{CLOCK_SKEW, Disposition, Handler};
use agentfleet_schema::topics::property;
use agentfleet_schema::{FAR, Millis, keys, millis};
use async_trait::async_trait;

/// The worker of `agent-deadline`.
#[derive(Clone, Debug)]
pub struct Deadlines {
    parts: Parts,
    fan_in: FanIn,
    endings: Endings,
    approvals: Approvals,
}

impl Deadlines {
    pub fn new(parts: Parts) -> Self {
        Self {
            fan_in: FanIn::new(parts.clone()),
            endings: Endings::new(parts.clone()),
            approvals: Approvals::new(parts.clone()),
            parts,
        }
    }

    async fn due(&self, delivery: &Delivery) -> Result<Disposition, Error> {
        let properties = &delivery.properties;
        let Ok(place) = place(properties, property::SESSION, property::STEP) else {
            return Ok(Disposition::DeadLetter(
                "a deadline without session and step".into(),
            ));
        };
        let due: Millis = properties
            .get(property::DUE)
            .and_then(|due| due.parse().ok())
            .map_or(0, |due: Millis| due.clamp(0, FAR));
        let now = self.parts.host.now();
        if now < due {
            if self.is_settled(&place, properties).await? {
                return Ok(Disposition::Ack);
            }
            // A hop on the way, or early, as a broker may be after a restart: the instant in the
            // record counts.
            let again = Outgoing {
                topic: delivery.topic.clone(),
                payload: delivery.payload.to_vec(),
                properties: properties.clone(),
                deliver_at: Some(next_hop(now, due + millis(CLOCK_SKEW))),
                durability: Durability::Durable,
            };
            self.parts.broker.publish(vec![again]).await?;
            return Ok(Disposition::Ack);
        }
        match properties.get(property::KIND).map(String::as_str) {
            Some(property::KIND_JOIN) => {
                self.fan_in.evaluate(&place, &[]).await?;
            }
            Some(property::KIND_HARD) => {
                self.endings.end(&place.0, "deadline", "").await?;
            }
            Some(property::KIND_UNBEGUN) => {
                // Sent again meanwhile, it has a deadline of its own.
                if self.parts.records().step(&place.0, 0).await?.is_none() {
                    self.endings.end(&place.0, "deadline", "").await?;
                }
            }
            Some(property::KIND_CANCEL) => {
                let by = properties.get(property::BY).map_or("", String::as_str);
                self.endings.end(&place.0, "cancelled", by).await?;
            }
            Some(property::KIND_APPROVAL) => self.approvals.expire(&place.0, place.1).await?,
            other => {
                return Ok(Disposition::DeadLetter(format!(
                    "unknown kind of deadline `{}` (known: `{}`, `{}`, `{}`)",
                    other.unwrap_or_default(),
                    property::KIND_JOIN,
                    property::KIND_HARD,
                    property::KIND_APPROVAL,
                )));
            }
        }
        Ok(Disposition::Ack)
    }
}

impl Deadlines {
    /// Whether what this deadline would end is over, and told.
    async fn is_settled(
        &self,
        (session, step): &Place,
        properties: &Properties,
    ) -> Result<bool, Error> {
        let records = self.parts.records();
        if properties.get(property::KIND).map(String::as_str) == Some(property::KIND_APPROVAL) {
            return self.approvals.is_settled(session, *step).await;
        }
        if properties.get(property::KIND).map(String::as_str) == Some(property::KIND_JOIN) {
            let marker = keys::fan_in_published(session, *step);
            return Ok(records.has(&marker).await?);
        }
        Ok(match records.end_from(session, *step).await? {
            Some(end) => records.is_published(session, end.step).await?,
            None => false,
        })
    }
}

#[async_trait]
impl Handler for Deadlines {
    async fn handle(&self, delivery: &Delivery) -> Disposition {
        match self.due(delivery).await {
            Ok(disposition) => disposition,
            Err(error) => {
                tracing::warn!(message = %delivery.message_id, %error, "deadline put off");
                error.disposition()
            }
        }
    }
}
