//! One step of a plan: one call and what it came to, or a result that needs no call. Ready steps that
//! do not depend on each other may go to subagents instead, and those of a specialist always do.

mod held;
mod outcome;

use super::dag::{self, COMPLETE, FAILED};
use super::fan_out::{self, Goal, Round};
use super::plan::{self, remember};
use super::repeats;
use super::{Instead, PatternTurn, REACT, delegate, iterations};
use crate::approval::{self, Asker};
use crate::conductor;
use crate::cut::CUT;
use crate::history;
use crate::limits::Limits;
use crate::order::{Input, ModelAsk, Order, Reply, StreamAs, ToolOutcome, ToolUse, Used};
use crate::pipeline;
use crate::react_format::{Said as Format, parse};
use crate::say;
use crate::specialists;
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{DecidedBy, Decision, FanInSummary};
use agentfleet_schema::{AgentRequest, AgentStep, HeldCall, Operation, PlanStep, StepKind};
use serde_json::json;
use std::collections::BTreeMap;

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
pub(super) struct Execute {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    plan: Vec<PlanStep>,
    ready: Vec<usize>,
    at: usize,
    tools: Vec<ToolItem>,
    framing: String,
    /// The request as the step's specialist has it, where no subagent works it.
    engaged: Option<Box<AgentRequest>>,
    /// Why no subagent works on it, where one was meant to.
    alone: Option<Decision>,
    /// What was wrong with the model's replies so far.
    faults: Vec<String>,
    thought: String,
    calling: Option<(ToolItem, BTreeMap<String, String>)>,
    /// What the stages before a call changed or stopped.
    decided: Vec<Decision>,
    called: Option<Called>,
    not_run: Vec<String>,
    /// The call that a person was asked about, or an agent works on: it comes first.
    held: Option<HeldCall>,
    /// What that agent brought.
    after: Option<FanInSummary>,
    model_ms: u64,
}

/// A call that was made for the step.
#[derive(Clone, Debug)]
struct Called {
    name: String,
    arguments: BTreeMap<String, String>,
    outcome: ToolOutcome,
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

impl PatternTurn for Execute {
    fn asker(&self) -> Option<Asker<'_>> {
        Some(Asker {
            request: &self.request,
            held: self.held.as_ref(),
            situation: &self.situation,
            limits: &self.limits,
            n: self.n(),
            tools: &self.tools,
            calling: self.calling.as_ref(),
            thought: &self.thought,
            not_run: &self.not_run,
            model_ms: self.model_ms,
        })
    }

    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::ModelReplied(reply) if self.called.is_some() => self.assessed(&reply),
            Input::ModelReplied(reply) => self.replied(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            Input::ToolReturned(outcome) => self.returned(outcome),
            Input::Begin => match (
                delegate::answered(&self.request, &self.situation),
                self.held.clone(),
            ) {
                (Some(verdict), _) => delegate::read(verdict),
                (None, Some(held)) => self.make(held),
                (None, None) => self.begin(),
            },
            Input::DocumentsRead(texts) => self.answered(&texts),
        }
    }

    fn decided(&mut self) -> Vec<Decision> {
        std::mem::take(&mut self.decided)
    }

    /// A call that was made counts unassessed; else it is the end of the session.
    fn broke(&mut self, why: &str) -> Order {
        if self.called.is_some() {
            return self.assess("", why);
        }
        plan::broke(&self.request, &self.limits, &self.plan, why)
    }

    fn spare(&mut self, why: &str) -> Instead {
        if self.called.is_some() {
            return Instead::Order(self.assess("", why));
        }
        let Self {
            request,
            limits,
            plan,
            model_ms,
            ..
        } = self;
        plan::spare(request, limits, plan, *model_ms, why)
    }
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
            engaged: None,
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
            decided: Vec::new(),
            called: None,
            not_run: Vec::new(),
            held,
            after: None,
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
        self.framing.clone_from(&engaged.framing);
        self.engaged = Some(Box::new(engaged));
    }

    fn step(&self) -> PlanStep {
        self.plan.get(self.at).cloned().unwrap_or_default()
    }

    fn begin(&mut self) -> Order {
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

    fn give_away(&self, mut given: Vec<usize>) -> Result<Order, String> {
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
                step_type: StepKind::Plan.into(),
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
            pattern: REACT.to_owned(),
            fixed: true,
            context,
            specialist: step.specialist.clone(),
            ..Goal::default()
        }
    }

    fn ask(&self) -> Order {
        let native = self.situation.native_tools;
        let shown: Vec<&ToolItem> = self.tools.iter().collect();
        let step = self.step();
        let mut variables = json!({
            "question": self.request.question,
            "framing": self.framing,
            "index": self.at,
            "goal": step.goal,
            "tool_hint": step.tool_hint,
            "previous_results": dag::needed(&self.plan, &step),
            "tools": tools::described(&shown),
            "native": native,
            "faults": self.faults,
        });
        if let Some(engaged) = &self.engaged {
            variables["policy"] = conductor::shown(engaged, &self.situation.snapshot);
        }
        let mut ask = ModelAsk::answer(Operation::PlanStep, variables);
        ask.is_agent = true;
        ask.may_answer = false;
        ask.stream = StreamAs::Thought;
        if native {
            ask.tools.clone_from(&self.tools);
        }
        ask.into()
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
            return self.act(name, arguments.clone());
        }
        match parsed.said {
            Format::Action { .. } if reply.cut && !parsed.is_whole => self.cut_off(),
            Format::Action { name, arguments } => {
                self.not_run = parsed.others;
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
    fn cut_off(&mut self) -> Order {
        self.fault(format!(
            "{CUT}, before its call or its result was complete, so nothing was called. Reply again, and \
             shorter."
        ))
    }

    fn is_last_try(&self) -> bool {
        self.faults.len() + 1 >= self.limits.max_retries as usize
    }

    fn fault(&mut self, text: String) -> Order {
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
    fn known(&self, result: String, cut: bool) -> Order {
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

    fn act(&mut self, name: &str, arguments: BTreeMap<String, String>) -> Order {
        let prepared = pipeline::prepare(
            &self.request,
            &self.situation.snapshot,
            &self.tools,
            name,
            &arguments,
            &mut self.decided,
        );
        let (tool, arguments) = match prepared {
            Ok(prepared) => prepared,
            Err(mut stopped) => {
                say::name_not_run(&mut stopped.text, &self.not_run);
                return self.fault(stopped.text);
            }
        };
        if self.held.is_none() && self.was_denied(&tool.name, &arguments) {
            let reason = "a person denied the call it needs".to_owned();
            return self.finish(Came {
                status: FAILED,
                trouble: Some(format!("step {} failed: {reason}", self.at)),
                result: self.faults.last().cloned().unwrap_or(reason),
                ..Came::default()
            });
        }
        if let Some(step) = self.repeated(&tool, &arguments) {
            return step;
        }
        self.calling = Some((tool.clone(), arguments.clone()));
        Order::CallTool(Box::new(ToolUse { tool, arguments }))
    }

    /// What becomes of the step instead, where its plan made this call before: the step is told so
    /// once, and a third call is not made.
    fn repeated(&mut self, tool: &ToolItem, arguments: &BTreeMap<String, String>) -> Option<Order> {
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
}
