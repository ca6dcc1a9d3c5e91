//! ReACT: one think, act, observe cycle, or the final answer; with a critique of each, where the
//! pattern is reflexion.
//!
//! What the model gets wrong (format, tool, arguments) becomes an observation it can read, with a
//! bounded number of tries in a row. The last iteration must answer; if it does not, the best
//! partial answer is given and marked as such. It never ends in silence.

use super::answer::{answered, name_cut};
use super::reflexion::{self, ANSWER, REFLECT, Subject};
use super::repeats::{self, Seen};
use super::router::ROUTE;
use crate::approval::Asker;
use crate::cut::CUT;
use crate::history;
pub(super) use crate::history::preview;
use crate::limits::Limits;
use crate::react_format::{Said as Format, parse};
use crate::say;
use crate::so_far;
use crate::step::{
    Finish, Input, ModelAsk, Outcome, Reply, Said, Step, StreamAs, ToolOutcome, ToolUse,
};
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{
    Activity, Concluded, Critique, DecidedBy, Decision, Iterated, Termination,
};
use agentfleet_schema::{AgentRequest, AgentStep, HeldCall, MessageType, Operation, uris};
use serde_json::json;
use std::collections::BTreeMap;

/// Action name of a reply that could not be read.
const PARSE_ERROR: &str = "__parse_error__";

/// One iteration.
#[derive(Debug)]
pub struct React {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    n: u32,
    tools: Vec<ToolItem>,
    thought: String,
    /// What was thought before a person was asked: it stands in the history, and was told then.
    recalled: String,
    calling: Option<(ToolItem, BTreeMap<String, String>)>,
    not_run: Vec<String>,
    /// The call that a person was asked about: it comes first.
    held: Option<HeldCall>,
    /// Why it must answer although iterations are left: the budget pays for no more than that.
    last_call: Option<String>,
    /// Whether what it does is criticised.
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
        outcome: ToolOutcome,
        state: Option<String>,
    },
    Answer(String),
}

impl React {
    /// With a critique of what it does.
    pub(crate) fn reflecting(request: AgentRequest, situation: Situation, limits: Limits) -> Self {
        Self {
            reflects: true,
            ..Self::new(request, situation, limits)
        }
    }

