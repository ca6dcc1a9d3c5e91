//! From the end of a turn to what is committed: the step record with everything it publishes, the
//! documents it refers to, and the fan-out as the aggregator reads it. Pure.

mod publish;

use crate::audit;
use crate::bounds;
use crate::cited;
use crate::conversation;
use crate::error::for_people;
use crate::order::{Finish, Outcome, Said};
use crate::patterns;
use crate::provenance;
use crate::quota;
use crate::routing;
use crate::so_far;
use crate::words;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Activity, ApprovalPlace, Call, FanOutRecord, Iterated, OutcomeKind, ParentLink, PauseRecord,
    Routed, StepRecord, StreamedPart, StreamedParts, Usage, Worked,
};
use agentfleet_schema::topics::{self, Topic, property};
use agentfleet_schema::{
    AgentRequest, CorrelationId, Digest, ErrorBody, MessageType, Millis, Source, Spent, keys, uris,
};
pub use publish::PARTIAL;
use publish::{Publisher, messages};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sources that a session keeps account of; what else it read is in the records of its steps.
const MOST_SOURCES: usize = 300;

/// Everything known at the end of a turn.
#[derive(Clone, Debug)]
pub struct Commit {
    /// The request as it was worked, its session settled.
    pub request: AgentRequest,
    pub request_digest: Digest,
    /// The properties it came with.
    pub properties: BTreeMap<String, String>,
    /// Identifies this attempt.
    pub nonce: String,
    pub attempt: u32,
    pub config_version: u64,
    /// The config the step was worked under.
    pub snapshot: Arc<Snapshot>,
    pub started_at: Millis,
    pub now: Millis,
    pub finish: Finish,
    /// What other attempts at the step spent; the request counts it already.
    pub wasted: Spent,
    pub calls: Vec<Call>,
    pub streamed: Streamed,
    /// Where the responses go.
    pub responses: Topic,
    /// What the record keeps of how the step was worked.
    pub worked: Box<Worked>,
}

/// What was streamed before the step was committed, by part: what the model said while it talked,
/// and the call that was ordered, while it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    pub thought: String,
    pub thought_chunks: u32,
    pub action: String,
    pub action_chunks: u32,
    pub answer: String,
    pub answer_chunks: u32,
    /// A chunk may not have reached the broker: what was streamed has a gap, and is said again.
    pub has_gap: bool,
}

impl Streamed {
    /// In short, as a record keeps it.
    pub fn noted(&self) -> StreamedParts {
        StreamedParts {
            thought: StreamedPart::of(&self.thought, self.thought_chunks),
            action: StreamedPart::of(&self.action, self.action_chunks),
            answer: StreamedPart::of(&self.answer, self.answer_chunks),
            has_gap: self.has_gap,
        }
    }

    /// From what a record keeps, and what was said in the end.
    pub fn from_noted(parts: &StreamedParts, said: &[Said]) -> Self {
        let part = |kind: MessageType, noted: &Option<StreamedPart>| {
            let Some(noted) = noted else {
                return (String::new(), 0);
            };
            let texts = said.iter().filter(|said| said.message_type == kind);
            let beginning = texts
                .filter_map(|said| said.text.get(..usize::try_from(noted.bytes).ok()?))
                .find(|text| Digest::of(text.as_bytes()) == noted.digest);
            // What it was no longer matters where nothing said begins with it.
            let text = beginning.map_or_else(|| "\u{0}".to_owned(), str::to_owned);
            (text, noted.chunks)
        };
        let (thought, thought_chunks) = part(MessageType::Thought, &parts.thought);
        let (action, action_chunks) = part(MessageType::Action, &parts.action);
        let (answer, answer_chunks) = part(MessageType::Answer, &parts.answer);
        Self {
            thought,
            thought_chunks,
            action,
            action_chunks,
            answer,
            answer_chunks,
            has_gap: parts.has_gap,
        }
    }
}

