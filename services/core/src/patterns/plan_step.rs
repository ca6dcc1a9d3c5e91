//! One step of a plan: one call and what it came to, or a result that needs no call. Ready steps that
//! do not depend on each other may go to subagents instead, and those of a specialist always do.

use super::Implemented;
use super::dag::{self, COMPLETE, FAILED};
use super::fan_out::{self, Goal, Round};
use super::plan::{go_on, remember};
use super::react::{iterations, preview};
use super::repeats;
use crate::approval::{self, Asker};
use crate::cut::CUT;
use crate::history;
use crate::json;
use crate::limits::Limits;
use crate::react_format::{Said as Format, parse};
use crate::say;
use crate::specialists;
use crate::step::{
    Finish, Input, ModelAsk, Outcome, Reply, Said, Step, StreamAs, ToolOutcome, ToolUse, Used,
};
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Executed, Iterated, StepResult};
use agentfleet_schema::{
    AgentRequest, AgentStep, HeldCall, MessageType, Operation, PlanStep, uris,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a call may come to for its step.
const COMES_TO: [&str; 3] = [COMPLETE, FAILED, "surprising"];
/// Characters of a result that the history shows; the plan has all of it.
const BRIEF: usize = 400;

/// Revision of the plan a session works by.
pub(super) fn revision(request: &AgentRequest) -> u32 {
    let plans: u32 = request.history.iter().map(history::plans).sum();
    plans.saturating_sub(1)
}

/// Places of the steps that the newest fan-out gave to subagents, in the order of these.
pub(super) fn given_away(request: &AgentRequest) -> Vec<usize> {
    let newest = request.history.iter().rev();
    let places = newest
        .filter(|step| step.action == FAN_OUT)
        .find_map(|step| step.arguments.get("steps"));
    let places = places.map(String::as_str).unwrap_or_default();
    places.split(',').filter_map(|at| at.parse().ok()).collect()
}

const FAN_OUT: &str = "fan-out";

/// The beginning of a result.
pub(super) fn brief(result: &str) -> String {
    match result.char_indices().nth(BRIEF) {
        Some((end, _)) => format!("{}...", &result[..end]),
        None => result.to_owned(),
    }
}

/// One step.
#[derive(Debug)]
pub struct Execute {
    pub(super) request: AgentRequest,
    situation: Situation,
    pub(super) limits: Limits,
    pub(super) plan: Vec<PlanStep>,
    ready: Vec<usize>,
    at: usize,
    tools: Vec<ToolItem>,
    framing: String,
    /// Why no subagent works on it, where one was meant to.
    alone: Option<Decision>,
    /// What was wrong with the model's replies so far.
    faults: Vec<String>,
    thought: String,
    calling: Option<(ToolItem, BTreeMap<String, String>)>,
    called: Option<Called>,
    not_run: Vec<String>,
    /// The call that a person was asked about: it comes first.
    held: Option<HeldCall>,
    pub(super) model_ms: u64,
}

/// A call that was made for the step.
#[derive(Clone, Debug)]
struct Called {
    name: String,
    arguments: BTreeMap<String, String>,
    outcome: ToolOutcome,
    state: Option<String>,
}

/// What became of the step.
#[derive(Default)]
struct Came {
    status: &'static str,
    /// The result is not whole.
    partial: bool,
    result: String,
    /// Why the rest of the plan may no longer fit.
    trouble: Option<String>,
    decisions: Vec<Decision>,
}

impl Execute {
    pub(super) fn new(
        mut request: AgentRequest,
        situation: Situation,
        limits: Limits,
        plan: Vec<PlanStep>,
        ready: Vec<usize>,
    ) -> Self {
        let held = request.control.held.take();
        let denied = approval::denied_since(&request, |step| step.plan.is_some());
        let faults = denied.iter().map(|step| step.observation.clone()).collect();
        let visible = tools::visible(&request, &situation.snapshot);
        let tools = visible.into_iter().cloned().collect();
        let mut step = Self {
            at: ready.first().copied().unwrap_or_default(),
            framing: request.framing.clone(),
            alone: None,
            request,
            situation,
            limits,
            plan,
            ready,
            tools,
            faults,
            thought: String::new(),
            calling: None,
            called: None,
            not_run: Vec::new(),
            held,
            model_ms: 0,
        };
        if step.held.is_some() {
            // What waited was ordered here, so no subagent works on it.
            step.engage();
        }
        step
    }

    /// Works a specialist's step in this session: with its prompt and its tools.
    fn engage(&mut self) {
        let (name, snapshot) = (self.step().specialist, &self.situation.snapshot);
        if name.is_empty() {
            return;
        }
        let mut engaged = self.request.clone();
        specialists::engage(&mut engaged, &name, snapshot);
        let visible = tools::visible(&engaged, snapshot);
        self.tools = visible.into_iter().cloned().collect();
        self.framing = engaged.framing;
    }

    pub(super) fn tools(&self) -> &[ToolItem] {
        &self.tools
    }

    pub(super) fn asker(&self) -> Asker<'_> {
        Asker {
            request: &self.request,
            held: self.held.as_ref(),
            now: self.situation.now,
            n: self.n(),
            tools: &self.tools,
            thought: &self.thought,
            not_run: &self.not_run,
            model_ms: self.model_ms,
        }
    }

    /// The call that was ordered, which is not to be made as it stands.
    pub(super) fn ordered(&self) -> Option<(ToolItem, BTreeMap<String, String>)> {
        self.calling.clone()
    }

    pub(super) fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::ModelReplied(reply) if self.called.is_some() => self.assessed(&reply),
            Input::ModelReplied(reply) => self.replied(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            Input::ToolReturned(outcome) => self.returned(outcome),
            Input::Begin => match self.held.clone() {
                Some(held) => {
                    self.not_run = held.not_run;
                    self.act(&held.tool, held.arguments)
                }
                None => self.begin(),
            },
            // It orders neither facts nor documents.
            Input::FactsFound(_) | Input::DocumentsRead(_) => self.begin(),
        }
    }

    fn step(&self) -> PlanStep {
        self.plan.get(self.at).cloned().unwrap_or_default()
    }

    fn begin(&mut self) -> Step {
        let of_specialists = |at: &&usize| {
            let step = self.plan.get(**at);
            step.is_some_and(|step| !step.specialist.is_empty())
        };
        let special: Vec<usize> = self.ready.iter().filter(of_specialists).copied().collect();
        let pattern = self.situation.snapshot.patterns.get(&self.request.pattern);
        let is_parallel = pattern.is_some_and(|pattern| pattern.parallel);
        let given = if special.is_empty() && is_parallel && self.ready.len() > 1 {
            self.ready.clone()
        } else {
            special
        };
        if !given.is_empty() {
            match self.give_away(given) {
                Ok(step) => return step,
                // One after the other, then.
                Err(reason) => {
                    let by = DecidedBy::OnlyOption;
                    self.alone = Some(fan_out::decided(fan_out::ALONE, &reason, "", by));
                    self.engage();
                }
            }
        }
        self.ask()
    }

    fn give_away(&self, mut given: Vec<usize>) -> Result<Step, String> {
        let left = self.limits.max_iterations - iterations(&self.request);
        given.truncate(self.limits.width().min(left) as usize);
        let goals: Vec<Goal> = given
            .iter()
            .filter_map(|at| self.plan.get(*at))
            .map(|step| self.goal(step))
            .collect();
        let places: Vec<String> = given.iter().map(usize::to_string).collect();
        let thought = match places.as_slice() {
            [only] => format!("Step {only} goes to a subagent."),
            places => format!(
                "Steps {} do not depend on each other: each goes to a subagent.",
                places.join(", ")
            ),
        };
        let mut kept = self.request.clone();
        remember(
            &mut kept,
            self.plan.clone(),
            AgentStep {
                thought: thought.clone(),
                action: FAN_OUT.into(),
                arguments: BTreeMap::from([("steps".to_owned(), places.join(","))]),
                step_type: "plan".into(),
                ..AgentStep::default()
            },
        );
        Round {
            request: &kept,
            situation: &self.situation,
            limits: &self.limits,
            thought,
            history: Vec::new(),
            after: None,
            compared: None,
            decisions: Vec::new(),
            used: Used::default(),
        }
        .fan_out(goals)
    }

    fn goal(&self, step: &PlanStep) -> Goal {
        let mut context = format!("The task as a whole: {}", self.request.question);
        if !step.tool_hint.is_empty() {
            context.push_str(&format!("\nA tool that may help: {}", step.tool_hint));
        }
        for result in dag::needed(&self.plan, step) {
            context.push_str(&format!(
                "\n\nPrior analysis, of \"{}\":\n{}",
                result["goal"].as_str().unwrap_or_default(),
                result["result"].as_str().unwrap_or_default(),
            ));
        }
        Goal {
            text: step.goal.clone(),
            pattern: Implemented::React.as_str().to_owned(),
            fixed: true,
            context,
            specialist: step.specialist.clone(),
            ..Goal::default()
        }
    }

    fn ask(&self) -> Step {
        let native = self.situation.native_tools;
        let shown: Vec<&ToolItem> = self.tools.iter().collect();
        let step = self.step();
        Step::AskModel(Box::new(ModelAsk {
            operation: Operation::PlanStep,
            variables: json!({
                "question": self.request.question,
                "framing": self.framing,
                "index": self.at,
                "goal": step.goal,
                "tool_hint": step.tool_hint,
                "previous_results": dag::needed(&self.plan, &step),
                "tools": tools::described(&shown),
                "native": native,
                "faults": self.faults,
            }),
            cut: None,
            transcript: Vec::new(),
            tools: if native {
                self.tools.clone()
            } else {
                Vec::new()
            },
            schema: None,
            stream: StreamAs::Thought,
        }))
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
            if self.situation.telling >= 3 {
                self.not_run = reply.not_called(Operation::PlanStep, self.situation.telling);
            }
            return self.act(name, arguments.clone());
        }
        match parsed.said {
            Format::Action { .. } if reply.cut && !parsed.is_whole => self.cut_off(),
            Format::Action { name, arguments } => {
                self.not_run = reply.not_called(Operation::PlanStep, self.situation.telling);
                self.act(&name, arguments)
            }
            Format::Final(text) => self.known(text, reply.cut),
            Format::Malformed { loose, .. } if self.situation.native_tools && !loose.is_empty() => {
                self.thought.clear();
                self.known(reply.text.trim().to_owned(), reply.cut)
            }
            Format::Malformed { loose, .. } if reply.cut => {
                if self.is_last_try() && !loose.is_empty() {
                    return self.known(loose, true);
                }
                self.cut_off()
            }
            Format::Malformed { reason, loose } => {
                if self.is_last_try() && !loose.is_empty() {
                    return self.known(loose, false);
                }
                self.fault(format!(
                    "the reply could not be read: {reason}. Reply with `Thought:`, then either \
                     `Action:` and `Args:`, or `Final Answer:`."
                ))
            }
        }
    }

    /// What becomes of a reply that was cut before its call or result was there.
    fn cut_off(&mut self) -> Step {
        self.fault(format!(
            "{CUT}, before its call or its result was complete, so nothing was called. Reply again, and \
             shorter."
        ))
    }

    fn is_last_try(&self) -> bool {
        self.faults.len() + 1 >= self.limits.max_retries as usize
    }

    fn fault(&mut self, text: String) -> Step {
        if self.is_last_try() {
            return self.finish(Came {
                status: FAILED,
                trouble: Some(format!("step {} failed: {text}", self.at)),
                result: text,
                ..Came::default()
            });
        }
        self.faults.push(text);
        self.ask()
    }

    /// The step needs no call. A result that was cut is one in part.
    fn known(&self, result: String, cut: bool) -> Step {
        let not_whole = || {
            format!(
                "step {} was a surprise: its result is not whole, {CUT}",
                self.at
            )
        };
        self.finish(Came {
            status: COMPLETE,
            partial: cut,
            trouble: cut.then(not_whole),
            result,
            decisions: Vec::new(),
        })
    }

    fn act(&mut self, name: &str, arguments: BTreeMap<String, String>) -> Step {
        if self.held.is_none() && self.was_denied(name, &arguments) {
            let reason = "a person denied the call it needs".to_owned();
            return self.finish(Came {
                status: FAILED,
                trouble: Some(format!("step {} failed: {reason}", self.at)),
                result: self.faults.last().cloned().unwrap_or(reason),
                ..Came::default()
            });
        }
        match tools::callable(&self.tools, name, &arguments) {
            Ok(tool) => {
                let tool = tool.clone();
                if let Some(step) = self.repeated(&tool, &arguments) {
                    return step;
                }
                self.calling = Some((tool.clone(), arguments.clone()));
                Step::CallTool(Box::new(ToolUse { tool, arguments }))
            }
            Err(mut text) => {
                say::name_not_run(&mut text, &self.not_run);
                self.fault(text)
            }
        }
    }

    /// What becomes of the step instead, where its plan made this call before: the step is told so
    /// once, and a third call is not made.
    fn repeated(&mut self, tool: &ToolItem, arguments: &BTreeMap<String, String>) -> Option<Step> {
        if self.held.is_some() {
            return None;
        }
        let snapshot = &self.situation.snapshot;
        let before = repeats::of_plan(&self.request, tool, arguments, snapshot);
        let newest = before.last()?;
        if before.len() > 1 {
            let reason = format!(
                "its call of `{}` was made {} times before, with the same arguments",
                tool.name,
                before.len()
            );
            return Some(self.finish(Came {
                status: FAILED,
                result: format!("Not called again: {reason}."),
                trouble: Some(format!("step {} goes in circles: {reason}", self.at)),
                ..Came::default()
            }));
        }
        let hint = repeats::hint_in_plan(newest);
        (!self.is_last_try() && !self.faults.contains(&hint)).then(|| self.fault(hint))
    }

    /// Whether a person denied just this call for this step.
    fn was_denied(&self, name: &str, arguments: &BTreeMap<String, String>) -> bool {
        let denied = approval::denied_since(&self.request, |step| step.plan.is_some());
        denied
            .iter()
            .any(|step| step.action == name && step.arguments == *arguments)
    }

    fn returned(&mut self, mut outcome: ToolOutcome) -> Step {
        let (name, arguments, state) = match (outcome.instead.take(), self.calling.take()) {
            (Some((name, arguments)), _) => {
                "An earlier attempt at this step made this call before it ended."
                    .clone_into(&mut self.thought);
                (name, arguments, None)
            }
            (None, Some((tool, arguments))) => (tool.name, arguments, tool.state),
            (None, None) => return self.ask(),
        };
        say::name_not_run(&mut outcome.content, &self.not_run);
        let step = self.step();
        let ask = Step::AskModel(Box::new(ModelAsk {
            operation: Operation::PlanAssess,
            variables: json!({
                "question": self.request.question,
                "framing": self.framing,
                "goal": step.goal,
                "action": name,
                "arguments": arguments,
                "observation": preview(
                    &outcome.content, self.limits.max_observation_bytes, &self.observation()),
                "is_error": outcome.is_error,
                "open_steps": self.open(),
            }),
            cut: None,
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: Some(assess_schema()),
            stream: StreamAs::Nothing,
        }));
        self.called = Some(Called {
            name,
            arguments,
            outcome,
            state,
        });
        ask
    }

    /// The goals that are still to be reached.
    fn open(&self) -> Vec<&str> {
        let others = self
            .plan
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != self.at);
        others
            .filter(|(_, step)| step.status == dag::PENDING)
            .map(|(_, step)| step.goal.as_str())
            .collect()
    }

    fn n(&self) -> u32 {
        iterations(&self.request) + 1
    }

    fn observation(&self) -> String {
        uris::document_of(&uris::observation(&self.request.session_id, self.n()))
    }

    pub(super) fn has_called(&self) -> bool {
        self.called.is_some()
    }

    /// Takes the call as it came, because no model can be asked about it any more.
    pub(super) fn unassessed(&mut self, why: &str) -> Step {
        self.assess("", why)
    }

    fn assessed(&mut self, reply: &Reply) -> Step {
        self.model_ms += reply.ms;
        let unnamed = if reply.cut {
            CUT
        } else {
            "the model named none of the options"
        };
        self.assess(&reply.text, unnamed)
    }

    /// `unnamed` is the signal where the reply names no option.
    fn assess(&self, reply: &str, unnamed: &str) -> Step {
        let (observation, is_error) = match &self.called {
            Some(called) => (called.outcome.content.clone(), called.outcome.is_error),
            None => (String::new(), true),
        };
        let object = json::extract(reply);
        let text = |name: &str| {
            let text = object.as_ref().and_then(|o| o.get(name));
            text.and_then(Value::as_str)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let named = text("status").to_lowercase();
        let chosen = COMES_TO.into_iter().find(|option| *option == named);
        let mut decision = Decision {
            subject: "plan-step".into(),
            options: COMES_TO.map(str::to_owned).to_vec(),
            narrowed_by: "what a call can come to for its step".into(),
            signal: text("reason"),
            chosen: String::new(),
            decided_by: DecidedBy::Model,
            rationale: String::new(),
        };
        let chosen = chosen.unwrap_or_else(|| {
            decision.decided_by = DecidedBy::Fallback;
            unnamed.clone_into(&mut decision.signal);
            if is_error { FAILED } else { COMPLETE }
        });
        if decision.signal.is_empty() {
            "not stated by the model".clone_into(&mut decision.signal);
        }
        chosen.clone_into(&mut decision.chosen);
        let result = match text("result") {
            result if result.is_empty() => observation,
            result => result,
        };
        let trouble = (chosen != COMPLETE).then(|| {
            let how = if chosen == FAILED {
                "failed"
            } else {
                "was a surprise"
            };
            format!("step {} {how}: {}", self.at, decision.signal)
        });
        self.finish(Came {
            status: if chosen == FAILED { FAILED } else { COMPLETE },
            result,
            trouble,
            decisions: vec![decision],
            ..Came::default()
        })
    }

    /// What is said of the call that was made for the step.
    fn said_of(&self, called: &Called) -> Vec<Said> {
        let mut said = Vec::new();
        if !self.thought.is_empty() {
            let uri = uris::document_of(&uris::thought(&self.request.session_id, self.n()));
            said.push(Said {
                streamed: true,
                ..say::message(MessageType::Thought, &*self.thought, uri)
            });
        }
        said.push(Said {
            message_type: MessageType::Action,
            text: say::action(&called.name, &called.arguments),
            streamed: true,
            document: None,
        });
        let content = &*called.outcome.content;
        said.push(say::message(
            MessageType::Observation,
            content,
            self.observation(),
        ));
        said
    }

    /// The same call, as the record tells it.
    fn iterated(&self, called: &Called) -> Iterated {
        let most = self.limits.max_observation_bytes;
        Iterated {
            n: self.n(),
            thought: self.thought.clone(),
            action: called.name.clone(),
            arguments: called.arguments.clone(),
            observation: preview(&called.outcome.content, most, &self.observation()),
            is_error: called.outcome.is_error,
            candidates: self.tools.iter().map(|t| t.name.clone()).collect(),
            sources: called.outcome.sources.clone(),
            model_ms: self.model_ms,
            tool_ms: called.outcome.ms,
            critique: None,
        }
    }

    fn finish(&self, came: Came) -> Step {
        let session = &self.request.session_id;
        let called = self.called.as_ref();
        let revision = revision(&self.request);
        let result_uri = uris::document_of(&uris::step_result(session, self.at as u32));
        let most = self.limits.max_observation_bytes;
        let mut plan = self.plan.clone();
        let step = self.step();
        if let Some(step) = plan.get_mut(self.at) {
            came.status.clone_into(&mut step.status);
            step.result = preview(&came.result, most, &result_uri);
            step.partial = came.partial;
        }
        let mut next = self.request.clone();
        if let Some(state) = called.and_then(|called| called.state.clone()) {
            next.state = state;
        }
        let replan = go_on(
            &mut next,
            self.situation.telling,
            &self.limits,
            &plan,
            came.trouble,
        );
        remember(
            &mut next,
            plan,
            AgentStep {
                thought: format!("Executing plan step {}: {}", self.at, step.goal),
                action: called.map(|c| c.name.clone()).unwrap_or_default(),
                arguments: called.map(|c| c.arguments.clone()).unwrap_or_default(),
                observation: brief(&came.result),
                step_type: "execute".into(),
                ..AgentStep::default()
            },
        );
        let alone = self.alone.iter();
        let mut said: Vec<Said> = alone
            .map(|alone| say::status(format!("No fan-out: {}", alone.signal)))
            .collect();
        said.extend(called.into_iter().flat_map(|called| self.said_of(called)));
        said.push(say::message(MessageType::Thought, came.result, result_uri));
        said.push(say::status(format!(
            "Step {}: {} ({})",
            self.at, step.goal, came.status
        )));
        Step::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::Executed(Executed {
                revision,
                steps: vec![StepResult {
                    index: self.at as u32,
                    goal: step.goal,
                    status: came.status.to_owned(),
                    depends_on: step.depends_on,
                    ..StepResult::default()
                }],
                call: called.map(|called| self.iterated(called)),
                after: None,
                model_ms: self.model_ms,
            }),
            routed: None,
            decisions: (self.alone.iter().cloned())
                .chain(came.decisions)
                .chain(replan)
                .collect(),
            said,
        }))
    }
}

fn assess_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["status", "reason", "result"],
        "properties": {
            "status": {"type": "string", "enum": COMES_TO},
            "reason": {"type": "string", "description": "the one thing that decided"},
            "result": {"type": "string", "description": "what the step found out, with its sources"},
        },
    })
}
