//! The meta-router: task type first, then pattern, each from a configured set, each recorded.

mod options;

use crate::cut::CUT;
use crate::json;
use crate::limits::Limits;
use crate::order::{Finish, Input, ModelAsk, Order, Outcome, Reply};
use crate::patterns::{Instead, PatternTurn, REACT, unanswered};
use crate::say;
use crate::task_types;
use crate::turn::Situation;
use agentfleet_schema::config::choice;
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Routed};
use agentfleet_schema::{AgentRequest, Operation};
pub use options::{arrived, described, pattern_options};
pub(crate) use options::{or_general, subagent_patterns};
use serde_json::{Value, json};

/// The task type of a fleet that has none configured, and of a question that fits none.
pub const GENERAL: &str = "general";
/// How it is told that patterns are those of a task type.
pub(crate) const VALID: &str = "the valid patterns of task type";

/// The routing of one request.
#[derive(Debug)]
pub struct Route {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    asking: Asking,
    /// What was wrong with the reply to the open question, where it was asked once before.
    fault: String,
    task_type: Option<Decision>,
}

#[derive(Debug)]
enum Asking {
    TaskType(Vec<String>),
    Pattern {
        options: Vec<String>,
        narrowed_by: String,
    },
}

impl Route {
    pub(crate) fn new(request: AgentRequest, situation: Situation, limits: Limits) -> Self {
        let asking = Asking::TaskType(Vec::new());
        Self {
            request,
            situation,
            limits,
            asking,
            fault: String::new(),
            task_type: None,
        }
    }

    fn choose_task_type(&mut self) -> Order {
        let mut options: Vec<String> = self.situation.snapshot.task_types.keys().cloned().collect();
        let narrowed_by = self.of_task_types(options.len());
        let asked = &self.request.task_type;
        let (chosen, decided_by, signal) = match options.as_slice() {
            known if !asked.is_empty() && known.contains(asked) => {
                (asked.clone(), DecidedBy::Caller, "the request names it")
            }
            [] => {
                options.push(GENERAL.to_owned());
                let signal = "no task type is configured";
                (GENERAL.to_owned(), DecidedBy::Fallback, signal)
            }
            [only] => (only.clone(), DecidedBy::OnlyOption, "there is no other"),
            _ => {
                self.asking = Asking::TaskType(options);
                return self.ask();
            }
        };
        self.task_type = Some(Decision {
            subject: "task-type".into(),
            options,
            narrowed_by,
            signal: signal.into(),
            chosen,
            decided_by,
            rationale: String::new(),
        });
        self.choose_pattern()
    }

    fn of_task_types(&self, count: usize) -> String {
        let version = self.situation.snapshot.version;
        format!("the {count} configured task types, version {version}")
    }

    fn choose_pattern(&mut self) -> Order {
        let snapshot = &self.situation.snapshot;
        let task_type = self
            .task_type
            .as_ref()
            .map_or(GENERAL, |d| d.chosen.as_str());
        let (options, narrowed_by) =
            pattern_options(&self.request, snapshot, task_type, self.limits.max_depth);
        let (chosen, decided_by, signal) = match options.as_slice() {
            [] => {
                let signal = "no configured pattern is valid here";
                (REACT.to_owned(), DecidedBy::Fallback, signal)
            }
            [only] => (only.clone(), DecidedBy::OnlyOption, "there is no other"),
            _ => {
                self.asking = Asking::Pattern {
                    options,
                    narrowed_by,
                };
                self.fault.clear();
                return self.ask();
            }
        };
        self.done(Decision {
            subject: "pattern".into(),
            options: vec![chosen.clone()],
            narrowed_by,
            signal: signal.into(),
            chosen,
            decided_by,
            rationale: String::new(),
        })
    }

