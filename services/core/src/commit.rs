//! From the end of a turn to what is committed: the step record with everything it publishes, the
//! documents it refers to, and the fan-out as the aggregator reads it. Pure.

use crate::approval;
use crate::bounds;
use crate::cited;
use crate::deadline::next_hop;
use crate::patterns;
use crate::provenance::{self, completion_status};
use crate::routing;
use crate::say;
use crate::so_far;
use crate::step::{Finish, Outcome, Said};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Activity, ApprovalPlace, Call, CompletionStatus, FanOutRecord, Iterated, OutcomeKind,
    ParentLink, PauseRecord, Publication, Routed, StepRecord, StreamedPart, StreamedParts, Usage,
    Worked,
};
use agentfleet_schema::topics::{self, Topic, property};
use agentfleet_schema::{
    AgentRequest, AgentResponse, CorrelationId, Digest, ErrorBody, MessageId, MessageType,
    Metadata, Millis, SessionId, Source, Spent, Triple, Triples, keys, uris,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sources that a session keeps account of; what else it read is in the records of its steps.
const MOST_SOURCES: usize = 300;

/// Bytes of triples in one message, about. A fan-out to hundreds tells more than a message may hold.
const MOST_TOLD: usize = 1024 * 1024;

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
    pub worked: Option<Box<Worked>>,
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
    /// URI and text of each document.
    pub documents: Vec<(String, String)>,
    pub fan_out: Option<FanOutRecord>,
    pub pause: Option<PauseRecord>,
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
            Call::Tool { .. } | Call::Facts { .. } | Call::Document { .. } => {}
        }
    }
    let started_at = commit.started_at.max(request.control.after);
    let mut record = StepRecord {
        session: request.session_id.clone(),
        step: request.step,
        root: request.root().clone(),
        parent: parent(request),
        conversation: request.conversation_id.clone(),
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
    let documents = documents(&record, finish);
    record.documents = documents
        .iter()
        .map(|(uri, text)| agentfleet_schema::records::DocumentRef {
            uri: uri.clone(),
            digest: Digest::of(text.as_bytes()),
            bytes: text.len() as u64,
        })
        .collect();
    let identity = record.identity();
    let told = provenance::tell_as(&record, &identity);
    let mut teller = Publisher {
        commit,
        record: &record,
        out: Vec::new(),
    };
    let (fan_out, pause) = teller.all(&told, &identity);
    record.publications = teller.out;
    Assembled {
        record,
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
    match &finish.outcome {
        // A synthesis that goes on has already counted what its children spent, and what came before.
        Outcome::FanOut(fan_out) => fan_out.synthesis.control.spent,
        Outcome::Continue(_)
        | Outcome::Pause(_)
        | Outcome::Answer(_)
        | Outcome::Cancelled(_)
        | Outcome::Fail { .. } => {
            let below = provenance::fan_in(&finish.activity).map(|fan_in| fan_in.spent);
            request.control.spent + below.unwrap_or_default()
        }
    }
}

/// What the session and those below it took results from, this step included. `None` where a part of
/// that is not known, because an older version worked it.
fn sources(commit: &Commit) -> Option<Vec<Source>> {
    let request = &commit.request;
    let is_new = request.step == 0 && request.control.forked_from.is_none();
    let before = request.control.sources.clone();
    let mut all = before
        .or(is_new.then(Vec::new))
        .filter(|_| telling(commit) > 0)?;
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
            Call::Model { .. } | Call::Facts { .. } | Call::Document { .. } => {}
        }
    }
    let members =
        provenance::fan_in(&commit.finish.activity).map(|fan_in| fan_in.members.as_slice());
    for member in members.unwrap_or_default() {
        match (&member.sources, member.status) {
            (Some(sources), _) => add(sources),
            (None, CompletionStatus::Answered) => return None,
            // Who did not answer gave nothing to rest on.
            (
                None,
                CompletionStatus::Error
                | CompletionStatus::Timeout
                | CompletionStatus::Cancelled
                | CompletionStatus::DeadLettered,
            ) => {}
        }
    }
    Some(all)
}

