//! Supervisor: decompose into independent goals and fan out; later, synthesise what came back.
//!
//! Decomposing and synthesising are steps of the same session; between them the session has no
//! message in flight but its children's, and the aggregator's verdict releases the synthesis.

use super::Implemented;
use super::react::confidence_in;
use crate::json;
use crate::limits::Limits;
use crate::routing::{GENERAL, pattern_options, read_choice};
use crate::say;
use crate::step::{
    Answer, FactsQuery, FanOut, Finish, Input, ModelAsk, ModelFailure, Outcome, Reply, Said, Step,
    StreamAs,
};
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{
    Activity, Child, CompletionStatus, Concluded, DecidedBy, Decision, FanInRecord, FanInSummary,
    FannedOut, Source, Termination,
};
use agentfleet_schema::{
    AgentRequest, AgentStep, Ancestor, CorrelationId, MessageType, Millis, Operation, SessionId,
    uris,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest text of one subagent that a synthesis reads, in bytes; less where there are many.
const MAX_RESULT_BYTES: usize = 24 * 1024;
/// Longest input of one synthesis, in bytes.
const MAX_SYNTHESIS_BYTES: usize = 256 * 1024;

/// A goal as the model proposed it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Goal {
    text: String,
    pattern: String,
    group: Option<Vec<String>>,
    context: String,
}

/// The planning iteration.
#[derive(Debug)]
pub struct Decompose {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    retried: bool,
    model_ms: u64,
}

impl Decompose {
    pub(crate) fn new(request: AgentRequest, situation: Situation, limits: Limits) -> Self {
        Self {
            request,
            situation,
            limits,
            retried: false,
            model_ms: 0,
        }
    }

    pub(crate) fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::Begin => self.begin(),
            Input::ModelReplied(reply) => self.decomposed(&reply),
            Input::ModelFailed(failure) => failed(failure, self.model_ms),
            // Decomposing orders nothing else.
            Input::ToolReturned(_) | Input::FactsFound(_) | Input::DocumentsRead(_) => self.begin(),
        }
    }

    fn begin(&self) -> Step {
        if self.limits.max_depth == 0 {
            return self.alone(
                None,
                "no depth is left for subagents",
                DecidedBy::OnlyOption,
            );
        }
        if self
            .limits
            .tokens_exhausted(self.request.control.tokens_spent)
        {
            return self.alone(None, "the token budget is used up", DecidedBy::OnlyOption);
        }
        if self.limits.width() < 2 {
            return self.alone(
                None,
                "the limits leave no room for two subagents",
                DecidedBy::OnlyOption,
            );
        }
        let visible = tools::visible(&self.request, &self.situation.snapshot);
        let patterns = child_patterns(&self.request, &self.situation, &self.limits);
        let described: Vec<_> = patterns
            .iter()
            .filter_map(|name| {
                self.situation
                    .snapshot
                    .patterns
                    .get(name)
                    .map(|p| (name, p))
            })
            .map(|(name, p)| json!({"name": name, "description": p.description}))
            .collect();
        Step::AskModel(Box::new(ModelAsk {
            operation: Operation::Decompose,
            variables: json!({
                "question": self.request.question,
                "framing": self.request.framing,
                "max_subagents": self.limits.width(),
                "tools": tools::described(&visible),
                "patterns": described,
                "groups": groups_of(&visible),
            }),
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: Some(goals_schema(&patterns)),
            stream: StreamAs::Nothing,
        }))
    }

    fn decomposed(&mut self, reply: &Reply) -> Step {
        self.model_ms += reply.ms;
        let Some((thought, goals)) = read_goals(&reply.text) else {
            if !self.retried {
                self.retried = true;
                return self.begin();
            }
            return self.alone(
                None,
                "the model twice returned no list of goals",
                DecidedBy::Fallback,
            );
        };
        let goals = merged(goals, self.limits.width());
        if goals.len() < 2 {
            return self.alone(
                goals.into_iter().next(),
                "there is one goal only",
                DecidedBy::Model,
            );
        }
        let round = Round {
            request: &self.request,
            situation: &self.situation,
            limits: &self.limits,
            thought,
            after: None,
            decisions: Vec::new(),
            model_ms: self.model_ms,
        };
        match round.fan_out(goals) {
            Ok(step) => step,
            Err(reason) => self.alone(None, reason, DecidedBy::OnlyOption),
        }
    }

    /// Goes on without subagents: the session works on by itself.
    fn alone(&self, goal: Option<Goal>, signal: &str, decided_by: DecidedBy) -> Step {
        let mut next = self.request.clone();
        "react".clone_into(&mut next.pattern);
        let goal_text = goal.map(|g| g.text).unwrap_or_default();
        let thought = if goal_text.is_empty() {
            signal.to_owned()
        } else {
            goal_text
        };
        next.history.push(AgentStep {
            thought,
            action: "decompose".into(),
            observation: format!("No fan-out: {signal}."),
            user: next.user.clone(),
            step_type: "supervise".into(),
            ..AgentStep::default()
        });
        Step::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::None,
            routed: None,
            decisions: vec![Decision {
                subject: "fan-out".into(),
                options: match decided_by {
                    // The limits took the other one away.
                    DecidedBy::OnlyOption => vec!["alone".into()],
                    _ => vec!["fan-out".into(), "alone".into()],
                },
                narrowed_by: "the supervisor's limits and the goals it found".into(),
                signal: signal.into(),
                chosen: "alone".into(),
                decided_by,
                rationale: String::new(),
            }],
            said: vec![say::status(format!("No fan-out: {signal}"))],
        }))
    }
}

