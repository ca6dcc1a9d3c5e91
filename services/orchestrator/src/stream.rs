//! Chunks for whoever watches, while the model talks and while a tool runs.
//!
//! They go out before anything is committed, under a message id of this attempt, and may be lost:
//! the whole text comes with the record. What is still unsent when the model ends is not sent as a
//! chunk at all, and a call that is over at once is not told ahead, so what is instant costs no extra
//! message.

use agentfleet_broker::{Broker, Durability, Outgoing};
use agentfleet_core::StreamAs;
use agentfleet_core::commit::{Streamed, carried};
use agentfleet_core::react_format::{Gathered, Part, Splitter};
use agentfleet_models::TextSink;
use agentfleet_runtime::Host;
use agentfleet_schema::topics::{Topic, property};
use agentfleet_schema::{AgentRequest, AgentResponse, MessageId, MessageType};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::mpsc;

/// What a model says before it calls a tool is shorter than this, in bytes. More than this without
/// a marker is taken for the answer, and shown as it comes.
const PREFACE: usize = 240;

/// A chunk waits so long for more text, unless it has this many bytes.
const LINGER: Duration = Duration::from_millis(50);
const ENOUGH: usize = 64;

/// Streams one model reply.
pub(crate) struct Stream<'a> {
    pub broker: &'a dyn Broker,
    pub host: &'a dyn Host,
    pub attempt: Attempt<'a>,
    pub kind: StreamAs,
    /// Text without markers is the answer: the model has other means to call a tool.
    pub unmarked_is_answer: bool,
}

/// Receives the model's text on its own task and hands it on without waiting.
struct Sink {
    pieces: Mutex<Option<mpsc::UnboundedSender<String>>>,
}

impl TextSink for Sink {
    fn text(&self, piece: &str) {
        if let Ok(guard) = self.pieces.lock()
            && let Some(sender) = guard.as_ref()
        {
            // The receiver outlives the call; without one nobody watches.
            drop(sender.send(piece.to_owned()));
        }
    }
}

impl Stream<'_> {
    /// Runs `chat` with a sink, publishing what arrives while it runs. Pieces that arrive soon after each
    /// other, or while a chunk is being published, go out together in the next one.
    pub(crate) async fn run<'c, T, F, C>(&self, streamed: &mut Streamed, chat: C) -> T
    where
        C: FnOnce(std::sync::Arc<dyn TextSink>) -> F,
        F: Future<Output = T> + 'c,
    {
        let (sender, mut pieces) = mpsc::unbounded_channel();
        let sink = std::sync::Arc::new(Sink {
            pieces: Mutex::new(Some(sender)),
        });
        let chat = chat(sink);
        tokio::pin!(chat);
        let mut splitter = Splitter::default();
        let mut whole = Gathered::default();
        let (mut unmarked, mut is_answer) = (String::new(), false);
        loop {
            let first = tokio::select! {
                biased;
                result = &mut chat => return result,
                Some(first) = pieces.recv() => first,
            };
            let mut text = first;
            while let Ok(more) = pieces.try_recv() {
                text.push_str(&more);
            }
            // The first chunk says that something comes, and goes out at once.
            let is_first = streamed.thought_chunks + streamed.answer_chunks == 0;
            let mut rest = self.host.rest(LINGER);
            while !is_first && text.len() < ENOUGH {
                tokio::select! {
                    biased;
                    () = &mut rest => break,
                    result = &mut chat => return result,
                    Some(more) = pieces.recv() => text.push_str(&more),
                }
            }
            let parts = match self.kind {
                StreamAs::Nothing => continue,
                StreamAs::React => {
                    let parts = splitter.push(&text);
                    if self.unmarked_is_answer && splitter.is_unmarked() {
                        unmarked.push_str(&text);
                        is_answer |= unmarked.len() > PREFACE;
                        if is_answer {
                            let text = whole.push(&std::mem::take(&mut unmarked));
                            vec![(Part::Answer, text)]
                        } else {
                            continue;
                        }
                    } else {
                        parts
                    }
                }
                StreamAs::Thought => {
                    let mut parts = splitter.push(&text);
                    parts.retain(|(part, _)| *part == Part::Thought);
                    parts
                }
                StreamAs::Answer => {
                    vec![(Part::Answer, whole.push(&text))]
                }
            };
            let chunks = self.chunks(parts, streamed);
            if chunks.is_empty() {
                continue;
            }
            let publishing = self.broker.publish(chunks);
            tokio::pin!(publishing);
            // The reply may end meanwhile; what was counted as streamed is still sent.
            tokio::select! {
                biased;
                sent = &mut publishing => streamed.has_gap |= !arrived(sent),
                result = &mut chat => {
                    streamed.has_gap |= !arrived(publishing.await);
                    return result;
                }
            }
        }
    }

    fn chunks(&self, parts: Vec<(Part, String)>, streamed: &mut Streamed) -> Vec<Outgoing> {
        let mut chunks: Vec<(Part, String)> = Vec::new();
        for (part, text) in parts {
            match chunks.last_mut() {
                Some((last, so_far)) if *last == part => so_far.push_str(&text),
                _ => chunks.push((part, text)),
            }
        }
        chunks
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(part, text)| {
                let (kind, name, so_far, count) = match part {
                    Part::Thought => (
                        MessageType::Thought,
                        "thought",
                        &mut streamed.thought,
                        &mut streamed.thought_chunks,
                    ),
                    Part::Answer => (
                        MessageType::Answer,
                        "answer",
                        &mut streamed.answer,
                        &mut streamed.answer_chunks,
                    ),
                };
                so_far.push_str(&text);
                let seq = *count;
                *count += 1;
                self.attempt.chunk(kind, name, seq, text)
            })
            .collect()
    }
}

