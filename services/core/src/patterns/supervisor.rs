//! Supervisor: decompose into independent goals and fan out; later, synthesise what came back.
//!
//! Decomposing and synthesising are steps of the same session; between them the session has no
//! message in flight but its children's, and the aggregator's verdict releases the synthesis.

mod synthesise;

use super::assign::Offer;
use super::fan_out::{self, FAN_OUT, Goal, Round};
use super::{Begun, Pattern, PatternTurn};
use crate::cut::CUT;
use crate::json;
use crate::limits::Limits;
use crate::order::{Input, ModelAsk, Order, Reply, Used};
use crate::say;
use crate::turn::Situation;
use agentfleet_schema::records::{DecidedBy, Decision};
use agentfleet_schema::{AgentRequest, AgentStep, Operation, StepKind};
use serde_json::{Value, json};
use synthesise::Synthesise;

/// What a step of the history is called that divided the task.
const DECOMPOSE: &str = "decompose";
/// Name of the argument of such a step that holds the goals there was no room for.
const LEFT_OUT: &str = "left-out";

pub(crate) struct Supervisor;

impl Pattern for Supervisor {
    fn name(&self) -> &'static str {
        "supervisor"
    }

    fn begin(&self, request: AgentRequest, situation: Situation, limits: Limits) -> Begun {
        Ok(match situation.verdict(&request)? {
            Some(verdict) => Box::new(Synthesise::new(request, situation, limits, verdict)),
            None => Box::new(Decompose {
                request,
                situation,
                limits,
                retried: false,
                fault: String::new(),
                used: Used::default(),
            }),
        })
    }

    fn fans_out(&self) -> bool {
        true
    }
}

/// The planning iteration.
#[derive(Debug)]
struct Decompose {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    retried: bool,
    /// What was wrong with the goals of the reply before.
    fault: String,
    used: Used,
}

impl PatternTurn for Decompose {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::Begin => self.begin(),
            Input::ModelReplied(reply) => self.decomposed(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.used.ms),
            // Decomposing orders nothing else.
            Input::ToolReturned(_) | Input::DocumentsRead(_) => self.begin(),
        }
    }

    fn broke(&mut self, why: &str) -> Order {
        self.alone(None, why, "", DecidedBy::OnlyOption)
    }
}

impl Decompose {
    fn begin(&self) -> Order {
        if self.limits.max_depth == 0 {
            let why = "no depth is left for subagents";
            return self.alone(None, why, "", DecidedBy::OnlyOption);
        }
        if self.limits.width() < 2 {
            let why = "the limits leave no room for two subagents";
            return self.alone(None, why, "", DecidedBy::OnlyOption);
        }
        let offer = Offer::of(&self.request, &self.situation, &self.limits);
        let mut variables = json!({
            "question": self.request.question,
            "framing": self.request.framing,
            "max_subagents": self.limits.width(),
        });
        offer.show(&mut variables, &self.request, &self.situation, &self.fault);
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["thought", "goals"],
            "properties": {
                "thought": {"type": "string", "description": "why the task falls into these goals"},
                "goals": offer.goals_schema(),
            },
        });
        ModelAsk::choice(Operation::Decompose, variables, schema).into()
    }

    fn decomposed(&mut self, reply: &Reply) -> Order {
        self.used.count(reply);
        let Some((thought, goals)) = read_goals(&reply.text) else {
            if !self.retried {
                self.retried = true;
                let wrong = if reply.cut {
                    CUT
                } else {
                    "it has no list of goals"
                };
                wrong.clone_into(&mut self.fault);
                return self.begin();
            }
            let why = "the model twice returned no list of goals";
            return self.alone(None, why, "", DecidedBy::Fallback);
        };
        let (goals, left_out) = merged(goals, self.limits.width());
        if goals.len() < 2 {
            let (goal, why) = (goals.into_iter().next(), "there is one goal only");
            return self.alone(goal, why, &thought, DecidedBy::Model);
        }
        let offer = Offer::of(&self.request, &self.situation, &self.limits);
        if let Some(fault) = offer.fault(&goals).filter(|_| !self.retried) {
            self.retried = true;
            self.fault = fault;
            return self.begin();
        }
        let signal = format!("{} goals were found", goals.len());
        let divided = fan_out::decided(FAN_OUT, &signal, &thought, DecidedBy::Model);
        let round = Round {
            request: &self.request,
            situation: &self.situation,
            limits: &self.limits,
            history: decomposed(&self.request, &thought, goals.len(), &left_out),
            thought,
            after: None,
            compared: None,
            decisions: [divided]
                .into_iter()
                .chain(no_room(&left_out, goals.len()))
                .collect(),
            used: self.used,
        };
        match round.fan_out(goals) {
            Ok(step) => step,
            Err(reason) => self.alone(None, &reason, "", DecidedBy::OnlyOption),
        }
    }

    fn alone(
        &self,
        goal: Option<Goal>,
        signal: &str,
        rationale: &str,
        decided_by: DecidedBy,
    ) -> Order {
        fan_out::alone(
            &self.request,
            DECOMPOSE,
            goal,
            signal,
            rationale,
            decided_by,
        )
    }
}

