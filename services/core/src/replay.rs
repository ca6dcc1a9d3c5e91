//! Working a committed step again, from records alone: the same turn, with what models, tools, graph
//! and librarian answered then, must come to the same record.
//!
//! Pure: whoever has the records looks them up, and calls nothing. What differs is a divergence, with
//! both values in short. What an old record does not hold is told as unchecked, never guessed to be
//! equal.

use crate::approval;
use crate::attempt::{Ending, Prepared};
use crate::commit::{Assembled, Streamed, carried};
use crate::limits::{self, FleetLimits};
use crate::prices;
use crate::say;
use crate::step::{Finish, Input, ModelAsk, ModelFailure, Outcome, Reply, Step, ToolOutcome};
use crate::turn::{Situation, Turn};
use crate::{Rejection, error};
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{
    Activity, Adopted, Call, EndedBy, EndedFromOutside, FailedCall, FanInRecord, FanOutRecord,
    PauseRecord, Publication, StepRecord, Usage, Worked,
};
use agentfleet_schema::topics::{self, Topic};
use agentfleet_schema::{AgentRequest, Digest, Spent, tolerant};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod compare;

/// Longest value shown of a difference, in characters.
const SHORT: usize = 120;

/// A committed step, with what it was worked from.
pub struct Subject<'a> {
    pub record: &'a StepRecord,
    /// The fan-out as the aggregator reads it, where one was committed with the step.
    pub fan_out: Option<&'a FanOutRecord>,
    /// The wait for a person as whoever answers reads it, where one was committed with the step.
    pub pause: Option<&'a PauseRecord>,
    /// The message that was worked.
    pub request: &'a str,
    /// The config at the version of the record.
    pub snapshot: Arc<Snapshot>,
    /// The verdict that a synthesis answers.
    pub fan_in: Option<FanInRecord>,
    /// Texts of the librarian that the step read, by URI.
    pub texts: &'a BTreeMap<String, String>,
    /// What the model is sent for a question to it. `Err` says why that cannot be told.
    pub prompt: &'a dyn Fn(&ModelAsk) -> Result<String, String>,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("session", &self.record.session)
            .field("step", &self.record.step)
            .finish_non_exhaustive()
    }
}

/// What came of working a step again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    pub divergences: Vec<Divergence>,
    /// What the record does not hold, or this program cannot tell.
    pub unchecked: Vec<String>,
}

