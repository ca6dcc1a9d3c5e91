//! The triples of a step: a pure function of its record.
//!
//! No clock and no blank nodes, so that whoever writes them, however often, writes the same. The
//! question is an entity that the session's activity used; derivation chains end there (PV-1).

use crate::history::CONTEXT;
use crate::patterns::{COMPLETE, FAILED, REVISED};
use crate::say;
use agentfleet_schema::records::{
    Activity, ApprovalAnswer, Asked, Call, Child, Compared, CompletionStatus, Concluded, Critique,
    Decided, DecidedBy, Decision, Described, Executed, FanInSummary, FannedOut, Grounds, Iterated,
    OutcomeKind, PRICED, Planned, Routed, Source, StepRecord, StepResult,
};
use agentfleet_schema::uris;
use agentfleet_schema::vocabulary::{RDF_TYPE, RDFS_LABEL, prov, tg, xsd};
use agentfleet_schema::{Digest, Millis, Spent, Term, Triple, keys};
use std::collections::BTreeSet;

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
        Activity::Executed(executed) => executed.after.as_ref(),
        Activity::None
        | Activity::Iterated(_)
        | Activity::Planned(_)
        | Activity::Asked(_)
        | Activity::Decided(_) => None,
    }
}

/// Whether something is missing from the answer that a terminal record gives.
pub fn is_partial(record: &StepRecord) -> bool {
    matches!(&record.activity, Activity::Concluded(end) if end.partial)
}

