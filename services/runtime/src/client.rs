//! The producer's side: publish a request, follow its responses, put the chunks together.
//!
//! The command line and the HTTP gateway both stand on this. Whoever follows a session may come
//! late, leave, and come back: responses are retained, and reading them consumes nothing.

use crate::Error;
use crate::records::Records;
use agentfleet_broker::{Broker, Durability, Outgoing};
use agentfleet_documents::Documents;
use agentfleet_schema::records::StepRecord;
use agentfleet_schema::topics::{self, property};
use agentfleet_schema::{
    AgentRequest, AgentResponse, Digest, ErrorBody, MessageId, MessageType, SessionId,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Most responses read at once.
const PAGE: usize = 256;

/// Publishes a request under the caller's `id` and returns the session that answers it.
///
/// The same `id` and user give the same session, so publishing twice asks once.
pub async fn submit(
    broker: &dyn Broker,
    mut request: AgentRequest,
    id: &str,
    extra: &[(&str, &str)],
) -> Result<SessionId, Error> {
    if request.session_id.is_empty() {
        request.session_id = SessionId::derive(&["", &request.user, id]);
    }
    let session = request.session_id.clone();
    let mut properties: agentfleet_broker::Properties = extra
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    properties.insert(property::ID.into(), id.to_owned());
    properties.insert(property::SESSION.into(), session.to_string());
    properties.insert(property::STEP.into(), "0".into());
    properties.insert(property::ROOT.into(), session.to_string());
    broker
        .publish(vec![Outgoing {
            topic: topics::AGENT_REQUEST,
            // Wire types are plain data: writing one as JSON cannot fail.
            payload: serde_json::to_vec(&request).unwrap_or_default(),
            properties,
            deliver_at: None,
            durability: Durability::Durable,
        }])
        .await?;
    Ok(session)
}

/// What a follower sees, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Text of a message that is still being said. It counts only once its message comes whole:
    /// a worker that dies leaves chunks behind.
    Chunk {
        session: SessionId,
        message_id: MessageId,
        kind: MessageType,
        text: String,
    },
    /// A complete message; `text` is the whole of it.
    Message {
        message_id: MessageId,
        text: String,
        response: Box<AgentResponse>,
    },
    /// Progress, or the name of a provenance node.
    Note(Box<AgentResponse>),
    /// The end of the run: the root's last message, with its whole text.
    End {
        text: String,
        error: Option<ErrorBody>,
        response: Box<AgentResponse>,
    },
}

/// Follows the responses of one root session.
pub struct Follow {
    broker: Arc<dyn Broker>,
    documents: Arc<dyn Documents>,
    root: SessionId,
    position: i64,
    /// Whether `position` is where the run begins, or behind it.
    placed: bool,
    assembler: Assembler,
    ready: VecDeque<(i64, AgentResponse, Vec<Event>)>,
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follow")
            .field("root", &self.root)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// One response as it was read, and what it means to a follower.
#[derive(Clone, Debug, PartialEq)]
pub struct Followed {
    /// Resume after this position.
    pub position: i64,
    pub response: AgentResponse,
    pub events: Vec<Event>,
}

impl Follow {
    /// Follows from `after`; 0 is the beginning.
    pub fn new(
        broker: Arc<dyn Broker>,
        documents: Arc<dyn Documents>,
        root: SessionId,
        after: i64,
    ) -> Self {
        Self {
            broker,
            documents,
            root,
            position: after,
            placed: after > 0,
            assembler: Assembler::default(),
            ready: VecDeque::new(),
        }
    }

    /// The next response. Waits until there is one. Cancel safe, but what was read of the past by
    /// then may have to be read again.
    pub async fn next(&mut self) -> Result<Followed, Error> {
        if !self.placed {
            self.position = self.beginning().await?;
            self.placed = true;
        }
        loop {
            if let Some((position, response, events)) = self.ready.pop_front() {
                return Ok(Followed {
                    position,
                    response,
                    events,
                });
            }
            let page = self
                .broker
                .read(
                    &topics::AGENT_RESPONSE,
                    self.root.as_str(),
                    self.position,
                    PAGE,
                )
                .await?;
            for retained in page {
                self.position = retained.position;
                let Ok(response) = serde_json::from_slice::<AgentResponse>(&retained.payload)
                else {
                    tracing::warn!(position = retained.position, "a response cannot be read");
                    continue;
                };
                let mut events = self.assembler.take(&response);
                self.mend(&mut events).await?;
                self.ready.push_back((retained.position, response, events));
            }
        }
    }

    /// Where the responses of the run begin, as far as is known: before that there are those of
    /// every other run.
    async fn beginning(&self) -> Result<i64, Error> {
        let accepted = Records::new(&*self.documents).accepted(&self.root);
        let Some(accepted) = accepted.await? else {
            return Ok(0);
        };
        let began = accepted.responses_after;
        // What lies behind the end is of another broker, before a move.
        let is_here = began <= self.broker.mark(&topics::AGENT_RESPONSE).await?;
        Ok(if is_here { began } else { 0 })
    }

