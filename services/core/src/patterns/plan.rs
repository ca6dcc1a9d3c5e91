//! Plan-then-execute: a plan as a graph of steps, one step of it at a time, and an answer from the
//! results.
//!
//! The plan travels in the history, so a turn finds there what is to be done next: a plan is made;
//! a ready step is executed, or ready steps go to subagents; what they bring is taken in; the rest is
//! revised after a step that failed or surprised; and when nothing is ready any more, the answer is
//! written from what there is.

use super::Implemented;
use super::answer::{answered, name_cut, name_missing};
use super::dag::{self, COMPLETE, FAILED, PENDING, REVISED};
use super::fan_out::{ENDED_EARLY, failure, summary};
use super::plan_step::{self, Execute};
use super::react::{iterations, preview};
use crate::approval::Asker;
use crate::error::{Code, body};
use crate::limits::Limits;
use crate::say;
use crate::step::{Finish, Input, ModelAsk, Outcome, Reply, Step, StreamAs};
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::ToolItem;
use agentfleet_schema::records::{
    Activity, Concluded, DecidedBy, Decision, Executed, FanInRecord, Planned, StepResult,
    Termination,
};
use agentfleet_schema::{AgentRequest, AgentStep, MessageType, Operation, PlanStep, uris};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Steps that one plan may have. It travels with the request; how many are carried out is bounded by the
/// iterations, and those that are not are named in the answer.
const MAX_STEPS: usize = 100;

/// One step of a session that works by a plan.
#[derive(Debug)]
pub enum Plan {
    Make(Make),
    Execute(Box<Execute>),
    TakeIn(TakeIn),
    Conclude(Conclude),
    /// A plan that came with a fork.
    Carry(Carry),
    /// There is no room for a plan.
    Without(Without),
}

impl Plan {
    pub(crate) fn new(
        request: AgentRequest,
        situation: Situation,
        limits: Limits,
        verdict: Option<FanInRecord>,
    ) -> Self {
        let Some(plan) = dag::current(&request).cloned() else {
            return Self::Make(Make::new(request, situation, limits, Vec::new()));
        };
        if let Some(verdict) = verdict {
            return Self::TakeIn(TakeIn {
                telling: situation.telling,
                request,
                limits,
                plan,
                verdict,
            });
        }
        if request.step == 0 && request.control.forked_from.is_some() {
            return Self::Carry(Carry { request, plan });
        }
        let ready = dag::ready(&plan);
        let spent = request.control.spent;
        let without_tools = limits.budget.is_without_tools(spent);
        if let Some(why) = limits.budget.refuses_tool(spent)
            && without_tools
            && !ready.is_empty()
            && request.control.held.is_none()
            && !has_result(&plan)
        {
            return Self::Without(Without { request, why });
        }
        let cut = if without_tools && !ready.is_empty() {
            Some(Termination::BudgetExhausted)
        } else if iterations(&request) >= limits.max_iterations && !ready.is_empty() {
            Some(Termination::MaxIterations)
        } else if !request.control.replan.is_empty()
            && request.control.replans > limits.max_replan_depth
        {
            Some(Termination::MaxReplans)
        } else {
            None
        };
        match ready.first() {
            // A person decided on it when there was still room for it.
            Some(_) if request.control.held.is_some() => {
                let turn = Execute::new(request, situation, limits, plan, ready);
                Self::Execute(Box::new(turn))
            }
            _ if cut.is_some() => Self::Conclude(Conclude::new(request, &limits, plan, cut)),
            _ if !request.control.replan.is_empty() => {
                Self::Make(Make::new(request, situation, limits, plan))
            }
            None => Self::Conclude(Conclude::new(request, &limits, plan, None)),
            Some(_) => {
                let turn = Execute::new(request, situation, limits, plan, ready);
                Self::Execute(Box::new(turn))
            }
        }
    }

