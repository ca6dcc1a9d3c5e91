//! The model of the live view: what each event means to the lanes.

mod news;

pub use news::News;

use super::lane::{Lane, LaneState};
use crate::style::{BAD, DIM, Line, NAME, PLAIN, WARN};
use crate::text;
use agentfleet_core::commit::PARTIAL;
use agentfleet_runtime::client::Event;
use agentfleet_schema::records::CompletionStatus;
use agentfleet_schema::{AgentResponse, ErrorBody, MessageId, MessageType, Millis, SessionId};
use news::{goals, is_fan_out, tool_of};
use std::collections::HashMap;

/// Longest text of one line of news, in columns.
const NEWS: usize = 200;

/// The lanes of a run.
#[derive(Clone, Debug)]
pub struct LaneBoard {
    lanes: Vec<Lane>,
    at: HashMap<SessionId, usize>,
    began: Millis,
    /// The answer's message, and how much of it was given out.
    answer: Option<(MessageId, String)>,
    over: bool,
}

impl LaneBoard {
    /// The board of a root session that is watched from `now` on.
    pub fn new(root: SessionId, question: &str, now: Millis) -> Self {
        let mut board = Self {
            lanes: Vec::new(),
            at: HashMap::new(),
            began: now,
            answer: None,
            over: false,
        };
        board.at.insert(root.clone(), 0);
        let mut lane = Lane::new(root, None, question);
        lane.wakes(now);
        board.lanes.push(lane);
        board
    }

    /// The lanes: the root's first, each above its subagents'.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    pub fn root(&self) -> &Lane {
        &self.lanes[0]
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Milliseconds since the watching began.
    pub fn elapsed(&self, now: Millis) -> u64 {
        u64::try_from(now.saturating_sub(self.began)).unwrap_or_default()
    }

    /// Takes an event that was read at `now`.
    pub fn apply(&mut self, event: &Event, now: Millis) -> Vec<News> {
        if self.over {
            return Vec::new();
        }
        match event {
            Event::Chunk {
                session,
                message_id,
                kind,
                text,
            } => self.chunk(session, message_id, *kind, text, now),
            Event::Message { text, response, .. } => self.message(text, response, now),
            Event::Note(response) => self.note(response, now),
            Event::End { text, error, .. } => self.end(text, error.as_ref(), now),
        }
    }

    fn chunk(
        &mut self,
        session: &SessionId,
        message: &MessageId,
        kind: MessageType,
        text: &str,
        now: Millis,
    ) -> Vec<News> {
        let at = self.lane(session, None);
        let lane = &mut self.lanes[at];
        if lane.state.is_over() {
            return Vec::new();
        }
        lane.wakes(now);
        lane.hears(message, text);
        match kind {
            MessageType::Answer => {
                lane.does(LaneState::Answering);
                self.goes_on(at);
                if at == 0 {
                    return self.answer_piece(message, text);
                }
            }
            MessageType::Action => {
                // The whole call at once.
                lane.says(text);
                lane.does(LaneState::Calling(tool_of(text)));
            }
            MessageType::Thought
            | MessageType::Observation
            | MessageType::Explain
            | MessageType::Status
            | MessageType::Error
            | MessageType::Unknown => {
                lane.does(LaneState::Thinking);
            }
        }
        Vec::new()
    }

    fn answer_piece(&mut self, message: &MessageId, text: &str) -> Vec<News> {
        let mut news = Vec::new();
        match &mut self.answer {
            Some((known, given)) if known == message => given.push_str(text),
            before => {
                news.push(News::AnswerBegins {
                    again: before.is_some(),
                });
                *before = Some((message.clone(), text.to_owned()));
            }
        }
        news.push(News::AnswerText(text.to_owned()));
        news
    }

    fn message(&mut self, text: &str, response: &AgentResponse, now: Millis) -> Vec<News> {
        let at = self.lane(&response.session_id, Some(response));
        let lane = &mut self.lanes[at];
        lane.wakes(now);
        if lane.state.is_over() {
            return Vec::new();
        }
        match response.message_type {
            MessageType::Thought => {
                lane.says(text);
                lane.does(LaneState::Thinking);
                if is_fan_out(response) {
                    return self.fans_out(at, &response.subagents, &goals(text), now);
                }
                return vec![self.happened(at, text, PLAIN)];
            }
            MessageType::Action => {
                lane.says(text);
                lane.does(LaneState::Calling(tool_of(text)));
                return vec![self.happened(at, &format!("calls {text}"), PLAIN)];
            }
            MessageType::Observation => {
                lane.says(text);
                lane.does(LaneState::Thinking);
            }
            MessageType::Answer => {
                lane.says(text);
                lane.ends(LaneState::Done, now);
                let late = lane.state == LaneState::Late;
                self.goes_on(at);
                self.release(at);
                let words = if late { "late: " } else { "answers: " };
                return vec![self.happened(at, &format!("{words}{}", text::one_line(text)), PLAIN)];
            }
            MessageType::Error => {
                lane.says(text);
                lane.ends(LaneState::Failed(CompletionStatus::Error), now);
                self.release(at);
                return vec![self.happened(at, &format!("failed: {text}"), BAD)];
            }
            MessageType::Explain | MessageType::Status | MessageType::Unknown => {}
        }
        Vec::new()
    }

