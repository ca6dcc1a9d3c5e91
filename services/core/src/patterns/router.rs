//! Router: classifies a message, and gives it to a specialist. No reasoning loop of its own.
//!
//! One specialist goes on in the same session, so that its answer is the caller's. A message with
//! several steps becomes a plan whose steps belong to specialists: each works with what those before
//! it found, and one answer is written from all of it. What no specialist is meant for goes to
//! `general`, which has no tools.

use super::answer::unanswered;
use super::plan::PLAN_THEN_EXECUTE;
use super::{Begun, Instead, Pattern, PatternTurn, REACT, dag};
use crate::cut::no_json;
use crate::json;
use crate::limits::Limits;
use crate::order::{Finish, Input, ModelAsk, Order, Reply};
use crate::say;
use crate::specialists::{self, GENERAL};
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Planned};
use agentfleet_schema::{AgentRequest, AgentStep, Operation, PlanStep, StepKind};
use serde_json::{Value, json};

/// Below this the model is not sure enough for a specialist, where the pattern does not say.
const MIN_CONFIDENCE: f64 = 0.5;
/// What a message is about if nothing can be told.
pub(crate) const GENERAL_CHAT: &str = "general_chat";

pub(crate) struct Router;

#[derive(Debug)]
struct Dispatch {
    request: AgentRequest,
    situation: Situation,
    fault: String,
    model_ms: u64,
}

/// A classification as the model gave it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Classified {
    intent: String,
    confidence: f64,
    specialist: String,
    /// All of it, for the record.
    whole: Value,
    steps: Vec<PlanStep>,
}

/// The intents that a message can be taken for.
pub(crate) fn intents(snapshot: &Snapshot) -> Vec<String> {
    let known: Vec<String> = snapshot.intents.keys().cloned().collect();
    if known.is_empty() {
        vec![GENERAL_CHAT.to_owned()]
    } else {
        known
    }
}

impl Pattern for Router {
    fn name(&self) -> &'static str {
        "router"
    }

    fn begin(&self, request: AgentRequest, situation: Situation, _: Limits) -> Begun {
        Ok(Box::new(Dispatch {
            request,
            situation,
            fault: String::new(),
            model_ms: 0,
        }))
    }

    fn closed_to(&self, request: &AgentRequest, snapshot: &Snapshot) -> Option<&'static str> {
        let able = specialists::able(request, snapshot).0;
        able.is_empty().then_some("no specialist has a tool here")
    }
}

impl PatternTurn for Dispatch {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::ModelReplied(reply) => self.classified(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            // Routing orders nothing else.
            Input::Begin | Input::ToolReturned(_) | Input::DocumentsRead(_) => self.begin(),
        }
    }

    fn broke(&mut self, why: &str) -> Order {
        unanswered(&self.request.session_id, why, self.model_ms)
    }

    /// Dispatches to the general specialist without the model.
    fn spare(&mut self, why: &str) -> Instead {
        Instead::Order(self.to_general(why, String::new()))
    }
}

impl Dispatch {
    fn intents(&self) -> Vec<String> {
        intents(&self.situation.snapshot)
    }

    /// The specialists that the message can go to, in the order of their names.
    fn specialists(&self) -> Vec<String> {
        let (mut able, _) = specialists::able(&self.request, &self.situation.snapshot);
        able.push(GENERAL.to_owned());
        able.sort();
        able
    }

    fn begin(&self) -> Order {
        let open = self.specialists();
        if open.len() < 2 {
            let nobody = Classified {
                specialist: GENERAL.to_owned(),
                ..Classified::default()
            };
            let (_, unable) = specialists::able(&self.request, &self.situation.snapshot);
            let signal = if unable.is_empty() {
                "no other specialist is configured".to_owned()
            } else {
                format!(
                    "no other specialist has a tool here ({})",
                    unable.join(", ")
                )
            };
            let chosen = self.decision("specialist", &open, GENERAL, &signal);
            let chosen = Decision {
                decided_by: DecidedBy::OnlyOption,
                ..chosen
            };
            return self.dispatch(&nobody, vec![chosen]);
        }
        let snapshot = &self.situation.snapshot;
        let intents: Vec<Value> = snapshot
            .intents
            .iter()
            .map(|(name, intent)| json!({"name": name, "description": intent.description}))
            .collect();
        let specialists: Vec<Value> = snapshot
            .specialists
            .iter()
            .filter(|(name, _)| open.contains(*name))
            .map(|(name, one)| json!({"name": name, "description": one.description}))
            .collect();
        let known = &self.request.routing;
        let variables = json!({
            "message": self.request.question,
            "tenant_type": known.tenant_type,
            "active_services": known.active_services,
            "recent_topics": known.recent_topics,
            "intents": intents,
            "specialists": specialists,
            "fault": self.fault,
        });
        let schema = schema(&self.intents(), &self.specialists());
        ModelAsk::choice(Operation::ClassifyIntent, variables, schema).into()
    }