    pub(crate) fn asker(&self) -> Option<Asker<'_>> {
        match self {
            Self::Execute(turn) => Some(turn.asker()),
            Self::Make(_)
            | Self::TakeIn(_)
            | Self::Conclude(_)
            | Self::Carry(_)
            | Self::Without(_) => None,
        }
    }

    pub(crate) fn ordered(&self) -> Option<(ToolItem, BTreeMap<String, String>)> {
        match self {
            Self::Execute(turn) => turn.ordered(),
            Self::Make(_)
            | Self::TakeIn(_)
            | Self::Conclude(_)
            | Self::Carry(_)
            | Self::Without(_) => None,
        }
    }

    pub(crate) fn tools(&self) -> &[ToolItem] {
        match self {
            Self::Execute(turn) => turn.tools(),
            Self::Make(_)
            | Self::TakeIn(_)
            | Self::Conclude(_)
            | Self::Carry(_)
            | Self::Without(_) => &[],
        }
    }

    /// Ends the step where nothing is left to pay its next call with. A call that was made counts
    /// unassessed; else it is the end of the session.
    pub(crate) fn broke(&mut self, why: &str) -> Step {
        let (request, limits, plan) = match self {
            Self::Execute(turn) if turn.has_called() => return turn.unassessed(why),
            Self::Execute(turn) => (&turn.request, &turn.limits, &turn.plan),
            Self::Make(turn) => (&turn.request, &turn.limits, &turn.plan),
            // It asks for no call that costs.
            Self::TakeIn(turn) => (&turn.request, &turn.limits, &turn.plan),
            Self::Conclude(turn) => return turn.broke(why),
            // Neither asks for any call.
            Self::Carry(turn) => return turn.resume(),
            Self::Without(turn) => return turn.resume(),
        };
        let cut = Some(Termination::BudgetExhausted);
        Conclude::new(request.clone(), limits, plan.clone(), cut).broke(why)
    }

    /// Goes on without the model call that was ordered last, because what is left is for the answer.
    /// Where the plan has no result to answer from, it is answered without one.
    pub(crate) fn spare(&mut self, why: &str) -> Option<Step> {
        let (request, limits, plan, model_ms) = match self {
            Self::Execute(turn) if turn.has_called() => return Some(turn.unassessed(why)),
            Self::Execute(turn) => (&turn.request, &turn.limits, &turn.plan, turn.model_ms),
            Self::Make(turn) => (&turn.request, &turn.limits, &turn.plan, turn.model_ms),
            Self::TakeIn(_) | Self::Conclude(_) | Self::Carry(_) | Self::Without(_) => return None,
        };
        if !has_result(plan) {
            let (request, why) = (request.clone(), why.to_owned());
            return Some(Without { request, why }.resume());
        }
        let cut = Some(Termination::BudgetExhausted);
        let mut answer = Conclude::new(request.clone(), limits, plan.clone(), cut);
        answer.model_ms = model_ms;
        *self = Self::Conclude(answer);
        Some(self.resume(Input::Begin))
    }

    pub(crate) fn resume(&mut self, input: Input) -> Step {
        match self {
            Self::Make(turn) => turn.resume(input),
            Self::Execute(turn) => turn.resume(input),
            Self::TakeIn(turn) => turn.resume(input),
            Self::Conclude(turn) => turn.resume(input),
            Self::Carry(turn) => turn.resume(),
            Self::Without(turn) => turn.resume(),
        }
    }
}

fn has_result(plan: &[PlanStep]) -> bool {
    plan.iter().any(|step| step.status == COMPLETE)
}

/// Takes over the plan of the run that this one was forked from, with what its steps came to.
#[derive(Debug)]
pub struct Carry {
    request: AgentRequest,
    plan: Vec<PlanStep>,
}