    /// Where the chunks did not add up to the committed text, the text comes from the librarian.
    async fn mend(&self, events: &mut [Event]) -> Result<(), Error> {
        for event in events {
            let (text, response) = match event {
                Event::Message { text, response, .. } | Event::End { text, response, .. } => {
                    (text, response)
                }
                Event::Chunk { .. } | Event::Note(_) => continue,
            };
            let (Some(digest), Some(uri)) = (&response.digest, &response.document) else {
                continue;
            };
            if *digest == Digest::of(text.as_bytes()) {
                continue;
            }
            if let Some(kept) = Records::new(&*self.documents).text(uri).await? {
                *text = kept;
            }
        }
        Ok(())
    }
}

/// The responses that a record published, each with its whole text: how a run ended, where what the broker
/// kept of it is gone.
pub async fn recalled(
    documents: &dyn Documents,
    record: &StepRecord,
) -> Result<Vec<(AgentResponse, String)>, Error> {
    // The caller may have named another topic for them.
    let is_other = |topic: &str| {
        let ours = &topics::AGENT_RESPONSE;
        topics::ALL
            .iter()
            .any(|known| known != ours && known.as_str() == topic)
    };
    let published = record.publications.iter();
    let published = published.filter(|publication| !is_other(&publication.topic));
    let mut told = Vec::new();
    for publication in published {
        let Ok(response) = serde_json::from_str::<AgentResponse>(&publication.body) else {
            continue;
        };
        let text = match &response.document {
            Some(uri) => Records::new(documents).text(uri).await?,
            None => None,
        };
        let text = text.unwrap_or_else(|| response.content.clone());
        told.push((response, text));
    }
    Ok(told)
}

/// Puts chunks together, drops repeats and what dead attempts said.
#[derive(Debug, Default)]
pub struct Assembler {
    open: HashMap<MessageId, Vec<(u32, String)>>,
    ended: HashSet<MessageId>,
    dialog_ended: bool,
}

impl Assembler {
    pub fn take(&mut self, response: &AgentResponse) -> Vec<Event> {
        match response.message_type {
            MessageType::Explain => return vec![Event::Note(Box::new(response.clone()))],
            MessageType::Status if !response.end_of_dialog => {
                return if !response.message_id.is_empty()
                    && !self.ended.insert(response.message_id.clone())
                {
                    Vec::new()
                } else {
                    vec![Event::Note(Box::new(response.clone()))]
                };
            }
            _ => {}
        }
        let id = &response.message_id;
        if self.ended.contains(id) {
            return Vec::new();
        }
        if !response.end_of_message {
            let chunks = self.open.entry(id.clone()).or_default();
            let seq = response.seq.unwrap_or(chunks.len() as u32);
            if chunks.iter().any(|(known, _)| *known == seq) {
                return Vec::new();
            }
            chunks.push((seq, response.content.clone()));
            return vec![Event::Chunk {
                session: response.session_id.clone(),
                message_id: id.clone(),
                kind: response.message_type,
                text: response.content.clone(),
            }];
        }
        self.ended.insert(id.clone());
        let mut chunks = self.open.remove(id).unwrap_or_default();
        chunks.sort_by_key(|(seq, _)| *seq);
        // From `seq` 0 the message comes whole, whatever was streamed before.
        let mut text = if response.seq == Some(0) {
            String::new()
        } else {
            chunks.into_iter().map(|(_, text)| text).collect::<String>()
        };
        text.push_str(&response.content);
        if response.end_of_dialog {
            if self.dialog_ended {
                return Vec::new();
            }
            self.dialog_ended = true;
            return vec![Event::End {
                text,
                error: response.error.clone(),
                response: Box::new(response.clone()),
            }];
        }
        vec![Event::Message {
            message_id: id.clone(),
            text,
            response: Box::new(response.clone()),
        }]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn chunk(id: &str, seq: u32, text: &str) -> AgentResponse {
        AgentResponse {
            message_type: MessageType::Answer,
            message_id: id.into(),
            content: text.into(),
            seq: Some(seq),
            ..AgentResponse::default()
        }
    }

    fn end(id: &str, seq: u32, text: &str) -> AgentResponse {
        AgentResponse {
            end_of_message: true,
            end_of_dialog: true,
            ..chunk(id, seq, text)
        }
    }

    fn texts(responses: &[AgentResponse]) -> Vec<String> {
        let mut assembler = Assembler::default();
        responses
            .iter()
            .flat_map(|response| assembler.take(response))
            .filter_map(|event| match event {
                Event::End { text, .. } | Event::Message { text, .. } => Some(text),
                Event::Chunk { .. } | Event::Note(_) => None,
            })
            .collect()
    }

    #[test]
    fn chunks_add_up_whatever_is_repeated() {
        let responses = [
            chunk("a", 0, "it "),
            chunk("a", 0, "it "),
            chunk("a", 1, "is"),
            end("a", 2, " 4"),
        ];
        assert_eq!(texts(&responses), ["it is 4"]);
    }

    #[test]
    fn a_dead_attempt_is_dropped_and_the_dialog_ends_once() {
        let responses = [
            chunk("dead", 0, "it is five"),
            chunk("live", 0, "it is "),
            end("live", 1, "four"),
            end("live", 1, "four"),
            end("other", 0, "again"),
        ];
        assert_eq!(texts(&responses), ["it is four"]);
    }

    #[test]
    fn a_whole_message_replaces_what_was_streamed() {
        assert_eq!(
            texts(&[chunk("a", 0, "wrong"), end("a", 0, "right")]),
            ["right"]
        );
    }
}
