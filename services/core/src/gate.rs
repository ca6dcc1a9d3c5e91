//! The gate of a task type: whether a message is a task at all, and what it comes to. It is a step of its own,
//! before the pattern's first. What follows works the brief that it makes and not the message, so that nobody
//! reads the message anew and takes it for something else.
//!
//! A message that may be a task is one: only what is surely talk goes on without tools. What people demand
//! beside their goal closes tools; it is not left to the agent to keep to it.

use crate::conversation;
use crate::cut::no_json;
use crate::json;
use crate::order::{Finish, Input, ModelAsk, Order, Reply};
use crate::patterns::{Instead, PatternTurn, REACT, unanswered};
use crate::say;
use crate::tools;
use agentfleet_schema::config::{Gate, Snapshot, ToolItem, fits};
use agentfleet_schema::records::{Activity, DecidedBy, Decision};
use agentfleet_schema::{AgentRequest, Brief, Operation};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Subject of the decision what a message is.
const SUBJECT: &str = "intent-gate";
/// Subject of the decision to close tools.
const CONSTRAINT: &str = "constraint";
const TASK: &str = "TASK";
const CONVERSATION: &str = "CONVERSATION";
/// Exchanges that it is shown, where the task type does not say.
const EXCHANGES: u32 = 3;
/// Below it, what is taken for talk is a task.
const SURE: f64 = 0.6;
/// Kinds of entities that a model is asked for.
const ENTITIES: [&str; 5] = ["contacts", "companies", "projects", "emails", "others"];
/// Longest list of a brief, and longest text in one.
const MOST: usize = 20;
const LONGEST: usize = 500;

/// The gate that a request has before itself, if it has one. Whatever history a caller brings along, and also
/// where a fork asks something else: nobody passes beside it.
pub(crate) fn of(request: &AgentRequest, snapshot: &Snapshot) -> Option<Gate> {
    let control = &request.control;
    let is_first = control.brief.is_none()
        && !request.is_subagent()
        && control.fan_in_step.is_none()
        && control.held.is_none();
    let item = snapshot.task_types.get(&request.task_type);
    item.filter(|_| is_first)?.gate.clone()
}

#[derive(Debug)]
pub(crate) struct AtGate {
    request: AgentRequest,
    gate: Gate,
    tools: Vec<ToolItem>,
    fault: String,
    model_ms: u64,
}

impl AtGate {
    pub(crate) fn new(request: AgentRequest, snapshot: &Snapshot, gate: Gate) -> Self {
        let tools = tools::granted(&request, snapshot);
        Self {
            tools: tools.into_iter().cloned().collect(),
            request,
            gate,
            fault: String::new(),
            model_ms: 0,
        }
    }

    fn ask(&self) -> Order {
        let shown: Vec<&ToolItem> = self.tools.iter().collect();
        let window = self.gate.exchanges.unwrap_or(EXCHANGES) as usize;
        let variables = json!({
            "question": self.request.question,
            "conversation": conversation::newest(&self.request, window),
            "tools": tools::described(&shown),
            "entities": ENTITIES,
            "fault": self.fault,
        });
        ModelAsk::choice(Operation::Gate, variables, schema(&self.tools)).into()
    }

    fn replied(&mut self, reply: &Reply) -> Order {
        self.model_ms += reply.ms;
        match self.read(&reply.text) {
            Ok((brief, closed, decision)) => self.pass(brief, closed, decision),
            Err(fault) if self.fault.is_empty() => {
                self.fault = fault;
                self.ask()
            }
            Err(fault) => self.as_task(&fault),
        }
    }

    /// Takes the message for a task as it stands, because nothing else could be told.
    fn as_task(&self, signal: &str) -> Order {
        let question = &self.request.question;
        let brief = Brief {
            intent: TASK.to_owned(),
            goal: question.clone(),
            raw_message: question.clone(),
            ..Brief::default()
        };
        let decision = decided(TASK, signal, DecidedBy::Fallback);
        self.pass(brief, BTreeMap::new(), decision)
    }

