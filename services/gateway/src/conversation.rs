//! A conversation: its exchanges, newest first.

use crate::identity::Caller;
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::session::link;
use crate::state::App;
use agentfleet_core::provenance::date_time;
use agentfleet_runs::{Asked, exchanges};
use agentfleet_schema::{ConversationId, SessionId, keys};
use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;

const MAX_LIMIT: usize = 100;

/// `GET /conversations/{id}`.
pub(crate) async fn show(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<ConversationView>, Problem> {
    let params = Params::read(query.as_deref(), &["limit", "before"])?;
    let limit = params.limit(MAX_LIMIT)?;
    let before = params.one("before")?.unwrap_or_default();
    let conversation = ConversationId::from(id);
    // The same name of another tenant is another conversation.
    let tenant = caller.tenant();
    let place = format!("{}{before}", keys::exchanges(tenant, &conversation));
    let is_place = keys::exchange_of(&place).is_some_and(|(at, session)| {
        session.is_well_formed() && keys::exchange(tenant, &conversation, at, &session) == place
    });
    if !before.is_empty() && !is_place {
        return Err(Problem::parameter(
            "before",
            "take it from `next` of the page before",
        ));
    }
    let documents = &*app.parts.intake.documents;
    let mut found = exchanges(documents, tenant, &conversation, before, limit + 1).await?;
    if found.is_empty() && before.is_empty() {
        let says = format!("nothing was asked in conversation `{conversation}`");
        return Err(Problem::new(Code::UnknownConversation, says)
            .hint("an exchange is listed once the first step of its run is committed"));
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| {
        let name: String =
            form_urlencoded::byte_serialize(conversation.as_str().as_bytes()).collect();
        let name = name.replace('+', "%20");
        format!("/conversations/{name}?limit={limit}&before={}", last.place)
    });
    Ok(Json(ConversationView {
        exchanges: found.into_iter().map(ExchangeView::of).collect(),
        conversation_id: conversation,
        next,
    }))
}

/// The exchanges of a conversation, newest first.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Conversation")]
pub(crate) struct ConversationView {
    conversation_id: ConversationId,
    exchanges: Vec<ExchangeView>,
    /// Where older ones are; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConversationExchange")]
struct ExchangeView {
    session_id: SessionId,
    asked_at: String,
    /// The question, its first 1,000 bytes.
    question: String,
    /// `open` while the run has not ended, `answered`, or `ended` without an answer.
    state: &'static str,
    /// Of a run that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    /// Why a run that ended has no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    location: String,
}

impl ExchangeView {
    fn of(asked: Asked) -> Self {
        let (state, answer, reason) = match asked.text {
            None => ("open", None, None),
            answer if asked.is_answered => ("answered", answer, None),
            reason => ("ended", None, reason),
        };
        Self {
            location: link(&asked.session, ""),
            session_id: asked.session,
            asked_at: date_time(asked.asked_at),
            question: asked.question,
            state,
            answer,
            reason,
        }
    }
}