impl Carry {
    fn resume(&self) -> Step {
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
}

/// Ends the step with a plan that the session goes on by: told as `text`, and in short as `did`.
fn goes_on_by(next: AgentRequest, planned: Planned, text: &str, did: String) -> Step {
    let uri = uris::document_of(&uris::plan(&next.session_id, planned.revision));
    Step::Finish(Box::new(Finish {
        outcome: Outcome::Continue(Box::new(next)),
        activity: Activity::Planned(planned),
        routed: None,
        decisions: Vec::new(),
        said: vec![
            say::message(MessageType::Thought, text.trim_end(), uri),
            say::status(did),
        ],
    }))
}

/// Goes on by ReACT, because there is no room for a plan.
#[derive(Debug)]
pub struct Without {
    request: AgentRequest,
    why: String,
}

impl Without {
    fn resume(&self) -> Step {
        let mut next = self.request.clone();
        let react = Implemented::React.as_str();
        react.clone_into(&mut next.pattern);
        next.control.replan.clear();
        Step::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::None,
            routed: None,
            decisions: vec![Decision {
                subject: "plan".into(),
                options: vec![react.to_owned()],
                narrowed_by: "what is left of the budget".into(),
                signal: self.why.clone(),
                chosen: react.to_owned(),
                decided_by: DecidedBy::OnlyOption,
                rationale: String::new(),
            }],
            said: vec![say::status(format!("Goes on without a plan: {}", self.why))],
        }))
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
    telling: u32,
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
    let (done, most) = (request.control.replans, limits.max_replan_depth);
    let chosen = match telling {
        _ if done < most => "revise",
        0 | 1 => "go-on",
        _ => "end",
    };
    if chosen != "go-on" {
        request.control.replans += 1;
        request.control.replan.clone_from(&trouble);
    }
    Some(Decision {
        subject: "replan".into(),
        options: vec![chosen.into()],
        narrowed_by: format!("{done} of at most {most} revisions of the plan are made"),
        signal: trouble,
        chosen: chosen.into(),
        decided_by: DecidedBy::OnlyOption,
        rationale: String::new(),
    })
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

/// Makes the plan, or revises what is left of it.
#[derive(Debug)]
pub struct Make {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    /// The plan so far; empty for a first one.
    plan: Vec<PlanStep>,
    /// What was wrong with the model's first reply.
    fault: String,
    model_ms: u64,
}

impl Make {
    fn new(
        request: AgentRequest,
        situation: Situation,
        limits: Limits,
        plan: Vec<PlanStep>,
    ) -> Self {
        Self {
            request,
            situation,
            limits,
            plan,
            fault: String::new(),
            model_ms: 0,
        }
    }

    fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::ModelReplied(reply) => self.proposed(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            // Planning orders nothing else.
            Input::Begin
            | Input::ToolReturned(_)
            | Input::FactsFound(_)
            | Input::DocumentsRead(_) => self.ask(),
        }
    }

    fn is_revision(&self) -> bool {
        !self.plan.is_empty()
    }

    /// Steps that the session may still execute.
    fn room(&self) -> u32 {
        let done = iterations(&self.request);
        self.limits.max_iterations.saturating_sub(done).max(1)
    }

    fn ask(&self) -> Step {
        let visible = tools::visible(&self.request, &self.situation.snapshot);
        let mut variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "parent_context": self.request.control.context,
            "tools": tools::described(&visible),
            "max_steps": self.room(),
            "fault": self.fault,
        });
        let mut operation = Operation::PlanCreate;
        if self.is_revision() {
            operation = Operation::PlanRevise;
            let steps: Vec<_> = self
                .plan
                .iter()
                .enumerate()
                .map(|(index, step)| {
                    json!({"index": index, "goal": step.goal, "status": step.status,
                           "depends_on": step.depends_on, "result": step.result})
                })
                .collect();
            variables["steps"] = steps.into();
            variables["next_index"] = self.plan.len().into();
            variables["reason"] = self.request.control.replan.clone().into();
        }
        Step::AskModel(Box::new(ModelAsk {
            operation,
            variables,
            cut: None,
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: Some(dag::schema()),
            stream: StreamAs::Nothing,
        }))
    }

    fn proposed(&mut self, reply: &Reply) -> Step {
        self.model_ms += reply.ms;
        // What is replaced is no longer there to be built on.
        let mut before = self.plan.clone();
        for step in before.iter_mut().filter(|step| step.status == PENDING) {
            REVISED.clone_into(&mut step.status);
        }
        let read = dag::read(&reply.text).and_then(|(thought, steps)| {
            if steps.len() > MAX_STEPS {
                return Err(format!(
                    "the plan has {} steps, and at most {MAX_STEPS} are allowed",
                    steps.len()
                ));
            }
            match dag::fault(&before, &steps) {
                Some(fault) => Err(fault),
                None if steps.is_empty() && !self.is_revision() => {
                    Err("the plan has no steps".to_owned())
                }
                None => Ok((thought, steps)),
            }
        });
        match read {
            Ok((_, steps)) if steps.is_empty() => self.kept("nothing is to be done instead"),
            Ok((thought, steps)) => self.planned(thought, before, steps),
            Err(fault) if self.fault.is_empty() => {
                self.fault = fault;
                self.ask()
            }
            Err(fault) if self.is_revision() => self.kept(&fault),
            Err(fault) => Step::Finish(Box::new(say::failed(
                body(
                    Code::InvalidPlan,
                    format!("the model twice made a plan that cannot be carried out: {fault}"),
                    "ask with pattern `react`, or say in the question which steps there are",
                ),
                Termination::Error,
                self.model_ms,
            ))),
        }
    }

    fn planned(&self, thought: String, before: Vec<PlanStep>, steps: Vec<PlanStep>) -> Step {
        let first = before.len();
        let mut plan = before;
        plan.extend(steps);
        let mut text = if thought.is_empty() {
            String::new()
        } else {
            format!("{thought}\n\n")
        };
        text.push_str(&listed(&plan, first));
        // One that was decided on may have been dropped: what counts are the plans there are.
        let revision = if self.is_revision() {
            plan_step::revision(&self.request) + 1
        } else {
            0
        };
        let did = if self.is_revision() {
            format!("Revised the plan: {} new steps", plan.len() - first)
        } else {
            format!("Created plan with {} steps", plan.len())
        };
        let mut next = self.request.clone();
        let reason = std::mem::take(&mut next.control.replan);
        remember(
            &mut next,
            plan.clone(),
            AgentStep {
                thought: if thought.is_empty() {
                    did.clone()
                } else {
                    thought.clone()
                },
                action: "plan".into(),
                observation: text.trim_end().to_owned(),
                step_type: "plan".into(),
                ..AgentStep::default()
            },
        );
        let planned = Planned {
            revision,
            thought,
            reason,
            steps: plan,
            first: first as u32,
            model_ms: self.model_ms,
        };
        goes_on_by(next, planned, &text, did)
    }

    /// Goes on with the plan as it is.
    fn kept(&self, why: &str) -> Step {
        let mut next = self.request.clone();
        next.control.replan.clear();
        Step::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::None,
            routed: None,
            decisions: vec![Decision {
                subject: "revision".into(),
                options: vec!["revise".into(), "keep".into()],
                narrowed_by: "what can be done about the rest of a plan".into(),
                signal: why.to_owned(),
                chosen: "keep".into(),
                decided_by: DecidedBy::Model,
                rationale: String::new(),
            }],
            said: vec![say::status(format!("Kept the plan: {why}"))],
        }))
    }
}