/// The status a subagent's terminal record states.
pub fn completion_status(record: &StepRecord) -> CompletionStatus {
    use agentfleet_schema::records::Termination;
    let termination = match &record.activity {
        Activity::Concluded(concluded) => concluded.termination,
        Activity::None
        | Activity::Iterated(_)
        | Activity::FannedOut(_)
        | Activity::Planned(_)
        | Activity::Executed(_)
        | Activity::Asked(_)
        | Activity::Decided(_) => Termination::Error,
    };
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
        if record.conversation.is_empty() || record.telling() < 2 {
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

    /// What the config says of a task type or pattern.
    fn described(&mut self, item: &Described) {
        let (uri, class) = if item.subject == "task-type" {
            (uris::task_type(&item.name), tg::TASK_TYPE_CLASS)
        } else {
            (uris::pattern(&item.name), tg::PATTERN_CLASS)
        };
        self.types(&uri, &[prov::ENTITY, class]);
        self.text(&uri, RDFS_LABEL, &item.name);
        self.text(&uri, tg::DESCRIPTION, &item.description);
        self.number(&uri, tg::CONFIG_VERSION, self.record.config_version);
    }

    fn session(&mut self, routed: &Routed) {
        let record = self.record;
        let session = uris::session(&record.session);
        let question = uris::question(&record.session);
        let agent = uris::agent(&record.session);
        self.types(
            &session,
            &[prov::ACTIVITY, tg::QUESTION, tg::AGENT_QUESTION],
        );
        self.text(&session, RDFS_LABEL, "Agent Question");
        self.instant(&session, prov::STARTED_AT_TIME, record.began());
        self.add(&session, tg::QUERY, Term::text(&*routed.question));
        self.link(&session, prov::USED, &question);
        self.link(&session, prov::WAS_ASSOCIATED_WITH, &agent);
        self.text(&session, tg::COLLECTION, record.collection.as_str());
        self.text(&session, tg::CONVERSATION_ID, record.conversation.as_str());
        self.text(&session, tg::ROOT_SESSION_ID, record.root.as_str());
        self.types(&agent, &[prov::AGENT, prov::SOFTWARE_AGENT]);
        let name = format!("{} agent", routed.pattern);
        self.text(&agent, RDFS_LABEL, name.trim_start());
        self.types(&question, &[prov::ENTITY]);
        self.text(&question, RDFS_LABEL, "Question");
        self.add(&question, prov::VALUE, Term::text(&*routed.question));
        self.text(&question, tg::CONVERSATION_ID, record.conversation.as_str());
        if let Some(from) = record
            .forked_from
            .as_ref()
            .filter(|_| record.parent.is_none())
        {
            // Asked anew of what another session had come to.
            self.link(
                &session,
                prov::WAS_INFORMED_BY,
                &uris::session(&from.session),
            );
            if let Some(node) = uris::as_iri(&from.node) {
                self.link(&question, prov::WAS_DERIVED_FROM, &node);
            }
        }
        if let Some(parent) = &record.parent {
            self.text(
                &session,
                tg::PARENT_CORRELATION_ID,
                parent.correlation.as_str(),
            );
            self.text(&session, tg::PARENT_SESSION_ID, parent.session.as_str());
            self.text(&session, tg::SUBAGENT_GOAL, &parent.goal);
            self.number(&session, tg::SIBLING_INDEX, u64::from(parent.index));
            self.link(
                &session,
                prov::WAS_INFORMED_BY,
                &uris::session(&parent.session),
            );
            self.link(
                &agent,
                prov::ACTED_ON_BEHALF_OF,
                &uris::agent(&parent.session),
            );
            let goal = uris::goal(&parent.session, &parent.correlation, parent.index);
            self.link(&question, prov::WAS_DERIVED_FROM, &goal);
        }
    }

    fn routing(&mut self, routed: &Routed) -> String {
        let session = self.record.session.clone();
        let routing = uris::routing(&session);
        let question = uris::question(&session);
        let label = format!("Routing: {}", routed.pattern);
        self.node(&routing, &[tg::ROUTING_DECISION], &label, &question);
        if !routed.task_type.is_empty() {
            self.link(&routing, tg::TASK_TYPE, &uris::task_type(&routed.task_type));
        }
        self.link(
            &routing,
            tg::SELECTED_PATTERN,
            &uris::pattern(&routed.pattern),
        );
        let mut last = question;
        for decision in &routed.decisions {
            let uri = uris::routing_decision(&session, &decision.subject);
            self.decision(&uri, decision, &last);
            self.link(&routing, prov::WAS_DERIVED_FROM, &uri);
            for option in &decision.options {
                match decision.subject.as_str() {
                    "task-type" => {
                        self.link(&routing, tg::CANDIDATE_TASK_TYPES, &uris::task_type(option));
                    }
                    _ => self.link(&routing, tg::CANDIDATE_PATTERNS, &uris::pattern(option)),
                }
            }
            if !decision.rationale.is_empty() {
                self.link(&routing, tg::ROUTING_RATIONALE, &uris::document_of(&uri));
            }
            last = uri;
        }
        for item in &routed.described {
            self.described(item);
        }
        routing
    }

    fn decision(&mut self, uri: &str, decision: &Decision, derived_from: &str) {
        let label = format!("Decision: {} = {}", decision.subject, decision.chosen);
        self.node(uri, &[tg::DECISION], &label, derived_from);
        self.text(uri, tg::DECISION_SUBJECT, &decision.subject);
        for option in &decision.options {
            self.text(uri, tg::OPTION, option);
        }
        self.text(uri, tg::NARROWED_BY, &decision.narrowed_by);
        self.text(uri, tg::SIGNAL, &decision.signal);
        self.text(uri, tg::SELECTED, &decision.chosen);
        self.text(uri, tg::DECIDED_BY, decision.decided_by.as_str());
        if !decision.rationale.is_empty() {
            self.link(uri, tg::RATIONALE, &uris::document_of(uri));
        }
        // The pattern of a subagent was chosen above, where the model is known.
        let is_theirs = self.record.parent.is_some() && decision.subject == "pattern";
        if decision.decided_by == DecidedBy::Model && !is_theirs {
            self.attribution(uri);
        }
    }

    /// The model that spoke, if one did.
    fn attribution(&mut self, uri: &str) {
        let model = self.record.calls.iter().rev().find_map(|call| match call {
            Call::Model { model, .. } if !model.is_empty() => Some(model.clone()),
            Call::Model { .. } | Call::Tool { .. } | Call::Facts { .. } | Call::Document { .. } => {
                None
            }
        });
        let Some(model) = model else { return };
        let agent = uris::model(&model);
        self.types(&agent, &[prov::AGENT, prov::SOFTWARE_AGENT]);
        self.text(&agent, RDFS_LABEL, &model);
        self.link(uri, prov::WAS_ATTRIBUTED_TO, &agent);
        self.text(uri, tg::LLM_MODEL, &model);
    }

    /// The time of a step that decided, and did nothing beside.
    fn spent(&mut self, uri: &str) {
        let ms = |call: &Call| match call {
            Call::Model { ms, .. } => Some(*ms),
            Call::Tool { .. } | Call::Facts { .. } | Call::Document { .. } => None,
        };
        let spent: Vec<u64> = self.record.calls.iter().filter_map(ms).collect();
        if !spent.is_empty() {
            self.number(uri, tg::LLM_DURATION_MS, spent.iter().sum());
        }
    }

    /// What is told of the step as a whole: which record it is of, and the calls it made. Every
    /// step has one main node, so that sums over nodes count each step once.
    fn step(&mut self, uri: &str, identity: &Digest) {
        let record = self.record;
        let key = keys::outcome(&record.session, record.step);
        self.text(uri, tg::STEP_RECORD, &key);
        self.text(uri, tg::DIGEST, identity.as_str());
        self.usage(uri);
        let mut models = BTreeSet::new();
        let (mut by_model, mut by_tool) = ((0, 0), (0, 0));
        let (mut cut_replies, mut not_called) = (0, BTreeSet::new());
        for call in &record.calls {
            match call {
                Call::Model {
                    model,
                    ms,
                    cut,
                    ignored,
                    ..
                } => {
                    by_model = (by_model.0 + 1, by_model.1 + ms);
                    models.insert(model.as_str());
                    cut_replies += u64::from(*cut);
                    not_called.extend(ignored);
                }
                Call::Tool { ms, .. } => by_tool = (by_tool.0 + 1, by_tool.1 + ms),
                Call::Facts { .. } | Call::Document { .. } => {}
            }
        }
        for (counted, timed, (calls, ms)) in [
            (tg::MODEL_CALLS, tg::MODEL_TIME_MS, by_model),
            (tg::TOOL_CALLS, tg::TOOL_TIME_MS, by_tool),
        ] {
            self.number(uri, counted, calls);
            self.number(uri, timed, ms);
        }
        for model in models {
            self.text(uri, tg::MODEL_USED, model);
        }
        if cut_replies > 0 {
            self.number(uri, tg::CUT_REPLIES, cut_replies);
        }
        for tool in not_called {
            self.text(uri, tg::IGNORED_CALL, tool);
        }
        let worked = record.worked.as_ref();
        if let Some(waited) = worked.and_then(|worked| worked.waited.as_ref()) {
            self.number(uri, tg::MODEL_WAITS, u64::from(waited.times));
            self.number(uri, tg::MODEL_WAIT_MS, waited.ms);
            self.text(uri, tg::MODEL_WAIT_REASON, &waited.reason);
        }
        if !record.wasted.is_nothing() {
            let names = [
                tg::WASTED_TOKENS,
                tg::WASTED_COST,
                tg::WASTED_MODEL_CALLS,
                tg::WASTED_TOOL_CALLS,
            ];
            self.account(uri, record.wasted, names);
        }
    }

    /// An account, by the names it has there.
    fn account(&mut self, uri: &str, spent: Spent, names: [&'static str; 4]) {
        let [tokens, cost, model_calls, tool_calls] = names;
        self.number(uri, tokens, spent.tokens);
        for (name, calls) in [
            (model_calls, spent.model_calls),
            (tool_calls, spent.tool_calls),
        ] {
            if calls > 0 {
                self.number(uri, name, calls);
            }
        }
        if !spent.cost.is_zero() {
            let amount = Term::typed(spent.cost.to_string(), xsd::DECIMAL);
            self.add(uri, cost, amount);
        }
    }

    fn usage(&mut self, uri: &str) {
        let usage = self.record.usage;
        if usage.total() > 0 {
            self.number(uri, tg::IN_TOKEN, usage.input_tokens);
            self.number(uri, tg::OUT_TOKEN, usage.output_tokens);
        }
        let cost = usage.known_cost(self.record.telling());
        let is_free = self.record.telling() >= PRICED && usage.total() > 0 && cost.is_nothing();
        if cost.known() > 0.0 || is_free {
            let amount = format!("{:.9}", cost.known());
            self.add(uri, tg::COST, Term::typed(amount, xsd::DECIMAL));
        }
        if usage.unpriced_calls > 0 {
            self.number(uri, tg::UNPRICED_CALLS, usage.unpriced_calls);
        }
    }

    fn iteration(&mut self, it: &Iterated, derived_from: &str) -> (String, String) {
        let (uri, observation) = self.cycle(it, derived_from);
        self.attribution(&uri);
        (uri, observation)
    }

    /// An iteration, without what its step spent.
    fn cycle(&mut self, it: &Iterated, derived_from: &str) -> (String, String) {
        let session = self.record.session.clone();
        let uri = uris::iteration(&session, it.n);
        let label = format!("Analysis: {}", it.action);
        self.node(&uri, &[tg::ANALYSIS, tg::TOOL_USE], &label, derived_from);
        self.text(&uri, tg::ACTION, &it.action);
        let arguments = serde_json::to_string(&it.arguments).unwrap_or_default();
        self.text(&uri, tg::ARGUMENTS, &arguments);
        for candidate in &it.candidates {
            self.text(&uri, tg::TOOL_CANDIDATE, candidate);
        }
        self.number(&uri, tg::STEP_NUMBER, u64::from(it.n));
        self.number(&uri, tg::LLM_DURATION_MS, it.model_ms);
        self.thought(&it.thought, it.n, &uri);

        let observation = uris::observation(&session, it.n);
        self.node(&observation, &[tg::OBSERVATION_CLASS], "Observation", &uri);
        self.link(&uri, tg::OBSERVATION, &observation);
        if !it.observation.is_empty() {
            self.link(&observation, tg::DOCUMENT, &uris::document_of(&observation));
        }
        self.number(&observation, tg::TOOL_DURATION_MS, it.tool_ms);
        if it.is_error {
            self.types(&observation, &[tg::ERROR]);
            let short: String = it.observation.chars().take(200).collect();
            self.text(&observation, tg::TOOL_ERROR, &short);
        }
        for source in &it.sources {
            let links = [tg::SOURCE, prov::HAD_PRIMARY_SOURCE, prov::WAS_DERIVED_FROM];
            self.source(&observation, source, &links);
        }
        (uri, observation)
    }

    /// A call that waits for a person.
    fn approval(&mut self, asked: &Asked, derived_from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::approval(&session, &asked.id);
        let label = format!("Approval asked: {}", asked.tool);
        self.node(&uri, &[tg::APPROVAL_REQUEST], &label, derived_from);
        self.text(&uri, tg::APPROVAL_ID, asked.id.as_str());
        self.text(&uri, tg::ACTION, &asked.tool);
        let arguments = serde_json::to_string(&asked.arguments).unwrap_or_default();
        self.text(&uri, tg::ARGUMENTS, &arguments);
        for candidate in &asked.candidates {
            self.text(&uri, tg::TOOL_CANDIDATE, candidate);
        }
        self.number(&uri, tg::STEP_NUMBER, u64::from(asked.n));
        self.text(&uri, tg::REASON, &asked.reason);
        self.instant(&uri, tg::EXPIRES, asked.expires_at);
        self.text(&uri, tg::DEFAULT_ANSWER, asked.default.as_str());
        self.number(&uri, tg::LLM_DURATION_MS, asked.model_ms);
        self.attribution(&uri);
        if !asked.thought.is_empty() {
            let thought = uris::approval_thought(&session, &asked.id);
            self.thought_at(&thought, &uri);
        }
        uri
    }

    /// Who answered, and with what the call is made, on the decision that the answer is.
    fn answer(&mut self, decision: &str, decided: &Decided) {
        self.text(decision, tg::APPROVAL_ID, decided.id.as_str());
        if decided.answer == ApprovalAnswer::Edit {
            let arguments = serde_json::to_string(&decided.arguments).unwrap_or_default();
            self.text(decision, tg::ARGUMENTS, &arguments);
        }
        if decided.by.is_empty() {
            return;
        }
        let person = uris::person(&decided.by);
        self.types(&person, &[prov::AGENT, prov::PERSON]);
        self.text(&person, RDFS_LABEL, &decided.by);
        self.link(decision, prov::WAS_ATTRIBUTED_TO, &person);
    }

    fn source(&mut self, uri: &str, source: &Source, links: &[&str]) {
        let Some(iri) = uris::as_iri(&source.uri) else {
            return;
        };
        self.types(&iri, &[prov::ENTITY]);
        self.text(&iri, RDFS_LABEL, &source.title);
        for link in links {
            self.link(uri, link, &iri);
        }
    }

    /// What an answer rests on: it derives from what it names, and from nothing that was only read.
    fn grounds(&mut self, uri: &str, grounds: &Grounds) {
        for source in &grounds.cited {
            self.source(uri, source, &[tg::CITES, prov::WAS_DERIVED_FROM]);
        }
        for source in &grounds.consulted {
            self.source(uri, source, &[tg::CONSULTED]);
        }
        self.flag(uri, tg::UNSOURCED, grounds.is_empty());
    }

    fn thought(&mut self, thought: &str, n: u32, of: &str) {
        if thought.is_empty() {
            return;
        }
        self.thought_at(&uris::thought(&self.record.session, n), of);
    }

    fn thought_at(&mut self, uri: &str, of: &str) {
        self.types(uri, &[prov::ENTITY, tg::REFLECTION, tg::THOUGHT_CLASS]);
        self.text(uri, RDFS_LABEL, "Thought");
        self.made_by_session(uri);
        self.link(uri, prov::WAS_DERIVED_FROM, of);
        self.link(uri, tg::DOCUMENT, &uris::document_of(uri));
        self.link(of, tg::THOUGHT, uri);
    }

    fn fan_out(&mut self, fan_out: &FannedOut, derived_from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::fan_out(&session, &fan_out.correlation);
        let label = format!("Fan-out to {}", say::subagents(fan_out.children.len()));
        self.node(&uri, &[tg::FAN_OUT], &label, derived_from);
        self.text(&uri, tg::CORRELATION_ID, fan_out.correlation.as_str());
        self.number(&uri, tg::EXPECTED_SIBLINGS, fan_out.children.len() as u64);
        self.number(&uri, tg::ROUND, u64::from(fan_out.round));
        self.text(&uri, tg::JOIN_POLICY, &fan_out.policy.to_string());
        self.instant(&uri, tg::JOIN_DEADLINE, fan_out.join_deadline);
        self.number(&uri, tg::LLM_DURATION_MS, fan_out.model_ms);
        self.link(&uri, tg::DOCUMENT, &uris::document_of(&uri));
        self.attribution(&uri);
        for child in &fan_out.children {
            let goal = uris::goal(&session, &fan_out.correlation, child.index);
            self.types(&goal, &[prov::ENTITY]);
            self.text(&goal, RDFS_LABEL, &child.goal);
            self.made_by_session(&goal);
            self.link(&goal, prov::WAS_DERIVED_FROM, &uri);
            self.link(&uri, tg::SUBAGENT_GOALS, &goal);
        }
        uri
    }

    fn plan(&mut self, planned: &Planned, derived_from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::plan(&session, planned.revision);
        let open = planned.steps.len() as u32 - planned.first;
        let label = if planned.revision == 0 {
            format!("Plan with {open} steps")
        } else {
            format!("Revised plan with {open} new steps")
        };
        self.node(&uri, &[tg::PLAN], &label, derived_from);
        if planned.revision > 0 {
            let before = uris::plan(&session, planned.revision - 1);
            self.link(&uri, prov::WAS_REVISION_OF, &before);
            self.text(&uri, tg::REASON, &planned.reason);
        }
        let before = planned
            .steps
            .iter()
            .zip(0_u32..)
            .take(planned.first as usize);
        for (step, at) in before.filter(|(step, _)| step.status == REVISED) {
            self.text(&uri, tg::REVISED_STEP, &format!("{at}: {}", step.goal));
        }
        self.number(&uri, tg::REVISION, u64::from(planned.revision));
        for (step, at) in planned
            .steps
            .iter()
            .zip(0_u32..)
            .skip(planned.first as usize)
        {
            let mut said = Vec::new();
            if !step.specialist.is_empty() {
                said.push(format!("to {}", step.specialist));
            }
            if !step.depends_on.is_empty() {
                let needed: Vec<String> = step.depends_on.iter().map(u32::to_string).collect();
                said.push(format!("after {}", needed.join(", ")));
            }
            let said = match said.join(", ") {
                nothing if nothing.is_empty() => nothing,
                said => format!(" ({said})"),
            };
            self.text(&uri, tg::PLAN_STEP, &format!("{at}: {}{said}", step.goal));
        }
        if !self.routed_to_specialists(planned) {
            self.link(&uri, tg::DOCUMENT, &uris::document_of(&uri));
        }
        self.number(&uri, tg::LLM_DURATION_MS, planned.model_ms);
        self.attribution(&uri);
        uri
    }

    /// What steps of a plan had come to when a fork took it over. What brought that is told of the run
    /// that it was forked from.
    fn carried(&mut self, planned: &Planned, plan: &str) {
        let session = self.record.session.clone();
        let steps = planned.steps.iter().zip(0_u32..);
        for (step, at) in steps.skip(planned.first as usize) {
            if ![COMPLETE, FAILED].contains(&step.status.as_str()) {
                continue;
            }
            let uri = uris::step_result(&session, at);
            let label = format!("Step result: {}", step.goal);
            self.node(&uri, &[tg::STEP_RESULT], &label, plan);
            self.number(&uri, tg::PLAN_INDEX, u64::from(at));
            self.text(&uri, tg::PLAN_STEP, &step.goal);
            self.text(&uri, tg::PLAN_STATUS, &step.status);
        }
    }

    /// A plan that a router made is told by its decisions; it has no text of its own.
    fn routed_to_specialists(&self, planned: &Planned) -> bool {
        planned.steps.iter().any(|step| !step.specialist.is_empty())
            && self
                .record
                .decisions
                .iter()
                .any(|d| d.subject == "specialist")
    }

    fn step_result(&mut self, executed: &Executed, result: &StepResult, from: &str) -> String {
        let session = self.record.session.clone();
        let uri = uris::step_result(&session, result.index);
        let label = format!("Step result: {}", result.goal);
        self.node(&uri, &[tg::STEP_RESULT], &label, from);
        self.link(
            &uri,
            prov::WAS_DERIVED_FROM,
            &uris::plan(&session, executed.revision),
        );
        for needed in &result.depends_on {
            self.link(
                &uri,
                prov::WAS_DERIVED_FROM,
                &uris::step_result(&session, *needed),
            );
        }
        self.number(&uri, tg::PLAN_INDEX, u64::from(result.index));
        self.text(&uri, tg::PLAN_STEP, &result.goal);
        self.text(&uri, tg::PLAN_STATUS, &result.status);
        let document = if result.session.is_empty() {
            uris::document_of(&uri)
        } else {
            uris::answer_document(&result.session)
        };
        if executed.after.is_none() || !result.session.is_empty() {
            self.link(&uri, tg::DOCUMENT, &document);
        }
        if executed.call.is_none() && executed.after.is_none() {
            // No iteration states what was spent on it.
            self.number(&uri, tg::LLM_DURATION_MS, executed.model_ms);
            self.attribution(&uri);
        }
        uri
    }

    /// What an agent said of what it did: a reflection, as thoughts are.
    fn critique(&mut self, critique: &Critique, n: u32, of: &str) -> String {
        let uri = uris::critique(&self.record.session, n);
        let label = if critique.sent_back {
            "Critique: sent back"
        } else {
            "Critique"
        };
        self.node(&uri, &[tg::REFLECTION, tg::CRITIQUE], label, of);
        self.link(&uri, tg::DOCUMENT, &uris::document_of(&uri));
        self.flag(&uri, tg::SENT_BACK, critique.sent_back);
        uri
    }

    /// How the answers of a debate stand to each other.
    fn comparison(&mut self, compared: &Compared, of: &FanInSummary, from: &str) -> String {
        let uri = uris::comparison(&self.record.session, &of.correlation);
        let label = if compared.agreed {
            "Comparison: agreement"
        } else {
            "Comparison: disagreement"
        };
        self.node(&uri, &[tg::COMPARISON], label, from);
        self.number(&uri, tg::ROUND, u64::from(compared.round));
        for position in &compared.positions {
            let text = format!("{}: {}", position.reasoner, position.position);
            self.text(&uri, tg::POSITION, &text);
        }
        for disagreement in &compared.disagreements {
            self.text(&uri, tg::DISAGREEMENT, disagreement);
        }
        self.attribution(&uri);
        uri
    }

    /// What a supervisor read when its fan-in had a verdict.
    fn synthesis(&mut self, fan_in: &FanInSummary, derived_from: &str) -> String {
        let uri = uris::synthesis(&self.record.session, &fan_in.correlation);
        self.node(&uri, &[tg::SYNTHESIS], "Synthesis", derived_from);
        self.text(&uri, tg::CORRELATION_ID, fan_in.correlation.as_str());
        self.text(&uri, tg::JOIN_CAUSE, fan_in.cause.as_str());
        for member in &fan_in.members {
            // What a failed sibling left is its completion, not an answer.
            let of = match member.status {
                CompletionStatus::Answered => uris::answer(&member.session),
                CompletionStatus::Error
                | CompletionStatus::Timeout
                | CompletionStatus::Cancelled
                | CompletionStatus::DeadLettered => uris::completion(&member.session),
            };
            self.link(&uri, prov::WAS_DERIVED_FROM, &of);
        }
        for Child { session, .. } in &fan_in.missing {
            self.link(&uri, tg::MISSING, &uris::session(session));
        }
        uri
    }

    fn conclusion(&mut self, end: &Concluded, derived_from: &str) -> String {
        let record = self.record;
        let session = uris::session(&record.session);
        let uri = uris::answer(&record.session);
        let failed = record.outcome != OutcomeKind::Answer;
        let kinds: &[&str] = if failed {
            &[tg::CONCLUSION, tg::ERROR]
        } else {
            &[tg::CONCLUSION, tg::ANSWER]
        };
        self.node(
            &uri,
            kinds,
            if failed {
                "Ended without an answer"
            } else {
                "Answer"
            },
            derived_from,
        );
        self.text(&uri, tg::TERMINATION_REASON, end.termination.as_str());
        self.flag(&uri, tg::PARTIAL, end.partial);
        self.link(&uri, tg::DOCUMENT, &uris::answer_document(&record.session));
        if let Some(error) = &end.error {
            self.text(&uri, tg::ERROR_CODE, &error.code);
        }
        if end.n > 0 {
            self.thought(&end.thought, end.n, &uri);
        }
        for part in &end.confidence {
            let text = if part.part.is_empty() {
                format!("{:.2}", part.confidence)
            } else {
                format!("{}: {:.2}", part.part, part.confidence)
            };
            self.text(&uri, tg::CONFIDENCE, &text);
        }
        if let Some(grounds) = &end.grounds {
            self.grounds(&uri, grounds);
        }
        self.number(&uri, tg::LLM_DURATION_MS, end.model_ms);
        self.attribution(&uri);
        self.instant(&session, prov::ENDED_AT_TIME, record.committed_at);
        if record.parent.is_some() {
            self.completion(&uri, end);
        }
        uri
    }

    fn completion(&mut self, answer: &str, end: &Concluded) {
        let record = self.record;
        let Some(parent) = &record.parent else { return };
        let uri = uris::completion(&record.session);
        self.node(
            &uri,
            &[tg::SUBAGENT_COMPLETION],
            "Subagent completion",
            answer,
        );
        self.text(&uri, tg::CORRELATION_ID, parent.correlation.as_str());
        self.text(&uri, tg::SUBAGENT_SESSION_ID, record.session.as_str());
        self.text(&uri, tg::PARENT_SESSION_ID, parent.session.as_str());
        self.text(&uri, tg::SUBAGENT_GOAL, &parent.goal);
        self.number(&uri, tg::SIBLING_INDEX, u64::from(parent.index));
        self.text(&uri, tg::STATUS, completion_status(record).as_str());
        self.flag(&uri, tg::PARTIAL, is_partial(record));
        if let Some(error) = end.error.as_ref().filter(|_| record.telling() >= 2) {
            self.text(&uri, tg::ERROR_MESSAGE, &error.message);
        }
        self.link(&uri, tg::RESULT, &uris::answer_document(&record.session));
        let names = [
            tg::TOKENS,
            tg::COST_TOTAL,
            tg::MODEL_CALLS_TOTAL,
            tg::TOOL_CALLS_TOTAL,
        ];
        self.account(&uri, record.total, names);
        if record.total.unpriced_calls > 0 {
            self.number(&uri, tg::UNPRICED_CALLS_TOTAL, record.total.unpriced_calls);
        }
        self.text(&uri, tg::COLLECTION, record.collection.as_str());
    }
}

/// An instant as `xsd:dateTime` in UTC with milliseconds.
pub fn date_time(at: Millis) -> String {
    let days = at.div_euclid(86_400_000);
    let in_day = at.rem_euclid(86_400_000);
    // Civil from days, after Howard Hinnant's published algorithm.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, millis) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
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