/// What is to be committed, as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    pub record: StepRecord,
    /// The record without what it publishes, as JSON: its identity is the digest of this.
    pub bare: Vec<u8>,
    /// URI and text of each document.
    pub documents: Vec<(String, String)>,
    pub fan_out: Option<FanOutRecord>,
    pub pause: Option<PauseRecord>,
    /// Key and body of what the conversation knows of the run, and of what the tenant used.
    pub others: Vec<(String, Vec<u8>)>,
}

impl Assembled {
    /// Key and body of each object that is committed with the record.
    pub fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let (session, step) = (&self.record.session, self.record.step);
        let documents = self.documents.iter();
        let mut objects: Vec<(String, Vec<u8>)> = documents
            .map(|(uri, text)| (keys::document(uri), text.clone().into_bytes()))
            .collect();
        if let Some(fan_out) = &self.fan_out {
            objects.push((keys::fan_out(session, step), json(fan_out).into_bytes()));
        }
        if let Some(pause) = &self.pause {
            let place = ApprovalPlace {
                session: session.clone(),
                step,
            };
            let id = &pause.asked.id;
            objects.push((keys::pause(session, step), json(pause).into_bytes()));
            objects.push((keys::approval(&pause.root, id), json(&place).into_bytes()));
        }
        objects.extend(self.others.clone());
        objects
    }
}

/// Builds what is committed.
pub fn assemble(commit: &Commit) -> Assembled {
    let cut = bounds::cut(&commit.request).map(|request| Commit {
        request,
        ..commit.clone()
    });
    let commit = cut.as_ref().unwrap_or(commit);
    let Commit {
        request, finish, ..
    } = commit;
    let mut usage = Usage::default();
    for call in &commit.calls {
        match call {
            Call::Model { usage: spent, .. } => usage.add(*spent),
            Call::Tool { .. } | Call::Document { .. } => {}
        }
    }
    let started_at = commit.started_at.max(request.control.after);
    let mut record = StepRecord {
        session: request.session_id.clone(),
        step: request.step,
        root: request.root().clone(),
        parent: parent(request),
        conversation: request.conversation_id.clone(),
        tenant: request.tenant().to_owned(),
        principal: request
            .control
            .principal
            .as_ref()
            .map(|who| who.name.clone())
            .unwrap_or_default(),
        collection: request.collection.clone(),
        request: commit.request_digest.clone(),
        previous: request.control.previous.clone(),
        nonce: commit.nonce.clone(),
        attempt: commit.attempt,
        config_version: commit.config_version,
        started_at,
        committed_at: commit.now.max(started_at),
        outcome: kind(&finish.outcome),
        routed: routed(commit),
        decisions: finish.decisions.clone(),
        activity: activity(commit),
        derives_from: request.control.derives_from.clone(),
        calls: commit.calls.clone(),
        usage,
        total: spent_before(request, finish) + commit.calls.iter().map(Call::spent).sum(),
        wasted: commit.wasted,
        publications: Vec::new(),
        documents: Vec::new(),
        forked_from: request.control.forked_from.clone(),
        worked: commit.worked.clone(),
    };
    let locale = words::locale(&commit.request, &commit.snapshot);
    let documents = documents(&record, finish, locale);
    record.documents = documents
        .iter()
        .map(|(uri, text)| agentfleet_schema::records::DocumentRef {
            uri: uri.clone(),
            digest: Digest::of(text.as_bytes()),
            bytes: text.len() as u64,
        })
        .collect();
    let bare = record.bare();
    let identity = Digest::of(&bare);
    let told = provenance::tell_as(&record, &identity);
    let mut teller = Publisher {
        commit,
        record: &record,
        out: Vec::new(),
    };
    let (fan_out, pause) = teller.all(&told, &identity);
    record.publications = teller.out;
    Assembled {
        others: conversation::objects(&record, request)
            .into_iter()
            .chain(quota::object(&record))
            .collect(),
        record,
        bare,
        documents,
        fan_out,
        pause,
    }
}

