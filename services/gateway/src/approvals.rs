//! Calls that wait for a person: what there is, and the answers to them.

use crate::accept::refused_body;
use crate::identity::Caller;
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::session::link;
use crate::state::App;
use crate::{intake, negotiate};
use agentfleet_core::approval::Verdict;
use agentfleet_core::provenance::date_time;
use agentfleet_runs::{Answered, Found, became, tool_of};
use agentfleet_schema::records::{ApprovalAnswer, Decided, PauseRecord};
use agentfleet_schema::{ApprovalId, SessionId};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Who decided, where a caller does not say.
const SOMEBODY: &str = "a caller of the HTTP API";

/// What waits for a person.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApprovalList")]
pub(crate) struct ApprovalList {
    approvals: Vec<ApprovalView>,
}

/// A call that waits for a person.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub(crate) struct ApprovalView {
    id: ApprovalId,
    session_id: SessionId,
    root_session_id: SessionId,
    tool: String,
    arguments: BTreeMap<String, String>,
    /// What the agent thought when it decided on the call.
    #[serde(skip_serializing_if = "String::is_empty")]
    thought: String,
    /// Why a person is asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    asked_at: String,
    expires_at: String,
    /// The answer that counts if nobody gives one in time: `deny` or `approve`.
    default: &'static str,
    /// Where to answer.
    location: String,
    /// Whether a role of whoever lists them lets them answer this one.
    may_answer: bool,
}

impl ApprovalView {
    fn of(pause: PauseRecord, caller: &Caller) -> Self {
        let asked = pause.asked;
        Self {
            may_answer: approves(caller, &asked.tool),
            location: format!("/approvals/{}", asked.id),
            id: asked.id,
            session_id: pause.session,
            root_session_id: pause.root,
            tool: asked.tool,
            arguments: asked.arguments,
            thought: asked.thought,
            reason: asked.reason,
            asked_at: date_time(asked.asked_at),
            expires_at: date_time(asked.expires_at),
            default: asked.default.as_str(),
        }
    }
}

/// What a person says about a call that waits.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ApprovalRequest")]
pub(crate) struct AnswerBody {
    answer: ApprovalAnswer,
    /// Who decides; stands in the record and in the trace.
    #[serde(default)]
    by: String,
    /// Why; where the call is denied, the agent is told.
    #[serde(default)]
    reason: String,
    /// With `edit`: what to call the tool with instead.
    #[serde(default)]
    arguments: Option<BTreeMap<String, String>>,
}

/// A decision about a call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApprovalDecision")]
pub(crate) struct DecisionView {
    id: ApprovalId,
    answer: ApprovalAnswer,
    by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    tool: String,
    arguments: BTreeMap<String, String>,
    decided_at: String,
    /// The session that goes on.
    session: String,
}

impl DecisionView {
    fn of(session: &SessionId, decided: Decided) -> Self {
        Self {
            id: decided.id,
            answer: decided.answer,
            by: decided.by,
            reason: decided.reason,
            tool: decided.tool,
            arguments: decided.arguments,
            decided_at: date_time(decided.at),
            session: link(session, ""),
        }
    }
}

/// `GET /approvals`.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<ApprovalList>, Problem> {
    Params::read(query.as_deref(), &[])?;
    let mut open = app.parts.approvals.open().await?;
    open.retain(|pause| caller.sees(&tenant_of(pause)));
    let shown = open.into_iter();
    let shown = shown.map(|pause| ApprovalView::of(pause, &caller));
    Ok(Json(ApprovalList {
        approvals: shown.collect(),
    }))
}

