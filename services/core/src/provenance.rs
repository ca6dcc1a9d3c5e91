//! The triples of a step: a pure function of its record.
//!
//! No clock and no blank nodes, so that whoever writes them, however often, writes the same. The
//! question is an entity that the session's activity used; derivation chains end there (PV-1).

mod account;
mod end;
mod fan_out;
mod iteration;
mod plan;
mod session;

use crate::history::CONTEXT;
use agentfleet_schema::records::{
    Activity, CompletionStatus, Concluded, Decision, Executed, FanInSummary, OutcomeKind,
    StepRecord,
};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg, xsd};
use agentfleet_schema::{Digest, Millis, Term, Triple};

/// The triples of a record, and the node that later ones derive from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    pub triples: Vec<Triple>,
    /// The step's main node: what the explainability message and the `explain` event name.
    pub node: String,
    /// The node the next step's first node derives from.
    pub last: String,
}

/// Tells a record in triples.
pub fn tell(record: &StepRecord) -> Told {
    tell_as(record, &record.identity())
}

/// Tells a record whose identity is known.
pub fn tell_as(record: &StepRecord, identity: &Digest) -> Told {
    let session = &record.session;
    let mut teller = Teller {
        record,
        triples: Vec::new(),
        node: uris::session(session),
        last: record.derives_from.clone(),
    };
    teller.beginning();
    teller.reading();
    teller.doing();
    teller.deciding();
    teller.concluding();
    let node = teller.node.clone();
    if node != uris::session(session) {
        teller.step(&node, identity);
    }
    teller.documents();
    Told {
        triples: teller.triples,
        node,
        last: teller.last,
    }
}

/// The parts of a step, in the order in which each derives from the one before.
impl Teller<'_> {
    /// The session where it begins, its routing, and what was shown of the history: that was settled before
    /// anything was done.
    fn beginning(&mut self) {
        let record = self.record;
        let session = &record.session;
        if let Some(routed) = &record.routed {
            self.session(routed);
            self.last = uris::question(session);
            if !routed.decisions.is_empty() {
                self.last = self.routing(routed);
                self.node.clone_from(&self.last);
            }
        }
        for decision in record.decisions.iter().filter(|it| is_earlier(it)) {
            self.node = self.decision_here(decision);
        }
    }

    /// What was read of a fan-in: whatever the step then decided, and whether it answered or went on, came of
    /// reading this.
    fn reading(&mut self) {
        let Some(fan_in) = fan_in(&self.record.activity) else {
            return;
        };
        let last = self.last.clone();
        self.last = self.synthesis(fan_in, &last);
        let compared = match &self.record.activity {
            Activity::Concluded(end) => end.compared.as_ref(),
            Activity::FannedOut(fan_out) => fan_out.compared.as_ref(),
            Activity::None
            | Activity::Iterated(_)
            | Activity::Planned(_)
            | Activity::Executed(_)
            | Activity::Asked(_)
            | Activity::Decided(_) => None,
        };
        if let Some(compared) = compared {
            let last = self.last.clone();
            self.last = self.comparison(compared, fan_in, &last);
        }
    }

    /// A call and its critique: what was decided about something done comes after it.
    fn doing(&mut self) {
        let last = self.last.clone();
        match &self.record.activity {
            Activity::Iterated(iterated) => {
                (self.node, self.last) = self.iteration(iterated, &last);
                if let Some(critique) = &iterated.critique {
                    let last = self.last.clone();
                    self.last = self.critique(critique, iterated.n, &last);
                }
            }
            Activity::Executed(Executed {
                call: Some(call), ..
            }) => (self.node, self.last) = self.iteration(call, &last),
            Activity::Concluded(Concluded {
                critique: Some(critique),
                n,
                ..
            }) => self.last = self.critique(critique, *n, &last),
            Activity::None
            | Activity::Executed(_)
            | Activity::Concluded(_)
            | Activity::FannedOut(_)
            | Activity::Planned(_)
            | Activity::Asked(_)
            | Activity::Decided(_) => {}
        }
    }

    fn deciding(&mut self) {
        let record = self.record;
        let did = matches!(record.activity, Activity::Iterated(_));
        let here = |decision: &&Decision| !is_later(record, decision) && !is_earlier(decision);
        for decision in record.decisions.iter().filter(here) {
            let uri = self.decision_here(decision);
            if !did {
                self.node = uri;
            }
        }
    }

    /// The step's own node, where it is of what the step came to.
    fn concluding(&mut self) {
        let record = self.record;
        let (node, last) = (self.node.clone(), self.last.clone());
        match &record.activity {
            // A step states its tokens once: where it did what they were spent on.
            Activity::None if node != uris::session(&record.session) => self.spent(&node),
            Activity::None | Activity::Iterated(_) => {}
            Activity::Planned(planned) => {
                self.node = self.plan(planned, &last);
                self.last.clone_from(&self.node);
                self.carried(planned, &self.node.clone());
            }
            Activity::Executed(executed) => {
                for result in &executed.steps {
                    self.node = self.step_result(executed, result, &last);
                    self.last.clone_from(&self.node);
                }
                let later = |decision: &&Decision| is_later(record, decision);
                for decision in record.decisions.iter().filter(later) {
                    self.decision_here(decision);
                }
            }
            Activity::Asked(asked) => {
                self.node = self.approval(asked, &last);
                self.last.clone_from(&self.node);
            }
            // The decision tells it.
            Activity::Decided(decided) => self.answer(&node, decided),
            Activity::FannedOut(fanned_out) => {
                self.node = self.fan_out(fanned_out, &last);
                self.last.clone_from(&self.node);
            }
            Activity::Concluded(concluded) => {
                let mut last = last;
                for cut_off in &concluded.cut_off {
                    (_, last) = self.cycle(cut_off, &last);
                }
                self.node = self.conclusion(concluded, &last);
                self.last.clone_from(&self.node);
            }
        }
    }

    /// A decision that what comes next derives from.
    fn decision_here(&mut self, decision: &Decision) -> String {
        let uri = uris::decision(&self.record.session, self.record.step, &decision.subject);
        let last = std::mem::replace(&mut self.last, uri.clone());
        self.decision(&uri, decision, &last);
        uri
    }
}