fn kind(outcome: &Outcome) -> OutcomeKind {
    match outcome {
        Outcome::Continue(_) => OutcomeKind::Continue,
        Outcome::FanOut(_) => OutcomeKind::FanOut,
        Outcome::Pause(_) => OutcomeKind::Pause,
        Outcome::Answer(_) => OutcomeKind::Answer,
        Outcome::Cancelled(_) => OutcomeKind::Cancelled,
        Outcome::Fail { .. } => OutcomeKind::Fail,
    }
}

/// Where a subagent's completion belongs.
fn parent(request: &AgentRequest) -> Option<ParentLink> {
    let above = request.control.ancestors.last();
    above
        .filter(|_| request.is_subagent())
        .map(|above| ParentLink {
            session: above.session.clone(),
            step: above.step,
            // A synthesis names the fan-out that it answers.
            correlation: match request.control.fan_in_step {
                Some(_) => CorrelationId::of_fan_out(&above.session, above.step),
                None => request.correlation_id.clone(),
            },
            index: request.control.index,
            goal: request.subagent_goal.clone(),
        })
}

/// What the tree had spent when the step's own calls began, those below it included.
fn spent_before(request: &AgentRequest, finish: &Finish) -> Spent {
    let below = provenance::fan_in(&finish.activity).map(|fan_in| fan_in.spent);
    request.control.spent + below.unwrap_or_default()
}

/// What the session and those below it took results from, this step included.
fn sources(commit: &Commit) -> Vec<Source> {
    let mut all = commit.request.control.sources.clone();
    let mut seen: BTreeSet<String> = all.iter().map(|source| source.uri.clone()).collect();
    let mut add = |some: &[Source]| {
        for source in some {
            if all.len() < MOST_SOURCES && seen.insert(source.uri.clone()) {
                all.push(source.clone());
            }
        }
    };
    for call in &commit.calls {
        match call {
            Call::Tool { sources, .. } => add(sources),
            Call::Model { .. } | Call::Document { .. } => {}
        }
    }
    let members =
        provenance::fan_in(&commit.finish.activity).map(|fan_in| fan_in.members.as_slice());
    for member in members.unwrap_or_default() {
        add(&member.sources);
    }
    all
}

/// The routing, with what the config says of what it names.
fn routed(commit: &Commit) -> Option<Routed> {
    let Commit {
        request, snapshot, ..
    } = commit;
    let routed = commit.finish.routed.clone();
    let mut routed =
        routed.or_else(|| (request.step == 0).then(|| routing::arrived(request, snapshot)))?;
    routed.described = routing::described(&routed, snapshot);
    Some(routed)
}

/// What the step did. An end that came over the head of another attempt did what that had begun.
fn activity(commit: &Commit) -> Activity {
    let mut activity = commit.finish.activity.clone();
    let answer = match &commit.finish.outcome {
        Outcome::Answer(answer) => Some(answer.text.as_str()),
        // What was found until then is an answer in part.
        Outcome::Cancelled(end) => so_far::of(&end.text),
        Outcome::Fail { .. } | Outcome::Continue(_) | Outcome::FanOut(_) | Outcome::Pause(_) => {
            None
        }
    };
    if let (Activity::Concluded(end), Some(answer)) = (&mut activity, answer) {
        end.grounds = Some(cited::grounds(answer, &sources(commit)));
    }
    let ended = match &commit.finish.outcome {
        Outcome::Cancelled(_) | Outcome::Fail { .. } => true,
        Outcome::Continue(_) | Outcome::FanOut(_) | Outcome::Pause(_) | Outcome::Answer(_) => false,
    };
    if let Activity::Concluded(end) = &mut activity
        && ended
    {
        let first = patterns::iterations(&commit.request) + 1;
        end.cut_off = commit
            .calls
            .iter()
            .filter_map(|call| match call {
                Call::Tool {
                    name,
                    arguments,
                    result,
                    is_error,
                    ms,
                    ..
                } => Some((name, arguments, result, *is_error, *ms)),
                Call::Model { .. } | Call::Document { .. } => None,
            })
            .zip(first..)
            .map(|((name, arguments, result, is_error, ms), n)| Iterated {
                n,
                action: name.clone(),
                arguments: arguments.clone(),
                observation: result.clone(),
                is_error,
                // Whatever else was offered to that attempt, this was.
                candidates: vec![name.clone()],
                tool_ms: ms,
                ..Iterated::default()
            })
            .collect();
    }
    activity
}

