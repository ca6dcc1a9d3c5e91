//! What a step of a plan came to: its call, looked at by the model, and what the plan is then.

use super::{Called, Came, Execute, brief, revision};
use crate::approval;
use crate::cut::CUT;
use crate::history::preview;
use crate::json;
use crate::order::{Finish, ModelAsk, Order, Reply, Said, ToolOutcome};
use crate::patterns::dag::{COMPLETE, FAILED, PENDING};
use crate::patterns::iterations;
use crate::patterns::plan::{go_on, remember};
use crate::pipeline;
use crate::say;
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Executed, Iterated, StepResult};
use agentfleet_schema::{AgentStep, MessageType, Operation, StepKind, uris};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a call may come to for its step.
const COMES_TO: [&str; 3] = [COMPLETE, FAILED, "surprising"];

impl Execute {
    pub(super) fn n(&self) -> u32 {
        iterations(&self.request) + 1
    }

    pub(super) fn observation(&self) -> String {
        uris::document_of(&uris::observation(&self.request.session_id, self.n()))
    }

    /// Whether a person denied just this call for this step.
    pub(super) fn was_denied(&self, name: &str, arguments: &BTreeMap<String, String>) -> bool {
        let denied = approval::denied_since(&self.request, |step| step.plan.is_some());
        denied
            .iter()
            .any(|step| step.action == name && step.arguments == *arguments)
    }

    /// The goals that are still to be reached.
    pub(super) fn open(&self) -> Vec<&str> {
        let others = self
            .plan
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != self.at);
        others
            .filter(|(_, step)| step.status == PENDING)
            .map(|(_, step)| step.goal.as_str())
            .collect()
    }

    pub(super) fn returned(&mut self, mut outcome: ToolOutcome) -> Order {
        let (name, arguments) = match (outcome.instead.take(), self.calling.take()) {
            (Some((name, arguments)), _) => {
                "An earlier attempt at this step made this call before it ended."
                    .clone_into(&mut self.thought);
                (name, arguments)
            }
            (None, Some((tool, arguments))) => (tool.name, arguments),
            (None, None) => return self.ask(),
        };
        self.took(&name, &outcome);
        say::name_not_run(&mut outcome.content, &self.not_run);
        let step = self.step();
        let variables = json!({
            "question": self.request.question,
            "framing": self.framing,
            "goal": step.goal,
            "action": name,
            "arguments": arguments,
            "observation": preview(
                &outcome.content, self.limits.max_observation_bytes, &self.observation()),
            "is_error": outcome.is_error,
            "open_steps": self.open(),
        });
        self.called = Some(Called {
            name,
            arguments,
            outcome,
        });
        ModelAsk::choice(Operation::PlanAssess, variables, assess_schema()).into()
    }

    /// What the call changes for those after it, by the policy of whoever works the step.
    fn took(&mut self, name: &str, outcome: &ToolOutcome) {
        let engaged = self.engaged.as_ref();
        let specialist = engaged.map_or(&self.request.control.specialist, |engaged| {
            &engaged.control.specialist
        });
        let specialist = specialist.clone();
        let own = std::mem::replace(&mut self.request.control.specialist, specialist);
        let (request, snapshot) = (&mut self.request, &self.situation.snapshot);
        pipeline::took(request, snapshot, name, outcome, &mut self.decided);
        self.request.control.specialist = own;
    }

    pub(super) fn assessed(&mut self, reply: &Reply) -> Order {
        self.model_ms += reply.ms;
        let unnamed = if reply.cut {
            CUT
        } else {
            "the model named none of the options"
        };
        self.assess(&reply.text, unnamed)
    }

    /// `unnamed` is the signal where the reply names no option.
    pub(super) fn assess(&self, reply: &str, unnamed: &str) -> Order {
        let (observation, is_error) = match &self.called {
            Some(called) => (called.outcome.content.clone(), called.outcome.is_error),
            None => (String::new(), true),
        };
        let object = json::extract(reply).unwrap_or_default();
        let text = |name: &str| json::text(&object, name).to_owned();
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
        // That of an agent was said when it started.
        if self.after.is_none() {
            said.push(Said {
                streamed: true,
                ..say::called(&called.name, &called.arguments)
            });
        }
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
            after: self.after.clone(),
        }
    }

    pub(super) fn finish(&self, came: Came) -> Order {
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
        let replan = go_on(&mut next, &self.limits, &plan, came.trouble);
        remember(
            &mut next,
            plan,
            AgentStep {
                thought: format!("Executing plan step {}: {}", self.at, step.goal),
                action: called.map(|c| c.name.clone()).unwrap_or_default(),
                arguments: called.map(|c| c.arguments.clone()).unwrap_or_default(),
                observation: brief(&came.result),
                step_type: StepKind::Execute.into(),
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
        Finish::goes_on(
            next,
            Activity::Executed(Executed {
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
            (self.alone.iter().cloned())
                .chain(came.decisions)
                .chain(replan)
                .collect(),
            said,
        )
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