    fn note(&mut self, response: &AgentResponse, now: Millis) -> Vec<News> {
        let at = self.lane(&response.session_id, Some(response));
        let lane = &mut self.lanes[at];
        lane.wakes(now);
        if response.message_type == MessageType::Explain {
            if lane.state == LaneState::Waiting && !self.has_open_children(at) {
                self.lanes[at].state = LaneState::Thinking;
            }
            return Vec::new();
        }
        let content = response.content.as_str();
        if let Some(status) = content.strip_prefix("Completed: ") {
            let status = status.strip_suffix(PARTIAL).unwrap_or(status);
            return self.completed(at, status, now);
        }
        if !response.subagents.is_empty() {
            // The goals came with the thought before; this makes up for it where that was missed.
            self.subagents(at, &response.subagents, &[], now);
            return vec![self.happened(at, content, PLAIN)];
        }
        lane.says(content);
        if content.starts_with("Waits for a person: ") {
            lane.does(LaneState::Waiting);
        } else if lane.state == LaneState::Waiting && !self.has_open_children(at) {
            self.lanes[at].state = LaneState::Thinking;
        }
        vec![self.happened(at, content, PLAIN)]
    }

    fn completed(&mut self, at: usize, status: &str, now: Millis) -> Vec<News> {
        let lane = &mut self.lanes[at];
        let status = CompletionStatus::from_literal(status);
        let was_over = lane.state.is_over();
        let state = match status {
            CompletionStatus::Answered => LaneState::Done,
            CompletionStatus::Error
            | CompletionStatus::Timeout
            | CompletionStatus::Cancelled
            | CompletionStatus::DeadLettered => LaneState::Failed(status),
        };
        if let (LaneState::Failed(_), LaneState::Failed(_)) = (&lane.state, &state) {
            // The error came first; this tells which kind it was.
            lane.state = state;
            return Vec::new();
        }
        lane.ends(state, now);
        let words = lane.state.words();
        self.release(at);
        if was_over {
            return Vec::new();
        }
        let style = if status == CompletionStatus::Answered {
            PLAIN
        } else {
            BAD
        };
        vec![self.happened(at, &words, style)]
    }

    fn end(&mut self, text: &str, error: Option<&ErrorBody>, now: Millis) -> Vec<News> {
        self.goes_on(0);
        let root = &mut self.lanes[0];
        root.wakes(now);
        let state = if error.is_some() {
            LaneState::Failed(CompletionStatus::Error)
        } else {
            LaneState::Done
        };
        root.ends(state, now);
        self.over = true;
        let mut news = Vec::new();
        if error.is_none() {
            let given = self.answer.take();
            // Whoever said it: what stands there is the beginning of what was committed, which may
            // lack the white space around it.
            let rest = given
                .as_ref()
                .and_then(|(_, given)| text.trim().strip_prefix(given.trim()));
            match rest {
                Some(rest) => news.push(News::AnswerText(rest.to_owned())),
                None => {
                    news.push(News::AnswerBegins {
                        again: given.is_some(),
                    });
                    news.push(News::AnswerText(text.to_owned()));
                }
            }
        }
        let partial =
            error.and_then(|error| text.strip_prefix(&*error.message)?.strip_prefix("\n\n"));
        if let Some(partial) = partial {
            // What it had found, which it did not say before.
            let again = self.answer.take().is_some();
            news.push(News::AnswerBegins { again });
            news.push(News::AnswerText(partial.to_owned()));
        }
        news.push(News::Ended {
            text: match error {
                None => text.to_owned(),
                Some(_) => partial.unwrap_or_default().to_owned(),
            },
            error: error.cloned(),
        });
        news
    }

    fn fans_out(
        &mut self,
        at: usize,
        children: &[SessionId],
        goals: &[String],
        now: Millis,
    ) -> Vec<News> {
        self.subagents(at, children, goals, now);
        goals
            .iter()
            .zip(1..)
            .map(|(goal, number): (&String, u32)| {
                let goal = text::preview(goal, NEWS);
                let line = Line::of(&format!("{number} "), NAME).with(&goal, PLAIN);
                News::Happened(self.about(at, &line))
            })
            .collect()
    }

    /// Makes the lanes of a fan-out that are not there yet, and names those that have no name.
    fn subagents(&mut self, at: usize, children: &[SessionId], goals: &[String], now: Millis) {
        // What an earlier round left open has no effect any more.
        let parent = self.lanes[at].session.clone();
        for lane in &mut self.lanes {
            let earlier =
                lane.parent.as_ref() == Some(&parent) && !children.contains(&lane.session);
            if earlier && !lane.state.is_over() {
                lane.state = LaneState::Missed;
            }
        }
        for (index, session) in (0_u32..).zip(children) {
            let session = session.clone();
            let goal = goals
                .get(index as usize)
                .map(String::as_str)
                .unwrap_or_default();
            let place = match self.at.get(&session) {
                Some(place) => *place,
                None => self.insert(Lane::new(session, Some(parent.clone()), goal)),
            };
            let lane = &mut self.lanes[place];
            lane.number = index + 1;
            if lane.label.is_empty() {
                goal.clone_into(&mut lane.label);
            }
        }
        let lane = &mut self.lanes[at];
        lane.wakes(now);
        if !lane.state.is_over() {
            lane.does(LaneState::Waiting);
        }
    }

