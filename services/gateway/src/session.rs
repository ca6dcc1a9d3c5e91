//! What became of a session, read from its records: so a result is found whenever it came, and
//! after any restart.

use crate::begun::{self, Begun};
use crate::identity::Caller;
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::state::App;
use agentfleet_core::error::for_people;
use agentfleet_core::provenance::date_time;
use agentfleet_runs::Ended;
use agentfleet_runtime::client::Follow;
use agentfleet_runtime::records::decode;
use agentfleet_schema::records::{
    AcceptedRecord, Call, ClosedRecord, Concluded, PartConfidence, RunState, StepRecord,
    Termination,
};
use agentfleet_schema::{AgentRequest, SessionId, keys, uris};
use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// What the store holds of a session.
#[derive(Debug)]
pub(crate) struct Seen {
    pub session: SessionId,
    pub accepted: Option<AcceptedRecord>,
    pub closed: Option<ClosedRecord>,
    pub first: Option<StepRecord>,
    /// The newest committed step; `first` again if there is one step only.
    pub newest: Option<StepRecord>,
    pub steps: usize,
    /// Of a subagent that has none of the others yet.
    pub begun: Option<Begun>,
}

impl Seen {
    /// The record that ended the session.
    pub(crate) fn ended(&self) -> Option<&StepRecord> {
        self.newest
            .as_ref()
            .filter(|record| record.outcome.is_terminal())
    }

    /// The root of the session's tree.
    pub(crate) fn root(&self) -> &SessionId {
        let first = self.first.as_ref().map(|record| &record.root);
        let begun = || self.begun.as_ref().map(|begun| &begun.of.root);
        first.or_else(begun).unwrap_or(&self.session)
    }

    /// What was asked, as far as that is known without a step.
    fn asked(&self) -> Option<AgentRequest> {
        match &self.begun {
            Some(begun) => Some(begun.asked.clone()),
            None => self.accepted.as_ref().and_then(AcceptedRecord::asked),
        }
    }

    /// Whose it is; empty where nobody was asked who they are.
    fn tenant(&self) -> String {
        match (&self.first, &self.begun) {
            (Some(record), _) => record.tenant.clone(),
            (None, Some(begun)) => begun.tenant.clone(),
            (None, None) => self
                .asked()
                .map(|asked| asked.tenant().to_owned())
                .unwrap_or_default(),
        }
    }

    fn is_root(&self) -> bool {
        self.root() == &self.session
    }

    /// Refuses a subagent where only a root makes sense.
    pub(crate) fn require_root(&self, suffix: &str) -> Result<(), Problem> {
        if self.is_root() {
            return Ok(());
        }
        let (session, root) = (&self.session, self.root());
        Err(Problem::new(
            Code::NotARoot,
            format!("session `{session}` is a subagent of root session `{root}`"),
        )
        .hint(format!("use `{}`", link(root, suffix))))
    }
}

/// Where a session is found.
pub(crate) fn link(session: &SessionId, suffix: &str) -> String {
    format!("/sessions/{}{suffix}", uris::encode(session.as_str()))
}

/// Reads what there is; a session that nothing is known of is a problem.
pub(crate) async fn look(app: &App, session: &SessionId) -> Result<Seen, Problem> {
    let steps = app.parts.records().committed(session).await?;
    let mut wanted = vec![
        keys::tombstone(session),
        keys::accepted(session),
        keys::closed(session),
    ];
    if let Some(newest) = steps.last() {
        wanted.push(keys::outcome(session, 0));
        wanted.push(keys::outcome(session, *newest));
    }
    let found = app.parts.intake.documents.get_many(&wanted).await?;
    let body = |at: usize| found.get(at).and_then(Option::as_ref);
    if let Some(tombstone) = body(0) {
        return Err(Problem::erased(session.as_str(), tombstone));
    }
    let record = |at: usize| body(at).map(|body| decode::<StepRecord>(&wanted[at], body));
    let mut seen = Seen {
        session: session.clone(),
        accepted: body(1).map(|body| decode(&wanted[1], body)).transpose()?,
        closed: body(2).map(|body| decode(&wanted[2], body)).transpose()?,
        first: record(3).transpose()?,
        newest: record(4).transpose()?,
        steps: steps.len(),
        begun: None,
    };
    if seen.accepted.is_none() && seen.newest.is_none() {
        let begun = begun::find(app, session).await?;
        seen.begun = Some(begun.ok_or_else(|| Problem::unknown_session(session.as_str()))?);
    }
    Ok(seen)
}

/// The same for who may not see every session: another tenant's is as one that nothing is known of. Of one that
/// was erased nobody knows any more whose it was.
pub(crate) async fn look_as(
    app: &App,
    caller: &Caller,
    session: &SessionId,
) -> Result<Seen, Problem> {
    let unknown = || Problem::unknown_session(session.as_str());
    let seen = match look(app, session).await {
        Err(problem) if problem.code == Code::SessionErased && caller.key().is_some() => {
            return Err(unknown());
        }
        seen => seen?,
    };
    if caller.sees(&seen.tenant()) {
        return Ok(seen);
    }
    app.conceal(caller, session.as_str());
    Err(unknown())
}