/// One fan-out, whether first or after a synthesis.
struct Round<'a> {
    request: &'a AgentRequest,
    situation: &'a Situation,
    limits: &'a Limits,
    thought: String,
    after: Option<FanInSummary>,
    decisions: Vec<Decision>,
    model_ms: u64,
}

impl Round<'_> {
    /// `Err` says why the limits forbid it.
    fn fan_out(self, goals: Vec<Goal>) -> Result<Step, &'static str> {
        let request = self.request;
        let count = goals.len() as u32;
        let Some(allotment) = self.limits.allot(count, request.control.tokens_spent) else {
            return Err("the limits leave no room for subagents");
        };
        let Some(join_deadline) = self
            .limits
            // The wait begins when the fan-out is committed, not when the model began to think of it.
            .join_deadline(
                self.situation.now.saturating_add(self.model_ms as Millis),
                request.control.hard_deadline,
            )
        else {
            return Err("no time is left to wait for subagents");
        };
        let correlation = CorrelationId::of_fan_out(&request.session_id, request.step);
        let task_types = &self.situation.snapshot.task_types;
        let policy = task_types.get(&request.task_type).map(|task| task.join);
        let policy = policy.unwrap_or_default();
        let patterns = child_patterns(request, self.situation, self.limits);
        let mut ancestors = request.control.ancestors.clone();
        ancestors.push(Ancestor {
            session: request.session_id.clone(),
            step: request.step,
        });
        let children: Vec<(Child, AgentRequest)> = goals
            .into_iter()
            .zip(0u32..)
            .map(|(goal, index)| {
                let session = SessionId::child(&request.session_id, request.step, index);
                let pattern = if patterns.contains(&goal.pattern) {
                    goal.pattern
                } else {
                    Implemented::React.as_str().to_owned()
                };
                let group = tools::narrowed(request.group.as_ref(), goal.group);
                let child = Child {
                    index,
                    session: session.clone(),
                    goal: goal.text.clone(),
                    pattern: pattern.clone(),
                    group: group.clone(),
                };
                let mut limits = allotment.clone();
                limits.max_iterations = None;
                limits.subagent_timeout_ms = request.limits.subagent_timeout_ms;
                let mut child_request = AgentRequest {
                    question: goal.text.clone(),
                    group,
                    user: request.user.clone(),
                    collection: request.collection.clone(),
                    streaming: request.streaming,
                    session_id: session,
                    conversation_id: request.conversation_id.clone(),
                    pattern,
                    task_type: request.task_type.clone(),
                    framing: request.framing.clone(),
                    correlation_id: correlation.clone(),
                    parent_session_id: request.session_id.clone(),
                    subagent_goal: goal.text,
                    expected_siblings: count,
                    model: request.model.clone(),
                    limits,
                    ..AgentRequest::default()
                };
                child_request.control.root = request.root().clone();
                child_request.control.ancestors.clone_from(&ancestors);
                child_request.control.context = goal.context;
                child_request.control.index = index;
                child_request.control.config_version = request.control.config_version;
                // After the join nobody waits for it.
                child_request.control.hard_deadline = join_deadline;
                child_request.control.derives_from =
                    uris::goal(&request.session_id, &correlation, index);
                (child, child_request)
            })
            .collect();

        let round = request.control.rounds + 1;
        let mut synthesis = request.clone();
        synthesis.control.rounds = round;
        synthesis.control.fan_in_step = Some(request.step);
        synthesis.control.derives_from = uris::fan_out(&request.session_id, &correlation);
        synthesis.history.push(AgentStep {
            thought: self.thought.clone(),
            action: "decompose".into(),
            observation: format!("Fanned out to {count} subagents."),
            user: request.user.clone(),
            step_type: "supervise".into(),
            ..AgentStep::default()
        });
        synthesis.history.push(AgentStep {
            thought: "Every subagent has ended, or the wait for them has.".into(),
            action: "aggregate".into(),
            user: request.user.clone(),
            step_type: "synthesise".into(),
            ..AgentStep::default()
        });

        let uri = uris::document_of(&uris::fan_out(&request.session_id, &correlation));
        let mut told = String::new();
        for (child, _) in &children {
            told.push_str(&format!("{}. {}\n", child.index + 1, child.goal));
        }
        let text = if self.thought.is_empty() {
            told
        } else {
            format!("{}\n\n{told}", self.thought)
        };
        Ok(Step::Finish(Box::new(Finish {
            activity: Activity::FannedOut(FannedOut {
                correlation: correlation.clone(),
                thought: self.thought,
                children: children.iter().map(|(child, _)| child.clone()).collect(),
                policy,
                join_deadline,
                round,
                after: self.after,
                model_ms: self.model_ms,
            }),
            outcome: Outcome::FanOut(Box::new(FanOut {
                correlation,
                children,
                policy,
                join_deadline,
                synthesis,
            })),
            routed: None,
            decisions: self.decisions,
            said: vec![
                say::message(MessageType::Thought, text.trim_end(), uri),
                say::status(format!("Fanned out to {count} subagents")),
            ],
        })))
    }
}

