//! Subagents that were started and have no record of their own yet, as the step tells them that started them.

use crate::problem::Problem;
use crate::state::App;
use agentfleet_runs::{Started, started};
use agentfleet_runtime::records::decode;
use agentfleet_schema::{AgentRequest, SessionId, keys};
use uuid::Uuid;

/// Such a subagent.
#[derive(Debug)]
pub(crate) struct Begun {
    pub of: Started,
    /// Of its parent, and so its own.
    pub tenant: String,
    /// What its first step is to work.
    pub asked: AgentRequest,
}

/// Looks for a subagent where no record of its own is. All fan-outs that wait are read for it, so one caller
/// at a time may cause that, and only with an id that a subagent can have.
pub(crate) async fn find(app: &App, session: &SessionId) -> Result<Option<Begun>, Problem> {
    let id = Uuid::parse_str(session.as_str());
    if !id.is_ok_and(|id| id.get_version_num() == 5) {
        return Ok(None);
    }
    let one = app.searching.lock().await;
    let documents = &*app.parts.intake.documents;
    let found = started(documents, session.as_str()).await?;
    drop(one);
    let mut found = found.into_iter();
    let Some(of) = found.find(|one| one.child.session == *session) else {
        return Ok(None);
    };
    let records = app.parts.records();
    let Some(parent) = records.step(&of.parent, of.step).await? else {
        return Ok(None);
    };
    let Some(publication) = parent.request_for(session) else {
        return Ok(None);
    };
    let key = keys::outcome(&of.parent, of.step);
    Ok(Some(Begun {
        asked: decode(&key, publication.body.as_bytes())?,
        tenant: parent.tenant.clone(),
        of,
    }))
}
