//! Plan-then-execute: a plan as a graph of steps, one step of it at a time, and an answer from the
//! results.
//!
//! The plan travels in the history, so a turn finds there what is to be done next: a plan is made;
//! a ready step is executed, or ready steps go to subagents; what they bring is taken in; the rest is
//! revised after a step that failed or surprised; and when nothing is ready any more, the answer is
//! written from what there is.

mod conclude;
mod make;

use super::dag::{self, COMPLETE, FAILED, PENDING};
use super::fan_out::{failure, summary};
use super::plan_step::{self, Execute};
use super::{Begun, Instead, Pattern, PatternTurn, REACT, iterations};
use crate::history::preview;
use crate::limits::Limits;
use crate::order::{Finish, Input, Order};
use crate::say;
use crate::turn::Situation;
use agentfleet_schema::records::{
    Activity, Decision, Executed, FanInRecord, Planned, StepResult, Termination,
};
use agentfleet_schema::{
    AgentRequest, AgentStep, MessageType, Operation, PatternState, PlanState, PlanStep, StepKind,
    uris,
};
use conclude::Conclude;
use make::Make;
use std::collections::BTreeMap;

pub(super) const PLAN_THEN_EXECUTE: &str = "plan-then-execute";

pub(crate) struct PlanThenExecute;

impl Pattern for PlanThenExecute {
    fn name(&self) -> &'static str {
        PLAN_THEN_EXECUTE
    }

    fn begin(&self, request: AgentRequest, situation: Situation, limits: Limits) -> Begun {
        let verdict = situation.verdict(&request)?;
        let Some(plan) = dag::current(&request).cloned() else {
            return Ok(Box::new(Make::new(request, situation, limits, Vec::new())));
        };
        // One that waits for an agent goes on with the call that asked it.
        if let Some(verdict) = verdict
            && request.control.held.is_none()
        {
            return Ok(Box::new(TakeIn {
                request,
                limits,
                plan,
                verdict,
            }));
        }
        if request.step == 0 && request.control.forked_from.is_some() {
            return Ok(Box::new(Carry { request, plan }));
        }
        Ok(next(request, situation, limits, plan))
    }

    fn has_plan(&self) -> bool {
        true
    }

    fn shows_history_in(&self) -> &'static [Operation] {
        &[
            Operation::PlanStep,
            Operation::PlanRevise,
            Operation::PlanSynthesise,
        ]
    }
}

/// What is to be done next by a plan.
fn next(
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    plan: Vec<PlanStep>,
) -> Box<dyn PatternTurn> {
    let ready = dag::ready(&plan);
    let is_held = request.control.held.is_some();
    let state = request.control.state.plan();
    let spent = request.control.spent;
    let without_tools = limits.budget.is_without_tools(spent);
    if let Some(why) = limits.budget.refuses_tool(spent)
        && without_tools
        && !ready.is_empty()
        && !is_held
        && !has_result(&plan)
    {
        return Box::new(Without { request, why });
    }
    let cut = if without_tools && !ready.is_empty() {
        Some(Termination::BudgetExhausted)
    } else if iterations(&request) >= limits.max_iterations && !ready.is_empty() {
        Some(Termination::MaxIterations)
    } else if !state.replan.is_empty() && state.replans > limits.max_replan_depth {
        Some(Termination::MaxReplans)
    } else {
        None
    };
    // What a person decided on was decided when there was still room for it.
    if is_held && !ready.is_empty() {
        Box::new(Execute::new(request, situation, limits, plan, ready))
    } else if cut.is_some() {
        Box::new(Conclude::new(request, &limits, plan, cut))
    } else if !state.replan.is_empty() {
        Box::new(Make::new(request, situation, limits, plan))
    } else if ready.is_empty() {
        Box::new(Conclude::new(request, &limits, plan, None))
    } else {
        Box::new(Execute::new(request, situation, limits, plan, ready))
    }
}

/// Ends a session whose budget is used up, with the results of its plan as they are.
pub(super) fn broke(
    request: &AgentRequest,
    limits: &Limits,
    plan: &[PlanStep],
    why: &str,
) -> Order {
    let cut = Some(Termination::BudgetExhausted);
    Conclude::new(request.clone(), limits, plan.to_vec(), cut).broke(why)
}

