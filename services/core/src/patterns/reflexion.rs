//! Reflexion: ReACT with a critique of each action, and of the answer before it is given.
//!
//! What a critique says is carried forward, and it may send the agent back: an action's result is
//! then not built on, an answer not given. How often is a limit. ReACT itself is in [`super::react`].

use super::react::Iteration;
use super::{Begun, Pattern};
use crate::json;
use crate::limits::Limits;
use crate::order::{ModelAsk, Order};
use crate::turn::Situation;
use agentfleet_schema::records::{Critique, DecidedBy, Decision};
use agentfleet_schema::{AgentRequest, AgentStep, Operation, StepKind};
use serde_json::{Value, json};

/// Action name of an answer that was sent back.
pub(crate) const ANSWER: &str = "answer";
/// Critiques that are carried forward; older ones are dropped.
const CARRIED: usize = 5;

const GO_ON: &str = "go-on";
const GO_BACK: &str = "go-back";

pub(crate) struct Reflexion;

impl Pattern for Reflexion {
    fn name(&self) -> &'static str {
        "reflexion"
    }

    fn begin(&self, request: AgentRequest, situation: Situation, limits: Limits) -> Begun {
        situation.verdict(&request)?;
        Ok(Box::new(Iteration::new(request, situation, limits, true)))
    }
}

/// What is criticised.
#[derive(Clone, Debug)]
pub(super) enum Subject<'a> {
    Action {
        name: &'a str,
        arguments: Value,
        observation: &'a str,
        is_error: bool,
    },
    Answer(&'a str),
}

/// Whether a critique may still send this session back.
pub(super) fn may_go_back(request: &AgentRequest, limits: &Limits) -> bool {
    request.control.state.react().reflections < limits.max_reflections
}

/// The critiques so far, as prompts show them.
pub(super) fn carried(request: &AgentRequest) -> Vec<&str> {
    let steps = request.history.iter();
    steps
        .filter(|step| is_carried(step))
        .map(|step| step.observation.as_str())
        .collect()
}

/// Whether a step of the history is a critique that is carried forward.
pub(crate) fn is_carried(step: &AgentStep) -> bool {
    step.is(StepKind::Reflect) && !step.observation.is_empty()
}

fn options(request: &AgentRequest, limits: &Limits) -> Vec<String> {
    if may_go_back(request, limits) {
        vec![GO_ON.to_owned(), GO_BACK.to_owned()]
    } else {
        vec![GO_ON.to_owned()]
    }
}

pub(super) fn ask(
    request: &AgentRequest,
    limits: &Limits,
    thought: &str,
    subject: &Subject<'_>,
) -> Order {
    let mut variables = json!({
        "question": request.question,
        "goal": request.subagent_goal,
        "framing": request.framing,
        "thought": thought,
        "critiques": carried(request),
        "options": options(request, limits),
        "action": "", "arguments": {}, "observation": "", "is_error": false, "answer": "",
    });
    match subject {
        Subject::Action {
            name,
            arguments,
            observation,
            is_error,
        } => {
            variables["action"] = (*name).into();
            variables["arguments"] = arguments.clone();
            variables["observation"] = (*observation).into();
            variables["is_error"] = (*is_error).into();
        }
        Subject::Answer(text) => variables["answer"] = (*text).into(),
    }
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["decision", "wrong", "next"],
        "properties": {
            "decision": {"type": "string", "enum": options(request, limits)},
            "wrong": {"type": "string", "description": "what went wrong; empty if nothing did"},
            "next": {"type": "string", "description": "what to try next"},
        },
    });
    ModelAsk::choice(Operation::Critique, variables, schema).into()
}

/// Reads a critique, and the decision it comes to.
pub(super) fn read(text: &str, request: &AgentRequest, limits: &Limits) -> (Critique, Decision) {
    let object = json::extract(text);
    let field = |name: &str| {
        let text = object.as_ref().map(|object| json::text(object, name));
        text.unwrap_or_default().to_owned()
    };
    let options = options(request, limits);
    let named = field("decision").to_lowercase();
    let (chosen, decided_by) = match options.iter().find(|option| **option == named) {
        _ if options.len() == 1 => (GO_ON.to_owned(), DecidedBy::OnlyOption),
        Some(option) => (option.clone(), DecidedBy::Model),
        None => (GO_ON.to_owned(), DecidedBy::Fallback),
    };
    let (mut wrong, next) = (field("wrong"), field("next"));
    if object.is_none() {
        text.trim().clone_into(&mut wrong);
    }
    let critique = Critique {
        sent_back: chosen == GO_BACK,
        wrong,
        next,
    };
    let signal = match (decided_by, critique.wrong.as_str()) {
        (DecidedBy::Fallback, _) => "the model named none of the options",
        (_, "") => "nothing went wrong",
        (_, wrong) => wrong,
    };
    let decision = Decision {
        subject: "critique".into(),
        narrowed_by: format!(
            "sent back {} times of at most {}",
            request.control.state.react().reflections,
            limits.max_reflections
        ),
        signal: super::fan_out::bounded(signal, 400),
        chosen,
        decided_by,
        // The critique is told beside it.
        rationale: String::new(),
        options,
    };
    (critique, decision)
}

/// A critique in words.
pub(super) fn told(critique: &Critique) -> String {
    let wrong = match critique.wrong.as_str() {
        "" => "Nothing went wrong.".to_owned(),
        wrong => format!("What went wrong: {wrong}"),
    };
    let next = match critique.next.as_str() {
        "" => String::new(),
        next => format!("\nTo try next: {next}"),
    };
    // First, because whoever watches sees the beginning.
    let back = if critique.sent_back {
        "Go back: do not build on this, take another way.\n"
    } else {
        ""
    };
    format!("{back}{wrong}{next}")
}

/// Carries a critique forward. `draft` is the answer it was of, if it sent that back.
pub(super) fn remember(request: &mut AgentRequest, critique: &Critique, draft: Option<&str>) {
    if critique.sent_back {
        request.control.state.set_react(|state| {
            state.retries = 0;
            state.reflections += 1;
        });
    }
    request.history.push(AgentStep {
        thought: draft.unwrap_or_default().to_owned(),
        action: if draft.is_some() { ANSWER } else { "critique" }.into(),
        observation: told(critique),
        user: request.user.clone(),
        step_type: StepKind::Reflect.into(),
        ..AgentStep::default()
    });
    let mut over = carried(request).len().saturating_sub(CARRIED);
    for step in &mut request.history {
        // The step itself stays: it counts as an iteration where it was an answer.
        if over > 0 && is_carried(step) {
            step.observation.clear();
            step.thought.clear();
            over -= 1;
        }
    }
}

#[cfg(test)]
#[path = "reflexion_tests.rs"]
mod tests;
