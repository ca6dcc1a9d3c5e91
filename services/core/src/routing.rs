//! The meta-router: task type first, then pattern, each from a configured set, each recorded.

use crate::json;
use crate::limits::Limits;
use crate::patterns::{self, Implemented, unanswered};
use crate::say;
use crate::specialists;
use crate::step::{Finish, Input, ModelAsk, Outcome, Reply, Step, StreamAs};
use crate::task_types;
use crate::turn::Situation;
use agentfleet_schema::config::{Snapshot, choice};
use agentfleet_schema::records::{Activity, DecidedBy, Decision, Described, Routed};
use agentfleet_schema::{AgentRequest, Operation};
use serde_json::{Value, json};

/// The task type of a fleet that has none configured, and of a question that fits none.
pub const GENERAL: &str = "general";
/// How it is told that patterns are those of a task type.
pub(crate) const VALID: &str = "the valid patterns of task type";
pub(crate) const REACT: &str = "react";

/// The routing of one request.
#[derive(Debug)]
pub struct Route {
    request: AgentRequest,
    situation: Situation,
    limits: Limits,
    asking: Asking,
    retried: bool,
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
            retried: false,
            task_type: None,
        }
    }

    pub(crate) fn resume(&mut self, input: Input) -> Step {
        match input {
            Input::Begin => self.choose_task_type(),
            Input::ModelReplied(reply) => self.chosen(&reply),
            Input::ModelFailed(failure) => say::model_failed(failure, 0),
            // Routing orders nothing else, so nothing else can come back.
            Input::ToolReturned(_) | Input::FactsFound(_) | Input::DocumentsRead(_) => {
                self.choose_task_type()
            }
        }
    }

    pub(crate) fn broke(&self, why: &str) -> Step {
        unanswered(&self.request.session_id, why, 0)
    }

    /// Chooses without the model, and so that the answer comes with the fewest calls.
    pub(crate) fn spare(&mut self, why: &str) -> Step {
        let decision = self.fallback(why, String::new());
        self.decided(decision)
    }

    fn choose_task_type(&mut self) -> Step {
        let options: Vec<String> = self.situation.snapshot.task_types.keys().cloned().collect();
        let narrowed_by = format!(
            "the {} configured task types, version {}",
            options.len(),
            self.situation.snapshot.version
        );
        let decision = |options: &[String], chosen: &str, by, signal: &str| Decision {
            subject: "task-type".into(),
            options: options.to_vec(),
            narrowed_by: narrowed_by.clone(),
            signal: signal.into(),
            chosen: chosen.into(),
            decided_by: by,
            rationale: String::new(),
        };
        let asked = &self.request.task_type;
        if !asked.is_empty() && options.contains(asked) {
            let chosen = asked.clone();
            self.task_type = Some(decision(
                &options,
                &chosen,
                DecidedBy::Caller,
                "the request names it",
            ));
            return self.choose_pattern();
        }
        match options.as_slice() {
            [] => {
                let only = [GENERAL.to_owned()];
                self.task_type = Some(decision(
                    &only,
                    GENERAL,
                    DecidedBy::Fallback,
                    "no task type is configured",
                ));
                self.choose_pattern()
            }
            [only] => {
                self.task_type = Some(decision(
                    &options,
                    only,
                    DecidedBy::OnlyOption,
                    "there is no other",
                ));
                self.choose_pattern()
            }
            _ => {
                self.asking = Asking::TaskType(options);
                self.ask()
            }
        }
    }

    fn choose_pattern(&mut self) -> Step {
        let snapshot = &self.situation.snapshot;
        let task_type = self
            .task_type
            .as_ref()
            .map_or(GENERAL, |d| d.chosen.as_str());
        let (options, narrowed_by) =
            pattern_options(&self.request, snapshot, task_type, self.limits.max_depth);
        match options.as_slice() {
            [] => self.done(Decision {
                subject: "pattern".into(),
                options: vec![REACT.into()],
                narrowed_by,
                signal: "no configured pattern is valid here".into(),
                chosen: REACT.into(),
                decided_by: DecidedBy::Fallback,
                rationale: String::new(),
            }),
            [only] => {
                let chosen = only.clone();
                self.done(Decision {
                    subject: "pattern".into(),
                    options,
                    narrowed_by,
                    signal: "there is no other".into(),
                    chosen,
                    decided_by: DecidedBy::OnlyOption,
                    rationale: String::new(),
                })
            }
            _ => {
                self.asking = Asking::Pattern {
                    options,
                    narrowed_by,
                };
                self.retried = false;
                self.ask()
            }
        }
    }

    fn ask(&self) -> Step {
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
                    json!({"question": self.request.question, "task_types": types}),
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
                    }),
                )
            }
        };
        Step::AskModel(Box::new(ModelAsk {
            operation,
            variables,
            cut: None,
            transcript: Vec::new(),
            tools: Vec::new(),
            schema: Some(choice_schema(options)),
            stream: StreamAs::Nothing,
        }))
    }

    /// What is chosen among, and by what it was narrowed.
    fn asked(&self) -> (&'static str, Vec<String>, String) {
        match &self.asking {
            Asking::TaskType(options) => (
                "task-type",
                options.clone(),
                format!(
                    "the {} configured task types, version {}",
                    options.len(),
                    self.situation.snapshot.version
                ),
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

    fn chosen(&mut self, reply: &Reply) -> Step {
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
            None if !self.retried => {
                self.retried = true;
                return self.ask();
            }
            None => self.fallback(
                "the model twice named none of the options",
                reply.text.chars().take(2_000).collect(),
            ),
        };
        self.decided(decision)
    }

    fn decided(&mut self, decision: Decision) -> Step {
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

    fn done(&mut self, pattern: Decision) -> Step {
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
        let held = overstepped.iter().map(|what| Decision {
            subject: format!("override-{what}"),
            options: vec!["task-type".into()],
            narrowed_by: format!("what task type `{}` leaves to callers", next.task_type),
            signal: format!(
                "the request chooses `{what}`, which the task type does not leave to it"
            ),
            chosen: "task-type".into(),
            decided_by: DecidedBy::OnlyOption,
            rationale: String::new(),
        });
        let decisions = held.collect();
        for what in &overstepped {
            how.push_str(&format!(", `{what}` by the task type and not as asked"));
        }
        Step::Finish(Box::new(Finish {
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

/// The patterns a task type may use here, and what narrowed them: valid, configured, implemented,
/// with room below for those that fan out, and with somebody to give the message to.
pub fn pattern_options(
    request: &AgentRequest,
    snapshot: &Snapshot,
    task_type: &str,
    max_depth: u32,
) -> (Vec<String>, String) {
    let configured: Vec<String> = snapshot.patterns.keys().cloned().collect();
    let listed = snapshot
        .task_types
        .get(task_type)
        .map(|t| t.valid_patterns.clone());
    let valid = listed
        .filter(|l| !l.is_empty())
        .unwrap_or_else(|| configured.clone());
    let mut left_out = Vec::new();
    let options: Vec<String> = valid
        .into_iter()
        .filter(|name| {
            let why = match Implemented::by_name(name) {
                _ if !configured.contains(name) => "not configured",
                None => "not implemented by this worker",
                Some(pattern) if pattern.fans_out() && max_depth == 0 => "no depth left",
                Some(Implemented::Router) if specialists::able(request, snapshot).0.is_empty() => {
                    "no specialist has a tool here"
                }
                Some(_) => return true,
            };
            left_out.push(format!("`{name}`: {why}"));
            false
        })
        .collect();
    let mut narrowed_by = format!("{VALID} `{task_type}`");
    if !left_out.is_empty() {
        narrowed_by.push_str(&format!(", without {}", left_out.join(", ")));
    }
    (options, narrowed_by)
}

/// The patterns a subagent may have that may itself go `depth` deeper: those of the task type it has from
/// its parent, and ReACT always.
pub(crate) fn subagent_patterns(
    request: &AgentRequest,
    snapshot: &Snapshot,
    depth: u32,
) -> (Vec<String>, String) {
    let task_type = or_general(&request.task_type);
    let (mut options, narrowed_by) = pattern_options(request, snapshot, task_type, depth);
    if !options.iter().any(|option| option == REACT) {
        options.push(REACT.to_owned());
    }
    (options, narrowed_by)
}

/// The task type that counts: a subagent has its parent's, which may have none.
pub(crate) fn or_general(task_type: &str) -> &str {
    if task_type.is_empty() {
        GENERAL
    } else {
        task_type
    }
}

/// What the config says of the task types and patterns that a routing names: of all that was open, and
/// of what a caller chose.
pub fn described(routed: &Routed, snapshot: &Snapshot) -> Vec<Described> {
    let mut described = Vec::new();
    for decision in &routed.decisions {
        let were_open = matches!(decision.decided_by, DecidedBy::Model | DecidedBy::Fallback);
        let names = decision.options.iter();
        for name in names.filter(|name| were_open || **name == decision.chosen) {
            let description = if decision.subject == "task-type" {
                snapshot.task_types.get(name).map(|t| &t.description)
            } else {
                snapshot.patterns.get(name).map(|p| &p.description)
            };
            described.extend(description.map(|description| Described {
                subject: decision.subject.clone(),
                name: name.clone(),
                description: description.clone(),
            }));
        }
    }
    described
}

/// Records a run that came with its pattern set.
pub fn arrived(request: &AgentRequest, snapshot: &Snapshot) -> Routed {
    let pattern = if request.pattern.is_empty() {
        REACT
    } else {
        &request.pattern
    };
    let is_subagent = request.is_subagent();
    let decided_by = match request.control.pattern_by {
        Some(by) if is_subagent => by,
        _ => DecidedBy::Caller,
    };
    // Whoever ends a subagent from outside has no config at hand.
    let of_type = is_subagent && request.control.reasoner.is_empty();
    let of_type = of_type && !snapshot.patterns.is_empty();
    let of_type = of_type.then(|| {
        let depth = request.limits.max_depth.unwrap_or_default();
        subagent_patterns(request, snapshot, depth)
    });
    let is_fixed = |open: &[String]| decided_by == DecidedBy::OnlyOption && open != [pattern];
    let (options, narrowed_by) = match of_type {
        Some((mut open, narrowed_by)) if !is_fixed(&open) => {
            if !open.iter().any(|option| option == pattern) {
                open.push(pattern.to_owned());
            }
            (open, narrowed_by)
        }
        _ if decided_by == DecidedBy::OnlyOption => {
            let only = vec![pattern.to_owned()];
            (only, "the pattern that fans out above".to_owned())
        }
        _ => {
            let known = Implemented::ALL.iter().map(|p| p.as_str().to_owned());
            let options = known
                .filter(|name| name == pattern || snapshot.patterns.contains_key(name))
                .collect();
            (options, "the patterns this worker implements".to_owned())
        }
    };
    let signal = match decided_by {
        DecidedBy::Model | DecidedBy::Fallback => format!(
            "decision `{}-{}` of the fan-out above",
            patterns::PATTERN,
            request.control.index + 1
        ),
        DecidedBy::OnlyOption => "there is no other".to_owned(),
        DecidedBy::Caller | DecidedBy::Person if is_subagent => {
            "the fan-out above names it".to_owned()
        }
        DecidedBy::Caller | DecidedBy::Person => "the request names it".to_owned(),
    };
    // Refused or ended before anything was chosen, or asked for what nobody can do: then nothing was
    // decided.
    let unrouted = request.pattern.is_empty() && request.history.is_empty();
    if unrouted || Implemented::by_name(pattern).is_none() {
        return Routed {
            question: request.question.clone(),
            ..Routed::default()
        };
    }
    let is_unknown =
        !snapshot.task_types.is_empty() && task_types::unknown(request, snapshot).is_some();
    Routed {
        question: request.question.clone(),
        task_type: if is_unknown {
            String::new()
        } else {
            request.task_type.clone()
        },
        pattern: pattern.to_owned(),
        decisions: vec![Decision {
            subject: "pattern".into(),
            options,
            narrowed_by,
            signal,
            chosen: pattern.to_owned(),
            decided_by,
            rationale: String::new(),
        }],
        described: Vec::new(),
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]
    use super::*;
    use crate::limits::FleetLimits;
    use crate::turn::Turn;
    use agentfleet_schema::config::{AgentPattern, AgentTaskType, Specialist, ToolItem};
    use std::sync::Arc;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot {
            version: 3,
            ..Snapshot::default()
        };
        for name in ["react", "plan-then-execute-never", "supervisor"] {
            let pattern = AgentPattern {
                name: name.into(),
                ..AgentPattern::default()
            };
            snapshot.patterns.insert(name.into(), pattern);
        }
        for (name, valid, framing) in [
            ("general", vec![], ""),
            (
                "risk",
                vec!["supervisor", "plan-then-execute-never", "react", "ghost"],
                "by dimension",
            ),
            ("short", vec!["react"], ""),
        ] {
            snapshot.task_types.insert(
                name.into(),
                AgentTaskType {
                    name: name.into(),
                    framing_prompt: framing.into(),
                    valid_patterns: valid.into_iter().map(String::from).collect(),
                    ..AgentTaskType::default()
                },
            );
        }
        snapshot
    }

    fn route(snapshot: Snapshot, request: AgentRequest) -> Turn {
        let situation = Situation {
            now: 0,
            snapshot: Arc::new(snapshot),
            fleet: Arc::new(FleetLimits::default()),
            native_tools: false,
            telling: agentfleet_schema::records::TELLING,
            nonce: "nonce".into(),
            fan_in: None,
        };
        Turn::parse(request, situation).unwrap()
    }

    fn ask() -> AgentRequest {
        AgentRequest {
            question: "assess X".into(),
            ..AgentRequest::default()
        }
    }

    fn reply(text: &str) -> Input {
        Input::ModelReplied(Reply {
            text: text.into(),
            ..Reply::default()
        })
    }

    fn finish(step: Step) -> (AgentRequest, Routed) {
        let Step::Finish(finish) = step else {
            panic!("not finished: {step:?}")
        };
        let Outcome::Continue(next) = finish.outcome else {
            panic!("not continued")
        };
        (*next, finish.routed.unwrap())
    }

    #[test]
    fn routes_in_two_recorded_decisions() {
        let mut turn = route(snapshot(), ask());
        let Step::AskModel(first) = turn.resume(Input::Begin) else {
            panic!()
        };
        assert_eq!(first.operation, Operation::ClassifyTaskType);
        let Step::AskModel(second) = turn.resume(reply(
            r#"{"choice":"risk","signal":"assess","rationale":"r"}"#,
        )) else {
            panic!()
        };
        assert_eq!(second.operation, Operation::SelectPattern);
        let offered = second.schema.unwrap()["properties"]["choice"]["enum"].clone();
        assert_eq!(
            offered,
            json!(["supervisor", "react"]),
            "only implemented ones are offered"
        );
        let (next, routed) = finish(turn.resume(reply("`supervisor`")));
        assert_eq!(next.pattern, "supervisor");
        assert_eq!(next.framing, "by dimension");
        assert_eq!(routed.decisions[0].signal, "assess");
        assert!(routed.decisions[1].narrowed_by.contains("not implemented"));
        assert!(
            routed.decisions[1]
                .narrowed_by
                .contains("`ghost`: not configured")
        );
    }

    #[test]
    fn a_choice_outside_the_set_is_asked_once_more_then_falls_back() {
        let mut turn = route(snapshot(), ask());
        turn.resume(Input::Begin);
        let Step::AskModel(again) = turn.resume(reply("astrology")) else {
            panic!()
        };
        assert_eq!(again.operation, Operation::ClassifyTaskType);
        let Step::AskModel(pattern) = turn.resume(reply(r#"{"choice":"astrology"}"#)) else {
            panic!()
        };
        assert_eq!(pattern.operation, Operation::SelectPattern);
        turn.resume(reply("nonsense"));
        let (next, routed) = finish(turn.resume(reply("more nonsense")));
        assert_eq!(
            (next.task_type.as_str(), next.pattern.as_str()),
            ("general", "react")
        );
        for decision in &routed.decisions {
            assert_eq!(decision.decided_by, DecidedBy::Fallback);
            assert!(decision.options.contains(&decision.chosen), "PV-2");
        }
    }

    #[test]
    fn what_happens_to_come_first_is_no_fallback() {
        let mut snapshot = snapshot();
        snapshot.task_types.remove("general");
        snapshot
            .patterns
            .insert("debate".into(), AgentPattern::default());
        let mut turn = route(snapshot, ask());
        turn.resume(Input::Begin);
        turn.resume(reply("neither"));
        // No item lists its patterns, so all are open to it, `debate` first of them.
        turn.resume(reply("nor"));
        turn.resume(reply("this"));
        let (next, routed) = finish(turn.resume(reply("nor that")));
        assert_eq!(
            (next.task_type.as_str(), next.pattern.as_str()),
            ("general", "react")
        );
        let [task_type, pattern] = routed.decisions.as_slice() else {
            panic!("{routed:?}")
        };
        assert_eq!(task_type.options, ["risk", "short", "general"]);
        assert!(task_type.narrowed_by.ends_with("which needs no item"));
        assert_eq!(pattern.options[0], "debate");
    }

    #[test]
    fn an_unknown_task_type_is_told_and_not_taken() {
        let asked = |pattern: &str| AgentRequest {
            task_type: "astrology".into(),
            pattern: pattern.into(),
            ..ask()
        };
        let mut turn = route(snapshot(), asked(""));
        turn.resume(Input::Begin);
        let Step::Finish(routed) = turn.resume(reply("short")) else {
            panic!("the router did not choose")
        };
        let mut turn = route(snapshot(), asked("router"));
        let Step::Finish(given) = turn.resume(Input::Begin) else {
            panic!("there is nobody to choose among")
        };
        for (finish, chosen) in [(routed, "router"), (given, "none")] {
            let decision = &finish.decisions[0];
            assert_eq!(
                (decision.subject.as_str(), decision.chosen.as_str()),
                ("override-task-type", chosen)
            );
            let why = "the request names task type `astrology`, which is not configured";
            assert_eq!(decision.signal, why);
            let Outcome::Continue(next) = finish.outcome else {
                panic!("it ended")
            };
            assert_ne!(next.task_type, "astrology");
        }
        assert_eq!(arrived(&asked("react"), &snapshot()).task_type, "");
    }

    #[test]
    fn a_router_is_offered_where_a_specialist_has_a_tool() {
        let mut snapshot = snapshot();
        snapshot
            .patterns
            .insert("router".into(), AgentPattern::default());
        let specialist = Specialist {
            tools: vec!["blog_*".into()],
            ..Specialist::default()
        };
        snapshot.specialists.insert("blog".into(), specialist);
        let (options, why) = pattern_options(&ask(), &snapshot, "general", 0);
        assert_eq!(options, ["react"]);
        assert!(
            why.contains("`router`: no specialist has a tool here"),
            "{why}"
        );
        let tool = ToolItem {
            name: "blog_list".into(),
            group: vec!["default".into()],
            applicable_states: vec!["*".into()],
            ..ToolItem::default()
        };
        snapshot.tools.insert("blog_list".into(), tool);
        let (options, _) = pattern_options(&ask(), &snapshot, "general", 0);
        assert_eq!(options, ["react", "router"]);
    }

    #[test]
    fn the_last_call_of_a_budget_is_not_spent_on_routing() {
        for (calls, by) in [(1, DecidedBy::Fallback), (2, DecidedBy::Model)] {
            let mut request = ask();
            request.limits.max_model_calls = Some(calls);
            let mut turn = route(snapshot(), request);
            let mut step = turn.resume(Input::Begin);
            if by == DecidedBy::Model {
                assert!(matches!(step, Step::AskModel(_)));
                step = turn.resume(reply("risk"));
            }
            let (next, routed) = finish(step);
            assert_eq!(next.pattern, "react", "{calls}");
            let by_whom: Vec<_> = routed.decisions.iter().map(|d| d.decided_by).collect();
            assert_eq!(by_whom, [by, DecidedBy::Fallback], "{calls}");
            let why = &routed.decisions[1].signal;
            assert_eq!(
                why,
                &format!("the budget of {calls} model calls has one left")
            );
        }
    }

    #[test]
    fn a_subagent_is_routed_among_the_patterns_that_are_open_to_it() {
        let mut request = ask();
        request.pattern = "react".into();
        request.task_type = "risk".into();
        request.parent_session_id = "p".into();
        request.parent_session_id = "p".into();
        assert!(request.is_subagent());
        let of = |snapshot: &Snapshot| arrived(&request, snapshot).decisions.remove(0);
        let told = of(&snapshot());
        assert!(told.narrowed_by.starts_with(VALID), "{told:?}");
        assert_eq!(told.decided_by, DecidedBy::Caller);
        // Who fanned out chose it, and nobody who called.
        for (by, options, signal) in [
            (DecidedBy::Model, 2, "decision `subagent-pattern-3`"),
            (DecidedBy::Fallback, 2, "decision `subagent-pattern-3`"),
            (DecidedBy::OnlyOption, 1, "there is no other"),
        ] {
            request.control.pattern_by = Some(by);
            request.control.index = 2;
            request.limits.max_depth = Some(1);
            let told = arrived(&request, &snapshot()).decisions.remove(0);
            assert_eq!((told.decided_by, told.options.len()), (by, options));
            assert!(told.signal.starts_with(signal), "{}", told.signal);
        }
        request.control.pattern_by = None;
        request.limits.max_depth = None;
        let of = |snapshot: &Snapshot| arrived(&request, snapshot).decisions.remove(0);
        // Whoever ends it from outside knows no config, and claims nothing about it.
        let told = of(&Snapshot::default());
        assert_eq!(told.narrowed_by, "the patterns this worker implements");
        assert_eq!(told.options, ["react"]);
    }

    #[test]
    fn one_option_costs_no_call() {
        let mut turn = route(snapshot(), ask());
        turn.resume(Input::Begin);
        let (next, routed) = finish(turn.resume(reply("short")));
        assert_eq!(next.pattern, "react");
        assert_eq!(routed.decisions[1].decided_by, DecidedBy::OnlyOption);
    }

    #[test]
    fn an_empty_config_degrades_to_general_and_react() {
        let mut turn = route(Snapshot::default(), ask());
        let (next, routed) = finish(turn.resume(Input::Begin));
        assert_eq!(
            (next.task_type.as_str(), next.pattern.as_str()),
            ("general", "react")
        );
        assert!(
            routed
                .decisions
                .iter()
                .all(|d| d.decided_by == DecidedBy::Fallback)
        );
    }

    #[test]
    fn without_depth_no_pattern_that_fans_out_is_offered() {
        let (options, why) = pattern_options(&ask(), &snapshot(), "risk", 0);
        assert_eq!(options, ["react"]);
        assert!(why.contains("`supervisor`: no depth left"), "{why}");
    }

    #[test]
    fn the_status_says_who_chose() {
        let told = |request: AgentRequest, replies: &[&str]| {
            let mut turn = route(snapshot(), request);
            let mut step = turn.resume(Input::Begin);
            for text in replies {
                step = turn.resume(reply(text));
            }
            let Step::Finish(finish) = step else {
                panic!("not finished: {step:?}")
            };
            finish.said[0].text.clone()
        };
        let (named, framed) = (
            AgentRequest {
                task_type: "short".into(),
                ..ask()
            },
            AgentRequest {
                framing: "as a lawyer".into(),
                ..ask()
            },
        );
        for (request, replies, expected) in [
            (
                ask(),
                vec!["risk", "react"],
                "task type `risk` of 3, pattern `react` of 2",
            ),
            (
                named,
                vec![],
                "task type `short`, given by the caller, pattern `react`, the only one",
            ),
            (
                framed,
                vec!["risk", "no", "no"],
                "task type `risk` of 3, pattern `react` (the model twice named none of the options), \
                 framing given by the caller",
            ),
        ] {
            assert_eq!(told(request, &replies), format!("Routed: {expected}"));
        }
    }

    #[test]
    fn a_named_task_type_is_kept() {
        let request = AgentRequest {
            task_type: "short".into(),
            ..ask()
        };
        let mut turn = route(snapshot(), request);
        let (next, routed) = finish(turn.resume(Input::Begin));
        assert_eq!(next.task_type, "short");
        assert_eq!(routed.decisions[0].decided_by, DecidedBy::Caller);
    }
}
