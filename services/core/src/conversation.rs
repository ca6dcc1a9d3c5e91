//! What a run is shown of its conversation: the newest exchanges before it, as far as the model's window has
//! room for them. They travel with the run's messages, so each step is worked from its message alone.

use crate::bounds::beginning;
use crate::history::{Room, tokens};
use crate::limits::FleetLimits;
use crate::say::{self, in_one_line};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{Decision, OutcomeKind, StepRecord, Termination};
use agentfleet_schema::{AgentRequest, Carried, Exchange, Millis, keys};
use serde_json::{Value, json};

/// Most exchanges that a run is given.
pub const MOST: usize = 20;
/// Exchanges shown while no pattern is chosen, unless the task type says otherwise.
const ROUTING: usize = 3;
/// Bytes of a question and of an answer that a run is given.
const QUESTION: usize = 1_000;
const ANSWER: usize = 3_000;
/// Bytes of all of them, where the window has room for more.
const ALL: usize = 24_000;
/// What was talked about lately: so many questions, of so many bytes each.
const TOPICS: usize = 5;
const TOPIC: usize = 80;
/// Subject of the decision.
const SUBJECT: &str = "conversation";

/// Whether a request begins a run. A fork goes on from another, and takes along what that one was shown.
pub fn begins(request: &AgentRequest) -> bool {
    request.step == 0 && !request.is_subagent() && request.control.forked_from.is_none()
}

/// Whether a request begins a run that is shown what came before it.
pub fn remembers(request: &AgentRequest) -> bool {
    begins(request) && !request.conversation_id.as_str().is_empty()
}

fn is_first(request: &AgentRequest) -> bool {
    request.step == 0 && !request.is_subagent() && !request.conversation_id.as_str().is_empty()
}

/// Key and body of what the conversation knows of a run: what it was asked, with its first step, and that it
/// is answered, with its last one.
pub(crate) fn objects(record: &StepRecord, request: &AgentRequest) -> Vec<(String, Vec<u8>)> {
    let mut objects = Vec::new();
    if let Some(key) = key(record) {
        let asked = Exchange {
            session: record.session.clone(),
            question: shortened(&request.question, QUESTION),
            answer: String::new(),
        };
        // Plain data: writing it as JSON cannot fail.
        objects.push((key, serde_json::to_vec(&asked).unwrap_or_default()));
    }
    let is_root = record.parent.is_none() && !record.conversation.as_str().is_empty();
    if is_root && record.outcome == OutcomeKind::Answer {
        let mut carried = carried(request);
        let end = record.concluded().map(|end| end.termination);
        if end != Some(Termination::NeedsClarification) {
            carried.without.clear();
        }
        let body = if carried.is_nothing() {
            Vec::new()
        } else {
            serde_json::to_vec(&carried).unwrap_or_default()
        };
        objects.push((keys::answered(&record.session), body));
    }
    objects
}

/// What the next run of a conversation begins with.
pub fn carried(request: &AgentRequest) -> Carried {
    Carried {
        known: request.control.known.clone(),
        tool_policy: request.tool_policy.clone(),
        position: request.control.position.clone(),
        without: request.control.without.clone(),
    }
}

/// Gives a run what the newest answered one of its conversation carried; what it brings itself comes before.
/// A policy that is configured no more is kept as well, and the run is refused: a guard does not fall silently.
pub fn carry(request: &mut AgentRequest, newest: Carried) {
    let control = &mut request.control;
    if control.known.is_empty() {
        control.known = newest.known;
    }
    if control.position.is_none() {
        control.position = newest.position;
    }
    control.without.extend(newest.without);
    if request.tool_policy.is_empty() {
        request.tool_policy = newest.tool_policy;
    }
}

/// Where that lies; `None` of a step that is not the first of a run in a conversation.
pub fn key(record: &StepRecord) -> Option<String> {
    let is_first = record.step == 0 && record.parent.is_none();
    (is_first && !record.conversation.as_str().is_empty()).then(|| {
        let (tenant, conversation) = (&record.tenant, &record.conversation);
        keys::exchange(tenant, conversation, asked_at(record), &record.session)
    })
}

fn asked_at(record: &StepRecord) -> Millis {
    record.worked.came_at.unwrap_or(record.started_at)
}

