//! The events of a run, as server-sent events.
//!
//! Responses are retained by the broker, and reading them consumes nothing: a reader may come late,
//! leave, and resume after the last position it saw. A stream reads on only when its client has
//! taken what was read before, so a slow client holds one page, and no worker ever waits for it.

use crate::identity::Caller;
use crate::params::Params;
use crate::problem::{Code, Problem};
use crate::session::{self, Seen, link};
use crate::state::{App, OpenStream};
use agentfleet_runtime::client::{self, Follow, Followed};
use agentfleet_schema::records::StepRecord;
use agentfleet_schema::{AgentResponse, MessageType, SessionId, topics};
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, StreamExt};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// How long a run that ended may stay silent before its end is told from its record instead: what
/// the broker retained of it is gone.
const QUIET: Duration = Duration::from_secs(1);
/// What a client that loses the connection waits before it comes back.
const RETRY: Duration = Duration::from_secs(2);
const LAST_EVENT_ID: &str = "last-event-id";
/// Keeps a reverse proxy from holding events back.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `GET /sessions/{id}/events`.
pub(crate) async fn follow(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = Params::read(query.as_deref(), &["after"])?;
    let after = match headers.get(LAST_EVENT_ID) {
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            text.parse().map_err(|_| {
                Problem::new(
                    Code::InvalidRequest,
                    format!("header `Last-Event-ID`: `{text}` is not the id of an event"),
                )
            })?
        }
        None => params
            .number("after", "the id of an event")?
            .unwrap_or_default(),
    };
    if app.stop.is_cancelled() {
        return Err(Problem::stopping());
    }
    let session = SessionId::new(id);
    let seen = session::look_as(&app, &caller, &session).await?;
    seen.require_root("/events")?;
    if read_to_the_end(&app, &seen, after).await? {
        // What tells an `EventSource` not to come back.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let open = app.stream()?;
    Ok(stream(&app, &session, after, seen.ended().cloned(), open))
}

/// Whether a reader at `after` has read the last event there will be.
async fn read_to_the_end(app: &App, seen: &Seen, after: i64) -> Result<bool, Problem> {
    if after <= 0 || seen.ended().is_none() {
        return Ok(false);
    }
    let key = seen.session.as_str();
    let topic = topics::AGENT_RESPONSE;
    let last = app.parts.intake.broker.read(&topic, key, after - 1, 1);
    let Ok(found) = tokio::time::timeout(QUIET, last).await else {
        return Ok(false);
    };
    Ok(found?.first().is_some_and(|retained| {
        retained.position == after
            && serde_json::from_slice::<AgentResponse>(&retained.payload)
                .is_ok_and(|response| response.end_of_dialog)
    }))
}

/// A stream of a root session's events. `ended` is the record that ended it, if one has.
pub(crate) fn stream(
    app: &App,
    session: &SessionId,
    after: i64,
    ended: Option<StepRecord>,
    open: OpenStream,
) -> Response {
    let (broker, documents) = (
        Arc::clone(&app.parts.intake.broker),
        Arc::clone(&app.parts.intake.documents),
    );
    let events = link(session, "/events");
    let greeting = format!("session {session}; resume with GET {events} and Last-Event-ID");
    let telling = Telling {
        follow: Follow::new(broker, documents, session.clone(), after),
        app: app.clone(),
        events,
        last: after,
        ended,
        ready: VecDeque::from([Event::default().retry(RETRY).comment(greeting)]),
        done: false,
        _open: open,
    };
    let events = stream::unfold(telling, Telling::next).map(Ok::<_, Infallible>);
    let alive = KeepAlive::new()
        .interval(app.options.keep_alive)
        .text("still here");
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    response
        .headers_mut()
        .insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// One stream being told.
struct Telling {
    follow: Follow,
    app: App,
    /// Where to resume.
    events: String,
    /// Position of the last event told.
    last: i64,
    ended: Option<StepRecord>,
    ready: VecDeque<Event>,
    done: bool,
    _open: OpenStream,
}

impl Telling {
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some((event, self));
            }
            if self.done {
                return None;
            }
            let over = self.ended.is_some();
            tokio::select! {
                biased;
                () = self.app.stop.cancelled() => self.leave("the gateway is stopping"),
                followed = self.follow.next() => match followed {
                    Ok(followed) => self.tell(followed),
                    Err(error) => {
                        tracing::warn!(%error, events = self.events, "an event stream broke off");
                        self.leave("the events cannot be read now");
                    }
                },
                () = tokio::time::sleep(QUIET), if over => self.recall().await,
            }
        }
    }

    fn tell(&mut self, followed: Followed) {
        let Followed {
            position,
            response,
            events,
        } = followed;
        // Nothing in it for a reader: a repeat, or what a dead attempt said.
        let Some(event) = events.into_iter().next() else {
            return;
        };
        let text = match event {
            client::Event::Message { text, .. } | client::Event::End { text, .. } => Some(text),
            client::Event::Chunk { .. } | client::Event::Note(_) => None,
        };
        self.last = position;
        self.done = response.end_of_dialog;
        self.ready
            .push_back(event_of(&response, text).id(position.to_string()));
    }

    /// The run goes on, the stream does not.
    fn leave(&mut self, why: &str) {
        let (events, last) = (&self.events, self.last);
        let how =
            format!("{why}; the run goes on: resume with GET {events} and Last-Event-ID: {last}");
        self.ready.push_back(Event::default().comment(how));
        self.done = true;
    }

    /// Tells the end from the record that holds it.
    async fn recall(&mut self) {
        let Some(record) = self.ended.take() else {
            return;
        };
        let told = client::recalled(&*self.app.parts.intake.documents, &record).await;
        let why = match &told {
            Ok(_) => "the events of this run are no longer kept; this is how it ended",
            Err(error) => {
                tracing::warn!(%error, events = self.events, "the end of a run cannot be read");
                "the events of this run are no longer kept, and its end cannot be read now"
            }
        };
        self.ready.push_back(Event::default().comment(why));
        for (response, text) in told.unwrap_or_default() {
            self.ready.push_back(event_of(&response, Some(text)));
        }
        self.done = true;
    }
}

/// An event: the response as it is, and with the end of a message its whole text.
fn event_of(response: &AgentResponse, text: Option<String>) -> Event {
    // Wire types are plain data: writing one as JSON cannot fail.
    let mut data = serde_json::to_value(response).unwrap_or_default();
    if response.end_of_message
        && let Some(fields) = data.as_object_mut()
    {
        let text = text.unwrap_or_else(|| response.content.clone());
        fields.insert("text".to_owned(), text.into());
    }
    Event::default()
        .event(name_of(response.message_type))
        .data(data.to_string())
}

fn name_of(kind: MessageType) -> &'static str {
    match kind {
        MessageType::Thought => "thought",
        MessageType::Action => "action",
        MessageType::Observation => "observation",
        MessageType::Answer => "answer",
        MessageType::Explain => "explain",
        MessageType::Status => "status",
        MessageType::Error => "error",
        MessageType::Unknown => "unknown",
    }
}
