//! Callers with a token of the issuer that the gateway trusts.

use super::door::Known;
use crate::problem::{Code, Problem};
use crate::state::App;
use agentfleet_issuer::{Bearer, Issuer, Refused};
use agentfleet_schema::records::AuditEntry;

/// Whose token it is, if it counts. Why it does not is in the audit log; its sender is told no more than that its
/// time is over, where the issuer did make it.
pub(super) async fn holder(
    app: &App,
    issuer: &Issuer,
    token: &str,
    action: &str,
) -> Result<Known, Problem> {
    let now = app.parts.intake.host.now();
    let refused = match Box::pin(issuer.check(token, now)).await {
        Ok(Bearer { principal, roles }) => {
            return Ok(Known {
                principal,
                roles,
                per_minute: None,
            });
        }
        Err(refused) => refused,
    };
    let problem = match &refused {
        Refused::Away(_) => {
            let says = "the issuer of the tokens does not answer";
            Problem::new(Code::Unavailable, says)
                .hint("try again; the same key or session id is safe to repeat")
        }
        Refused::Expired(_) => Problem::new(Code::NotAuthorized, "the token expired")
            .hint("get a new one from the issuer"),
        Refused::Unproven(_) | Refused::Unfit(..) => {
            Problem::new(Code::NotAuthorized, "the token does not count here")
                .hint("ask who runs the fleet: the audit log says why")
        }
    };
    let whose = refused.whose();
    let name = if whose.name.is_empty() {
        "nobody".to_owned()
    } else {
        whose.name
    };
    let entry = AuditEntry {
        principal: name,
        tenant: whose.tenant,
        action: action.to_owned(),
        reason: format!("{}: {refused}", problem.code.as_str()),
        ..AuditEntry::default()
    };
    app.door.audit.refused(entry, refused.code(), now);
    Err(problem)
}
