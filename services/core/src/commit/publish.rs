//! What a step publishes: what it tells the graph, its deadlines, its responses, and what comes next.

use super::{Commit, carried, error_text, json, sources, told_error};
use crate::approval;
use crate::deadline::next_hop;
use crate::order::{Outcome, Said};
use crate::provenance::{self, completion_status};
use crate::say;
use crate::words;
use agentfleet_schema::records::{
    Activity, Call, FanOutRecord, PauseRecord, Publication, StepRecord,
};
use agentfleet_schema::topics::{self, Topic, property};
use agentfleet_schema::{
    AgentRequest, AgentResponse, Digest, ErrorBody, MessageId, MessageType, Metadata, Millis,
    SessionId, Triple, uris,
};
use std::collections::BTreeMap;

/// Bytes of triples in one message, about. A fan-out to hundreds tells more than a message may hold.
pub(super) const MOST_TOLD: usize = 1024 * 1024;

/// Behind the status of a subagent that ended with less than was asked.
pub const PARTIAL: &str = " (partial)";

pub(super) struct Publisher<'a> {
    pub(super) commit: &'a Commit,
    pub(super) record: &'a StepRecord,
    pub(super) out: Vec<Publication>,
}

impl Publisher<'_> {
    /// In the order of publication: provenance and deadlines before any child, so that whoever
    /// looks finds them; responses; then the next request or the children.
    pub(super) fn all(
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
                synthesis.correlation_id = fan_out.correlation.clone();
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
        next.control.sources = sources(self.commit);
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
        if !record.tenant.is_empty() {
            properties.insert(property::TENANT.into(), record.tenant.clone());
        }
        for body in messages(record, told) {
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
        let body = message(self.record, &uris::session(&self.record.session), &[]);
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
        let body = message(self.record, &told.node, &[]);
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
            Outcome::Fail { error, .. } => {
                let error = told_error(
                    self.record,
                    error,
                    words::locale(&commit.request, &commit.snapshot),
                );
                self.end_in_error(&error, error_text(&error), is_root);
            }
        }
        if !is_root && terminal {
            let mut done = self.response(MessageType::Status);
            let status = completion_status(self.record).as_str();
            let is_partial = self.record.concluded().is_some_and(|end| end.partial);
            let partial = if is_partial { PARTIAL } else { "" };
            done.content = format!("Completed: {status}{partial}");
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
            Call::Tool { .. } | Call::Document { .. } => None,
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

/// What the message about a node says.
fn message(record: &StepRecord, about: &str, triples: &[Triple]) -> String {
    #[derive(serde::Serialize)]
    struct Message<'a> {
        metadata: Metadata,
        triples: &'a [Triple],
    }
    json(&Message {
        metadata: Metadata {
            id: about.to_owned(),
            root: uris::session(&record.root),
            collection: record.collection.to_string(),
        },
        triples,
    })
}

/// What a step tells the graph, in messages that a broker takes.
pub(super) fn messages(record: &StepRecord, told: &provenance::Told) -> Vec<String> {
    let whole = message(record, &told.node, &told.triples);
    if whole.len() <= MOST_TOLD {
        return vec![whole];
    }
    let (mut messages, mut from, mut size) = (Vec::new(), 0, 0);
    for (at, triple) in told.triples.iter().enumerate() {
        let bytes = json(triple).len();
        if size + bytes > MOST_TOLD && size > 0 {
            messages.push(message(record, &told.node, &told.triples[from..at]));
            (from, size) = (at, 0);
        }
        size += bytes;
    }
    messages.push(message(record, &told.node, &told.triples[from..]));
    messages
}
