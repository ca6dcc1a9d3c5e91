//! `ask --json`: one event a line, for programs.
//!
//! Each line is an object with `event` first, then `at` (RFC 3339, UTC, when it was read) and `session`
//! (whose it is). Fields may be added; none is renamed, removed or given another meaning.
//!
//! | `event` | further fields |
//! |---|---|
//! | `chunk` | `message_id`, `kind`, `text`: a piece of a message that is still being said. It counts only once its `message` or `end` comes: a worker that dies leaves chunks behind |
//! | `message` | `message_id`, `kind`, `text` (the whole of it), `document`, `step`, `parent` |
//! | `status` | `text`, `goal`, `step`, `parent`: progress in words |
//! | `explain` | `node`, `graph`, `step`, `parent`: a provenance node that was just committed |
//! | `end` | `text` (the whole answer), `error` (`code`, `message`, `hint`), `document`, `model`, `in_token`, `out_token`, `sources` (what was read for it, as `uri`, `title` and `cited`, those that it names first), `unsourced` (true where it rests on nothing that was read), `state` and `termination` (as over HTTP: `partial` and `budget-exhausted`): the last line of a run |
//!
//! `kind` is `thought`, `action`, `observation`, `answer` or `error`. A field without a value is left
//! out, except `error` and `text` of `end`.

use crate::trace::model::{Conclusion, Instant};
use crate::trace::{Listed, Trace, divided};
use agentfleet_runtime::client::Event;
use agentfleet_schema::records::RunState;
use agentfleet_schema::{AgentResponse, ErrorBody, MessageId, MessageType, Millis, SessionId};
use serde::Serialize;

#[serde_with::skip_serializing_none]
#[derive(Default, Serialize)]
struct Row<'a> {
    event: &'static str,
    at: Instant,
    session: Option<&'a SessionId>,
    parent: Option<&'a SessionId>,
    step: Option<u32>,
    message_id: Option<&'a MessageId>,
    kind: Option<MessageType>,
    goal: Option<&'a str>,
    text: Option<&'a str>,
    node: Option<&'a str>,
    graph: Option<&'a str>,
    document: Option<&'a str>,
    #[expect(clippy::option_option, reason = "absent and null differ in JSON")]
    error: Option<Option<Fault<'a>>>,
    model: Option<&'a str>,
    in_token: Option<u64>,
    out_token: Option<u64>,
    sources: Option<Vec<Listed<'a>>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unsourced: bool,
    state: Option<RunState>,
    termination: Option<&'a str>,
}

#[derive(Serialize)]
struct Fault<'a> {
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
}

/// An event as one line, without its line feed. `trace` is that of a run which has ended.
pub fn line(event: &Event, at: Millis, trace: Option<&Trace>) -> String {
    let row = match event {
        Event::Chunk {
            session,
            message_id,
            kind,
            text,
        } => Row {
            message_id: Some(message_id),
            kind: Some(*kind),
            text: Some(text),
            ..Row::new("chunk", at, session)
        },
        Event::Message {
            message_id,
            text,
            response,
        } => Row {
            message_id: Some(message_id),
            kind: Some(response.message_type),
            text: Some(text),
            document: response.document.as_deref(),
            ..Row::of("message", at, response)
        },
        Event::Note(response) if response.message_type == MessageType::Explain => Row {
            node: response.explain_id.as_deref(),
            graph: response.explain_graph.as_deref(),
            ..Row::of("explain", at, response)
        },
        Event::Note(response) => Row {
            goal: Some(response.subagent_goal.as_str()).filter(|goal| !goal.is_empty()),
            text: Some(&response.content),
            ..Row::of("status", at, response)
        },
        Event::End {
            text,
            error,
            response,
        } => {
            let session = trace.and_then(|trace| trace.session(&response.session_id));
            let concluded = session.and_then(|session| session.conclusion.as_ref());
            Row {
                text: Some(text),
                sources: trace
                    .filter(|_| error.is_none())
                    .map(|trace| divided(trace, text)),
                unsourced: concluded.is_some_and(|end| end.unsourced),
                state: concluded.map(Conclusion::state),
                termination: concluded.and_then(|end| end.termination.as_deref()),
                error: Some(error.as_ref().map(Fault::of)),
                document: response.document.as_deref(),
                model: response.model.as_deref(),
                in_token: response.in_token,
                out_token: response.out_token,
                ..Row::of("end", at, response)
            }
        }
    };
    // Plain data with text keys: writing it as JSON cannot fail.
    serde_json::to_string(&row).unwrap_or_default()
}