    pub(crate) fn new(mut request: AgentRequest, situation: Situation, limits: Limits) -> Self {
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
            not_run: Vec::new(),
            held,
            last_call,
            reflects: false,
            criticised: None,
            model_ms: 0,
        }
    }

    pub(crate) fn tools(&self) -> &[ToolItem] {
        &self.tools
    }

    pub(crate) fn asker(&self) -> Asker<'_> {
        Asker {
            request: &self.request,
            held: self.held.as_ref(),
            now: self.situation.now,
            n: self.n,
            tools: &self.tools,
            thought: &self.thought,
            not_run: &self.not_run,
            model_ms: self.model_ms,
        }
    }

    /// The call that was ordered, which is not to be made as it stands.
    pub(crate) fn ordered(&self) -> Option<(ToolItem, BTreeMap<String, String>)> {
        self.calling.clone()
    }

    pub(crate) fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::Begin => match self.held.clone() {
                Some(held) => self.make(held),
                None => self.begin(),
            },
            Input::ModelReplied(reply) => match self.criticised.take() {
                Some(subject) => self.criticise(subject, &reply),
                None => self.replied(&reply),
            },
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            Input::ToolReturned(outcome) => self.observed(outcome),
            // ReACT orders neither, so neither can come back.
            Input::FactsFound(_) | Input::DocumentsRead(_) => self.begin(),
        }
    }

    /// Ends the step where nothing is left to pay its next call with. What was done counts without
    /// its critique; else it is the end of the session.
    pub(crate) fn broke(&mut self, why: &str) -> Step {
        match self.criticised.take() {
            Some(Criticised::Action {
                name,
                arguments,
                outcome,
                state,
            }) => self.next(name, arguments, outcome, state, 0),
            Some(Criticised::Answer(text)) => {
                self.conclude(text, Termination::FinalAnswer, false, false)
            }
            None => self.partial_because(Termination::BudgetExhausted, why),
        }
    }

    fn begin(&mut self) -> Step {
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
        let history: Vec<_> = self
            .request
            .history
            .iter()
            .filter(|step| !matches!(step.step_type.as_str(), REFLECT | ROUTE))
            .map(history::shown)
            .collect();
        // How a router gave the message away.
        let mut steps = self.request.history.iter().rev();
        let dispatched = steps.find(|step| step.step_type == ROUTE);
        let dispatched = dispatched.map_or("", |step| step.observation.as_str());
        Step::AskModel(Box::new(ModelAsk {
            operation: Operation::React,
            variables: json!({
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
            }),
            cut: None,
            transcript: if native {
                self.request.history.clone()
            } else {
                Vec::new()
            },
            tools: if native && !last {
                self.tools.clone()
            } else {
                Vec::new()
            },
            schema: None,
            stream: if self.may_be_sent_back() {
                StreamAs::Thought
            } else {
                StreamAs::React
            },
        }))
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

    fn replied(&mut self, reply: &Reply) -> Step {
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
            self.not_run = reply.not_called(Operation::React, self.situation.telling);
            return self.act(name.clone(), arguments.clone());
        }
        match parsed.said {
            Format::Final(text) if reply.cut => self.answer_in_part(text),
            Format::Final(text) => self.answer(text, true),
            Format::Action { .. } if reply.cut && !parsed.is_whole => self.cut_off(),
            Format::Action { name, arguments } => {
                self.not_run = reply.not_called(Operation::React, self.situation.telling);
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
        self.request.control.retries + 1 >= self.limits.max_retries || self.is_last()
    }

    /// What becomes of a reply that was cut before its call or answer was there.
    fn cut_off(&mut self) -> Step {
        if self.must_end() {
            return self.partial_because(Termination::ReplyCut, CUT);
        }
        let text = format!(
            "Error: {CUT}, before its call or its answer was complete, so nothing was called. Reply \
             again, and shorter."
        );
        self.retry(PARSE_ERROR.to_owned(), BTreeMap::new(), text)
    }

    /// Answers with a text that was cut, and could not be gone on with.
    fn answer_in_part(&self, mut text: String) -> Step {
        name_cut(&mut text);
        self.conclude(text, Termination::ReplyCut, true, true)
    }

    fn act(&mut self, name: String, arguments: BTreeMap<String, String>) -> Step {
        if self.is_last() {
            return self.partial(Termination::MaxIterations);
        }
        let tool = match tools::callable(&self.tools, &name, &arguments) {
            Ok(tool) => tool.clone(),
            Err(text) => return self.retry(name, arguments, text),
        };
        match repeats::seen(&self.request, &tool, &arguments, &self.situation.snapshot) {
            Seen::New => {}
            Seen::Before(n) => return self.hint(tool.name, arguments, n),
            Seen::Again => return self.looping(&tool.name, &arguments),
        }
        self.calling = Some((tool.clone(), arguments.clone()));
        Step::CallTool(Box::new(ToolUse { tool, arguments }))
    }

    /// Tells the agent that it repeats itself, instead of calling.
    fn hint(&mut self, name: String, arguments: BTreeMap<String, String>, n: u32) -> Step {
        self.request.control.repeats += 1;
        let mut content = repeats::hint(n);
        if self.situation.telling >= 3 {
            say::name_not_run(&mut content, &self.not_run);
        }
        let outcome = ToolOutcome {
            content,
            is_error: true,
            ..ToolOutcome::default()
        };
        self.next(name, arguments, outcome, None, 0)
    }

    /// Ends a session that goes round in circles.
    fn looping(&self, name: &str, arguments: &BTreeMap<String, String>) -> Step {
        let why = format!(
            "it made the call `{}` again, after it was told that it had made it",
            say::action(name, arguments)
        );
        self.partial_because(Termination::RepeatedAction, &why)
    }

    /// Makes the call that a person was asked about, without asking the model again.
    fn make(&mut self, held: HeldCall) -> Step {
        // What was thought is told with the call that waited.
        self.recalled = held.thought;
        self.not_run = held.not_run;
        match tools::callable(&self.tools, &held.tool, &held.arguments) {
            Ok(tool) => {
                let tool = tool.clone();
                self.calling = Some((tool.clone(), held.arguments.clone()));
                let arguments = held.arguments;
                Step::CallTool(Box::new(ToolUse { tool, arguments }))
            }
            Err(text) => self.retry(held.tool, held.arguments, text),
        }
    }

    fn unreadable(&mut self, reason: &str, loose: String) -> Step {
        if self.must_end() && !loose.is_empty() {
            // It said something, if never in the format: better than nothing, and marked.
            return self.conclude(loose, Termination::FinalAnswer, true, false);
        }
        let text = format!(
            "Error: the reply could not be read: {reason}. Reply with `Thought:`, then either \
             `Action:` and `Args:`, or `Final Answer:`."
        );
        self.retry(PARSE_ERROR.to_owned(), BTreeMap::new(), text)
    }

    fn retry(
        &mut self,
        action: String,
        arguments: BTreeMap<String, String>,
        mut text: String,
    ) -> Step {
        if self.situation.telling >= 3 {
            say::name_not_run(&mut text, &self.not_run);
        }
        let retries = self.request.control.retries + 1;
        if retries >= self.limits.max_retries || self.is_last() {
            return self.partial(if self.is_last() {
                Termination::MaxIterations
            } else {
                Termination::Error
            });
        }
        let outcome = ToolOutcome {
            content: text,
            is_error: true,
            ..ToolOutcome::default()
        };
        self.next(action, arguments, outcome, None, retries)
    }

    fn observed(&mut self, mut outcome: ToolOutcome) -> Step {
        let Some((tool, arguments)) = self.calling.take() else {
            let Some((name, arguments)) = outcome.instead.take() else {
                return self.begin();
            };
            "An earlier attempt at this step made this call before it ended."
                .clone_into(&mut self.thought);
            return self.did(name, arguments, outcome, None);
        };
        say::name_not_run(&mut outcome.content, &self.not_run);
        let (name, arguments) = outcome
            .instead
            .take()
            .unwrap_or_else(|| (tool.name.clone(), arguments));
        self.did(name, arguments, outcome, tool.state)
    }

    fn did(
        &mut self,
        name: String,
        arguments: BTreeMap<String, String>,
        outcome: ToolOutcome,
        state: Option<String>,
    ) -> Step {
        if !self.reflects {
            return self.next(name, arguments, outcome, state, 0);
        }
        let session = &self.request.session_id;
        let document = uris::document_of(&uris::observation(session, self.n));
        let most = self.limits.max_observation_bytes;
        let subject = Subject::Action {
            name: &name,
            arguments: json!(arguments),
            observation: &preview(&outcome.content, most, &document),
            is_error: outcome.is_error,
        };
        let thought = if self.thought.is_empty() {
            &self.recalled
        } else {
            &self.thought
        };
        let ask = reflexion::ask(&self.request, &self.limits, thought, &subject);
        self.criticised = Some(Criticised::Action {
            name,
            arguments,
            outcome,
            state,
        });
        ask
    }

    fn criticise(&mut self, subject: Criticised, reply: &Reply) -> Step {
        self.model_ms += reply.ms;
        let (critique, decision) = reflexion::read(&reply.text, &self.request, &self.limits);
        let mut step = match subject {
            Criticised::Action {
                name,
                arguments,
                outcome,
                state,
            } => self.next(name, arguments, outcome, state, 0),
            Criticised::Answer(text) if critique.sent_back => self.sent_back(text, &critique),
            Criticised::Answer(text) => self.conclude(text, Termination::FinalAnswer, false, false),
        };
        if let Step::Finish(finish) = &mut step {
            match &mut finish.activity {
                Activity::Iterated(it) => it.critique = Some(critique.clone()),
                Activity::Concluded(end) => end.critique = Some(critique.clone()),
                Activity::None
                | Activity::FannedOut(_)
                | Activity::Planned(_)
                | Activity::Executed(_)
                | Activity::Asked(_)
                | Activity::Decided(_) => {}
            }
            if let Outcome::Continue(next) = &mut finish.outcome
                && next
                    .history
                    .last()
                    .is_none_or(|step| step.step_type != REFLECT)
            {
                reflexion::remember(next, &critique, None);
            }
            let uri = uris::document_of(&uris::critique(&self.request.session_id, self.n));
            let told = say::message(MessageType::Thought, reflexion::told(&critique), uri);
            // An answer comes last: it may be the end of the dialog.
            let at = match finish.activity {
                Activity::Concluded(_) => finish.said.len().saturating_sub(1),
                _ => finish.said.len(),
            };
            finish.said.insert(at, told);
            finish.decisions.push(decision);
        }
        step
    }

    /// Goes on without the answer that was to be given.
    fn sent_back(&self, draft: String, critique: &Critique) -> Step {
        let mut next = self.request.clone();
        next.control.retries = 0;
        reflexion::remember(&mut next, critique, Some(&draft));
        let uri = uris::document_of(&uris::observation(&self.request.session_id, self.n));
        let observation = format!("{}\n\nThe draft:\n\n{draft}", reflexion::told(critique));
        let mut candidates: Vec<String> = self.tools.iter().map(|t| t.name.clone()).collect();
        candidates.push(ANSWER.to_owned());
        let mut said = self.thoughts();
        said.push(say::message(
            MessageType::Observation,
            &*observation,
            uri.clone(),
        ));
        Step::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::Iterated(Iterated {
                n: self.n,
                thought: self.thought.clone(),
                action: ANSWER.to_owned(),
                observation: preview(&observation, self.limits.max_observation_bytes, &uri),
                candidates,
                model_ms: self.model_ms,
                ..Iterated::default()
            }),
            routed: None,
            decisions: Vec::new(),
            said,
        }))
    }

    fn next(
        &mut self,
        action: String,
        arguments: BTreeMap<String, String>,
        outcome: ToolOutcome,
        state: Option<String>,
        retries: u32,
    ) -> Step {
        let session = &self.request.session_id;
        let document = uris::document_of(&uris::observation(session, self.n));
        let observation = preview(
            &outcome.content,
            self.limits.max_observation_bytes,
            &document,
        );
        let mut request = self.request.clone();
        if let Some(state) = state {
            request.state = state;
        }
        request.control.retries = retries;
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
            step_type: "react".into(),
            plan: None,
            subagent_results: None,
        });
        let mut said = self.thoughts();
        if action != PARSE_ERROR {
            said.push(Said {
                message_type: MessageType::Action,
                text: say::action(&action, &arguments),
                streamed: true,
                document: None,
            });
        }
        said.push(say::message(
            MessageType::Observation,
            outcome.content,
            document,
        ));
        Step::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(request)),
            activity: Activity::Iterated(Iterated {
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
            }),
            routed: None,
            decisions: Vec::new(),
            said,
        }))
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

    fn answer(&mut self, text: String, streamed: bool) -> Step {
        let unread = self.last_call.as_ref().filter(|_| self.is_unread());
        let unread = unread.map(|why| format!("{why}, so no tool could be called"));
        if let Some(why) = self.out_of_tools().or(unread) {
            // The text may have been streamed: what is said behind it still follows.
            let text = format!("{text}\n\n---\n\n**Incomplete:** {why}.");
            return self.conclude(text, Termination::BudgetExhausted, true, streamed);
        }
        if !self.may_be_sent_back() {
            return self.conclude(text, Termination::FinalAnswer, false, streamed);
        }
        let subject = Subject::Answer(&text);
        let ask = reflexion::ask(&self.request, &self.limits, &self.thought, &subject);
        self.criticised = Some(Criticised::Answer(text));
        ask
    }

    /// The best that can be said from what is known so far.
    fn partial(&self, termination: Termination) -> Step {
        if termination == Termination::Error {
            return self.partial_because(termination, "the model's replies could not be used");
        }
        if let Some(why) = self.out_of_tools() {
            return self.partial_because(Termination::BudgetExhausted, &why);
        }
        if let Some(why) = &self.last_call {
            let why = format!("the last call that the budget pays for brought no answer ({why})");
            return self.partial_as(Termination::BudgetExhausted, &why);
        }
        self.partial_because(termination, "the iteration limit was reached")
    }

    /// Why it must answer although iterations are left, if so.
    fn out_of_tools(&self) -> Option<String> {
        if !self.is_without_tools() || self.n >= self.limits.max_iterations {
            return None;
        }
        self.limits.budget.refuses_tool(self.request.control.spent)
    }

    fn partial_because(&self, termination: Termination, why: &str) -> Step {
        self.partial_as(termination, &format!("{why}, before a final answer"))
    }

    fn partial_as(&self, termination: Termination, why: &str) -> Step {
        let mut text = format!("**Partial answer:** {why}.\n");
        let found = so_far::observed(&self.request.history);
        if found.is_empty() {
            text.push_str("\nNo tool had returned anything useful.\n");
        } else {
            text.push_str(&format!("\n{}", so_far::told(&found)));
        }
        if !self.thought.is_empty() {
            text.push_str(&format!("\nThe last thought was: {}\n", self.thought));
        }
        self.conclude(text, termination, true, false)
    }

    fn conclude(
        &self,
        text: String,
        termination: Termination,
        partial: bool,
        streamed: bool,
    ) -> Step {
        let end = Concluded {
            termination,
            thought: self.thought.clone(),
            n: self.n,
            partial,
            model_ms: self.model_ms,
            ..Concluded::default()
        };
        let session = &self.request.session_id;
        let decisions = self.last_call.iter().map(|why| Decision {
            subject: "answer-now".into(),
            options: vec![ANSWER.to_owned()],
            narrowed_by: "what is left of the budget".into(),
            signal: why.clone(),
            chosen: ANSWER.to_owned(),
            decided_by: DecidedBy::OnlyOption,
            rationale: String::new(),
        });
        let decisions = decisions.collect();
        answered(session, end, text, streamed, self.thoughts(), decisions)
    }
}