/// A place where the record and what follows from its inputs differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Divergence {
    pub at: String,
    pub recorded: String,
    pub derived: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}`: the record says {}, working it again gives {}",
            self.at, self.recorded, self.derived
        )
    }
}

impl Replayed {
    fn differs(&mut self, at: impl Into<String>, recorded: &str, derived: &str) {
        self.divergences.push(Divergence {
            at: at.into(),
            recorded: short(recorded),
            derived: short(derived),
        });
    }

    fn unchecked(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.unchecked.contains(&what) {
            self.unchecked.push(what);
        }
    }
}

/// A text on one line, cut where it is long.
pub fn short(text: &str) -> String {
    let line = say::in_one_line(text);
    match line.char_indices().nth(SHORT) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// Works a committed step again.
pub fn replay(subject: &Subject<'_>) -> Replayed {
    let mut replayed = Replayed::default();
    if let Some(assembled) = assembled(subject, &mut replayed) {
        compared(subject, &assembled, &mut replayed);
    }
    replayed
}

/// What the step comes to again; `None` where something that was noted stands in the way.
fn assembled(subject: &Subject<'_>, replayed: &mut Replayed) -> Option<Assembled> {
    let record = subject.record;
    let Some(worked) = record.worked.as_deref() else {
        replayed.unchecked("the record does not hold how its step was worked");
        return None;
    };
    let mut request = message(subject, replayed)?;
    // What the aggregator ends, no orchestrator has taken in.
    let by_aggregator = record.request.is_empty();
    let snapshot = if by_aggregator {
        Arc::default()
    } else {
        Arc::clone(&subject.snapshot)
    };
    let fleet = worked.fleet.clone().unwrap_or_default();
    if !by_aggregator {
        let came_at = worked.came_at.unwrap_or(record.started_at);
        limits::accept(&mut request, &snapshot, &fleet, came_at);
    }
    let spent_before = request.control.spent;
    request.control.spent = spent_before + record.wasted;
    let finish = match (&worked.ended, &record.activity) {
        // What a person says is an input, as what a tool returns.
        (None, Activity::Decided(decided)) => {
            let asked = request.control.held.as_ref().map(|held| &held.approval);
            if asked != Some(&decided.id) {
                let waits = asked.map_or("no call waits", |id| id.as_str());
                replayed.differs("activity.id", decided.id.as_str(), waits);
            }
            approval::answered(&request, decided)
        }
        (Some(ended), _) => {
            refused_again(subject, &request, &snapshot, &fleet, ended, replayed);
            say::ended(ended)
        }
        (None, _) => {
            let situation = Situation {
                now: record.started_at,
                snapshot: Arc::clone(&snapshot),
                fleet: Arc::new(fleet),
                native_tools: worked.native_tools,
                telling: worked.telling,
                nonce: record.nonce_told(),
                fan_in: subject.fan_in.clone(),
            };
            let mut tape = Tape {
                subject,
                worked,
                next: 0,
                failed: 0,
                replayed,
            };
            tape.play(request.clone(), situation)?
        }
    };
    let prepared = Prepared {
        request,
        request_digest: record.request.clone(),
        properties: properties(record),
        nonce: record.nonce.clone(),
        attempt: record.attempt,
        config_version: record.config_version,
        snapshot,
        started_at: record.started_at,
        spent_before,
        wasted: record.wasted,
        responses: match worked.responses.as_str() {
            "" => topics::AGENT_RESPONSE,
            named => Topic::named(named.to_owned()),
        },
        worked: record.worked.clone(),
    };
    let ending = Ending {
        by: worked.ended.as_ref().map(|ended| ended.by),
        streamed: Streamed::from_noted(&worked.streamed, &finish.said),
        finish,
        calls: record.calls.clone(),
        parked: None,
    };
    Some(prepared.end_as_told(ending, record.committed_at))
}

/// The message that was worked.
fn message(subject: &Subject<'_>, replayed: &mut Replayed) -> Option<AgentRequest> {
    let record = subject.record;
    let mut request: AgentRequest = match serde_json::from_str(subject.request) {
        Ok(request) => request,
        Err(error) => {
            replayed.differs("request", "a message", &format!("no request: {error}"));
            return None;
        }
    };
    let digest = Digest::of(subject.request.as_bytes());
    if !record.request.is_empty() && record.request != digest {
        replayed.differs("request", record.request.as_str(), digest.as_str());
    }
    if request.session_id.is_empty() {
        request.session_id = record.session.clone();
    }
    if request.control.root.is_empty() {
        request.control.root = request.session_id.clone();
    }
    Some(request)
}

/// The properties of the message that was worked: every publication carries them on.
fn properties(record: &StepRecord) -> BTreeMap<String, String> {
    let first = record.publications.first();
    first.map_or_else(BTreeMap::new, |first| carried(&first.properties))
}

/// Whether a request that was refused would be refused again, and for the same reason.
fn refused_again(
    subject: &Subject<'_>,
    request: &AgentRequest,
    snapshot: &Arc<Snapshot>,
    fleet: &FleetLimits,
    ended: &EndedFromOutside,
    replayed: &mut Replayed,
) {
    let is_of_the_moment = |code: &str| {
        [
            error::Code::ReplyToNotAllowed.as_str(),
            error::Code::PatternNotImplemented.as_str(),
            error::Code::NotApproved.as_str(),
        ]
        .contains(&code)
    };
    let Some(recorded) = ended
        .error
        .as_ref()
        .filter(|_| ended.by == EndedBy::Refused)
    else {
        return;
    };
    if is_of_the_moment(&recorded.code) {
        return;
    }
    // Looked at before the request is parsed, by a worker whose model costs something.
    if prices::missing(request, snapshot, fleet).as_ref() == Some(recorded) {
        return;
    }
    let situation = Situation {
        now: subject.record.started_at,
        snapshot: Arc::clone(snapshot),
        fleet: Arc::new(fleet.clone()),
        native_tools: false,
        telling: subject.record.telling(),
        nonce: subject.record.nonce_told(),
        fan_in: subject.fan_in.clone(),
    };
    let derived = match Turn::parse(request.clone(), situation) {
        Err(Rejection::Invalid(error)) if error == *recorded => return,
        Err(Rejection::Invalid(error)) => error.message,
        Err(rejection @ Rejection::NotImplementedHere(_)) => rejection.to_string(),
        Ok(_) => "no refusal".to_owned(),
    };
    replayed.differs("worked.ended", &recorded.message, &derived);
}

/// The recorded answers, in their order.
struct Tape<'a, 'b> {
    subject: &'a Subject<'b>,
    worked: &'a Worked,
    next: usize,
    failed: usize,
    replayed: &'a mut Replayed,
}

impl Tape<'_, '_> {
    /// Runs the turn to its end; `None` where it cannot go on as recorded.
    fn play(&mut self, request: AgentRequest, situation: Situation) -> Option<Finish> {
        let mut turn = match Turn::parse(request, situation) {
            Ok(turn) => turn,
            Err(rejection) => {
                let derived = match rejection {
                    Rejection::Invalid(error) => error.message,
                    rejection @ Rejection::NotImplementedHere(_) => rejection.to_string(),
                };
                self.replayed
                    .differs("turn", self.subject.record.outcome.as_str(), &derived);
                return None;
            }
        };
        let mut input = Input::Begin;
        // A turn that orders for ever without using up what is recorded is no turn of ours.
        let most = self.subject.record.calls.len() + self.worked.failures.len() + 8;
        for _ in 0..=most {
            let mut step = turn.resume(input);
            if matches!(step, Step::CallTool(_)) && self.needed_person() {
                step = turn.needs_person();
            }
            if matches!(step, Step::AskModel(_))
                && let Some(unaffordable) = self.unaffordable()
            {
                step = turn.cannot_afford(&unaffordable.message);
            }
            input = match step {
                Step::AskModel(ask) => self.reply(&ask)?,
                Step::CallTool(tool) => self.tool(&tool.tool.name, &tool.arguments)?,
                Step::FindFacts(_) => self.facts()?,
                Step::ReadDocuments(uris) => self.documents(&uris)?,
                Step::Finish(finish) => match self.left_behind() {
                    Some(input) => input,
                    None => return self.over(*finish),
                },
            };
        }
        self.replayed.differs("turn", "an end", "no end");
        None
    }

    fn call(&self) -> Option<&Call> {
        self.subject.record.calls.get(self.next)
    }

    /// Set where the model call that is ordered here was not made for want of money or tokens. What an
    /// estimate of its price said is an input, as what a clock says.
    fn unaffordable(&self) -> Option<&FailedCall> {
        let failures = &self.worked.failures;
        let here = self.worked.unaffordable.as_ref();
        here.filter(|call| call.after as usize == self.next && self.failed == failures.len())
    }

    /// Whether the call that is ordered here was not made, because nobody knew what became of an
    /// equal one.
    fn needed_person(&self) -> bool {
        let asked = match &self.subject.record.activity {
            Activity::Asked(asked) => asked.after_unknown,
            Activity::None
            | Activity::Iterated(_)
            | Activity::FannedOut(_)
            | Activity::Planned(_)
            | Activity::Executed(_)
            | Activity::Decided(_)
            | Activity::Concluded(_) => false,
        };
        match self.call() {
            None => asked,
            // It came upon another attempt's call before it could wait.
            Some(Call::Tool { adopted, .. }) => *adopted == Some(Adopted::Unasked),
            Some(Call::Model { .. } | Call::Facts { .. } | Call::Document { .. }) => false,
        }
    }

    /// The order that does not match what is recorded in its place.
    fn mismatch(&mut self, ordered: &str) -> Option<Input> {
        let recorded = self.call().map_or_else(|| "no call".to_owned(), told);
        let at = format!("calls[{}]", self.next);
        self.replayed.differs(at, &recorded, ordered);
        None
    }

    fn reply(&mut self, ask: &ModelAsk) -> Option<Input> {
        if let Some(failure) = self.failure() {
            return Some(Input::ModelFailed(failure));
        }
        let ordered = ask.operation.as_str();
        let Some(Call::Model {
            operation,
            prompt,
            reply,
            usage,
            ms,
            calls_tools,
            cut,
            ignored,
            ..
        }) = self.call()
        else {
            return self.mismatch(&format!("model `{ordered}`"));
        };
        if operation != ordered {
            return self.mismatch(&format!("model `{ordered}`"));
        }
        let native = calls_tools.then(|| native_reply(reply)).flatten();
        let (text, tool_calls) = native.unwrap_or_else(|| (reply.clone(), Vec::new()));
        let reply = Reply {
            text,
            tool_calls,
            usage: *usage,
            ms: *ms,
            cut: *cut,
            earlier: 0,
        };
        let (prompt, ignored) = (prompt.clone(), ignored.clone());
        let not_called = reply.not_called(ask.operation, self.worked.telling);
        let input = Input::ModelReplied(reply);
        if self.worked.telling >= 3 && ignored != not_called {
            let at = format!("calls[{}].ignored", self.next);
            self.replayed
                .differs(at, &ignored.join(", "), &not_called.join(", "));
        }
        self.prompt(ask, &prompt);
        self.next += 1;
        Some(input)
    }

    fn prompt(&mut self, ask: &ModelAsk, recorded: &str) {
        match (self.subject.prompt)(ask) {
            Ok(derived) if derived == recorded => {}
            Ok(derived) => {
                // From a little before the first difference, which is what one wants to see.
                let same = recorded
                    .chars()
                    .zip(derived.chars())
                    .take_while(|(a, b)| a == b);
                let skip = same.count().saturating_sub(20);
                let from = |text: &str| text.chars().skip(skip).collect::<String>();
                let at = format!("calls[{}].prompt, character {skip}", self.next);
                self.replayed.differs(at, &from(recorded), &from(&derived));
            }
            Err(reason) => self.replayed.unchecked(reason),
        }
    }

    fn failure(&mut self) -> Option<ModelFailure> {
        let FailedCall {
            after,
            message,
            hint,
            replied,
        } = self.worked.failures.get(self.failed)?;
        if *after as usize != self.next {
            return None;
        }
        let mut failure = ModelFailure {
            message: message.clone(),
            hint: hint.clone(),
            spent: Spent::default(),
        };
        if *replied {
            failure.spent = self.call().map(Call::spent).unwrap_or_default();
            self.next += 1;
        }
        self.failed += 1;
        Some(failure)
    }

    fn tool(&mut self, name: &str, arguments: &BTreeMap<String, String>) -> Option<Input> {
        let usage = self.usage_of_tool();
        let matches = match self.call() {
            Some(Call::Tool {
                adopted: Some(Adopted::Instead),
                ..
            }) => true,
            Some(Call::Tool {
                name: made,
                arguments: with,
                adopted: None,
                ..
            }) => made == name && with == arguments,
            _ => false,
        };
        if !matches {
            return self.mismatch(&format!("tool {}", say::action(name, arguments)));
        }
        self.returned(usage)
    }

    /// The call of another attempt that the end of the turn came upon.
    fn left_behind(&mut self) -> Option<Input> {
        let usage = self.usage_of_tool();
        match self.call() {
            Some(Call::Tool {
                adopted: Some(Adopted::Unasked),
                ..
            }) => self.returned(usage),
            _ => None,
        }
    }

    /// Tokens that a tool spent stand before its call.
    fn usage_of_tool(&mut self) -> Usage {
        match self.call() {
            Some(Call::Model {
                operation, usage, ..
            }) if operation == "tool" => {
                let usage = *usage;
                self.next += 1;
                usage
            }
            _ => Usage::default(),
        }
    }

    fn returned(&mut self, usage: Usage) -> Option<Input> {
        let Some(Call::Tool {
            name,
            arguments,
            result,
            is_error,
            ms,
            sources,
            adopted,
        }) = self.call()
        else {
            return None;
        };
        let input = Input::ToolReturned(ToolOutcome {
            content: result.clone(),
            is_error: *is_error,
            sources: sources.clone(),
            ms: *ms,
            usage,
            instead: adopted.map(|_| (name.clone(), arguments.clone())),
        });
        self.next += 1;
        Some(input)
    }

    fn facts(&mut self) -> Option<Input> {
        let Some(Call::Facts { rows, found, .. }) = self.call() else {
            return self.mismatch("facts of the graph");
        };
        if *rows != found.len() as u64 {
            let (rows, found) = (*rows, found.len());
            let at = format!("calls[{}].found", self.next);
            self.replayed
                .differs(at, &format!("{rows} rows"), &format!("{found} of them"));
        }
        let Some(Call::Facts { found, .. }) = self.call() else {
            return None;
        };
        let input = Input::FactsFound(found.clone());
        self.next += 1;
        Some(input)
    }

    fn documents(&mut self, uris: &[String]) -> Option<Input> {
        let mut texts = Vec::with_capacity(uris.len());
        for ordered in uris {
            let Some(Call::Document {
                uri,
                digest,
                missing,
            }) = self.call()
            else {
                return self.mismatch(&format!("document `{ordered}`"));
            };
            if uri != ordered {
                return self.mismatch(&format!("document `{ordered}`"));
            }
            let text = self.subject.texts.get(uri);
            let there = Digest::of(text.map(String::as_bytes).unwrap_or_default());
            if *missing {
                texts.push(None);
            } else if text.is_some() && there == *digest {
                texts.push(text.cloned());
            } else {
                let at = format!("calls[{}].digest of `{uri}`", self.next);
                let derived = text.map_or("no such text", |_| there.as_str());
                let (recorded, derived) = (digest.to_string(), derived.to_owned());
                self.replayed.differs(at, &recorded, &derived);
                return None;
            }
            self.next += 1;
        }
        Some(Input::DocumentsRead(texts))
    }

    /// Nothing may be left; but an end tells what other attempts had begun.
    fn over(&mut self, finish: Finish) -> Option<Finish> {
        let rest = self.subject.record.calls.get(self.next..).unwrap_or(&[]);
        let is_told = |call: &Call| matches!(call, Call::Tool { .. });
        let told_all = finish.outcome.is_terminal() && rest.iter().all(is_told);
        if !told_all && let Some(call) = rest.first() {
            let at = format!("calls[{}]", self.next);
            let ends = match &finish.outcome {
                Outcome::Continue(_) => "the end of the step: the session goes on",
                Outcome::FanOut(_) => "the end of the step: a fan-out",
                Outcome::Pause(_) => "the end of the step: a wait for a person",
                Outcome::Answer(_) => "the end of the step: an answer",
                Outcome::Cancelled(_) => "the end of the step: it is cancelled",
                Outcome::Fail { .. } => "the end of the step: a failure",
            };
            self.replayed.differs(at, &told(call), ends);
            return None;
        }
        if let Some(failure) = self.worked.failures.get(self.failed) {
            let at = format!("worked.failures[{}]", self.failed);
            self.replayed
                .differs(at, &failure.message, "no question to the model");
        }
        Some(finish)
    }
}

/// A recorded call in short.
fn told(call: &Call) -> String {
    match call {
        Call::Model { operation, .. } => format!("model `{operation}`"),
        Call::Tool {
            name, arguments, ..
        } => format!("tool {}", say::action(name, arguments)),
        Call::Facts { .. } => "facts of the graph".to_owned(),
        Call::Document { uri, .. } => format!("document `{uri}`"),
    }
}

type NativeReply = (String, Vec<(String, BTreeMap<String, String>)>);

/// A reply with native tool calls, as the record keeps it.
fn native_reply(reply: &str) -> Option<NativeReply> {
    let value: Value = serde_json::from_str(reply).ok()?;
    let calls = value.get("tool_calls")?.as_array()?;
    let calls = calls.iter().map(|call| {
        let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = call.get("arguments").and_then(Value::as_object);
        let arguments = arguments.into_iter().flatten();
        let arguments = arguments
            .map(|(name, value)| (name.clone(), tolerant::text_of(value.clone())))
            .collect();
        (name.to_owned(), arguments)
    });
    Some((value.get("text")?.as_str()?.to_owned(), calls.collect()))
}

/// Compares what is there with what follows.
fn compared(subject: &Subject<'_>, assembled: &Assembled, replayed: &mut Replayed) {
    let bare = |record: &StepRecord| {
        let bare = StepRecord {
            publications: Vec::new(),
            ..record.clone()
        };
        serde_json::to_value(bare).unwrap_or_default()
    };
    let (recorded, derived) = (bare(subject.record), bare(&assembled.record));
    compare::values("", &recorded, &derived, &mut replayed.divergences);
    // What is published follows from the rest: where that differs already, it says nothing new.
    if !replayed.divergences.is_empty() {
        return;
    }
    published(subject, assembled, replayed);
    compared_pause(subject, assembled, replayed);
    if let Some(fan_out) = &assembled.fan_out
        && let Some(there) = subject.fan_out
    {
        let value = |fan_out: &FanOutRecord| {
            compare::with_bodies(serde_json::to_value(fan_out).unwrap_or_default())
        };
        compare::values(
            "fanout",
            &value(there),
            &value(fan_out),
            &mut replayed.divergences,
        );
    } else if assembled.fan_out.is_some() {
        replayed.differs("fanout", "none", "the fan-out of this step");
    }
}

/// The same of a wait for a person.
fn compared_pause(subject: &Subject<'_>, assembled: &Assembled, replayed: &mut Replayed) {
    let value =
        |pause: &PauseRecord| compare::with_bodies(serde_json::to_value(pause).unwrap_or_default());
    match (&assembled.pause, subject.pause) {
        (Some(derived), Some(there)) => compare::values(
            "pause",
            &value(there),
            &value(derived),
            &mut replayed.divergences,
        ),
        (Some(_), None) => replayed.differs("pause", "none", "the wait of this step"),
        (None, _) => {}
    }
}

fn published(subject: &Subject<'_>, assembled: &Assembled, replayed: &mut Replayed) {
    let mut there = subject.record.publications.clone();
    let ours = &assembled.record.publications;
    let is_letter = |publication: &Publication| publication.topic == topics::DEAD_LETTER.as_str();
    // A message that was refused is parked with the record.
    if there.len() == ours.len() + 1
        && let Some(letter) = there.pop_if(|last| is_letter(last))
    {
        let digest = Digest::of(letter.body.as_bytes());
        if digest != subject.record.request {
            replayed.differs(
                "publications, the parked message",
                "the request",
                &letter.body,
            );
        }
    }
    let value = |publications: &[Publication]| {
        compare::with_bodies(serde_json::to_value(publications).unwrap_or_default())
    };
    let mut found = Vec::new();
    compare::values("publications", &value(&there), &value(ours), &mut found);
    // A price that was read back may differ in its last digit, and with it the digest of the record.
    let has_fractions = subject.record.usage.cost != 0.0
        || matches!(&subject.record.activity, Activity::Concluded(end) if !end.confidence.is_empty());
    if found.is_empty() && !has_fractions {
        // The same in other words is another message.
        let pairs = there.iter().zip(ours).enumerate();
        for (index, (there, ours)) in pairs.filter(|(_, (a, b))| a.body != b.body) {
            replayed.differs(
                format!("publications[{index}].body, as text"),
                Digest::of(there.body.as_bytes()).as_str(),
                Digest::of(ours.body.as_bytes()).as_str(),
            );
        }
    }
    found.retain(|at| !(has_fractions && at.at.ends_with("control.previous")));
    replayed.divergences.extend(found);
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
