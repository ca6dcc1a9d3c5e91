//! The patterns that are open to a request, and what is recorded of a choice that no router made.

use super::{GENERAL, VALID};
use crate::patterns::{self, REACT};
use crate::task_types;
use agentfleet_schema::AgentRequest;
use agentfleet_schema::config::Snapshot;
use agentfleet_schema::records::{DecidedBy, Decision, Described, Routed};

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
            let why = match patterns::by_name(name) {
                _ if !configured.contains(name) => "not configured",
                None => "not implemented by this worker",
                Some(pattern) if pattern.fans_out() && max_depth == 0 => "no depth left",
                Some(pattern) => match pattern.closed_to(request, snapshot) {
                    Some(why) => why,
                    None => return true,
                },
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
            let known = patterns::names()
                .filter(|name| *name == pattern || snapshot.patterns.contains_key(*name));
            let options = known.map(str::to_owned).collect();
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
    if unrouted || !patterns::is_implemented(pattern) {
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