fn is_earlier(decision: &Decision) -> bool {
    decision.subject == CONTEXT
}

/// Whether to revise a plan is decided when the step's result is there.
fn is_later(record: &StepRecord, decision: &Decision) -> bool {
    matches!(record.activity, Activity::Executed(_)) && decision.subject == "replan"
}

/// What a step read of a fan-in.
pub(crate) fn fan_in(activity: &Activity) -> Option<&FanInSummary> {
    match activity {
        Activity::Concluded(end) => end.fan_in.as_ref(),
        Activity::FannedOut(fan_out) => fan_out.after.as_ref(),
        Activity::Executed(executed) => {
            let of_call = executed.call.as_ref().and_then(|call| call.after.as_ref());
            executed.after.as_ref().or(of_call)
        }
        Activity::Iterated(iterated) => iterated.after.as_ref(),
        Activity::None | Activity::Planned(_) | Activity::Asked(_) | Activity::Decided(_) => None,
    }
}

/// Whether something is missing from the answer that a terminal record gives.
pub fn is_partial(record: &StepRecord) -> bool {
    record.concluded().is_some_and(|end| end.partial)
}

/// The status a subagent's terminal record states.
pub fn completion_status(record: &StepRecord) -> CompletionStatus {
    use agentfleet_schema::records::Termination;
    let end = record.concluded();
    let termination = end.map_or(Termination::Error, |end| end.termination);
    match record.outcome {
        OutcomeKind::Answer => CompletionStatus::Answered,
        OutcomeKind::Cancelled | OutcomeKind::Fail => match termination {
            Termination::Timeout => CompletionStatus::Timeout,
            Termination::Cancelled => CompletionStatus::Cancelled,
            Termination::DeadLettered => CompletionStatus::DeadLettered,
            Termination::FinalAnswer
            | Termination::SubagentsComplete
            | Termination::PlanComplete
            | Termination::MaxIterations
            | Termination::MaxReplans
            | Termination::BudgetExhausted
            | Termination::RepeatedAction
            | Termination::ReplyCut
            | Termination::NeedsClarification
            | Termination::Error => CompletionStatus::Error,
        },
        OutcomeKind::Continue | OutcomeKind::FanOut | OutcomeKind::Pause => CompletionStatus::Error,
    }
}