/// Takes in what subagents brought for steps of the plan.
#[derive(Debug)]
pub struct TakeIn {
    telling: u32,
    request: AgentRequest,
    limits: Limits,
    plan: Vec<PlanStep>,
    verdict: FanInRecord,
}

impl TakeIn {
    fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::DocumentsRead(texts) => self.read(&texts),
            // It orders nothing but documents.
            Input::Begin
            | Input::ModelReplied(_)
            | Input::ModelFailed(_)
            | Input::ToolReturned(_)
            | Input::FactsFound(_) => {
                let members = self.verdict.members.iter();
                Step::ReadDocuments(members.map(|m| m.document.clone()).collect())
            }
        }
    }

    fn read(&self, texts: &[Option<String>]) -> Step {
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
                step_type: "execute".into(),
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
        let decision = go_on(&mut next, self.telling, &self.limits, &plan, trouble);
        for step in done {
            remember(&mut next, plan.clone(), step);
        }
        let said = results.iter().map(|result| {
            say::status(format!(
                "Step {}: {} ({})",
                result.index, result.goal, result.status
            ))
        });
        Step::Finish(Box::new(Finish {
            said: said.collect(),
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::Executed(Executed {
                revision: plan_step::revision(&self.request),
                steps: results,
                call: None,
                after: Some(summary(&self.verdict)),
                model_ms: 0,
            }),
            routed: None,
            decisions: decision.into_iter().collect(),
        }))
    }
}

/// Writes the answer from the results.
#[derive(Debug)]
pub struct Conclude {
    request: AgentRequest,
    plan: Vec<PlanStep>,
    /// Why the plan is not carried on with, where something of it is left.
    cut: Option<Termination>,
    /// The model's answer was cut.
    is_cut: bool,
    model_ms: u64,
    max_bytes: usize,
}

