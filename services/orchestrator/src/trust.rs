//! Who may put requests on the queue, and for whom they ask.
//!
//! A message is the fleet's own where the secret of the fleet signed it. Another may carry a claim: a token of the
//! issuer, which says for whom its producer asks. What such a message says itself of that, and of how far its run
//! has come, is dropped, as at the HTTP door.

use crate::intake;
use agentfleet_broker::{Delivery, FleetSecret};
use agentfleet_config::ConfigStore;
use agentfleet_core::error::Code;
use agentfleet_core::on_behalf;
use agentfleet_documents::Documents;
use agentfleet_issuer::{Issuer, Refused};
use agentfleet_runs::audit::Audit;
use agentfleet_runtime::Disposition;
use agentfleet_runtime::records::decode;
use agentfleet_schema::config::{Rights, action};
use agentfleet_schema::records::{AcceptedRecord, AuditEntry, StepRecord};
use agentfleet_schema::topics::property;
use agentfleet_schema::{
    AgentRequest, CorrelationId, Millis, Principal, RunControl, SessionId, keys,
};
use std::sync::Arc;
use std::time::Duration;

/// Where the issuer or a store is away.
const AGAIN: Duration = Duration::from_secs(5);

const UNCLAIMED: &str =
    "the message carries no `claim`, and this fleet requires one: a token of its issuer";
const MISFIT: &str = "the `signature` of the message does not fit the secret of this fleet: the message was changed on its \
                      way, or another process signed it with another `fleet_secret`";

/// Whose messages count.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// What the fleet signs its own requests with.
    pub secret: Option<FleetSecret>,
    /// Whose tokens count as claims.
    pub issuer: Option<Arc<Issuer>>,
    /// Whether a message that is not the fleet's own has to carry a claim.
    pub requires_claims: bool,
    /// How long a claim may have expired when its message is worked: messages wait.
    pub grace: Duration,
}

/// What a claim is held against.
pub(crate) struct Against<'a> {
    pub documents: &'a dyn Documents,
    pub config: &'a dyn ConfigStore,
    pub audit: &'a Audit,
    pub now: Millis,
}

impl Against<'_> {
    /// Writes down that a message of somebody was refused, where the issuer says whose it is.
    fn note(&self, name: &str, tenant: &str, disposition: &Disposition) {
        let Disposition::DeadLetter(reason) = disposition else {
            return;
        };
        let entry = AuditEntry {
            principal: if name.is_empty() { "nobody" } else { name }.to_owned(),
            tenant: tenant.to_owned(),
            action: "publish to agent-request".to_owned(),
            reason: reason.clone(),
            ..AuditEntry::default()
        };
        self.audit.refused(entry, "not-authorized", self.now);
    }
}

impl Trust {
    /// Settles on whose behalf a message is. `None` means as it says itself; otherwise the message to work in its
    /// place; `Err` says what becomes of one that nobody may send.
    pub(crate) async fn admit(
        &self,
        delivery: &Delivery,
        against: Against<'_>,
    ) -> Result<Option<Delivery>, Disposition> {
        let is_ours = |secret: &FleetSecret| secret.is_ours(delivery);
        if self.secret.as_ref().is_some_and(is_ours) {
            return Ok(None);
        }
        let Some(claim) = delivery.properties.get(property::CLAIM) else {
            if self.requires_claims {
                let is_signed = delivery.properties.contains_key(property::SIGNATURE);
                return Err(refused(if is_signed { MISFIT } else { UNCLAIMED }));
            }
            return Ok(None);
        };
        let principal = self.principal(claim, &against).await?;
        let request = match begun(delivery, &principal) {
            Ok(request) => is_free(&request.session_id, &principal, against.documents)
                .await
                .map(|()| request),
            Err(disposition) => Err(disposition),
        };
        let request = request.inspect_err(|disposition| {
            against.note(&principal.name, &principal.tenant, disposition);
        })?;
        let mut admitted = Delivery {
            // Plain data: writing it as JSON cannot fail.
            payload: serde_json::to_vec(&request).unwrap_or_default().into(),
            ..delivery.clone()
        };
        admitted.properties.remove(property::CLAIM);
        Ok(Some(admitted))
    }

