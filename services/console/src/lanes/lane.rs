//! One lane: what is known of a session that is being watched.

use agentfleet_schema::records::CompletionStatus;
use agentfleet_schema::{MessageId, Millis, SessionId};

/// Bytes of a running text that are kept: more than a terminal line shows.
const KEPT: usize = 2_048;

/// What a session is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LaneState {
    /// Not begun, or with subagents at work.
    #[default]
    Waiting,
    Thinking,
    /// In a tool, by its name.
    Calling(String),
    Answering,
    Done,
    Failed(CompletionStatus),
    /// Its parent goes on without it.
    Missed,
    /// It ended after its parent had gone on.
    Late,
}

impl LaneState {
    pub fn is_over(&self) -> bool {
        match self {
            Self::Done | Self::Failed(_) | Self::Late => true,
            Self::Waiting | Self::Thinking | Self::Calling(_) | Self::Answering | Self::Missed => {
                false
            }
        }
    }

    pub fn is_active(&self) -> bool {
        match self {
            Self::Thinking | Self::Calling(_) | Self::Answering => true,
            Self::Waiting | Self::Missed | Self::Done | Self::Failed(_) | Self::Late => false,
        }
    }

    /// The state in words.
    pub fn words(&self) -> String {
        match self {
            Self::Waiting => "waiting".to_owned(),
            Self::Thinking => "thinking".to_owned(),
            Self::Calling(tool) => format!("calling {tool}"),
            Self::Answering => "answering".to_owned(),
            Self::Done => "done".to_owned(),
            Self::Failed(status) => match status {
                CompletionStatus::Error | CompletionStatus::Answered => "failed".to_owned(),
                CompletionStatus::Timeout
                | CompletionStatus::Cancelled
                | CompletionStatus::DeadLettered => status.as_str().to_owned(),
            },
            Self::Missed => "not waited for".to_owned(),
            Self::Late => "late".to_owned(),
        }
    }
}

/// One session that is being watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    pub session: SessionId,
    pub parent: Option<SessionId>,
    /// Place among its siblings, from 1; 0 on the root.
    pub number: u32,
    /// Fan-outs above it.
    pub depth: usize,
    /// The goal, or the question on the root.
    pub label: String,
    pub state: LaneState,
    /// What it said last, or the end of what it is saying.
    pub snippet: String,
    /// When it first said something.
    pub began: Option<Millis>,
    pub ended: Option<Millis>,
    message: Option<MessageId>,
}

impl Lane {
    pub(super) fn new(session: SessionId, parent: Option<SessionId>, label: &str) -> Self {
        Self {
            session,
            parent,
            label: label.to_owned(),
            ..Self::default()
        }
    }

    /// Milliseconds it has been at work.
    pub fn elapsed(&self, now: Millis) -> Option<u64> {
        let began = self.began?;
        u64::try_from(self.ended.unwrap_or(now).saturating_sub(began)).ok()
    }

    /// Whether the snippet is the end of a message that goes on.
    pub fn is_speaking(&self) -> bool {
        self.message.is_some()
    }

    pub(super) fn wakes(&mut self, now: Millis) {
        self.began.get_or_insert(now);
    }

    /// Adds a piece of a message that is still being said.
    pub(super) fn hears(&mut self, message: &MessageId, piece: &str) {
        if self.message.as_ref() != Some(message) {
            self.message = Some(message.clone());
            self.snippet.clear();
        }
        self.snippet.push_str(piece);
        if self.snippet.len() > 2 * KEPT {
            let cut = self.snippet.ceil_char_boundary(self.snippet.len() - KEPT);
            self.snippet.drain(..cut);
        }
    }

    pub(super) fn says(&mut self, text: &str) {
        self.message = None;
        text[..text.floor_char_boundary(KEPT)].clone_into(&mut self.snippet);
    }

    /// What it does now; where nobody waits for it any more, that is what is told of it.
    pub(super) fn does(&mut self, state: LaneState) {
        if self.state != LaneState::Missed {
            self.state = state;
        }
    }

    /// Ends it, once.
    pub(super) fn ends(&mut self, state: LaneState, now: Millis) {
        if !self.state.is_over() {
            self.state = if self.state == LaneState::Missed {
                LaneState::Late
            } else {
                state
            };
            self.ended = Some(now);
        }
    }
}