    fn classified(&mut self, reply: &Reply) -> Order {
        self.model_ms += reply.ms;
        let (intents, specialists) = (self.intents(), self.specialists());
        let read = read(&reply.text, &intents, &specialists);
        match read {
            Ok(classified) => {
                let pattern = self.situation.snapshot.patterns.get(&self.request.pattern);
                let least = pattern
                    .and_then(|p| p.min_confidence)
                    .unwrap_or(MIN_CONFIDENCE);
                let signal = format!("confidence {:.2}", classified.confidence);
                let intent = self.decision("intent", &intents, &classified.intent, &signal);
                let intent = Decision {
                    rationale: classified.whole.to_string(),
                    ..intent
                };
                if classified.confidence < least {
                    let signal = format!(
                        "confidence {:.2} is below {least:.2}",
                        classified.confidence
                    );
                    let chosen = self.decision("specialist", &specialists, GENERAL, &signal);
                    let chosen = Decision {
                        decided_by: DecidedBy::Fallback,
                        ..chosen
                    };
                    let unsure = Classified {
                        specialist: GENERAL.to_owned(),
                        steps: Vec::new(),
                        ..classified
                    };
                    return self.dispatch(&unsure, vec![intent, chosen]);
                }
                let mut signal = format!("intent {}", classified.intent);
                if let Some(lack) = self.lack(&classified.specialist) {
                    signal.push_str(&format!(", though {lack}"));
                }
                let chosen =
                    self.decision("specialist", &specialists, &classified.specialist, &signal);
                self.dispatch(&classified, vec![intent, chosen])
            }
            Err(fault) if self.fault.is_empty() => {
                self.fault = fault;
                self.begin()
            }
            Err(fault) => self.to_general(&fault, super::fan_out::bounded(&reply.text, 2_000)),
        }
    }

    /// Dispatches to the general specialist, because nobody else could be chosen.
    fn to_general(&self, signal: &str, rationale: String) -> Order {
        let fallback = |decision: Decision| Decision {
            decided_by: DecidedBy::Fallback,
            rationale: rationale.clone(),
            ..decision
        };
        let (intents, specialists) = (self.intents(), self.specialists());
        let mut intents = intents;
        if !intents.iter().any(|intent| intent == GENERAL_CHAT) {
            // Not what happens to come first.
            intents.push(GENERAL_CHAT.to_owned());
        }
        let decisions = vec![
            fallback(self.decision("intent", &intents, GENERAL_CHAT, signal)),
            fallback(self.decision("specialist", &specialists, GENERAL, signal)),
        ];
        let nobody = Classified {
            intent: GENERAL_CHAT.to_owned(),
            specialist: GENERAL.to_owned(),
            ..Classified::default()
        };
        self.dispatch(&nobody, decisions)
    }

    /// What a specialist is to have tools for and finds none.
    fn lack(&self, name: &str) -> Option<String> {
        let snapshot = &self.situation.snapshot;
        let item = snapshot.specialists.get(name)?;
        let lacks = specialists::lacks(item, &tools::granted(&self.request, snapshot));
        (!lacks.is_empty()).then(|| format!("no tool matches {}", specialists::either(&lacks)))
    }

    fn decision(&self, subject: &str, options: &[String], chosen: &str, signal: &str) -> Decision {
        let snapshot = &self.situation.snapshot;
        let mut narrowed_by = format!("the configured {subject}s, version {}", snapshot.version);
        let (_, unable) = specialists::able(&self.request, snapshot);
        if subject == "specialist" && !unable.is_empty() {
            narrowed_by.push_str(&format!(", without {}", unable.join(", ")));
        }
        Decision {
            subject: subject.into(),
            options: options.to_vec(),
            narrowed_by,
            signal: signal.into(),
            chosen: chosen.into(),
            decided_by: DecidedBy::Model,
            rationale: String::new(),
        }
    }