    /// A brief, and what the model says is closed by which demand.
    fn read(&self, text: &str) -> Result<(Brief, BTreeMap<String, String>, Decision), String> {
        let whole = json::extract(text).filter(Value::is_object);
        let whole = whole.ok_or_else(|| no_json(text).to_owned())?;
        let field = |name: &str| json::text(&whole, name).to_owned();
        let intent = field("intent").to_uppercase();
        let confidence = whole.get("confidence").and_then(Value::as_f64);
        let confidence = confidence.unwrap_or_default();
        if intent != TASK && intent != CONVERSATION {
            return Err(format!("`intent` must be `{TASK}` or `{CONVERSATION}`"));
        }
        let mut decision = decided(&intent, &field("reason"), DecidedBy::Model);
        decision.rationale = whole.to_string();
        if intent == CONVERSATION && confidence < SURE {
            TASK.clone_into(&mut decision.chosen);
            decision.decided_by = DecidedBy::Fallback;
            decision.signal =
                format!("taken for talk with confidence {confidence:.2}, which is below {SURE:.2}");
        }
        let mut closed = BTreeMap::new();
        let mut constraints = Vec::new();
        for one in listed(&whole, "constraints") {
            let text = match one {
                Value::String(text) => bounded(text),
                one => bounded(json::text(one, "text")),
            };
            let names: Vec<&str> = match one.get("without") {
                Some(Value::String(name)) => vec![name],
                Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            for name in names {
                let meant = self.meant(name);
                if meant.is_empty() && self.fault.is_empty() {
                    return Err(format!("`without` names `{name}`, which is no tool here"));
                }
                closed.extend(meant.into_iter().map(|tool| (tool, text.clone())));
            }
            constraints.push(text);
        }
        let goal = match field("goal") {
            goal if goal.is_empty() => self.request.question.clone(),
            goal => goal,
        };
        let brief = Brief {
            intent: decision.chosen.clone(),
            goal,
            entities: entities(&whole),
            constraints,
            ambiguities: texts(whole.get("ambiguities")),
            raw_message: self.request.question.clone(),
        };
        Ok((brief, closed, decision))
    }

    /// The tools that a name stands for: case and separators are forgiven, and `*` stands for any characters.
    fn meant(&self, name: &str) -> Vec<String> {
        let glob = tools::plain(name);
        let tools = self.tools.iter().map(|tool| &tool.name);
        tools
            .filter(|tool| fits(&glob, &tools::plain(tool)))
            .cloned()
            .collect()
    }

    /// Goes on with a brief. `closed` are tools with the demand that closes each.
    fn pass(&self, brief: Brief, closed: BTreeMap<String, String>, decision: Decision) -> Order {
        let mut next = self.request.clone();
        let mut decisions = vec![decision];
        let told = if brief.intent == CONVERSATION {
            // Nothing is to be done: no tools, and no more than one reply.
            next.group = Some(Vec::new());
            REACT.clone_into(&mut next.pattern);
            "talk".to_owned()
        } else {
            next.question.clone_from(&brief.goal);
            let context = [next.control.context.trim(), &beside(&brief)].join("\n");
            context.trim().clone_into(&mut next.control.context);
            for (without, by, signal) in self.closed(closed) {
                decisions.push(say::only(CONSTRAINT, without.join(", "), by, signal));
                next.control.without.extend(without);
            }
            format!("a task: {}", say::in_one_line(&brief.goal))
        };
        next.control.brief = Some(Box::new(brief));
        let said = vec![say::status(format!("Taken for {told}"))];
        Finish::goes_on(next, Activity::None, decisions, said)
    }

    /// Tools to close, by what, and the words of the message that demand it.
    fn closed(&self, by_model: BTreeMap<String, String>) -> Vec<(Vec<String>, String, String)> {
        let message = words_of(&self.request.question);
        let mut all = Vec::new();
        let mut known: BTreeSet<String> = BTreeSet::new();
        for constraint in &self.gate.constraints {
            let mut phrases = constraint.phrases.iter();
            let said = phrases.find(|phrase| message.contains(&words_of(phrase)));
            if let Some(phrase) = said {
                known.extend(constraint.without.iter().cloned());
                let by = format!("the constraints of task type `{}`", self.request.task_type);
                all.push((
                    constraint.without.clone(),
                    by,
                    format!("the message says `{phrase}`"),
                ));
            }
        }
        for (tool, text) in by_model {
            if known.insert(tool.clone()) {
                let by = "what the message demands, as the model reads it";
                all.push((vec![tool], by.to_owned(), text));
            }
        }
        all
    }
}

impl PatternTurn for AtGate {
    fn resume(&mut self, input: Input) -> Order {
        match input {
            Input::ModelReplied(reply) => self.replied(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, self.model_ms),
            // The gate orders nothing else.
            Input::Begin | Input::ToolReturned(_) | Input::DocumentsRead(_) => self.ask(),
        }
    }

