//! What each subagent of a fan-out works by, and with which tool groups: of what is open to it, what its
//! goal names. What a model chose there is a decision of its own for each goal.

use super::REACT;
use super::fan_out::Goal;
use crate::limits::Limits;
use crate::routing::subagent_patterns;
use crate::say;
use crate::tools;
use crate::turn::Situation;
use agentfleet_schema::AgentRequest;
use agentfleet_schema::records::{DecidedBy, Decision};
use serde_json::{Value, json};

/// Subject of the decision on a subagent's pattern, before the number of its goal.
pub(crate) const PATTERN: &str = "subagent-pattern";
/// The same of its tool groups.
pub(crate) const GROUP: &str = "subagent-group";
/// A subagent that has every group of its parent.
pub(crate) const ALL: &str = "all of its parent's";
/// A subagent that has no tools.
const NONE: &str = "none";

/// What is open to the subagents of a request.
#[derive(Debug)]
pub(super) struct Offer {
    pub patterns: Vec<String>,
    pub narrowed_by: String,
    pub groups: Vec<String>,
}

/// A goal, with what it is worked by.
#[derive(Debug)]
pub(super) struct Assigned {
    pub goal: Goal,
    pub pattern: String,
    pub pattern_by: DecidedBy,
    pub group: Option<Vec<String>>,
}

impl Offer {
    /// Patterns that are valid for the task type, without fan-out where the depth ends; and the groups
    /// of the parent.
    pub(super) fn of(request: &AgentRequest, situation: &Situation, limits: &Limits) -> Self {
        let depth = limits.max_depth.saturating_sub(1);
        let snapshot = &situation.snapshot;
        let (patterns, narrowed_by) = subagent_patterns(request, snapshot, depth);
        Self {
            patterns,
            narrowed_by,
            groups: tools::groups(request, snapshot),
        }
    }

    /// Adds to the variables of a prompt what goals may name, and what was wrong with those before.
    pub(super) fn show(
        &self,
        variables: &mut Value,
        request: &AgentRequest,
        situation: &Situation,
        fault: &str,
    ) {
        let snapshot = &situation.snapshot;
        let known = self.patterns.iter();
        let known = known.filter_map(|name| Some((name, snapshot.patterns.get(name)?)));
        let patterns: Vec<Value> = known
            .map(|(name, p)| {
                json!({"name": name, "description": p.description, "when_to_use": p.when_to_use})
            })
            .collect();
        variables["patterns"] = patterns.into();
        variables["groups"] = json!(self.groups);
        variables["tools"] = tools::described(&tools::granted(request, snapshot));
        variables["fault"] = fault.into();
    }

    /// JSON Schema of a list of goals. Every property is required, as some providers want it.
    pub(super) fn goals_schema(&self) -> Value {
        let mut required = vec!["goal", "pattern", "rationale", "context"];
        let mut properties = json!({
            "goal": {"type": "string", "description": "one focused, self-contained goal"},
            "pattern": {"type": "string", "enum": self.patterns},
            "rationale": {"type": "string", "description": "why this pattern, and these tool groups"},
            "context": {"type": "string", "description": "what the subagent must know beside it"},
        });
        if self.groups.len() > 1 {
            required.push("group");
            properties["group"] = json!({
                "type": "array",
                "description": "tool groups that the subagent may use; empty means all of them",
                "items": {"type": "string", "enum": self.groups},
            });
        }
        json!({"type": "array", "items": {
            "type": "object",
            "additionalProperties": false,
            "required": required,
            "properties": properties,
        }})
    }

    /// What is wrong with the groups that goals name, for the model to put right. Who meant to take tools
    /// away from a subagent is not guessed at.
    pub(super) fn fault(&self, goals: &[Goal]) -> Option<String> {
        let unknown = goals.iter().zip(1..).find_map(|(goal, number)| {
            let (_, unknown) = tools::narrowed(&self.groups, &goal.group)?;
            let first = unknown.into_iter().next()?;
            Some(format!("goal {number} names the tool group `{first}`"))
        })?;
        Some(match self.groups.as_slice() {
            [] => format!("{unknown}, and there are none"),
            groups => format!("{unknown}, and there are: {}", groups.join(", ")),
        })
    }

