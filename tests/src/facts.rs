//! What has been seen so far, and the invariants that can be checked at the very effect that would
//! break them. What only the end of a run can show is in `ending`.

use crate::effect::{Effect, Fault};
use crate::queues::Role;
use crate::scenario::named_in;
use crate::world::World;
use agentfleet_broker::{Durability, MAX_PAYLOAD, Outgoing};
use agentfleet_core::approval;
use agentfleet_core::commit::read_whole;
use agentfleet_core::provenance::completion_status;
use agentfleet_schema::config::JoinPolicy;
use agentfleet_schema::records::{
    AcceptedRecord, Activity, ApprovalAnswer, Call, CallStatus, CompletionStatus, FanInRecord,
    FanOutRecord, IntentRecord, JoinCause, OutcomeKind, Publication, ResultRecord, StepRecord,
};
use agentfleet_schema::topics::{AGENT_REQUEST, AGENT_RESPONSE, DEADLINE, property};
use agentfleet_schema::{
    AgentRequest, AgentResponse, CorrelationId, MessageId, Operation, SessionId, keys, uris,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A step of a session.
pub type Place = (SessionId, u32);

/// Everything remembered about a run.
#[derive(Debug, Default)]
pub struct Facts {
    /// Nonces of the records that are in fences.
    fenced: HashSet<String>,
    pub records: BTreeMap<Place, Arc<StepRecord>>,
    pub verdicts: BTreeMap<Place, FanInRecord>,
    /// Publications that a committed record allows.
    allowed: HashSet<u64>,
    /// Publications that were made.
    made: HashSet<u64>,
    /// Calls whose end nobody knows, by the step that made them: tool and arguments.
    unknown: BTreeMap<Place, (String, BTreeMap<String, String>)>,
    /// Requests from outside that name nobody, as they were published.
    pub unnamed: HashSet<Vec<u8>>,
    /// Which step answered a correlation.
    syntheses: BTreeMap<CorrelationId, Place>,
    /// Ids of the messages that ended a dialog, by root.
    pub ends: BTreeMap<SessionId, BTreeSet<MessageId>>,
    /// Root sessions of a piece of work that was asked for from outside.
    pub sessions: BTreeMap<String, BTreeSet<SessionId>>,
    /// Steps that were asked for.
    pub asked: BTreeSet<Place>,
    /// Keys of the batches that reached the graph.
    pub inserted: BTreeSet<String>,
    pub faults: BTreeMap<Fault, u64>,
    /// What people were told of their answers: who, and what.
    pub told: Vec<(String, String)>,
    /// How often something worth counting happened.
    pub counts: BTreeMap<&'static str, u64>,
}

impl Facts {
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

fn fingerprint(topic: &str, properties: &BTreeMap<String, String>, body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, properties, body).hash(&mut hasher);
    hasher.finish()
}

fn allows(publication: &Publication) -> u64 {
    fingerprint(
        &publication.topic,
        &publication.properties,
        publication.body.as_bytes(),
    )
}

impl World {
    pub(crate) fn on_created(&mut self, key: &str, body: &[u8]) {
        if let Some(rest) = key.strip_suffix("/outcome") {
            match read_whole(body) {
                Ok(record) => self.on_outcome(rest, Arc::new(record)),
                Err(error) => self.violate(format!("`{key}` is no step record: {error}")),
            }
        } else if key.ends_with("/fanin") {
            match serde_json::from_slice::<FanInRecord>(body) {
                Ok(verdict) => self.on_verdict(key, verdict),
                Err(error) => self.violate(format!("`{key}` is no verdict: {error}")),
            }
        } else if key.ends_with("/intent") {
            self.on_fence(body);
        } else if let Some(call) = key.strip_suffix("/result") {
            self.on_result(call, body);
        } else if key.starts_with("parked/") {
            self.facts.count("parked");
        } else if key.contains("/unknown/") {
            self.facts.count("unknown calls");
        } else if key.ends_with("/closed") {
            self.facts.count("closed trees");
        }
    }

    /// A fence with the record of its step is the commit. Whoever puts the record in its place later works
    /// nothing.
    fn on_fence(&mut self, body: &[u8]) {
        let fence = serde_json::from_slice::<IntentRecord>(body).unwrap_or_default();
        let record = fence
            .record
            .as_deref()
            .map(|body| read_whole(body.as_bytes()));
        if let Some(Ok(record)) = record {
            self.check_stopped(&record);
            self.facts.fenced.insert(record.nonce);
        }
    }

    /// Nobody knows how a call ended: an equal one must not follow in its session.
    fn on_result(&mut self, call: &str, body: &[u8]) {
        let intent = self.documents.get(&format!("{call}/intent"));
        let (Some(Ok(intent)), Ok(result)) = (
            intent.map(|body| serde_json::from_slice::<IntentRecord>(body)),
            serde_json::from_slice::<ResultRecord>(body),
        ) else {
            return;
        };
        let request = self.task().and_then(|task| task.request.clone());
        if result.status == CallStatus::Unknown
            && let Some(request) = request
        {
            let place = (request.session_id, request.step);
            self.facts
                .unknown
                .insert(place, (intent.tool, intent.arguments));
        }
    }

    /// What patterns did, so that runs in which nothing of it happens show.
    fn count_pattern(&mut self, record: &StepRecord) {
        let mut seen = Vec::new();
        match &record.activity {
            Activity::Planned(plan) if plan.revision > 0 => seen.push("revised plans"),
            Activity::Planned(_) => seen.push("plans"),
            Activity::Executed(executed) if executed.after.is_some() => {
                seen.push("steps by subagents");
            }
            Activity::Executed(executed) => {
                seen.push("steps of plans");
                let called = executed.call.iter().filter(|it| it.after.is_some());
                seen.extend(called.map(|_| "agents asked by plans"));
            }
            Activity::Iterated(it) => {
                let critique = it.critique.iter();
                seen.extend(critique.filter(|c| c.sent_back).map(|_| "sent back"));
                seen.extend(it.after.iter().map(|_| "agents asked"));
            }
            Activity::FannedOut(fan_out) => {
                seen.extend(fan_out.compared.iter().map(|_| "rounds of debates"));
            }
            Activity::Asked(asked) if asked.after_unknown => seen.push("pauses after unknown"),
            Activity::Decided(decided) => {
                seen.push(match (decided.answer, decided.by.is_empty()) {
                    (_, true) => "expired approvals",
                    (ApprovalAnswer::Approve, false) => "approved",
                    (ApprovalAnswer::Deny, false) => "denied",
                    (ApprovalAnswer::Edit, false) => "edited",
                });
            }
            Activity::None | Activity::Asked(_) | Activity::Concluded(_) => {}
        }
        let routed = record.decisions.iter();
        seen.extend(
            routed
                .filter(|d| d.subject == "specialist")
                .map(|_| "dispatches"),
        );
        let fitted = record.decisions.iter().filter(|d| d.subject == "context");
        seen.extend(fitted.map(|d| match d.chosen.as_str() {
            "summary" => "histories summarised",
            _ => "histories shortened",
        }));
        for what in seen {
            self.facts.count(what);
        }
    }

    fn on_outcome(&mut self, key: &str, record: Arc<StepRecord>) {
        let place: Place = (record.session.clone(), record.step);
        if format!("{key}/outcome") != keys::outcome(&place.0, place.1) {
            self.violate(format!("OR-2: the record of {place:?} lies at `{key}`"));
        }
        self.facts.count(match record.outcome {
            OutcomeKind::Continue => "continued",
            OutcomeKind::FanOut => "fan-outs",
            OutcomeKind::Answer => "answers",
            OutcomeKind::Pause => "pauses",
            OutcomeKind::Cancelled => "cancelled",
            OutcomeKind::Fail => "failures",
        });
        self.count_pattern(&record);
        self.check_chain(&record);
        self.check_identity(&record);
        self.check_choices(&record);
        self.check_synthesis(&record);
        if !self.facts.fenced.contains(&record.nonce) {
            self.check_stopped(&record);
        }
        self.check_cut_off(&record);
        for publication in &record.publications {
            if publication.body.len() > MAX_PAYLOAD {
                self.violate(format!(
                    "OR-1: step {place:?} can never be published: too large"
                ));
            }
            self.facts.allowed.insert(allows(publication));
        }
        if record.parent.is_none() && record.step == 0 {
            let told = record.routed.as_ref().map(|routed| routed.question.clone());
            let asked = || self.tasks.get(&self.current?)?.request.clone();
            let question = told.or_else(|| asked().map(|request| request.question));
            if let Some(name) = question.as_deref().and_then(named_in) {
                self.facts
                    .sessions
                    .entry(name.to_owned())
                    .or_default()
                    .insert(place.0.clone());
                let sessions = self.facts.sessions[name].len();
                if sessions > 1 {
                    self.violate(format!(
                        "OR-3: one request became {sessions} sessions: {name}"
                    ));
                }
            }
        }
        self.facts.records.insert(place, record);
    }

    /// The records of a session form one chain, and nothing follows its end.
    fn check_chain(&mut self, record: &StepRecord) {
        if record.step == 0 {
            return;
        }
        let (session, step) = (&record.session, record.step);
        let Some(before) = self
            .facts
            .records
            .get(&(session.clone(), step - 1))
            .cloned()
        else {
            self.violate(format!(
                "OR-2: {session} has a step {step} and no step before it"
            ));
            return;
        };
        if before.outcome.is_terminal() {
            self.violate(format!(
                "OR-3: {session} goes on at step {step} after its end"
            ));
        }
        if record.previous.as_ref() != Some(&before.identity()) {
            self.violate(format!(
                "PV-3: step {step} of {session} does not follow from the record before it"
            ));
        }
        if before.config_version != 0 && record.config_version != before.config_version {
            self.violate(format!(
                "step {step} of {session} is not under its run's config"
            ));
        }
    }

    fn check_identity(&mut self, record: &StepRecord) {
        let identity = record.identity();
        let mut told = record.provenance();
        let tells = told.any(|message| message.body.contains(identity.as_str()));
        if !tells {
            let (session, step) = (&record.session, record.step);
            self.violate(format!(
                "PV-3: step {step} of {session} does not tell the identity of its record"
            ));
        }
    }

    fn check_choices(&mut self, record: &StepRecord) {
        let routed = record.routed.iter().flat_map(|routed| &routed.decisions);
        for decision in routed.chain(&record.decisions) {
            if !decision.options.contains(&decision.chosen) {
                let what = format!(
                    "PV-2: `{}` is none of {:?}",
                    decision.chosen, decision.options
                );
                self.violate(what);
                return;
            }
        }
        let called = match &record.activity {
            Activity::Iterated(iterated) => Some(iterated),
            Activity::Executed(executed) => executed.call.as_ref(),
            Activity::None
            | Activity::FannedOut(_)
            | Activity::Planned(_)
            | Activity::Asked(_)
            | Activity::Decided(_)
            | Activity::Concluded(_) => None,
        };
        if let Some(iterated) = called
            && !iterated.is_error
            && !iterated.candidates.contains(&iterated.action)
        {
            self.violate(format!("PV-2: `{}` was no candidate", iterated.action));
        }
    }

    fn check_synthesis(&mut self, record: &StepRecord) {
        let (correlation, members) = match &record.activity {
            Activity::Concluded(end) => match &end.fan_in {
                Some(fan_in) => (fan_in.correlation.clone(), Some(&fan_in.members)),
                None => return,
            },
            Activity::FannedOut(fan_out) => match &fan_out.after {
                Some(after) => (after.correlation.clone(), Some(&after.members)),
                None => return,
            },
            Activity::Executed(executed) => match &executed.after {
                Some(after) => (after.correlation.clone(), Some(&after.members)),
                None => return,
            },
            Activity::None
            | Activity::Iterated(_)
            | Activity::Planned(_)
            | Activity::Asked(_)
            | Activity::Decided(_) => return,
        };
        let place: Place = (record.session.clone(), record.step);
        self.facts.count("syntheses");
        if let Some(other) = self
            .facts
            .syntheses
            .insert(correlation.clone(), place.clone())
        {
            self.violate(format!(
                "FI-1: {correlation} was synthesised at {other:?} and {place:?}"
            ));
        }
        let fan_out = (record.session.clone(), record.step - 1);
        match self.facts.verdicts.get(&fan_out) {
            None => self.violate(format!("FI-2: {place:?} synthesised without a verdict")),
            Some(verdict) => {
                if verdict.correlation != correlation
                    || members.is_some_and(|members| *members != verdict.members)
                {
                    self.violate(format!("FI-3: {place:?} did not read its verdict"));
                }
            }
        }
    }

    /// A step that was told to stop is not committed as if it had worked.
    fn check_stopped(&mut self, record: &StepRecord) {
        let worked = matches!(
            record.outcome,
            OutcomeKind::Answer | OutcomeKind::Continue | OutcomeKind::FanOut | OutcomeKind::Pause
        );
        let stop = self.task().and_then(|task| task.stop_seen.clone());
        if worked && let Some(stop) = stop {
            let place = (record.session.clone(), record.step);
            self.violate(format!("BG-1: {place:?} was worked although {stop}"));
        }
        // What a record says of a call with side effects is what happened.
        for call in &record.calls {
            let Call::Tool {
                name,
                arguments,
                result,
                is_error: false,
                ..
            } = call
            else {
                continue;
            };
            let happened = self.executed.iter().any(|done| {
                done.tool == *name && done.arguments == *arguments && done.content == *result
            });
            if matches!(name.as_str(), "write" | "pay") && !happened {
                self.violate(format!(
                    "TL-1: a record tells of a call that was not made: {result}"
                ));
                return;
            }
        }
    }

    /// What a step had called before it was ended is told in the graph.
    fn check_cut_off(&mut self, record: &StepRecord) {
        let (OutcomeKind::Cancelled | OutcomeKind::Fail, Activity::Concluded(end)) =
            (record.outcome, &record.activity)
        else {
            return;
        };
        let called = record
            .calls
            .iter()
            .filter(|call| matches!(call, Call::Tool { .. }));
        let (called, told) = (called.count(), end.cut_off.len());
        if told > 0 {
            self.facts.count("calls cut off");
        }
        if called != told {
            self.violate(format!(
                "PV-1: {} at {} made {called} calls and tells {told}",
                record.session, record.step
            ));
        }
    }

    fn on_verdict(&mut self, key: &str, verdict: FanInRecord) {
        let place =
            self.facts.records.iter().find_map(|(place, _)| {
                (keys::fan_in(&place.0, place.1) == key).then(|| place.clone())
            });
        let Some(place) = place else {
            self.violate(format!(
                "FI-2: the verdict `{key}` belongs to no committed step"
            ));
            return;
        };
        self.facts.count(match verdict.cause {
            JoinCause::Complete => "verdicts: complete",
            JoinCause::Enough => "verdicts: enough",
            JoinCause::Deadline => "verdicts: deadline",
        });
        if let Err(what) = self.check_verdict(&place, &verdict) {
            self.violate(what);
        }
        let fan_out = self.documents.get(&keys::fan_out(&place.0, place.1));
        if let Some(Ok(fan_out)) = fan_out.map(|b| serde_json::from_slice::<FanOutRecord>(b)) {
            self.facts.allowed.insert(allows(&fan_out.synthesis));
        }
        self.facts.verdicts.insert(place, verdict);
    }

    fn check_verdict(&self, place: &Place, verdict: &FanInRecord) -> Result<(), String> {
        let Activity::FannedOut(fan_out) = &self.facts.records[place].activity else {
            return Err(format!(
                "FI-2: a verdict on {place:?}, which fanned out to nobody"
            ));
        };
        let mut named: Vec<_> = verdict
            .members
            .iter()
            .map(|m| (m.index, &m.session))
            .collect();
        named.extend(
            verdict
                .missing
                .iter()
                .map(|child| (child.index, &child.session)),
        );
        named.sort();
        let children: Vec<_> = fan_out
            .children
            .iter()
            .map(|c| (c.index, &c.session))
            .collect();
        if named != children {
            return Err(format!(
                "FI-3: the verdict on {place:?} names {named:?} of {children:?}"
            ));
        }
        for member in &verdict.members {
            let Some(end) = self.end_of(&member.session) else {
                return Err(format!(
                    "FI-2: {} is a member before its end",
                    member.session
                ));
            };
            let told = (member.status, member.document.as_str(), member.spent);
            let document = uris::answer_document(&member.session);
            let own = (completion_status(end), document.as_str(), end.total);
            if told != own {
                return Err(format!(
                    "FI-3: {} is told as {told:?}, is {own:?}",
                    member.session
                ));
            }
        }
        let answered = verdict
            .members
            .iter()
            .filter(|m| m.status == CompletionStatus::Answered)
            .count();
        let policy = self.policy(place);
        let allowed = match verdict.cause {
            JoinCause::Complete => verdict.missing.is_empty(),
            JoinCause::Enough => {
                let enough = policy.enough(fan_out.children.len());
                enough.is_some_and(|enough| answered >= enough)
            }
            JoinCause::Deadline => self.time() >= fan_out.join_deadline,
        };
        if !allowed {
            return Err(format!(
                "FI-2: {place:?} concluded too early ({:?})",
                verdict.cause
            ));
        }
        Ok(())
    }

    /// Whether everything that a step says was published.
    pub(crate) fn is_published(&self, record: &StepRecord) -> bool {
        record
            .publications
            .iter()
            .all(|one| self.facts.made.contains(&allows(one)))
    }

    /// Whether the synthesis that a verdict releases was asked for.
    pub(crate) fn is_released(&self, place: &Place) -> bool {
        let body = self.documents.get(&keys::fan_out(&place.0, place.1));
        let record = body.and_then(|body| serde_json::from_slice::<FanOutRecord>(body).ok());
        record.is_some_and(|fan_out| self.facts.made.contains(&allows(&fan_out.synthesis)))
    }

    /// The join policy of a fan-out, as its committed task type has it.
    pub(crate) fn policy(&self, place: &Place) -> JoinPolicy {
        let record = self.documents.get(&keys::fan_out(&place.0, place.1));
        record
            .and_then(|body| serde_json::from_slice::<FanOutRecord>(body).ok())
            .map_or(JoinPolicy::All, |fan_out| fan_out.policy)
    }

    /// The record that ended a session.
    pub(crate) fn end_of(&self, session: &SessionId) -> Option<&Arc<StepRecord>> {
        let from = (session.clone(), 0);
        let to = (session.clone(), u32::MAX);
        let (_, last) = self.facts.records.range(from..=to).next_back()?;
        last.outcome.is_terminal().then_some(last)
    }

    /// Whether a message is the deadline of a run that a door took in, as its request sets it.
    fn bounds_taken_in(&self, message: &Outgoing) -> bool {
        let property = |name: &str| message.properties.get(name).map_or("", String::as_str);
        let key = keys::accepted(&property(property::SESSION).into());
        let taken = self.documents.get(&key);
        let taken = taken.and_then(|body| serde_json::from_slice::<AcceptedRecord>(body).ok());
        let most = i64::try_from(self.scenario.run_timeout_ms).unwrap_or(i64::MAX);
        let due = taken.map(|taken| (taken.accepted_at + most).to_string());
        message.topic == DEADLINE
            && property(property::KIND) == property::KIND_UNBEGUN
            && due.as_deref() == Some(property(property::DUE))
    }

    /// Every effect that is published comes from a committed record (OR-2), except for a message
    /// that is put back as it came, and for chunks.
    pub(crate) fn on_publish(&mut self, message: &Outgoing) {
        let topic = message.topic.as_str();
        let print = fingerprint(topic, &message.properties, &message.payload);
        self.facts.made.insert(print);
        let Some(task) = self.current.and_then(|id| self.tasks.get(&id)) else {
            return;
        };
        let put_back = || {
            task.deliveries.iter().any(|d| {
                // What it waited for may be another attempt, or another time, each time.
                let kept = |(name, value): (&String, &String)| {
                    [property::WAITED_FOR, property::MODEL_AWAY].contains(&name.as_str())
                        || message.properties.get(name) == Some(value)
                };
                d.topic == message.topic
                    && *d.payload == *message.payload
                    && d.properties.iter().all(kept)
            })
        };
        let chunk = message.topic == AGENT_RESPONSE && message.durability == Durability::Process;
        if message.topic == AGENT_REQUEST {
            let property = |name: &str| message.properties.get(name).map(String::as_str);
            if let (Some(session), Some(Ok(step))) = (
                property(property::SESSION),
                property(property::STEP).map(str::parse::<u32>),
            ) {
                self.facts.asked.insert((session.into(), step));
            }
        }
        let bound = task.role == Role::Undertaker && self.bounds_taken_in(message);
        let allowed = self.facts.allowed.contains(&print);
        if task.role == Role::Producer || chunk || bound || allowed || put_back() {
            return;
        }
        let body = String::from_utf8_lossy(&message.payload).into_owned();
        self.violate(format!(
            "OR-2: published to `{topic}` what no committed record says: {:?} {body}",
            message.properties
        ));
    }

    pub(crate) fn on_response(&mut self, root: &str, response: &AgentResponse) {
        if !response.end_of_dialog {
            return;
        }
        let root = SessionId::from(root);
        if response.session_id != root {
            self.violate(format!(
                "OR-3: subagent {} ended the dialog",
                response.session_id
            ));
        }
        if self.end_of(&root).is_none() {
            self.violate(format!(
                "OR-3: the dialog of {root} ended before its record"
            ));
        }
        let ids = self.facts.ends.entry(root.clone()).or_default();
        ids.insert(response.message_id.clone());
        if ids.len() > 1 {
            let ids = ids.len();
            self.violate(format!("OR-3: {root} has {ids} ends of its dialog"));
        }
    }

    /// What a worker was told when it looked its step up.
    pub(crate) fn on_read(&mut self, keys: &[String], found: &[Option<Arc<[u8]>>]) {
        let now = self.time();
        let Some(task) = self.task() else { return };
        let (Role::Orchestrator, Some(request)) = (task.role, task.request.as_ref()) else {
            return;
        };
        let own = request
            .control
            .fan_in_step
            .map(|step| keys::fan_in(&request.session_id, step));
        let mut stop = None;
        for (key, body) in keys.iter().zip(found) {
            if body.is_none() {
                continue;
            }
            if key.contains("/unknown/") {
                task.unknown_seen = true;
            } else if key.ends_with("/closed") {
                stop = Some("its tree was closed");
            } else if key.ends_with("/tombstone") {
                stop = Some("its tree was erased");
            } else if key.ends_with("/fanin") && own.as_ref() != Some(key) {
                stop = Some("a fan-out above it was decided");
            }
        }
        let deadline = request.control.hard_deadline;
        // Later reads are orders of its work, each of which looks at the time by itself.
        let looks_up = keys.iter().any(|key| key.ends_with("/tombstone"));
        if deadline != 0 && now >= deadline && looks_up {
            stop = Some("its time was used up");
        }
        if let Some(stop) = stop {
            task.stop_seen.get_or_insert(stop.to_owned());
        }
    }

    /// Model or tool is about to start (BG-1).
    pub(crate) fn on_start(&mut self, effect: &Effect) {
        let stop = self.task().and_then(|task| task.stop_seen.clone());
        if let Some(stop) = stop {
            self.violate(format!("BG-1: started although {stop}: {effect}"));
        }
    }

    /// A session that has spent its budget asks nothing more (BG-1).
    pub(crate) fn on_chat(&mut self, operation: Operation) {
        self.facts.count("model calls");
        let Some(request) = self.task().and_then(|task| task.request.as_ref()) else {
            return;
        };
        let (spent, limits) = (request.control.spent, &request.limits);
        let full = |max: Option<u64>, spent: u64| max.is_some_and(|max| spent >= max);
        if full(limits.max_tokens, spent.tokens) || full(limits.max_model_calls, spent.model_calls)
        {
            let operation = operation.as_str();
            self.violate(format!(
                "BG-1: asked for `{operation}` with {spent:?} spent"
            ));
        }
    }

    /// A call with side effects starts (TL-1).
    pub(crate) fn on_side_effect(
        &mut self,
        key: &str,
        tool: &str,
        arguments: &BTreeMap<String, String>,
    ) {
        self.facts.count("side effects");
        let starts = self.starts.entry(key.to_owned()).or_default();
        *starts += 1;
        if *starts > 1 {
            self.violate(format!("TL-1: call `{key}` was started twice"));
        }
        let approved = self
            .task()
            .and_then(|task| task.request.as_ref()?.control.held.clone());
        if approved.is_some_and(|held| approval::allows(&held, tool, arguments)) {
            // A person was asked, and knows.
            return;
        }
        let here = self.task().and_then(|task| task.request.as_ref());
        let here = here.map(|request| (request.session_id.clone(), request.step));
        let equal = here.and_then(|(session, step)| {
            let before = (session.clone(), 0)..(session, step);
            let mut unknown = self.facts.unknown.range(before);
            unknown
                .find(|(_, call)| call.0 == tool && call.1 == *arguments)
                .map(|(p, _)| p.clone())
        });
        if let Some(place) = equal {
            self.violate(format!(
                "TL-1: call `{key}` of `{tool}` was started although the end of an equal one at \
                 {place:?} is unknown"
            ));
        }
        if self.task().is_some_and(|task| task.unknown_seen) {
            self.violate(format!(
                "TL-1: call `{key}` was started although an equal one's end is unknown"
            ));
        }
    }

    /// A call that a person must approve starts: the step before it is that approval.
    pub(crate) fn on_gated(&mut self, key: &str, tool: &str, arguments: &BTreeMap<String, String>) {
        let request = self.task().and_then(|task| task.request.clone());
        let place = request.and_then(|r| Some((r.session_id, r.step.checked_sub(1)?)));
        let before = place.and_then(|place| self.facts.records.get(&place));
        let approved = before.is_some_and(|before| match &before.activity {
            Activity::Decided(decided) => {
                decided.answer != ApprovalAnswer::Deny
                    && decided.tool == tool
                    && decided.arguments == *arguments
            }
            _ => false,
        });
        if !approved {
            self.violate(format!(
                "TL-2: call `{key}` of `{tool}` was started, and nobody approved it"
            ));
        }
    }

    /// The request in a delivery, as its worker will read it.
    pub(crate) fn request_in(payload: &[u8]) -> Option<AgentRequest> {
        serde_json::from_slice(payload).ok()
    }
}
