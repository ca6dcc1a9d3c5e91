//! The last step of a plan: the answer from its results.

use super::has_result;
use crate::limits::Limits;
use crate::order::{Input, ModelAsk, Order};
use crate::patterns::PatternTurn;
use crate::patterns::answer::{answered, name_cut, name_missing};
use crate::patterns::dag::{COMPLETE, FAILED, PENDING, REVISED};
use crate::patterns::fan_out::{ENDED_EARLY, bounded};
use crate::patterns::plan_step::brief;
use crate::say;
use agentfleet_schema::records::{Concluded, Termination};
use agentfleet_schema::{AgentRequest, Operation, PlanStep};
use serde_json::{Value, json};

/// Writes the answer from the results.
#[derive(Debug)]
pub(super) struct Conclude {
    request: AgentRequest,
    plan: Vec<PlanStep>,
    /// Why the plan is not carried on with, where something of it is left.
    cut: Option<Termination>,
    /// The model's answer was cut.
    is_cut: bool,
    pub(super) model_ms: u64,
    max_bytes: usize,
}

impl Conclude {
    pub(super) fn new(
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
}

impl PatternTurn for Conclude {
    fn resume(&mut self, input: Input) -> Order {
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
            Input::Begin | Input::ToolReturned(_) | Input::DocumentsRead(_) => self.begin(),
        }
    }

    fn broke(&mut self, why: &str) -> Order {
        self.cut = Some(Termination::BudgetExhausted);
        self.unwritten(&format!("Before an answer was written, {why}."))
    }
}

impl Conclude {
    fn begin(&self) -> Order {
        if !has_result(&self.plan) {
            // Nothing to reason from: a model could only invent.
            return self.unwritten("No step of the plan came to a result.");
        }
        let steps: Vec<_> = self
            .results()
            .map(|(index, step)| {
                json!({"index": index, "goal": step.goal, "status": step.status,
                       "result": bounded(&step.result, self.max_bytes)})
            })
            .collect();
        let variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "steps": steps,
            "missing": self.missing(),
        });
        ModelAsk::answer(Operation::PlanSynthesise, variables).into()
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
                FAILED => format!("failed: {}", brief(&step.result)),
                _ => return None,
            };
            Some(json!({"goal": step.goal, "reason": reason}))
        });
        steps.collect()
    }

    /// The results as they are, where no model writes an answer from them.
    fn unwritten(&self, why: &str) -> Order {
        let mut text = format!("**Partial answer:** {why}\n");
        for (_, step) in self.results() {
            text.push_str(&format!("\n## {}\n\n{}\n", step.goal, step.result.trim()));
        }
        self.conclude(text, false)
    }

    fn conclude(&self, mut text: String, streamed: bool) -> Order {
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