/// Answers from the results of a plan, because what is left of the budget is for that. Where there are
/// none, it is answered without a plan.
pub(super) fn spare(
    request: &AgentRequest,
    limits: &Limits,
    plan: &[PlanStep],
    model_ms: u64,
    why: &str,
) -> Instead {
    let request = request.clone();
    if !has_result(plan) {
        let why = why.to_owned();
        return Instead::Turn(Box::new(Without { request, why }));
    }
    let cut = Some(Termination::BudgetExhausted);
    let mut answer = Conclude::new(request, limits, plan.to_vec(), cut);
    answer.model_ms = model_ms;
    Instead::Turn(Box::new(answer))
}

fn has_result(plan: &[PlanStep]) -> bool {
    plan.iter().any(|step| step.status == COMPLETE)
}

/// Takes over the plan of the run that this one was forked from, with what its steps came to.
#[derive(Debug)]
struct Carry {
    request: AgentRequest,
    plan: Vec<PlanStep>,
}

impl PatternTurn for Carry {
    fn resume(&mut self, _: Input) -> Order {
        let done = self.plan.iter().filter(|step| step.status == COMPLETE);
        let done = done.count();
        let thought = format!(
            "Goes on by the plan it was forked with: {done} of {} steps are complete.",
            self.plan.len()
        );
        let text = format!("{thought}\n\n{}", listed(&self.plan, 0));
        let planned = Planned {
            thought: thought.clone(),
            steps: self.plan.clone(),
            ..Planned::default()
        };
        goes_on_by(self.request.clone(), planned, &text, thought)
    }

    /// It orders no call.
    fn broke(&mut self, _: &str) -> Order {
        self.resume(Input::Begin)
    }
}

/// Ends the step with a plan that the session goes on by: told as `text`, and in short as `did`.
fn goes_on_by(next: AgentRequest, planned: Planned, text: &str, did: String) -> Order {
    let uri = uris::document_of(&uris::plan(&next.session_id, planned.revision));
    Finish::goes_on(
        next,
        Activity::Planned(planned),
        Vec::new(),
        vec![
            say::message(MessageType::Thought, text.trim_end(), uri),
            say::status(did),
        ],
    )
}

/// Goes on by ReACT, because there is no room for a plan.
#[derive(Debug)]
struct Without {
    request: AgentRequest,
    why: String,
}

impl PatternTurn for Without {
    fn resume(&mut self, _: Input) -> Order {
        let mut next = self.request.clone();
        REACT.clone_into(&mut next.pattern);
        next.control.state = PatternState::None;
        Finish::goes_on(
            next,
            Activity::None,
            vec![say::only(
                "plan",
                REACT,
                "what is left of the budget",
                self.why.clone(),
            )],
            vec![say::status(format!("Goes on without a plan: {}", self.why))],
        )
    }

    /// It orders no call.
    fn broke(&mut self, _: &str) -> Order {
        self.resume(Input::Begin)
    }
}

/// Steps of a plan from `first` on, a line each.
fn listed(plan: &[PlanStep], first: usize) -> String {
    let mut text = String::new();
    for (step, at) in plan.iter().zip(0..).skip(first) {
        text.push_str(&format!("{at}. {}", step.goal));
        if !step.depends_on.is_empty() {
            let needed: Vec<_> = step.depends_on.iter().map(u32::to_string).collect();
            text.push_str(&format!(" (after {})", needed.join(", ")));
        }
        if step.status != PENDING {
            text.push_str(&format!(": {}", step.status));
        }
        text.push('\n');
    }
    text
}

/// What a session goes on with after steps of its plan came to an end: the next steps, or, where one
/// failed or surprised, other ones. Where the plan was revised as often as it may be, that is the end.
pub(super) fn go_on(
    request: &mut AgentRequest,
    limits: &Limits,
    plan: &[PlanStep],
    trouble: Option<String>,
) -> Option<Decision> {
    let trouble = trouble?;
    let open = plan.iter().any(|step| step.status == PENDING);
    let failed = plan.iter().any(|step| step.status == FAILED);
    if !open && !failed {
        return None;
    }
    let (done, most) = (
        request.control.state.plan().replans,
        limits.max_replan_depth,
    );
    let chosen = if done < most { "revise" } else { "end" };
    request.control.state = PatternState::Plan(PlanState {
        replans: done + 1,
        replan: trouble.clone(),
    });
    Some(say::only(
        "replan",
        chosen,
        format!("{done} of at most {most} revisions of the plan are made"),
        trouble,
    ))
}