struct Teller<'a> {
    record: &'a StepRecord,
    triples: Vec<Triple>,
    /// The step's main node.
    node: String,
    /// What comes next derives from this node.
    last: String,
}

impl Teller<'_> {
    fn add(&mut self, subject: &str, predicate: &str, object: Term) {
        self.triples.push(Triple::new(subject, predicate, object));
    }

    fn types(&mut self, subject: &str, types: &[&str]) {
        for class in types {
            self.add(subject, RDF_TYPE, Term::iri(*class));
        }
    }

    fn link(&mut self, subject: &str, predicate: &str, object: &str) {
        self.add(subject, predicate, Term::iri(object));
    }

    fn text(&mut self, subject: &str, predicate: &str, text: &str) {
        if !text.is_empty() {
            self.add(subject, predicate, Term::text(text));
        }
    }

    fn number(&mut self, subject: &str, predicate: &str, number: u64) {
        self.add(
            subject,
            predicate,
            Term::typed(number.to_string(), xsd::INTEGER),
        );
    }

    fn flag(&mut self, subject: &str, predicate: &str, flag: bool) {
        if flag {
            self.add(subject, predicate, Term::typed("true", xsd::BOOLEAN));
        }
    }

    fn instant(&mut self, subject: &str, predicate: &str, at: Millis) {
        self.add(
            subject,
            predicate,
            Term::typed(date_time(at), xsd::DATE_TIME),
        );
    }

    /// What every main node carries.
    fn node(&mut self, uri: &str, types: &[&str], label: &str, derived_from: &str) {
        let record = self.record;
        self.types(uri, &[prov::ENTITY]);
        self.types(uri, types);
        self.text(uri, RDFS_LABEL, label);
        self.made_by_session(uri);
        if !derived_from.is_empty() {
            self.link(uri, prov::WAS_DERIVED_FROM, derived_from);
        }
        self.instant(uri, prov::GENERATED_AT_TIME, record.committed_at);
        self.number(uri, tg::CONFIG_VERSION, record.config_version);
        if record.attempt > 1 {
            self.number(uri, tg::ATTEMPT, u64::from(record.attempt));
        }
    }

    /// The session an entity belongs to, with the conversation that session is part of.
    fn made_by_session(&mut self, uri: &str) {
        let record = self.record;
        self.link(uri, prov::WAS_GENERATED_BY, &uris::session(&record.session));
        self.text(uri, tg::CONVERSATION_ID, record.conversation.as_str());
    }

    /// The texts of a conversation carry its id, so that they are found by it. Goals are nodes that
    /// carry it already.
    fn documents(&mut self) {
        let record = self.record;
        if record.conversation.is_empty() {
            return;
        }
        for document in &record.documents {
            let uri = &document.uri;
            if self.triples.iter().any(|t| t.s.iri == *uri) {
                continue;
            }
            self.types(uri, &[prov::ENTITY, tg::DOCUMENT_CLASS]);
            self.text(uri, RDFS_LABEL, "Document");
            self.text(uri, tg::CONVERSATION_ID, record.conversation.as_str());
        }
    }
}

/// An instant as `xsd:dateTime` in UTC with milliseconds.
pub fn date_time(at: Millis) -> String {
    let at = chrono::DateTime::from_timestamp_millis(at).unwrap_or_default();
    at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(date_time(at), expected);
        }
    }
}