impl Conclude {
    fn new(
        request: AgentRequest,
        limits: &Limits,
        plan: Vec<PlanStep>,
        cut: Option<Termination>,
    ) -> Self {
        Self {
            request,
            plan,
            cut,
            is_cut: false,
            model_ms: 0,
            max_bytes: limits.max_observation_bytes,
        }
    }

    fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::ModelReplied(reply) => {
                self.model_ms += reply.ms;
                let text = reply.text.trim();
                if text.is_empty() {
                    self.unwritten("The model returned no text.")
                } else {
                    self.is_cut = reply.cut;
                    self.conclude(text.to_owned(), true)
                }
            }
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            // It orders nothing else.
            Input::Begin
            | Input::ToolReturned(_)
            | Input::FactsFound(_)
            | Input::DocumentsRead(_) => self.begin(),
        }
    }

    fn begin(&self) -> Step {
        if !self.plan.iter().any(|step| step.status == COMPLETE) {
            // Nothing to reason from: a model could only invent.
            return self.unwritten("No step of the plan came to a result.");
        }
        let steps: Vec<_> = self
            .results()
            .map(|(index, step)| {
                json!({"index": index, "goal": step.goal, "status": step.status,
                       "result": super::fan_out::bounded(&step.result, self.max_bytes)})
            })
            .collect();
        Step::AskModel(Box::new(ModelAsk {
            operation: Operation::PlanSynthesise,
            variables: json!({
                "question": self.request.question,
                "framing": self.request.framing,
                "steps": steps,
                "missing": self.missing(),
            }),
            cut: None,
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: None,
            stream: StreamAs::Answer,
        }))
    }

    fn broke(&mut self, why: &str) -> Step {
        self.cut = Some(Termination::BudgetExhausted);
        self.unwritten(&format!("Before an answer was written, {why}."))
    }

    fn results(&self) -> impl Iterator<Item = (usize, &PlanStep)> {
        let steps = self.plan.iter().enumerate();
        steps.filter(|(_, step)| step.status == COMPLETE)
    }

    /// What has no result, with the reason. What was replaced by a revision is not missed.
    fn missing(&self) -> Vec<Value> {
        let unworked = match self.cut {
            Some(Termination::BudgetExhausted) => "not begun: the budget was used up",
            Some(Termination::MaxReplans) => {
                "not begun: the plan was revised as often as it may be"
            }
            Some(_) => "not begun: the iteration limit was reached",
            None => "not begun: a step it depends on failed",
        };
        let last_revised = self.plan.iter().rposition(|step| step.status == REVISED);
        let steps = self.plan.iter().enumerate().filter_map(|(at, step)| {
            let reason = match step.status.as_str() {
                PENDING => unworked.to_owned(),
                // A failure that a later plan worked around is not missed either.
                FAILED if last_revised > Some(at) => return None,
                FAILED => format!("failed: {}", plan_step::brief(&step.result)),
                _ => return None,
            };
            Some(json!({"goal": step.goal, "reason": reason}))
        });
        steps.collect()
    }

    /// The results as they are, where no model writes an answer from them.
    fn unwritten(&self, why: &str) -> Step {
        let mut text = format!("**Partial answer:** {why}\n");
        for (_, step) in self.results() {
            text.push_str(&format!("\n## {}\n\n{}\n", step.goal, step.result.trim()));
        }
        self.conclude(text, false)
    }

    fn conclude(&self, mut text: String, streamed: bool) -> Step {
        let missing = self.missing();
        let in_part: Vec<Value> = self
            .results()
            .filter(|(_, step)| step.partial)
            .map(|(_, step)| json!({"goal": step.goal, "reason": ENDED_EARLY}))
            .collect();
        if self.is_cut {
            name_cut(&mut text);
        }
        name_missing(&mut text, "No result for", &missing);
        name_missing(&mut text, "Only a partial result for", &in_part);
        let whole = if self.is_cut {
            Termination::ReplyCut
        } else {
            Termination::PlanComplete
        };
        let end = Concluded {
            termination: self.cut.unwrap_or(whole),
            partial: !streamed
                || self.is_cut
                || self.cut.is_some()
                || !missing.is_empty()
                || !in_part.is_empty(),
            model_ms: self.model_ms,
            ..Concluded::default()
        };
        let session = &self.request.session_id;
        answered(session, end, text, streamed, Vec::new(), Vec::new())
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