    fn ask(&self) -> Order {
        let snapshot = &self.situation.snapshot;
        let (operation, options, variables) = match &self.asking {
            Asking::TaskType(options) => {
                let types: Vec<Value> = options
                    .iter()
                    .filter_map(|key| snapshot.task_types.get(key).map(|t| (key, t)))
                    .map(|(key, t)| {
                        json!({"name": key, "description": t.description, "when_to_use": t.when_to_use})
                    })
                    .collect();
                (
                    Operation::ClassifyTaskType,
                    options,
                    json!({
                        "question": self.request.question, "task_types": types, "fault": self.fault,
                    }),
                )
            }
            Asking::Pattern { options, .. } => {
                let patterns: Vec<Value> = options
                    .iter()
                    .filter_map(|key| snapshot.patterns.get(key).map(|p| (key, p)))
                    .map(|(key, p)| {
                        json!({"name": key, "description": p.description, "when_to_use": p.when_to_use})
                    })
                    .collect();
                let task_type = self
                    .task_type
                    .as_ref()
                    .map_or(GENERAL, |d| d.chosen.as_str());
                (
                    Operation::SelectPattern,
                    options,
                    json!({
                        "question": self.request.question,
                        "task_type": task_type,
                        "framing": self.framing(task_type),
                        "patterns": patterns,
                        "fault": self.fault,
                    }),
                )
            }
        };
        ModelAsk::choice(operation, variables, choice_schema(options)).into()
    }

    /// What is chosen among, and by what it was narrowed.
    fn asked(&self) -> (&'static str, Vec<String>, String) {
        match &self.asking {
            Asking::TaskType(options) => (
                "task-type",
                options.clone(),
                self.of_task_types(options.len()),
            ),
            Asking::Pattern {
                options,
                narrowed_by,
            } => ("pattern", options.clone(), narrowed_by.clone()),
        }
    }

    /// The general task type, whether or not it is configured; ReACT, where it is an option. What
    /// happens to come first is nobody's choice.
    fn fallback(&self, signal: &str, rationale: String) -> Decision {
        let (subject, mut options, mut narrowed_by) = self.asked();
        let chosen = match self.asking {
            Asking::TaskType(_) => {
                if !options.iter().any(|option| option == GENERAL) {
                    options.push(GENERAL.to_owned());
                    narrowed_by.push_str(", and `general`, which needs no item");
                }
                GENERAL.to_owned()
            }
            Asking::Pattern { .. } => {
                let react = options.iter().find(|option| *option == REACT);
                let fallback = react.or(options.first());
                fallback.cloned().unwrap_or_else(|| REACT.to_owned())
            }
        };
        Decision {
            subject: subject.into(),
            chosen,
            signal: signal.into(),
            rationale,
            decided_by: DecidedBy::Fallback,
            options,
            narrowed_by,
        }
    }

    fn chosen(&mut self, reply: &Reply) -> Order {
        let (subject, options, narrowed_by) = self.asked();
        let decision = match read_choice(&reply.text, &options) {
            Some(choice) => Decision {
                subject: subject.into(),
                chosen: choice.chosen,
                signal: choice.signal,
                rationale: choice.rationale,
                decided_by: DecidedBy::Model,
                options,
                narrowed_by,
            },
            None if self.fault.is_empty() => {
                let wrong = if reply.cut {
                    CUT
                } else {
                    "it names none of the options"
                };
                wrong.clone_into(&mut self.fault);
                return self.ask();
            }
            None => self.fallback(
                "the model twice named none of the options",
                reply.text.chars().take(2_000).collect(),
            ),
        };
        self.decided(decision)
    }

    fn decided(&mut self, decision: Decision) -> Order {
        match self.asking {
            Asking::TaskType(_) => {
                self.task_type = Some(decision);
                self.choose_pattern()
            }
            Asking::Pattern { .. } => self.done(decision),
        }
    }

    fn framing(&self, task_type: &str) -> String {
        let known = self.situation.snapshot.task_types.get(task_type);
        task_types::framing(known, &self.request.framing)
    }