    /// A session that answers waits for nobody any more.
    fn goes_on(&mut self, at: usize) {
        let parent = self.lanes[at].session.clone();
        for lane in &mut self.lanes {
            if lane.parent.as_ref() == Some(&parent) && !lane.state.is_over() {
                lane.state = LaneState::Missed;
            }
        }
    }

    /// A session that waited for its subagents is busy again once the last of them has ended.
    fn release(&mut self, child: usize) {
        let parent = self.lanes[child]
            .parent
            .as_ref()
            .and_then(|id| self.at.get(id))
            .copied();
        if let Some(parent) = parent
            && self.lanes[parent].state == LaneState::Waiting
            && !self.has_open_children(parent)
        {
            self.lanes[parent].state = LaneState::Thinking;
        }
    }

    pub(super) fn open_children(&self, at: usize) -> usize {
        let parent = Some(&self.lanes[at].session);
        let open = |lane: &&Lane| !lane.state.is_over() && lane.state != LaneState::Missed;
        self.lanes
            .iter()
            .filter(|lane| lane.parent.as_ref() == parent)
            .filter(open)
            .count()
    }

    fn has_open_children(&self, at: usize) -> bool {
        self.open_children(at) > 0
    }

    /// The lane of a session; whoever is heard for the first time gets one.
    fn lane(&mut self, session: &SessionId, response: Option<&AgentResponse>) -> usize {
        let goal = response
            .map(|r| r.subagent_goal.as_str())
            .unwrap_or_default();
        if let Some(at) = self.at.get(session).copied() {
            if self.lanes[at].label.is_empty() {
                goal.clone_into(&mut self.lanes[at].label);
            }
            return at;
        }
        let parent = response
            .map(|r| r.parent_session_id.clone())
            .filter(|parent| self.at.contains_key(parent) && parent != session)
            .unwrap_or_else(|| self.lanes[0].session.clone());
        let siblings = self
            .lanes
            .iter()
            .filter(|l| l.parent.as_ref() == Some(&parent))
            .count();
        let mut lane = Lane::new(session.clone(), Some(parent), goal);
        lane.number = siblings as u32 + 1;
        self.insert(lane)
    }

    /// Puts a lane below its parent's and all that is below that.
    fn insert(&mut self, mut lane: Lane) -> usize {
        let parent = lane
            .parent
            .as_ref()
            .and_then(|id| self.at.get(id))
            .copied()
            .unwrap_or(0);
        lane.depth = self.lanes[parent].depth + 1;
        let below = self.lanes[parent + 1..]
            .iter()
            .take_while(|l| l.depth >= lane.depth)
            .count();
        let place = parent + 1 + below;
        self.lanes.insert(place, lane);
        for (at, lane) in self.lanes.iter().enumerate().skip(place) {
            self.at.insert(lane.session.clone(), at);
        }
        place
    }

    fn happened(&self, at: usize, what: &str, style: anstyle::Style) -> News {
        let style = if self.lanes[at].state == LaneState::Late {
            WARN
        } else {
            style
        };
        News::Happened(self.about(at, &Line::of(&text::preview(what, NEWS), style)))
    }

    /// A line of news with the lane it is about.
    fn about(&self, at: usize, line: &Line) -> Line {
        let lane = &self.lanes[at];
        let mut out = Line::new();
        if at > 0 {
            out.push(&format!("[{}] ", self.path(at)), NAME);
            if !lane.label.is_empty() {
                out.push(&text::preview(&lane.label, 40), DIM)
                    .push(": ", DIM);
            }
        }
        out.append(line);
        out
    }

    /// The numbers down to a lane, as in `3.1`.
    fn path(&self, at: usize) -> String {
        let mut numbers = Vec::new();
        let mut lane = &self.lanes[at];
        // A lane's parent always stands above it, so this ends.
        while let Some(parent) = &lane.parent {
            numbers.push(lane.number.to_string());
            match self.at.get(parent) {
                Some(above) => lane = &self.lanes[*above],
                None => break,
            }
        }
        numbers.reverse();
        numbers.join(".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_the_list_at_the_end_of_the_thought() {
        for (text, expected) in [
            ("why\n\n1. money\n2. law", vec!["money", "law"]),
            ("1. money\n2. law", vec!["money", "law"]),
            (
                "1. not this\n\nbut\n\n1. two\nlines\n2. law",
                vec!["two\nlines", "law"],
            ),
            ("no list", vec![]),
        ] {
            assert_eq!(goals(text), expected, "{text:?}");
        }
    }
}