/// Gives a run what was asked and answered before, the newest first, as far as there is room.
pub fn remember(
    request: &mut AgentRequest,
    newest: impl IntoIterator<Item = Exchange>,
    snapshot: &Snapshot,
    fleet: &FleetLimits,
) {
    let room = room(request, snapshot, fleet);
    let mut taken = 0;
    let mut kept: Vec<Exchange> = Vec::new();
    for exchange in newest.into_iter().take(MOST) {
        let cut = Exchange {
            answer: shortened(&exchange.answer, ANSWER),
            ..exchange
        };
        taken += cut.question.len() + cut.answer.len();
        if taken > room {
            break;
        }
        kept.push(cut);
    }
    kept.reverse();
    request.control.conversation = kept;
}

/// Bytes for what came before: a quarter of what a history may take.
fn room(request: &AgentRequest, snapshot: &Snapshot, fleet: &FleetLimits) -> usize {
    Room::of(request, snapshot, fleet).map_or(ALL, |room| ALL.min(room.bytes / 4))
}

fn shortened(text: &str, most: usize) -> String {
    let text = text.trim();
    let kept = beginning(text, most);
    if kept.len() == text.len() {
        kept.to_owned()
    } else {
        format!("{kept} [cut, {} bytes in all]", text.len())
    }
}

/// What the request was found to follow becomes known to its router, and is told as decided.
pub(crate) fn settle(
    request: &mut AgentRequest,
    snapshot: &Snapshot,
    fleet: &FleetLimits,
) -> Option<Decision> {
    let before = &request.control.conversation;
    if before.is_empty() {
        return None;
    }
    if request.routing.recent_topics.is_empty() {
        let topics = before.iter().rev().take(TOPICS);
        request.routing.recent_topics = topics
            .map(|exchange| beginning(&in_one_line(&exchange.question), TOPIC).to_owned())
            .collect();
    }
    if !is_first(request) {
        return None;
    }
    let before = &request.control.conversation;
    let bytes: usize = before
        .iter()
        .map(|e| e.question.len() + e.answer.len())
        .sum();
    let sessions: Vec<&str> = before.iter().map(|e| e.session.as_str()).collect();
    Some(say::only(
        SUBJECT,
        before.len().to_string(),
        format!(
            "the newest answered exchanges of the conversation, {MOST} at most, for which there is room: {} tokens",
            tokens(room(request, snapshot, fleet))
        ),
        format!(
            "{} tokens, of sessions {}; prompts of this step show the newest {}",
            tokens(bytes),
            sessions.join(", "),
            window(request, snapshot).min(before.len())
        ),
    ))
}

/// Exchanges that prompts of a request show.
fn window(request: &AgentRequest, snapshot: &Snapshot) -> usize {
    let specialist = snapshot.specialists.get(&request.control.specialist);
    let pattern = snapshot.patterns.get(&request.pattern);
    let task_type = snapshot.task_types.get(&request.task_type);
    let set = specialist
        .and_then(|item| item.exchanges)
        .or_else(|| pattern?.exchanges)
        .or_else(|| task_type?.exchanges);
    match set {
        Some(most) => most as usize,
        None if request.pattern.is_empty() => ROUTING,
        None => MOST,
    }
}

/// What prompts of a request show of its conversation, the oldest first.
pub(crate) fn shown(request: &AgentRequest, snapshot: &Snapshot) -> Value {
    newest(request, window(request, snapshot))
}

/// So many of the newest exchanges, as prompts show them.
pub(crate) fn newest(request: &AgentRequest, window: usize) -> Value {
    let all = &request.control.conversation;
    let newest = all.iter().skip(all.len().saturating_sub(window));
    newest
        .map(|exchange| json!({"question": framed(&exchange.question), "answer": framed(&exchange.answer)}))
        .collect()
}

/// A text that cannot end the frame that prompts put around an exchange.
fn framed(text: &str) -> String {
    let mut rest = text;
    let mut framed = String::with_capacity(text.len());
    while let Some(at) = rest.find("</") {
        let (before, tag) = rest.split_at(at + 2);
        framed.push_str(before);
        let is_ours = tag
            .get(..FRAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(FRAME));
        if is_ours {
            framed.push(' ');
        }
        rest = tag;
    }
    framed + rest
}

/// The tag of that frame.
const FRAME: &str = "exchange";

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