/// How a session is, and what became of it. What is not known, or does not apply, is left out.
#[serde_with::skip_serializing_none]
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Session")]
pub(crate) struct View {
    session_id: SessionId,
    state: RunState,
    finished: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    question: String,
    answer: Option<String>,
    error: Option<ErrorView>,
    termination: Option<&'static str>,
    /// Something is missing from the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    confidence: Vec<PartConfidence>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagents: Vec<SubagentView>,
    #[serde(skip_serializing_if = "String::is_empty")]
    task_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pattern: String,
    model: Option<String>,
    steps: usize,
    /// Tokens of this session and all below it, so far.
    tokens: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    user: String,
    collection: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    conversation_id: String,
    root_session_id: SessionId,
    parent_session_id: Option<SessionId>,
    closing: Option<ClosingView>,
    accepted_at: Option<String>,
    started_at: Option<String>,
    updated_at: Option<String>,
    finished_at: Option<String>,
    links: Links,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionError")]
struct ErrorView {
    code: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Subagent")]
struct SubagentView {
    session_id: SessionId,
    goal: String,
    /// `working` until it is known to have ended; `missing` if nobody waited for it any more.
    status: &'static str,
    location: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Closing")]
struct ClosingView {
    cause: String,
    at: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionLinks")]
struct Links {
    #[serde(rename = "self")]
    this: String,
    events: String,
    trace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
}

/// What to show of a session.
async fn view(app: &App, caller: &Caller, seen: &Seen) -> Result<View, Problem> {
    let session = &seen.session;
    let state = RunState::of(seen.newest.as_ref());
    let accepted = seen.accepted.as_ref();
    let asked = seen.asked();
    let asked = asked.as_ref();
    let begun = seen.begun.as_ref().map(|begun| &begun.of);
    let first = seen.first.as_ref();
    let newest = seen.newest.as_ref();
    let routed = first.and_then(|record| record.routed.as_ref());
    let end = seen.ended().and_then(StepRecord::concluded);
    let document = uris::answer_document(session);
    let text = match seen.ended() {
        Some(_) => app.parts.records().text(&document).await?,
        None => None,
    };
    let answered = matches!(state, RunState::Answered | RunState::Partial);
    let has_error = state.is_final() && !answered;
    // The owner of the data directory has to mend what is wrong.
    let is_told_all = seen.tenant().is_empty() || caller.key().is_none();
    let error = has_error.then(|| error_of(end, text.as_deref(), is_told_all));
    let conversation = first.map(|r| &r.conversation);
    Ok(View {
        session_id: session.clone(),
        state,
        finished: state.is_final(),
        question: match begun {
            Some(begun) => begun.child.goal.clone(),
            None => known(routed.map(|r| &r.question), asked.map(|r| &r.question)),
        },
        answer: text.filter(|_| answered),
        error,
        termination: end.map(|end| end.termination.as_str()),
        partial: end.is_some_and(|end| end.partial),
        confidence: end.map(|end| end.confidence.clone()).unwrap_or_default(),
        subagents: newest.map(subagents).unwrap_or_default(),
        task_type: known(routed.map(|r| &r.task_type), asked.map(|r| &r.task_type)),
        pattern: known(routed.map(|r| &r.pattern), asked.map(|r| &r.pattern)),
        model: newest.and_then(model),
        steps: seen.steps,
        tokens: newest.map_or(0, |record| record.total.tokens),
        user: known(accepted.map(|r| &r.user), first.map(|r| &r.principal)),
        collection: known(first.map(|r| &r.collection), asked.map(|r| &r.collection)),
        conversation_id: known(conversation, asked.map(|r| &r.conversation_id)),
        root_session_id: seen.root().clone(),
        parent_session_id: first
            .and_then(|r| r.parent.as_ref())
            .map(|p| p.session.clone())
            .or_else(|| begun.map(|begun| begun.parent.clone())),
        closing: seen
            .closed
            .as_ref()
            .filter(|_| !state.is_final())
            .map(|closed| ClosingView {
                cause: closed.cause.clone(),
                at: date_time(closed.at),
                by: closed.by.clone(),
            }),
        accepted_at: accepted.map(|record| date_time(record.accepted_at)),
        started_at: first.map(|record| date_time(record.began())),
        updated_at: newest.map(|record| date_time(record.committed_at)),
        finished_at: seen.ended().map(|record| date_time(record.committed_at)),
        links: Links {
            this: link(session, ""),
            events: link(seen.root(), "/events"),
            trace: link(session, "/trace"),
            answer: answered.then(|| crate::document::link(&document)),
        },
    })
}

/// What the records of steps say, or else what was asked.
fn known<T: ToString>(recorded: Option<&T>, asked: Option<&T>) -> String {
    let said = recorded.or(asked);
    said.map(ToString::to_string).unwrap_or_default()
}

fn error_of(end: Option<&Concluded>, text: Option<&str>, is_told_all: bool) -> ErrorView {
    if let Some(mut error) = end.and_then(|end| end.error.clone()) {
        if !is_told_all {
            error = for_people(&error, "");
        }
        return ErrorView {
            code: error.code,
            message: error.message,
            hint: error.hint,
        };
    }
    let termination = end.map_or(Termination::Error, |end| end.termination);
    let message = text
        .unwrap_or("the session ended without an answer")
        .to_owned();
    ErrorView {
        code: termination.as_str().to_owned(),
        message,
        hint: None,
    }
}

fn model(record: &StepRecord) -> Option<String> {
    record.calls.iter().rev().find_map(|call| match call {
        Call::Model { model, .. } => Some(model.clone()),
        Call::Tool { .. } | Call::Document { .. } => None,
    })
}

/// The subagents of the fan-out that waits, or that the end was drawn from.
fn subagents(newest: &StepRecord) -> Vec<SubagentView> {
    let subagent = |session: &SessionId, goal: &str, status| SubagentView {
        session_id: session.clone(),
        goal: goal.to_owned(),
        status,
        location: link(session, ""),
    };
    let working = newest.children().iter();
    let working = working.map(|child| subagent(&child.session, &child.goal, "working"));
    let read = newest.concluded().and_then(|end| end.fan_in.as_ref());
    let read = read.into_iter().flat_map(|fan_in| {
        let members = fan_in.members.iter();
        let members =
            members.map(|member| subagent(&member.session, &member.goal, member.status.as_str()));
        let missing = fan_in.missing.iter();
        members.chain(missing.map(|child| subagent(&child.session, &child.goal, "missing")))
    });
    working.chain(read).collect()
}

/// `GET /sessions/{id}`.
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<View>, Problem> {
    let params = Params::read(query.as_deref(), &["wait"])?;
    let wait: u64 = params
        .number("wait", "a whole number of seconds")?
        .unwrap_or_default();
    let most = app.options.max_wait;
    if Duration::from_secs(wait) > most {
        return Err(Problem::parameter(
            "wait",
            format!("at most {} seconds", most.as_secs()),
        ));
    }
    let session = SessionId::new(id);
    let mut seen = look_as(&app, &caller, &session).await?;
    if wait > 0 && seen.ended().is_none() {
        seen.require_root("?wait=")?;
        until_ended(&app, &session, Duration::from_secs(wait)).await?;
        seen = look_as(&app, &caller, &session).await?;
    }
    view(&app, &caller, &seen).await.map(Json)
}

/// Waits until a root session's dialog ends, the time is over, or the gateway stops.
async fn until_ended(app: &App, session: &SessionId, wait: Duration) -> Result<(), Problem> {
    let (broker, documents) = (
        Arc::clone(&app.parts.intake.broker),
        Arc::clone(&app.parts.intake.documents),
    );
    let mut follow = Follow::new(broker, documents, session.clone(), 0);
    let ended = async {
        while !follow.next().await?.response.end_of_dialog {}
        Ok(())
    };
    tokio::select! {
        biased;
        () = app.stop.cancelled() => Ok(()),
        ended = ended => ended,
        () = tokio::time::sleep(wait) => Ok(()),
    }
}

/// `DELETE /sessions/{id}`.
pub(crate) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<CancelView>, Problem> {
    let params = Params::read(query.as_deref(), &["by"])?;
    let by = params.one("by")?.unwrap_or("a caller of the HTTP API");
    if by.len() > 200 || by.chars().any(char::is_control) {
        return Err(Problem::parameter(
            "by",
            "at most 200 bytes, and no control characters",
        ));
    }
    // What somebody with a key says of who they are is not asked for.
    let by = caller.key().map_or(by, |key| &key.principal.name);
    let session = SessionId::new(id);
    let seen = look_as(&app, &caller, &session).await?;
    let endings = &app.parts.endings;
    let ended = match &seen.begun {
        None => endings.end(&session, "cancelled", by).await?,
        Some(Begun { of, .. }) => {
            let parent = (&of.parent, of.step);
            Box::pin(endings.end_child(parent, &session, "cancelled", by)).await?
        }
    };
    let cancel = match ended {
        Ended::Now => CancelResult::Cancelled,
        Ended::Before(_) => CancelResult::AlreadyEnded,
        // Erased in between.
        Ended::Unknown => return Err(Problem::unknown_session(session.as_str())),
    };
    app.note(&caller, "cancel", session.as_str(), "").await;
    let seen = look(&app, &session).await?;
    let state = RunState::of(seen.newest.as_ref());
    Ok(Json(CancelView {
        location: link(&session, ""),
        session_id: session,
        cancel,
        state,
    }))
}

/// What `DELETE /sessions/{id}` answers with.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cancellation")]
pub(crate) struct CancelView {
    session_id: SessionId,
    cancel: CancelResult,
    state: RunState,
    location: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum CancelResult {
    /// The run ended by this request.
    Cancelled,
    /// It had ended; its result stands.
    AlreadyEnded,
}