    /// Whose claim it is, if it counts and a role of theirs lets them ask.
    async fn principal(
        &self,
        claim: &str,
        against: &Against<'_>,
    ) -> Result<Principal, Disposition> {
        let Some(issuer) = &self.issuer else {
            return Err(refused(
                "the message carries a claim, and this fleet knows no issuer: set `oidc_issuer`",
            ));
        };
        let checked = Box::pin(issuer.check_late(claim, against.now, self.grace)).await;
        let bearer = match checked {
            Ok(bearer) => bearer,
            Err(error @ Refused::Away(_)) => {
                tracing::warn!(%error, "a claim cannot be checked now");
                return Err(Disposition::RetryAfter(AGAIN));
            }
            Err(error) => {
                let whose = error.whose();
                let disposition = refused(&format!("the claim does not count: {error}"));
                against.note(&whose.name, &whose.tenant, &disposition);
                return Err(disposition);
            }
        };
        let config = against.config.snapshot().await.map_err(|error| {
            tracing::warn!(%error, "the roles of a claim cannot be looked up now");
            Disposition::RetryAfter(AGAIN)
        })?;
        let mut principal = bearer.principal;
        let rights = Rights::of(&bearer.roles, &config);
        if !rights.allow(action::ASK) {
            let (name, ask) = (&principal.name, action::ASK);
            let disposition = refused(&format!("no role of `{name}` allows `{ask}`"));
            against.note(name, &principal.tenant, &disposition);
            return Err(disposition);
        }
        principal.permissions.extend(rights.permissions);
        Ok(principal)
    }
}

/// The request of a message as one that begins a run for a principal.
fn begun(delivery: &Delivery, principal: &Principal) -> Result<AgentRequest, Disposition> {
    if intake::is_cancel(delivery) {
        return Err(refused(
            "a claim lets ask, not cancel: `DELETE /sessions/{id}` does",
        ));
    }
    let parsed = intake::parse(&delivery.payload);
    let mut request = parsed.map_err(|reason| refused(Code::of_refusal(&reason).1))?;
    if request.session_id.is_empty() {
        // The ids of two tenants never meet.
        let id = delivery.properties.get(property::ID);
        let id = id.unwrap_or(&delivery.message_id);
        request.session_id = SessionId::derive(&[&principal.tenant, &principal.name, id]);
    }
    request.step = 0;
    request.parent_session_id = SessionId::default();
    request.correlation_id = CorrelationId::default();
    request.control = RunControl {
        root: request.session_id.clone(),
        ..RunControl::default()
    };
    on_behalf(&mut request, principal)
        .map_err(|(says, right)| refused(&format!("{says}: {right}")))?;
    Ok(request)
}

/// Refuses a session id that is another's.
async fn is_free(
    session: &SessionId,
    principal: &Principal,
    documents: &dyn Documents,
) -> Result<(), Disposition> {
    let wanted = [keys::outcome(session, 0), keys::accepted(session)];
    let found = documents.get_many(&wanted).await.map_err(|error| {
        tracing::warn!(%error, "whose a session is cannot be looked up now");
        Disposition::RetryAfter(AGAIN)
    })?;
    let body = |at: usize| found.get(at).and_then(Option::as_ref);
    let begun = body(0).and_then(|body| decode::<StepRecord>(&wanted[0], body).ok());
    let taken = body(1).and_then(|body| decode::<AcceptedRecord>(&wanted[1], body).ok());
    let asked = taken.as_ref().and_then(AcceptedRecord::asked);
    let of = begun
        .map(|record| record.tenant)
        .or_else(|| asked.map(|asked| asked.tenant().to_owned()));
    if of.is_some_and(|tenant| tenant != principal.tenant) {
        return Err(refused(&format!("session `{session}` is in use elsewhere")));
    }
    Ok(())
}

fn refused(why: &str) -> Disposition {
    Disposition::DeadLetter(Code::NotAuthorized.refusal(why))
}
