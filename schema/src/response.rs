//! `AgentResponse`: what callers read, in chunks.

use crate::id::{ConversationId, Digest, MessageId, SessionId};
use crate::tolerant::null_default;
use crate::triples::Triple;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::apply;

/// What a response chunk belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MessageType {
    Thought,
    /// The call an iteration makes, in short: the tool and its arguments.
    Action,
    Observation,
    #[serde(alias = "final-answer")]
    Answer,
    /// Names a provenance node that was just committed.
    Explain,
    /// Progress of a session: routed, fanned out, completed, synthesising.
    Status,
    Error,
    /// A type of a newer peer, or none.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One chunk. Chunks of one `message_id` belong together, in the order of `seq`.
///
/// `end_of_message` and `end_of_dialog` come only after the step was committed, and name the
/// `message_id` that won: what other attempts streamed is to be dropped.
#[apply(
    Option<_> => #[serde(default, skip_serializing_if = "Option::is_none")],
    Vec<_> => #[serde(default, deserialize_with = "null_default")]
        #[serde(skip_serializing_if = "Vec::is_empty")],
)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentResponse {
    #[serde(default, deserialize_with = "null_default")]
    pub message_type: MessageType,
    #[serde(default, deserialize_with = "null_default")]
    pub content: String,
    #[serde(default, deserialize_with = "null_default")]
    pub end_of_message: bool,
    /// Set once in a run, on the root session's last message.
    #[serde(default, deserialize_with = "null_default")]
    pub end_of_dialog: bool,
    #[serde(default, deserialize_with = "null_default")]
    pub message_id: MessageId,
    /// Which session produced this chunk.
    #[serde(default, deserialize_with = "null_default")]
    pub session_id: SessionId,
    pub explain_id: Option<String>,
    pub explain_graph: Option<String>,
    pub explain_triples: Vec<Triple>,
    pub error: Option<ErrorBody>,
    pub in_token: Option<u64>,
    pub out_token: Option<u64>,
    pub model: Option<String>,

    /// The root session of the tree. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "SessionId::is_empty"
    )]
    pub root_session_id: SessionId,
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "SessionId::is_empty"
    )]
    pub parent_session_id: SessionId,
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "ConversationId::is_empty"
    )]
    pub conversation_id: ConversationId,
    /// The focused goal of a subagent, on its status messages. Ours.
    #[serde(
        default,
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub subagent_goal: String,
    /// The sessions of the subagents, in order, on the messages that tell of a fan-out. Ours.
    pub subagents: Vec<SessionId>,
    /// The step that produced this chunk. Ours.
    pub step: Option<u32>,
    /// Position of the chunk within its message, from 0. Ours.
    pub seq: Option<u32>,
    /// SHA-256 of the whole text, on `end_of_message`. Ours.
    pub digest: Option<Digest>,
    /// Where the whole text lies, on `end_of_message`. Ours.
    pub document: Option<String>,
}

/// An error as it reaches a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// A stable code, such as `invalid-request`; the peer reads it as the error's type.
    #[serde(rename = "type", default, deserialize_with = "null_default")]
    pub code: String,
    /// One sentence that says what was wrong.
    #[serde(default, deserialize_with = "null_default")]
    pub message: String,
    /// What would be right, or what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
