//! What a handler knows of who sent a request.

use crate::problem::Problem;
use crate::state::App;
use agentfleet_runtime::records::decode;
use agentfleet_schema::config::Rights;
use agentfleet_schema::records::{AcceptedRecord, AuditEntry, StepRecord};
use agentfleet_schema::{Principal, SessionId, keys, uris};
use std::sync::Arc;

/// Who sent a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Whoever holds the token of the data directory, or anybody where nobody is asked.
    Owner,
    Key(Arc<Authenticated>),
}

/// Somebody with an API key, or a token of the issuer.
#[derive(Clone, Debug)]
pub(crate) struct Authenticated {
    pub principal: Principal,
    /// What is being done, such as `GET /sessions/{id}`.
    pub action: String,
    pub rights: Rights,
}

impl Caller {
    pub(crate) fn key(&self) -> Option<&Authenticated> {
        match self {
            Self::Owner => None,
            Self::Key(key) => Some(key),
        }
    }

    /// Empty for the owner.
    pub(crate) fn tenant(&self) -> &str {
        self.key().map_or("", |key| &key.principal.tenant)
    }

    /// Whether data of a tenant is shown to them. What nobody's tenant has is the owner's.
    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.key()
            .is_none_or(|key| key.principal.tenant == tenant || key.rights.see(tenant))
    }

    /// The graphs that they see; `None` means all.
    pub(crate) fn graphs(&self) -> Option<Arc<[String]>> {
        let key = self.key()?;
        let own = std::iter::once(key.principal.tenant.as_str());
        Some(
            own.chain(key.rights.named())
                .map(uris::tenant_graph)
                .collect(),
        )
    }

    /// The entry of the log about what they do now.
    pub(crate) fn entry(&self, subject: &str) -> AuditEntry {
        let Some(key) = self.key() else {
            return AuditEntry {
                principal: "the owner of the data directory".to_owned(),
                subject: subject.to_owned(),
                ..AuditEntry::default()
            };
        };
        AuditEntry {
            principal: key.principal.name.clone(),
            tenant: key.principal.tenant.clone(),
            action: key.action.clone(),
            subject: subject.to_owned(),
            ..AuditEntry::default()
        }
    }
}

impl App {
    /// Writes down that somebody asked for what another tenant has.
    pub(crate) fn conceal(&self, caller: &Caller, subject: &str) {
        let entry = AuditEntry {
            reason: "another-tenant: it is of another tenant; answered as if it did not exist"
                .to_owned(),
            ..caller.entry(subject)
        };
        let now = self.parts.intake.host.now();
        self.door.audit.refused(entry, "another-tenant", now);
    }

    /// Writes down that somebody asked for more than is theirs.
    pub(crate) fn overstepped(&self, caller: &Caller, subject: &str, problem: &Problem) {
        let code = problem.code.as_str();
        let entry = AuditEntry {
            reason: format!("{code}: {}", problem.message),
            ..caller.entry(subject)
        };
        let now = self.parts.intake.host.now();
        self.door.audit.refused(entry, code, now);
    }

    /// Writes down what was done, and by whom. It is done: that it cannot be written down is logged.
    pub(crate) async fn note(&self, caller: &Caller, action: &str, subject: &str, reason: &str) {
        let entry = AuditEntry {
            action: action.to_owned(),
            outcome: "allowed".to_owned(),
            reason: reason.to_owned(),
            ..caller.entry(subject)
        };
        let now = self.parts.intake.host.now();
        if let Err(error) = self.door.audit.write(entry, now).await {
            tracing::error!(%error, action, subject, "the audit log could not be written");
        }
    }
}

/// Whose a session is: by its first step, or else by what was taken in. `None` where neither is known.
pub(crate) async fn tenant_of(app: &App, session: &SessionId) -> Result<Option<String>, Problem> {
    let found = tenants_of(app, &[session]).await?;
    Ok(found.into_iter().next().flatten())
}

/// The same of several.
pub(crate) async fn tenants_of(
    app: &App,
    sessions: &[&SessionId],
) -> Result<Vec<Option<String>>, Problem> {
    let wanted = sessions
        .iter()
        .flat_map(|session| [keys::outcome(session, 0), keys::accepted(session)]);
    let wanted: Vec<String> = wanted.collect();
    let found = app.parts.intake.documents.get_many(&wanted).await?;
    let mut tenants = Vec::new();
    for (names, bodies) in wanted.chunks(2).zip(found.chunks(2)) {
        let ([first, accepted], [begun, taken]) = (names, bodies) else {
            continue;
        };
        tenants.push(match (begun, taken) {
            (Some(body), _) => Some(decode::<StepRecord>(first, body)?.tenant),
            (None, Some(body)) => {
                let asked = decode::<AcceptedRecord>(accepted, body)?.asked();
                asked.map(|asked| asked.tenant().to_owned())
            }
            (None, None) => None,
        });
    }
    Ok(tenants)
}