    fn broke(&mut self, why: &str) -> Order {
        unanswered(&self.request.session_id, why, self.model_ms)
    }

    /// Takes the message for a task without the model.
    fn spare(&mut self, why: &str) -> Instead {
        Instead::Order(self.as_task(why))
    }
}

/// A text in small letters with one blank between words, as phrases are looked for in it.
fn words_of(text: &str) -> String {
    let text = text
        .to_lowercase()
        .replace(['-', '\u{2010}', '\u{2011}', '\u{2013}'], " ");
    say::in_one_line(&text)
}

fn decided(chosen: &str, signal: &str, decided_by: DecidedBy) -> Decision {
    let signal = match say::in_one_line(signal) {
        signal if signal.is_empty() => "not stated by the model".to_owned(),
        signal => signal,
    };
    Decision {
        subject: SUBJECT.into(),
        options: vec![TASK.to_owned(), CONVERSATION.to_owned()],
        narrowed_by: "what a message can be".into(),
        signal,
        chosen: chosen.to_owned(),
        decided_by,
        rationale: String::new(),
    }
}

/// What the stages behind the gate know beside the goal.
fn beside(brief: &Brief) -> String {
    let mut text = String::new();
    for (kind, names) in &brief.entities {
        text.push_str(&format!("{kind}: {}\n", names.join(", ")));
    }
    for (heading, lines) in [
        ("Demanded", &brief.constraints),
        ("Not clear", &brief.ambiguities),
    ] {
        for line in lines {
            text.push_str(&format!("{heading}: {line}\n"));
        }
    }
    text
}

fn listed<'a>(whole: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let list = whole.get(name).and_then(Value::as_array);
    list.into_iter().flatten().take(MOST)
}

fn bounded(text: &str) -> String {
    let text = say::in_one_line(text);
    crate::bounds::beginning(&text, LONGEST).to_owned()
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let texts = list.filter_map(Value::as_str).map(bounded);
    texts.filter(|text| !text.is_empty()).take(MOST).collect()
}

fn entities(whole: &Value) -> BTreeMap<String, Vec<String>> {
    let given = whole.get("entities").and_then(Value::as_object);
    let given = given.into_iter().flatten();
    let named = given.filter(|(kind, _)| ENTITIES.contains(&kind.as_str()));
    named
        .map(|(kind, names)| (kind.clone(), texts(Some(names))))
        .filter(|(_, names)| !names.is_empty())
        .collect()
}

fn schema(tools: &[ToolItem]) -> Value {
    let list = || json!({"type": "array", "items": {"type": "string"}});
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let without = if names.is_empty() {
        json!({"type": "array", "maxItems": 0, "items": {"type": "string"}})
    } else {
        json!({"type": "array", "items": {"type": "string", "enum": names}})
    };
    let entities: Map<String, Value> = ENTITIES
        .map(|kind| (kind.to_owned(), list()))
        .into_iter()
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["intent", "confidence", "reason", "goal", "entities", "constraints", "ambiguities"],
        "properties": {
            "intent": {"type": "string", "enum": [TASK, CONVERSATION]},
            "confidence": {"type": "number"},
            "reason": {"type": "string", "description": "the one thing that decided"},
            "goal": {"type": "string", "description": "what is to be done, in full words and without pronouns"},
            "entities": {
                "type": "object",
                "additionalProperties": false,
                "required": ENTITIES,
                "properties": entities,
            },
            "constraints": {"type": "array", "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["text", "without"],
                "properties": {
                    "text": {"type": "string", "description": "what is demanded, in the words of the message"},
                    "without": without,
                },
            }},
            "ambiguities": list(),
        },
    })
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