    fn dispatch(&self, to: &Classified, decisions: Vec<Decision>) -> Order {
        let mut next = self.request.clone();
        let is_plan = to.steps.len() > 1;
        let told = if is_plan {
            PLAN_THEN_EXECUTE.clone_into(&mut next.pattern);
            let names: Vec<&str> = to.steps.iter().map(|s| s.specialist.as_str()).collect();
            format!("Dispatched in {} steps: {}", names.len(), names.join(", "))
        } else {
            REACT.clone_into(&mut next.pattern);
            specialists::engage(&mut next, &to.specialist, &self.situation.snapshot);
            next.control.context = specialists::context(&next, &self.situation.snapshot, &to.whole);
            let last = decisions.last().filter(|_| to.specialist == GENERAL);
            let why = match last.filter(|d| d.decided_by != DecidedBy::Model) {
                Some(decision) => Some(decision.signal.clone()),
                None => self.lack(&to.specialist),
            };
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            format!("Dispatched to {}{why}", to.specialist)
        };
        let (action, kind) = if is_plan {
            ("plan", StepKind::Plan)
        } else {
            ("dispatch", StepKind::Route)
        };
        next.history.push(AgentStep {
            thought: told.clone(),
            action: action.into(),
            observation: told.clone(),
            user: next.user.clone(),
            step_type: kind.into(),
            plan: is_plan.then(|| to.steps.clone()),
            ..AgentStep::default()
        });
        let planned = || Planned {
            steps: to.steps.clone(),
            model_ms: self.model_ms,
            ..Planned::default()
        };
        let activity = if is_plan {
            Activity::Planned(planned())
        } else {
            Activity::None
        };
        Finish::goes_on(next, activity, decisions, vec![say::status(told)])
    }
}

/// Reads a classification; `Err` names what is wrong with it.
fn read(text: &str, intents: &[String], specialists: &[String]) -> Result<Classified, String> {
    let whole = json::extract(text).ok_or_else(|| no_json(text))?;
    let among = |name: &str, value: &str, options: &[String]| {
        let found = options.iter().find(|o| o.eq_ignore_ascii_case(value));
        let known = || options.join(", ");
        found
            .cloned()
            .ok_or_else(|| format!("`{name}` is `{value}`, and there are: {}", known()))
    };
    let intent = among("intent", json::text(&whole, "intent"), intents)?;
    let specialist = among("specialist", json::text(&whole, "specialist"), specialists)?;
    let confidence = whole.get("confidence").and_then(Value::as_f64);
    let confidence = confidence.filter(|c| (0.0..=1.0).contains(c));
    let confidence = confidence.ok_or("`confidence` is no number from 0 to 1")?;
    let is_multi = whole
        .get("multi_step")
        .and_then(Value::as_bool)
        .unwrap_or_default();
    let mut steps = Vec::new();
    let listed = whole
        .get("steps")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for (at, entry) in listed.enumerate().filter(|_| is_multi) {
        let task = json::text(entry, "task").to_owned();
        if task.is_empty() {
            return Err(format!("step {} of `steps` has no `task`", at + 1));
        }
        steps.push(PlanStep {
            goal: task,
            specialist: among("specialist", json::text(entry, "specialist"), specialists)?,
            depends_on: depends_on(entry.get("depends_on"), at)?,
            ..PlanStep::default()
        });
    }
    if let Some(fault) = dag::fault(&[], &steps) {
        return Err(fault);
    }
    Ok(Classified {
        intent,
        confidence,
        specialist,
        whole,
        steps,
    })
}

/// `"step_1"`, or a list of such: counted from 1.
fn depends_on(value: Option<&Value>, at: usize) -> Result<Vec<u32>, String> {
    let wrong =
        |value: &Value| format!("step {} depends on {value}; written so: \"step_1\"", at + 1);
    let one = |value: &Value| {
        let number = match value {
            Value::String(text) => {
                let text = text.trim();
                text.strip_prefix("step_")
                    .unwrap_or(text)
                    .parse::<u32>()
                    .ok()
            }
            value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
        };
        let number = number.and_then(|number| number.checked_sub(1));
        number.ok_or_else(|| wrong(value))
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}

fn schema(intents: &[String], specialists: &[String]) -> Value {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["intent", "confidence", "specialist", "services", "entities", "time_scope",
                     "action_required", "multi_step", "steps"],
        "properties": {
            "intent": {"type": "string", "enum": intents},
            "confidence": {"type": "number"},
            "specialist": {"type": "string", "enum": specialists},
            "services": texts,
            "entities": texts,
            "time_scope": {"type": "string", "enum": ["recent", "historical", "future", "none"]},
            "action_required": {"type": "boolean"},
            "multi_step": {"type": "boolean"},
            "steps": {"type": "array", "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["specialist", "task", "depends_on"],
                "properties": {
                    "specialist": {"type": "string", "enum": specialists},
                    "task": {"type": "string"},
                    "depends_on": texts,
                },
            }},
        },
    })
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
