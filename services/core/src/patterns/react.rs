//! ReACT: one think, act, observe cycle, or the final answer; with a critique of each, where the
//! pattern is reflexion.
//!
//! What the model gets wrong (format, tool, arguments) becomes an observation it can read, with a
//! bounded number of tries in a row. The last iteration must answer; if it does not, the best
//! partial answer is given and marked as such. It never ends in silence.

mod again;
mod critique;
mod end;
mod held;

use super::repeats::{self, Seen};
use super::{Begun, Pattern, PatternTurn, iterations};
use super::{delegate, reflexion};
use crate::approval::Asker;
use crate::history;
use crate::history::preview;
use crate::limits::Limits;
use crate::order::{Finish, Input, ModelAsk, Order, Reply, Said, StreamAs, ToolOutcome, ToolUse};
use crate::pipeline::{self, Prepared, Stopped};
use crate::react_format::{Said as Format, parse};
use crate::say;
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{Activity, Decision, FanInSummary, Iterated, Termination};
use agentfleet_schema::{
    AgentRequest, AgentStep, HeldCall, MessageType, Operation, StepKind, uris,
};
use serde_json::json;
use std::collections::BTreeMap;

/// Action name of a reply that could not be read.
const PARSE_ERROR: &str = "__parse_error__";

pub(crate) const REACT: &str = "react";

pub(crate) struct React;

impl Pattern for React {
    fn name(&self) -> &'static str {
        REACT
    }

    fn begin(&self, request: AgentRequest, situation: Situation, limits: Limits) -> Begun {
        situation.verdict(&request)?;
        Ok(Box::new(Iteration::new(request, situation, limits, false)))
    }
}

/// One iteration.
#[derive(Debug)]
pub(super) struct Iteration {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    n: u32,
    tools: Vec<ToolItem>,
    thought: String,
    /// What was thought before a person was asked: it stands in the history, and was told then.
    recalled: String,
    calling: Option<(ToolItem, BTreeMap<String, String>)>,
    /// What the stages before a call changed or stopped.
    decided: Vec<Decision>,
    not_run: Vec<String>,
    /// The call that a person was asked about, or an agent works on: it comes first.
    held: Option<HeldCall>,
    /// What that agent brought.
    after: Option<FanInSummary>,
    /// Why it must answer although iterations are left: the budget pays for no more than that.
    last_call: Option<String>,
    reflects: bool,
    criticised: Option<Criticised>,
    model_ms: u64,
}

/// What waits for its critique.
#[derive(Debug)]
enum Criticised {
    Action {
        name: String,
        arguments: BTreeMap<String, String>,
        outcome: Box<ToolOutcome>,
    },
    Answer(String),
}

impl PatternTurn for Iteration {
    fn asker(&self) -> Option<Asker<'_>> {
        Some(Asker {
            request: &self.request,
            held: self.held.as_ref(),
            situation: &self.situation,
            limits: &self.limits,
            n: self.n,
            tools: &self.tools,
            calling: self.calling.as_ref(),
            thought: &self.thought,
            not_run: &self.not_run,
            model_ms: self.model_ms,
        })
    }

    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::Begin => match (
                delegate::answered(&self.request, &self.situation),
                &self.held,
            ) {
                (Some(verdict), _) => delegate::read(verdict),
                (None, Some(held)) => self.make(held.clone()),
                (None, None) => self.begin(),
            },
            Input::ModelReplied(reply) => match self.criticised.take() {
                Some(subject) => self.criticise(subject, &reply),
                None => self.replied(&reply),
            },
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            Input::ToolReturned(outcome) => self.observed(outcome),
            Input::DocumentsRead(texts) => self.answered(&texts),
        }
    }

    fn decided(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decided)
    }

    /// Ends the step where nothing is left to pay its next call with. What was done counts without
    /// its critique; else it is the end of the session.
    fn broke(&mut self, why: &str) -> Order {
        match self.criticised.take() {
            Some(Criticised::Action {
                name,
                arguments,
                outcome,
            }) => self.next(name, arguments, *outcome, 0),
            Some(Criticised::Answer(text)) => {
                self.conclude(text, Termination::FinalAnswer, false, false)
            }
            None => self.partial_because(Termination::BudgetExhausted, why),
        }
    }
}

impl Iteration {
    /// `reflects` says whether what it does is criticised.
    pub(super) fn new(
        mut request: AgentRequest,
        situation: Situation,
        limits: Limits,
        reflects: bool,
    ) -> Self {
        let held = request.control.held.take();
        let n = iterations(&request) + 1;
        let shown = request.history.iter();
        let shown = shown.map(|step| step.observation.len() + step.thought.len());
        let bytes = request.question.len() + shown.sum::<usize>();
        let last_call = limits.budget.last_call(request.control.spent, bytes);
        let last_call = last_call.filter(|_| n < limits.max_iterations);
        let tools = tools::visible(&request, &situation.snapshot)
            .into_iter()
            .cloned()
            .collect();
        Self {
            request,
            situation,
            limits,
            n,
            tools,
            thought: String::new(),
            recalled: String::new(),
            calling: None,
            decided: Vec::new(),
            not_run: Vec::new(),
            held,
            after: None,
            last_call,
            reflects,
            criticised: None,
            model_ms: 0,
        }
    }