impl<'a> Row<'a> {
    fn new(event: &'static str, at: Millis, session: &'a SessionId) -> Self {
        Self {
            event,
            at: Instant(at),
            session: Some(session),
            ..Self::default()
        }
    }

    fn of(event: &'static str, at: Millis, response: &'a AgentResponse) -> Self {
        let parent = Some(&response.parent_session_id).filter(|parent| !parent.is_empty());
        Self {
            parent,
            step: response.step,
            ..Self::new(event, at, &response.session_id)
        }
    }
}

impl<'a> Fault<'a> {
    fn of(error: &'a ErrorBody) -> Self {
        Self {
            code: &error.code,
            message: &error.message,
            hint: error.hint.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> AgentResponse {
        AgentResponse {
            message_type: MessageType::Thought,
            session_id: "s1".into(),
            parent_session_id: "s0".into(),
            step: Some(2),
            ..AgentResponse::default()
        }
    }

    #[test]
    fn each_event_is_one_documented_line() {
        let chunk = Event::Chunk {
            session: "s1".into(),
            message_id: "m".into(),
            kind: MessageType::Answer,
            text: "two\nlines \u{1b}".into(),
        };
        let message = Event::Message {
            message_id: "m".into(),
            text: "whole".into(),
            response: Box::new(AgentResponse {
                document: Some("urn:d".into()),
                ..response()
            }),
        };
        let explain = Event::Note(Box::new(AgentResponse {
            message_type: MessageType::Explain,
            explain_id: Some("urn:n".into()),
            explain_graph: Some("urn:g".into()),
            ..response()
        }));
        let status = Event::Note(Box::new(AgentResponse {
            message_type: MessageType::Status,
            content: "Completed: answered".into(),
            subagent_goal: "look".into(),
            ..response()
        }));
        let end = Event::End {
            text: "done".into(),
            error: None,
            response: Box::new(AgentResponse {
                parent_session_id: SessionId::default(),
                model: Some("m1".into()),
                in_token: Some(7),
                out_token: Some(3),
                ..response()
            }),
        };
        let error = ErrorBody {
            code: "timeout".into(),
            message: "too late".into(),
            hint: Some("ask again".into()),
        };
        let failed = Event::End {
            text: "too late (ask again)".into(),
            error: Some(error),
            response: Box::new(AgentResponse {
                parent_session_id: SessionId::default(),
                step: None,
                ..response()
            }),
        };
        for (event, expected) in [
            (
                chunk,
                r#"{"event":"chunk","at":"1970-01-01T00:00:01.500Z","session":"s1","message_id":"m","kind":"answer","text":"two\nlines \u001b"}"#,
            ),
            (
                message,
                r#"{"event":"message","at":"1970-01-01T00:00:01.500Z","session":"s1","parent":"s0","step":2,"message_id":"m","kind":"thought","text":"whole","document":"urn:d"}"#,
            ),
            (
                explain,
                r#"{"event":"explain","at":"1970-01-01T00:00:01.500Z","session":"s1","parent":"s0","step":2,"node":"urn:n","graph":"urn:g"}"#,
            ),
            (
                status,
                r#"{"event":"status","at":"1970-01-01T00:00:01.500Z","session":"s1","parent":"s0","step":2,"goal":"look","text":"Completed: answered"}"#,
            ),
            (
                end,
                r#"{"event":"end","at":"1970-01-01T00:00:01.500Z","session":"s1","step":2,"text":"done","error":null,"model":"m1","in_token":7,"out_token":3}"#,
            ),
            (
                failed,
                r#"{"event":"end","at":"1970-01-01T00:00:01.500Z","session":"s1","text":"too late (ask again)","error":{"code":"timeout","message":"too late","hint":"ask again"}}"#,
            ),
        ] {
            let line = line(&event, 1_500, None);
            assert_eq!(line, expected);
        }
    }
}
