//! The step that makes a plan, or revises what is left of it.

use super::{broke, goes_on_by, listed, remember, revised, spare};
use crate::error::{Code, body};
use crate::limits::Limits;
use crate::order::{Finish, Input, ModelAsk, Order, Reply};
use crate::patterns::dag::{self, PENDING, REVISED};
use crate::patterns::plan_step::revision;
use crate::patterns::{Instead, PatternTurn, iterations};
use crate::say;
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Planned, Termination};
use agentfleet_schema::{AgentRequest, AgentStep, Operation, PlanStep, StepKind};
use serde_json::json;

/// Steps that one plan may have. It travels with the request; how many are carried out is bounded by the
/// iterations, and those that are not are named in the answer.
const MAX_STEPS: usize = 100;

/// Makes the plan, or revises what is left of it.
#[derive(Debug)]
pub(super) struct Make {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    /// The plan so far; empty for a first one.
    plan: Vec<PlanStep>,
    /// What was wrong with the model's first reply.
    fault: String,
    model_ms: u64,
}

impl PatternTurn for Make {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::ModelReplied(reply) => self.proposed(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            // Planning orders nothing else.
            Input::Begin | Input::ToolReturned(_) | Input::DocumentsRead(_) => self.ask(),
        }
    }

    fn broke(&mut self, why: &str) -> Order {
        broke(&self.request, &self.limits, &self.plan, why)
    }

    fn spare(&mut self, why: &str) -> Instead {
        let Self {
            request,
            limits,
            plan,
            model_ms,
            ..
        } = self;
        spare(request, limits, plan, *model_ms, why)
    }
}

impl Make {
    pub(super) fn new(
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

    fn is_revision(&self) -> bool {
        !self.plan.is_empty()
    }

    /// Steps that the session may still execute.
    fn room(&self) -> u32 {
        let done = iterations(&self.request);
        self.limits.max_iterations.saturating_sub(done).max(1)
    }

    /// The tools that the steps may use, by name.
    fn tools(&self) -> Vec<&str> {
        let visible = tools::granted(&self.request, &self.situation.snapshot);
        visible.into_iter().map(|tool| &*tool.name).collect()
    }

    fn ask(&self) -> Order {
        let visible = tools::granted(&self.request, &self.situation.snapshot);
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
            variables["reason"] = self.request.control.state.plan().replan.into();
        }
        ModelAsk::choice(operation, variables, dag::schema(&self.tools())).into()
    }

    fn proposed(&mut self, reply: &Reply) -> Order {
        self.model_ms += reply.ms;
        // What is replaced is no longer there to be built on.
        let mut before = self.plan.clone();
        for step in before.iter_mut().filter(|step| step.status == PENDING) {
            REVISED.clone_into(&mut step.status);
        }
        let read = dag::read(&reply.text, &self.tools()).and_then(|(thought, steps)| {
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
            Err(fault) => Order::Finish(Box::new(say::failed(
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

    fn planned(&self, thought: String, before: Vec<PlanStep>, steps: Vec<PlanStep>) -> Order {
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
            revision(&self.request) + 1
        } else {
            0
        };
        let did = if self.is_revision() {
            format!("Revised the plan: {} new steps", plan.len() - first)
        } else {
            format!("Created plan with {} steps", plan.len())
        };
        let mut next = self.request.clone();
        let reason = revised(&mut next);
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
                step_type: StepKind::Plan.into(),
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
    fn kept(&self, why: &str) -> Order {
        let mut next = self.request.clone();
        revised(&mut next);
        Finish::goes_on(
            next,
            Activity::None,
            vec![Decision {
                subject: "revision".into(),
                options: vec!["revise".into(), "keep".into()],
                narrowed_by: "what can be done about the rest of a plan".into(),
                signal: why.to_owned(),
                chosen: "keep".into(),
                decided_by: DecidedBy::Model,
                rationale: String::new(),
            }],
            vec![say::status(format!("Kept the plan: {why}"))],
        )
    }
}