/// Whose chunks these are.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub request: &'a AgentRequest,
    pub properties: &'a BTreeMap<String, String>,
    pub nonce: &'a str,
    pub responses: &'a Topic,
}

impl Attempt<'_> {
    /// Tells a call while it runs: one chunk, which like every other counts only once its message
    /// ends. Answers whether it went out.
    pub(crate) async fn tell_action(&self, broker: &dyn Broker, text: &str) -> bool {
        let chunk = self.chunk(MessageType::Action, "action", 0, text.to_owned());
        arrived(broker.publish(vec![chunk]).await)
    }

    /// A message of its own, which no record repeats.
    pub(crate) fn status(&self, name: &str, text: &str) -> Outgoing {
        self.message(AgentResponse {
            end_of_message: true,
            subagent_goal: self.request.subagent_goal.clone(),
            ..self.response(MessageType::Status, name, 0, text.to_owned())
        })
    }

    fn chunk(&self, kind: MessageType, name: &str, seq: u32, content: String) -> Outgoing {
        self.message(self.response(kind, name, seq, content))
    }

    fn response(&self, kind: MessageType, name: &str, seq: u32, content: String) -> AgentResponse {
        let request = self.request;
        AgentResponse {
            message_type: kind,
            content,
            message_id: MessageId::of_attempt(self.nonce, name),
            session_id: request.session_id.clone(),
            root_session_id: request.root().clone(),
            parent_session_id: request.parent_session_id.clone(),
            conversation_id: request.conversation_id.clone(),
            step: Some(request.step),
            seq: Some(seq),
            ..AgentResponse::default()
        }
    }

    fn message(&self, response: AgentResponse) -> Outgoing {
        let request = self.request;
        let mut properties = carried(self.properties);
        properties.insert(property::SESSION.into(), request.session_id.to_string());
        properties.insert(property::ROOT.into(), request.root().to_string());
        Outgoing {
            topic: self.responses.clone(),
            // Wire types are plain data: writing one as JSON cannot fail.
            payload: serde_json::to_vec(&response).unwrap_or_default(),
            properties,
            deliver_at: None,
            durability: Durability::Process,
        }
    }
}

/// Whether a chunk reached the broker. If not, the text comes whole with the record: a watcher misses
/// only the early sight of it.
fn arrived(sent: Result<(), agentfleet_broker::Error>) -> bool {
    if let Err(error) = &sent {
        tracing::debug!(%error, "a chunk was not published");
    }
    sent.is_ok()
}