    fn done(&mut self, pattern: Decision) -> Order {
        let task_type = self.task_type.take().unwrap_or_default();
        let mut next = self.request.clone();
        next.framing = self.framing(&task_type.chosen);
        next.task_type.clone_from(&task_type.chosen);
        next.pattern.clone_from(&pattern.chosen);
        let item = self.situation.snapshot.task_types.get(&next.task_type);
        let overstepped = item.map(|item| task_types::overstepped(&self.request, item));
        let overstepped = overstepped.unwrap_or_default();
        task_types::hold(&mut next, &overstepped);
        let mut how = format!(
            "Routed: task type {}, pattern {}",
            how_chosen(&task_type),
            how_chosen(&pattern),
        );
        let own_framing = overstepped.contains(&choice::FRAMING);
        if !self.request.framing.is_empty() && !own_framing {
            how.push_str(", framing given by the caller");
        }
        let held = overstepped.iter().map(|what| {
            say::only(
                format!("override-{what}"),
                "task-type",
                format!("what task type `{}` leaves to callers", next.task_type),
                format!("the request chooses `{what}`, which the task type does not leave to it"),
            )
        });
        let decisions = held.collect();
        for what in &overstepped {
            how.push_str(&format!(", `{what}` by the task type and not as asked"));
        }
        Order::Finish(Box::new(Finish {
            outcome: Outcome::Continue(Box::new(next)),
            activity: Activity::None,
            routed: Some(Routed {
                question: self.request.question.clone(),
                task_type: task_type.chosen.clone(),
                pattern: pattern.chosen.clone(),
                decisions: vec![task_type, pattern],
                ..Routed::default()
            }),
            decisions,
            said: vec![say::status(how)],
        }))
    }
}

impl PatternTurn for Route {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::Begin => self.choose_task_type(),
            Input::ModelReplied(reply) => self.chosen(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, 0),
            // Routing orders nothing else, so nothing else can come back.
            Input::ToolReturned(_) | Input::DocumentsRead(_) => self.choose_task_type(),
        }
    }

    fn broke(&mut self, why: &str) -> Order {
        unanswered(&self.request.session_id, why, 0)
    }

    /// Chooses without the model, and so that the answer comes with the fewest calls.
    fn spare(&mut self, why: &str) -> Instead {
        let decision = self.fallback(why, String::new());
        Instead::Order(self.decided(decision))
    }
}

/// A choice in words, with who made it where the model did not.
fn how_chosen(decision: &Decision) -> String {
    let chosen = &decision.chosen;
    match decision.decided_by {
        DecidedBy::Model => format!("`{chosen}` of {}", decision.options.len()),
        DecidedBy::OnlyOption => format!("`{chosen}`, the only one"),
        DecidedBy::Fallback => format!("`{chosen}` ({})", decision.signal),
        DecidedBy::Caller => format!("`{chosen}`, given by the caller"),
        DecidedBy::Person => format!("`{chosen}`, by a person"),
    }
}

/// JSON Schema of a reply that chooses among `options`.
pub fn choice_schema(options: &[String]) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["choice", "signal", "rationale"],
        "properties": {
            "choice": {"type": "string", "enum": options},
            "signal": {"type": "string", "description": "the one signal in the task that decided"},
            "rationale": {"type": "string", "description": "why, in one or two sentences"},
        },
    })
}

/// A choice read from a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub chosen: String,
    pub signal: String,
    pub rationale: String,
}

/// Reads a choice: the JSON object asked for, or one option as plain text. `None` if what it names
/// is not among the options (PV-2).
pub fn read_choice(text: &str, options: &[String]) -> Option<Choice> {
    let among = |name: &str| {
        let name = name.trim().trim_matches(['"', '`', '\'', '*', '.']).trim();
        options
            .iter()
            .find(|o| o.eq_ignore_ascii_case(name))
            .cloned()
    };
    if let Some(Value::Object(map)) = json::extract(text) {
        let field = |name: &str| map.get(name).and_then(Value::as_str).unwrap_or_default();
        let chosen = among(field("choice"))?;
        let text_or = |name: &str, other: &str| match field(name) {
            "" => other.to_owned(),
            text => text.to_owned(),
        };
        return Some(Choice {
            chosen,
            signal: text_or("signal", "not stated by the model"),
            rationale: field("rationale").to_owned(),
        });
    }
    Some(Choice {
        chosen: among(text)?,
        signal: "not stated by the model".into(),
        rationale: String::new(),
    })
}

#[cfg(test)]
#[path = "routing_tests.rs"]
mod tests;