/// What a supervisor does when its fan-in has a verdict.
#[derive(Debug)]
pub struct Synthesise {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    verdict: FanInRecord,
    /// Text of each member, in the order of the verdict.
    texts: Vec<Option<String>>,
    sources: BTreeMap<String, Vec<Source>>,
    asking: Asking,
    decisions: Vec<Decision>,
    model_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Review,
    Answer,
}

impl Synthesise {
    pub(crate) fn new(
        request: AgentRequest,
        situation: Situation,
        limits: Limits,
        verdict: FanInRecord,
    ) -> Self {
        Self {
            request,
            situation,
            limits,
            verdict,
            texts: Vec::new(),
            sources: BTreeMap::new(),
            asking: Asking::Review,
            decisions: Vec::new(),
            model_ms: 0,
        }
    }

    pub(crate) fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::Begin => {
                Step::FindFacts(FactsQuery::SourcesOf(self.verdict.correlation.clone()))
            }
            Input::FactsFound(found) => {
                for (session, source) in found {
                    let known = self.sources.entry(session).or_default();
                    if !known.contains(&source) {
                        known.push(source);
                    }
                }
                let uris = self
                    .verdict
                    .members
                    .iter()
                    .map(|m| m.document.clone())
                    .collect();
                Step::ReadDocuments(uris)
            }
            Input::DocumentsRead(texts) => {
                self.texts = texts;
                self.read()
            }
            Input::ModelReplied(reply) => {
                self.model_ms += reply.ms;
                match self.asking {
                    Asking::Review => self.reviewed(&reply),
                    Asking::Answer => self.answered(reply.text.trim().to_owned()),
                }
            }
            Input::ModelFailed(failure) => failed(failure, self.model_ms),
            // Synthesis calls no tool.
            Input::ToolReturned(_) => self.compose(),
        }
    }

    fn read(&mut self) -> Step {
        let answered = self
            .verdict
            .members
            .iter()
            .zip(&self.texts)
            .any(|(m, text)| m.status == CompletionStatus::Answered && text.is_some());
        if !answered {
            // Nothing to reason from: a model could only invent.
            return self.conclude("No subagent came back with a result.".to_owned(), false);
        }
        if self.limits.tokens_exhausted(self.tokens_spent()) {
            let mut text = "**Partial answer:** the token budget was used up before a synthesis. \
                 These are the subagents' own answers.\n"
                .to_owned();
            for result in self.results() {
                text.push_str(&format!(
                    "\n## {}\n\n{}\n",
                    result["goal"].as_str().unwrap_or_default(),
                    result["text"].as_str().unwrap_or_default(),
                ));
            }
            return self.conclude(text, false);
        }
        if self.request.control.rounds < self.limits.max_rounds && self.limits.max_depth > 0 {
            return self.review();
        }
        self.compose()
    }

    /// Tokens spent so far, the children's included; a missing child counts as fully spent.
    fn tokens_spent(&self) -> u64 {
        self.request.control.tokens_spent + self.verdict.tokens()
    }

    fn review(&mut self) -> Step {
        self.asking = Asking::Review;
        Step::AskModel(Box::new(ModelAsk {
            operation: Operation::Review,
            variables: json!({
                "question": self.request.question,
                "framing": self.request.framing,
                "results": self.results(),
                "missing": self.missing(),
                "rounds_left": self.limits.max_rounds - self.request.control.rounds,
            }),
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: Some(review_schema()),
            stream: StreamAs::Nothing,
        }))
    }

    fn reviewed(&mut self, reply: &Reply) -> Step {
        let options = vec!["answer".to_owned(), "investigate".to_owned()];
        let mut decision = Decision {
            subject: "next-round".into(),
            options: options.clone(),
            narrowed_by: format!(
                "round {} of at most {}",
                self.request.control.rounds, self.limits.max_rounds
            ),
            signal: "the model named neither option".into(),
            chosen: "answer".into(),
            decided_by: DecidedBy::Fallback,
            rationale: String::new(),
        };
        let object = json::extract(&reply.text);
        let named = object
            .as_ref()
            .and_then(|o| o.get("decision"))
            .and_then(Value::as_str);
        let as_choice = json!({
            "choice": named.unwrap_or_default(),
            "signal": object.as_ref().and_then(|o| o.get("signal")).cloned().unwrap_or_default(),
            "rationale":
                object.as_ref().and_then(|o| o.get("rationale")).cloned().unwrap_or_default(),
        });
        if let Some(choice) = read_choice(&as_choice.to_string(), &options) {
            decision.chosen = choice.chosen;
            decision.signal = choice.signal;
            decision.rationale = choice.rationale;
            decision.decided_by = DecidedBy::Model;
        }
        if decision.chosen == "investigate" {
            let goals = read_goals(&reply.text)
                .map(|(_, goals)| goals)
                .unwrap_or_default();
            let goals = merged(goals, self.limits.width());
            let count = goals.len();
            let mut request = self.request.clone();
            self.remember_results(&mut request);
            request.control.tokens_spent = self.tokens_spent();
            let round = Round {
                request: &request,
                situation: &self.situation,
                limits: &self.limits,
                thought: decision.rationale.clone(),
                after: Some(self.summary()),
                decisions: vec![decision.clone()],
                model_ms: self.model_ms,
            };
            let outcome = if count == 0 {
                Err("the model named no goal to investigate")
            } else {
                round.fan_out(goals)
            };
            match outcome {
                Ok(step) => return step,
                Err(reason) => {
                    decision.signal = format!("{reason}, although it asked to investigate");
                    "answer".clone_into(&mut decision.chosen);
                    decision.decided_by = DecidedBy::Fallback;
                }
            }
        }
        self.decisions.push(decision);
        self.compose()
    }

    fn compose(&mut self) -> Step {
        self.asking = Asking::Answer;
        Step::AskModel(Box::new(ModelAsk {
            operation: Operation::Synthesise,
            variables: json!({
                "question": self.request.question,
                "framing": self.request.framing,
                "results": self.results(),
                "missing": self.missing(),
            }),
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: None,
            stream: StreamAs::Answer,
        }))
    }

    fn answered(&self, text: String) -> Step {
        if text.is_empty() {
            let mut plain =
                "**The model returned no text.** The subagents' own answers:\n".to_owned();
            for result in self.results() {
                plain.push_str(&format!(
                    "\n## {}\n\n{}\n",
                    result["goal"].as_str().unwrap_or_default(),
                    result["text"].as_str().unwrap_or_default(),
                ));
            }
            return self.conclude(plain, false);
        }
        self.conclude(text, true)
    }

    /// What this synthesis had before it.
    fn summary(&self) -> FanInSummary {
        FanInSummary {
            correlation: self.verdict.correlation.clone(),
            cause: self.verdict.cause,
            members: self.verdict.members.clone(),
            missing: self.verdict.missing.clone(),
            tokens: self.verdict.tokens(),
        }
    }

    /// Ends the session; what is missing is always named, whatever the model wrote.
    fn conclude(&self, mut text: String, streamed: bool) -> Step {
        let missing = self.missing();
        let partial = !missing.is_empty();
        if partial {
            text.push_str("\n\n---\n\n**Incomplete.** No result for:\n");
            for entry in &missing {
                text.push_str(&format!(
                    "\n- {} ({})",
                    entry["goal"].as_str().unwrap_or_default(),
                    entry["reason"].as_str().unwrap_or_default()
                ));
            }
        }
        let uri = uris::answer_document(&self.request.session_id);
        let termination = Termination::SubagentsComplete;
        let said = Said {
            streamed,
            ..say::message(MessageType::Answer, &*text, uri)
        };
        Step::Finish(Box::new(Finish {
            activity: Activity::Concluded(Concluded {
                termination,
                thought: String::new(),
                n: 0,
                partial,
                fan_in: Some(self.summary()),
                confidence: confidence_in(&text),
                error: None,
                model_ms: self.model_ms,
                cut_off: Vec::new(),
            }),
            outcome: Outcome::Answer(Answer {
                text,
                termination,
                partial,
            }),
            routed: None,
            decisions: self.decisions.clone(),
            said: vec![said],
        }))
    }

    /// What came back, as the prompts show it.
    fn results(&self) -> Vec<Value> {
        let each = (MAX_SYNTHESIS_BYTES / self.verdict.members.len().max(1)).min(MAX_RESULT_BYTES);
        self.verdict
            .members
            .iter()
            .zip(&self.texts)
            .filter(|(member, _)| member.status == CompletionStatus::Answered)
            .filter_map(|(member, text)| text.as_ref().map(|text| (member, text)))
            .map(|(member, text)| {
                let sources: Vec<_> = self
                    .sources
                    .get(member.session.as_str())
                    .into_iter()
                    .flatten()
                    .map(|s| json!({"uri": s.uri, "title": s.title}))
                    .collect();
                json!({
                    "goal": member.goal,
                    "status": member.status.as_str(),
                    "text": bounded(text, each),
                    "sources": sources,
                })
            })
            .collect()
    }

    /// What did not come back, with the reason.
    fn missing(&self) -> Vec<Value> {
        let failed = self
            .verdict
            .members
            .iter()
            .zip(&self.texts)
            .filter(|(m, text)| m.status != CompletionStatus::Answered || text.is_none())
            .map(|(m, text)| {
                let mut reason = match m.status {
                    CompletionStatus::Answered => "its text could not be read".to_owned(),
                    other => other.as_str().to_owned(),
                };
                if let Some(text) = text {
                    reason = format!("{reason}: {}", bounded(text, 300));
                }
                json!({"goal": m.goal, "reason": reason})
            });
        let waiting = self.verdict.missing.iter().map(|child| {
            json!({"goal": child.goal, "reason": format!(
                "not finished when the wait ended ({})", self.verdict.cause.as_str())})
        });
        failed.chain(waiting).collect()
    }

    /// Puts the results into the history for a next round: URIs and status, not texts.
    fn remember_results(&self, request: &mut AgentRequest) {
        let results: BTreeMap<String, Value> = self
            .verdict
            .members
            .iter()
            .map(|m| {
                let entry = json!({"status": m.status.as_str(), "document": m.document});
                (m.goal.clone(), entry)
            })
            .collect();
        if let Some(step) = request.history.last_mut() {
            step.subagent_results = Some(results);
        }
    }
}