/// `POST /approvals/{id}`.
pub(crate) async fn answer(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<DecisionView>, Problem> {
    negotiate::require_type(&headers, "application/json")?;
    let body = body.map_err(|rejection| refused_body(&rejection, app.options.max_body))?;
    let refused = |error: serde_json::Error| {
        let code = match error.classify() {
            serde_json::error::Category::Data => Code::InvalidRequest,
            _ => Code::InvalidJson,
        };
        Problem::new(code, format!("the body is no answer: {error}"))
            .hint("{\"answer\": \"approve\", \"by\": \"...\", \"reason\": \"...\"}")
    };
    let body: Value = serde_json::from_slice(&body).map_err(refused)?;
    if let Some(fields) = body.as_object() {
        intake::refuse_unknown("$", fields, &intake::fields_of::<AnswerBody>(&[]))?;
    }
    let body: AnswerBody = serde_json::from_value(body).map_err(refused)?;
    if body.by.chars().any(char::is_control) {
        let says = "`$.by` must have no control characters";
        return Err(Problem::new(Code::InvalidRequest, says));
    }
    let by = match caller.key() {
        // What somebody with a key says of who they are is not asked for.
        Some(key) => key.principal.name.clone(),
        None if body.by.trim().is_empty() => SOMEBODY.to_owned(),
        None => body.by,
    };
    let verdict = Verdict {
        answer: body.answer,
        by,
        reason: body.reason,
        arguments: body.arguments,
    };
    let over = |became: String| {
        let says = format!("approval `{id}` is {became}");
        Problem::new(Code::ApprovalOver, says)
    };
    let pause = match find(&app, &caller, &id).await? {
        Found::Open(pause) => pause,
        Found::Over(_, after) => return Err(over(became(&after))),
        Found::Several(_) | Found::Unknown => {
            return Err(Problem::new(
                Code::UnknownApproval,
                format!("nothing is known of approval `{id}`"),
            )
            .hint("`GET /approvals` lists what waits for a person"));
        }
    };
    may_answer(&app, &caller, &pause)?;
    let tool = tool_of(&*app.parts.intake.config, &pause).await?;
    let answering = app.parts.approvals.answer(&pause, verdict, tool.as_ref());
    match Box::pin(answering).await? {
        Answered::Now(decided) => {
            let (answer, tool) = (format!("answer {}", decided.answer.as_str()), &decided.tool);
            let about = format!(
                "call of `{tool}` in session {}, decided by {}",
                pause.session, decided.by
            );
            app.note(&caller, &answer, &format!("approval {id}"), &about)
                .await;
            Ok(Json(DecisionView::of(&pause.session, decided)))
        }
        Answered::Before(after) => Err(over(became(&after))),
        Answered::TooLate(reason) => Err(Problem::new(
            Code::ApprovalOver,
            format!("it is too late to answer approval `{id}`: {reason}"),
        )),
        Answered::Refused(refused) => Err(Problem::new(Code::InvalidRequest, refused.to_string())),
    }
}

/// Whether a caller may answer calls of a tool.
fn approves(caller: &Caller, tool: &str) -> bool {
    caller.key().is_none_or(|key| key.rights.approve(tool))
}

/// Refuses who may not answer this call, of all that wait.
fn may_answer(app: &App, caller: &Caller, pause: &PauseRecord) -> Result<(), Problem> {
    let tool = &pause.asked.tool;
    if approves(caller, tool) {
        return Ok(());
    }
    let says = format!("no role of the caller may answer calls of `{tool}`");
    let problem = Problem::new(Code::NotPermitted, says)
        .hint("`approves` of a role names the tools; who runs the fleet can say who may answer");
    app.overstepped(caller, &format!("approval {}", pause.asked.id), &problem);
    Err(problem)
}

/// An approval by its whole id: programs name it so. Another tenant's is as one that nothing is known of.
async fn find(app: &App, caller: &Caller, id: &str) -> Result<Found, Problem> {
    let found = app.parts.approvals.find(id).await?;
    let pause = match &found {
        Found::Open(pause) | Found::Over(pause, _) if pause.asked.id.as_str() == id => pause,
        Found::Open(_) | Found::Over(..) | Found::Several(_) | Found::Unknown => {
            return Ok(Found::Unknown);
        }
    };
    if caller.sees(&tenant_of(pause)) {
        return Ok(found);
    }
    app.conceal(caller, id);
    Ok(Found::Unknown)
}

/// Whose the session is that waits.
fn tenant_of(pause: &PauseRecord) -> String {
    let request = pause.request();
    request
        .map(|request| request.tenant().to_owned())
        .unwrap_or_default()
}