/// What the history of a supervisor says of a fan-out, and of the synthesis it waits for.
fn decomposed(
    request: &AgentRequest,
    thought: &str,
    count: usize,
    left_out: &[String],
) -> Vec<AgentStep> {
    let step = |thought: &str, action: &str, observation: String, kind: StepKind| AgentStep {
        thought: thought.to_owned(),
        action: action.to_owned(),
        observation,
        user: request.user.clone(),
        step_type: kind.into(),
        ..AgentStep::default()
    };
    let fanned_out = format!("Fanned out to {}.", say::subagents(count));
    let ended = "Every subagent has ended, or the wait for them has.";
    let mut first = step(thought, DECOMPOSE, fanned_out, StepKind::Supervise);
    if !left_out.is_empty() {
        // A line each, for the synthesis to name them.
        first.arguments.insert(LEFT_OUT.into(), left_out.join("\n"));
    }
    vec![
        first,
        step(ended, "aggregate", String::new(), StepKind::Synthesise),
    ]
}

/// Reads `{"thought", "goals": [...]}`, or a bare array; goals may be strings or objects.
fn read_goals(text: &str) -> Option<(String, Vec<Goal>)> {
    let value = json::extract(text)?;
    let (thought, list) = match &value {
        Value::Array(list) => (String::new(), list),
        Value::Object(map) => {
            let thought = map
                .get("thought")
                .and_then(Value::as_str)
                .unwrap_or_default();
            (thought.to_owned(), map.get("goals")?.as_array()?)
        }
        _ => return None,
    };
    let goals = list
        .iter()
        .filter_map(|entry| match entry {
            Value::String(text) => Some(Goal {
                text: text.clone(),
                ..Goal::default()
            }),
            Value::Object(map) => {
                let field = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
                // One name alone is meant as a list of it.
                let group = match map.get("group") {
                    Some(Value::String(one)) => vec![one.clone()],
                    Some(Value::Array(list)) => {
                        let names = list.iter().filter_map(Value::as_str);
                        names.map(str::to_owned).collect()
                    }
                    _ => Vec::new(),
                };
                Some(Goal {
                    text: field("goal").to_owned(),
                    pattern: field("pattern").to_owned(),
                    group,
                    rationale: field("rationale").to_owned(),
                    context: field("context").to_owned(),
                    ..Goal::default()
                })
            }
            _ => None,
        })
        .filter(|goal| !goal.text.trim().is_empty())
        .collect();
    Some((thought, goals))
}

/// Records that some goals are not worked on.
fn no_room(left_out: &[String], kept: usize) -> Option<Decision> {
    (!left_out.is_empty()).then(|| {
        say::only(
            "subagents",
            kept.to_string(),
            format!("the limits leave room for {kept} subagents"),
            format!("left out for want of room: {}", left_out.join("; ")),
        )
    })
}

/// Merges goals that say the same, and keeps at most `max`; the others are named, on a line each.
fn merged(goals: Vec<Goal>, max: u32) -> (Vec<Goal>, Vec<String>) {
    let plain = |text: &str| {
        text.to_lowercase()
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
            .fold(String::new(), |mut all, word| {
                all.push_str(word);
                all.push(' ');
                all
            })
    };
    let mut seen = Vec::new();
    let mut kept: Vec<Goal> = Vec::new();
    for mut goal in goals {
        let text = goal.text.trim().to_owned();
        goal.text = text;
        let key = plain(&goal.text);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        kept.push(goal);
    }
    let others = kept.split_off(kept.len().min(max as usize));
    let lines = others.iter().map(|goal| say::in_one_line(&goal.text));
    (kept, lines.collect())
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