fn failed(failure: ModelFailure, model_ms: u64) -> Step {
    Step::Finish(Box::new(say::failed(
        crate::error::body(
            crate::error::Code::ModelFailed,
            failure.message,
            failure.hint,
        ),
        Termination::Error,
        model_ms,
    )))
}

fn bounded(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} [cut]", &text[..end])
}

/// Patterns a child may have: valid for the task type, and without fan-out where the depth ends.
fn child_patterns(request: &AgentRequest, situation: &Situation, limits: &Limits) -> Vec<String> {
    let task_type = if request.task_type.is_empty() {
        GENERAL
    } else {
        &request.task_type
    };
    let depth = limits.max_depth.saturating_sub(1);
    let (mut options, _) = pattern_options(&situation.snapshot, task_type, depth);
    if !options.iter().any(|name| name == "react") {
        options.push("react".to_owned());
    }
    options
}

fn groups_of(tools: &[&ToolItem]) -> Vec<String> {
    let mut groups: Vec<String> = tools.iter().flat_map(|t| t.group.clone()).collect();
    groups.sort();
    groups.dedup();
    groups
}

fn goals_schema(patterns: &[String]) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["thought", "goals"],
        "properties": {
            "thought": {"type": "string", "description": "why the task falls into these goals"},
            "goals": {"type": "array", "items": goal_schema(patterns)},
        },
    })
}