    /// Settles what each goal is worked by, with the decisions that were made for it.
    pub(super) fn assign(
        &self,
        goals: Vec<Goal>,
        parent: Option<&Vec<String>>,
    ) -> (Vec<Assigned>, Vec<Decision>) {
        let mut decisions = Vec::new();
        let assigned = goals.into_iter().zip(1..).map(|(goal, number)| {
            let (pattern, pattern_by, decision) = self.pattern(&goal, number);
            decisions.extend(decision);
            let (group, decision) = self.group(&goal, number, parent);
            decisions.extend(decision);
            Assigned {
                goal,
                pattern,
                pattern_by,
                group,
            }
        });
        (assigned.collect(), decisions)
    }

    /// Whether a goal names a pattern that is not open to it.
    pub(super) fn is_closed(&self, goal: &Goal) -> bool {
        !goal.pattern.is_empty() && self.named(goal).is_none()
    }

    fn named(&self, goal: &Goal) -> Option<&String> {
        let name = goal.pattern.trim();
        let mut patterns = self.patterns.iter();
        patterns.find(|open| open.eq_ignore_ascii_case(name))
    }

    fn pattern(&self, goal: &Goal, number: u32) -> (String, DecidedBy, Option<Decision>) {
        let named = self.named(goal);
        let pattern = named.map_or(REACT, String::as_str).to_owned();
        let is_closed = self.is_closed(goal);
        if !is_closed && (goal.fixed || self.patterns.len() == 1) {
            return (pattern, DecidedBy::OnlyOption, None);
        }
        let (by, signal) = if is_closed {
            let signal = format!(
                "goal {number} names `{}`, which is not open here",
                goal.pattern
            );
            (DecidedBy::Fallback, signal)
        } else if named.is_none() {
            (
                DecidedBy::Fallback,
                format!("goal {number} names no pattern"),
            )
        } else {
            (DecidedBy::Model, goal.signal(number))
        };
        let decision = Decision {
            subject: format!("{PATTERN}-{number}"),
            options: self.patterns.clone(),
            narrowed_by: self.narrowed_by.clone(),
            signal,
            chosen: pattern.clone(),
            decided_by: by,
            rationale: goal.rationale.clone(),
        };
        (pattern, by, Some(decision))
    }

    /// What is not named is inherited. A name that its parent does not have gives nothing.
    fn group(
        &self,
        goal: &Goal,
        number: u32,
        parent: Option<&Vec<String>>,
    ) -> (Option<Vec<String>>, Option<Decision>) {
        let decided = |chosen: &str, decided_by: DecidedBy, signal: String| {
            let mut options = self.groups.clone();
            options.push(ALL.to_owned());
            if !options.iter().any(|option| option == chosen) {
                options.push(chosen.to_owned());
            }
            Decision {
                subject: format!("{GROUP}-{number}"),
                options,
                narrowed_by: "the tool groups of its parent, each alone or some together".into(),
                signal,
                chosen: chosen.to_owned(),
                decided_by,
                rationale: goal.rationale.clone(),
            }
        };
        let had_choice = !goal.fixed && self.groups.len() > 1;
        let Some((kept, unknown)) = tools::narrowed(&self.groups, &goal.group) else {
            let signal = format!("goal {number} names no group of its own");
            let decision = had_choice.then(|| decided(ALL, DecidedBy::Model, signal));
            return (parent.cloned(), decision);
        };
        let chosen = if kept.is_empty() {
            NONE.to_owned()
        } else {
            kept.join(", ")
        };
        let decision = if !unknown.is_empty() {
            let named: Vec<String> = unknown.iter().map(|name| format!("`{name}`")).collect();
            let signal = format!(
                "goal {number} names {}, which its parent does not have",
                named.join(", ")
            );
            Some(decided(&chosen, DecidedBy::Fallback, signal))
        } else if had_choice {
            Some(decided(&chosen, DecidedBy::Model, goal.signal(number)))
        } else {
            None
        };
        (Some(kept), decision)
    }
}

impl Goal {
    /// What a choice for it was made by.
    fn signal(&self, number: u32) -> String {
        format!("goal {number}: {}", say::in_one_line(&self.text))
    }
}