/// Iterations done so far: making a plan and synthesising do not count.
pub(crate) fn iterations(request: &AgentRequest) -> u32 {
    request.history.iter().map(history::counted).sum()
}

/// Whether a step of that kind is an iteration.
pub(crate) fn is_iteration(step_type: &str, action: &str) -> bool {
    match step_type {
        "" | "react" | "execute" => true,
        REFLECT => action == ANSWER,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::limits::FleetLimits;
    use crate::step::ModelFailure;
    use crate::turn::Turn;
    use agentfleet_schema::config::{Snapshot, ToolArgument};
    use std::sync::Arc;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.tools.insert(
            "search".into(),
            ToolItem {
                name: "search".into(),
                kind: "document-search".into(),
                group: vec!["default".into()],
                applicable_states: vec!["*".into()],
                state: Some("searched".into()),
                arguments: vec![ToolArgument {
                    name: "query".into(),
                    kind: "string".into(),
                    description: String::new(),
                    required: true,
                }],
                ..ToolItem::default()
            },
        );
        snapshot
    }

    fn turn_with(request: AgentRequest, native: bool) -> Turn {
        let situation = Situation {
            now: 0,
            snapshot: Arc::new(snapshot()),
            fleet: Arc::new(FleetLimits {
                max_observation_bytes: 400,
                ..FleetLimits::default()
            }),
            native_tools: native,
            telling: agentfleet_schema::records::TELLING,
            nonce: "nonce".into(),
            fan_in: None,
        };
        Turn::parse(request, situation).unwrap()
    }

    fn request() -> AgentRequest {
        AgentRequest {
            question: "q".into(),
            session_id: "s".into(),
            pattern: "react".into(),
            ..AgentRequest::default()
        }
    }

    fn reply(text: &str) -> Input {
        Input::ModelReplied(Reply {
            text: text.into(),
            ms: 5,
            ..Reply::default()
        })
    }

    fn finished(step: Step) -> Finish {
        let Step::Finish(finish) = step else {
            panic!("not finished: {step:?}")
        };
        *finish
    }

    #[test]
    fn a_cycle_adds_one_step_to_the_history() {
        let mut turn = turn_with(request(), false);
        let Step::AskModel(ask) = turn.resume(Input::Begin) else {
            panic!()
        };
        assert_eq!(ask.stream, StreamAs::React);
        let Step::CallTool(call) = turn.resume(reply(
            "Thought: t\nAction: Search\nArgs: {\"query\": \"x\"}",
        )) else {
            panic!()
        };
        assert_eq!(call.tool.name, "search");
        let finish = finished(turn.resume(Input::ToolReturned(ToolOutcome {
            content: "found".into(),
            ..ToolOutcome::default()
        })));
        let Outcome::Continue(next) = finish.outcome else {
            panic!()
        };
        assert_eq!(next.history.len(), 1);
        assert_eq!(next.history[0].observation, "found");
        assert_eq!(next.state, "searched");
        let Activity::Iterated(iterated) = finish.activity else {
            panic!()
        };
        assert_eq!(iterated.candidates, ["search"]);
        let said: Vec<_> = finish
            .said
            .iter()
            .map(|said| (said.message_type, said.text.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                (MessageType::Thought, "t"),
                (MessageType::Action, "search(query: \"x\")"),
                (MessageType::Observation, "found"),
            ]
        );
    }

    #[test]
    fn mistakes_become_observations_and_end_after_a_bounded_number() {
        for (text, expected) in [
            (
                "no format at all but no text either\nAction:",
                "could not be read",
            ),
            (
                "Thought: t\nAction: serch\nArgs: {}",
                "unknown tool `serch` (available: `search`)",
            ),
            (
                "Thought: t\nAction: search\nArgs: {\"qery\": \"x\"}",
                "unknown argument `qery`",
            ),
            (
                "Thought: t\nAction: search\nArgs: {}",
                "missing argument `query`",
            ),
            (
                "Thought: t\nAction: search\nArgs: nope",
                "could not be read",
            ),
        ] {
            let mut turn = turn_with(request(), false);
            turn.resume(Input::Begin);
            let finish = finished(turn.resume(reply(text)));
            let Outcome::Continue(next) = finish.outcome else {
                panic!("{text}")
            };
            assert!(
                next.history[0].observation.contains(expected),
                "{:?}",
                next.history[0]
            );
            assert_eq!(next.control.retries, 1);
            // What could not be read was no action.
            let actions = finish
                .said
                .iter()
                .filter(|said| said.message_type == MessageType::Action);
            assert_eq!(
                actions.count(),
                usize::from(next.history[0].action != PARSE_ERROR)
            );
            let mut tired = *next;
            tired.control.retries = 2;
            let mut turn = turn_with(tired, false);
            turn.resume(Input::Begin);
            let finish = finished(turn.resume(reply(text)));
            let Outcome::Answer(answer) = finish.outcome else {
                panic!("{text}")
            };
            assert!(answer.partial);
        }
    }

    #[test]
    fn the_last_iteration_answers_or_gives_what_it_has() {
        let mut last = request();
        last.limits.max_iterations = Some(2);
        last.history.push(AgentStep {
            action: "search".into(),
            observation: "the fact".into(),
            ..AgentStep::default()
        });
        let mut turn = turn_with(last, false);
        let Step::AskModel(ask) = turn.resume(Input::Begin) else {
            panic!()
        };
        assert_eq!(ask.variables["last"], true);
        let finish = finished(turn.resume(reply(
            "Thought: more\nAction: search\nArgs: {\"query\":\"y\"}",
        )));
        let Outcome::Answer(answer) = finish.outcome else {
            panic!()
        };
        assert!(
            answer.partial && answer.text.contains("the fact"),
            "{}",
            answer.text
        );
        assert_eq!(answer.termination, Termination::MaxIterations);
    }

    #[test]
    fn whoever_acts_with_the_last_call_of_a_budget_ends_with_what_was_found() {
        let mut poor = request();
        poor.limits.max_tokens = Some(1_000);
        poor.control.spent.tokens = 800;
        poor.control.spent.model_calls = 4;
        let mut turn = turn_with(poor, false);
        let Step::AskModel(ask) = turn.resume(Input::Begin) else {
            panic!()
        };
        assert_eq!(ask.variables["last"], true);
        let step = turn.resume(reply(
            "Thought: t\nAction: search\nArgs: {\"query\": \"x\"}",
        ));
        let Outcome::Answer(answer) = finished(step).outcome else {
            panic!()
        };
        assert_eq!(answer.termination, Termination::BudgetExhausted);
        let mut hasty = request();
        hasty.limits.max_model_calls = Some(1);
        let mut unread = turn_with(hasty, false);
        unread.resume(Input::Begin);
        let Outcome::Answer(told) = finished(unread.resume(reply("Final Answer: 4"))).outcome
        else {
            panic!()
        };
        let cause = "**Incomplete:** the budget of 1 model calls has one left, so no tool";
        assert!(told.partial && told.text.contains(cause), "{}", told.text);
        let why = "what is left of the budget of 1000 tokens (200) pays for one more model call";
        assert!(
            answer.partial && answer.text.contains(why),
            "{}",
            answer.text
        );
    }

    #[test]
    fn a_spent_budget_ends_without_asking() {
        let mut poor = request();
        poor.limits.max_tokens = Some(10);
        poor.control.spent.tokens = 10;
        let mut turn = turn_with(poor, false);
        let Outcome::Answer(answer) = finished(turn.resume(Input::Begin)).outcome else {
            panic!()
        };
        assert_eq!(answer.termination, Termination::BudgetExhausted);
    }

    #[test]
    fn native_calls_run_one_and_return_the_rest_as_not_run() {
        let mut turn = turn_with(request(), true);
        let Step::AskModel(ask) = turn.resume(Input::Begin) else {
            panic!()
        };
        assert_eq!(ask.tools.len(), 1);
        let args: BTreeMap<_, _> = [("query".to_owned(), "x".to_owned())].into();
        let step = turn.resume(Input::ModelReplied(Reply {
            text: "let me see".into(),
            tool_calls: vec![("search".into(), args.clone()), ("fetch".into(), args)],
            ..Reply::default()
        }));
        assert!(matches!(step, Step::CallTool(_)));
        let finish = finished(turn.resume(Input::ToolReturned(ToolOutcome {
            content: "r".repeat(900),
            ..ToolOutcome::default()
        })));
        let Activity::Iterated(iterated) = finish.activity else {
            panic!()
        };
        assert_eq!(iterated.thought, "let me see");
        let Outcome::Continue(next) = finish.outcome else {
            panic!()
        };
        // The preview is cut at the bound; the document has the whole.
        assert!(next.history[0].observation.contains("[cut: the whole has"));
        let whole = finish
            .said
            .iter()
            .find(|s| s.message_type == MessageType::Observation);
        assert!(
            whole
                .unwrap()
                .text
                .contains("Not run, because one call is made a turn: fetch")
        );
    }

    #[test]
    fn a_native_model_that_calls_nothing_has_answered() {
        let mut turn = turn_with(request(), true);
        turn.resume(Input::Begin);
        let finish = finished(turn.resume(reply("It is 4.\n\nBecause 2 + 2.")));
        let Outcome::Answer(answer) = finish.outcome else {
            panic!()
        };
        assert_eq!(answer.text, "It is 4.\n\nBecause 2 + 2.");
        assert!(!answer.partial);
    }

    #[test]
    fn a_model_that_is_gone_for_good_ends_the_session() {
        let mut turn = turn_with(request(), false);
        turn.resume(Input::Begin);
        let finish = finished(turn.resume(Input::ModelFailed(ModelFailure {
            message: "the key was refused".into(),
            hint: "set it".into(),
            ..ModelFailure::default()
        })));
        assert!(matches!(finish.outcome, Outcome::Fail { .. }));
    }
}