    fn begin(&mut self) -> Order {
        if self.n > self.limits.max_iterations {
            return self.partial(Termination::MaxIterations);
        }
        let failures = repeats::failures_in_a_row(&self.request);
        if let Some(most) = self.limits.max_failures.filter(|most| failures >= *most) {
            let why = format!("{failures} calls in a row failed, and the task type allows {most}");
            return self.partial_because(Termination::Error, &why);
        }
        let native = self.situation.native_tools;
        let last = self.is_last();
        let shown: Vec<&ToolItem> = self.tools.iter().collect();
        // What a reasoner is to answer is the question; its part in the debate stands in its context.
        let goal = if self.request.control.reasoner.is_empty() {
            self.request.subagent_goal.as_str()
        } else {
            ""
        };
        let steps = self.request.history.iter();
        let told: Vec<&AgentStep> = steps.filter(|step| is_told(step)).collect();
        let history: Vec<_> = told.iter().map(|step| history::shown(step)).collect();
        // How a router gave the message away.
        let mut steps = self.request.history.iter().rev();
        let dispatched = steps.find(|step| step.is(StepKind::Route));
        let dispatched = dispatched.map_or("", |step| step.observation.as_str());
        let variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "goal": goal,
            "parent_context": self.request.control.context,
            "tools": tools::described(&shown),
            "history": history,
            "critiques": reflexion::carried(&self.request),
            "dispatched": dispatched,
            "iterations_left": self.limits.max_iterations - self.n,
            "native": native,
            "last": last,
        });
        let mut ask = ModelAsk::answer(Operation::React, variables);
        ask.is_agent = true;
        if native {
            ask.transcript = told.into_iter().cloned().collect();
        }
        if native && !last {
            ask.tools.clone_from(&self.tools);
        }
        ask.stream = if self.may_be_sent_back() {
            StreamAs::Thought
        } else {
            StreamAs::React
        };
        ask.into()
    }

    /// Whether an answer may be criticised and sent back, so that it is no answer yet.
    fn may_be_sent_back(&self) -> bool {
        self.reflects && !self.is_last() && reflexion::may_go_back(&self.request, &self.limits)
    }

    /// Whether this iteration must answer: none may follow it, or it could not call a tool.
    fn is_last(&self) -> bool {
        self.n >= self.limits.max_iterations || self.is_without_tools() || self.last_call.is_some()
    }

    /// Whether there are tools, and none of them was ever called.
    fn is_unread(&self) -> bool {
        self.n == 1 && !self.tools.is_empty()
    }

    fn is_without_tools(&self) -> bool {
        let spent = self.request.control.spent;
        self.limits.budget.is_without_tools(spent)
    }

    fn replied(&mut self, reply: &Reply) -> Order {
        self.model_ms += reply.ms;
        let parsed = parse(&reply.text);
        self.thought = parsed.thought;
        if !reply.tool_calls.is_empty() {
            if self.thought.is_empty() {
                reply.text.trim().clone_into(&mut self.thought);
            }
            let Some((name, arguments)) = reply.call() else {
                return self.cut_off();
            };
            self.not_run = reply.others();
            return self.act(name.clone(), arguments.clone());
        }
        match parsed.said {
            Format::Final(text) if reply.cut => self.answer_in_part(text),
            Format::Final(text) => self.answer(text, true),
            Format::Action { .. } if reply.cut && !parsed.is_whole => self.cut_off(),
            Format::Action { name, arguments } => {
                self.not_run = parsed.others;
                self.act(name, arguments)
            }
            // A model with native tools that calls none has answered, markers or not.
            Format::Malformed { loose, .. } if self.situation.native_tools && !loose.is_empty() => {
                self.thought.clear();
                // As it stands: what looks like the format may be part of it, such as a code fence.
                let text = reply.text.trim().to_owned();
                if reply.cut {
                    return self.answer_in_part(text);
                }
                self.answer(text, true)
            }
            Format::Malformed { loose, .. }
                if reply.cut && (loose.is_empty() || !self.must_end()) =>
            {
                self.cut_off()
            }
            Format::Malformed { loose, .. } if reply.cut => self.answer_in_part(loose),
            Format::Malformed { reason, loose } => self.unreadable(&reason, loose),
        }
    }

    /// Whether no further try may follow this reply.
    fn must_end(&self) -> bool {
        self.request.control.state.react().retries + 1 >= self.limits.max_retries || self.is_last()
    }

    fn act(&mut self, name: String, arguments: BTreeMap<String, String>) -> Order {
        if self.is_last() {
            return self.partial(Termination::MaxIterations);
        }
        let (tool, arguments) = match self.prepared(&name, &arguments) {
            Ok(prepared) => prepared,
            Err(stopped) => {
                return match self.question_for(&stopped) {
                    Some(question) => {
                        self.conclude(question, Termination::NeedsClarification, false, false)
                    }
                    None => self.retry(name, arguments, stopped.text),
                };
            }
        };
        if let Some(hint) = repeats::same_tool(&self.request, &tool, &self.situation.snapshot) {
            if self.request.control.state.react().repeats >= repeats::MOST_HINTS {
                return self.circling(&tool.name);
            }
            return self.told_of_repeating(tool.name, arguments, hint);
        }
        match repeats::seen(&self.request, &tool, &arguments, &self.situation.snapshot) {
            Seen::New => {}
            Seen::Before(n) => {
                return self.told_of_repeating(tool.name, arguments, repeats::hint(n));
            }
            Seen::Again => return self.looping(&tool.name, &arguments),
        }
        self.calling = Some((tool.clone(), arguments.clone()));
        Order::CallTool(Box::new(ToolUse { tool, arguments }))
    }

    fn prepared(
        &mut self,
        name: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<Prepared, Stopped> {
        pipeline::prepare(
            &self.request,
            &self.situation.snapshot,
            &self.tools,
            name,
            arguments,
            &mut self.decided,
        )
    }

    fn observed(&mut self, mut outcome: ToolOutcome) -> Order {
        let Some((tool, arguments)) = self.calling.take() else {
            let Some((name, arguments)) = outcome.instead.take() else {
                return self.begin();
            };
            "An earlier attempt at this step made this call before it ended."
                .clone_into(&mut self.thought);
            return self.took(name, arguments, outcome);
        };
        let (name, arguments) = outcome
            .instead
            .take()
            .unwrap_or_else(|| (tool.name.clone(), arguments));
        self.took(name, arguments, outcome)
    }

    fn took(
        &mut self,
        name: String,
        arguments: BTreeMap<String, String>,
        mut outcome: ToolOutcome,
    ) -> Order {
        let (request, snapshot) = (&mut self.request, &self.situation.snapshot);
        pipeline::took(request, snapshot, &name, &outcome, &mut self.decided);
        say::name_not_run(&mut outcome.content, &self.not_run);
        self.did(name, arguments, outcome)
    }

    fn next(
        &mut self,
        action: String,
        arguments: BTreeMap<String, String>,
        outcome: ToolOutcome,
        retries: u32,
    ) -> Order {
        let session = &self.request.session_id;
        let document = uris::document_of(&uris::observation(session, self.n));
        let observation = preview(
            &outcome.content,
            self.limits.max_observation_bytes,
            &document,
        );
        let mut request = self.request.clone();
        (request.control.state).set_react(|state| state.retries = retries);
        request.history.push(AgentStep {
            thought: if self.thought.is_empty() {
                self.recalled.clone()
            } else {
                self.thought.clone()
            },
            action: action.clone(),
            arguments: arguments.clone(),
            observation: observation.clone(),
            user: request.user.clone(),
            step_type: StepKind::React.into(),
            plan: None,
            subagent_results: None,
        });
        let mut said = self.thoughts();
        // That of an agent was said when it started.
        if action != PARSE_ERROR && self.after.is_none() {
            said.push(Said {
                streamed: true,
                ..say::called(&action, &arguments)
            });
        }
        said.push(say::message(
            MessageType::Observation,
            outcome.content,
            document,
        ));
        Finish::goes_on(
            request,
            Activity::Iterated(Iterated {
                n: self.n,
                thought: self.thought.clone(),
                action,
                arguments,
                observation,
                is_error: outcome.is_error,
                candidates: self.tools.iter().map(|t| t.name.clone()).collect(),
                sources: outcome.sources,
                model_ms: self.model_ms,
                tool_ms: outcome.ms,
                critique: None,
                after: self.after.clone(),
            }),
            Vec::new(),
            said,
        )
    }

    fn thoughts(&self) -> Vec<Said> {
        if self.thought.is_empty() {
            return Vec::new();
        }
        let uri = uris::document_of(&uris::thought(&self.request.session_id, self.n));
        vec![Said {
            streamed: true,
            ..say::message(MessageType::Thought, &*self.thought, uri)
        }]
    }
}

/// Whether a step of the history is shown to the model as something that it did or found out. What a
/// critique came to, and which agent works, is told apart; who was to work is no part of the task.
fn is_told(step: &AgentStep) -> bool {
    match step.kind() {
        Some(StepKind::Reflect | StepKind::Route | StepKind::Supervise | StepKind::Synthesise) => {
            false
        }
        Some(StepKind::React | StepKind::Plan | StepKind::Execute | StepKind::Summary) | None => {
            true
        }
    }
}

#[cfg(test)]
#[path = "react_tests.rs"]
mod tests;