/// The documents of a step: every complete message, the goals, the rationales.
fn documents(record: &StepRecord, finish: &Finish, locale: &str) -> Vec<(String, String)> {
    let mut documents = Vec::new();
    for said in &finish.said {
        if let Some(uri) = &said.document {
            documents.push((uri.clone(), said.text.clone()));
        }
    }
    if let Outcome::FanOut(fan_out) = &finish.outcome {
        for (child, _) in &fan_out.children {
            let uri = uris::goal(&record.session, &fan_out.correlation, child.index);
            documents.push((uri, child.goal.clone()));
        }
    }
    if let Activity::Concluded(end) = &record.activity {
        for call in &end.cut_off {
            let uri = uris::observation(&record.session, call.n);
            documents.push((uris::document_of(&uri), call.observation.clone()));
        }
    }
    if let Some((text, uri)) = end_text(record, finish, locale) {
        documents.push((uri, text));
    }
    let routed = record
        .routed
        .iter()
        .flat_map(|r| &r.decisions)
        .map(|decision| {
            (
                uris::routing_decision(&record.session, &decision.subject),
                decision,
            )
        });
    let others = record.decisions.iter().map(|decision| {
        (
            uris::decision(&record.session, record.step, &decision.subject),
            decision,
        )
    });
    for (uri, decision) in routed.chain(others) {
        if !decision.rationale.is_empty() {
            documents.push((uris::document_of(&uri), decision.rationale.clone()));
        }
    }
    documents
}

/// An error as who asked is told: nobody but the owner of the data directory runs the fleet.
fn told_error(record: &StepRecord, error: &ErrorBody, locale: &str) -> ErrorBody {
    if record.tenant.is_empty() {
        error.clone()
    } else {
        for_people(error, locale)
    }
}

/// The text a session without an answer ends with.
fn end_text(record: &StepRecord, finish: &Finish, locale: &str) -> Option<(String, String)> {
    let text = match &finish.outcome {
        Outcome::Fail { error, .. } => error_text(&told_error(record, error, locale)),
        Outcome::Cancelled(answer) => answer.text.clone(),
        Outcome::Continue(_) | Outcome::FanOut(_) | Outcome::Pause(_) | Outcome::Answer(_) => {
            return None;
        }
    };
    Some((text, uris::answer_document(&record.session)))
}

fn error_text(error: &ErrorBody) -> String {
    match &error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    }
}

/// What of a caller's properties goes on with its run. What is too long to be an id is dropped: it
/// would make messages that no broker takes.
pub fn carried(properties: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let wanted = property::CARRIED.into_iter();
    let found = wanted.filter_map(|name| Some((name, properties.get(name)?)));
    found
        .filter(|(_, value)| value.len() <= property::MAX_CARRIED)
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
}

/// A stored record with all that it publishes: the bodies of what it tells the graph are not stored, as
/// they follow from the rest. Whoever publishes from a record reads it with this.
pub fn read_whole(stored: &[u8]) -> Result<StepRecord, serde_json::Error> {
    let mut record: StepRecord = serde_json::from_slice(stored)?;
    if record.provenance().any(|message| message.body.is_empty()) {
        let identity = audit::identity(stored).unwrap_or_else(|| record.identity());
        let told = provenance::tell_as(&record, &identity);
        let bodies = messages(&record, &told);
        let told = record.publications.iter_mut();
        let told = told.filter(|message| message.topic == topics::EXPLAINABILITY.as_str());
        for (message, body) in told.zip(bodies) {
            message.body = body;
        }
    }
    Ok(record)
}

/// Wire types are plain data: writing one as JSON cannot fail.
fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
