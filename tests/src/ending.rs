//! What must be true when nothing more can happen: before any deadline has to help, and at the very
//! end.

use crate::queues::Role;
use crate::world::World;
use agentfleet_core::conversation;
use agentfleet_core::provenance::completion_status;
use agentfleet_runtime::client::{Assembler, Event};
use agentfleet_schema::records::{Activity, CompletionStatus, OutcomeKind, StepRecord};
use agentfleet_schema::vocabulary::{prov, tg};
use agentfleet_schema::{Digest, SessionId, keys, uris};
use oxigraph::model::{NamedNodeRef, NamedOrBlankNode, Term};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Nothing is in flight but deadlines: no run may need one to go on, unless somebody is stuck.
    pub fn check_calm(&mut self) {
        let stuck: BTreeSet<SessionId> = self
            .tasks
            .values()
            .filter(|task| task.stuck)
            .filter_map(|task| task.request.as_ref().map(|r| r.root().clone()))
            .chain(self.waiting().map(|record| record.root.clone()))
            .collect();
        if let Err(what) = self
            .fan_ins_are_decided()
            .and_then(|()| self.sessions_ended(&stuck))
        {
            self.violate(format!("LV-1 (before any deadline): {what}"));
        }
    }

    /// Steps that wait for a person, and nothing came after them; and answers whose giver died before
    /// they were published, which are taken up by a sweep or at the end of the wait.
    pub fn waiting(&self) -> impl Iterator<Item = &StepRecord> {
        let records = self.facts.records.iter();
        records.filter_map(|((session, step), record)| {
            let after = (session.clone(), step + 1);
            let waits = match &record.activity {
                Activity::Asked(_) => true,
                Activity::Decided(_) => !self.is_published(record),
                _ => false,
            };
            (waits && !self.facts.records.contains_key(&after)).then_some(&**record)
        })
    }

    /// Every fan-out whose rule is met has its verdict, and its verdict was published.
    fn fan_ins_are_decided(&self) -> Result<(), String> {
        for (place, record) in &self.facts.records {
            let Activity::FannedOut(fan_out) = &record.activity else {
                continue;
            };
            if self.facts.verdicts.contains_key(place) {
                if !self.is_released(place) {
                    return Err(format!("the verdict on {place:?} was never published"));
                }
                continue;
            }
            let ends: Vec<CompletionStatus> = fan_out
                .children
                .iter()
                .filter_map(|child| self.end_of(&child.session))
                .filter(|end| self.is_published(end))
                .map(|end| completion_status(end))
                .collect();
            let answered = ends
                .iter()
                .filter(|s| **s == CompletionStatus::Answered)
                .count();
            let enough = self.policy(place).enough(fan_out.children.len());
            let met = enough.is_some_and(|enough| answered >= enough);
            if met || ends.len() == fan_out.children.len() {
                return Err(format!(
                    "the fan-in of {place:?} is complete and nobody concluded it"
                ));
            }
        }
        Ok(())
    }

    /// Every session that was started has ended, and its end was published.
    fn sessions_ended(&self, exempt: &BTreeSet<SessionId>) -> Result<(), String> {
        let mut known: BTreeMap<&SessionId, &SessionId> = BTreeMap::new();
        for record in self.facts.records.values() {
            known.insert(&record.session, &record.root);
            if let Activity::FannedOut(fan_out) = &record.activity {
                known.extend(
                    fan_out
                        .children
                        .iter()
                        .map(|child| (&child.session, &record.root)),
                );
            }
        }
        for (session, root) in known {
            if exempt.contains(root) {
                continue;
            }
            let Some(end) = self.end_of(session) else {
                return Err(format!("session {session} never ended"));
            };
            if !self.is_published(end) {
                return Err(format!("the end of session {session} was never published"));
            }
        }
        Ok(())
    }

    /// The end of the run: faults stopped, time went on, everything was delivered.
    pub fn check_end(&mut self) {
        let checks = [
            Self::fan_ins_are_decided,
            |world: &Self| world.sessions_ended(&BTreeSet::new()),
            Self::roots_answered,
            Self::steps_have_outcomes,
            Self::nothing_is_left,
            Self::documents_are_the_records,
            Self::conversations_hold_their_runs,
            Self::late_results_are_marked,
            Self::provenance_is_complete,
            Self::steps_come_out_again,
            Self::what_is_stored_agrees,
        ];
        for check in checks {
            if let Err(what) = check(self) {
                self.violate(format!("at the end: {what}"));
            }
        }
    }

    /// LV-1, OR-3: every request from outside has exactly one end, and a reader can tell it.
    fn roots_answered(&self) -> Result<(), String> {
        for root in &self.scenario.roots {
            let sessions = self.facts.sessions.get(&root.work);
            let Some(session) = sessions.and_then(|sessions| sessions.first()) else {
                return Err(format!(
                    "LV-1: {} was asked for and no session came of it",
                    root.work
                ));
            };
            let ids = self.facts.ends.get(session).map_or(0, BTreeSet::len);
            if ids != 1 {
                return Err(format!("OR-3: {} has {ids} ends of its dialog", root.work));
            }
            self.readable(session)?;
        }
        Ok(())
    }

    /// A reader of the responses sees one end, with the committed text (13).
    fn readable(&self, session: &SessionId) -> Result<(), String> {
        let mut assembler = Assembler::default();
        let mut texts = Vec::new();
        for (root, response) in &self.responses {
            if root == session.as_str() {
                for event in assembler.take(response) {
                    if let Event::End { text, response, .. } = event {
                        texts.push((text, response));
                    }
                }
            }
        }
        let [(text, response)] = &texts[..] else {
            return Err(format!(
                "OR-3: a reader of {session} sees {} ends",
                texts.len()
            ));
        };
        let stored = self
            .documents
            .get(&keys::document(&uris::answer_document(session)));
        let stored = stored.map(|body| String::from_utf8_lossy(body).into_owned());
        let whole = response
            .digest
            .as_ref()
            .is_none_or(|d| *d == Digest::of(text.as_bytes()));
        // A reader whose chunks do not add up fetches the document.
        if whole && stored.as_ref() != Some(text) {
            return Err(format!(
                "a reader of {session} reads `{text}`, committed is {stored:?}"
            ));
        }
        Ok(())
    }

    /// OR-1: whatever was asked for has its outcome.
    fn steps_have_outcomes(&self) -> Result<(), String> {
        let missing = self
            .facts
            .asked
            .iter()
            .find(|place| !self.facts.records.contains_key(*place));
        match missing {
            Some(place) => Err(format!("OR-1: {place:?} was delivered and has no outcome")),
            None => Ok(()),
        }
    }

    fn nothing_is_left(&self) -> Result<(), String> {
        let queue = self
            .queues
            .list
            .iter()
            .find(|queue| !queue.entries.is_empty());
        match queue {
            Some(queue) => Err(format!(
                "LV-1: {} messages of {} are left",
                queue.entries.len(),
                queue.role
            )),
            None => Ok(()),
        }
    }

    /// What is over is forgotten where siblings are counted, at the latest by a sweep.
    pub fn check_swept(&mut self) {
        if let Some(fan_out) = self.counted.keys().next() {
            self.violate(format!("the siblings of {fan_out} are counted still"));
        }
    }

    /// The librarian has the texts that the winning records speak of.
    fn documents_are_the_records(&self) -> Result<(), String> {
        for (place, record) in &self.facts.records {
            for document in &record.documents {
                let Some(body) = self.documents.get(&keys::document(&document.uri)) else {
                    return Err(format!(
                        "{place:?} speaks of `{}`, not stored",
                        document.uri
                    ));
                };
                if Digest::of(body) != document.digest {
                    let text = String::from_utf8_lossy(body);
                    return Err(format!(
                        "OR-2: {place:?} speaks of `{}`, and another attempt's text lies there: {text}",
                        document.uri
                    ));
                }
            }
        }
        Ok(())
    }

    /// Each run of a conversation is noted in it, once, and no session below one is.
    fn conversations_hold_their_runs(&self) -> Result<(), String> {
        let noted = self.documents.keys();
        let mut noted: BTreeSet<&String> = noted
            .filter(|key| keys::exchange_of(key).is_some())
            .collect();
        for record in self.facts.records.values() {
            let Some(key) = conversation::key(record) else {
                continue;
            };
            if !noted.remove(&key) {
                return Err(format!("the conversation does not know {}", record.session));
            }
        }
        match noted.first() {
            None => Ok(()),
            Some(key) => Err(format!("`{key}` is of no run")),
        }
    }

    /// FI-3: a result that came after its verdict is kept, and marked.
    fn late_results_are_marked(&self) -> Result<(), String> {
        for verdict in self.facts.verdicts.values() {
            for child in &verdict.missing {
                if self.end_of(&child.session).is_none() {
                    continue;
                }
                let completion = uris::completion(&child.session);
                if self.objects(&completion, tg::LATE).is_empty() {
                    return Err(format!(
                        "FI-3: the late result of {} is not marked",
                        child.session
                    ));
                }
            }
        }
        Ok(())
    }

    pub fn objects(&self, subject: &str, predicate: &str) -> Vec<String> {
        let subject = NamedNodeRef::new_unchecked(subject);
        let predicate = NamedNodeRef::new_unchecked(predicate);
        self.graph
            .quads_for_pattern(Some(subject.into()), Some(predicate), None, None)
            .filter_map(Result::ok)
            .map(|quad| match quad.object {
                Term::NamedNode(node) => node.into_string(),
                Term::Literal(literal) => literal.value().to_owned(),
                Term::BlankNode(_) | Term::Triple(_) => String::new(),
            })
            .collect()
    }

    /// PV-1: every answer reaches its question, and its root's.
    fn provenance_is_complete(&self) -> Result<(), String> {
        let mut derived: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let predicate = NamedNodeRef::new_unchecked(prov::WAS_DERIVED_FROM);
        for quad in self
            .graph
            .quads_for_pattern(None, Some(predicate), None, None)
            .flatten()
        {
            let (NamedOrBlankNode::NamedNode(from), Term::NamedNode(to)) =
                (quad.subject, quad.object)
            else {
                return Err("PV-1: a derivation from or to something without a name".to_owned());
            };
            derived
                .entry(from.into_string())
                .or_default()
                .push(to.into_string());
        }
        for (place, record) in &self.facts.records {
            if record.outcome != OutcomeKind::Answer {
                continue;
            }
            let mut reached = BTreeSet::new();
            let mut open = vec![uris::answer(&record.session)];
            while let Some(node) = open.pop() {
                if reached.insert(node.clone()) {
                    open.extend(derived.get(&node).into_iter().flatten().cloned());
                }
            }
            for question in [
                uris::question(&record.session),
                uris::question(&record.root),
            ] {
                if !reached.contains(&question) {
                    return Err(format!(
                        "PV-1: the answer of {place:?} does not reach {question}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether anything but deadlines is still on its way.
    pub fn is_calm(&self) -> bool {
        self.queues
            .list
            .iter()
            .filter(|queue| queue.role != Role::Deadlines)
            .all(|queue| {
                queue
                    .entries
                    .values()
                    .all(|entry| !entry.holders.is_empty())
            })
    }
}