fn goal_schema(patterns: &[String]) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["goal", "pattern", "context"],
        "properties": {
            "goal": {"type": "string", "description": "one focused, self-contained goal"},
            "pattern": {"type": "string", "enum": patterns},
            "group": {"type": "array", "items": {"type": "string"}},
            "context": {"type": "string", "description": "what the subagent must know beside it"},
        },
    })
}

fn review_schema() -> Value {
    json!({
        "type": "object",
        "required": ["decision", "signal", "rationale"],
        "properties": {
            "decision": {"type": "string", "enum": ["answer", "investigate"]},
            "signal": {"type": "string"},
            "rationale": {"type": "string"},
            "goals": {"type": "array", "items": goal_schema(&["react".to_owned()])},
        },
    })
}

/// Reads `{"thought", "goals": [...]}`, or a bare array; goals may be strings or objects.
fn read_goals(text: &str) -> Option<(String, Vec<Goal>)> {
    let value = json::extract(text)?;
    let (thought, list) = match &value {
        Value::Array(list) => (String::new(), list),
        Value::Object(map) => {
            let thought = map
                .get("thought")
                .and_then(Value::as_str)
                .unwrap_or_default();
            (thought.to_owned(), map.get("goals")?.as_array()?)
        }
        _ => return None,
    };
    let goals = list
        .iter()
        .filter_map(|entry| match entry {
            Value::String(text) => Some(Goal {
                text: text.clone(),
                ..Goal::default()
            }),
            Value::Object(map) => {
                let field = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
                let group = map.get("group").and_then(Value::as_array).map(|list| {
                    list.iter()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect()
                });
                Some(Goal {
                    text: field("goal").to_owned(),
                    pattern: field("pattern").to_owned(),
                    group,
                    context: field("context").to_owned(),
                })
            }
            _ => None,
        })
        .filter(|goal| !goal.text.trim().is_empty())
        .collect();
    Some((thought, goals))
}

/// Merges goals that say the same, and keeps at most `max`.
fn merged(goals: Vec<Goal>, max: u32) -> Vec<Goal> {
    let plain = |text: &str| {
        text.to_lowercase()
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
            .fold(String::new(), |mut all, word| {
                all.push_str(word);
                all.push(' ');
                all
            })
    };
    let mut seen = Vec::new();
    let mut kept: Vec<Goal> = Vec::new();
    for mut goal in goals {
        let text = goal.text.trim().to_owned();
        goal.text = text;
        let key = plain(&goal.text);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        kept.push(goal);
    }
    kept.truncate(max as usize);
    kept
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