/// The routing, with what the config says of what it names.
fn routed(commit: &Commit) -> Option<Routed> {
    let Commit {
        request, snapshot, ..
    } = commit;
    let routed = commit.finish.routed.clone();
    let mut routed =
        routed.or_else(|| (request.step == 0).then(|| routing::arrived(request, snapshot)))?;
    if telling(commit) >= 2 {
        routed.described = routing::described(&routed, snapshot);
    }
    Some(routed)
}

fn telling(commit: &Commit) -> u32 {
    commit.worked.as_ref().map_or(0, |worked| worked.telling)
}

/// What the step did. An end that came over the head of another attempt did what that had begun.
fn activity(commit: &Commit) -> Activity {
    let mut activity = commit.finish.activity.clone();
    let answer = match &commit.finish.outcome {
        Outcome::Answer(answer) => Some(answer.text.as_str()),
        // What was found until then is an answer in part.
        Outcome::Cancelled(end) if telling(commit) >= 6 => so_far::of(&end.text),
        Outcome::Cancelled(_)
        | Outcome::Fail { .. }
        | Outcome::Continue(_)
        | Outcome::FanOut(_)
        | Outcome::Pause(_) => None,
    };
    if let (Activity::Concluded(end), Some(answer)) = (&mut activity, answer) {
        end.grounds = sources(commit).map(|sources| cited::grounds(answer, &sources));
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
                Call::Model { .. } | Call::Facts { .. } | Call::Document { .. } => None,
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
fn documents(record: &StepRecord, finish: &Finish) -> Vec<(String, String)> {
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
    if let Some((text, uri)) = end_text(record, finish) {
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

/// The text a session without an answer ends with.
fn end_text(record: &StepRecord, finish: &Finish) -> Option<(String, String)> {
    let text = match &finish.outcome {
        Outcome::Fail { error, .. } => error_text(error),
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

struct Publisher<'a> {
    commit: &'a Commit,
    record: &'a StepRecord,
    out: Vec<Publication>,
}

impl Publisher<'_> {
    /// In the order of publication: provenance and deadlines before any child, so that whoever
    /// looks finds them; responses; then the next request or the children.
    fn all(
        &mut self,
        told: &provenance::Told,
        identity: &Digest,
    ) -> (Option<FanOutRecord>, Option<PauseRecord>) {
        self.provenance(told);
        self.hard_deadline();
        let outcome = &self.commit.finish.outcome;
        let (mut fan_out_record, mut pause_record) = (None, None);
        if let Outcome::FanOut(fan_out) = outcome {
            self.deadline(told, property::KIND_JOIN, fan_out.join_deadline);
        }
        if let Activity::Asked(asked) = &self.record.activity {
            self.deadline(told, property::KIND_APPROVAL, asked.expires_at);
        }
        self.responses(told);
        match outcome {
            Outcome::Continue(next) => {
                let next = self.next((**next).clone(), identity, &told.last);
                self.request(&next);
            }
            Outcome::FanOut(fan_out) => {
                let mut first = None;
                for (_, child) in &fan_out.children {
                    first.get_or_insert_with(|| child.limits.clone());
                    let mut child = child.clone();
                    child.control.after = self.record.committed_at;
                    self.request(&child);
                }
                let mut synthesis = self.next(fan_out.synthesis.clone(), identity, &told.last);
                if self.record.telling() >= 2 {
                    synthesis.correlation_id = fan_out.correlation.clone();
                }
                synthesis.control.fan_in_session = SessionId::default();
                synthesis.control.spent = self.record.total;
                fan_out_record = Some(FanOutRecord {
                    session: self.record.session.clone(),
                    step: self.record.step,
                    root: self.record.root.clone(),
                    correlation: fan_out.correlation.clone(),
                    children: fan_out.children.iter().map(|(c, _)| c.clone()).collect(),
                    policy: fan_out.policy,
                    join_deadline: fan_out.join_deadline,
                    synthesis_step: synthesis.step,
                    allotment: first.unwrap_or_default(),
                    synthesis: self.request_publication(&synthesis),
                });
            }
            Outcome::Pause(resume) => {
                let resume = self.next((**resume).clone(), identity, &told.last);
                pause_record = approval::record(self.record, self.request_publication(&resume));
            }
            Outcome::Answer(_) | Outcome::Cancelled(_) | Outcome::Fail { .. } => {}
        }
        (fan_out_record, pause_record)
    }

    fn next(&self, mut next: AgentRequest, identity: &Digest, last: &str) -> AgentRequest {
        let record = self.record;
        next.step = record.step + 1;
        next.control.root = record.root.clone();
        next.control.previous = Some(identity.clone());
        next.control.config_version = Some(record.config_version);
        next.control.spent = record.total;
        let parent = record.parent.as_ref();
        next.correlation_id = parent.map(|p| p.correlation.clone()).unwrap_or_default();
        next.control.after = record.committed_at;
        next.control.forked_from = None;
        if let Some(sources) = sources(self.commit) {
            next.control.sources = Some(sources);
        }
        last.clone_into(&mut next.control.derives_from);
        if next.control.started_at == 0 {
            next.control.started_at = record.started_at;
        }
        next
    }

    fn carried(&self) -> BTreeMap<String, String> {
        let record = self.record;
        let mut properties = carried(&self.commit.properties);
        properties.insert(property::SESSION.into(), record.session.to_string());
        properties.insert(property::STEP.into(), record.step.to_string());
        properties.insert(property::ROOT.into(), record.root.to_string());
        properties
    }

    fn publish(&mut self, topic: &Topic, properties: BTreeMap<String, String>, body: String) {
        self.out.push(Publication {
            topic: topic.as_str().to_owned(),
            properties,
            deliver_at: None,
            body,
        });
    }

    /// What the message about a node says.
    fn message(&self, about: &str, triples: Vec<Triple>) -> String {
        json(&Triples {
            metadata: Metadata {
                id: about.to_owned(),
                root: uris::session(&self.record.root),
                collection: self.record.collection.to_string(),
            },
            triples,
        })
    }

    /// What the step tells the graph, in messages that a broker takes.
    fn messages(&self, told: &provenance::Told) -> Vec<String> {
        let whole = self.message(&told.node, told.triples.clone());
        if whole.len() <= MOST_TOLD || self.record.telling() < 5 {
            return vec![whole];
        }
        let (mut messages, mut part, mut size) = (Vec::new(), Vec::new(), 0);
        for triple in &told.triples {
            let bytes = json(triple).len();
            if size + bytes > MOST_TOLD && size > 0 {
                messages.push(self.message(&told.node, std::mem::take(&mut part)));
                size = 0;
            }
            size += bytes;
            part.push(triple.clone());
        }
        messages.push(self.message(&told.node, part));
        messages
    }

    fn provenance(&mut self, told: &provenance::Told) {
        let mut properties = self.carried();
        let record = self.record;
        let terminal = record.outcome.is_terminal();
        let kind = match &record.parent {
            Some(parent) if terminal => {
                properties.insert(property::CORRELATION.into(), parent.correlation.to_string());
                properties.insert(property::PARENT.into(), parent.session.to_string());
                properties.insert(property::PARENT_STEP.into(), parent.step.to_string());
                properties.insert(property::INDEX.into(), parent.index.to_string());
                let status = completion_status(record).as_str();
                properties.insert("status".into(), status.to_owned());
                property::KIND_COMPLETION
            }
            _ => property::KIND_STEP,
        };
        properties.insert(property::KIND.into(), kind.to_owned());
        if !record.conversation.is_empty() {
            properties.insert("conversation".into(), record.conversation.to_string());
        }
        for body in self.messages(told) {
            self.publish(&topics::EXPLAINABILITY, properties.clone(), body);
        }
    }

    /// One for each root, when it is accepted: a run without any fan-out would have none.
    fn hard_deadline(&mut self) {
        let control = &self.commit.request.control;
        if self.record.step > 0 || self.record.parent.is_some() || self.record.outcome.is_terminal()
        {
            return;
        }
        let mut properties = self.carried();
        properties.insert(property::KIND.into(), property::KIND_HARD.into());
        properties.insert(property::DUE.into(), control.hard_deadline.to_string());
        let body = self.message(&uris::session(&self.record.session), Vec::new());
        self.out.push(Publication {
            topic: topics::DEADLINE.as_str().to_owned(),
            properties,
            deliver_at: Some(next_hop(self.record.committed_at, control.hard_deadline)),
            body,
        });
    }

    fn deadline(&mut self, told: &provenance::Told, kind: &str, due: Millis) {
        let mut properties = self.carried();
        properties.insert(property::KIND.into(), kind.into());
        properties.insert(property::DUE.into(), due.to_string());
        let repeated = match self.record.telling() {
            0..=4 => told.triples.clone(),
            _ => Vec::new(),
        };
        let body = self.message(&told.node, repeated);
        self.out.push(Publication {
            topic: topics::DEADLINE.as_str().to_owned(),
            properties,
            deliver_at: Some(next_hop(self.record.committed_at, due)),
            body,
        });
    }

    fn request_publication(&self, request: &AgentRequest) -> Publication {
        let mut properties = self.carried();
        properties.insert(property::SESSION.into(), request.session_id.to_string());
        properties.insert(property::STEP.into(), request.step.to_string());
        if let Some(above) = request.control.ancestors.last()
            && request.is_subagent()
        {
            let own = self.record.parent.as_ref();
            let own = own.filter(|_| request.session_id == self.record.session);
            let correlation = own.map_or(&request.correlation_id, |p| &p.correlation);
            properties.insert(property::CORRELATION.into(), correlation.to_string());
            properties.insert(property::PARENT.into(), above.session.to_string());
            properties.insert(property::PARENT_STEP.into(), above.step.to_string());
            properties.insert(property::INDEX.into(), request.control.index.to_string());
        }
        Publication {
            topic: topics::AGENT_REQUEST.as_str().to_owned(),
            properties,
            deliver_at: None,
            body: json(request),
        }
    }

    fn request(&mut self, request: &AgentRequest) {
        let publication = self.request_publication(request);
        self.out.push(publication);
    }

    fn respond(&mut self, response: &AgentResponse) {
        let mut properties = self.carried();
        properties.remove(property::STEP);
        let body = json(response);
        let topic = self.commit.responses.clone();
        self.publish(&topic, properties, body);
    }

    fn response(&self, kind: MessageType) -> AgentResponse {
        let record = self.record;
        // Who watches learns from these which goal a session works on.
        let names_goal = matches!(kind, MessageType::Explain | MessageType::Status);
        AgentResponse {
            subagent_goal: match &record.parent {
                Some(parent) if names_goal => parent.goal.clone(),
                _ => String::new(),
            },
            message_type: kind,
            session_id: record.session.clone(),
            root_session_id: record.root.clone(),
            parent_session_id: record
                .parent
                .as_ref()
                .map(|p| p.session.clone())
                .unwrap_or_default(),
            conversation_id: record.conversation.clone(),
            step: Some(record.step),
            ..AgentResponse::default()
        }
    }

    fn responses(&mut self, told: &provenance::Told) {
        let is_root = self.record.parent.is_none();
        let terminal = self.record.outcome.is_terminal();
        let mut explain = self.response(MessageType::Explain);
        explain.explain_id = Some(told.node.clone());
        explain.explain_graph = Some(uris::RETRIEVAL_GRAPH.to_owned());
        self.respond(&explain);

        let commit = self.commit;
        let last = commit.finish.said.len().saturating_sub(1);
        for (position, said) in commit.finish.said.iter().enumerate() {
            let mut response = self.said(said);
            if terminal && is_root && position == last && said.message_type == MessageType::Answer {
                self.end(&mut response);
            }
            self.respond(&response);
        }
        match &commit.finish.outcome {
            Outcome::Continue(_) | Outcome::FanOut(_) | Outcome::Pause(_) | Outcome::Answer(_) => {}
            Outcome::Cancelled(answer) => {
                let error = say::error_of(&answer.text, answer.termination);
                self.end_in_error(&error, answer.text.clone(), is_root);
            }
            Outcome::Fail { error, .. } => self.end_in_error(error, error_text(error), is_root),
        }
        if !is_root && terminal {
            let mut done = self.response(MessageType::Status);
            done.content = format!("Completed: {}", completion_status(self.record).as_str());
            done.end_of_message = true;
            done.message_id = MessageId::of_attempt(&commit.nonce, "completed");
            self.respond(&done);
        }
    }

    /// `text` says the error, and whatever else there is to say.
    fn end_in_error(&mut self, error: &ErrorBody, text: String, is_root: bool) {
        let mut response = self.response(MessageType::Error);
        response.content = text;
        response.error = Some(error.clone());
        response.end_of_message = true;
        response.message_id = MessageId::of_attempt(&self.commit.nonce, "error");
        response.document = Some(uris::answer_document(&self.record.session));
        if is_root {
            self.end(&mut response);
        }
        self.respond(&response);
    }

    /// Marks the one end of the dialog (OR-3).
    fn end(&self, response: &mut AgentResponse) {
        response.end_of_dialog = true;
        response.in_token = Some(self.record.usage.input_tokens);
        response.out_token = Some(self.record.usage.output_tokens);
        response.model = self.record.calls.iter().rev().find_map(|call| match call {
            Call::Model { model, .. } => Some(model.clone()),
            Call::Tool { .. } | Call::Facts { .. } | Call::Document { .. } => None,
        });
    }

    /// A complete message. What was streamed is not said again; if it differs from the text, the
    /// text comes whole under another id, and readers drop the other for want of an end.
    fn said(&self, said: &Said) -> AgentResponse {
        let kind = match said.message_type {
            MessageType::Thought => "thought",
            MessageType::Action => "action",
            MessageType::Answer => "answer",
            MessageType::Observation => "observation",
            MessageType::Explain
            | MessageType::Status
            | MessageType::Error
            | MessageType::Unknown => "status",
        };
        let commit = self.commit;
        let (streamed, chunks) = match said.message_type {
            MessageType::Thought => (&commit.streamed.thought, commit.streamed.thought_chunks),
            MessageType::Action => (&commit.streamed.action, commit.streamed.action_chunks),
            MessageType::Answer => (&commit.streamed.answer, commit.streamed.answer_chunks),
            MessageType::Observation
            | MessageType::Explain
            | MessageType::Status
            | MessageType::Error
            | MessageType::Unknown => (const { &String::new() }, 0),
        };
        let mut response = self.response(said.message_type);
        response.end_of_message = true;
        response.document.clone_from(&said.document);
        if let Activity::FannedOut(fan_out) = &self.record.activity {
            let sessions = fan_out.children.iter().map(|child| child.session.clone());
            response.subagents = sessions.collect();
        }
        if said.document.is_some() {
            response.digest = Some(Digest::of(said.text.as_bytes()));
        }
        match said.text.strip_prefix(streamed.as_str()) {
            Some(rest) if said.streamed && chunks > 0 && !commit.streamed.has_gap => {
                response.message_id = MessageId::of_attempt(&commit.nonce, kind);
                rest.clone_into(&mut response.content);
                response.seq = Some(chunks);
            }
            _ => {
                let id = if chunks > 0 {
                    format!("{kind}-whole")
                } else {
                    kind.to_owned()
                };
                response.message_id = MessageId::of_attempt(&commit.nonce, &id);
                response.content.clone_from(&said.text);
                response.seq = Some(0);
            }
        }
        response
    }
}

/// Wire types are plain data: writing one as JSON cannot fail.
fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