/// Takes the reason for a revision that is over.
fn revised(request: &mut AgentRequest) -> String {
    let PlanState { replans, replan } = request.control.state.plan();
    request.control.state = PatternState::Plan(PlanState {
        replans,
        ..PlanState::default()
    });
    replan
}

/// Adds a step to the history that carries the plan. Only the newest one does: the rest of the
/// history stays small.
pub(super) fn remember(request: &mut AgentRequest, plan: Vec<PlanStep>, step: AgentStep) {
    for before in &mut request.history {
        before.plan = None;
    }
    request.history.push(AgentStep {
        user: request.user.clone(),
        plan: Some(plan),
        ..step
    });
}

/// Takes in what subagents brought for steps of the plan.
#[derive(Debug)]
struct TakeIn {
    request: AgentRequest,
    limits: Limits,
    plan: Vec<PlanStep>,
    verdict: FanInRecord,
}

impl PatternTurn for TakeIn {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::DocumentsRead(texts) => self.read(&texts),
            // It orders nothing but documents.
            Input::Begin
            | Input::ModelReplied(_)
            | Input::ModelFailed(_)
            | Input::ToolReturned(_) => {
                let members = self.verdict.members.iter();
                Order::ReadDocuments(members.map(|m| m.document.clone()).collect())
            }
        }
    }

    /// It orders no call.
    fn broke(&mut self, why: &str) -> Order {
        broke(&self.request, &self.limits, &self.plan, why)
    }
}

impl TakeIn {
    fn read(&self, texts: &[Option<String>]) -> Order {
        let mut plan = self.plan.clone();
        let mut next = self.request.clone();
        next.control.fan_in_step = None;
        let mut results = Vec::new();
        let mut done = Vec::new();
        let mut trouble = None;
        let given = plan_step::given_away(&self.request);
        for (index, at) in (0_u32..).zip(given) {
            let Some(step) = plan.get_mut(at) else {
                continue;
            };
            let members = self.verdict.members.iter().zip(texts);
            let member = members.into_iter().find(|(m, _)| m.index == index);
            let text = member.and_then(|(_, text)| text.as_deref());
            let failed = failure(&self.verdict, index, text);
            let status = if failed.is_some() { FAILED } else { COMPLETE };
            status.clone_into(&mut step.status);
            step.partial = failed.is_none() && member.is_some_and(|(m, _)| m.partial);
            let result = failed
                .clone()
                .or(text.map(str::to_owned))
                .unwrap_or_default();
            let session = member.map(|(m, _)| m.session.clone()).unwrap_or_default();
            let document = uris::answer_document(&session);
            step.result = preview(&result, self.limits.max_observation_bytes, &document);
            if let Some(reason) = failed {
                trouble = Some(format!("step {at} failed: {reason}"));
            } else if member.is_some_and(|(m, _)| m.partial) {
                trouble = Some(format!("step {at} was a surprise: its result is not whole"));
            }
            done.push(AgentStep {
                thought: format!("Executing plan step {at}: {}", step.goal),
                action: "subagent".into(),
                arguments: BTreeMap::from([("session".to_owned(), session.to_string())]),
                observation: plan_step::brief(&result),
                step_type: StepKind::Execute.into(),
                ..AgentStep::default()
            });
            results.push(StepResult {
                index: at as u32,
                goal: step.goal.clone(),
                status: step.status.clone(),
                depends_on: step.depends_on.clone(),
                session,
            });
        }
        let decision = go_on(&mut next, &self.limits, &plan, trouble);
        for step in done {
            remember(&mut next, plan.clone(), step);
        }
        let came_to = |result: &StepResult| {
            let StepResult {
                index,
                goal,
                status,
                ..
            } = result;
            say::status(format!("Step {index}: {goal} ({status})"))
        };
        let said = results.iter().map(came_to).collect();
        Finish::goes_on(
            next,
            Activity::Executed(Executed {
                revision: plan_step::revision(&self.request),
                steps: results,
                call: None,
                after: Some(summary(&self.verdict)),
                model_ms: 0,
            }),
            decision.into_iter().collect(),
            said,
        )
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
